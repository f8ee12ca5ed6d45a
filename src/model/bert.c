/* BERT (Devlin et al. 2018): post-norm transformer that sees both ways; keys and names as Hugging Face has them. Task
 * masked_lm has the tied head that predicts hidden tokens, task class the pooled first token and a classifier. All
 * tokens are of segment 0. */
#include <string.h>

#include "model/layers.h"

static const ht_key bert_keys[] = {
    {"hidden_size", HT_KEY_INT, "768", 1, 1 << 20, NULL, "width"},
    {"num_hidden_layers", HT_KEY_INT, "12", 1, 1000, NULL, "blocks"},
    {"num_attention_heads", HT_KEY_INT, "12", 1, 1024, NULL, "attention heads; divides hidden_size"},
    {"intermediate_size", HT_KEY_INT, "null", 1, 1 << 22, NULL,
     "inside the feed-forward part; 4·hidden_size unless given"},
    {"max_position_embeddings", HT_KEY_INT, "512", 1, 1 << 24, NULL, "positions learned"},
    {"type_vocab_size", HT_KEY_INT, "2", 1, 1024, NULL, "kinds of segment"},
    {"hidden_act", HT_KEY_CHOICE, "\"gelu\"", 0, 0, HT_ACTIVATIONS, "in the feed-forward part and the head"},
    {"hidden_dropout_prob", HT_KEY_NUMBER, "0.1", 0, 0.99, NULL,
     "after the embedding and each branch; not on attention weights"},
    {"layer_norm_eps", HT_KEY_NUMBER, "1e-12", 0, 1, NULL, "of the norms"},
    {"initializer_range", HT_KEY_NUMBER, "0.02", 0, 10, NULL, "deviation of first weights"},
    {0},
};

typedef struct bert {
    int64_t layers, width, heads, inner, positions, kinds;
    const char *activation;
    double dropout, eps;
    ht_linear_spec linear;
} bert;

static bert read_bert(ht_build *b)
{
    const ht_fields *f = b->f;
    bert m = {
        .layers = ht_field_int(f, "num_hidden_layers"),
        .width = ht_field_int(f, "hidden_size"),
        .heads = ht_field_int(f, "num_attention_heads"),
        .positions = ht_field_int(f, "max_position_embeddings"),
        .kinds = ht_field_int(f, "type_vocab_size"),
        .activation = ht_field_text(f, "hidden_act"),
        .dropout = ht_field_number(f, "hidden_dropout_prob"),
        .eps = ht_field_number(f, "layer_norm_eps"),
        .linear = {.given = true, .weight = HT_NORMAL(0, ht_field_number(f, "initializer_range"))},
    };
    m.inner = ht_field_null(f, "intermediate_size") ? 4 * m.width : ht_field_int(f, "intermediate_size");
    if (m.width % m.heads != 0)
        ht_model_fail(b, "hidden_size %lld is no multiple of num_attention_heads %lld", (long long)m.width,
                      (long long)m.heads);
    if (m.positions < b->r->length)
        ht_model_fail(b, "sequences of %lld do not fit max_position_embeddings %lld", (long long)b->r->length,
                      (long long)m.positions);
    return m;
}

static ht_val dense(ht_build *b, const bert *m, const char *name, ht_val x, int64_t out)
{
    return ht_layer_linear(b, name, x, out, &m->linear);
}

/* Linear, dropout, sum with the branch's input, norm: how every branch ends. */
static ht_val branch_end(ht_build *b, const bert *m, ht_val y, ht_val x)
{
    ht_enter(b, "output");
    y = ht_layer_dropout(b, "dropout", dense(b, m, "dense", y, m->width), m->dropout);
    y = ht_layer_norm(b, "LayerNorm", ht_add(b->g, y, x), m->eps, true);
    ht_leave(b);
    return y;
}

static ht_val attention(ht_build *b, const bert *m, ht_val x)
{
    const int64_t size = m->width / m->heads;
    ht_enter(b, "attention");
    ht_enter(b, "self");
    ht_val q = ht_layer_heads(b, dense(b, m, "query", x, m->width), size);
    ht_val k = ht_layer_heads(b, dense(b, m, "key", x, m->width), size);
    ht_val v = ht_layer_heads(b, dense(b, m, "value", x, m->width), size);
    ht_attention_opts opts = {.size = sizeof opts, .lengths = b->lengths};
    ht_val y = ht_layer_unheads(b, ht_attention(b->g, q, k, v, &opts));
    ht_leave(b);
    y = branch_end(b, m, y, x);
    ht_leave(b);
    return y;
}

/* The first rows of a table of embeddings. */
static ht_val first_rows(ht_build *b, const bert *m, const char *name, int64_t rows, int64_t take)
{
    ht_enter(b, "%s", name);
    ht_val table = ht_layer_weight(b, "weight", 2, (int64_t[]){rows, m->width}, m->linear.weight);
    ht_leave(b);
    return rows == take ? table : ht_slice_axis(b->g, table, 0, 0, take);
}

static ht_val embed(ht_build *b, const bert *m)
{
    int64_t batch = b->r->batch, length = b->r->length;
    ht_enter(b, "embeddings");
    ht_val x = ht_layer_embedding(b, "word_embeddings", b->tokens, b->r->vocabulary, m->width, m->linear.weight);
    ht_val position = first_rows(b, m, "position_embeddings", m->positions, length);
    x = ht_add(b->g, x, ht_add(b->g, position, first_rows(b, m, "token_type_embeddings", m->kinds, 1)));
    x = ht_reshape(b->g, x, 2, (int64_t[]){batch * length, m->width});
    x = ht_layer_dropout(b, "dropout", ht_layer_norm(b, "LayerNorm", x, m->eps, true), m->dropout);
    ht_leave(b);
    return x;
}

static ht_val masked_head(ht_build *b, const bert *m, ht_val x)
{
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = true};
    ht_enter(b, "cls.predictions");
    ht_enter(b, "transform");
    x = ht_layer_activation(b, m->activation, dense(b, m, "dense", x, m->width));
    x = ht_layer_norm(b, "LayerNorm", x, m->eps, true);
    ht_leave(b);
    ht_val bias = ht_layer_weight(b, "bias", 1, &b->r->vocabulary, HT_ZERO);
    ht_leave(b);
    ht_val table = ht_find(b->g, "bert.embeddings.word_embeddings.weight");
    if (!x.id || !table.id) return HT_NONE;
    return ht_add(b->g, ht_matmul(b->g, x, table, &opts), bias);
}

static ht_val class_head(ht_build *b, const bert *m, ht_val x)
{
    ht_val all = ht_reshape(b->g, x, 3, (int64_t[]){b->r->batch, b->r->length, m->width});
    ht_val first = ht_reshape(b->g, ht_slice_axis(b->g, all, 1, 0, 1), 2, (int64_t[]){b->r->batch, m->width});
    ht_val pooled = ht_tanh(b->g, dense(b, m, "bert.pooler.dense", first, m->width));
    pooled = ht_layer_dropout(b, "dropout", pooled, m->dropout);
    return dense(b, m, "classifier", pooled, b->r->classes);
}

static ht_val bert_logits(ht_build *b)
{
    bert m = read_bert(b);
    if (!b->tokens.id) ht_model_fail(b, "classifies sequences of tokens, not arrays of numbers");
    if (ht_graph_status(b->g) != HT_OK) return HT_NONE;
    ht_enter(b, "bert");
    ht_val x = embed(b, &m);
    for (int64_t i = 0; i < m.layers && x.id; i++) {
        ht_enter(b, "encoder.layer.%d", (int)i);
        x = attention(b, &m, x);
        ht_enter(b, "intermediate");
        ht_val y = ht_layer_activation(b, m.activation, dense(b, &m, "dense", x, m.inner));
        ht_leave(b);
        x = branch_end(b, &m, y, x);
        ht_leave(b);
    }
    ht_leave(b);
    return b->r->task == HT_TASK_CLASS ? class_head(b, &m, x) : masked_head(b, &m, x);
}

const ht_model ht_model_bert = {
    .name = "bert",
    .help = "BERT encoder with a masked-token or a classification head",
    .keys = bert_keys,
    .tasks = 1u << HT_TASK_MASKED_LM | 1u << HT_TASK_CLASS,
    .logits = bert_logits,
};
