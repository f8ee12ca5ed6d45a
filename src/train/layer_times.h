/* The layers of an evaluation, timed: what a layer costs with codes, and what with floats. */
#ifndef HT_TRAIN_LAYER_TIMES_H
#define HT_TRAIN_LAYER_TIMES_H

#include "exec/exec.h"

typedef struct ht_layer_time {
    char *weight;   /* its name; codes and half copies count as their weight */
    char *kernel;   /* of its product */
    double seconds; /* of one evaluation, what makes codes of its input included */
    bool codes;     /* its product reads them */
} ht_layer_time;

typedef struct ht_layer_times {
    ht_layer_time *items; /* in the order in which they are computed */
    size_t count;
} ht_layer_times;

/* The session's evaluation, for a while. ht_layer_times_free after a failure, too. */
ht_status ht_layer_times_measure(ht_layer_times *out, ht_context *ctx, ht_session *session);
void ht_layer_times_free(ht_layer_times *times);
/* NULL: there is no such layer. */
const ht_layer_time *ht_layer_times_find(const ht_layer_times *times, const char *weight);

#endif
