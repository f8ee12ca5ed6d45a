#include "tiny_model.h"

#include <stdio.h>

enum { B = TINY_BATCH, T = TINY_TIME, V = TINY_VOCAB, C = TINY_WIDTH, H = TINY_HEADS };

static ht_val linear(ht_graph *g, const char *name, ht_val x, int64_t in, int64_t out)
{
    char full[64];
    snprintf(full, sizeof full, "%s.w", name);
    ht_val w = ht_param(g, full, HT_F32, 2, (int64_t[]){in, out}, HT_NORMAL(0, 0.3));
    snprintf(full, sizeof full, "%s.b", name);
    ht_val b = ht_param(g, full, HT_F32, 1, (int64_t[]){out}, HT_ZERO);
    return ht_add(g, ht_matmul(g, x, w, NULL), b);
}

static ht_val norm(ht_graph *g, const char *name, ht_val x)
{
    char full[64];
    snprintf(full, sizeof full, "%s.scale", name);
    ht_val scale = ht_param(g, full, HT_F32, 1, (int64_t[]){C}, HT_CONSTANT(1));
    snprintf(full, sizeof full, "%s.shift", name);
    ht_val shift = ht_param(g, full, HT_F32, 1, (int64_t[]){C}, HT_ZERO);
    return ht_layernorm(g, x, scale, shift, 1e-5);
}

/* [B, T, C] to [B, H, T, C/H]. */
static ht_val heads(ht_graph *g, ht_val x, int64_t start)
{
    ht_val part = ht_slice_axis(g, x, 2, start, C);
    return ht_permute(g, ht_reshape(g, part, 4, (int64_t[]){B, T, H, C / H}), 4, (int64_t[]){0, 2, 1, 3});
}

static ht_val attention(ht_graph *g, ht_val x)
{
    ht_val qkv = linear(g, "qkv", x, C, 3 * C);
    ht_val position = ht_iota(g, HT_I64, 1, (int64_t[]){T}, 0);
    ht_val q = ht_rotary(g, heads(g, qkv, 0), position, 10000, false);
    ht_val k = ht_rotary(g, heads(g, qkv, C), position, 10000, false);
    ht_attention_opts opts = {.size = sizeof opts, .causal = true};
    ht_val y = ht_attention(g, q, k, heads(g, qkv, 2 * C), &opts);
    y = ht_reshape(g, ht_permute(g, y, 4, (int64_t[]){0, 2, 1, 3}), 3, (int64_t[]){B, T, C});
    return linear(g, "proj", y, C, C);
}

void tiny_build(ht_graph *g, double dropout)
{
    ht_val token = ht_input(g, "token", HT_I32, 2, (int64_t[]){B, T});
    ht_val label = ht_input(g, "label", HT_I32, 2, (int64_t[]){B, T});
    ht_val table = ht_param(g, "table", HT_F32, 2, (int64_t[]){V, C}, HT_NORMAL(0, 0.5));
    ht_val x = ht_embedding(g, table, token);
    if (dropout > 0) x = ht_dropout(g, x, dropout, ht_rng_state(g), "embedding");
    x = ht_add(g, x, attention(g, norm(g, "ln1", x)));
    x = ht_add(g, x, linear(g, "down", ht_gelu(g, linear(g, "up", norm(g, "ln2", x), C, 4 * C)), 4 * C, C));
    /* The head is the table again: its gradient comes from both ends. */
    ht_matmul_opts tied = {.size = sizeof tied, .transpose_b = true};
    ht_output(g, "loss", ht_cross_entropy(g, ht_matmul(g, x, table, &tied), label, NULL));
}

void tiny_tokens(int which, int32_t *token, int32_t *label)
{
    for (int i = 0; i < B * T; i++) {
        token[i] = (i * 5 + which * 3 + 1) % V;
        label[i] = (token[i] * 2 + 1) % V;
    }
}
