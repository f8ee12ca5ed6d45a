/* Calibration: what the layers of a trained run read, batch by batch of its training data. Nothing is kept: memory does not
 * depend on the number of batches. */
#ifndef HT_TRAIN_CALIBRATE_H
#define HT_TRAIN_CALIBRATE_H

#include "exec/exec.h"

typedef struct ht_run ht_run;

/* One call of a layer, right after it was computed. */
typedef struct ht_layer_input {
    const char *weight;  /* its name */
    const ht_call *call; /* in[0]: the input */
    const float *x;      /* the input's elements, row-major; valid during the call */
    int64_t count;
} ht_layer_input;
typedef ht_status (*ht_layer_input_fn)(void *arg, const ht_layer_input *input);

/* Of a run that was opened with HT_RUN_CALIBRATE: its next `batches` batches, evaluated. Layers are the ops that the pass
 * `quantize` knows, by parameters of f32. A failure of `on_input` ends it. */
ht_status ht_run_calibrate(ht_run *run, int64_t batches, ht_layer_input_fn on_input, void *arg);

#endif
