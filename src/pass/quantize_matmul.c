/* Products of activations by a weight matrix, as matmul_q. */
#include "pass/quantize_layers.h"

enum { TA, TB }; /* attributes of matmul */

static const char *matmul_refuse(const ht_graph *g, const ht_node *n, const ht_quantize_group *how)
{
    const ht_type *w = ht_type_of(g, ht_node_in(g, n, 1));
    if (n->attr[TA].i) return "its input is read by columns";
    if (w->rank != 2) return "its weight is no matrix";
    if (w->dim[n->attr[TB].i ? 1 : 0] > HT_MOST_CODE_PRODUCTS) return "sums of its products do not fit 32 bits";
    if (how->weights.granularity == HT_PER_GROUP) return "products of codes have no scales for groups";
    return how->weights.symmetric ? NULL : "products of codes have no zero points of weights";
}

static int matmul_channel_axis(const ht_graph *g, const ht_node *n)
{
    (void)g;
    return n->attr[TB].i ? 0 : 1;
}

static unsigned matmul_shared_axes(const ht_graph *g, const ht_node *n)
{
    return 1u << (ht_type_of(g, ht_node_in(g, n, 0))->rank - 1);
}

static void matmul_emit(ht_graph *g, const ht_rewrite *rw, const ht_node *n, const ht_type *want,
                        const ht_layer_operands *q, ht_val out[HT_LAYER_RESULTS])
{
    (void)rw;
    out[0] = ht_emit1(g, "matmul_q", want, HT_VALS(q->x, q->w, q->x_scale, q->w_scale, q->x_zero),
                      HT_ATTRS(HT_INT("tb", n->attr[TB].i)));
}

const ht_layer_kind ht_layer_kind_matmul = {
    .operands = {.name = "matmul", .input = 0, .weight = 1},
    .refuse = matmul_refuse,
    .channel_axis = matmul_channel_axis,
    .shared_axes = matmul_shared_axes,
    .emit = matmul_emit,
    .nbits = true,
};
