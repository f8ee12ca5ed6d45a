/* Reductions over any axes: sum, mean, reduce_max, and norm = √(sum of squares). `axes` empty means all of them; `keep`
 * leaves reduced axes as size 1. */
#include "op/op.h"

/* ---- shapes ---- */

static ht_status reduced_type(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0];
    HT_TRY(ht_need_axes(ctx, call, "axes"));
    HT_TRY(ht_need_flag(ctx, call, "keep"));
    unsigned mask = ht_call_axes(call, "axes", x->rank);
    bool keep = ht_call_int(call, "keep");
    int64_t dim[HT_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        bool reduced = mask >> i & 1;
        if (!reduced || keep) dim[rank++] = reduced ? 1 : x->dim[i];
    }
    out[0] = ht_type_make(x->dtype, rank, dim);
    return HT_OK;
}

static ht_status float_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(ht_need_float(ctx, call, 0));
    return reduced_type(ctx, call, out);
}

static ht_status sum_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_dtype dtype = call->in[0]->dtype;
    if (!ht_dtype_is_float(dtype) && dtype != HT_I32 && dtype != HT_I64)
        HT_FAIL(ctx, HT_EDTYPE, "input 0 is %s; sums are of floats, i32 and i64", ht_dtype_name(dtype));
    return reduced_type(ctx, call, out);
}

static ht_status max_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(float_infer(ctx, call, out));
    unsigned mask = ht_call_axes(call, "axes", call->in[0]->rank);
    for (int i = 0; i < call->in[0]->rank; i++)
        if ((mask >> i & 1) && call->in[0]->dim[i] == 0)
            HT_FAIL(ctx, HT_ESHAPE, "axis %d is empty: it has no maximum", i);
    return HT_OK;
}

static void reduce_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = (double)ht_type_elems(call->in[0]);
}

static void norm_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = 2.0 * (double)ht_type_elems(call->in[0]);
}

/* ---- gradients ---- */

/* A copy of the call's types for the gradient rule, since the graph's types move while the rule builds nodes. */
typedef struct reduction {
    ht_type x;
    int64_t axes[HT_MAX_RANK];
    int axis_count;
    int64_t kept_dim[HT_MAX_RANK]; /* the result's sizes with reduced axes as 1 */
    double count;                  /* elements per result */
} reduction;

static reduction reduction_of(const ht_call *call)
{
    reduction r = {.x = *call->in[0], .count = 1};
    unsigned mask = ht_call_axes(call, "axes", r.x.rank);
    for (int i = 0; i < r.x.rank; i++) {
        r.kept_dim[i] = r.x.dim[i];
        if (!(mask >> i & 1)) continue;
        r.axes[r.axis_count++] = i;
        r.count *= (double)r.x.dim[i];
        r.kept_dim[i] = 1;
    }
    return r;
}

/* Broadcasts a value of the result's shape to x. */
static ht_val spread(ht_graph *g, const reduction *r, ht_val v)
{
    return ht_expand(g, ht_reshape(g, v, r->x.rank, r->kept_dim), r->x.rank, r->x.dim);
}

static ht_status sum_grad(ht_graph *g, const ht_grad *d)
{
    reduction r = reduction_of(d->call);
    d->dx[0] = spread(g, &r, ht_cast(g, d->dy[0], r.x.dtype));
    return ht_graph_status(g);
}

static ht_status mean_grad(ht_graph *g, const ht_grad *d)
{
    reduction r = reduction_of(d->call);
    d->dx[0] = spread(g, &r, ht_cast(g, ht_scale(g, d->dy[0], 1 / r.count), r.x.dtype));
    return ht_graph_status(g);
}

/* Elements that reach the maximum share dy equally. A result that was stored narrower than x no longer equals any. */
static ht_status max_grad(ht_graph *g, const ht_grad *d)
{
    reduction r = reduction_of(d->call);
    ht_val max = d->y[0];
    if (d->call->out[0]->dtype != r.x.dtype) max = ht_reduce_max(g, d->x[0], r.axis_count, r.axes, true);
    ht_val ones = ht_cast(g, ht_eq(g, d->x[0], spread(g, &r, max)), ht_wider(r.x.dtype, HT_F32));
    ht_val ties = ht_sum(g, ones, r.axis_count, r.axes, true);
    ht_val share = ht_div(g, ht_reshape(g, d->dy[0], r.x.rank, r.kept_dim), ties);
    d->dx[0] = ht_cast(g, ht_mul(g, ones, share), r.x.dtype);
    return ht_graph_status(g);
}

/* x dy / y. Where y is 0 every x is: dividing by 1 there gives the 0 that torch defines. */
static ht_status norm_grad(ht_graph *g, const ht_grad *d)
{
    reduction r = reduction_of(d->call);
    ht_val zero = ht_fill_like(g, d->y[0], 0), one = ht_fill_like(g, d->y[0], 1);
    ht_val safe = ht_select(g, ht_eq(g, d->y[0], zero), one, d->y[0]);
    d->dx[0] = ht_cast(g, ht_mul(g, d->x[0], spread(g, &r, ht_div(g, d->dy[0], safe))), r.x.dtype);
    return ht_graph_status(g);
}

/* ---- references ---- */

/* The result's index that element `index` of x goes to. */
static int64_t result_index(const ht_type *x, unsigned mask, int64_t index)
{
    int64_t result = 0, step = 1;
    for (int i = x->rank - 1; i >= 0; i--) {
        int64_t along = index % x->dim[i];
        index /= x->dim[i];
        if (mask >> i & 1) continue;
        result += along * step;
        step *= x->dim[i];
    }
    return result;
}

static void ref_fill(const ht_call *call, double *y, double value)
{
    for (int64_t i = 0; i < ht_type_elems(call->out[0]); i++) y[i] = value;
}

static void sum_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0];
    unsigned mask = ht_call_axes(call, "axes", x->rank);
    ref_fill(call, out[0], 0);
    for (int64_t i = 0; i < ht_type_elems(x); i++) out[0][result_index(x, mask, i)] += in[0][i];
}

static void mean_ref(const ht_call *call, const double *const *in, double *const *out)
{
    double count = reduction_of(call).count;
    sum_ref(call, in, out);
    for (int64_t i = 0; i < ht_type_elems(call->out[0]); i++) out[0][i] /= count;
}

static void max_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0];
    unsigned mask = ht_call_axes(call, "axes", x->rank);
    ref_fill(call, out[0], -INFINITY);
    for (int64_t i = 0; i < ht_type_elems(x); i++) {
        double *y = &out[0][result_index(x, mask, i)];
        if (in[0][i] > *y || isnan(in[0][i])) *y = in[0][i];
    }
}

static void norm_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0];
    unsigned mask = ht_call_axes(call, "axes", x->rank);
    ref_fill(call, out[0], 0);
    for (int64_t i = 0; i < ht_type_elems(x); i++) out[0][result_index(x, mask, i)] += in[0][i] * in[0][i];
    for (int64_t i = 0; i < ht_type_elems(call->out[0]); i++) out[0][i] = sqrt(out[0][i]);
}

/* ---- the ops ---- */

static const ht_attr_def reduce_attrs[] = {HT_DEF_INTS("axes"), HT_DEF_INT("keep", 0), HT_DEF_END};

#define REDUCE_SAMPLES                                                                                                 \
    "(f32[3,5])", "(f32[3,5]) axes=[1]", "(f32[3,5]) axes=[0]", "(f32[2,3,4]) axes=[1] keep=1",                        \
        "(f32[2,3,4]) axes=[0,-1]", "(f32[2,3,2,3,2]) axes=[1,3]", "(f32[2,1,3]) axes=[1]", "(f32[3,0]) axes=[0]",     \
        "(f32[0,3]) axes=[1] keep=1", "(f32[])", "(f32[3,700]) axes=[-1]", "(f32[700,3]) axes=[0]"

/* Long enough that kernels split the reduction. */
#define LONG_SAMPLES "(f32[5000])", "(f32[1500,3]) axes=[0]"

static const char *const sum_samples[] = {
    REDUCE_SAMPLES,
    LONG_SAMPLES,
    "(f32[3,0]) axes=[1]",
    "(f32[0])",
    "(i32[4,5] -9..9) axes=[1]",
    "(i64[4,5] -9..9) axes=[0]",
    "(i64[3,2,4] -9..9) axes=[0,2] keep=1",
    NULL,
};
static const char *const mean_samples[] = {REDUCE_SAMPLES, LONG_SAMPLES, NULL};
/* Far apart, so that the differences of a gradient check do not change which one is largest. */
static const char *const max_samples[] = {
    REDUCE_SAMPLES,
    "(f32[5000] -1e4..1e4)",
    "(f32[1500,3] -1e4..1e4) axes=[0]",
    NULL,
};
static const char *const norm_samples[] = {REDUCE_SAMPLES, LONG_SAMPLES, "(f32[3,0]) axes=[1]", NULL};

const ht_op ht_op_sum = {
    .size = sizeof(ht_op),
    .name = "sum",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .f32_out = 1,
    .attrs = reduce_attrs,
    .infer = sum_infer,
    .cost = reduce_cost,
    .grad = sum_grad,
    .ref = sum_ref,
    .samples = sum_samples,
};

const ht_op ht_op_mean = {
    .size = sizeof(ht_op),
    .name = "mean",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .f32_out = 1,
    .attrs = reduce_attrs,
    .infer = float_infer,
    .cost = reduce_cost,
    .grad = mean_grad,
    .ref = mean_ref,
    .samples = mean_samples,
};

const ht_op ht_op_reduce_max = {
    .size = sizeof(ht_op),
    .name = "reduce_max",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .f32_out = 1,
    .attrs = reduce_attrs,
    .infer = max_infer,
    .cost = reduce_cost,
    .grad = max_grad,
    .ref = max_ref,
    .samples = max_samples,
};

const ht_op ht_op_norm = {
    .size = sizeof(ht_op),
    .name = "norm",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .f32_out = 1,
    .attrs = reduce_attrs,
    .infer = float_infer,
    .cost = norm_cost,
    .grad = norm_grad,
    .ref = norm_ref,
    .samples = norm_samples,
};

static ht_val reduce(ht_graph *g, const char *op, ht_val x, int n_axes, const int64_t *axes, bool keep)
{
    if (n_axes < 0 || n_axes > HT_MAX_RANK) {
        ht_graph_fail(g, HT_EINVAL, "%s: %d axes", op, n_axes);
        return HT_NONE;
    }
    if (n_axes > 0 && !ht_graph_need(g, axes, op, "axes")) return HT_NONE;
    return ht_emit1(g, op, NULL, HT_VALS(x), HT_ATTRS(HT_INTS("axes", n_axes, axes), HT_INT("keep", keep)));
}

ht_val ht_sum(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep)
{
    return reduce(g, "sum", x, n_axes, axes, keep);
}

ht_val ht_mean(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep)
{
    return reduce(g, "mean", x, n_axes, axes, keep);
}

ht_val ht_reduce_max(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep)
{
    return reduce(g, "reduce_max", x, n_axes, axes, keep);
}

ht_val ht_norm(ht_graph *g, ht_val x, int n_axes, const int64_t *axes, bool keep)
{
    return reduce(g, "norm", x, n_axes, axes, keep);
}
