/* fp64, the part of autocast for it: everything is f64, state too. */
#include "pass/autocast.h"

static void widen(ht_graph *g, ht_val v)
{
    ht_type *type = &g->values[v.id].type;
    if (type->dtype == HT_F32) type->dtype = HT_F64;
}

static bool moves_float(const ht_graph *g, const ht_node *n)
{
    return n->op->prec == HT_PREC_MOVE && n->op != &ht_op_store && n->n_in &&
           ht_dtype_is_float(ht_type_of(g, ht_node_in(g, n, 0))->dtype);
}

static void widen_node(ht_graph *g, const ht_node *node)
{
    const ht_node n = *node; /* the builder may move the graph's */
    if (n.op->start) ht_rewrite_done(g, &n);
    for (size_t i = 0; moves_float(g, &n) && !n.op->start && i < n.n_in; i++) {
        ht_val v = ht_node_in(g, &n, i);
        if (ht_type_of(g, v)->dtype == HT_F32) ht_autocast_set_operand(g, &n, i, ht_cast(g, v, HT_F64));
    }
    if (n.op == &ht_op_store)
        ht_autocast_set_operand(g, &n, 1, ht_cast(g, ht_node_in(g, &n, 1), ht_type_of(g, ht_node_in(g, &n, 0))->dtype));
    else if (n.op->prec == HT_PREC_EXACT && !(n.op->flags & HT_OP_TYPED))
        ht_autocast_infer(g, &n);
    else
        for (size_t k = 0; k < n.n_out; k++) widen(g, ht_node_out(&n, k));
}

/* Batches come as they are: a cast stands behind every input. The rate and the loss scale are numbers of a type that
 * their readers know. */
ht_status ht_autocast_f64(ht_graph *g)
{
    for (size_t i = 0; i < g->state_count; i++) {
        if (g->states[i].heading != HT_HEADING_SCALARS) widen(g, g->states[i].value);
        g->states[i].whole.dtype = ht_type_of(g, g->states[i].value)->dtype;
    }
    for (uint32_t s = 0; s < g->segment_count; s++) {
        ht_rewrite rw;
        if (!ht_rewrite_begin(&rw, g, s)) return g->status;
        for (size_t i = 0; i < g->segments[s].input_count; i++) {
            ht_val input = g->segments[s].inputs[i];
            if (ht_type_of(g, input)->dtype == HT_F32) ht_rewrite_replace(&rw, input, ht_cast(g, input, HT_F64));
        }
        for (size_t i = 0; i < rw.count; i++) {
            widen_node(g, &g->nodes[rw.old[i]]);
            ht_rewrite_keep(&rw, rw.old[i]);
        }
        HT_TRY(ht_rewrite_end(&rw));
    }
    return g->status;
}
