/* expand: broadcasting to a shape as in NumPy: axes are matched from the last, missing ones and sizes of 1 repeat.
 * Always a view, with strides of 0. */
#include "op/op.h"
#include "op/view.h"

static ht_status expand_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *in = call->in[0];
    int missing = out[0].rank - in->rank;
    bool fits = out[0].dtype == in->dtype && out[0].space == in->space && missing >= 0;
    for (int i = 0; fits && i < in->rank; i++) fits = in->dim[i] == 1 || in->dim[i] == out[0].dim[i + missing];
    if (!fits) {
        ht_type_text from, to;
        HT_FAIL(ctx, HT_ESHAPE, "%s does not broadcast to %s", ht_type_str(in, &from), ht_type_str(&out[0], &to));
    }
    return HT_OK;
}

static bool repeats(const ht_type *in, const ht_type *out, int axis)
{
    int from = axis - (out->rank - in->rank);
    return from < 0 || in->dim[from] != out->dim[axis];
}

static bool expand_view(const ht_call *call, ht_type *out, int64_t *offset)
{
    const ht_type *in = call->in[0];
    for (int i = 0; i < out->rank; i++)
        out->stride[i] = repeats(in, out, i) ? 0 : in->stride[i - (out->rank - in->rank)];
    *offset = 0;
    return true;
}

/* The gradient: the sum over the broadcast axes. */
static ht_status expand_grad(ht_graph *g, const ht_grad *d)
{
    ht_type in = *d->call->in[0], out = *d->call->out[0];
    int64_t axes[HT_MAX_RANK];
    int n = 0;
    for (int i = 0; i < out.rank; i++)
        if (repeats(&in, &out, i)) axes[n++] = i;
    ht_val total = n ? ht_sum(g, d->dy[0], n, axes, false) : d->dy[0];
    d->dx[0] = ht_reshape(g, total, in.rank, in.dim);
    return ht_graph_status(g);
}

static void expand_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0], *y = call->out[0];
    int64_t n = ht_type_elems(y), index[HT_MAX_RANK];
    for (int64_t k = 0; k < n; k++) {
        ht_unravel(y, k, index);
        for (int i = 0; i < y->rank; i++)
            if (repeats(x, y, i)) index[i] = 0;
        out[0][k] = in[0][ht_ravel(x, index + (y->rank - x->rank))];
    }
}

static const char *const expand_samples[] = {
    "(f32[5]) -> f32[4,5]",
    "(f32[3,1]) -> f32[3,4]",
    "(f32[2,1,3]) -> f32[4,2,5,3]",
    "(f32[]) -> f32[2,3]",
    "(f32[1,4]) -> f32[0,4]",
    "(f32[3,2]) -> f32[3,2]",
    "(f32[1]) -> f32[6]",
    "(bool[3]) -> bool[2,3]",
    "(f32[40,1]) -> f32[40,70]",
    "(f64[1,33]) -> f64[70,33]",
    NULL,
};

const ht_op ht_op_expand = {
    .size = sizeof(ht_op),
    .name = "expand",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_MOVE,
    .flags = HT_OP_TYPED,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = expand_infer,
    .cost = ht_cost_view,
    .grad = expand_grad,
    .ref = expand_ref,
    .view = expand_view,
    .samples = expand_samples,
};

ht_val ht_expand(ht_graph *g, ht_val x, int rank, const int64_t *dims)
{
    if (!ht_graph_has(g, x)) return HT_NONE;
    if (rank < 0 || rank > HT_MAX_RANK) {
        ht_graph_fail(g, HT_ESHAPE, "expand: rank %d is not in 0..%d", rank, HT_MAX_RANK);
        return HT_NONE;
    }
    if (!ht_graph_need_dims(g, "expand", rank, dims)) return HT_NONE;
    ht_type want = ht_type_make(ht_val_dtype(g, x), rank, dims);
    want.space = ht_type_of(g, x)->space;
    if (ht_type_same_shape(ht_type_of(g, x), &want)) return x;
    return ht_emit1(g, "expand", &want, HT_VALS(x), HT_NO_ATTRS);
}
