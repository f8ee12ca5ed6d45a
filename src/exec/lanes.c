/* Lanes: the queues that an executor has for the spaces and queues of its plan's instructions, made where an instruction
 * needs them, and the events by which one waits for another. */
#include "exec/executor_own.h"

/* Does the space have queues of its own? A processor that runs commands at once serves main and host in one order, but for
 * what it exchanges with other ranks. */
static bool is_apart(const ht_executor *e, ht_space space, ht_queue_kind kind)
{
    return space == HT_SPACE_DISK || kind == HT_QUEUE_COMM || e->device[HT_SPACE_MAIN]->class->asynchronous;
}

ht_lane *ht_executor_lane(ht_executor *e, ht_space space, ht_queue_kind kind)
{
    return is_apart(e, space, kind) ? &e->lanes[space][kind] : lane_of_runs(e);
}

ht_status ht_executor_pass_over(const ht_lane *from, const ht_lane *to)
{
    if (from == to) return HT_OK;
    HT_TRY(ht_queue_record(from->queue, from->here));
    return ht_queue_wait(to->queue, from->here);
}

/* ---- set up ---- */

/* Whose queue a lane is. The processor beside itself: it computes while its exchanges go on. */
static ht_status find_device(ht_executor *e, ht_space space, ht_queue_kind kind, ht_device **out)
{
    if (kind == HT_QUEUE_COMM && !e->device[HT_SPACE_MAIN]->class->asynchronous)
        return ht_device_get(out, e->plan->ctx, "host");
    if (!e->device[space]) /* it computes, and holds nothing that lasts */
        HT_TRY(ht_device_get(&e->device[space], e->plan->ctx, "host"));
    *out = e->device[space];
    return HT_OK;
}

static ht_status open_lane(ht_executor *e, ht_space space, ht_queue_kind kind)
{
    ht_lane *lane = ht_executor_lane(e, space, kind);
    ht_device *device;
    if (lane->here) return HT_OK;
    HT_TRY(find_device(e, space, kind, &device));
    if (!lane->queue) HT_TRY(device->class->queue_create(device, &lane->queue));
    HT_TRY(lane->queue->device->class->event_create(lane->queue->device, &lane->here));
    e->beside |= lane != lane_of_runs(e);
    return HT_OK;
}

/* Events of the instructions that another one waits for. */
static ht_status set_up_waits(ht_executor *e, size_t segment)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    bool waits = false;
    for (size_t i = 0; i < s->instr_count; i++) waits |= s->instrs[i].wait != 0;
    if (!waits) return HT_OK;
    e->waited[segment] = HT_NEW(e->arena, ht_event *, s->instr_count);
    if (!e->waited[segment]) HT_FAIL(e->plan->ctx, HT_ENOMEM, "out of memory for a session");
    for (size_t i = 0; i < s->instr_count; i++) {
        if (!s->instrs[i].wait) continue;
        const ht_instr *start = &s->instrs[s->instrs[i].wait - 1];
        ht_device *device = ht_executor_lane(e, start->space, start->queue)->queue->device;
        HT_TRY(device->class->event_create(device, &e->waited[segment][s->instrs[i].wait - 1]));
    }
    return HT_OK;
}

/* The bytes of host and disk are read and written by sessions, too. */
ht_status ht_executor_set_up_lanes(ht_executor *e)
{
    const ht_plan *plan = e->plan;
    HT_TRY(open_lane(e, HT_SPACE_MAIN, HT_QUEUE_COMPUTE));
    for (int space = HT_SPACE_MAIN + 1; space < HT_SPACE_COUNT; space++)
        if (e->device[space] && is_apart(e, (ht_space)space, HT_QUEUE_COMPUTE))
            HT_TRY(open_lane(e, (ht_space)space, HT_QUEUE_COMPUTE));
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            HT_TRY(open_lane(e, plan->segments[s].instrs[i].space, plan->segments[s].instrs[i].queue));
    e->waited = HT_NEW(e->arena, ht_event **, plan->segment_count);
    if (!e->waited) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a session");
    for (size_t s = 0; e->beside && s < plan->segment_count; s++) HT_TRY(set_up_waits(e, s));
    return HT_OK;
}

void ht_executor_free_lanes(ht_executor *e)
{
    const ht_plan *plan = e->plan;
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int kind = 0; kind < HT_QUEUE_COUNT; kind++) ht_queue_free(e->lanes[space][kind].queue);
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int kind = 0; kind < HT_QUEUE_COUNT; kind++) ht_event_free(e->lanes[space][kind].here);
    for (size_t s = 0; e->waited && s < plan->segment_count; s++)
        for (size_t i = 0; e->waited[s] && i < plan->segments[s].instr_count; i++) ht_event_free(e->waited[s][i]);
}
