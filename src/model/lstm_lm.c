/* A language model of LSTM layers, trained by truncated back-propagation through time: the state after a batch is where
 * the next one starts, without a gradient across. Each segment carries its own (carry.forward.h_l0 …), so that an
 * evaluation leaves training alone; zeros written there start a text anew. */
#include <stdio.h>
#include <string.h>

#include "model/layers.h"

enum { MAX_LAYERS = 64 };

static const ht_key lstm_lm_keys[] = {
    {"hidden", HT_KEY_INT, "256", 1, 1 << 16, NULL, "units of a layer"},
    {"layers", HT_KEY_INT, "2", 1, MAX_LAYERS, NULL, "layers"},
    {"embedding", HT_KEY_INT, "null", 1, 1 << 16, NULL, "width of the token table; as hidden unless given"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "around and between layers, while training"},
    {"tie_word_embeddings", HT_KEY_BOOL, "false", 0, 0, NULL, "the head is the token table; embedding = hidden"},
    {"carry", HT_KEY_BOOL, "true", 0, 0, NULL, "start each batch where the last one ended; the data must go on there"},
    {0},
};

static ht_val carried(ht_build *b, const char *which, int64_t layer, int64_t hidden)
{
    char name[96];
    snprintf(name, sizeof name, "carry.%s.%s_l%d", b->segment, which, (int)layer);
    ht_val found = ht_find(b->g, name);
    if (found.id) return found;
    ht_type type = ht_type_make(HT_F32, 2, (int64_t[]){b->r->batch, hidden});
    return ht_graph_add_state(b->g, name, &type, &(ht_state){.heading = HT_HEADING_CACHES});
}

static ht_val head(ht_build *b, ht_val x, int64_t width)
{
    ht_linear_spec spec = {.given = true, .weight = HT_UNIFORM(-0.1, 0.1), .bias = HT_ZERO};
    if (!ht_field_bool(b->f, "tie_word_embeddings")) return ht_layer_linear(b, "decoder", x, b->r->vocabulary, &spec);
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = true};
    ht_val table = ht_find(b->g, "encoder.weight");
    if (!x.id || !table.id) return HT_NONE;
    if (width != ht_val_dims(b->g, x)[1]) {
        ht_model_fail(b, "tie_word_embeddings: embedding %lld is not hidden %lld", (long long)width,
                      (long long)ht_val_dims(b->g, x)[1]);
        return HT_NONE;
    }
    ht_enter(b, "decoder");
    ht_val bias = ht_layer_weight(b, "bias", 1, &b->r->vocabulary, HT_ZERO);
    ht_leave(b);
    return ht_add(b->g, ht_matmul(b->g, x, table, &opts), bias);
}

static ht_val lstm_lm_logits(ht_build *b)
{
    int64_t hidden = ht_field_int(b->f, "hidden"), layers = ht_field_int(b->f, "layers");
    int64_t width = ht_field_null(b->f, "embedding") ? hidden : ht_field_int(b->f, "embedding");
    double dropout = ht_field_number(b->f, "dropout");
    bool carry = ht_field_bool(b->f, "carry");
    ht_val h[MAX_LAYERS] = {HT_NONE}, c[MAX_LAYERS] = {HT_NONE}, state[2][MAX_LAYERS];
    b->time_major = true;
    for (int64_t i = 0; carry && i < layers; i++) {
        h[i] = state[0][i] = carried(b, "h", i, hidden);
        c[i] = state[1][i] = carried(b, "c", i, hidden);
    }
    ht_val tokens = ht_layer_time_major(b, b->tokens);
    ht_val x = ht_layer_embedding(b, "encoder", tokens, b->r->vocabulary, width, HT_UNIFORM(-0.1, 0.1));
    x = ht_layer_dropout_time_major(b, "dropout_in", x, dropout);
    x = ht_layer_lstm(b, "rnn", x, hidden, layers, dropout, HT_NONE, h, c);
    x = ht_layer_dropout_time_major(b, "dropout_out", x, dropout);
    if (!x.id) return HT_NONE;
    for (int64_t i = 0; carry && i < layers; i++) {
        ht_store(b->g, state[0][i], h[i]);
        ht_store(b->g, state[1][i], c[i]);
    }
    return head(b, ht_reshape(b->g, x, 2, (int64_t[]){b->r->batch * b->r->length, hidden}), width);
}

const ht_model ht_model_lstm_lm = {
    .name = "lstm_lm",
    .help = "LSTM language model, truncated back-propagation through time",
    .keys = lstm_lm_keys,
    .tasks = 1u << HT_TASK_LM,
    .logits = lstm_lm_logits,
};
