/* cumsum: y[k] = x[0] + … + x[k] along an axis; with `reverse`, y[k] = x[k] + … + x[last]. */
#include "op/op.h"

static ht_status cumsum_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int axis;
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(ht_need_axis(ctx, call, "axis", call->in[0]->rank, &axis));
    HT_TRY(ht_need_flag(ctx, call, "reverse"));
    out[0] = *call->in[0];
    return HT_OK;
}

HT_COST_PER_OUT(cumsum_cost, 1)

/* x[k] contributes to every sum from k on: the gradient is the cumulative sum in the other direction. */
static ht_status cumsum_grad(ht_graph *g, const ht_grad *d)
{
    ht_type want = *d->call->in[0];
    d->dx[0] = ht_emit1(
        g, "cumsum", &want, HT_VALS(d->dy[0]),
        HT_ATTRS(HT_INT("axis", ht_call_int(d->call, "axis")), HT_INT("reverse", !ht_call_int(d->call, "reverse"))));
    return ht_graph_status(g);
}

static void cumsum_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_around a = ht_around_axis(call->in[0], ht_call_axis(call, "axis", call->in[0]->rank));
    bool reverse = ht_call_int(call, "reverse");
    for (int64_t i = 0; i < a.outer * a.inner; i++) {
        double sum = 0;
        for (int64_t k = 0; k < a.size; k++) {
            int64_t at = (i / a.inner * a.size + (reverse ? a.size - 1 - k : k)) * a.inner + i % a.inner;
            out[0][at] = sum += in[0][at];
        }
    }
}

static const ht_attr_def cumsum_attrs[] = {HT_DEF_INT("axis", -1), HT_DEF_INT("reverse", 0), HT_DEF_END};

static const char *const cumsum_samples[] = {
    "(f32[3,5])",
    "(f32[3,5]) reverse=1",
    "(f32[4,3]) axis=0",
    "(f32[2,4,3]) axis=1 reverse=1",
    "(f32[3,0])",
    "(f32[0,3]) axis=1",
    "(f32[2,1500])",
    "(f32[2,1500]) reverse=1",
    "(f32[1])",
    "(f32[5,300]) axis=0",
    NULL,
};

const ht_op ht_op_cumsum = {
    .size = sizeof(ht_op),
    .name = "cumsum",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .f32_out = 1,
    .attrs = cumsum_attrs,
    .infer = cumsum_infer,
    .cost = cumsum_cost,
    .grad = cumsum_grad,
    .ref = cumsum_ref,
    .samples = cumsum_samples,
};

ht_val ht_cumsum(ht_graph *g, ht_val x, int axis)
{
    return ht_emit1(g, "cumsum", NULL, HT_VALS(x), HT_ATTRS(HT_INT("axis", axis)));
}
