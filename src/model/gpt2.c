/* GPT-2 (Radford et al. 2019): pre-norm transformer with learned positions. Names and the [in, out] weights are those
 * of its published files. Without biases, with exact GELU and a tied head it is what nanoGPT trains. */
#include <math.h>
#include <string.h>

#include "model/layers.h"

static const ht_key gpt2_keys[] = {
    {"n_layer", HT_KEY_INT, "12", 1, 1000, NULL, "blocks"},
    {"n_head", HT_KEY_INT, "12", 1, 1024, NULL, "attention heads; divides n_embd"},
    {"n_embd", HT_KEY_INT, "768", 1, 1 << 20, NULL, "width"},
    {"n_inner", HT_KEY_INT, "null", 1, 1 << 22, NULL, "width inside the feed-forward part; 4·n_embd unless given"},
    {"n_positions", HT_KEY_INT, "null", 1, 1 << 24, NULL, "positions learned; the data's length unless given"},
    {"bias", HT_KEY_BOOL, "true", 0, 0, NULL, "biases in linear layers and norms"},
    {"activation", HT_KEY_CHOICE, "\"gelu_tanh\"", 0, 0, "gelu_tanh|gelu|relu|silu",
     "gelu_tanh as published; gelu is exact"},
    {"tie_word_embeddings", HT_KEY_BOOL, "true", 0, 0, NULL, "the head is the token table"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "after the embedding and each branch; not on attention weights"},
    {"layer_norm_epsilon", HT_KEY_NUMBER, "1e-5", 0, 1, NULL, "of the norms"},
    {"init_std", HT_KEY_NUMBER, "0.02", 0, 10, NULL, "deviation of first weights; over √(2·n_layer) at branch ends"},
    {0},
};

typedef struct gpt2 {
    int64_t layers, heads, width, inner, positions;
    bool bias;
    const char *activation;
    double dropout, eps, deviation;
} gpt2;

static gpt2 read_gpt2(ht_build *b)
{
    const ht_fields *f = b->f;
    gpt2 m = {
        .layers = ht_field_int(f, "n_layer"),
        .heads = ht_field_int(f, "n_head"),
        .width = ht_field_int(f, "n_embd"),
        .bias = ht_field_bool(f, "bias"),
        .activation = ht_field_text(f, "activation"),
        .dropout = ht_field_number(f, "dropout"),
        .eps = ht_field_number(f, "layer_norm_epsilon"),
        .deviation = ht_field_number(f, "init_std"),
    };
    m.inner = ht_field_null(f, "n_inner") ? 4 * m.width : ht_field_int(f, "n_inner");
    m.positions = ht_field_null(f, "n_positions") ? b->longest : ht_field_int(f, "n_positions");
    if (m.width % m.heads != 0)
        ht_model_fail(b, "n_embd %lld is no multiple of n_head %lld", (long long)m.width, (long long)m.heads);
    if (m.positions < b->r->length)
        ht_model_fail(b, "sequences of %lld do not fit n_positions %lld", (long long)b->r->length,
                      (long long)m.positions);
    return m;
}

static ht_val linear(ht_build *b, const gpt2 *m, const char *name, ht_val x, int64_t out, bool branch_end)
{
    double deviation = branch_end ? m->deviation / sqrt(2.0 * (double)m->layers) : m->deviation;
    ht_linear_spec spec = {
        .no_bias = !m->bias, .in_first = true, .given = true, .weight = HT_NORMAL(0, deviation), .bias = HT_ZERO};
    return ht_layer_linear(b, name, x, out, &spec);
}

static ht_val attention(ht_build *b, const gpt2 *m, ht_val x)
{
    ht_enter(b, "attn");
    ht_val qkv = linear(b, m, "c_attn", x, 3 * m->width, false), part[3] = {HT_NONE};
    int64_t inner = qkv.id ? ht_val_dims(b->g, qkv)[1] / 3 : 0;
    for (int i = 0; i < 3 && qkv.id; i++)
        part[i] = ht_layer_heads(b, ht_slice_axis(b->g, qkv, 1, i * inner, inner), m->width / m->heads);
    ht_attention_opts opts = {.size = sizeof opts, .causal = true, .document = b->documents};
    ht_val y = ht_layer_unheads(b, ht_attention(b->g, part[0], part[1], part[2], &opts));
    y = ht_layer_dropout(b, "dropout", linear(b, m, "c_proj", y, m->width, true), m->dropout);
    ht_leave(b);
    return y;
}

static ht_val feed_forward(ht_build *b, const gpt2 *m, ht_val x)
{
    ht_enter(b, "mlp");
    ht_val y = ht_layer_activation(b, m->activation, linear(b, m, "c_fc", x, m->inner, false));
    y = ht_layer_dropout(b, "dropout", linear(b, m, "c_proj", y, m->width, true), m->dropout);
    ht_leave(b);
    return y;
}

/* Token plus position, [B·T, C]. */
static ht_val embed(ht_build *b, const gpt2 *m)
{
    ht_init init = HT_NORMAL(0, m->deviation);
    int64_t batch = b->r->batch, length = b->r->length;
    ht_val x = ht_layer_embedding(b, "wte", ht_layer_rows(b, b->tokens), b->r->vocabulary, m->width, init);
    if (b->positions.id) {
        ht_val at = ht_layer_rows(b, b->positions);
        return ht_add(b->g, x, ht_layer_embedding(b, "wpe", at, m->positions, m->width, init));
    }
    ht_enter(b, "wpe");
    ht_val table = ht_layer_weight(b, "weight", 2, (int64_t[]){m->positions, m->width}, init);
    ht_leave(b);
    ht_val rows = m->positions == length ? table : ht_slice_axis(b->g, table, 0, 0, length);
    x = ht_add(b->g, ht_reshape(b->g, x, 3, (int64_t[]){batch, length, m->width}), rows);
    return ht_reshape(b->g, x, 2, (int64_t[]){batch * length, m->width});
}

static ht_val head(ht_build *b, const gpt2 *m, ht_val x)
{
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = true};
    bool tied = ht_field_bool(b->f, "tie_word_embeddings");
    ht_enter(b, tied ? "transformer.wte" : "lm_head");
    ht_val w = ht_layer_weight(b, "weight", 2, (int64_t[]){b->r->vocabulary, m->width}, HT_NORMAL(0, m->deviation));
    ht_val y = ht_matmul(b->g, x, w, &opts);
    ht_leave(b);
    return y;
}

static ht_val gpt2_logits(ht_build *b)
{
    gpt2 m = read_gpt2(b);
    if (ht_graph_status(b->g) != HT_OK) return HT_NONE;
    ht_enter(b, "transformer");
    ht_val x = ht_layer_dropout(b, "dropout", embed(b, &m), m.dropout);
    for (int64_t i = 0; i < m.layers && x.id; i++) {
        ht_enter(b, "h.%d", (int)i);
        x = ht_add(b->g, x, attention(b, &m, ht_layer_norm(b, "ln_1", x, m.eps, m.bias)));
        x = ht_add(b->g, x, feed_forward(b, &m, ht_layer_norm(b, "ln_2", x, m.eps, m.bias)));
        ht_leave(b);
    }
    x = ht_layer_norm(b, "ln_f", x, m.eps, m.bias);
    ht_leave(b);
    return head(b, &m, x);
}

const ht_model ht_model_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2, and nanoGPT's variants of it",
    .keys = gpt2_keys,
    .tasks = 1u << HT_TASK_LM,
    .packs = true,
    .logits = gpt2_logits,
};
