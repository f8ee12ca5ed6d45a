/* conv_q: a convolution of codes, y[n,o,i,j] = (sum over c, a, b of (x[n, c, i*stride - padding + a*dilation, j*...] - x_zero)
 * w[o,c,a,b]) x_scale w_scale[o] + bias[o] + (r[n,o,i,j] - r_zero) r_scale, in groups as conv2d. Padding stands for 0. The sum is
 * exact. Inputs:
 *     x         u8 or i8; w: i8, its zero point is 0
 *     x_scale   f32[]
 *     w_scale   f32[], or one for each channel of y
 *     x_zero    i32[]; left out: 0; beyond the codes: the nearest one
 *     bias      f32, one for each channel of y; left out: none
 *     y_scale, y_zero   f32[] and i32[], where y is codes itself: then it is quantize_linear of the above, clipped to
 *                       [low, high] before
 *     r, r_scale, r_zero   the residual, of y's shape: u8 or i8 with f32[] and i32[] (left out: 0), or f32 alone; left out: none
 * What is done to a sum: it becomes f32, is multiplied by the product of its two scales, the bias is added, then the residual, whose
 * difference is multiplied by its scale; each with one rounding to nearest. */
#include "op/op.h"
#include "op/window.h"

#include <inttypes.h>

enum { X, W, X_SCALE, W_SCALE, X_ZERO, BIAS, Y_SCALE, Y_ZERO, R, R_SCALE, R_ZERO };
static const char *const names[] = {"x",       "w",      "x_scale", "w_scale", "x_zero", "bias",
                                    "y_scale", "y_zero", "r",       "r_scale", "r_zero"};

static const ht_type *given(const ht_call *call, size_t input)
{
    return input < call->n_in ? call->in[input] : NULL;
}

/* ---- shapes ---- */

static ht_status need_operands(ht_context *ctx, const ht_call *call)
{
    ht_type_text text;
    const ht_type *x = call->in[X], *w = call->in[W];
    if (!ht_dtype_is_code(x->dtype) || x->rank != 4)
        HT_FAIL(ctx, HT_EDTYPE, "x is %s, not u8 or i8 with four axes", ht_type_str(x, &text));
    if (w->dtype != HT_I8 || w->rank != 4)
        HT_FAIL(ctx, HT_EDTYPE, "w is %s, not i8 with four axes", ht_type_str(w, &text));
    double products = (double)w->dim[1] * (double)w->dim[2] * (double)w->dim[3];
    if (products > HT_MOST_CODE_PRODUCTS)
        HT_FAIL(ctx, HT_ESHAPE, "a window of %.0f elements: sums of i32 hold %d products", products,
                HT_MOST_CODE_PRODUCTS);
    return HT_OK;
}

/* A single number where that will do, or one for each channel. */
static ht_status need_numbers(ht_context *ctx, const ht_call *call, size_t input, ht_dtype dtype, bool single,
                              bool each_channel)
{
    ht_type_text text;
    const ht_type *is = given(call, input);
    int64_t channels = call->in[W]->dim[0];
    if (!is) return HT_OK;
    bool fits = (single && is->rank == 0) || (each_channel && is->rank == 1 && is->dim[0] == channels);
    if (is->dtype == dtype && fits) return HT_OK;
    HT_FAIL(ctx, is->dtype == dtype ? HT_ESHAPE : HT_EDTYPE, "%s is %s, not %s of %s", names[input],
            ht_type_str(is, &text), ht_dtype_name(dtype),
            !each_channel ? "a single number"
            : single      ? "a single number or one for each channel"
                          : "one number for each channel");
}

static ht_status need_all_numbers(ht_context *ctx, const ht_call *call)
{
    HT_TRY(need_numbers(ctx, call, X_SCALE, HT_F32, true, false));
    HT_TRY(need_numbers(ctx, call, W_SCALE, HT_F32, true, true));
    HT_TRY(need_numbers(ctx, call, X_ZERO, HT_I32, true, false));
    HT_TRY(need_numbers(ctx, call, BIAS, HT_F32, false, true));
    HT_TRY(need_numbers(ctx, call, Y_SCALE, HT_F32, true, false));
    HT_TRY(need_numbers(ctx, call, Y_ZERO, HT_I32, true, false));
    HT_TRY(need_numbers(ctx, call, R_SCALE, HT_F32, true, false));
    return need_numbers(ctx, call, R_ZERO, HT_I32, true, false);
}

static bool clips(const ht_call *call)
{
    return ht_call_float(call, "low") > -INFINITY || ht_call_float(call, "high") < INFINITY;
}

/* What belongs to results that are codes, and only to them. */
static ht_status need_codes(ht_context *ctx, const ht_call *call, const ht_type *y)
{
    ht_type_text text;
    bool codes = ht_dtype_is_code(y->dtype);
    if (!codes && y->dtype != HT_F32)
        HT_FAIL(ctx, HT_EDTYPE, "the result is %s, not f32, i8 or u8", ht_dtype_name(y->dtype));
    if (codes && !given(call, Y_SCALE)) HT_FAIL(ctx, HT_EINVAL, "the result is codes, and y_scale is missing");
    if (!codes && (given(call, Y_SCALE) || given(call, Y_ZERO) || clips(call)))
        HT_FAIL(ctx, HT_EINVAL, "y_scale, y_zero, low and high are for results of i8 or u8, not %s",
                ht_type_str(y, &text));
    if (!(ht_call_float(call, "low") <= ht_call_float(call, "high")))
        HT_FAIL(ctx, HT_EINVAL, "low %g is above high %g", ht_call_float(call, "low"), ht_call_float(call, "high"));
    return HT_OK;
}

static ht_status need_residual(ht_context *ctx, const ht_call *call, const ht_type *y)
{
    ht_type_text text, want;
    const ht_type *r = given(call, R);
    if (!r && (given(call, R_SCALE) || given(call, R_ZERO)))
        HT_FAIL(ctx, HT_EINVAL, "r_scale and r_zero are there, and r is missing");
    if (!r) return HT_OK;
    bool codes = ht_dtype_is_code(r->dtype);
    if (!codes && r->dtype != HT_F32) HT_FAIL(ctx, HT_EDTYPE, "r is %s, not u8, i8 or f32", ht_type_str(r, &text));
    if (codes && !given(call, R_SCALE)) HT_FAIL(ctx, HT_EINVAL, "r is codes, and r_scale is missing");
    if (!codes && (given(call, R_SCALE) || given(call, R_ZERO)))
        HT_FAIL(ctx, HT_EINVAL, "r_scale and r_zero are for residuals of i8 or u8, not %s", ht_type_str(r, &text));
    if (!ht_type_same_shape(r, y))
        HT_FAIL(ctx, HT_ESHAPE, "r is %s, not of the shape of %s", ht_type_str(r, &text), ht_type_str(y, &want));
    return HT_OK;
}

static ht_status conv_q_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text text, want;
    int64_t dim[4];
    HT_TRY(need_operands(ctx, call));
    HT_TRY(need_all_numbers(ctx, call));
    HT_TRY(ht_conv_slide(ctx, call, call->in[X], call->in[W], dim));
    HT_TRY(need_codes(ctx, call, &out[0]));
    ht_type y = ht_type_make(out[0].dtype, 4, dim);
    if (!ht_type_same_shape(&out[0], &y))
        HT_FAIL(ctx, HT_ESHAPE, "the result is %s, not %s", ht_type_str(&out[0], &text), ht_type_str(&y, &want));
    return need_residual(ctx, call, &out[0]);
}

static void conv_q_cost(const ht_call *call, ht_cost *cost)
{
    const ht_type *w = call->in[W];
    cost->dot_flops =
        2.0 * (double)ht_type_elems(call->out[0]) * (double)w->dim[1] * (double)w->dim[2] * (double)w->dim[3];
}

/* ---- reference ---- */

/* Element `index` of an input that may be a single number or left out. */
static double number(const ht_call *call, const double *const *in, size_t input, int64_t index)
{
    const ht_type *type = given(call, input);
    if (!type) return 0;
    return in[input][type->rank ? index : 0];
}

static int64_t ref_sum(const ht_call *call, const double *const *in, const ht_conv *c, int64_t n, int64_t o, int64_t i,
                       int64_t j)
{
    const ht_window *v = &c->window;
    int64_t first = o / c->out_channels * c->in_channels, all = c->in_channels * c->groups, sum = 0;
    int64_t zero = ht_zero_within(call->in[X]->dtype, (int32_t)number(call, in, X_ZERO, 0));
    for (int64_t k = 0; k < c->in_channels * v->size[0] * v->size[1]; k++) {
        int64_t tap_w = k % v->size[1], tap_h = k / v->size[1] % v->size[0], channel = k / v->size[1] / v->size[0];
        int64_t h = ht_window_at(v, 0, i, tap_h), w = ht_window_at(v, 1, j, tap_w);
        if (h < 0 || h >= v->plane[0] || w < 0 || w >= v->plane[1]) continue;
        int64_t code = (int64_t)in[X][((n * all + first + channel) * v->plane[0] + h) * v->plane[1] + w];
        sum += (code - zero) * (int64_t)in[W][o * c->in_channels * v->size[0] * v->size[1] + k];
    }
    return sum;
}

static float ref_value(const ht_call *call, const double *const *in, int64_t sum, int64_t o, int64_t element)
{
    float scale = (float)number(call, in, X_SCALE, 0) * (float)number(call, in, W_SCALE, o);
    float y = (float)(int32_t)sum * scale;
    if (given(call, BIAS)) y += (float)in[BIAS][o];
    if (!given(call, R)) return y;
    if (call->in[R]->dtype == HT_F32) return y + (float)in[R][element];
    float steps = (float)in[R][element] - (float)(int32_t)number(call, in, R_ZERO, 0);
    return y + steps * (float)in[R_SCALE][0];
}

static void conv_q_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *y = call->out[0];
    ht_conv c = ht_conv_of(call, call->in[X], call->in[W]);
    int64_t plane = c.window.steps[0] * c.window.steps[1];
    ht_coding coding = {0};
    if (ht_dtype_is_code(y->dtype))
        coding = ht_coding_clip(ht_coding_of(y->dtype, (float)in[Y_SCALE][0], (int32_t)number(call, in, Y_ZERO, 0)),
                                (float)ht_call_float(call, "low"), (float)ht_call_float(call, "high"));
    for (int64_t e = 0; e < ht_type_elems(y); e++) {
        int64_t o = e / plane % y->dim[1], at = e % plane;
        int64_t sum = ref_sum(call, in, &c, e / plane / y->dim[1], o, at / y->dim[3], at % y->dim[3]);
        float value = ref_value(call, in, sum, o, e);
        out[0][e] = ht_dtype_is_code(y->dtype) ? ht_code_of(&coding, value) : (double)value;
    }
}

/* ---- the op ---- */

static const ht_attr_def conv_q_attrs[] = {HT_DEF_CONV, HT_DEF_FLOAT("low", -INFINITY), HT_DEF_FLOAT("high", INFINITY),
                                           HT_DEF_END};

#define SCALES      "f32[] 0.003..0.02, f32[] 0.003..0.02"
#define U8          "0..255"
#define I8          "-128..127"
#define CHANNELS(n) "f32[" #n "] 0.001..0.02"
static const char *const conv_q_samples[] = {
    "(u8[2,3,6,5] " U8 ", i8[4,3,3,3] " I8 ", " SCALES ") -> f32[2,4,4,3]",
    "(i8[2,3,4,5] " I8 ", i8[4,3,1,1] " I8 ", " SCALES ", i32[] -5..-5) -> f32[2,4,4,5]",
    "(u8[2,70,4,5] " U8 ", i8[40,70,1,1] " I8 ", f32[] 0.01..0.02, " CHANNELS(40) ", i32[] 128..128, f32[40]) -> "
                                                                                  "f32[2,40,4,5]",
    "(u8[1,4,7,6] " U8 ", i8[6,2,3,2] " I8
    ", f32[] 0.01..0.02, " CHANNELS(6) ", i32[] 7..7, f32[6], f32[] 0.5..1, "
                                       "i32[] 0..255) -> u8[1,6,4,5] stride=[2,1] padding=[1,0] groups=2",
    "(i8[2,2,8,7] " I8 ", i8[3,2,2,3] " I8 ", " SCALES ", i32[] 100..100, _, f32[] 0.5..1) -> i8[2,3,10,5] "
    "stride=[1,2] padding=[2,3] dilation=[2,2]",
    /* Depthwise. */
    "(u8[2,5,6,5] " U8 ", i8[5,1,3,3] " I8
    ", f32[] 0.01..0.02, " CHANNELS(5) ", i32[] 9..9, f32[5], f32[] 0.5..1) -> "
                                       "u8[2,5,6,5] padding=[1,1] groups=5 low=0 high=6",
    "(i8[1,70,5,9] " I8 ", i8[70,1,3,3] " I8
    ", f32[] 0.01..0.02, " CHANNELS(70) ", i32[] 9..9, f32[70], f32[] 0.5..1) "
                                        "-> i8[1,70,3,5] stride=[2,2] padding=[1,1] groups=70",
    "(u8[1,3,9,8] " U8 ", i8[6,1,3,2] " I8 ", " SCALES ") -> f32[1,6,4,3] stride=[2,3] padding=[1,1] dilation=[2,1] "
    "groups=3",
    /* With a residual. */
    "(u8[2,16,5,6] " U8 ", i8[33,16,3,3] " I8
    ", f32[] 0.01..0.02, " CHANNELS(33) ", i32[] 0..255, f32[33], "
                                        "f32[] 0.5..1, i32[] 3..3, u8[2,33,5,6] " U8
                                        ", f32[] 0.01..0.02, i32[] 0..255) -> u8[2,33,5,6] padding=[1,1] low=0",
    "(u8[1,2,5,4] " U8 ", i8[34,2,2,2] " I8 ", " SCALES ", _, _, _, _, i8[1,34,4,3] " I8
    ", f32[] 1..2) -> f32[1,34,4,3]",
    "(u8[1,2,5,4] " U8 ", i8[3,2,2,2] " I8 ", " SCALES ", _, _, f32[] 0.5..1, _, f32[1,3,4,3] -9..9) -> u8[1,3,4,3]",
    /* The largest sums, codes beyond both ends, zero points that are no codes, mostly padding. */
    "(u8[1,300,3,3] 255..255, i8[3,300,3,3] 127..127, " SCALES ") -> f32[1,3,1,1]",
    "(u8[1,130,3,3] 255..255, i8[33,130,3,3] -128..-128, f32[] 1..1, f32[] 1..1, _, _, f32[] 1..1) -> i8[1,33,3,3] "
    "padding=[1,1]",
    "(i8[1,3,4,4] " I8 ", i8[2,3,3,3] " I8 ", " SCALES ", i32[] -1000..1000) -> f32[1,2,4,4] padding=[1,1]",
    "(u8[2,2,3,4] " U8 ", i8[3,2,2,2] " I8 ", " SCALES ", i32[] 17..17) -> f32[2,3,3,3] stride=[40,50] padding=[40,50]",
    "(u8[0,3,4,4], i8[2,3,3,3] " I8 ", " SCALES ") -> f32[0,2,2,2]",
    "(u8[2,0,4,4], i8[2,0,3,3], " SCALES ", _, f32[2]) -> f32[2,2,2,2]",
    NULL,
};

const ht_op ht_op_conv_q = {
    .size = sizeof(ht_op),
    .name = "conv_q",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .min_in = 4,
    .max_in = 11,
    .n_out = 1,
    .attrs = conv_q_attrs,
    .infer = conv_q_infer,
    .cost = conv_q_cost,
    .f32_in = 1u << BIAS | 1u << R,
    .no_grad = "rounding has none: it is put into models that were trained before",
    .ref = conv_q_ref,
    .samples = conv_q_samples,
};
