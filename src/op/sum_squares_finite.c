/* sum_squares_finite: the sum of squares of all elements as f64, and whether all of them are finite, in one pass; with two
 * more inputs both go on from what an earlier call gave. A value that comes in parts of whole blocks (sum_squares.h) has
 * the bits of one call on a processor: √ of the last sum is what norm_finite gives. */
#include "op/op.h"

static ht_status sum_squares_finite_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(ht_need_float(ctx, call, 0));
    bool goes_on = call->n_in > 1;
    if (goes_on && (call->n_in == 2 || !call->in[1] || !call->in[2]))
        HT_FAIL(ctx, HT_EINVAL, "%s: a sum so far comes with its finite flag", call->op->name);
    out[0] = ht_type_make(HT_F64, 0, NULL);
    out[1] = ht_type_make(HT_BOOL, 0, NULL);
    for (size_t i = 1; i < call->n_in; i++) {
        const ht_type *type = call->in[i];
        if (type->rank != 0 || type->dtype != out[i - 1].dtype)
            HT_FAIL(ctx, HT_ESHAPE, "%s: input %zu is not %s[], the sum or the flag so far", call->op->name, i,
                    ht_dtype_name(out[i - 1].dtype));
    }
    return HT_OK;
}

static void sum_squares_finite_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = 2.0 * (double)ht_type_elems(call->in[0]);
}

static void sum_squares_finite_ref(const ht_call *call, const double *const *in, double *const *out)
{
    double sum = call->n_in > 1 ? in[1][0] : 0;
    out[1][0] = call->n_in > 1 ? in[2][0] != 0 : 1;
    for (int64_t i = 0; i < ht_type_elems(call->in[0]); i++) {
        sum += in[0][i] * in[0][i];
        if (!isfinite(in[0][i])) out[1][0] = 0;
    }
    out[0][0] = sum;
}

static const char *const sum_squares_finite_samples[] = {
    "(f32[3,5])", "(f32[7], f64[], bool[])", "(f32[0], f64[], bool[])", "(f64[9])", "(f32[50001], f64[], bool[])", NULL,
};

const ht_op ht_op_sum_squares_finite = {
    .size = sizeof(ht_op),
    .name = "sum_squares_finite",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 3,
    .n_out = 2,
    .infer = sum_squares_finite_infer,
    .cost = sum_squares_finite_cost,
    .no_grad = "the check of an update is not differentiated; norm is",
    .ref = sum_squares_finite_ref,
    .samples = sum_squares_finite_samples,
};
