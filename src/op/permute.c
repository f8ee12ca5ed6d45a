/* permute: axis i of the result is axis order[i] of the input. Always a view. */
#include "op/op.h"
#include "op/view.h"

static ht_status permute_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *in = call->in[0];
    const ht_attr *order = ht_call_attr(call, "order");
    unsigned seen = 0;
    if (order->count != (size_t)in->rank)
        HT_FAIL(ctx, HT_EINVAL, "order names %zu axes, the input has %d", order->count, (int)in->rank);
    out[0] = *in;
    for (int i = 0; i < in->rank; i++) {
        int64_t axis = order->ints[i];
        if (axis < 0 || axis >= in->rank || (seen >> axis & 1))
            HT_FAIL(ctx, HT_EINVAL, "order[%d] = %lld: every axis of 0..%d stands in it once", i, (long long)axis,
                    (int)in->rank - 1);
        seen |= 1u << axis;
        out[0].dim[i] = in->dim[axis];
    }
    return HT_OK;
}

static bool permute_view(const ht_call *call, ht_type *out, int64_t *offset)
{
    const ht_attr *order = ht_call_attr(call, "order");
    for (int i = 0; i < out->rank; i++) out->stride[i] = call->in[0]->stride[order->ints[i]];
    *offset = 0;
    return true;
}

static ht_status permute_grad(ht_graph *g, const ht_grad *d)
{
    const ht_attr *order = ht_call_attr(d->call, "order");
    int64_t inverse[HT_MAX_RANK] = {0};
    int rank = (int)order->count;
    for (int i = 0; i < rank; i++) inverse[order->ints[i]] = i;
    d->dx[0] = ht_permute(g, d->dy[0], rank, inverse);
    return ht_graph_status(g);
}

static void permute_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_attr *order = ht_call_attr(call, "order");
    int64_t n = ht_type_elems(call->out[0]), to[HT_MAX_RANK], from[HT_MAX_RANK];
    for (int64_t k = 0; k < n; k++) {
        ht_unravel(call->out[0], k, to);
        for (int i = 0; i < call->out[0]->rank; i++) from[order->ints[i]] = to[i];
        out[0][k] = in[0][ht_ravel(call->in[0], from)];
    }
}

static const ht_attr_def permute_attrs[] = {HT_DEF_INTS("order"), HT_DEF_END};

static const char *const permute_samples[] = {
    "(f32[4,6]) order=[1,0]",       "(f32[2,3,5]) order=[2,0,1]", "(f32[2,3,4,5]) order=[0,2,1,3]",
    "(f32[3]) order=[0]",           "(f32[]) order=[]",           "(f32[2,0,3]) order=[1,2,0]",
    "(i32[3,4] 0..9) order=[1,0]",  "(f64[3,4]) order=[1,0]",     "(bf16[5,4]) order=[1,0]",
    "(f32[3,40,50]) order=[2,0,1]", "(bool[70,33]) order=[1,0]",  NULL,
};

const ht_op ht_op_permute = {
    .size = sizeof(ht_op),
    .name = "permute",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_MOVE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = permute_attrs,
    .infer = permute_infer,
    .cost = ht_cost_view,
    .grad = permute_grad,
    .ref = permute_ref,
    .view = permute_view,
    .samples = permute_samples,
};

ht_val ht_permute(ht_graph *g, ht_val x, int rank, const int64_t *order)
{
    if (!ht_graph_has(g, x)) return HT_NONE;
    if (rank < 0 || rank > HT_MAX_RANK) {
        ht_graph_fail(g, HT_EINVAL, "permute: rank %d is not in 0..%d", rank, HT_MAX_RANK);
        return HT_NONE;
    }
    if (rank > 0 && !ht_graph_need(g, order, "permute", "order")) return HT_NONE;
    int64_t axes[HT_MAX_RANK];
    bool same = rank == ht_type_of(g, x)->rank;
    for (int i = 0; i < rank; i++) {
        axes[i] = order[i] < 0 ? order[i] + rank : order[i];
        same &= axes[i] == i;
    }
    if (same) return x;
    return ht_emit1(g, "permute", NULL, HT_VALS(x), HT_ATTRS(HT_INTS("order", rank, axes)));
}

ht_val ht_transpose(ht_graph *g, ht_val x, int axis_a, int axis_b)
{
    if (!ht_graph_has(g, x)) return HT_NONE;
    int rank = ht_type_of(g, x)->rank;
    int a = axis_a < 0 ? axis_a + rank : axis_a, b = axis_b < 0 ? axis_b + rank : axis_b;
    if (a < 0 || a >= rank || b < 0 || b >= rank) {
        ht_graph_fail(g, HT_EINVAL, "transpose: axes %d and %d of a value of rank %d", axis_a, axis_b, rank);
        return HT_NONE;
    }
    int64_t order[HT_MAX_RANK];
    for (int i = 0; i < rank; i++) order[i] = i == a ? b : i == b ? a : i;
    return ht_permute(g, x, rank, order);
}
