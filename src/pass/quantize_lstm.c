/* LSTM layers, as lstm_q: the weight of the input decides, and that of the hidden state goes with it. */
#include "pass/quantize_layers.h"

enum { X, H0, C0, W_INPUT, W_HIDDEN, BIAS, LENGTHS };

static const char *lstm_refuse(const ht_graph *g, const ht_node *n, const ht_quantize_group *how)
{
    for (size_t i = W_INPUT; i <= W_HIDDEN; i++)
        if (ht_type_of(g, ht_node_in(g, n, i))->dim[1] > HT_MOST_CODE_PRODUCTS)
            return "sums of its products do not fit 32 bits";
    for (size_t i = H0; i < n->n_in; i++) {
        ht_val in = ht_node_in(g, n, i);
        if (i <= BIAS && in.id && ht_type_of(g, in)->dtype != HT_F32) return "its state or its bias is not f32";
    }
    if (how->weights.granularity == HT_PER_GROUP) return "LSTM layers of codes have no scales for groups";
    return how->weights.symmetric ? NULL : "LSTM layers of codes have no zero points of weights";
}

static int lstm_channel_axis(const ht_graph *g, const ht_node *n)
{
    (void)g, (void)n;
    return 0;
}

static unsigned lstm_shared_axes(const ht_graph *g, const ht_node *n)
{
    return 1u << (ht_type_of(g, ht_node_in(g, n, X))->rank - 1);
}

static void lstm_emit(ht_graph *g, const ht_rewrite *rw, const ht_node *n, const ht_type *want,
                      const ht_layer_operands *q, ht_val out[HT_LAYER_RESULTS])
{
    ht_val in[LENGTHS + 1] = {HT_NONE};
    (void)want; /* it follows from the operands */
    for (size_t i = H0; i < n->n_in; i++) in[i] = ht_rewrite_map(rw, ht_node_in(g, n, i));
    ht_emit_n(g, "lstm_q", NULL,
              HT_VALS(q->x, q->x_scale, in[H0], in[C0], q->w, q->w_scale, q->second, q->second_scale, q->x_zero,
                      in[BIAS], in[LENGTHS]),
              HT_NO_ATTRS, out);
}

const ht_layer_kind ht_layer_kind_lstm = {
    .operands = {.name = "lstm", .input = X, .weight = W_INPUT, .second = W_HIDDEN},
    .refuse = lstm_refuse,
    .channel_axis = lstm_channel_axis,
    .shared_axes = lstm_shared_axes,
    .emit = lstm_emit,
};
