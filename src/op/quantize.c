/* quantize: x as f8 with one scale for the tensor, y = x / scale. Inputs: x (f16, bf16 or f32), and the scale, f32[]; a
 * scale that is left out or not known yet (0) is found from x itself. Results: y, the scale that was used, and the
 * largest magnitude of x (NaN if there is one).
 *
 * quantize_both has y in both orders: as x, and with its last axis first. A product of f8 reads both operands along the
 * axis that it sums over, and forward and backward sum over different ones.
 *
 * quantize_sum has besides the sums of x over all axes but its last, the gradient of a bias: for the planner (plan/join.c), so
 * that x is read once.
 *
 * Rounding is to nearest even; finite values beyond the type's largest become that; what is not finite becomes NaN.
 * Scales that are found are powers of two, so a division by them is exact. */
#include "op/op.h"

/* ---- the scale ---- */

enum { F32_BIAS = 127, F32_FRACTION_BITS = 23, LOWEST_EXPONENT = -126 };

bool ht_dtype_is_f8(ht_dtype dtype)
{
    return dtype == HT_F8E4M3 || dtype == HT_F8E5M2;
}

/* The largest number of both types is 1.75 times a power of two: 448 and 57344. */
float ht_scale_of_amax(ht_dtype f8, float amax)
{
    const uint32_t three_quarters = 3u << (F32_FRACTION_BITS - 2);
    uint32_t bits = ht_f32_bits(amax);
    int exponent = (int)(bits >> F32_FRACTION_BITS) - F32_BIAS, top = f8 == HT_F8E4M3 ? 8 : 15;
    if (!(amax > 0) || !isfinite(amax)) return 0;
    exponent += (bits & ((1u << F32_FRACTION_BITS) - 1)) > three_quarters;
    exponent -= top;
    if (exponent < LOWEST_EXPONENT) exponent = LOWEST_EXPONENT;
    return ht_f32_from_bits((uint32_t)(exponent + F32_BIAS) << F32_FRACTION_BITS);
}

bool ht_scale_is_known(float scale)
{
    return scale >= 0x1p-126f && scale <= 0x1p126f;
}

uint8_t ht_quantize_one(ht_dtype f8, float x, float inverse)
{
    float value = isfinite(x) ? x * inverse : NAN;
    return f8 == HT_F8E4M3 ? ht_f8e4m3_from_f32(value).bits : ht_f8e5m2_from_f32(value).bits;
}

float ht_amax_of(float amax, float x)
{
    float magnitude = fabsf(x);
    return magnitude > amax || isnan(magnitude) ? magnitude : amax;
}

/* ---- the ops ---- */

static ht_status need_operands(ht_context *ctx, const ht_call *call)
{
    ht_type_text text;
    ht_dtype dtype = call->in[0]->dtype;
    if (dtype != HT_F32 && dtype != HT_F16 && dtype != HT_BF16)
        HT_FAIL(ctx, HT_EDTYPE, "x is %s, not f32, f16 or bf16", ht_dtype_name(dtype));
    if (call->n_in > 1 && call->in[1] && (call->in[1]->dtype != HT_F32 || call->in[1]->rank != 0))
        HT_FAIL(ctx, HT_EDTYPE, "the scale is %s, not f32[]", ht_type_str(call->in[1], &text));
    return HT_OK;
}

static ht_status need_codes(ht_context *ctx, const ht_type *y, const ht_type *shape)
{
    ht_type_text a, b;
    if (!ht_dtype_is_f8(y->dtype)) HT_FAIL(ctx, HT_EDTYPE, "the result is %s, not f8", ht_type_str(y, &a));
    if (!ht_type_same_shape(y, shape))
        HT_FAIL(ctx, HT_ESHAPE, "the result is %s, not of the shape of %s", ht_type_str(y, &a), ht_type_str(shape, &b));
    return HT_OK;
}

static ht_status need_numbers(ht_context *ctx, const ht_type *out)
{
    ht_type_text text;
    for (size_t i = 0; i < 2; i++)
        if (out[i].dtype != HT_F32 || out[i].rank != 0)
            HT_FAIL(ctx, HT_EDTYPE, "the %s is %s, not f32[]", i ? "largest magnitude" : "scale",
                    ht_type_str(&out[i], &text));
    return HT_OK;
}

static ht_status quantize_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_operands(ctx, call));
    HT_TRY(need_codes(ctx, &out[0], call->in[0]));
    return need_numbers(ctx, out + 1);
}

/* x's shape with its last axis first. */
static ht_type turned(const ht_type *x)
{
    ht_type type = *x;
    for (int axis = 1; axis < x->rank; axis++) type.dim[axis] = x->dim[axis - 1];
    type.dim[0] = x->dim[x->rank - 1];
    ht_type_row_major(&type);
    return type;
}

static ht_status quantize_both_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_operands(ctx, call));
    if (call->in[0]->rank == 0) HT_FAIL(ctx, HT_ESHAPE, "x is a single number");
    ht_type other = turned(call->in[0]);
    HT_TRY(need_codes(ctx, &out[0], call->in[0]));
    HT_TRY(need_codes(ctx, &out[1], &other));
    if (out[0].dtype != out[1].dtype) HT_FAIL(ctx, HT_EDTYPE, "the two orders have different types");
    return need_numbers(ctx, out + 2);
}

static ht_status quantize_sum_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text text;
    HT_TRY(need_operands(ctx, call));
    if (call->in[0]->rank == 0) HT_FAIL(ctx, HT_ESHAPE, "x is a single number");
    ht_type other = turned(call->in[0]), sums = ht_type_make(HT_F32, 1, &other.dim[0]);
    HT_TRY(need_codes(ctx, &out[0], call->in[0]));
    HT_TRY(need_codes(ctx, &out[1], &other));
    if (out[0].dtype != out[1].dtype) HT_FAIL(ctx, HT_EDTYPE, "the two orders have different types");
    if (out[2].dtype != HT_F32 || !ht_type_same_shape(&out[2], &sums))
        HT_FAIL(ctx, HT_ESHAPE, "the sums are %s, not f32 for each column", ht_type_str(&out[2], &text));
    return need_numbers(ctx, out + 3);
}

HT_COST_PER_OUT(quantize_cost, 3)

/* y, the scale and the largest magnitude. */
static void quantize_values(const ht_call *call, const double *const *in, double *y, double *scale_out,
                            double *amax_out)
{
    int64_t n = ht_type_elems(call->in[0]);
    ht_dtype f8 = call->out[0]->dtype;
    float amax = 0, scale = call->n_in > 1 && call->in[1] ? (float)in[1][0] : 0;
    for (int64_t i = 0; i < n; i++) amax = ht_amax_of(amax, (float)in[0][i]);
    if (!ht_scale_is_known(scale)) scale = ht_scale_of_amax(f8, amax);
    if (!ht_scale_is_known(scale)) scale = 1;
    for (int64_t i = 0; i < n; i++) {
        uint8_t code = ht_quantize_one(f8, (float)in[0][i], 1 / scale);
        y[i] = ht_load_f64(&code, f8, 0);
    }
    *scale_out = (double)scale;
    *amax_out = (double)amax;
}

static void quantize_ref(const ht_call *call, const double *const *in, double *const *out)
{
    quantize_values(call, in, out[0], out[1], out[2]);
}

static void turn_values(const ht_type *x, const double *y, double *other)
{
    int64_t columns = x->dim[x->rank - 1], rows = columns ? ht_type_elems(x) / columns : 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) other[c * rows + r] = y[r * columns + c];
}

static void quantize_both_ref(const ht_call *call, const double *const *in, double *const *out)
{
    quantize_values(call, in, out[0], out[2], out[3]);
    turn_values(call->in[0], out[0], out[1]);
}

static void quantize_sum_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0];
    int64_t columns = x->dim[x->rank - 1], elems = ht_type_elems(x);
    quantize_values(call, in, out[0], out[3], out[4]);
    turn_values(x, out[0], out[1]);
    for (int64_t c = 0; c < columns; c++) out[2][c] = 0;
    for (int64_t i = 0; i < elems; i++) out[2][i % columns] += in[0][i];
}

#define NUMBERS "f32[], f32[]"
static const char *const quantize_samples[] = {
    "(f32[3,5]) -> f8e4m3[3,5], " NUMBERS,
    "(f32[3,5] -1000..1000, f32[] 0.5..2) -> f8e4m3[3,5], " NUMBERS,
    "(bf16[2,3,7] -1e-6..1e-6) -> f8e5m2[2,3,7], " NUMBERS,
    "(f16[33] -60000..60000, f32[] 0.25..0.25) -> f8e5m2[33], " NUMBERS,
    "(bf16[16,48], f32[] 0.0078125..0.0078125) -> f8e4m3[16,48], " NUMBERS,
    "(f32[9], f32[] 0..0) -> f8e4m3[9], " NUMBERS,
    "(f32[4] 0..0) -> f8e4m3[4], " NUMBERS,
    "(f32[6] -1e-44..1e-44) -> f8e5m2[6], " NUMBERS,
    "(f32[]) -> f8e5m2[], " NUMBERS,
    "(f32[0,4]) -> f8e4m3[0,4], " NUMBERS,
    "(f32[70001] -0.1..0.1, f32[] 0.000244140625..0.000244140625) -> f8e5m2[70001], " NUMBERS,
    NULL,
};
static const char *const quantize_both_samples[] = {
    "(f32[3,5]) -> f8e4m3[3,5], f8e4m3[5,3], " NUMBERS,
    "(bf16[2,32,48] -1000..1000, f32[] 0.5..2) -> f8e4m3[2,32,48], f8e4m3[48,2,32], " NUMBERS,
    "(f16[130,70], f32[] 0..0) -> f8e5m2[130,70], f8e5m2[70,130], " NUMBERS,
    "(f32[9]) -> f8e5m2[9], f8e5m2[9], " NUMBERS,
    "(f32[0,4]) -> f8e4m3[0,4], f8e4m3[4,0], " NUMBERS,
    "(f32[4,0]) -> f8e4m3[4,0], f8e4m3[0,4], " NUMBERS,
    "(bf16[256,96] -1e-5..1e-5) -> f8e5m2[256,96], f8e5m2[96,256], " NUMBERS,
    NULL,
};

static const char *const quantize_sum_samples[] = {
    "(f32[3,5]) -> f8e4m3[3,5], f8e4m3[5,3], f32[5], " NUMBERS,
    "(bf16[2,32,48] -1000..1000, f32[] 0.5..2) -> f8e4m3[2,32,48], f8e4m3[48,2,32], f32[48], " NUMBERS,
    "(f16[130,70], f32[] 0..0) -> f8e5m2[130,70], f8e5m2[70,130], f32[70], " NUMBERS,
    "(f32[9]) -> f8e5m2[9], f8e5m2[9], f32[9], " NUMBERS,
    "(f32[0,4]) -> f8e4m3[0,4], f8e4m3[4,0], f32[4], " NUMBERS,
    "(f32[4,0]) -> f8e4m3[4,0], f8e4m3[0,4], f32[0], " NUMBERS,
    "(bf16[256,96] -1e-5..1e-5) -> f8e5m2[256,96], f8e5m2[96,256], f32[96], " NUMBERS,
    NULL,
};

static const char no_gradient[] = "it is put into steps whose gradients are there already";

const ht_op ht_op_quantize = {
    .size = sizeof(ht_op),
    .name = "quantize",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_REDUCE,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 1,
    .max_in = 2,
    .n_out = 3,
    .infer = quantize_infer,
    .cost = quantize_cost,
    .no_grad = no_gradient,
    .ref = quantize_ref,
    .samples = quantize_samples,
};

const ht_op ht_op_quantize_both = {
    .size = sizeof(ht_op),
    .name = "quantize_both",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_REDUCE,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 1,
    .max_in = 2,
    .n_out = 4,
    .infer = quantize_both_infer,
    .cost = quantize_cost,
    .no_grad = no_gradient,
    .ref = quantize_both_ref,
    .samples = quantize_both_samples,
};

const ht_op ht_op_quantize_sum = {
    .size = sizeof(ht_op),
    .name = "quantize_sum",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_REDUCE,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 1,
    .max_in = 2,
    .n_out = 5,
    .infer = quantize_sum_infer,
    .cost = quantize_cost,
    .no_grad = no_gradient,
    .ref = quantize_sum_ref,
    .samples = quantize_sum_samples,
};
