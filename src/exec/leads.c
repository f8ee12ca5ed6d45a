/* The lead of the segment "exchange" (plan/lead.c) is run within the micro-batch before it, each instruction as soon as what it
 * uses is ready; when the segment itself is run, it goes on behind them. */
#include <time.h>

#include "exec/executor_own.h"

ht_status ht_executor_set_up_leads(ht_executor *e)
{
    const ht_plan *plan = e->plan;
    int exchange = ht_plan_segment_find(plan, "exchange");
    e->ready = HT_NEW(e->arena, uint32_t *, plan->segment_count);
    bool ok = e->ready != NULL;
    if (ok && exchange >= 0 && e->comm && plan->segments[exchange].lead)
        for (size_t i = 0; ok && i < plan->segment_count; i++) {
            if (!ht_plan_is_micro(&plan->segments[i])) continue;
            e->ready[i] = HT_NEW(e->arena, uint32_t, plan->segments[exchange].lead);
            ok = e->ready[i] != NULL;
            if (ok) ht_plan_lead_ready(&plan->segments[exchange], &plan->segments[i], e->ready[i]);
        }
    return ok ? HT_OK : ht_fail(plan->ctx, HT_ENOMEM, "out of memory for a session");
}

ht_status ht_executor_run_lead_after(ht_executor *e, size_t segment, size_t index, int next, ht_lane **order)
{
    const ht_plan_segment *s = &e->plan->segments[next];
    const uint32_t *ready = e->ready[segment];
    if (e->lead.segment != (size_t)next) e->lead = (ht_lead){(size_t)next, 0};
    for (; e->lead.count < s->lead && ready[e->lead.count] <= index + 1; e->lead.count++)
        HT_TRY(ht_executor_run_instr(e, (size_t)next, 0, e->lead.count, order));
    return HT_OK;
}

size_t ht_executor_take_lead(ht_executor *e, size_t segment)
{
    size_t count = e->lead.segment == segment ? e->lead.count : 0;
    if (count) e->lead.count = 0;
    return count;
}

/* ---- waiting ---- */

static double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ht_status ht_executor_wait_exchange(ht_executor *e, const ht_lane *lane, ht_event *event)
{
    if (lane->queue->device->class->asynchronous || ht_event_done(event)) return ht_queue_wait(lane->queue, event);
    double begin = clock_seconds();
    ht_status status = ht_queue_wait(lane->queue, event);
    e->waited_seconds += clock_seconds() - begin;
    return status;
}

double ht_executor_waited(const ht_executor *e)
{
    return e->waited_seconds;
}
