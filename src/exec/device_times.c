/* Times of instructions on a device that has a clock, such as a GPU: events around each launch, which are asked for their
 * times when the segment is done. Functions of the host in its queues, by which other devices tell their observer, would
 * make it wait for them. */
#include "exec/executor_own.h"

bool ht_executor_uses_clock(const ht_executor *e, const ht_queue *queue)
{
    const ht_device_class *class = queue->device->class;
    return e->observer && e->observer->took && class->event_seconds && !class->runs_host_code;
}

static ht_status make_events(watched *w, ht_device *device)
{
    if (!w->from) HT_TRY(device->class->event_create(device, &w->from));
    return w->to ? HT_OK : device->class->event_create(device, &w->to);
}

ht_status ht_executor_launch_timed(watched *w, ht_run_fn run, const ht_launch *launch)
{
    HT_TRY(make_events(w, launch->queue->device));
    HT_TRY(ht_queue_record(launch->queue, w->from));
    HT_TRY(launch->queue->device->class->launch(launch->queue, run, launch));
    HT_TRY(ht_queue_record(launch->queue, w->to));
    w->timed = true;
    return HT_OK;
}

ht_status ht_executor_tell_times(ht_executor *e, size_t segment, double begin)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    const watched *first = NULL;
    if (!ht_executor_uses_clock(e, e->queue)) return HT_OK;
    HT_TRY(ht_queue_sync(e->queue));
    for (size_t i = 0; i < s->instr_count; i++) {
        watched *w = &e->watched[segment][i];
        double from = 0, seconds = 0;
        if (!w->timed) continue;
        w->timed = false;
        if (!first) first = w;
        HT_TRY(ht_event_sync(w->to));
        const ht_device_class *class = w->to->device->class;
        if (w->to->device == first->from->device) HT_TRY(class->event_seconds(first->from, w->from, &from));
        HT_TRY(class->event_seconds(w->from, w->to, &seconds));
        e->observer->took(e->observer->arg, &w->at, begin + from, begin + from + seconds);
    }
    return HT_OK;
}

void ht_executor_free_times(ht_executor *e)
{
    for (size_t s = 0; e->watched && s < e->plan->segment_count; s++)
        for (size_t i = 0; e->watched[s] && i < e->plan->segments[s].instr_count; i++) {
            ht_event_free(e->watched[s][i].from);
            ht_event_free(e->watched[s][i].to);
        }
}
