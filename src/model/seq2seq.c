/* A translator: LSTM encoder and decoder with global attention (Luong et al. 2015) between them.
 *     memory = encoder(source);  s_t = decoder(target_in)_t, started from the encoder's last state
 *     c_t = Σ softmax(s_t W memory) memory;  logits = generator(tanh(combine [c_t, s_t]))
 * Attention does not feed the next step, so training runs all steps of a layer at once.
 *
 * Decoding: `encode` (inputs source, source_length) fills the caches; each `decode_step` takes token i32[B,K] and
 * parent i32[B,K], the hypothesis 0..K-1 of its sentence that this one goes on from, and gives for each hypothesis the
 * K best next tokens: top_token i64[B,K,K], top_log_probability f32[B,K,K]. Before the first step all K are alike. */
#include <stdio.h>
#include <string.h>

#include "model/layers.h"

enum { MAX_LAYERS = 64 };

static const ht_key seq2seq_keys[] = {
    {"hidden", HT_KEY_INT, "256", 1, 1 << 16, NULL, "units of a layer"},
    {"layers", HT_KEY_INT, "2", 1, MAX_LAYERS, NULL, "layers of the encoder and of the decoder"},
    {"embedding", HT_KEY_INT, "null", 1, 1 << 16, NULL, "width of the token tables; as hidden unless given"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "on embeddings, between layers and before the head, while training"},
    {"attention", HT_KEY_CHOICE, "\"general\"", 0, 0, "general|dot", "scores by a learned matrix, or plain products"},
    {0},
};

typedef struct translator {
    int64_t hidden, layers, width;
    double dropout;
    bool general;
    ht_val h[MAX_LAYERS], c[MAX_LAYERS];
} translator;

static translator read_translator(const ht_build *b)
{
    translator m = {
        .hidden = ht_field_int(b->f, "hidden"),
        .layers = ht_field_int(b->f, "layers"),
        .dropout = ht_field_number(b->f, "dropout"),
        .general = strcmp(ht_field_text(b->f, "attention"), "general") == 0,
    };
    m.width = ht_field_null(b->f, "embedding") ? m.hidden : ht_field_int(b->f, "embedding");
    return m;
}

/* Tokens [T, B] through a side's table and layers: [T, B, H]. */
static ht_val side(ht_build *b, translator *m, const char *name, ht_val tokens, int64_t vocabulary, ht_val lengths)
{
    ht_enter(b, "%s", name);
    ht_val x = ht_layer_embedding(b, "embedding", tokens, vocabulary, m->width, HT_UNIFORM(-0.1, 0.1));
    x = ht_layer_dropout_time_major(b, "dropout", x, m->dropout);
    x = ht_layer_lstm(b, "rnn", x, m->hidden, m->layers, m->dropout, lengths, m->h, m->c);
    ht_leave(b);
    return x;
}

/* The encoder's outputs as keys and values, [B, 1, S, H]; m holds its last state. */
static ht_val encode(ht_build *b, translator *m)
{
    ht_val y = side(b, m, "encoder", ht_layer_time_major(b, b->source), b->r->source_vocabulary, b->lengths);
    if (!y.id) return HT_NONE;
    int64_t dims[] = {b->r->batch, 1, b->r->source_length, m->hidden};
    return ht_reshape(b->g, ht_transpose(b->g, y, 0, 1), 4, dims);
}

/* States s [B·Q, H], the Q of a sentence together, to logits [B·Q, V]. */
static ht_val generate(ht_build *b, const translator *m, ht_val s, ht_val memory, ht_val lengths)
{
    if (!s.id || !memory.id) return HT_NONE;
    int64_t queries = ht_val_dims(b->g, s)[0] / b->r->batch;
    ht_linear_spec plain = {.no_bias = true};
    ht_val q = m->general ? ht_layer_linear(b, "attention", s, m->hidden, &plain) : s;
    ht_attention_opts opts = {.size = sizeof opts, .scale = 1, .lengths = lengths};
    q = ht_reshape(b->g, q, 4, (int64_t[]){b->r->batch, 1, queries, m->hidden});
    ht_val seen = ht_attention(b->g, q, memory, memory, &opts);
    seen = ht_reshape(b->g, seen, 2, (int64_t[]){b->r->batch * queries, m->hidden});
    ht_val both = ht_concat(b->g, 2, (const ht_val[]){seen, s}, 1);
    ht_val y = ht_tanh(b->g, ht_layer_linear(b, "combine", both, m->hidden, &plain));
    y = ht_layer_dropout(b, "dropout", y, m->dropout);
    return ht_layer_linear(b, "generator", y, b->r->vocabulary, NULL);
}

static ht_val seq2seq_logits(ht_build *b)
{
    translator m = read_translator(b);
    ht_val memory = encode(b, &m);
    ht_val s = side(b, &m, "decoder", ht_layer_time_major(b, b->target_in), b->r->vocabulary, HT_NONE);
    if (!s.id) return HT_NONE;
    s = ht_reshape(b->g, ht_transpose(b->g, s, 0, 1), 2, (int64_t[]){b->r->batch * b->r->length, m.hidden});
    return generate(b, &m, s, memory, b->lengths);
}

/* ---- decoding ---- */

static ht_val cache(ht_build *b, const char *name, ht_dtype dtype, int rank, const int64_t *dims)
{
    char full[64];
    snprintf(full, sizeof full, "cache.%s", name);
    ht_val found = ht_find(b->g, full);
    if (found.id) return found;
    ht_type type = ht_type_make(dtype, rank, dims);
    return ht_graph_add_state(b->g, full, &type, &(ht_state){.heading = HT_HEADING_CACHES, .derived = true});
}

/* State h or c of a layer for all hypotheses, [B·K, H]. */
static ht_val state_cache(ht_build *b, const translator *m, const char *which, int64_t layer)
{
    char name[32];
    snprintf(name, sizeof name, "%s_l%d", which, (int)layer);
    return cache(b, name, HT_F32, 2, (int64_t[]){b->r->batch * b->r->beam, m->hidden});
}

static void encode_segment(ht_build *b, translator *m, ht_val memory, ht_val lengths)
{
    int64_t batch = b->r->batch, beam = b->r->beam;
    ht_segment_begin(b->g, "encode");
    b->source = ht_input(b->g, "source", HT_I32, 2, (int64_t[]){batch, b->r->source_length});
    b->lengths = ht_input(b->g, "source_length", HT_I32, 1, &batch);
    ht_store(b->g, memory, encode(b, m));
    ht_store(b->g, lengths, b->lengths);
    for (int64_t i = 0; i < 2 * m->layers; i++) {
        ht_val last = i % 2 ? m->c[i / 2] : m->h[i / 2];
        ht_val spread = ht_expand(b->g, ht_reshape(b->g, last, 3, (int64_t[]){batch, 1, m->hidden}), 3,
                                  (int64_t[]){batch, beam, m->hidden});
        ht_val rows = ht_reshape(b->g, spread, 2, (int64_t[]){batch * beam, m->hidden});
        ht_store(b->g, state_cache(b, m, i % 2 ? "c" : "h", i / 2), rows);
    }
}

static void step_segment(ht_build *b, translator *m, ht_val memory, ht_val lengths)
{
    ht_graph *g = b->g;
    int64_t batch = b->r->batch, beam = b->r->beam, all = batch * beam;
    ht_val old[2 * MAX_LAYERS];
    ht_segment_begin(g, "decode_step");
    ht_val token = ht_input(g, "token", HT_I32, 2, (int64_t[]){batch, beam});
    ht_val parent = ht_input(g, "parent", HT_I32, 2, (int64_t[]){batch, beam});
    /* Rows of the caches: sentence b's hypothesis k is row b·K + k. */
    ht_val first = ht_cast(g, ht_scale(g, ht_iota(g, HT_F32, 2, (int64_t[]){batch, 1}, 0), (double)beam), HT_I32);
    ht_val rows = ht_reshape(g, ht_add(g, parent, first), 1, &all);
    for (int64_t i = 0; i < 2 * m->layers; i++) {
        old[i] = state_cache(b, m, i % 2 ? "c" : "h", i / 2);
        *(i % 2 ? &m->c[i / 2] : &m->h[i / 2]) = ht_embedding(g, old[i], rows);
    }
    ht_val s = side(b, m, "decoder", ht_reshape(g, token, 2, (int64_t[]){1, all}), b->r->vocabulary, HT_NONE);
    if (!s.id) return;
    ht_val logits = generate(b, m, ht_reshape(g, s, 2, (int64_t[]){all, m->hidden}), memory, lengths);
    if (!logits.id) return;
    ht_val value, index;
    ht_topk(g, ht_log_softmax(g, logits, -1), beam, &value, &index);
    ht_output(g, "top_log_probability", ht_reshape(g, value, 3, (int64_t[]){batch, beam, beam}));
    ht_output(g, "top_token", ht_reshape(g, index, 3, (int64_t[]){batch, beam, beam}));
    for (int64_t i = 0; i < 2 * m->layers; i++) ht_store(g, old[i], i % 2 ? m->c[i / 2] : m->h[i / 2]);
}

static void seq2seq_decoder(ht_build *b)
{
    translator m = read_translator(b), step = m;
    ht_val memory = cache(b, "memory", HT_F32, 4, (int64_t[]){b->r->batch, 1, b->r->source_length, m.hidden});
    ht_val lengths = cache(b, "source_length", HT_I32, 1, &b->r->batch);
    encode_segment(b, &m, memory, lengths);
    step_segment(b, &step, memory, lengths);
}

const ht_model ht_model_seq2seq = {
    .name = "seq2seq",
    .help = "LSTM encoder and decoder with global attention, for pairs of sentences",
    .keys = seq2seq_keys,
    .tasks = 1u << HT_TASK_PAIRS,
    .logits = seq2seq_logits,
    .decoder = seq2seq_decoder,
};
