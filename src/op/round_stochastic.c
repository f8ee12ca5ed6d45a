/* round_stochastic: stochastic rounding of x to a narrower type, to one of its two neighbours there, each with the
 * probability that makes y equal x on average. Element i draws number first + i of the stream (seed, step, site), so that
 * a part of a tensor draws what the whole would there; values that the type holds exactly are unchanged. Values beyond the largest number, infinities and NaN are
 * converted as by rounding to nearest. */
#include "op/op.h"

static ht_status round_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text a, b;
    HT_TRY(ht_need_float(ctx, call, 0));
    for (size_t i = 1; i < 3; i++)
        if (call->in[i]->dtype != HT_I64 || call->in[i]->rank != 0)
            HT_FAIL(ctx, HT_EDTYPE, "%s is %s, not i64[]", i == 1 ? "seed" : "step", ht_type_str(call->in[i], &a));
    if (ht_call_int(call, "first") < 0)
        HT_FAIL(ctx, HT_EINVAL, "first is %lld: negative", (long long)ht_call_int(call, "first"));
    if (!*ht_call_text(call, "site")) HT_FAIL(ctx, HT_EINVAL, "the site has no name");
    if (out[0].dtype != HT_F16 && out[0].dtype != HT_BF16)
        HT_FAIL(ctx, HT_EDTYPE, "the result is %s, not f16 or bf16", ht_dtype_name(out[0].dtype));
    if (!ht_type_same_shape(call->in[0], &out[0]))
        HT_FAIL(ctx, HT_ESHAPE, "the result is %s, the input %s", ht_type_str(&out[0], &a),
                ht_type_str(call->in[0], &b));
    return HT_OK;
}

HT_COST_PER_OUT(round_cost, 14)

/* The distance between neighbours around x. */
static double step_at(ht_dtype dtype, double x)
{
    int digits = dtype == HT_F16 ? 11 : 8, lowest = dtype == HT_F16 ? -13 : -125, exponent;
    frexp(x, &exponent);
    return ldexp(1, (exponent < lowest ? lowest : exponent) - digits);
}

static void round_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_dtype dtype = call->out[0]->dtype;
    double largest = dtype == HT_F16 ? 65504 : 0x1.fep127;
    ht_stream stream = {
        .seed = (uint64_t)(int64_t)in[1][0],
        .step = (uint64_t)(int64_t)in[2][0],
        .site = ht_hash_text(ht_call_text(call, "site")),
    };
    uint64_t first = (uint64_t)ht_call_int(call, "first");
    for (int64_t i = 0; i < ht_type_elems(call->out[0]); i++) {
        double x = in[0][i];
        out[0][i] = x;
        if (!(fabs(x) <= largest)) continue;
        double step = step_at(dtype, x), steps = fabs(x) / step, below = floor(steps);
        bool up = ht_stream_uniform(&stream, first + (uint64_t)i) < steps - below;
        out[0][i] = copysign((below + up) * step, x);
    }
}

static const ht_attr_def round_attrs[] = {HT_DEF_REQUIRED("site", HT_ATTR_TEXT), HT_DEF_INT("first", 0), HT_DEF_END};

#define STREAM "i64[] 0..9, i64[] 0..99"
static const char *const round_samples[] = {
    "(f32[3,5], " STREAM ") -> bf16[3,5] site=\"a\"",
    "(f32[33], " STREAM ") -> f16[33] site=\"a\"",
    "(f32[], " STREAM ") -> bf16[] site=\"a\"",
    "(f32[0,4], " STREAM ") -> f16[0,4] site=\"a\"",
    "(f64[2,3,7] -70000..70000, " STREAM ") -> f16[2,3,7] site=\"b\"",
    "(f32[130] -3e-6..3e-6, " STREAM ") -> f16[130] site=\"b\"",
    "(bf16[9], " STREAM ") -> bf16[9] site=\"b\"",
    "(f32[70], " STREAM ") -> bf16[70] site=\"b\" first=5000000003",
    "(f32[3,4001] -0.1..0.1, " STREAM ") -> bf16[3,4001] site=\"c\"",
    NULL,
};

const ht_op ht_op_round_stochastic = {
    .size = sizeof(ht_op),
    .name = "round_stochastic",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD | HT_OP_ERASED,
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .attrs = round_attrs,
    .infer = round_infer,
    .cost = round_cost,
    .no_grad = "an update of parameters is not differentiated",
    .ref = round_ref,
    .samples = round_samples,
};
