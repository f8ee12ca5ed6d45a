/* norm_finite: √(sum of squares) of all elements, and whether all of them are finite, in one pass. The norm is f64 for
 * every number type: squares of f32 cannot overflow in f64, so a norm beyond f32's range is still a number that
 * clipping can divide by. */
#include "op/op.h"

static ht_status norm_finite_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(ht_need_float(ctx, call, 0));
    out[0] = ht_type_make(HT_F64, 0, NULL);
    out[1] = ht_type_make(HT_BOOL, 0, NULL);
    return HT_OK;
}

static void norm_finite_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = 2.0 * (double)ht_type_elems(call->in[0]);
}

static void norm_finite_ref(const ht_call *call, const double *const *in, double *const *out)
{
    double sum = 0;
    out[1][0] = 1;
    for (int64_t i = 0; i < ht_type_elems(call->in[0]); i++) {
        sum += in[0][i] * in[0][i];
        if (!isfinite(in[0][i])) out[1][0] = 0;
    }
    out[0][0] = sqrt(sum);
}

static const char *const norm_finite_samples[] = {
    "(f32[3,5])", "(f32[])", "(f32[0])", "(f64[7])", "(f32[50001])", NULL,
};

const ht_op ht_op_norm_finite = {
    .size = sizeof(ht_op),
    .name = "norm_finite",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 2,
    .infer = norm_finite_infer,
    .cost = norm_finite_cost,
    .no_grad = "the check of an update is not differentiated; norm is",
    .ref = norm_finite_ref,
    .samples = norm_finite_samples,
};

ht_val ht_norm_finite(ht_graph *g, ht_val x, ht_val *finite)
{
    ht_val out[2] = {HT_NONE, HT_NONE};
    if (finite) *finite = HT_NONE;
    if (!ht_graph_need(g, finite, "norm_finite", "finite")) return HT_NONE;
    ht_emit_n(g, "norm_finite", NULL, HT_VALS(x), HT_NO_ATTRS, out);
    *finite = out[1];
    return out[0];
}
