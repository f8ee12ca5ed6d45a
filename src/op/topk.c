/* topk: the k largest along the last axis, descending, and where they were. Equal values come by lower index first; NaN
 * counts as largest. */
#include "op/op.h"

#include <inttypes.h>

static ht_status topk_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0];
    int64_t k = ht_call_int(call, "k");
    HT_TRY(ht_need_float(ctx, call, 0));
    if (x->rank == 0) HT_FAIL(ctx, HT_ESHAPE, "input 0 is a scalar: there is no axis to choose along");
    if (k < 0 || k > x->dim[x->rank - 1])
        HT_FAIL(ctx, HT_EINVAL, "k is 0 to %" PRId64 ", not %" PRId64, x->dim[x->rank - 1], k);
    out[0] = *x;
    out[0].dim[x->rank - 1] = k;
    out[1] = out[0];
    out[1].dtype = HT_I64;
    return HT_OK;
}

static void topk_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = (double)ht_type_elems(call->in[0]);
}

static ht_status topk_grad(ht_graph *g, const ht_grad *d)
{
    const ht_type *x = d->call->in[0];
    if (!d->dy[0].id) return HT_OK;
    d->dx[0] = ht_scatter_add(g, d->y[1], ht_cast(g, d->dy[0], x->dtype), x->dim[x->rank - 1], x->rank - 1);
    return ht_graph_status(g);
}

static bool ref_before(const double *x, int64_t a, int64_t b)
{
    if (isnan(x[a]) != isnan(x[b])) return isnan(x[a]);
    if (x[a] > x[b] || x[a] < x[b]) return x[a] > x[b];
    return a < b;
}

/* Each place goes to the first of those that come after the place before. */
static void topk_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *type = call->in[0];
    int64_t n = type->dim[type->rank - 1], k = ht_call_int(call, "k");
    for (int64_t i = 0; i < ht_type_elems(call->out[0]); i++) {
        const double *x = in[0] + i / k * n;
        int64_t last = i % k ? (int64_t)out[1][i - 1] : -1, best = -1;
        for (int64_t j = 0; j < n; j++)
            if ((last < 0 || ref_before(x, last, j)) && (best < 0 || ref_before(x, j, best))) best = j;
        out[0][i] = x[best];
        out[1][i] = (double)best;
    }
}

static const ht_attr_def topk_attrs[] = {HT_DEF_REQUIRED("k", HT_ATTR_INT), HT_DEF_END};

static const char *const topk_samples[] = {
    "(f32[3,9]) k=4",
    "(f32[5]) k=5",
    "(f32[2,2,6]) k=1",
    "(f32[0,4]) k=2",
    "(f32[3,4]) k=0",
    "(f32[2,2100] -100..100) k=20",
    NULL,
};

const ht_op ht_op_topk = {
    .size = sizeof(ht_op),
    .name = "topk",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .attrs = topk_attrs,
    .infer = topk_infer,
    .cost = topk_cost,
    .grad = topk_grad,
    .ref = topk_ref,
    .samples = topk_samples,
};

void ht_topk(ht_graph *g, ht_val x, int64_t k, ht_val *values, ht_val *indices)
{
    ht_val out[2] = {HT_NONE, HT_NONE};
    if (values) *values = HT_NONE;
    if (indices) *indices = HT_NONE;
    if (!ht_graph_need(g, values, "topk", "values") || !ht_graph_need(g, indices, "topk", "indices")) return;
    ht_emit_n(g, "topk", NULL, HT_VALS(x), HT_ATTRS(HT_INT("k", k)), out);
    *values = out[0];
    *indices = out[1];
}
