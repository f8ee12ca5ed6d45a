/* What is alive when: bytes by instruction, and the values that live from forward to backward. */
#include "plan/planning.h"

#include <stdlib.h>
#include <string.h>

/* ---- instructions as time ---- */

void ht_plan_number_instrs(const planning *p, const ht_segment *s, const ht_buffer_assignment *r, uint32_t *end,
                           uint32_t *time, size_t node_count)
{
    uint32_t instrs = 0;
    for (size_t at = 0, count; at < s->node_count; at += count) {
        count = ht_plan_unit_length(p, s, at);
        uint32_t own = r->instrs[at];
        for (size_t k = at; time && k < at + count; k++)
            if (own && s->nodes[k] < node_count) time[s->nodes[k]] = instrs;
        instrs += own;
        end[r->time[at]] += own; /* of a row block all instructions */
    }
    for (size_t i = 0; i < s->output_count; i++) end[s->node_count] += !r->output[i];
    for (size_t at = 0; at < s->node_count; at++) end[at + 1] += end[at];
}

bool ht_plan_in_instrs(const uint32_t *end, const ht_interval *life, uint32_t *first, uint32_t *last)
{
    *first = life->first ? end[life->first - 1] : 0;
    *last = end[life->last] - 1;
    return *first < end[life->last];
}

int64_t ht_plan_rounded(int64_t bytes, int64_t align)
{
    return (bytes + align - 1) / align * align;
}

void ht_plan_add_live_bytes(const ht_buffer_assignment *r, int space, const uint32_t *end, int64_t *live, size_t times)
{
    for (size_t i = 0; i < r->buffers[space].count; i++) {
        const ht_interval *buffer = &r->buffers[space].items[i];
        uint32_t first, last;
        if (!ht_plan_in_instrs(end, buffer, &first, &last)) continue;
        live[first] += ht_plan_rounded(buffer->bytes, r->align[space]);
        if (last + 1 < times) live[last + 1] -= ht_plan_rounded(buffer->bytes, r->align[space]);
    }
    for (size_t t = 1; t < times; t++) live[t] += live[t - 1];
}

/* ---- from forward to backward ---- */

/* When backward begins; one past the end where there is none. */
static uint32_t backward_begins(const ht_graph *g, const ht_segment *s, const ht_buffer_assignment *r)
{
    uint32_t first = UINT32_MAX;
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        if (ht_node_is_backward(n) && r->time[at] < first) first = r->time[at];
    }
    return first;
}

static ht_status list_held(ht_plan *plan, const ht_graph *g, const ht_segment *s, const ht_buffer_assignment *r,
                           ht_plan_segment *to)
{
    uint32_t begins = backward_begins(g, s, r);
    if (begins == UINT32_MAX) return HT_OK;
    to->held = HT_NEW(plan->arena, ht_held_value, s->node_count);
    for (size_t at = 0; to->held && at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        int64_t bytes = 0;
        for (uint32_t v = n->out; ht_node_is_forward(n) && !n->op->done && v < n->out + n->n_out; v++)
            if (r->life[v].bytes && g->values[v].type.space == HT_SPACE_MAIN && r->life[v].first < begins &&
                r->life[v].last >= begins)
                bytes += r->life[v].bytes;
        if (!bytes) continue;
        const char *site = n->site ? ht_arena_text(plan->arena, n->site, strlen(n->site)) : "";
        if (!site) to->held = NULL;
        if (to->held) to->held[to->held_count++] = (ht_held_value){n->op->name, site, bytes};
    }
    return to->held ? HT_OK : ht_fail(plan->ctx, HT_ENOMEM, "out of memory for the plan");
}

/* ---- the whole ---- */

static bool keep_buffers(ht_plan *plan, const ht_buffer_assignment *r, const uint32_t *end, ht_plan_segment *to)
{
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        size_t count = r->buffers[space].count;
        to->buffers[space] = HT_NEW(plan->arena, ht_interval, count);
        for (size_t i = 0; to->buffers[space] && i < count; i++) {
            ht_interval buffer = r->buffers[space].items[i];
            if (ht_plan_in_instrs(end, &r->buffers[space].items[i], &buffer.first, &buffer.last))
                to->buffers[space][to->buffer_count[space]++] = buffer;
        }
        if (!to->buffers[space]) return false;
    }
    return true;
}

ht_status ht_plan_keep_timeline(const planning *p, uint32_t segment, const ht_buffer_assignment *r)
{
    const ht_segment *s = &p->g->segments[segment];
    ht_plan_segment *to = &p->plan->segments[segment];
    uint32_t *end = calloc(s->node_count + 1, sizeof *end);
    to->timeline = HT_NEW(p->plan->arena, int64_t, to->instr_count + 1);
    bool ok = end && to->timeline;
    if (ok) {
        ht_plan_number_instrs(p, s, r, end, NULL, 0);
        ht_plan_add_live_bytes(r, HT_SPACE_MAIN, end, to->timeline, to->instr_count);
        ok = keep_buffers(p->plan, r, end, to);
    }
    free(end);
    if (!ok) HT_FAIL(p->g->ctx, HT_ENOMEM, "out of memory for the plan");
    return list_held(p->plan, p->g, s, r, to);
}
