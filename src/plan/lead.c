/* The lead of the segment "exchange": its first instructions, which wait for nothing, can begin within the micro-batch before
 * it. Each begins as soon as no later instruction of the micro-batch uses what it uses: so gradients are summed over ranks
 * while the backward pass still makes others. When that is follows from the plan alone, and so the order of collectives is
 * the same on all ranks. Transients of the lead lie behind those of all micro-batches and tails. */
#include <string.h>

#include "plan/plan.h"

bool ht_plan_is_micro(const ht_plan_segment *s)
{
    return strncmp(s->name, "micro", 5) == 0;
}

static bool is_in_main(const ht_instr *instr)
{
    if (instr->space != HT_SPACE_MAIN) return false;
    for (size_t i = 0; i < instr->call->n_in; i++)
        if (instr->in[i].area != HT_AREA_NONE && instr->in[i].space != HT_SPACE_MAIN) return false;
    return true;
}

static size_t find_lead(const ht_plan_segment *s)
{
    size_t lead = 0, end = 0;
    for (; lead < s->instr_count; lead++) {
        const ht_instr *instr = &s->instrs[lead];
        if (instr->wait || instr->row_block || instr->prepacked || !is_in_main(instr)) break;
        if (instr->queue == HT_QUEUE_COMM) end = lead + 1; /* what comes behind the last exchange hides nothing */
    }
    return end;
}

/* Transients of main that may still be in use: of micro-batches, and of tails, which are at the end of the area. */
static int64_t used_bytes(const ht_plan *plan)
{
    int64_t used = 0;
    for (size_t i = 0; i < plan->segment_count; i++) {
        const ht_plan_segment *s = &plan->segments[i];
        int64_t bytes = s->tail < s->instr_count ? plan->area_bytes[HT_SPACE_MAIN][HT_AREA_TRANSIENT]
                                                 : s->transient_bytes[HT_SPACE_MAIN];
        if ((ht_plan_is_micro(s) || s->tail < s->instr_count) && bytes > used) used = bytes;
    }
    return (used + HT_PLAN_DISK_ALIGN - 1) / HT_PLAN_DISK_ALIGN * HT_PLAN_DISK_ALIGN;
}

/* Does what is left of an update use what the lead uses? */
static bool meets_tail(const ht_plan *plan, const ht_plan_segment *s)
{
    for (size_t i = 0; i < plan->segment_count; i++) {
        const ht_plan_segment *other = &plan->segments[i];
        for (size_t t = other->tail; t < other->instr_count; t++)
            for (size_t k = 0; k < s->lead; k++)
                if (ht_plan_instrs_conflict(&s->instrs[k], &other->instrs[t])) return true;
    }
    return false;
}

void ht_plan_find_leads(ht_plan *plan)
{
    int exchange = ht_plan_segment_find(plan, "exchange");
    int64_t used = used_bytes(plan), *area = &plan->area_bytes[HT_SPACE_MAIN][HT_AREA_TRANSIENT];
    if (exchange < 0) return;
    ht_plan_segment *s = &plan->segments[exchange];
    s->tail = s->instr_count;
    s->lead = find_lead(s);
    if (meets_tail(plan, s)) s->lead = 0;
    if (!s->lead) return;
    ht_plan_raise_segment(s, used);
    if (used + s->transient_bytes[HT_SPACE_MAIN] > *area) *area = used + s->transient_bytes[HT_SPACE_MAIN];
}

void ht_plan_lead_ready(const ht_plan_segment *s, const ht_plan_segment *before, uint32_t *ready)
{
    for (size_t k = 0; k < s->lead; k++) {
        ready[k] = k > 0 ? ready[k - 1] : 0;
        for (size_t i = before->instr_count; i-- > ready[k];)
            if (ht_plan_instrs_conflict(&s->instrs[k], &before->instrs[i])) ready[k] = (uint32_t)i + 1;
    }
}
