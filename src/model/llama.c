/* Llama (Touvron et al. 2023): RMS norms, rotary positions, SwiGLU, grouped-query attention; keys and names as Hugging
 * Face has them. */
#include <math.h>
#include <string.h>

#include "model/layers.h"

static const ht_key llama_keys[] = {
    {"hidden_size", HT_KEY_INT, "288", 1, 1 << 20, NULL, "width"},
    {"intermediate_size", HT_KEY_INT, "null", 1, 1 << 22, NULL,
     "inside the feed-forward part; 8/3 of the width, rounded up to 32, unless given"},
    {"num_hidden_layers", HT_KEY_INT, "6", 1, 1000, NULL, "blocks"},
    {"num_attention_heads", HT_KEY_INT, "6", 1, 1024, NULL, "query heads"},
    {"num_key_value_heads", HT_KEY_INT, "null", 1, 1024, NULL,
     "key and value heads; as many as query heads unless given"},
    {"head_dim", HT_KEY_INT, "null", 2, 1 << 16, NULL, "width of a head, even; hidden_size over heads unless given"},
    {"rms_norm_eps", HT_KEY_NUMBER, "1e-6", 0, 1, NULL, "of the norms"},
    {"rope_theta", HT_KEY_NUMBER, "10000", 1, 1e12, NULL, "base of the rotary positions"},
    {"tie_word_embeddings", HT_KEY_BOOL, "false", 0, 0, NULL, "the head is the token table"},
    {"attention_bias", HT_KEY_BOOL, "false", 0, 0, NULL, "biases in the attention's linear layers"},
    {"mlp_bias", HT_KEY_BOOL, "false", 0, 0, NULL, "biases in the feed-forward part"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "after the embedding and each branch, while training"},
    {"initializer_range", HT_KEY_NUMBER, "0.02", 0, 10, NULL, "deviation of first weights"},
    {0},
};

typedef struct llama {
    int64_t layers, width, inner, heads, groups, head_width;
    double eps, theta, dropout;
    ht_linear_spec attention, feed_forward;
    ht_val position;
} llama;

static llama read_llama(ht_build *b)
{
    const ht_fields *f = b->f;
    ht_init init = HT_NORMAL(0, ht_field_number(f, "initializer_range"));
    llama m = {
        .layers = ht_field_int(f, "num_hidden_layers"),
        .width = ht_field_int(f, "hidden_size"),
        .heads = ht_field_int(f, "num_attention_heads"),
        .eps = ht_field_number(f, "rms_norm_eps"),
        .theta = ht_field_number(f, "rope_theta"),
        .dropout = ht_field_number(f, "dropout"),
        .attention = {.no_bias = !ht_field_bool(f, "attention_bias"), .given = true, .weight = init},
        .feed_forward = {.no_bias = !ht_field_bool(f, "mlp_bias"), .given = true, .weight = init},
    };
    m.inner =
        ht_field_null(f, "intermediate_size") ? (8 * m.width / 3 + 31) / 32 * 32 : ht_field_int(f, "intermediate_size");
    m.groups = ht_field_null(f, "num_key_value_heads") ? m.heads : ht_field_int(f, "num_key_value_heads");
    m.head_width = ht_field_null(f, "head_dim") ? m.width / m.heads : ht_field_int(f, "head_dim");
    if (ht_field_null(f, "head_dim") && m.width % m.heads != 0)
        ht_model_fail(b, "hidden_size %lld is no multiple of num_attention_heads %lld", (long long)m.width,
                      (long long)m.heads);
    if (m.heads % m.groups != 0)
        ht_model_fail(b, "num_attention_heads %lld is no multiple of num_key_value_heads %lld", (long long)m.heads,
                      (long long)m.groups);
    if (m.head_width % 2 != 0)
        ht_model_fail(b, "rotary positions turn pairs: head_dim %lld is odd", (long long)m.head_width);
    return m;
}

static ht_val attention(ht_build *b, const llama *m, ht_val x)
{
    ht_graph *g = b->g;
    ht_enter(b, "self_attn");
    ht_val q = ht_layer_linear(b, "q_proj", x, m->heads * m->head_width, &m->attention);
    ht_val k = ht_layer_linear(b, "k_proj", x, m->groups * m->head_width, &m->attention);
    ht_val v = ht_layer_linear(b, "v_proj", x, m->groups * m->head_width, &m->attention);
    q = ht_rotary(g, ht_layer_heads(b, q, m->head_width), m->position, m->theta, false);
    k = ht_rotary(g, ht_layer_heads(b, k, m->head_width), m->position, m->theta, false);
    ht_attention_opts opts = {.size = sizeof opts, .causal = true, .document = b->documents};
    ht_val y = ht_layer_unheads(b, ht_attention(g, q, k, ht_layer_heads(b, v, m->head_width), &opts));
    y = ht_layer_dropout(b, "dropout", ht_layer_linear(b, "o_proj", y, m->width, &m->attention), m->dropout);
    ht_leave(b);
    return y;
}

static ht_val feed_forward(ht_build *b, const llama *m, ht_val x)
{
    ht_enter(b, "mlp");
    ht_val gate = ht_silu(b->g, ht_layer_linear(b, "gate_proj", x, m->inner, &m->feed_forward));
    ht_val y = ht_mul(b->g, gate, ht_layer_linear(b, "up_proj", x, m->inner, &m->feed_forward));
    y = ht_layer_dropout(b, "dropout", ht_layer_linear(b, "down_proj", y, m->width, &m->feed_forward), m->dropout);
    ht_leave(b);
    return y;
}

static ht_val head(ht_build *b, const llama *m, ht_val x)
{
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = true};
    ht_enter(b, ht_field_bool(b->f, "tie_word_embeddings") ? "model.embed_tokens" : "lm_head");
    ht_val w = ht_layer_weight(b, "weight", 2, (int64_t[]){b->r->vocabulary, m->width}, m->attention.weight);
    ht_val y = ht_matmul(b->g, x, w, &opts);
    ht_leave(b);
    return y;
}

static ht_val llama_logits(ht_build *b)
{
    llama m = read_llama(b);
    if (ht_graph_status(b->g) != HT_OK) return HT_NONE;
    m.position = b->positions.id ? b->positions : ht_iota(b->g, HT_I32, 1, &b->r->length, 0);
    ht_enter(b, "model");
    ht_val rows = ht_layer_rows(b, b->tokens);
    ht_val x = ht_layer_embedding(b, "embed_tokens", rows, b->r->vocabulary, m.width, m.attention.weight);
    x = ht_layer_dropout(b, "dropout", x, m.dropout);
    for (int64_t i = 0; i < m.layers && x.id; i++) {
        ht_enter(b, "layers.%d", (int)i);
        x = ht_add(b->g, x, attention(b, &m, ht_layer_rms(b, "input_layernorm", x, m.eps)));
        x = ht_add(b->g, x, feed_forward(b, &m, ht_layer_rms(b, "post_attention_layernorm", x, m.eps)));
        ht_leave(b);
    }
    x = ht_layer_rms(b, "norm", x, m.eps);
    ht_leave(b);
    return head(b, &m, x);
}

const ht_model ht_model_llama = {
    .name = "llama",
    .help = "Llama: RMS norms, rotary positions, SwiGLU, grouped queries",
    .keys = llama_keys,
    .tasks = 1u << HT_TASK_LM,
    .packs = true,
    .logits = llama_logits,
};
