/* What is kept of the inputs of a layer: sums over all rows seen so far, so memory does not grow with the data. */
#ifndef HT_COMPRESS_INPUT_MOMENTS_H
#define HT_COMPRESS_INPUT_MOMENTS_H

#include "train/train.h"

typedef struct ht_input_moments {
    int64_t k, rows;
    double *products;  /* [k, k]: the sum of x[i] x[j] */
    double *magnitude; /* [k]: the sum of |x[i]| */
} ht_input_moments;

ht_status ht_input_moments_create(ht_input_moments *out, ht_context *ctx, int64_t k);
void ht_input_moments_free(ht_input_moments *moments);
/* x: row-major f32[rows, k]. A number that is not finite is a failure that leaves the sums as they were. */
ht_status ht_input_moments_add(ht_input_moments *moments, ht_context *ctx, const float *x, int64_t rows);

#endif
