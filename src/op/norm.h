/* Formulas and rules shared by layernorm, rmsnorm and batchnorm. With xhat = (x - mean) rstd they compute y = xhat
 * scale + shift; their gradient ops compute, with g = dy scale and means over the axes of a statistic,
 *      dx = rstd (g - mean(g) - xhat mean(g xhat)),   dscale = Σ dy xhat,   dshift = Σ dy
 * (rmsnorm has no mean, no mean(g) and no dshift). */
#ifndef HT_OP_NORM_H
#define HT_OP_NORM_H

#include "op/op.h"

typedef struct ht_norm_axes {
    int rank;
    int n_stat, n_param;
    int64_t stat[HT_MAX_RANK];       /* axes that a statistic is taken over */
    int64_t param[HT_MAX_RANK];      /* axes that scale and shift are shared over */
    int64_t dims[HT_MAX_RANK];       /* of x */
    int64_t stat_dims[HT_MAX_RANK];  /* of x, 1 along `stat` */
    int64_t param_dims[HT_MAX_RANK]; /* of x, 1 along `param` */
    double count;                    /* elements under one statistic; 1 where there are none */
} ht_norm_axes;

/* Statistics over the last axis; scale and shift have its size. */
ht_norm_axes ht_norm_last(const ht_type *x);
/* Statistics of each index of axis 1; scale and shift too. */
ht_norm_axes ht_norm_channels(const ht_type *x);

/* The type that statistics and parameter gradients have: f64 for f64, else f32. */
ht_dtype ht_norm_wide(ht_dtype dtype);
/* Input i, or NULL when it is left out. */
const ht_type *ht_norm_input(const ht_call *call, size_t i);
/* Inputs from `first` on are scale and shift: float, of `size` numbers, or left out. */
ht_status ht_norm_need_params(ht_context *ctx, const ht_call *call, size_t first, int64_t size);
/* The attribute eps is finite and not negative. */
ht_status ht_norm_need_eps(ht_context *ctx, const ht_call *call);
/* Input i has these sizes and is float. */
ht_status ht_norm_need_shape(ht_context *ctx, const ht_call *call, size_t i, int rank, const int64_t *dims);

/* A statistic or a parameter in a shape that broadcasts with x; none stays none. */
ht_val ht_norm_stat(ht_graph *g, const ht_norm_axes *norm, ht_val v);
ht_val ht_norm_param(ht_graph *g, const ht_norm_axes *norm, ht_val v);
/* v, of x's shape, summed to the shape of a parameter. */
ht_val ht_norm_total(ht_graph *g, const ht_norm_axes *norm, ht_val v);
/* a + b, where either may be none. */
ht_val ht_norm_plus(ht_graph *g, ht_val a, ht_val b);

/* Second derivatives: the gradient of a gradient op, with a, b and e the gradients of dx, dscale and dshift (none:
 * zero). */
typedef struct ht_norm_second {
    ht_val dy, x, mean, rstd, scale; /* mean is none for rmsnorm, scale where there is none */
    ht_val a, b, e;
    struct {
        bool dy, x, mean, rstd, scale;
    } need;
    ht_val to_dy, to_x, to_mean, to_rstd, to_scale; /* results; none means zero */
} ht_norm_second;
void ht_norm_differentiate(ht_graph *g, const ht_norm_axes *norm, ht_norm_second *s);

#endif
