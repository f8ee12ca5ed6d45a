/* Products by a weight matrix whose weights alone are codes: matmul_nbits. The states of a weight w[k, n] are
 *     w.q4           words of codes, by its bits; "w.q4t" where the model stores it as [n, k]
 *     w.q4_scale     f32[groups, n]
 *     w.q4_zero      u8[groups, n], unless symmetric
 *     w.q4_a_scale   f32[k] */
#include <stdio.h>

#include "pass/quantize_layers.h"

enum { TA, TB }; /* attributes of matmul */

static int64_t inputs_of(const ht_graph *g, const ht_node *n)
{
    return ht_type_of(g, ht_node_in(g, n, 1))->dim[n->attr[TB].i ? 1 : 0];
}

/* Inputs that share a scale. */
static int64_t group_of(const ht_quantize_group *how, int64_t k)
{
    return how->weights.granularity == HT_PER_GROUP && how->weights.group < k ? how->weights.group : k;
}

const char *ht_nbits_refuse(const ht_graph *g, const ht_node *n, const ht_quantize_group *how)
{
    int bits = how->weights.bits;
    if (n->attr[TA].i) return "its input is read by columns";
    if (ht_type_of(g, ht_node_in(g, n, 1))->rank != 2) return "its weight is no matrix";
    if (bits != 4 && bits != 8) return "weights alone have codes of 4 or 8 bits";
    if (how->weights.granularity == HT_PER_TENSOR) return "weights alone have scales by channel or group";
    return inputs_of(g, n) % group_of(how, inputs_of(g, n)) ? "its inputs are not whole groups" : NULL;
}

/* ---- states ---- */

static ht_val add_state(ht_graph *g, const ht_node *n, int bits, const char *what, ht_type type)
{
    char name[512];
    ht_val weight = ht_node_in(g, n, 1);
    type.space = ht_type_of(g, weight)->space;
    snprintf(name, sizeof name, "%s.q%d%s%s", ht_value_of(g, weight)->name, bits, n->attr[TB].i ? "t" : "", what);
    return ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_PARAMETERS});
}

void ht_nbits_add_states(ht_graph *g, const ht_node *n, const ht_quantize_group *how, ht_nbits_states *out)
{
    const ht_type weight = *ht_type_of(g, ht_node_in(g, n, 1));
    int bits = how->weights.bits;
    int64_t k = inputs_of(g, n), columns = weight.dim[n->attr[TB].i ? 0 : 1];
    int64_t grid[2] = {ht_nbits_groups(k, group_of(how, k)), columns};
    *out = (ht_nbits_states){.codes = add_state(g, n, bits, "", ht_nbits_type(bits, k, columns)), .zero = HT_NONE};
    out->scale = add_state(g, n, bits, "_scale", ht_type_make(HT_F32, 2, grid));
    if (!how->weights.symmetric) out->zero = add_state(g, n, bits, "_zero", ht_type_make(HT_U8, 2, grid));
    out->a_scale = add_state(g, n, bits, "_a_scale", ht_type_make(HT_F32, 1, &k));
}

ht_val ht_nbits_emit(ht_graph *g, const ht_node *n, ht_val x, const ht_quantize_group *how, const ht_type *want,
                     const ht_nbits_states *states)
{
    int64_t k = inputs_of(g, n);
    return ht_emit1(g, "matmul_nbits", want, HT_VALS(x, states->codes, states->scale, states->zero, states->a_scale),
                    HT_ATTRS(HT_INT("bits", how->weights.bits), HT_INT("group", group_of(how, k))));
}
