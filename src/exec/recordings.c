/* Segments whose launches are remembered by the device and run as one command (a CUDA graph): the host then spends
 * microseconds on a step, and no gaps are left between kernels. A segment is recorded at its second run; one that cannot be
 * is submitted as before, and the reason told once: some of it goes on beside the queue of the runs, or the device refuses.
 * The bits are the same. */
#include "exec/executor_own.h"

typedef struct recorded {
    ht_recording *recording;
    bool was_run, refused;
} recorded;

/* Does a segment copy or exchange beside what it computes? */
static bool uses_other_lanes(ht_executor *e, const ht_plan_segment *s)
{
    for (size_t i = 0; i < s->instr_count; i++)
        if (ht_executor_lane(e, s->instrs[i].space, s->instrs[i].queue) != lane_of_runs(e)) return true;
    return false;
}

void ht_executor_allow_recordings(ht_executor *e)
{
    const ht_plan *plan = e->plan;
    if (!e->queue->device->class->record_begin || plan->canary) return;
    e->recorded = HT_NEW(e->arena, recorded, plan->input_slots * plan->segment_count);
    if (!e->recorded) return; /* nothing is recorded */
    ht_text names = {0};
    for (size_t s = 0; e->beside && s < plan->segment_count; s++) {
        if (!uses_other_lanes(e, &plan->segments[s])) continue;
        for (unsigned slot = 0; slot < plan->input_slots; slot++)
            e->recorded[slot * plan->segment_count + s].refused = true;
        ht_text_add(&names, "%s%s", names.length ? ", " : "", plan->segments[s].name);
    }
    if (names.length)
        ht_note(plan->ctx, HT_LOG_WARN,
                "not recorded as graphs, for they copy or exchange beside what they compute: %s", names.data);
    ht_text_free(&names);
}

bool ht_executor_can_replay(const ht_executor *e, size_t segment)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    return e->recorded && !e->observer && !s->prepack_count && !s->invalidate_count && s->instr_count > 1;
}

static void refuse(ht_executor *e, size_t segment, recorded *r)
{
    ht_context *ctx = e->plan->ctx;
    r->refused = true;
    ht_note(ctx, HT_LOG_WARN, "segment %s runs instruction by instruction: %s", e->plan->segments[segment].name,
            ctx->message);
}

static ht_status record(ht_executor *e, size_t segment, unsigned slot, recorded *r)
{
    const ht_device_class *class = e->queue->device->class;
    ht_recording *recording = NULL;
    HT_TRY(class->record_begin(e->queue));
    ht_status status = ht_executor_submit(e, segment, slot, HT_NO_LEAD), end = class->record_end(e->queue, &recording);
    if (status == HT_OK) status = end;
    if (status == HT_OK) r->recording = recording;
    return status;
}

ht_status ht_executor_replay(ht_executor *e, size_t segment, unsigned slot)
{
    recorded *r = &e->recorded[slot * e->plan->segment_count + segment];
    if (!r->recording && r->was_run && !r->refused && record(e, segment, slot, r) != HT_OK) refuse(e, segment, r);
    r->was_run = true;
    if (!r->recording) return ht_executor_submit(e, segment, slot, HT_NO_LEAD);
    return ht_executor_name_place(e, e->queue->device->class->replay(e->queue, r->recording),
                                  "segment %s, replayed as one graph", e->plan->segments[segment].name);
}

void ht_executor_free_recordings(ht_executor *e)
{
    size_t count = e->recorded ? e->plan->input_slots * e->plan->segment_count : 0;
    for (size_t i = 0; i < count; i++)
        if (e->recorded[i].recording) e->queue->device->class->recording_free(e->recorded[i].recording);
}
