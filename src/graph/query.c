/* Queries of a graph: producers, roots of views, overlap, lookup by name, liveness. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

const ht_node *ht_producer(const ht_graph *g, ht_val v)
{
    const ht_value *value = ht_value_of(g, v);
    return value->kind == HT_VALUE_RESULT ? &g->nodes[value->owner] : NULL;
}

const ht_node *ht_start_of(const ht_graph *g, const ht_node *n)
{
    return n->op->start ? ht_producer(g, ht_node_in(g, n, 0)) : NULL;
}

ht_val ht_root(const ht_graph *g, ht_val v)
{
    while (ht_value_of(g, v)->base.id) v = ht_value_of(g, v)->base;
    return v;
}

ht_state *ht_state_of(const ht_graph *g, ht_val v)
{
    if (!v.id || v.id >= g->value_count || g->values[v.id].kind != HT_VALUE_STATE) return NULL;
    return &g->states[g->values[v.id].owner];
}

/* What is no value looks like none: f64, rank 0. */
static const ht_type *shown_type(const ht_graph *g, ht_val v)
{
    static const ht_type none;
    return g && v.id < g->value_count ? ht_type_of(g, v) : &none;
}

ht_dtype ht_val_dtype(const ht_graph *g, ht_val v)
{
    return shown_type(g, v)->dtype;
}

int ht_val_rank(const ht_graph *g, ht_val v)
{
    return shown_type(g, v)->rank;
}

const int64_t *ht_val_dims(const ht_graph *g, ht_val v)
{
    return shown_type(g, v)->dim;
}

/* The extent of v in its root: first element and one past the last; strides are at least 0. */
static void extent(const ht_graph *g, ht_val v, int64_t *first, int64_t *end)
{
    *first = 0;
    for (ht_val at = v; ht_value_of(g, at)->base.id; at = ht_value_of(g, at)->base)
        *first += ht_value_of(g, at)->offset;
    *end = *first + ht_type_extent(ht_type_of(g, v));
}

bool ht_overlap(const ht_graph *g, ht_val a, ht_val b)
{
    if (ht_root(g, a).id != ht_root(g, b).id) return false;
    int64_t a_first, a_end, b_first, b_end;
    extent(g, a, &a_first, &a_end);
    extent(g, b, &b_first, &b_end);
    return a_first < b_end && b_first < a_end;
}

const ht_call *ht_node_call(const ht_graph *g, const ht_node *n, ht_arena *arena, ht_call_storage *storage)
{
    const ht_type **in = n->n_in <= 8 ? storage->in : HT_NEW(arena, const ht_type *, n->n_in);
    if (!in) return NULL;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        in[i] = v.id ? ht_type_of(g, v) : NULL;
    }
    for (size_t i = 0; i < n->n_out; i++) storage->out[i] = ht_type_of(g, ht_node_out(n, i));
    storage->call = (ht_call){.op = n->op,
                              .n_in = n->n_in,
                              .n_out = n->n_out,
                              .n_attr = ht_op_attr_count(n->op),
                              .in = in,
                              .out = storage->out,
                              .attr = n->attr};
    return &storage->call;
}

uint32_t *ht_liveness(const ht_graph *g, uint32_t segment)
{
    const ht_segment *s = &g->segments[segment];
    uint32_t *last = malloc(g->value_count * sizeof *last);
    if (!last) return NULL;
    memset(last, 0xff, g->value_count * sizeof *last);
    /* A use of a view is a use of all its bases. */
    for (uint32_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        for (size_t i = 0; i < n->n_in; i++)
            for (ht_val v = ht_node_in(g, n, i); v.id; v = ht_value_of(g, v)->base) last[v.id] = at;
    }
    for (size_t i = 0; i < s->output_count; i++)
        for (ht_val v = s->outputs[i].value; v.id; v = ht_value_of(g, v)->base) last[v.id] = (uint32_t)s->node_count;
    return last;
}
