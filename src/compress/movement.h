/* Movement pruning (Sanh et al. 2020): what a weight is worth is how training moves it, away from zero or towards it. The
 * score of a weight is the sum over steps of -weight × gradient. */
#ifndef HT_COMPRESS_MOVEMENT_H
#define HT_COMPRESS_MOVEMENT_H

#include "compress/weights.h"
#include "train/train.h"

typedef struct ht_movement_tensor {
    char *name;
    double *scores; /* as many as elements */
} ht_movement_tensor;

typedef struct ht_movement {
    const ht_weights *weights;   /* as the training begins with them */
    ht_movement_tensor *tensors; /* those that were chosen; training may leave them in another order */
    double *grad;                /* of the tensor at hand: as many as the largest has */
    size_t count;
} ht_movement;

/* Scores begin as zeros. ht_movement_close after a failure, too. */
ht_status ht_movement_open(ht_movement *out, ht_context *ctx, const ht_weights *weights, const bool *chosen);
void ht_movement_close(ht_movement *m);
/* NULL: there is no movement, or it has none of this tensor. */
const double *ht_movement_scores(const ht_movement *m, const char *name);

/* All steps of a run that was opened; each adds to the scores. Leaves a snapshot. */
ht_status ht_movement_train(ht_movement *m, ht_context *ctx, ht_run *run, const atomic_int *stop);

#endif
