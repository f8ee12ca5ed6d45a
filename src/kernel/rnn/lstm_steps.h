/* lstm_q: what its rows are made of. The products are those of kernel/gemm/int8_gemm.h; what stands between them is here, compiled
 * with each row's instruction set. */
#ifndef HT_KERNEL_LSTM_STEPS_H
#define HT_KERNEL_LSTM_STEPS_H

#include "kernel/gemm/int8_gemm.h"
#include "op/op.h"

/* The inputs of lstm_q. */
enum {
    LSTM_Q_X,
    LSTM_Q_X_SCALE,
    LSTM_Q_H0,
    LSTM_Q_C0,
    LSTM_Q_W_INPUT,
    LSTM_Q_W_INPUT_SCALE,
    LSTM_Q_W_HIDDEN,
    LSTM_Q_W_HIDDEN_SCALE,
    LSTM_Q_X_ZERO,
    LSTM_Q_BIAS,
    LSTM_Q_LENGTHS,
    LSTM_Q_INPUTS
};

/* One sequence in one step. `gates` holds what all products gave. */
typedef struct lstm_q_row {
    int64_t hidden;
    const float *gates; /* [4H]: i, f, g, o */
    float *h, *c;       /* [H]: of the step before, and then of this one */
    uint8_t *codes;
    float *scale; /* of the codes of h, which are moved up by INT8_CODE_SHIFT */
} lstm_q_row;

/* A way to compute, for one instruction set. */
typedef struct lstm_q_kernel {
    const int8_kernel *gemm;
    void (*cells)(const lstm_q_row *row);
    void (*code)(const lstm_q_row *row); /* h alone */
} lstm_q_kernel;

/* lstm_steps.c */
void ht_lstm_q_run(const ht_launch *launch, const lstm_q_kernel *kernel);
int64_t ht_lstm_q_workspace(const ht_call *call, const int8_kernel *kernel);
int64_t ht_lstm_q_prepack_bytes(const ht_call *call, const int8_kernel *kernel);
void ht_lstm_q_prepack(const ht_launch *launch, const int8_kernel *kernel);
const char *ht_lstm_q_can(const ht_call *call);

/* ---- for the files of each instruction set: loops that the compiler vectorises ---- */

static inline void lstm_q_code(const lstm_q_row *row)
{
    const float *restrict h = row->h;
    uint8_t *restrict codes = row->codes;
    int64_t n = row->hidden;
    ht_code_range range = {0};
    uint32_t most = 0; /* the bits of magnitudes are in their order, and NaN is beyond infinity */
    int32_t zero;
    for (int64_t j = 0; j < n; j++) {
        uint32_t bits = ht_f32_bits(h[j]) & ~FN_SIGN_BIT;
        most = bits > most ? bits : most;
    }
    range.high = ht_f32_from_bits(most);
    range.finite = range.high * 0;
    *row->scale = ht_dynamic_scale(HT_I8, &range, &zero);
    const ht_coding coding = ht_coding_of(HT_I8, *row->scale, 0);
    for (int64_t j = 0; j < n; j++) codes[j] = (uint8_t)(ht_code_of(&coding, h[j]) + INT8_CODE_SHIFT);
}

static inline void lstm_q_cells(const lstm_q_row *row)
{
    int64_t n = row->hidden;
    const float *restrict i = row->gates, *restrict f = i + n, *restrict g = f + n, *restrict o = g + n;
    float *restrict h = row->h, *restrict c = row->c;
    for (int64_t j = 0; j < n; j++) {
        float kept = fn_sigmoid_f32(f[j]) * c[j];
        c[j] = kept + fn_sigmoid_f32(i[j]) * fn_tanh_f32(g[j]);
        h[j] = fn_sigmoid_f32(o[j]) * fn_tanh_f32(c[j]);
    }
    lstm_q_code(row);
}

#endif
