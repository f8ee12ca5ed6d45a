/* Tables of embeddings, as embedding_q: each row has a scale of its own, and an index is no number that could have codes. */
#include "pass/quantize_layers.h"

enum { ROW_BITS = 8 };

static const char *embedding_refuse(const ht_graph *g, const ht_node *n, const ht_quantize_group *how)
{
    (void)g, (void)n;
    if (how->weights.granularity == HT_PER_GROUP) return "rows of a table have one scale, not groups";
    if (how->activations.bits == 0 && how->weights.bits != ROW_BITS) return "rows of a table have codes of 8 bits";
    return NULL;
}

static int embedding_channel_axis(const ht_graph *g, const ht_node *n)
{
    (void)g, (void)n;
    return 0;
}

static unsigned embedding_shared_axes(const ht_graph *g, const ht_node *n)
{
    (void)g, (void)n;
    return 0;
}

static void embedding_emit(ht_graph *g, const ht_rewrite *rw, const ht_node *n, const ht_type *want,
                           const ht_layer_operands *q, ht_val out[HT_LAYER_RESULTS])
{
    (void)rw, (void)n, (void)want;
    out[0] = ht_emit1(g, "embedding_q", NULL, HT_VALS(q->w, q->w_scale, q->x), HT_NO_ATTRS);
}

const ht_layer_kind ht_layer_kind_embedding = {
    .operands = {.name = "embedding", .input = 1, .weight = 0, .lookup = true},
    .refuse = embedding_refuse,
    .channel_axis = embedding_channel_axis,
    .shared_axes = embedding_shared_axes,
    .emit = embedding_emit,
};
