/* The tail of a segment that was run (plan/tail.c) waits for the disk. The next segment runs meanwhile: before each of its
 * instructions comes what that one needs of the tail, and what of it need not wait any more. Everyone else who asks for
 * bytes that the tail uses has it done first. */
#include "exec/executor_own.h"

/* Where commands run when they are submitted: elsewhere the caller never waits, and a tail would gain nothing. */
static bool runs_at_once(const ht_executor *e)
{
    return !e->device[HT_SPACE_MAIN]->class->asynchronous;
}

ht_status ht_executor_set_up_tails(ht_executor *e)
{
    const ht_plan *plan = e->plan;
    e->needed = HT_NEW(e->arena, uint32_t *, plan->segment_count * plan->segment_count);
    bool ok = e->needed != NULL;
    for (size_t s = 0; ok && e->beside && runs_at_once(e) && s < plan->segment_count; s++) {
        const ht_plan_segment *from = &plan->segments[s];
        for (size_t n = 0; ok && from->tail < from->instr_count && n < plan->segment_count; n++) {
            const ht_plan_segment *next = &plan->segments[n];
            uint32_t *needed = HT_NEW(e->arena, uint32_t, next->instr_count);
            ok = needed != NULL;
            if (ok) ht_plan_tail_needed(from, next, needed);
            e->needed[s * plan->segment_count + n] = needed;
        }
    }
    return ok ? HT_OK : ht_fail(plan->ctx, HT_ENOMEM, "out of memory for a session");
}

size_t ht_executor_head(const ht_executor *e, size_t segment)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    bool leaves = e->needed[segment * e->plan->segment_count + segment] && !e->observer;
    return leaves ? s->tail : s->instr_count;
}

void ht_executor_leave_tail(ht_executor *e, size_t segment, unsigned slot)
{
    e->tail = (ht_tail){segment, ht_executor_head(e, segment), e->plan->segments[segment].instr_count, slot};
}

/* What has failed is not tried again. */
static ht_status run_next(ht_executor *e, ht_lane **order)
{
    ht_tail *t = &e->tail;
    ht_status status = ht_executor_run_instr(e, t->segment, t->slot, t->next, order);
    t->next = status == HT_OK ? t->next + 1 : t->end;
    return status;
}

static bool waits(ht_executor *e)
{
    const ht_instr *instr = &e->plan->segments[e->tail.segment].instrs[e->tail.next];
    return instr->wait && !ht_event_done(e->waited[e->tail.segment][instr->wait - 1]);
}

ht_status ht_executor_run_tail_before(ht_executor *e, size_t segment, size_t index, ht_lane **order)
{
    const uint32_t *needed = e->needed[e->tail.segment * e->plan->segment_count + segment];
    bool all = segment == e->tail.segment || index == e->plan->segments[segment].instr_count;
    while (ht_executor_has_tail(e) && (all || e->tail.next < needed[index] || !waits(e))) HT_TRY(run_next(e, order));
    return HT_OK;
}

ht_status ht_executor_finish_tail(ht_executor *e)
{
    ht_lane *order = lane_of_runs(e);
    if (!ht_executor_has_tail(e)) return HT_OK;
    while (ht_executor_has_tail(e)) HT_TRY(run_next(e, &order));
    return ht_executor_pass_over(order, lane_of_runs(e));
}

ht_status ht_executor_settle(ht_executor *e, ht_place place, size_t bytes, bool written)
{
    if (!ht_executor_has_tail(e)) return HT_OK;
    const ht_plan_segment *s = &e->plan->segments[e->tail.segment];
    bool used = place.space == HT_SPACE_DISK || ht_plan_tail_touches(s, e->tail.next, place, bytes, written);
    return used ? ht_executor_finish_tail(e) : HT_OK;
}
