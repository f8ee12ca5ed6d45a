/* The planner's `measure` (pass/pass.h): how much memory the plan of a graph would take, instruction by instruction.
 * The plan is made as ht_plan_build makes it, looked at, and freed. */
#include "plan/planning.h"

#include <stdlib.h>
#include <string.h>

typedef struct measuring {
    planning p;
    size_t node_count, value_count; /* of the graph that is measured: layout adds some behind them */
    ht_memory_profile *to;
    ht_segment_memory *segments;
    ht_value_life *lives;
    uint32_t *time;
} measuring;

static ht_status no_memory(const measuring *m)
{
    return ht_fail(m->p.g->ctx, HT_ENOMEM, "out of memory while measuring a graph");
}

static void add_lives(measuring *m, const ht_segment *s, const ht_buffer_assignment *r, const uint32_t *end)
{
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &m->p.g->nodes[s->nodes[at]];
        for (uint32_t v = n->out; v < n->out + n->n_out && v < m->value_count; v++) {
            uint32_t first, last;
            if (!r->life[v].bytes || !ht_plan_in_instrs(end, &r->life[v], &first, &last)) continue;
            ht_space space = m->p.g->values[v].type.space;
            m->lives[v] = (ht_value_life){ht_plan_rounded(r->life[v].bytes, r->align[space]), first, last, space};
        }
    }
}

static ht_status fill_segment(measuring *m, uint32_t index, const ht_buffer_assignment *r, uint32_t *end)
{
    const ht_segment *s = &m->p.g->segments[index];
    ht_segment_memory *to = &m->segments[index];
    ht_plan_number_instrs(&m->p, s, r, end, m->time, m->node_count);
    to->time_count = end[s->node_count];
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        int64_t *live = HT_NEW(m->to->arena, int64_t, to->time_count + 1);
        if (!live) return no_memory(m);
        ht_plan_add_live_bytes(r, space, end, live, to->time_count);
        to->live_bytes[space] = live;
        to->peak_bytes[space] = r->live_bytes[space];
        to->transient_bytes[space] = r->bytes[space];
    }
    add_lives(m, s, r, end);
    return HT_OK;
}

static ht_status measure_segment(void *arg, uint32_t index, const ht_buffer_assignment *r)
{
    measuring *m = arg;
    uint32_t *end = calloc(m->p.g->segments[index].node_count + 1, sizeof *end);
    ht_status status = end ? fill_segment(m, index, r, end) : no_memory(m);
    free(end);
    return status;
}

static ht_status measure(measuring *m)
{
    const ht_graph *g = m->p.g;
    ht_memory_profile *to = m->to;
    m->segments = HT_NEW(to->arena, ht_segment_memory, g->segment_count);
    m->lives = HT_NEW(to->arena, ht_value_life, m->value_count);
    m->time = HT_NEW(to->arena, uint32_t, m->node_count);
    if (!m->segments || !m->lives || !m->time) return no_memory(m);
    memset(m->time, 0xff, m->node_count * sizeof *m->time);
    to->segments = m->segments;
    to->segment_count = g->segment_count;
    to->lives = m->lives;
    to->time = m->time;
    m->p.observe = measure_segment;
    m->p.observe_arg = m;
    HT_TRY(ht_planning_emit(&m->p));
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        to->plan_bytes[space] = ht_plan_bytes_in(m->p.plan, (ht_space)space);
        to->state_bytes[space] = m->p.plan->area_bytes[space][HT_AREA_STATE];
        to->slot_bytes[space] = ht_plan_space_bytes(m->p.plan, (ht_space)space, HT_AREA_INPUT) +
                                ht_plan_space_bytes(m->p.plan, (ht_space)space, HT_AREA_OUTPUT);
    }
    return HT_OK;
}

ht_status ht_plan_measure(const void *arg, const ht_pass *behind, const ht_graph *g, ht_memory_profile *profile)
{
    measuring m = {.to = profile, .node_count = g->node_count, .value_count = g->value_count};
    *profile = (ht_memory_profile){.arena = ht_arena_create()};
    ht_status status = ht_planning_open(&m.p, g, arg);
    m.p.quiet = true;
    if (status == HT_OK && behind) {
        const ht_pass_env env = ht_plan_pass_env(arg);
        status = ht_pipeline_run_behind(m.p.g, behind, &env);
    }
    if (status == HT_OK) status = profile->arena ? measure(&m) : no_memory(&m);
    ht_planning_close(&m.p);
    ht_plan_free(m.p.plan);
    if (status != HT_OK) ht_memory_profile_free(profile);
    return status;
}

ht_pass_env ht_plan_pass_env(const ht_plan_request *request)
{
    return (ht_pass_env){
        .target = request->target, .options = request->options, .measure = ht_plan_measure, .measure_arg = request};
}
