/* Which values are alive from forward to backward, for reports: what recomputation can save. */
#include "plan/planning.h"

#include <string.h>

static bool is_forward(const ht_node *n)
{
    return n->role == HT_ROLE_FWD && !n->recomputed;
}

/* When backward begins; one past the end where there is none. */
static uint32_t backward_begins(const ht_graph *g, const ht_segment *s, const ht_buffer_assignment *r)
{
    uint32_t first = UINT32_MAX;
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        bool backward = n->role == HT_ROLE_BWD_ACT || n->role == HT_ROLE_BWD_WEIGHT;
        if (backward && r->time[at] < first) first = r->time[at];
    }
    return first;
}

ht_status ht_plan_list_kept(ht_plan *plan, const ht_graph *g, uint32_t segment, const ht_buffer_assignment *r)
{
    const ht_segment *s = &g->segments[segment];
    ht_plan_segment *to = &plan->segments[segment];
    uint32_t begins = backward_begins(g, s, r);
    if (begins == UINT32_MAX) return HT_OK;
    to->kept = HT_NEW(plan->arena, ht_kept_value, s->node_count);
    for (size_t at = 0; to->kept && at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        int64_t bytes = 0;
        for (uint32_t v = n->out; is_forward(n) && v < n->out + n->n_out; v++)
            if (r->life[v].bytes && r->life[v].first < begins && r->life[v].last >= begins) bytes += r->life[v].bytes;
        if (!bytes) continue;
        const char *site = n->site ? ht_arena_text(plan->arena, n->site, strlen(n->site)) : "";
        if (!site) to->kept = NULL;
        if (to->kept) to->kept[to->kept_count++] = (ht_kept_value){n->op->name, site, bytes};
    }
    return to->kept ? HT_OK : ht_fail(plan->ctx, HT_ENOMEM, "out of memory for the plan");
}
