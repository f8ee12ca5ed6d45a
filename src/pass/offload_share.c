/* A share of the optimiser's state that moves, while the rest stays in main: flat states become two. */
#include <stdio.h>
#include <stdlib.h>

#include "pass/update_units.h"

int64_t ht_offload_share(const ht_graph *g, ht_val flat, double ratio)
{
    int64_t share = ht_type_elems(ht_type_of(g, flat));
    double wanted = ratio * (double)share;
    for (size_t i = 0; i < g->state_count && ratio < 1; i++) {
        const ht_value *view = ht_value_of(g, g->states[i].value);
        bool tensor = view->base.id == flat.id && !g->states[i].derived;
        if (tensor && (double)view->offset >= wanted && view->offset < share) share = view->offset;
    }
    return share;
}

static bool is_operand(const ht_graph *g, ht_val state)
{
    for (size_t i = 0; i < g->segment_count; i++)
        for (size_t at = 0; at < g->segments[i].node_count; at++) {
            const ht_node *n = &g->nodes[g->segments[i].nodes[at]];
            for (size_t k = 0; k < n->n_in; k++)
                if (ht_node_in(g, n, k).id == state.id) return true;
        }
    return false;
}

/* The elements from `share` on become a state of their own, with the views of them. */
static void split_state(ht_graph *g, ht_val flat, int64_t share)
{
    char name[512];
    ht_type type = *ht_type_of(g, flat);
    ht_state like = {.heading = ht_state_of(g, flat)->heading};
    type.dim[0] -= share;
    snprintf(name, sizeof name, "%s.kept", ht_value_of(g, flat)->name);
    ht_val rest = ht_graph_add_state(g, name, &type, &like);
    for (size_t i = 0; i < g->state_count && g->status == HT_OK; i++) {
        ht_value *view = &g->values[g->states[i].value.id];
        if (view->base.id != flat.id || view->offset < share) continue;
        view->base = rest;
        view->offset -= share;
    }
    g->values[flat.id].type.dim[0] = share;
}

ht_status ht_offload_keep_rest(ht_graph *g, double ratio, bool **kept)
{
    size_t states = g->state_count;
    *kept = calloc(g->value_count + states, sizeof **kept);
    if (!*kept) HT_FAIL(g->ctx, HT_ENOMEM, "offload: out of memory");
    for (size_t i = 0; i < states && ratio < 1; i++) {
        ht_val flat = g->states[i].value;
        ht_heading heading = g->states[i].heading;
        bool moves = heading == HT_HEADING_OPTIMIZER || heading == HT_HEADING_MASTERS;
        if (!moves || ht_value_of(g, flat)->base.id || ht_type_of(g, flat)->rank != 1) continue;
        int64_t share = ht_offload_share(g, flat, ratio);
        if (share == 0) (*kept)[flat.id] = true;
        if (share == 0 || share == ht_type_elems(ht_type_of(g, flat)) || is_operand(g, flat)) continue;
        split_state(g, flat, share);
        (*kept)[g->value_count - 1] = true;
    }
    return g->status;
}
