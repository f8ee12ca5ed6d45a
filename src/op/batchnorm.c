/* batchnorm, in training: x [N, C, ..]; y = (x - mean) rstd scale + shift per channel, mean and var over the other
 * axes, rstd = 1/√(var + eps), var biased (divided by n). mean and var are results, from which the running statistics
 * are computed. batchnorm_grad: op/norm.h has its formulas. In evaluation the op is a chain of point-wise ones.
 * batchnorm_stats: mean, var and rstd scale alone, for the planner (plan/join.c): what is point-wise goes with its
 * neighbours. */
#include "op/collective.h"
#include "op/norm.h"

static ht_status need_channels(ht_context *ctx, const ht_call *call, size_t input)
{
    const ht_type *x = call->in[input];
    ht_type_text text;
    HT_TRY(ht_need_float(ctx, call, input));
    HT_TRY(ht_norm_need_eps(ctx, call));
    if (x->rank < 2) HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, not [N, C, ..]", input, ht_type_str(x, &text));
    if (ht_norm_channels(x).count <= 1)
        HT_FAIL(ctx, HT_ESHAPE, "training needs more than one value per channel, which %s has not",
                ht_type_str(x, &text));
    return HT_OK;
}

static ht_status batchnorm_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_channels(ctx, call, 0));
    const ht_type *x = call->in[0];
    HT_TRY(ht_norm_need_params(ctx, call, 1, x->dim[1]));
    out[0] = *x;
    out[1] = out[2] = ht_type_make(ht_norm_wide(x->dtype), 1, &x->dim[1]);
    return HT_OK;
}

HT_COST_PER_OUT(batchnorm_cost, 8)

/* Gradients through the statistics: mean is Σx/n; the gradient of var is 2 (x - mean)/n. */
static ht_val through_statistics(ht_graph *g, const ht_norm_axes *axes, const ht_grad *d)
{
    ht_val dx = HT_NONE;
    if (d->dy[1].id) {
        ht_val share = ht_scale(g, ht_norm_stat(g, axes, d->dy[1]), 1 / axes->count);
        dx = ht_expand(g, share, axes->rank, axes->dims);
    }
    if (d->dy[2].id) {
        ht_val slope = ht_scale(g, ht_norm_stat(g, axes, d->dy[2]), 2 / axes->count);
        ht_val shifted = ht_sub(g, d->x[0], ht_norm_stat(g, axes, d->y[1]));
        dx = ht_norm_plus(g, dx, ht_mul(g, shifted, slope));
    }
    return dx;
}

static ht_status batchnorm_backward(ht_graph *g, const ht_grad *d)
{
    size_t n_in = d->call->n_in;
    bool need_scale = n_in > 1 && d->need[1], need_shift = n_in > 2 && d->need[2];
    ht_norm_axes axes = ht_norm_channels(d->call->in[0]);
    ht_val scale = n_in > 1 ? d->x[1] : HT_NONE, out[3] = {HT_NONE, HT_NONE, HT_NONE};
    if (d->dy[0].id && (d->need[0] || need_scale))
        ht_emit_n(g, "batchnorm_grad", NULL, HT_VALS(d->dy[0], d->x[0], d->y[1], d->y[2], scale),
                  HT_ATTRS(HT_FLOAT("eps", ht_call_float(d->call, "eps"))), out);
    else if (d->dy[0].id && need_shift)
        out[2] = ht_norm_total(g, &axes, d->dy[0]);
    if (d->need[0]) d->dx[0] = ht_norm_plus(g, out[0], through_statistics(g, &axes, d));
    if (need_scale) d->dx[1] = out[1];
    if (need_shift) d->dx[2] = out[2];
    return ht_graph_status(g);
}

/* x as [N, C, S]. */
typedef struct channels {
    int64_t samples, count, size;
} channels;

static channels channels_of(const ht_type *x)
{
    channels c = {x->dim[0], x->dim[1], 1};
    for (int i = 2; i < x->rank; i++) c.size *= x->dim[i];
    return c;
}

/* Mean and variance of channel c. */
static void channel_stats(const channels *k, const double *x, int64_t c, double *mean, double *var)
{
    double n = (double)(k->samples * k->size);
    *mean = *var = 0;
    for (int64_t s = 0; s < k->samples; s++)
        for (int64_t i = 0; i < k->size; i++) *mean += x[(s * k->count + c) * k->size + i] / n;
    for (int64_t s = 0; s < k->samples; s++)
        for (int64_t i = 0; i < k->size; i++) {
            double shifted = x[(s * k->count + c) * k->size + i] - *mean;
            *var += shifted * shifted / n;
        }
}

static void batchnorm_ref(const ht_call *call, const double *const *in, double *const *out)
{
    channels k = channels_of(call->in[0]);
    double eps = ht_call_float(call, "eps");
    for (int64_t c = 0; c < k.count; c++) {
        double scale = ht_norm_input(call, 1) ? in[1][c] : 1, shift = ht_norm_input(call, 2) ? in[2][c] : 0;
        double mean, var;
        channel_stats(&k, in[0], c, &mean, &var);
        for (int64_t s = 0; s < k.samples; s++)
            for (int64_t i = 0; i < k.size; i++) {
                int64_t at = (s * k.count + c) * k.size + i;
                out[0][at] = (in[0][at] - mean) / sqrt(var + eps) * scale + shift;
            }
        out[1][c] = mean;
        out[2][c] = var;
    }
}

/* ---- batchnorm_stats (x, scale or _) → mean, var, factor ---- */

static ht_status batchnorm_stats_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_channels(ctx, call, 0));
    const ht_type *x = call->in[0];
    HT_TRY(ht_norm_need_params(ctx, call, 1, x->dim[1]));
    for (int i = 0; i < 3; i++) out[i] = ht_type_make(ht_norm_wide(x->dtype), 1, &x->dim[1]);
    return HT_OK;
}

static void batchnorm_stats_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = 4 * (double)ht_type_elems(call->in[0]);
}

static void batchnorm_stats_ref(const ht_call *call, const double *const *in, double *const *out)
{
    channels k = channels_of(call->in[0]);
    double eps = ht_call_float(call, "eps");
    for (int64_t c = 0; c < k.count; c++) {
        channel_stats(&k, in[0], c, &out[0][c], &out[1][c]);
        out[2][c] = (ht_norm_input(call, 1) ? in[1][c] : 1) / sqrt(out[1][c] + eps);
    }
}

/* ---- batchnorm_grad (dy, x, mean, var, scale or _, shift or _) → dx, dscale, dshift ----
 * With shift it is the gradient of relu(batchnorm): dy counts where the norm's result is above zero. */

static ht_status batchnorm_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_channels(ctx, call, 1));
    const ht_type *x = call->in[1];
    HT_TRY(ht_norm_need_shape(ctx, call, 0, x->rank, x->dim));
    HT_TRY(ht_norm_need_params(ctx, call, 2, x->dim[1]));
    out[0] = *x;
    out[1] = out[2] = ht_type_make(ht_norm_wide(x->dtype), 1, &x->dim[1]);
    return HT_OK;
}

HT_COST_PER_OUT(batchnorm_grad_cost, 12)

/* v where a relu behind the norm lets it through. */
static ht_val shown(ht_graph *g, const ht_norm_axes *axes, const ht_grad *d, ht_val rstd, ht_val v)
{
    if (d->call->n_in < 6 || !v.id) return v;
    ht_val factor = d->x[4].id ? ht_mul(g, rstd, d->x[4]) : rstd;
    ht_val y = ht_sub(g, d->x[1], ht_norm_stat(g, axes, d->x[2]));
    y = ht_mul(g, y, ht_norm_stat(g, axes, factor));
    y = ht_add(g, y, ht_norm_param(g, axes, d->x[5]));
    ht_val zero = ht_expand(g, ht_fill(g, ht_val_dtype(g, y), 0, NULL, 0), axes->rank, axes->dims);
    ht_val none = ht_expand(g, ht_fill(g, ht_val_dtype(g, v), 0, NULL, 0), axes->rank, axes->dims);
    return ht_select(g, ht_le(g, y, zero), none, v);
}

static ht_status batchnorm_grad_backward(ht_graph *g, const ht_grad *d)
{
    bool scaled = d->call->n_in > 4 && d->x[4].id;
    ht_norm_axes axes = ht_norm_channels(d->call->in[1]);
    ht_val rstd = ht_rsqrt(g, ht_add_scalar(g, d->x[3], ht_call_float(d->call, "eps")));
    ht_norm_second s = {.dy = shown(g, &axes, d, rstd, d->x[0]), .x = d->x[1], .mean = d->x[2], .rstd = rstd};
    s.a = d->dy[0];
    s.b = d->dy[1];
    s.e = d->dy[2];
    s.need.dy = d->need[0];
    s.need.x = d->need[1];
    s.need.mean = d->need[2];
    s.need.rstd = d->need[3];
    if (scaled) s.scale = d->x[4], s.need.scale = d->need[4];
    ht_norm_differentiate(g, &axes, &s);
    d->dx[0] = shown(g, &axes, d, rstd, s.to_dy);
    d->dx[1] = s.to_x;
    d->dx[2] = s.to_mean;
    if (s.to_rstd.id) {
        ht_val cube = ht_mul(g, rstd, ht_mul(g, rstd, rstd));
        d->dx[3] = ht_scale(g, ht_mul(g, s.to_rstd, cube), -0.5);
    }
    if (scaled) d->dx[4] = s.to_scale;
    return ht_graph_status(g);
}

static void batchnorm_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    channels k = channels_of(call->in[1]);
    bool hidden = ht_norm_input(call, 5) != NULL;
    double n = (double)(k.samples * k.size), eps = ht_call_float(call, "eps");
    for (int64_t c = 0; c < k.count; c++) {
        double scale = ht_norm_input(call, 4) ? in[4][c] : 1, mean = in[2][c], rstd = 1 / sqrt(in[3][c] + eps);
        double plain = 0, along = 0;
        for (int64_t s = 0; s < k.samples; s++)
            for (int64_t i = 0; i < k.size; i++) {
                int64_t at = (s * k.count + c) * k.size + i;
                double xhat = (in[1][at] - mean) * rstd;
                double dy = hidden && xhat * scale + in[5][c] <= 0 ? 0 : in[0][at];
                plain += dy;
                along += dy * xhat;
            }
        for (int64_t s = 0; s < k.samples; s++)
            for (int64_t i = 0; i < k.size; i++) {
                int64_t at = (s * k.count + c) * k.size + i;
                double xhat = (in[1][at] - mean) * rstd;
                double dy = hidden && xhat * scale + in[5][c] <= 0 ? 0 : in[0][at];
                out[0][at] = rstd * scale * (dy - plain / n - xhat * along / n);
            }
        out[1][c] = along;
        out[2][c] = plain;
    }
}

static const ht_attr_def batchnorm_attrs[] = {HT_DEF_FLOAT("eps", 1e-5), HT_DEF_END};

static const char *const batchnorm_samples[] = {
    "(f32[6,3], f32[3], f32[3])",
    "(f32[2,3,2,2], f32[3], f32[3])",
    "(f32[3,2,4], f32[2]) eps=0.01",
    "(f32[1,2,5], _, f32[2])",
    "(f32[4,0,2])",
    "(bf16[4,3,2], f32[3], f32[3])",
    "(f32[5,20])",
    "(f32[3,18,7,9] -2..3, f32[18], f32[18])",
    NULL,
};

static const char *const batchnorm_stats_samples[] = {
    "(f32[6,3], f32[3])",
    "(f32[2,3,2,2])",
    "(f32[3,2,4], f32[2]) eps=0.01",
    "(f32[4,0,2])",
    "(bf16[4,3,2], f32[3])",
    "(f32[5,24,9,13] -2..3, f32[24])",
    "(f32[7,40,11,11] -2..3, f32[40])",
    NULL,
};

static const char *const batchnorm_grad_samples[] = {
    "(f32[6,3], f32[6,3], f32[3], f32[3] 0.5..2, f32[3])",
    "(f32[2,3,2,2], f32[2,3,2,2], f32[3], f32[3] 0.5..2)",
    "(f32[3,2,4], f32[3,2,4], f32[2], f32[2] 0.5..2, f32[2]) eps=0.01",
    "(f32[4,0,2], f32[4,0,2], f32[0], f32[0])",
    "(bf16[4,3,2], bf16[4,3,2], f32[3], f32[3] 0.5..2, f32[3])",
    "(f32[3,18,7,9], f32[3,18,7,9], f32[18], f32[18] 0.5..2, f32[18])",
    "(f32[3,4,5,2], f32[3,4,5,2], f32[4], f32[4] 0.5..2, f32[4], f32[4])",
    "(f32[3,2,4], f32[3,2,4], f32[2], f32[2] 0.5..2, _, f32[2]) eps=0.01",
    NULL,
};

const ht_op ht_op_batchnorm = {
    .size = sizeof(ht_op),
    .name = "batchnorm",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 3,
    .n_out = 3,
    .f32_out = 6,
    .attrs = batchnorm_attrs,
    .infer = batchnorm_infer,
    .cost = batchnorm_cost,
    .grad = batchnorm_backward,
    .ref = batchnorm_ref,
    .samples = batchnorm_samples,
};

const ht_op ht_op_batchnorm_stats = {
    .size = sizeof(ht_op),
    .name = "batchnorm_stats",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 2,
    .n_out = 3,
    .f32_out = 7,
    .attrs = batchnorm_attrs,
    .infer = batchnorm_stats_infer,
    .cost = batchnorm_stats_cost,
    .ref = batchnorm_stats_ref,
    .no_grad = "the planner makes it, when all gradients are there",
    .samples = batchnorm_stats_samples,
};

const ht_op ht_op_batchnorm_grad = {
    .size = sizeof(ht_op),
    .name = "batchnorm_grad",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 4,
    .max_in = 6,
    .n_out = 3,
    .f32_out = 6,
    .attrs = batchnorm_attrs,
    .infer = batchnorm_grad_infer,
    .cost = batchnorm_grad_cost,
    .grad = batchnorm_grad_backward,
    .ref = batchnorm_grad_ref,
    .samples = batchnorm_grad_samples,
};

/* running·(1 − momentum) + batch·momentum, in the state's own type. */
static void store_running(ht_graph *g, ht_val running, ht_val batch, double momentum)
{
    ht_val share = ht_scale(g, batch, momentum);
    ht_val next = ht_add(g, ht_scale(g, running, 1 - momentum), share);
    ht_store(g, running, ht_cast(g, next, ht_val_dtype(g, running)));
}

ht_val ht_batchnorm_train(ht_graph *g, ht_val x, ht_val scale, ht_val shift, ht_val running_mean, ht_val running_var,
                          double momentum, double eps)
{
    if (!ht_graph_has(g, x) || !ht_graph_has(g, running_mean) || !ht_graph_has(g, running_var)) return HT_NONE;
    ht_val out[3] = {HT_NONE};
    ht_emit_n(g, "batchnorm", NULL, HT_VALS(x, scale, shift), HT_ATTRS(HT_FLOAT("eps", eps)), out);
    if (!out[0].id) return HT_NONE;
    double n = ht_norm_channels(ht_type_of(g, x)).count;
    store_running(g, running_mean, out[1], momentum);
    store_running(g, running_var, ht_scale(g, out[2], n / (n - 1)), momentum);
    return out[0];
}

/* The statistics are two sums over ranks, so that the gradient follows from theirs: two sums as well. */
void ht_batchnorm_over(ht_graph *g, ht_val x, ht_val scale, ht_val shift, double eps, ht_group ranks, ht_val out[3])
{
    ht_norm_axes axes = ht_norm_channels(ht_type_of(g, x));
    ht_dtype dtype = ht_val_dtype(g, x);
    double count = axes.count * (double)ranks.ranks;
    ht_val wide = ht_cast(g, x, ht_norm_wide(dtype));
    ht_val sum = ht_all_reduce(g, ht_norm_total(g, &axes, wide), ranks, "sum");
    ht_val mean = ht_scale(g, sum, 1 / count);
    ht_val shifted = ht_sub(g, wide, ht_norm_stat(g, &axes, mean));
    ht_val squares = ht_norm_total(g, &axes, ht_mul(g, shifted, shifted));
    ht_val var = ht_scale(g, ht_all_reduce(g, squares, ranks, "sum"), 1 / count);
    ht_val factor = ht_rsqrt(g, ht_add_scalar(g, var, eps));
    if (scale.id) factor = ht_mul(g, factor, scale);
    ht_val y = ht_mul(g, shifted, ht_norm_stat(g, &axes, factor));
    if (shift.id) y = ht_add(g, y, ht_norm_param(g, &axes, shift));
    out[0] = ht_cast(g, y, dtype);
    out[1] = mean;
    /* Who reads it makes an unbiased one of it by the count of one rank. */
    out[2] = ht_scale(g, var, count / (count - 1) * (axes.count - 1) / axes.count);
}

ht_val ht_batchnorm_eval(ht_graph *g, ht_val x, ht_val scale, ht_val shift, ht_val running_mean, ht_val running_var,
                         double eps)
{
    if (!ht_graph_has(g, x) || !ht_graph_has(g, running_mean) || !ht_graph_has(g, running_var)) return HT_NONE;
    if (ht_val_rank(g, x) < 2) {
        ht_graph_fail(g, HT_ESHAPE, "batchnorm: x of rank %d is not [N, C, ..]", ht_val_rank(g, x));
        return HT_NONE;
    }
    ht_norm_axes axes = ht_norm_channels(ht_type_of(g, x));
    ht_val factor = ht_rsqrt(g, ht_add_scalar(g, running_var, eps));
    if (scale.id) factor = ht_mul(g, factor, scale);
    ht_val y = ht_sub(g, x, ht_norm_stat(g, &axes, running_mean));
    y = ht_mul(g, y, ht_norm_stat(g, &axes, factor));
    if (shift.id) y = ht_add(g, y, ht_norm_param(g, &axes, shift));
    return ht_cast(g, y, ht_val_dtype(g, x));
}
