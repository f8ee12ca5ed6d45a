/* The operands of lstm_q: shared by the op and its kernels. */
#ifndef HT_OP_LSTM_Q_H
#define HT_OP_LSTM_Q_H

#include "graph/graph.h"

enum {
    HT_LSTM_Q_X,
    HT_LSTM_Q_X_SCALE,
    HT_LSTM_Q_H0,
    HT_LSTM_Q_C0,
    HT_LSTM_Q_W_INPUT,
    HT_LSTM_Q_W_INPUT_SCALE,
    HT_LSTM_Q_W_HIDDEN,
    HT_LSTM_Q_W_HIDDEN_SCALE,
    HT_LSTM_Q_X_ZERO,
    HT_LSTM_Q_BIAS,
    HT_LSTM_Q_LENGTHS,
    HT_LSTM_Q_INPUTS
};

typedef struct ht_lstm_q_sizes {
    int64_t steps, batch, inputs, hidden;
} ht_lstm_q_sizes;
ht_lstm_q_sizes ht_lstm_q_sizes_of(const ht_call *call);

#endif
