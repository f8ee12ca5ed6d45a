/* all_finite: true if every element is finite (neither infinite nor NaN); true for an empty tensor. */
#include "op/op.h"

static ht_status all_finite_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(ht_need_float(ctx, call, 0));
    out[0] = ht_type_make(HT_BOOL, 0, NULL);
    return HT_OK;
}

static void all_finite_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = (double)ht_type_elems(call->in[0]);
}

static void all_finite_ref(const ht_call *call, const double *const *in, double *const *out)
{
    out[0][0] = 1;
    for (int64_t i = 0; i < ht_type_elems(call->in[0]); i++)
        if (!isfinite(in[0][i])) out[0][0] = 0;
}

static const char *const all_finite_samples[] = {"(f32[3,5])", "(f32[])", "(f32[0])", "(f32[5000])", NULL};

const ht_op ht_op_all_finite = {
    .size = sizeof(ht_op),
    .name = "all_finite",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = all_finite_infer,
    .cost = all_finite_cost,
    .no_grad = "true or false does not change smoothly",
    .ref = all_finite_ref,
    .samples = all_finite_samples,
};

ht_val ht_all_finite(ht_graph *g, ht_val x)
{
    return ht_emit1(g, "all_finite", NULL, HT_VALS(x), HT_NO_ATTRS);
}
