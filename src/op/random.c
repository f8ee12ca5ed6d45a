/* random_uniform, random_normal, dropout: pure functions of (seed, step, site, index), so that a rerun, another thread
 * count and a recomputed activation see the same numbers. The index is that of the element in the global batch: along
 * `batch_axis` the result is a part of `batch_extent` rows (0: it is all of them) that begins at row `sample`. So a
 * batch that is cut into micro-batches draws the same numbers as the whole, whichever axis counts its rows. An axis of
 * -1 says that the result does not depend on the batch: every part of it draws the same numbers. */
#include <inttypes.h>

#include "op/op.h"

static ht_status need_stream(ht_context *ctx, const ht_call *call, size_t first)
{
    static const char *const names[] = {"seed", "step", "sample"};
    for (size_t i = 0; i < 3; i++) {
        ht_type_text text;
        const ht_type *type = call->in[first + i];
        if (type->dtype != HT_I64 || type->rank != 0)
            HT_FAIL(ctx, HT_EDTYPE, "%s is %s, not i64[]", names[i], ht_type_str(type, &text));
    }
    if (!*ht_call_text(call, "site")) HT_FAIL(ctx, HT_EINVAL, "the site has no name");
    return HT_OK;
}

/* An axis of the result and its size in the global batch. A scalar is one row. */
static ht_status need_batch(ht_context *ctx, const ht_call *call, const ht_type *out)
{
    int64_t axis = ht_call_int(call, "batch_axis"), extent = ht_call_int(call, "batch_extent");
    if (axis < -1 || axis >= (out->rank > 0 ? out->rank : 1))
        HT_FAIL(ctx, HT_EINVAL, "batch_axis %" PRId64 " of a result of rank %d", axis, out->rank);
    int64_t rows = axis >= 0 && out->rank > 0 ? out->dim[axis] : 1;
    if (extent != 0 && (axis < 0 || extent < rows))
        HT_FAIL(ctx, HT_EINVAL, "batch_extent %" PRId64 " for %" PRId64 " rows along batch_axis %" PRId64, extent, rows,
                axis);
    return HT_OK;
}

static ht_status need_float_result(ht_context *ctx, const ht_type *out)
{
    if (!ht_dtype_is_float(out->dtype))
        HT_FAIL(ctx, HT_EDTYPE, "the result is %s, not floating point", ht_dtype_name(out->dtype));
    return HT_OK;
}

static ht_status uniform_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    double low = ht_call_float(call, "low"), high = ht_call_float(call, "high");
    if (!(low <= high && isfinite(high - low)))
        HT_FAIL(ctx, HT_EINVAL, "from low %g to high %g is no range", low, high);
    HT_TRY(need_float_result(ctx, &out[0]));
    HT_TRY(need_batch(ctx, call, &out[0]));
    return need_stream(ctx, call, 0);
}

static ht_status normal_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    double mean = ht_call_float(call, "mean"), deviation = ht_call_float(call, "deviation");
    if (!isfinite(mean) || !(deviation >= 0 && isfinite(deviation)))
        HT_FAIL(ctx, HT_EINVAL, "no normal distribution has mean %g and deviation %g", mean, deviation);
    HT_TRY(need_float_result(ctx, &out[0]));
    HT_TRY(need_batch(ctx, call, &out[0]));
    return need_stream(ctx, call, 0);
}

static ht_status dropout_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    double p = ht_call_float(call, "p");
    if (!(p >= 0 && p < 1)) HT_FAIL(ctx, HT_EINVAL, "p is %g, not in [0, 1)", p);
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(need_stream(ctx, call, 1));
    HT_TRY(need_batch(ctx, call, call->in[0]));
    out[0] = *call->in[0];
    return HT_OK;
}

HT_COST_PER_OUT(uniform_cost, 10)
HT_COST_PER_OUT(normal_cost, 40)
HT_COST_PER_OUT(dropout_cost, 12)

ht_random_index ht_random_indices(const ht_call *call, int64_t sample)
{
    const ht_type *type = call->out[0];
    int64_t axis = ht_call_int(call, "batch_axis"), extent = ht_call_int(call, "batch_extent");
    ht_around a = {1, 1, 1};
    if (axis < 0) return (ht_random_index){.block = UINT64_MAX};
    if (type->rank > 0) a = ht_around_axis(type, (int)axis);
    if (extent == 0) extent = a.size;
    uint64_t inner = (uint64_t)a.inner, block = (uint64_t)a.size * inner;
    return (ht_random_index){
        .first = (uint64_t)sample * inner, .block = block ? block : 1, .skip = (uint64_t)(extent - a.size) * inner};
}

static ht_stream stream_of(const ht_call *call, const double *const *in)
{
    return (ht_stream){
        .seed = (uint64_t)(int64_t)in[0][0],
        .step = (uint64_t)(int64_t)in[1][0],
        .site = ht_hash_text(ht_call_text(call, "site")),
    };
}

static void uniform_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_stream stream = stream_of(call, in);
    ht_random_index index = ht_random_indices(call, (int64_t)in[2][0]);
    double low = ht_call_float(call, "low"), span = ht_call_float(call, "high") - low;
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++)
        out[0][i] = low + span * ht_stream_uniform(&stream, ht_random_number(&index, (uint64_t)i));
}

static void normal_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_stream stream = stream_of(call, in);
    ht_random_index index = ht_random_indices(call, (int64_t)in[2][0]);
    double mean = ht_call_float(call, "mean"), deviation = ht_call_float(call, "deviation");
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++)
        out[0][i] = mean + deviation * ht_stream_normal(&stream, ht_random_number(&index, (uint64_t)i));
}

static void dropout_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_stream stream = stream_of(call, in + 1);
    ht_random_index index = ht_random_indices(call, (int64_t)in[3][0]);
    double p = ht_call_float(call, "p"), scale = 1 / (1 - p);
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++)
        out[0][i] = ht_stream_uniform(&stream, ht_random_number(&index, (uint64_t)i)) >= p ? in[0][i] * scale : 0;
}

/* Linear in x, with the same mask. */
static ht_status dropout_grad(ht_graph *g, const ht_grad *d)
{
    if (!d->need[0]) return HT_OK;
    ht_val dx =
        ht_emit1(g, "dropout", NULL, HT_VALS(d->dy[0], d->x[1], d->x[2], d->x[3]), d->call->n_attr, d->call->attr);
    d->dx[0] = ht_cast(g, dx, ht_val_dtype(g, d->x[0]));
    return ht_graph_status(g);
}

#define BATCH_ATTRS HT_DEF_UNHASHED_INT("batch_axis", 0), HT_DEF_UNHASHED_INT("batch_extent", 0)
static const ht_attr_def uniform_attrs[] = {
    HT_DEF_FLOAT("low", 0), HT_DEF_FLOAT("high", 1), HT_DEF_REQUIRED("site", HT_ATTR_TEXT), BATCH_ATTRS, HT_DEF_END,
};
static const ht_attr_def normal_attrs[] = {
    HT_DEF_FLOAT("mean", 0),
    HT_DEF_FLOAT("deviation", 1),
    HT_DEF_REQUIRED("site", HT_ATTR_TEXT),
    BATCH_ATTRS,
    HT_DEF_END,
};
static const ht_attr_def dropout_attrs[] = {
    HT_DEF_FLOAT("p", 0.5),
    HT_DEF_REQUIRED("site", HT_ATTR_TEXT),
    BATCH_ATTRS,
    HT_DEF_END,
};

#define STREAM "i64[] 0..9, i64[] 0..99, i64[] 0..7"
static const char *const uniform_samples[] = {
    "(" STREAM ") -> f32[3,5] site=\"a\"",
    "(" STREAM ") -> f64[] site=\"a\"",
    "(" STREAM ") -> bf16[0,4] site=\"a\"",
    "(" STREAM ") -> f16[7] low=-2 high=3 site=\"b\"",
    "(" STREAM ") -> f32[3,2001] low=-2 high=3 site=\"c\"",
    "(" STREAM ") -> f32[3,2,5] site=\"d\" batch_axis=1 batch_extent=9",
    "(" STREAM ") -> f32[3,5] site=\"d\" batch_axis=-1",
    NULL,
};
static const char *const normal_samples[] = {
    "(" STREAM ") -> f32[3,5] site=\"a\"",
    "(" STREAM ") -> f64[] site=\"a\"",
    "(" STREAM ") -> bf16[0,4] site=\"a\"",
    "(" STREAM ") -> f16[7] mean=2 deviation=0.1 site=\"b\"",
    "(" STREAM ") -> f32[3,2001] deviation=0.02 site=\"c\"",
    "(" STREAM ") -> f32[3,2,5] site=\"d\" batch_axis=2 batch_extent=6",
    NULL,
};
static const char *const dropout_samples[] = {
    "(f32[3,5], " STREAM ") p=0.3 site=\"a\"",
    "(f32[], " STREAM ") p=0.5 site=\"a\"",
    "(f32[0,4], " STREAM ") p=0.1 site=\"a\"",
    "(bf16[33], " STREAM ") p=0 site=\"b\"",
    "(f64[2,3,7], " STREAM ") p=0.9 site=\"b\"",
    "(f32[3,4001], " STREAM ") p=0.1 site=\"c\"",
    "(f32[7,3,5], " STREAM ") p=0.5 site=\"d\" batch_axis=1 batch_extent=12",
    "(f32[9,2,301], " STREAM ") p=0.3 site=\"d\" batch_axis=1 batch_extent=4",
    "(f32[3,5], " STREAM ") p=0.3 site=\"d\" batch_axis=-1",
    NULL,
};

const ht_op ht_op_random_uniform = {
    .size = sizeof(ht_op),
    .name = "random_uniform",
    .prec = HT_PREC_POINT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = uniform_attrs,
    .infer = uniform_infer,
    .cost = uniform_cost,
    .no_grad = "random numbers do not depend on a float",
    .ref = uniform_ref,
    .samples = uniform_samples,
};

const ht_op ht_op_random_normal = {
    .size = sizeof(ht_op),
    .name = "random_normal",
    .prec = HT_PREC_POINT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = normal_attrs,
    .infer = normal_infer,
    .cost = normal_cost,
    .no_grad = "random numbers do not depend on a float",
    .ref = normal_ref,
    .samples = normal_samples,
};

const ht_op ht_op_dropout = {
    .size = sizeof(ht_op),
    .name = "dropout",
    .prec = HT_PREC_POINT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_INPLACE | HT_OP_NO_FOLD,
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attrs = dropout_attrs,
    .infer = dropout_infer,
    .cost = dropout_cost,
    .grad = dropout_grad,
    .ref = dropout_ref,
    .samples = dropout_samples,
};

static ht_val counter(ht_graph *g, const char *name)
{
    ht_val found = ht_find(g, name);
    if (found.id) return found;
    ht_type type = ht_type_make(HT_I64, 0, NULL);
    return ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_SCALARS, .init = HT_ZERO});
}

ht_rng ht_rng_state(ht_graph *g)
{
    if (ht_graph_status(g) != HT_OK) return (ht_rng){HT_NONE, HT_NONE, HT_NONE};
    return (ht_rng){counter(g, "rng.seed"), counter(g, "rng.step"), counter(g, "rng.sample")};
}

ht_val ht_random_uniform(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, double low, double high,
                         ht_rng rng, const char *site)
{
    if (!ht_graph_need_dims(g, "random_uniform", rank, dims) || !ht_graph_need(g, site, "random_uniform", "site"))
        return HT_NONE;
    ht_type want = ht_type_make(dtype, rank, dims);
    return ht_emit1(g, "random_uniform", &want, HT_VALS(rng.seed, rng.step, rng.sample),
                    HT_ATTRS(HT_FLOAT("low", low), HT_FLOAT("high", high), HT_TEXT("site", site)));
}

ht_val ht_random_normal(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, double mean, double deviation,
                        ht_rng rng, const char *site)
{
    if (!ht_graph_need_dims(g, "random_normal", rank, dims) || !ht_graph_need(g, site, "random_normal", "site"))
        return HT_NONE;
    ht_type want = ht_type_make(dtype, rank, dims);
    return ht_emit1(g, "random_normal", &want, HT_VALS(rng.seed, rng.step, rng.sample),
                    HT_ATTRS(HT_FLOAT("mean", mean), HT_FLOAT("deviation", deviation), HT_TEXT("site", site)));
}

ht_val ht_dropout(ht_graph *g, ht_val x, double p, ht_rng rng, const char *site)
{
    if (!ht_graph_need(g, site, "dropout", "site")) return HT_NONE;
    if (p == 0) return x;
    return ht_emit1(g, "dropout", NULL, HT_VALS(x, rng.seed, rng.step, rng.sample),
                    HT_ATTRS(HT_FLOAT("p", p), HT_TEXT("site", site)));
}

ht_val ht_batch_axis(ht_graph *g, ht_val random, int axis)
{
    if (!g) return HT_NONE;
    const ht_node *n = ht_graph_status(g) == HT_OK && random.id ? ht_producer(g, random) : NULL;
    int rank = n ? ht_val_rank(g, random) : 0;
    if (!n || !ht_op_has_attr(n->op, "batch_axis")) return random;
    if (axis < -1 || axis >= (rank > 0 ? rank : 1)) {
        ht_graph_fail(g, HT_EINVAL, "%s: batch_axis %d of a result of rank %d", n->op->name, axis, rank);
        return HT_NONE;
    }
    ht_node_set_int(g, (uint32_t)(n - g->nodes), "batch_axis", axis);
    return random;
}
