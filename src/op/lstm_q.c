/* lstm_q: lstm with weights that are codes. Inputs:
 *     x           u8 or i8 [T,B,I]: codes
 *     x_scale     f32[], or f32[T,B]
 *     h0, c0      f32[B,H]
 *     w_input     i8[4H,I], w_hidden i8[4H,H], each followed by its scale: f32[], f32[4H] or f32[4H,1]; zero points are 0
 *     x_zero      i32[] or i32[T,B]; left out: 0
 *     bias        f32[4H]; left out: none
 *     lengths     i32 or i64 [B]; left out: T
 * Step t: pre = matmul_q of x_t and w_input with the bias, gates = matmul_q of h's codes and w_hidden, added to pre. A row of h has
 * codes as quantize_dynamic makes them, i8. What follows is lstm's, in f32 with one rounding for each operation and the functions
 * of base/mathfn.h, so every instruction set has the same bits. At and beyond a sequence's length y is zero, h and c stay.
 * Results: y [T,B,H], and h and c behind the last step. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"

enum { X, X_SCALE, H0, C0, W_INPUT, W_INPUT_SCALE, W_HIDDEN, W_HIDDEN_SCALE, X_ZERO, BIAS, LENGTHS, INPUTS };
static const char *const names[INPUTS] = {"x",        "x_scale",        "h0",     "c0",   "w_input", "w_input_scale",
                                          "w_hidden", "w_hidden_scale", "x_zero", "bias", "lengths"};
enum { GATE_I, GATE_F, GATE_G, GATE_O, GATES };

static const ht_type *given(const ht_call *call, size_t input)
{
    return input < call->n_in ? call->in[input] : NULL;
}

typedef struct extent {
    int64_t steps, batch, inputs, hidden;
} extent;

static extent extent_of(const ht_call *call)
{
    const ht_type *x = call->in[X], *h0 = call->in[H0];
    return (extent){x->dim[0], x->dim[1], x->dim[2], h0->dim[1]};
}

/* ---- shapes ---- */

/* An omitted input matches every type. */
static ht_status need_type(ht_context *ctx, const ht_call *call, size_t input, const ht_type *want)
{
    ht_type_text a, b;
    const ht_type *is = given(call, input);
    if (!is || (is->dtype == want->dtype && ht_type_same_shape(is, want))) return HT_OK;
    HT_FAIL(ctx, is->dtype == want->dtype ? HT_ESHAPE : HT_EDTYPE, "%s is %s, not %s", names[input],
            ht_type_str(is, &a), ht_type_str(want, &b));
}

static ht_status need_matrix(ht_context *ctx, const ht_call *call, size_t input, ht_dtype dtype, int64_t rows,
                             int64_t columns)
{
    int64_t dims[2] = {rows, columns};
    ht_type want = ht_type_make(dtype, 2, dims);
    return need_type(ctx, call, input, &want);
}

/* A single number, or one for each gate of a unit. */
static ht_status need_gate_scale(ht_context *ctx, const ht_call *call, size_t input, int64_t gates)
{
    const ht_type *is = call->in[input];
    if (is->dtype == HT_F32 && is->rank == 0) return HT_OK;
    if (is->rank == 2) return need_matrix(ctx, call, input, HT_F32, gates, 1);
    ht_type want = ht_type_make(HT_F32, 1, &gates);
    return need_type(ctx, call, input, &want);
}

static ht_status need_codes(ht_context *ctx, const ht_call *call)
{
    ht_type_text text;
    const ht_type *x = call->in[X], *h0 = call->in[H0];
    if (!ht_dtype_is_code(x->dtype) || x->rank != 3)
        HT_FAIL(ctx, HT_EDTYPE, "x is %s, not u8 or i8 of [steps, sequences, inputs]", ht_type_str(x, &text));
    if (h0->rank != 2) HT_FAIL(ctx, HT_ESHAPE, "h0 is %s, not of [sequences, units]", ht_type_str(h0, &text));
    extent s = extent_of(call);
    if (s.inputs > HT_MOST_CODE_PRODUCTS || s.hidden > HT_MOST_CODE_PRODUCTS)
        HT_FAIL(ctx, HT_ESHAPE, "%" PRId64 " inputs and %" PRId64 " units: sums of i32 hold %d products", s.inputs,
                s.hidden, HT_MOST_CODE_PRODUCTS);
    return HT_OK;
}

static ht_status need_activation_scales(ht_context *ctx, const ht_call *call)
{
    ht_type scale = ht_type_make(HT_F32, 2, call->in[X]->dim), zero = ht_type_make(HT_I32, 2, call->in[X]->dim);
    if (call->in[X_SCALE]->dtype != HT_F32 || call->in[X_SCALE]->rank > 0)
        HT_TRY(need_type(ctx, call, X_SCALE, &scale));
    const ht_type *is = given(call, X_ZERO);
    return is && is->dtype == HT_I32 && is->rank == 0 ? HT_OK : need_type(ctx, call, X_ZERO, &zero);
}

static ht_status lstm_q_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    for (size_t i = X; i <= W_HIDDEN_SCALE; i++)
        if (!given(call, i)) HT_FAIL(ctx, HT_EINVAL, "%s is missing", names[i]);
    HT_TRY(need_codes(ctx, call));
    HT_TRY(need_activation_scales(ctx, call));
    extent s = extent_of(call);
    int64_t gates = GATES * s.hidden;
    HT_TRY(need_matrix(ctx, call, H0, HT_F32, s.batch, s.hidden));
    HT_TRY(need_matrix(ctx, call, C0, HT_F32, s.batch, s.hidden));
    HT_TRY(need_matrix(ctx, call, W_INPUT, HT_I8, gates, s.inputs));
    HT_TRY(need_matrix(ctx, call, W_HIDDEN, HT_I8, gates, s.hidden));
    HT_TRY(need_gate_scale(ctx, call, W_INPUT_SCALE, gates));
    HT_TRY(need_gate_scale(ctx, call, W_HIDDEN_SCALE, gates));
    ht_type bias = ht_type_make(HT_F32, 1, &gates);
    HT_TRY(need_type(ctx, call, BIAS, &bias));
    if (given(call, LENGTHS)) {
        HT_TRY(ht_need_int(ctx, call, LENGTHS));
        ht_type lengths = ht_type_make(call->in[LENGTHS]->dtype, 1, &s.batch);
        HT_TRY(need_type(ctx, call, LENGTHS, &lengths));
    }
    int64_t y[3] = {s.steps, s.batch, s.hidden};
    out[0] = ht_type_make(HT_F32, 3, y);
    out[1] = *call->in[H0];
    out[2] = *call->in[C0];
    return HT_OK;
}

static void lstm_q_cost(const ht_call *call, ht_cost *cost)
{
    extent s = extent_of(call);
    double units = (double)s.steps * (double)s.batch * (double)s.hidden;
    cost->dot_flops = 8 * units * (double)(s.inputs + s.hidden);
    cost->other_flops = 35 * units;
}

/* ---- reference ---- */

/* A row of codes by a gate's row of weights, as matmul_q has it. */
static float product_of(const double *codes, int64_t zero, const double *weights, int64_t n, float scale,
                        double weight_scale)
{
    int64_t sum = 0;
    for (int64_t k = 0; k < n; k++) sum += ((int64_t)codes[k] - zero) * (int64_t)weights[k];
    return (float)(int32_t)sum * (scale * (float)weight_scale);
}

/* A row of h as codes; the result is their scale. */
static float code_row(const double *h, int64_t n, double *codes)
{
    ht_code_range range = {0};
    int32_t zero;
    for (int64_t j = 0; j < n; j++) {
        float x = (float)h[j];
        range.low = x < range.low ? x : range.low;
        range.high = x > range.high ? x : range.high;
        range.finite += x * 0;
    }
    float scale = ht_dynamic_scale(HT_I8, &range, &zero);
    ht_coding coding = ht_coding_of(HT_I8, scale, 0);
    for (int64_t j = 0; j < n; j++) codes[j] = ht_code_of(&coding, (float)h[j]);
    return scale;
}

typedef struct reference {
    const ht_call *call;
    const double *const *in;
    extent s;
    double *codes; /* of h */
    float *gates;
} reference;

static double element(const reference *r, size_t input, int64_t i)
{
    return r->in[input][r->call->in[input]->rank ? i : 0];
}

static void find_gates(const reference *r, int64_t row, float h_scale)
{
    int64_t inputs = r->s.inputs, hidden = r->s.hidden;
    int64_t zero = given(r->call, X_ZERO) ? (int64_t)element(r, X_ZERO, row) : 0;
    for (int64_t n = 0; n < GATES * hidden; n++) {
        float pre = product_of(r->in[X] + row * inputs, zero, r->in[W_INPUT] + n * inputs, inputs,
                               (float)element(r, X_SCALE, row), element(r, W_INPUT_SCALE, n));
        if (given(r->call, BIAS)) pre = pre + (float)r->in[BIAS][n];
        float gate =
            product_of(r->codes, 0, r->in[W_HIDDEN] + n * hidden, hidden, h_scale, element(r, W_HIDDEN_SCALE, n)) + pre;
        r->gates[n] = n / hidden == GATE_G ? fn_tanh_f32(gate) : fn_sigmoid_f32(gate);
    }
}

static void lstm_q_ref(const ht_call *call, const double *const *in, double *const *out)
{
    reference r = {.call = call, .in = in, .s = extent_of(call)};
    int64_t batch = r.s.batch, hidden = r.s.hidden;
    r.codes = calloc((size_t)hidden + 1, sizeof *r.codes);
    r.gates = calloc((size_t)hidden + 1, GATES * sizeof *r.gates);
    for (size_t i = 0; i < 3; i++)
        for (int64_t k = 0; k < ht_type_elems(call->out[i]); k++) out[i][k] = r.codes && r.gates ? 0 : NAN;
    for (int64_t b = 0; r.codes && r.gates && b < batch; b++) {
        double *h = out[1] + b * hidden, *c = out[2] + b * hidden;
        memcpy(h, in[H0] + b * hidden, (size_t)hidden * sizeof *h);
        memcpy(c, in[C0] + b * hidden, (size_t)hidden * sizeof *c);
        for (int64_t t = 0; t < r.s.steps && (!given(call, LENGTHS) || (double)t < in[LENGTHS][b]); t++) {
            find_gates(&r, t * batch + b, code_row(h, hidden, r.codes));
            for (int64_t j = 0; j < hidden; j++) {
                float kept = r.gates[GATE_F * hidden + j] * (float)c[j];
                float cell = kept + r.gates[GATE_I * hidden + j] * r.gates[GATE_G * hidden + j];
                c[j] = (double)cell;
                h[j] = (double)(r.gates[GATE_O * hidden + j] * fn_tanh_f32(cell));
            }
            memcpy(out[0] + (t * batch + b) * hidden, h, (size_t)hidden * sizeof *h);
        }
    }
    free(r.codes);
    free(r.gates);
}

/* ---- the row ---- */

#define U8      "0..255"
#define I8      "-128..127"
#define W(m, n) "i8[" #m "," #n "] " I8
static const char *const lstm_q_samples[] = {
    "(u8[3,2,4] " U8 ", f32[] 0.004..0.01, f32[2,3], f32[2,3], " W(12, 4) ", f32[12] 0.002..0.01, " W(
        12, 3) ", f32[12] 0.002..0.01, _, f32[12])",
    "(i8[4,3,2] " I8 ", f32[4,3] 0.004..0.01, f32[3,2], f32[3,2], " W(8, 2) ", f32[] 0.002..0.01, " W(
        8, 2) ", f32[8,1] 0.002..0.01, _, f32[8], i32[3] 0..4)",
    "(u8[5,2,3] " U8 ", f32[5,2] 0.004..0.01, f32[2,2], f32[2,2], " W(8, 3) ", f32[8,1] 0.002..0.01, " W(
        8, 2) ", f32[] 0.002..0.01, i32[5,2] 0..255, _, i64[2] 1..6)",
    "(u8[1,1,70] " U8 ", f32[1,1] 0.004..0.01, f32[1,40], f32[1,40], " W(160, 70) ", f32[160] 0.001..0.005, " W(
        160, 40) ", f32[160] 0.001..0.005, i32[1,1] 0..255)",
    "(u8[3,18,9] " U8 ", f32[3,18] 0.004..0.01, f32[18,24], f32[18,24], " W(96, 9) ", f32[96] 0.001..0.005, " W(
        96, 24) ", f32[96] 0.001..0.005, i32[] 9..9, f32[96], i32[18] 0..3)",
    "(i8[2,35,130] " I8 ", f32[] 0.004..0.01, f32[35,72] -4..4, f32[35,72] -4..4, " W(
        288, 130) ", f32[288] 0.001..0.005, " W(288, 72) ", f32[288] 0.001..0.005, _, f32[288])",
    "(u8[0,2,3], f32[], f32[2,2], f32[2,2], i8[8,3], f32[8], i8[8,2], f32[8], _, f32[8])",
    "(u8[2,0,3], f32[], f32[0,2], f32[0,2], i8[8,3], f32[8], i8[8,2], f32[8])",
    "(u8[2,3,0], f32[], f32[3,2], f32[3,2], i8[8,0], f32[8], " W(8, 2) ", f32[8] 0.002..0.01, i32[] 5..5, f32[8])",
    NULL,
};

const ht_op ht_op_lstm_q = {
    .size = sizeof(ht_op),
    .name = "lstm_q",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_NO_FOLD,
    .min_in = W_HIDDEN_SCALE + 1,
    .max_in = INPUTS,
    .n_out = 3,
    .f32_in = 1u << H0 | 1u << C0 | 1u << BIAS,
    .f32_out = 7,
    .infer = lstm_q_infer,
    .cost = lstm_q_cost,
    .no_grad = "rounding has none: it is put into models that were trained before",
    .ref = lstm_q_ref,
    .samples = lstm_q_samples,
};
