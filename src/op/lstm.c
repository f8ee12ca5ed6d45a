/* lstm: one layer over x [T,B,I], gates in the order i, f, g, o:
 *     [i f g o] = x_t w_input' + h w_hidden' + bias;  i, f, o by sigmoid, g by tanh
 *     c = f c + i g;  h = o tanh(c);  y_t = h
 * At and beyond a sequence's length y is zero, h and c stay. `reserve` [T,B,5H] keeps i, f, g, o and c of every step
 * for the gradient (zeros beyond the length), in half where the layer computes in half (decision 0027); h is made from
 * it again as o tanh(c). */
#include "op/op.h"

#include <inttypes.h>
#include <stdlib.h>

enum { LSTM_X, LSTM_H0, LSTM_C0, LSTM_W_INPUT, LSTM_W_HIDDEN, LSTM_BIAS, LSTM_LENGTHS, LSTM_INPUTS };
enum { GRAD_RESERVE = LSTM_W_HIDDEN + 1, GRAD_LENGTHS, GRAD_DY, GRAD_DH, GRAD_DC, LSTM_GRAD_INPUTS };
enum { OUT_DX, OUT_DH0, OUT_DC0, OUT_DW_INPUT, OUT_DW_HIDDEN, OUT_DBIAS, LSTM_GRAD_RESULTS };
enum { GATE_I, GATE_F, GATE_G, GATE_O, CELL, KEPT };

typedef struct extent {
    int64_t steps, batch, inputs, hidden;
} extent;

static const ht_type *input_or_none(const ht_call *call, size_t input)
{
    return input < call->n_in ? call->in[input] : NULL;
}

static extent extent_of(const ht_call *call)
{
    const ht_type *x = call->in[LSTM_X], *h0 = call->in[LSTM_H0];
    return (extent){x->dim[0], x->dim[1], x->dim[2], h0->dim[1]};
}

/* ---- shapes ---- */

static ht_status need_floats(ht_context *ctx, const ht_call *call, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!call->in[i]) HT_FAIL(ctx, HT_EINVAL, "input %zu is missing", i);
        HT_TRY(ht_need_float(ctx, call, i));
    }
    return HT_OK;
}

/* An omitted input matches every shape. */
static ht_status need_shape(ht_context *ctx, const ht_call *call, size_t input, int rank, const int64_t *dims)
{
    if (!input_or_none(call, input)) return HT_OK;
    ht_type want = ht_type_make(call->in[input]->dtype, rank, dims);
    ht_type_text a, b;
    if (!ht_type_same_shape(call->in[input], &want))
        HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, not %s", input, ht_type_str(call->in[input], &a),
                ht_type_str(&want, &b));
    return HT_OK;
}

/* The inputs that both ops begin with, and lengths. */
static ht_status check_layer(ht_context *ctx, const ht_call *call, size_t lengths, extent *e)
{
    HT_TRY(need_floats(ctx, call, LSTM_W_HIDDEN + 1));
    HT_TRY(ht_need_rank(ctx, call, LSTM_X, 3));
    HT_TRY(ht_need_rank(ctx, call, LSTM_H0, 2));
    *e = extent_of(call);
    if (e->hidden > INT64_MAX / KEPT) HT_FAIL(ctx, HT_ESHAPE, "%" PRId64 " hidden units are too many", e->hidden);
    HT_TRY(need_shape(ctx, call, LSTM_H0, HT_DIMS(e->batch, e->hidden)));
    HT_TRY(need_shape(ctx, call, LSTM_C0, HT_DIMS(e->batch, e->hidden)));
    HT_TRY(need_shape(ctx, call, LSTM_W_INPUT, HT_DIMS(4 * e->hidden, e->inputs)));
    HT_TRY(need_shape(ctx, call, LSTM_W_HIDDEN, HT_DIMS(4 * e->hidden, e->hidden)));
    if (input_or_none(call, lengths)) HT_TRY(ht_need_int(ctx, call, lengths));
    return need_shape(ctx, call, lengths, 1, &e->batch);
}

static ht_status lstm_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    extent e;
    HT_TRY(check_layer(ctx, call, LSTM_LENGTHS, &e));
    if (input_or_none(call, LSTM_BIAS)) HT_TRY(ht_need_float(ctx, call, LSTM_BIAS));
    HT_TRY(need_shape(ctx, call, LSTM_BIAS, HT_DIMS(4 * e.hidden)));
    bool wide = false;
    for (size_t i = LSTM_X; i <= LSTM_W_HIDDEN; i++) wide |= call->in[i]->dtype == HT_F64;
    out[0] = ht_type_make(call->in[LSTM_X]->dtype, HT_DIMS(e.steps, e.batch, e.hidden));
    out[1] = *call->in[LSTM_H0];
    out[2] = *call->in[LSTM_C0];
    out[3] = ht_type_make(wide ? HT_F64 : HT_F32, HT_DIMS(e.steps, e.batch, KEPT * e.hidden));
    return HT_OK;
}

static ht_status lstm_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    extent e;
    HT_TRY(check_layer(ctx, call, GRAD_LENGTHS, &e));
    HT_TRY(need_floats(ctx, call, GRAD_RESERVE + 1));
    HT_TRY(need_shape(ctx, call, GRAD_RESERVE, HT_DIMS(e.steps, e.batch, KEPT * e.hidden)));
    for (size_t i = GRAD_DY; i <= GRAD_DC; i++)
        if (input_or_none(call, i)) HT_TRY(ht_need_float(ctx, call, i));
    HT_TRY(need_shape(ctx, call, GRAD_DY, HT_DIMS(e.steps, e.batch, e.hidden)));
    HT_TRY(need_shape(ctx, call, GRAD_DH, HT_DIMS(e.batch, e.hidden)));
    HT_TRY(need_shape(ctx, call, GRAD_DC, HT_DIMS(e.batch, e.hidden)));
    for (size_t i = OUT_DX; i <= OUT_DW_HIDDEN; i++) out[i] = *call->in[i];
    out[OUT_DBIAS] = ht_type_make(call->in[LSTM_W_HIDDEN]->dtype, HT_DIMS(4 * e.hidden));
    return HT_OK;
}

/* ---- cost ---- */

static double product_flops(const extent *e)
{
    return 8.0 * (double)e->steps * (double)e->batch * (double)e->hidden * (double)(e->inputs + e->hidden);
}

static void lstm_cost(const ht_call *call, ht_cost *cost)
{
    extent e = extent_of(call);
    cost->dot_flops = product_flops(&e);
    cost->other_flops = 30.0 * (double)e.steps * (double)e.batch * (double)e.hidden;
}

static void lstm_grad_cost(const ht_call *call, ht_cost *cost)
{
    extent e = extent_of(call);
    cost->dot_flops = 2 * product_flops(&e);
    cost->other_flops = 40.0 * (double)e.steps * (double)e.batch * (double)e.hidden;
}

/* ---- gradient ---- */

static ht_status lstm_grad(ht_graph *g, const ht_grad *d)
{
    bool wanted = false;
    size_t n_in = d->call->n_in;
    for (size_t i = 0; i < n_in; i++) wanted |= d->need[i];
    if (!wanted || (!d->dy[0].id && !d->dy[1].id && !d->dy[2].id)) return HT_OK;
    ht_val lengths = n_in > LSTM_LENGTHS ? d->x[LSTM_LENGTHS] : HT_NONE;
    ht_val bias = n_in > LSTM_BIAS ? d->x[LSTM_BIAS] : HT_NONE;
    ht_type want[LSTM_GRAD_RESULTS];
    for (size_t i = OUT_DX; i <= OUT_DW_HIDDEN; i++) {
        want[i] = *d->call->in[i];
        ht_type_row_major(&want[i]);
    }
    const ht_type *like_bias = d->call->in[bias.id ? LSTM_BIAS : LSTM_W_HIDDEN];
    want[OUT_DBIAS] = ht_type_make(like_bias->dtype, 1, like_bias->dim);
    want[OUT_DBIAS].space = like_bias->space;
    ht_val dx[LSTM_GRAD_RESULTS] = {HT_NONE};
    ht_emit_n(g, "lstm_grad", want,
              HT_VALS(d->x[LSTM_X], d->x[LSTM_H0], d->x[LSTM_C0], d->x[LSTM_W_INPUT], d->x[LSTM_W_HIDDEN], d->y[3],
                      lengths, d->dy[0], d->dy[1], d->dy[2]),
              HT_NO_ATTRS, dx);
    for (size_t i = OUT_DX; i < LSTM_GRAD_RESULTS && i < n_in; i++)
        if (d->need[i]) d->dx[i] = dx[i];
    return ht_graph_status(g);
}

/* ---- reference ---- */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double sum_product(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t k = 0; k < n; k++) sum += a[k] * b[k];
    return sum;
}

/* One step of one sequence; h and c are its state before and after. */
static void ref_step(const extent *e, const double *const *in, const double *bias, const double *x, double *h,
                     double *c, double *kept)
{
    for (int64_t n = 0; n < 4 * e->hidden; n++) {
        double pre = bias ? bias[n] : 0;
        pre += sum_product(x, in[LSTM_W_INPUT] + n * e->inputs, e->inputs);
        pre += sum_product(h, in[LSTM_W_HIDDEN] + n * e->hidden, e->hidden);
        kept[n] = n / e->hidden == GATE_G ? tanh(pre) : sigmoid(pre);
    }
    for (int64_t j = 0; j < e->hidden; j++) {
        c[j] = kept[GATE_F * e->hidden + j] * c[j] + kept[GATE_I * e->hidden + j] * kept[GATE_G * e->hidden + j];
        h[j] = kept[GATE_O * e->hidden + j] * tanh(c[j]);
        kept[CELL * e->hidden + j] = c[j];
    }
}

static void lstm_ref(const ht_call *call, const double *const *in, double *const *out)
{
    extent e = extent_of(call);
    const double *bias = input_or_none(call, LSTM_BIAS) ? in[LSTM_BIAS] : NULL;
    const double *lengths = input_or_none(call, LSTM_LENGTHS) ? in[LSTM_LENGTHS] : NULL;
    for (size_t i = 0; i < 4; i++) memset(out[i], 0, (size_t)ht_type_elems(call->out[i]) * sizeof(double));
    for (int64_t b = 0; b < e.batch; b++) {
        double *h = out[1] + b * e.hidden, *c = out[2] + b * e.hidden;
        memcpy(h, in[LSTM_H0] + b * e.hidden, (size_t)e.hidden * sizeof *h);
        memcpy(c, in[LSTM_C0] + b * e.hidden, (size_t)e.hidden * sizeof *c);
        for (int64_t t = 0; t < e.steps && (!lengths || (double)t < lengths[b]); t++) {
            int64_t row = t * e.batch + b;
            ref_step(&e, in, bias, in[LSTM_X] + row * e.inputs, h, c, out[3] + row * KEPT * e.hidden);
            memcpy(out[0] + row * e.hidden, h, (size_t)e.hidden * sizeof *h);
        }
    }
}

/* Gradients of one unit's four pre-activations; dc becomes that of the cell one step before. */
static void unit_grad(const double *kept, int64_t hidden, double c_before, double dh, double *dc, double *dpre)
{
    double i = kept[GATE_I * hidden], f = kept[GATE_F * hidden], g = kept[GATE_G * hidden], o = kept[GATE_O * hidden];
    double squashed = tanh(kept[CELL * hidden]);
    double cell = *dc + dh * o * (1 - squashed * squashed);
    dpre[GATE_I * hidden] = cell * g * i * (1 - i);
    dpre[GATE_F * hidden] = cell * c_before * f * (1 - f);
    dpre[GATE_G * hidden] = cell * i * (1 - g * g);
    dpre[GATE_O * hidden] = dh * squashed * o * (1 - o);
    *dc = cell * f;
}

/* Propagates the gradients of one step's pre-activations to inputs and weights; dh becomes that of the step before. */
static void spread(const extent *e, const double *const *in, const double *x, const double *h_before,
                   const double *dpre, double *dx, double *dh, double *const *out)
{
    for (int64_t k = 0; k < e->hidden; k++) dh[k] = 0;
    for (int64_t n = 0; n < 4 * e->hidden; n++) {
        for (int64_t k = 0; k < e->inputs; k++) {
            dx[k] += dpre[n] * in[LSTM_W_INPUT][n * e->inputs + k];
            out[OUT_DW_INPUT][n * e->inputs + k] += dpre[n] * x[k];
        }
        for (int64_t k = 0; k < e->hidden; k++) {
            dh[k] += dpre[n] * in[LSTM_W_HIDDEN][n * e->hidden + k];
            out[OUT_DW_HIDDEN][n * e->hidden + k] += dpre[n] * h_before[k];
        }
        out[OUT_DBIAS][n] += dpre[n];
    }
}

/* One sequence, last step first. `scratch` holds 4H pre-activations and H hidden values. */
static void ref_back(const ht_call *call, const double *const *in, double *const *out, int64_t b, int64_t steps,
                     double *scratch)
{
    extent e = extent_of(call);
    double *dpre = scratch, *h_before = scratch + 4 * e.hidden;
    double *dh = out[OUT_DH0] + b * e.hidden, *dc = out[OUT_DC0] + b * e.hidden;
    const double *dy = input_or_none(call, GRAD_DY) ? in[GRAD_DY] : NULL;
    for (int64_t j = 0; j < e.hidden; j++) {
        dh[j] = input_or_none(call, GRAD_DH) ? in[GRAD_DH][b * e.hidden + j] : 0;
        dc[j] = input_or_none(call, GRAD_DC) ? in[GRAD_DC][b * e.hidden + j] : 0;
    }
    for (int64_t t = steps - 1; t >= 0; t--) {
        int64_t row = t * e.batch + b;
        const double *kept = in[GRAD_RESERVE] + row * KEPT * e.hidden;
        const double *before = t ? kept - e.batch * KEPT * e.hidden : NULL;
        for (int64_t j = 0; j < e.hidden; j++) {
            double c_before = before ? before[CELL * e.hidden + j] : in[LSTM_C0][b * e.hidden + j];
            h_before[j] = before ? before[GATE_O * e.hidden + j] * tanh(c_before) : in[LSTM_H0][b * e.hidden + j];
            unit_grad(kept + j, e.hidden, c_before, dh[j] + (dy ? dy[row * e.hidden + j] : 0), &dc[j], dpre + j);
        }
        spread(&e, in, in[LSTM_X] + row * e.inputs, h_before, dpre, out[OUT_DX] + row * e.inputs, dh, out);
    }
}

static void lstm_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    extent e = extent_of(call);
    const double *lengths = input_or_none(call, GRAD_LENGTHS) ? in[GRAD_LENGTHS] : NULL;
    double *scratch = calloc((size_t)e.hidden + 1, 5 * sizeof *scratch);
    for (size_t i = 0; i < LSTM_GRAD_RESULTS; i++)
        for (int64_t k = 0; k < ht_type_elems(call->out[i]); k++) out[i][k] = scratch ? 0 : NAN;
    for (int64_t b = 0; scratch && b < e.batch; b++) {
        double steps = lengths ? fmax(0, fmin(lengths[b], (double)e.steps)) : (double)e.steps;
        ref_back(call, in, out, b, (int64_t)steps, scratch);
    }
    free(scratch);
}

/* ---- rows ---- */

static const char *const lstm_samples[] = {
    "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], f32[12])",
    "(f32[4,3,2], f32[3,2], f32[3,2], f32[8,2], f32[8,2], f32[8], i32[3] 0..4)",
    "(f32[3,2,2], f32[2,3], f32[2,3], f32[12,2], f32[12,3])",
    "(f32[5,2,3], f32[2,2], f32[2,2], f32[8,3], f32[8,2], _, i64[2] 1..6)",
    "(f32[0,2,3], f32[2,2], f32[2,2], f32[8,3], f32[8,2], f32[8])",
    "(f32[2,0,3], f32[0,2], f32[0,2], f32[8,3], f32[8,2], f32[8])",
    "(f32[2,3,0], f32[3,2], f32[3,2], f32[8,0], f32[8,2], f32[8])",
    "(f32[3,18,9] -2..2, f32[18,24], f32[18,24], f32[96,9] -0.3..0.3, f32[96,24] -0.2..0.2, f32[96], i32[18] 0..3)",
    NULL,
};

static const char *const lstm_grad_samples[] = {
    "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], f32[3,2,15] 0.1..0.9, _, f32[3,2,3], f32[2,3], f32[2,3])",
    "(f32[4,3,2], f32[3,2], f32[3,2], f32[8,2], f32[8,2], f32[4,3,10] 0.1..0.9, i32[3] 0..4, f32[4,3,2])",
    "(f32[3,2,2], f32[2,3], f32[2,3], f32[12,2], f32[12,3], f32[3,2,15] 0.1..0.9, i64[2] 1..4, _, _, f32[2,3])",
    "(f32[3,2,2], f32[2,3], f32[2,3], f32[12,2], f32[12,3], f32[3,2,15] 0.1..0.9, _, _, f32[2,3])",
    "(f32[0,2,3], f32[2,2], f32[2,2], f32[8,3], f32[8,2], f32[0,2,10], _, f32[0,2,2], f32[2,2])",
    "(f32[2,0,3], f32[0,2], f32[0,2], f32[8,3], f32[8,2], f32[2,0,10], _, f32[2,0,2])",
    "(f32[2,18,9], f32[18,24], f32[18,24], f32[96,9] -0.3..0.3, f32[96,24] -0.2..0.2, f32[2,18,120] 0.1..0.9,"
    " i32[18] 0..2, f32[2,18,24], f32[18,24], f32[18,24])",
    NULL,
};

const ht_op ht_op_lstm = {
    .size = sizeof(ht_op),
    .name = "lstm",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_NONE,
    .min_in = LSTM_W_HIDDEN + 1,
    .max_in = LSTM_INPUTS,
    .n_out = 4,
    .aux_out = 1u << 3,
    .half_in = 1u << LSTM_X | 1u << LSTM_H0 | 1u << LSTM_W_INPUT | 1u << LSTM_W_HIDDEN,
    .f32_out = 1u << 2,
    .infer = lstm_infer,
    .cost = lstm_cost,
    .grad = lstm_grad,
    .ref = lstm_ref,
    .samples = lstm_samples,
};

const ht_op ht_op_lstm_grad = {
    .size = sizeof(ht_op),
    .name = "lstm_grad",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_NONE,
    .min_in = GRAD_RESERVE + 1,
    .max_in = LSTM_GRAD_INPUTS,
    .n_out = LSTM_GRAD_RESULTS,
    .half_in = 1u << LSTM_X | 1u << LSTM_H0 | 1u << LSTM_W_INPUT | 1u << LSTM_W_HIDDEN | 1u << GRAD_DY | 1u << GRAD_DH,
    .f32_out = 1u << OUT_DC0 | 1u << OUT_DBIAS,
    .infer = lstm_grad_infer,
    .cost = lstm_grad_cost,
    .ref = lstm_grad_ref,
    .no_grad = "lstm keeps only its gates and cells for its gradient: there is no second derivative",
    .samples = lstm_grad_samples,
};

ht_lstm_out ht_lstm(ht_graph *g, ht_val x, ht_val h0, ht_val c0, ht_val w_input, ht_val w_hidden, ht_val bias,
                    ht_val lengths)
{
    ht_val out[4] = {HT_NONE};
    ht_emit_n(g, "lstm", NULL, HT_VALS(x, h0, c0, w_input, w_hidden, bias, lengths), HT_NO_ATTRS, out);
    return (ht_lstm_out){out[0], out[1], out[2]};
}
