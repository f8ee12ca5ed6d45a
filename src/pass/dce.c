/* Removes nodes without an effect: none of their results reaches an output, a store or another effect. */
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

/* A use of a view is a use of the bytes below it. */
static void mark(const ht_graph *g, bool *live, ht_val v)
{
    for (; v.id; v = ht_value_of(g, v)->base) live[v.id] = true;
}

static bool wanted(const ht_node *n, const bool *live)
{
    if ((n->op->flags | (n->op->start ? n->op->start->flags : 0)) & HT_OP_EFFECT) return true;
    for (size_t i = 0; i < n->n_out; i++)
        if (live[n->out + i]) return true;
    return false;
}

/* One walk from the end: in SSA order every use of a node stands behind it. */
static void sweep_segment(const ht_graph *g, ht_segment *s, bool *live)
{
    for (size_t i = 0; i < s->output_count; i++) mark(g, live, s->outputs[i].value);
    size_t kept = s->node_count;
    for (size_t at = s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        if (!wanted(n, live)) continue;
        for (size_t i = 0; i < n->n_in; i++) mark(g, live, ht_node_in(g, n, i));
        for (size_t i = 0; i < n->n_out; i++) mark(g, live, ht_value_of(g, ht_node_out(n, i))->base);
        s->nodes[--kept] = s->nodes[at];
    }
    s->node_count -= kept;
    if (kept) memmove(s->nodes, s->nodes + kept, s->node_count * sizeof *s->nodes);
}

static ht_status dce_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    bool *live = calloc(g->value_count, sizeof *live);
    if (!live) HT_FAIL(g->ctx, HT_ENOMEM, "dce: out of memory");
    /* Results belong to one segment, and for states and inputs the marks are not read: one array serves all. */
    for (size_t i = 0; i < g->segment_count; i++) sweep_segment(g, &g->segments[i], live);
    free(live);
    return HT_OK;
}

const ht_pass ht_pass_dce = {
    .name = "dce",
    .help = "remove nodes that reach no output and no store",
    .system = true,
    .keeps_step = true,
    .run = dce_run,
};
