/* What a patient person would write by hand instead of a graph, to measure fusion against. */
#ifndef BENCH_HANDWRITTEN_H
#define BENCH_HANDWRITTEN_H

#include "train/train.h"

/* y = residual + gelu(x + bias) over rows × columns, bias a row. */
typedef struct gelu_job {
    ht_pool *pool;
    int64_t rows, columns;
    const float *x, *bias, *residual;
    float *y;
} gelu_job;

/* A contest_turn; arg is a gelu_job. For the widest instruction set of this machine. */
double gelu_turn(void *arg, int calls);

#endif
