/* layernorm: y = (x - mean) rstd scale + shift over the last axis, rstd = 1/√(mean((x - mean)²) + eps).
 * rmsnorm: y = x rstd scale, rstd = 1/√(mean(x²) + eps).
 * The statistics are results like any other, so that the gradient ops, which read them, can be differentiated again.
 * layernorm_grad, rmsnorm_grad: op/norm.h has their formulas.
 * layernorm_grad_sum has besides the sums of dx over all axes but its last, the gradient of a bias that was added to x: for
 * the planner (plan/join.c). */
#include "op/norm.h"

/* layernorm and its gradient ops, which have one result more than their cousins: the mean, the gradient of the shift. */
static bool is_centred(const ht_call *call)
{
    return call->op->n_out >= 3;
}

static ht_status norm_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0];
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(ht_norm_need_eps(ctx, call));
    if (x->rank == 0) HT_FAIL(ctx, HT_ESHAPE, "a scalar has no last axis");
    HT_TRY(ht_norm_need_params(ctx, call, 1, x->dim[x->rank - 1]));
    out[0] = *x;
    for (int i = 1; i < call->op->n_out; i++) out[i] = ht_type_make(ht_norm_wide(x->dtype), x->rank - 1, x->dim);
    return HT_OK;
}

HT_COST_PER_OUT(norm_cost, 8)

/* Gradients through the statistics: mean is Σx/n; the gradient of rstd is -rstd³ (x - mean)/n. */
static ht_val through_statistics(ht_graph *g, const ht_norm_axes *axes, const ht_grad *d, bool centred)
{
    ht_val mean = centred ? d->y[1] : HT_NONE, rstd = d->y[centred ? 2 : 1];
    ht_val to_mean = centred ? d->dy[1] : HT_NONE, to_rstd = d->dy[centred ? 2 : 1], dx = HT_NONE;
    if (to_mean.id) {
        ht_val share = ht_scale(g, ht_norm_stat(g, axes, to_mean), 1 / axes->count);
        dx = ht_expand(g, share, axes->rank, axes->dims);
    }
    if (to_rstd.id) {
        ht_val cube = ht_mul(g, rstd, ht_mul(g, rstd, rstd));
        ht_val slope = ht_norm_stat(g, axes, ht_scale(g, ht_mul(g, to_rstd, cube), -1 / axes->count));
        ht_val shifted = centred ? ht_sub(g, d->x[0], ht_norm_stat(g, axes, mean)) : d->x[0];
        dx = ht_norm_plus(g, dx, ht_mul(g, shifted, slope));
    }
    return dx;
}

static ht_status norm_grad(ht_graph *g, const ht_grad *d)
{
    bool centred = is_centred(d->call);
    size_t n_in = d->call->n_in;
    bool need_scale = n_in > 1 && d->need[1], need_shift = n_in > 2 && d->need[2];
    ht_norm_axes axes = ht_norm_last(d->call->in[0]);
    ht_val scale = n_in > 1 ? d->x[1] : HT_NONE, out[3] = {HT_NONE, HT_NONE, HT_NONE};
    if (d->dy[0].id && (d->need[0] || need_scale)) {
        const ht_attr params[] = {HT_INT("params", need_scale || need_shift)};
        if (centred)
            ht_emit_n(g, "layernorm_grad", NULL, HT_VALS(d->dy[0], d->x[0], d->y[1], d->y[2], scale), 1, params, out);
        else
            ht_emit_n(g, "rmsnorm_grad", NULL, HT_VALS(d->dy[0], d->x[0], d->y[1], scale), 1, params, out);
    } else if (d->dy[0].id && need_shift) {
        out[2] = ht_norm_total(g, &axes, d->dy[0]);
    }
    if (d->need[0]) d->dx[0] = ht_norm_plus(g, out[0], through_statistics(g, &axes, d, centred));
    if (need_scale) d->dx[1] = out[1];
    if (need_shift) d->dx[2] = out[2];
    return ht_graph_status(g);
}

static void norm_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0];
    bool centred = is_centred(call);
    int64_t n = x->dim[x->rank - 1], rows = ht_type_elems(call->out[1]);
    const double *scale = ht_norm_input(call, 1) ? in[1] : NULL, *shift = ht_norm_input(call, 2) ? in[2] : NULL;
    for (int64_t r = 0; r < rows; r++) {
        const double *row = in[0] + r * n;
        double mean = 0, square = 0;
        for (int64_t i = 0; centred && i < n; i++) mean += row[i] / (double)n;
        for (int64_t i = 0; i < n; i++) square += (row[i] - mean) * (row[i] - mean) / (double)n;
        double rstd = 1 / sqrt(square + ht_call_float(call, "eps"));
        for (int64_t i = 0; i < n; i++)
            out[0][r * n + i] = (row[i] - mean) * rstd * (scale ? scale[i] : 1) + (shift ? shift[i] : 0);
        if (centred) out[1][r] = mean;
        out[centred ? 2 : 1][r] = rstd;
    }
}

/* ---- their gradient ops: (dy, x, mean, rstd, scale or _, plus or _), or (dy, x, rstd, scale or _, plus or _); plus is
 * added to dx: the gradient of a residual, given by the planner (plan/join.c) ---- */

static ht_status norm_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[1];
    size_t stats = is_centred(call) ? 2 : 1;
    HT_TRY(ht_need_float(ctx, call, 1));
    if (x->rank == 0) HT_FAIL(ctx, HT_ESHAPE, "a scalar has no last axis");
    HT_TRY(ht_norm_need_shape(ctx, call, 0, x->rank, x->dim));
    for (size_t i = 0; i < stats; i++) HT_TRY(ht_norm_need_shape(ctx, call, 2 + i, x->rank - 1, x->dim));
    int64_t size = x->dim[x->rank - 1];
    if (ht_norm_input(call, 2 + stats)) HT_TRY(ht_norm_need_shape(ctx, call, 2 + stats, 1, &size));
    if (ht_norm_input(call, 3 + stats)) HT_TRY(ht_norm_need_shape(ctx, call, 3 + stats, x->rank, x->dim));
    if (!ht_call_int(call, "params")) size = 0;
    out[0] = *x;
    for (int i = 1; i < call->op->n_out; i++) out[i] = ht_type_make(ht_norm_wide(x->dtype), 1, &size);
    return HT_OK;
}

static ht_status layernorm_grad_sum_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(norm_grad_infer(ctx, call, out));
    out[3] = ht_type_make(ht_norm_wide(out[0].dtype), 1, &out[0].dim[out[0].rank - 1]);
    return HT_OK;
}

HT_COST_PER_OUT(norm_grad_cost, 14)
HT_COST_PER_OUT(layernorm_grad_sum_cost, 15)

static ht_status norm_grad_grad(ht_graph *g, const ht_grad *d)
{
    bool centred = is_centred(d->call), params = ht_call_int(d->call, "params") != 0;
    size_t rstd = centred ? 3 : 2, scale = rstd + 1;
    bool scaled = scale < d->call->n_in && d->call->in[scale];
    ht_norm_axes axes = ht_norm_last(d->call->in[1]);
    ht_norm_second s = {.dy = d->x[0], .x = d->x[1], .rstd = d->x[rstd], .a = d->dy[0]};
    s.need.dy = d->need[0];
    s.need.x = d->need[1];
    s.need.rstd = d->need[rstd];
    if (centred) s.mean = d->x[2], s.need.mean = d->need[2];
    if (scaled) s.scale = d->x[scale], s.need.scale = d->need[scale];
    if (params) s.b = d->dy[1];
    if (params && centred) s.e = d->dy[2];
    ht_norm_differentiate(g, &axes, &s);
    d->dx[0] = s.to_dy;
    d->dx[1] = s.to_x;
    d->dx[rstd] = s.to_rstd;
    if (centred) d->dx[2] = s.to_mean;
    if (scaled) d->dx[scale] = s.to_scale;
    if (ht_norm_input(d->call, scale + 1) && d->need[scale + 1]) d->dx[scale + 1] = d->dy[0];
    return ht_graph_status(g);
}

static void norm_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[1];
    bool centred = is_centred(call), params = ht_call_int(call, "params") != 0;
    size_t at = centred ? 3 : 2;
    int64_t n = x->dim[x->rank - 1], rows = ht_type_elems(call->in[at]);
    const double *scale = ht_norm_input(call, at + 1) ? in[at + 1] : NULL;
    const double *plus = ht_norm_input(call, at + 2) ? in[at + 2] : NULL;
    for (int64_t i = 0; params && i < n; i++) out[1][i] = 0;
    for (int64_t i = 0; params && centred && i < n; i++) out[2][i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        double mean = centred ? in[2][r] : 0, rstd = in[at][r], plain = 0, along = 0;
        for (int64_t i = 0; i < n; i++) {
            double dy = in[0][r * n + i], xhat = (in[1][r * n + i] - mean) * rstd, grad = dy * (scale ? scale[i] : 1);
            plain += centred ? grad / (double)n : 0;
            along += grad * xhat / (double)n;
            if (params) out[1][i] += dy * xhat;
            if (params && centred) out[2][i] += dy;
        }
        for (int64_t i = 0; i < n; i++) {
            double xhat = (in[1][r * n + i] - mean) * rstd, grad = in[0][r * n + i] * (scale ? scale[i] : 1);
            out[0][r * n + i] = rstd * (grad - plain - xhat * along) + (plus ? plus[r * n + i] : 0);
        }
    }
}

static void layernorm_grad_sum_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[1];
    int64_t n = x->dim[x->rank - 1], elems = ht_type_elems(x);
    norm_grad_ref(call, in, out);
    for (int64_t i = 0; i < n; i++) out[3][i] = 0;
    for (int64_t i = 0; i < elems; i++) out[3][i % n] += out[0][i];
}

static const ht_attr_def layernorm_attrs[] = {HT_DEF_FLOAT("eps", 1e-5), HT_DEF_END};
static const ht_attr_def rmsnorm_attrs[] = {HT_DEF_FLOAT("eps", 1e-6), HT_DEF_END};
/* params=0: the gradients of scale and shift are not needed, and have no elements. */
static const ht_attr_def norm_grad_attrs[] = {HT_DEF_INT("params", 1), HT_DEF_END};

static const char *const layernorm_samples[] = {
    "(f32[4,7], f32[7], f32[7])",
    "(f32[2,3,5], f32[5])",
    "(f32[3,6], _, f32[6]) eps=0.01",
    "(f32[8])",
    "(f32[4,1], f32[1])",
    "(f32[0,4], f32[4], f32[4])",
    "(f32[3,0])",
    "(bf16[3,8], f32[8], f32[8])",
    "(f32[3,1100] -3..5, f32[1100], f32[1100])",
    "(f32[80,19], f32[19], f32[19])",
    NULL,
};
static const char *const rmsnorm_samples[] = {
    "(f32[4,7], f32[7])",
    "(f32[2,3,5], f32[5]) eps=0.01",
    "(f32[8] 0.2..1)",
    "(f32[0,4], f32[4])",
    "(f32[3,0])",
    "(bf16[3,8], f32[8])",
    "(f32[3,1100] -3..5, f32[1100])",
    "(f32[80,19], f32[19])",
    NULL,
};
static const char *const layernorm_grad_samples[] = {
    "(f32[4,7], f32[4,7], f32[4], f32[4] 0.5..2, f32[7])",
    "(f32[2,3,5], f32[2,3,5], f32[2,3], f32[2,3] 0.5..2)",
    "(f32[2,6], f32[2,6], f32[2], f32[2] 0.5..2, f32[6]) params=0",
    "(f32[8], f32[8], f32[], f32[] 0.5..2, f32[8])",
    "(f32[0,4], f32[0,4], f32[0], f32[0], f32[4])",
    "(f32[3,0], f32[3,0], f32[3], f32[3])",
    "(bf16[3,8], bf16[3,8], f32[3], f32[3] 0.5..2, f32[8])",
    "(f32[3,1100], f32[3,1100], f32[3], f32[3] 0.5..2, f32[1100])",
    "(f32[150,11], f32[150,11], f32[150], f32[150] 0.5..2, f32[11])",
    "(f32[4,7], f32[4,7], f32[4], f32[4] 0.5..2, f32[7], f32[4,7])",
    "(bf16[37,64], bf16[37,64], f32[37], f32[37] 0.5..2, _, bf16[37,64]) params=0",
    NULL,
};
static const char *const layernorm_grad_sum_samples[] = {
    "(f32[4,7], f32[4,7], f32[4], f32[4] 0.5..2, f32[7])",
    "(f32[2,3,5], f32[2,3,5], f32[2,3], f32[2,3] 0.5..2, _, f32[2,3,5])",
    "(f32[2,6], f32[2,6], f32[2], f32[2] 0.5..2, f32[6]) params=0",
    "(f32[8], f32[8], f32[], f32[] 0.5..2, f32[8])",
    "(f32[0,4], f32[0,4], f32[0], f32[0], f32[4])",
    "(f32[3,0], f32[3,0], f32[3], f32[3])",
    "(bf16[3,8], bf16[3,8], f32[3], f32[3] 0.5..2, f32[8])",
    "(f32[3,1100], f32[3,1100], f32[3], f32[3] 0.5..2, f32[1100])",
    "(f32[150,11], f32[150,11], f32[150], f32[150] 0.5..2, f32[11], f32[150,11])",
    "(bf16[37,64], bf16[37,64], f32[37], f32[37] 0.5..2, _, bf16[37,64]) params=0",
    "(bf16[9,1600], bf16[9,1600], f32[9], f32[9] 0.5..2, f32[1600], bf16[9,1600])",
    NULL,
};
static const char *const rmsnorm_grad_samples[] = {
    "(f32[4,7], f32[4,7], f32[4] 0.5..2, f32[7])",
    "(f32[2,3,5], f32[2,3,5], f32[2,3] 0.5..2)",
    "(f32[2,6], f32[2,6], f32[2] 0.5..2, f32[6]) params=0",
    "(f32[8], f32[8], f32[] 0.5..2, f32[8])",
    "(f32[0,4], f32[0,4], f32[0], f32[4])",
    "(f32[3,0], f32[3,0], f32[3])",
    "(bf16[3,8], bf16[3,8], f32[3] 0.5..2, f32[8])",
    "(f32[3,1100], f32[3,1100], f32[3] 0.5..2, f32[1100])",
    "(f32[150,11], f32[150,11], f32[150] 0.5..2, f32[11])",
    "(f32[4,7], f32[4,7], f32[4] 0.5..2, f32[7], f32[4,7])",
    NULL,
};

const ht_op ht_op_layernorm = {
    .size = sizeof(ht_op),
    .name = "layernorm",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 3,
    .n_out = 3,
    .f32_out = 6,
    .attrs = layernorm_attrs,
    .infer = norm_infer,
    .cost = norm_cost,
    .grad = norm_grad,
    .ref = norm_ref,
    .samples = layernorm_samples,
};

const ht_op ht_op_rmsnorm = {
    .size = sizeof(ht_op),
    .name = "rmsnorm",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 2,
    .n_out = 2,
    .f32_out = 2,
    .attrs = rmsnorm_attrs,
    .infer = norm_infer,
    .cost = norm_cost,
    .grad = norm_grad,
    .ref = norm_ref,
    .samples = rmsnorm_samples,
};

const ht_op ht_op_layernorm_grad = {
    .size = sizeof(ht_op),
    .name = "layernorm_grad",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 4,
    .max_in = 6,
    .n_out = 3,
    .f32_out = 6,
    .attrs = norm_grad_attrs,
    .infer = norm_grad_infer,
    .cost = norm_grad_cost,
    .grad = norm_grad_grad,
    .ref = norm_grad_ref,
    .samples = layernorm_grad_samples,
};

const ht_op ht_op_layernorm_grad_sum = {
    .size = sizeof(ht_op),
    .name = "layernorm_grad_sum",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 4,
    .max_in = 6,
    .n_out = 4,
    .f32_out = 14,
    .of_stored = 1u << 3,
    .attrs = norm_grad_attrs,
    .infer = layernorm_grad_sum_infer,
    .cost = layernorm_grad_sum_cost,
    .ref = layernorm_grad_sum_ref,
    .no_grad = "the planner makes it, when all gradients are there",
    .samples = layernorm_grad_sum_samples,
};

const ht_op ht_op_rmsnorm_grad = {
    .size = sizeof(ht_op),
    .name = "rmsnorm_grad",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 3,
    .max_in = 5,
    .n_out = 2,
    .f32_out = 2,
    .attrs = norm_grad_attrs,
    .infer = norm_grad_infer,
    .cost = norm_grad_cost,
    .grad = norm_grad_grad,
    .ref = norm_grad_ref,
    .samples = rmsnorm_grad_samples,
};

ht_val ht_layernorm(ht_graph *g, ht_val x, ht_val scale, ht_val shift, double eps)
{
    if (!x.id) return HT_NONE;
    return ht_emit1(g, "layernorm", NULL, HT_VALS(x, scale, shift), HT_ATTRS(HT_FLOAT("eps", eps)));
}

ht_val ht_rmsnorm(ht_graph *g, ht_val x, ht_val scale, double eps)
{
    if (!x.id) return HT_NONE;
    return ht_emit1(g, "rmsnorm", NULL, HT_VALS(x, scale), HT_ATTRS(HT_FLOAT("eps", eps)));
}
