/* one_hot: y[.., d] = 1 where d is the label, else 0; labels outside 0..depth-1 give zeros. The result's type gives
 * depth and number type. */
#include "op/op.h"

static ht_status one_hot_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *labels = call->in[0];
    HT_TRY(ht_need_int(ctx, call, 0));
    bool fits = out[0].rank == labels->rank + 1;
    for (int i = 0; fits && i < labels->rank; i++) fits = out[0].dim[i] == labels->dim[i];
    if (!fits) {
        ht_type_text a, b;
        HT_FAIL(ctx, HT_ESHAPE, "the result of labels %s is not %s but has their sizes and the depth",
                ht_type_str(labels, &a), ht_type_str(&out[0], &b));
    }
    return HT_OK;
}

static void one_hot_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->in[0]), depth = call->out[0]->dim[call->in[0]->rank];
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < depth; d++) out[0][i * depth + d] = in[0][i] == (double)d;
}

static const char *const one_hot_samples[] = {
    "(i32[5] 0..3) -> f32[5,4]",     "(i64[2,3] 0..6) -> f32[2,3,5]",
    "(i32[] 0..2) -> f32[3]",        "(i32[4] -3..4) -> f16[4,3]",
    "(i32[3] 0..2) -> bool[3,3]",    "(i32[0]) -> f32[0,4]",
    "(i32[3]) -> f32[3,0]",          "(i64[4] 0..4) -> f64[4,5]",
    "(i32[60] 0..49) -> f32[60,50]", NULL,
};

const ht_op ht_op_one_hot = {
    .size = sizeof(ht_op),
    .name = "one_hot",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_TYPED,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = one_hot_infer,
    .cost = ht_cost_none,
    .no_grad = "labels are integers",
    .ref = one_hot_ref,
    .samples = one_hot_samples,
};

ht_val ht_one_hot(ht_graph *g, ht_val labels, int64_t depth, ht_dtype dtype)
{
    if (!ht_graph_has(g, labels)) return HT_NONE;
    ht_type in = *ht_type_of(g, labels);
    if (in.rank == HT_MAX_RANK) {
        ht_graph_fail(g, HT_ESHAPE, "one_hot: labels of rank %d leave no axis for the depth", HT_MAX_RANK);
        return HT_NONE;
    }
    in.dim[in.rank] = depth;
    ht_type want = ht_type_make(dtype, in.rank + 1, in.dim);
    want.space = in.space;
    return ht_emit1(g, "one_hot", &want, HT_VALS(labels), HT_NO_ATTRS);
}
