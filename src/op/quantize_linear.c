/* quantize_linear: x as codes, y = round(x / scale) + zero in i8 or u8. dequantize_linear: x = (y - zero) · scale.
 * quantize_dynamic: the same codes with scales and zero points that are found from x itself.
 *
 * Inputs: x, the scales f32, the zero points i32 (left out: 0). `axes` are those along which one scale holds: the scales
 * have the shape of x without them; none: all, and the scale is a single number. So a matrix [k, n] has a scale for each
 * column with axes=[0], and for each row with axes=[1].
 *
 * The rounding is to nearest, half to even, of x · (1 / scale) in f32; what lies beyond the codes becomes the last one, NaN the
 * lowest. quantize_dynamic to u8 spans from the smallest to the largest number of a group, 0 included, and to i8 from minus
 * to plus the largest magnitude; where one is not finite the scale is NaN. */
#include "op/op.h"

bool ht_dtype_is_code(ht_dtype dtype)
{
    return dtype == HT_I8 || dtype == HT_U8;
}

/* ---- groups ---- */

/* The shape of the scales. */
static ht_type scales_type(const ht_call *call, ht_dtype dtype)
{
    const ht_type *x = call->in[0];
    unsigned shared = ht_call_axes(call, "axes", x->rank);
    int64_t dim[HT_MAX_RANK];
    int rank = 0;
    for (int axis = 0; axis < x->rank; axis++)
        if (!(shared >> axis & 1)) dim[rank++] = x->dim[axis];
    return ht_type_make(dtype, rank, dim);
}

ht_code_groups ht_code_groups_of(const ht_call *call)
{
    const ht_type *x = call->in[0];
    unsigned shared = ht_call_axes(call, "axes", x->rank);
    ht_code_groups groups = {.rank = x->rank};
    int64_t step = 1;
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        groups.dim[axis] = x->dim[axis];
        groups.stride[axis] = shared >> axis & 1 ? 0 : step;
        if (!(shared >> axis & 1)) step *= x->dim[axis];
    }
    return groups;
}

int64_t ht_code_group(const ht_code_groups *groups, int64_t i)
{
    int64_t group = 0;
    for (int axis = groups->rank - 1; axis >= 0; axis--) {
        group += i % groups->dim[axis] * groups->stride[axis];
        i /= groups->dim[axis];
    }
    return group;
}

/* ---- shapes ---- */

static ht_status need_like(ht_context *ctx, const ht_type *is, const ht_type *want, const char *what)
{
    ht_type_text a, b;
    if (is->dtype != want->dtype)
        HT_FAIL(ctx, HT_EDTYPE, "%s: %s, not %s", what, ht_type_str(is, &a), ht_type_str(want, &b));
    if (!ht_type_same_shape(is, want))
        HT_FAIL(ctx, HT_ESHAPE, "%s: %s, not %s", what, ht_type_str(is, &a), ht_type_str(want, &b));
    return HT_OK;
}

static ht_status need_codes(ht_context *ctx, const ht_type *codes)
{
    if (!ht_dtype_is_code(codes->dtype))
        HT_FAIL(ctx, HT_EDTYPE, "the codes are %s, not i8 or u8", ht_dtype_name(codes->dtype));
    return HT_OK;
}

static ht_status need_number(ht_context *ctx, const ht_type *x)
{
    if (x->dtype != HT_F32 && x->dtype != HT_F16 && x->dtype != HT_BF16)
        HT_FAIL(ctx, HT_EDTYPE, "x is %s, not f32, f16 or bf16", ht_dtype_name(x->dtype));
    return HT_OK;
}

static ht_status need_same_shape(ht_context *ctx, const ht_type *x, const ht_type *y)
{
    ht_type_text a, b;
    if (!ht_type_same_shape(x, y))
        HT_FAIL(ctx, HT_ESHAPE, "the result is %s, not of the shape of %s", ht_type_str(y, &b), ht_type_str(x, &a));
    return HT_OK;
}

static ht_status need_scales(ht_context *ctx, const ht_call *call)
{
    HT_TRY(ht_need_axes(ctx, call, "axes"));
    ht_type scales = scales_type(call, HT_F32), zeros = scales_type(call, HT_I32);
    HT_TRY(need_like(ctx, call->in[1], &scales, "the scales"));
    return call->n_in > 2 && call->in[2] ? need_like(ctx, call->in[2], &zeros, "the zero points") : HT_OK;
}

static ht_status quantize_linear_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_number(ctx, call->in[0]));
    HT_TRY(need_codes(ctx, &out[0]));
    HT_TRY(need_same_shape(ctx, call->in[0], &out[0]));
    return need_scales(ctx, call);
}

static ht_status dequantize_linear_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_codes(ctx, call->in[0]));
    HT_TRY(need_scales(ctx, call));
    out[0] = ht_type_make(HT_F32, call->in[0]->rank, call->in[0]->dim);
    return HT_OK;
}

static ht_status quantize_dynamic_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_number(ctx, call->in[0]));
    HT_TRY(need_codes(ctx, &out[0]));
    HT_TRY(need_same_shape(ctx, call->in[0], &out[0]));
    HT_TRY(ht_need_axes(ctx, call, "axes"));
    ht_type scales = scales_type(call, HT_F32), zeros = scales_type(call, HT_I32);
    HT_TRY(need_like(ctx, &out[1], &scales, "the scales"));
    return need_like(ctx, &out[2], &zeros, "the zero points");
}

/* Scaled, rounded, moved by the zero point; besides, the two comparisons that find a range. */
HT_COST_PER_OUT(quantize_linear_cost, 3)
HT_COST_PER_OUT(dequantize_linear_cost, 2)
HT_COST_PER_OUT(quantize_dynamic_cost, 5)

/* ---- references ---- */

static int32_t zero_of(const ht_call *call, const double *const *in, int64_t group)
{
    return call->n_in > 2 && call->in[2] ? (int32_t)in[2][group] : 0;
}

static void quantize_linear_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_code_groups groups = ht_code_groups_of(call);
    for (int64_t i = 0; i < ht_type_elems(call->in[0]); i++) {
        int64_t group = ht_code_group(&groups, i);
        ht_coding coding = ht_coding_of(call->out[0]->dtype, (float)in[1][group], zero_of(call, in, group));
        out[0][i] = ht_code_of(&coding, (float)in[0][i]);
    }
}

static void dequantize_linear_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_code_groups groups = ht_code_groups_of(call);
    for (int64_t i = 0; i < ht_type_elems(call->in[0]); i++) {
        int64_t group = ht_code_group(&groups, i);
        float steps = (float)in[0][i] - (float)zero_of(call, in, group);
        out[0][i] = (double)(steps * (float)in[1][group]);
    }
}

static ht_code_range range_of(const ht_code_groups *groups, const double *x, int64_t n, int64_t group)
{
    ht_code_range range = {0};
    for (int64_t i = 0; i < n; i++) {
        float value = (float)x[i];
        if (ht_code_group(groups, i) != group) continue;
        if (value < range.low) range.low = value;
        if (value > range.high) range.high = value;
        range.finite += value * 0;
    }
    return range;
}

static void quantize_dynamic_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_code_groups groups = ht_code_groups_of(call);
    int64_t n = ht_type_elems(call->in[0]);
    for (int64_t group = 0; group < ht_type_elems(call->out[1]); group++) {
        int32_t zero;
        ht_code_range range = range_of(&groups, in[0], n, group);
        out[1][group] = (double)ht_dynamic_scale(call->out[0]->dtype, &range, &zero);
        out[2][group] = zero;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t group = ht_code_group(&groups, i);
        ht_coding coding = ht_coding_of(call->out[0]->dtype, (float)out[1][group], (int32_t)out[2][group]);
        out[0][i] = ht_code_of(&coding, (float)in[0][i]);
    }
}

/* ---- the ops ---- */

static const ht_attr_def axes_attrs[] = {HT_DEF_INTS("axes"), HT_DEF_END};
static const char no_gradient[] = "rounding has none: it is put into models that were trained before";

#define SCALE "f32[] 0.003..0.02"
static const char *const quantize_linear_samples[] = {
    "(f32[3,5], " SCALE ") -> i8[3,5]",
    "(f32[3,5] -2..3, " SCALE ", i32[] 0..255) -> u8[3,5]",
    "(f32[300,7] -1..1, f32[7] 0.003..0.02) -> i8[300,7] axes=[0]",
    "(f32[7,300] -1..1, f32[7] 0.003..0.02, i32[7] -128..127) -> i8[7,300] axes=[-1]",
    "(bf16[2,3,7] -1000..1000, f32[2,7] 1..8) -> i8[2,3,7] axes=[1]",
    "(f16[33] -60000..60000, f32[] 500..600, i32[] 100..150) -> u8[33]",
    "(f32[64] -3..3, f32[] 0.5..0.5) -> i8[64]",
    "(f32[4] -1e30..1e30, f32[] 1e-30..1e-30, i32[] 128..128) -> u8[4]",
    "(f32[9], " SCALE ", i32[] -1000..1000) -> u8[9]",
    "(f32[], " SCALE ") -> i8[]",
    "(f32[0,4], f32[4] 0.003..0.02) -> i8[0,4] axes=[0]",
    "(f32[70001] -1..1, " SCALE ", i32[] 3..3) -> u8[70001]",
    NULL,
};
static const char *const dequantize_linear_samples[] = {
    "(i8[3,5] -128..127, " SCALE ")",
    "(u8[3,5] 0..255, " SCALE ", i32[] 0..255)",
    "(i8[300,7] -128..127, f32[7] 0.003..0.02) axes=[0]",
    "(i8[7,300] -128..127, f32[7] 0.003..0.02, i32[7] -128..127) axes=[-1]",
    "(u8[2,3,7] 0..255, f32[2,7] 1..8) axes=[1]",
    "(i8[], " SCALE ")",
    "(i8[0,4], f32[4] 0.003..0.02) axes=[0]",
    "(u8[70001] 0..255, " SCALE ", i32[] 3..3)",
    NULL,
};
static const char *const quantize_dynamic_samples[] = {
    "(f32[3,5]) -> u8[3,5], f32[3], i32[3] axes=[-1]",
    "(f32[3,5]) -> i8[3,5], f32[3], i32[3] axes=[1]",
    "(f32[5,768] 0.5..3) -> u8[5,768], f32[5], i32[5] axes=[1]",
    "(f32[5,100] -3..-0.5) -> u8[5,100], f32[5], i32[5] axes=[1]",
    "(f32[2,3,33] -8..2) -> u8[2,3,33], f32[2,3], i32[2,3] axes=[2]",
    "(f32[300,7]) -> i8[300,7], f32[7], i32[7] axes=[0]",
    "(f32[300,7]) -> u8[300,7], f32[7], i32[7] axes=[0]",
    "(bf16[16,48] -1e-5..1e-5) -> u8[16,48], f32[16], i32[16] axes=[1]",
    "(f16[2,3,70] -60000..60000) -> i8[2,3,70], f32[2,70], i32[2,70] axes=[1]",
    "(f32[4,6] 0..0) -> u8[4,6], f32[4], i32[4] axes=[1]",
    "(f32[4,6] -1e-44..1e-44) -> i8[4,6], f32[4], i32[4] axes=[1]",
    "(f32[4,6] -3e38..3e38) -> u8[4,6], f32[4], i32[4] axes=[1]",
    "(f32[70001] -0.1..0.3) -> u8[70001], f32[], i32[]",
    "(f32[]) -> i8[], f32[], i32[]",
    "(f32[0,4]) -> u8[0,4], f32[0], i32[0] axes=[1]",
    "(f32[4,0]) -> u8[4,0], f32[4], i32[4] axes=[1]",
    NULL,
};

const ht_op ht_op_quantize_linear = {
    .size = sizeof(ht_op),
    .name = "quantize_linear",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = axes_attrs,
    .infer = quantize_linear_infer,
    .cost = quantize_linear_cost,
    .no_grad = no_gradient,
    .ref = quantize_linear_ref,
    .samples = quantize_linear_samples,
};

const ht_op ht_op_dequantize_linear = {
    .size = sizeof(ht_op),
    .name = "dequantize_linear",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_NO_FOLD,
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = axes_attrs,
    .infer = dequantize_linear_infer,
    .cost = dequantize_linear_cost,
    .no_grad = no_gradient,
    .ref = dequantize_linear_ref,
    .samples = dequantize_linear_samples,
};

const ht_op ht_op_quantize_dynamic = {
    .size = sizeof(ht_op),
    .name = "quantize_dynamic",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 1,
    .max_in = 1,
    .n_out = 3,
    .attrs = axes_attrs,
    .infer = quantize_dynamic_infer,
    .cost = quantize_dynamic_cost,
    .no_grad = no_gradient,
    .ref = quantize_dynamic_ref,
    .samples = quantize_dynamic_samples,
};
