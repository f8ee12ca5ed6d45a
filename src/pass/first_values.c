#include "pass/first_values.h"

#include <string.h>

static bool draws(const ht_node *n)
{
    return (n->op->flags & HT_OP_NO_FOLD) && ht_op_has_attr(n->op, "batch_extent") && n->n_in == 3;
}

/* A cast, or another op that computes each element of one array. */
static bool is_unary(const ht_node *n)
{
    return n->op->fuse == HT_FUSE_POINT && n->n_in == 1 && n->n_out == 1 && !(n->op->flags & HT_OP_EFFECT);
}

static int64_t attr_int(const ht_graph *g, const ht_node *n, const char *key)
{
    ht_call_storage storage;
    return ht_call_int(ht_node_call(g, n, NULL, &storage), key); /* few operands: no memory is needed */
}

/* Where numbers begin that follow each other; -1: of a part of several axes they may not. */
static int64_t begins_at(const ht_graph *g, const ht_node *n)
{
    if (attr_int(g, n, "batch_extent") == 0) return 0;
    const ht_node *first = ht_producer(g, ht_node_in(g, n, 2));
    ht_call_storage storage;
    bool known = first && strcmp(first->op->name, "fill") == 0;
    if (!known || ht_type_of(g, ht_node_out(n, 0))->rank != 1 || attr_int(g, n, "batch_axis") != 0) return -1;
    return (int64_t)ht_call_float(ht_node_call(g, first, NULL, &storage), "value");
}

ht_val ht_first_value_source(const ht_graph *g, ht_val v)
{
    const ht_node *n = ht_producer(g, v);
    for (; n && is_unary(n); n = ht_producer(g, v)) v = ht_node_in(g, n, 0);
    if (!n || (n->n_in > 0 && !draws(n))) return HT_NONE;
    return n->n_in == 0 || begins_at(g, n) >= 0 ? v : HT_NONE;
}

ht_val ht_first_value_part(ht_graph *g, ht_val source, int64_t first, int64_t count)
{
    const ht_node n = *ht_producer(g, source);
    ht_type want = ht_type_make(ht_type_of(g, source)->dtype, 1, &count);
    ht_val in[3] = {HT_NONE}, out = HT_NONE;
    int64_t extent = 0;
    for (size_t i = 0; i < n.n_in; i++) in[i] = ht_node_in(g, &n, i);
    if (n.n_in) {
        extent = attr_int(g, &n, "batch_extent");
        if (extent == 0) extent = ht_type_elems(ht_type_of(g, source));
        in[2] = ht_fill(g, HT_I64, 0, NULL, (double)(begins_at(g, &n) + first));
    }
    ht_emit(g, n.op, n.n_in, in, ht_op_attr_count(n.op), n.attr, &want, &out);
    if (g->status == HT_OK && n.n_in) ht_node_set_int(g, (uint32_t)g->node_count - 1, "batch_extent", extent);
    return out;
}

ht_val ht_first_value_of(ht_graph *g, ht_val v, ht_val source, ht_val part)
{
    if (v.id == source.id || g->status != HT_OK) return part;
    const ht_node n = *ht_producer(g, v);
    int64_t count = ht_type_elems(ht_type_of(g, part));
    ht_type want = ht_type_make(ht_type_of(g, v)->dtype, 1, &count);
    ht_val in = ht_first_value_of(g, ht_node_in(g, &n, 0), source, part), out = HT_NONE;
    ht_emit(g, n.op, 1, &in, ht_op_attr_count(n.op), n.attr, &want, &out);
    return out;
}
