/* Convolutions by a weight, as conv_q. */
#include "pass/quantize_layers.h"

static const char *conv_refuse(const ht_graph *g, const ht_node *n, const ht_quantize_group *how)
{
    const ht_type *w = ht_type_of(g, ht_node_in(g, n, 1));
    if (w->dim[1] * w->dim[2] * w->dim[3] > HT_MOST_CODE_PRODUCTS) return "sums of its products do not fit 32 bits";
    if (how->weights.granularity == HT_PER_GROUP) return "convolutions of codes have no scales for groups";
    if (how->activations.bits == 0) return "convolutions of codes have codes of activations";
    return how->weights.symmetric ? NULL : "convolutions of codes have no zero points of weights";
}

static int conv_channel_axis(const ht_graph *g, const ht_node *n)
{
    (void)g, (void)n;
    return 0;
}

/* One scale for all of the input: a window mixes positions and channels. */
static unsigned conv_shared_axes(const ht_graph *g, const ht_node *n)
{
    return (1u << ht_type_of(g, ht_node_in(g, n, 0))->rank) - 1;
}

static void conv_emit(ht_graph *g, const ht_rewrite *rw, const ht_node *n, const ht_type *want,
                      const ht_layer_operands *q, ht_val out[HT_LAYER_RESULTS])
{
    enum { SHARED_ATTRS = 4 }; /* stride, padding, dilation, groups come first in both ops */
    ht_val scale = q->w_scale;
    (void)rw;
    if (ht_type_of(g, scale)->rank) {
        ht_type type = ht_type_make(HT_F32, 1, ht_type_of(g, q->w)->dim);
        type.space = want->space;
        scale = ht_emit1(g, "reshape", &type, HT_VALS(scale), HT_NO_ATTRS);
    }
    out[0] = ht_emit1(g, "conv_q", want, HT_VALS(q->x, q->w, q->x_scale, scale, q->x_zero), SHARED_ATTRS, n->attr);
}

const ht_layer_kind ht_layer_kind_conv2d = {
    .operands = {.name = "conv2d", .input = 0, .weight = 1},
    .refuse = conv_refuse,
    .channel_axis = conv_channel_axis,
    .shared_axes = conv_shared_axes,
    .emit = conv_emit,
};
