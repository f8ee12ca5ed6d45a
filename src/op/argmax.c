/* argmax: the index of the largest element along an axis, the first of equals; NaN counts as largest. */
#include "op/op.h"

static ht_status argmax_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0];
    int axis, rank = 0;
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(ht_need_axis(ctx, call, "axis", x->rank, &axis));
    HT_TRY(ht_need_flag(ctx, call, "keep"));
    if (x->dim[axis] == 0) HT_FAIL(ctx, HT_ESHAPE, "axis %d is empty: it has no maximum", axis);
    int64_t dim[HT_MAX_RANK];
    for (int i = 0; i < x->rank; i++)
        if (i != axis || ht_call_int(call, "keep")) dim[rank++] = i == axis ? 1 : x->dim[i];
    out[0] = ht_type_make(HT_I64, rank, dim);
    return HT_OK;
}

static void argmax_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = (double)ht_type_elems(call->in[0]);
}

static void argmax_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_around a = ht_around_axis(call->in[0], ht_call_axis(call, "axis", call->in[0]->rank));
    for (int64_t i = 0; i < a.outer * a.inner; i++) {
        const double *x = in[0] + i / a.inner * a.size * a.inner + i % a.inner;
        int64_t best = 0;
        for (int64_t k = 1; k < a.size && !isnan(x[best * a.inner]); k++)
            if (x[k * a.inner] > x[best * a.inner] || isnan(x[k * a.inner])) best = k;
        out[0][i] = (double)best;
    }
}

static const ht_attr_def argmax_attrs[] = {HT_DEF_INT("axis", -1), HT_DEF_INT("keep", 0), HT_DEF_END};

static const char *const argmax_samples[] = {
    "(f32[3,5])",      "(f32[3,5]) axis=0",   "(f32[2,7,3]) axis=1 keep=1",
    "(f32[6]) axis=0", "(f32[0,4])",          "(f32[4,0,3]) axis=0",
    "(f32[2,1500])",   "(f32[5,300]) axis=0", NULL,
};

const ht_op ht_op_argmax = {
    .size = sizeof(ht_op),
    .name = "argmax",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = argmax_attrs,
    .infer = argmax_infer,
    .cost = argmax_cost,
    .no_grad = "an index does not change smoothly",
    .ref = argmax_ref,
    .samples = argmax_samples,
};

ht_val ht_argmax(ht_graph *g, ht_val x, int axis, bool keep)
{
    return ht_emit1(g, "argmax", NULL, HT_VALS(x), HT_ATTRS(HT_INT("axis", axis), HT_INT("keep", keep)));
}
