/* The micro-batches of a step on a stage of a pipeline: the calls that the plan's program lists, up to the exchange. */
#include <string.h>

#include "train/run_state.h"

typedef struct stepping {
    ht_run *run;
    const ht_shape *own;                             /* the shape that the program is made for */
    const ht_shape *in_flight[HT_MAX_PROGRAM_SLOTS]; /* by slot */
    int64_t forwards;
} stepping;

static ht_status start(stepping *s, int segment, unsigned slot)
{
    return ht_session_start_segment(s->run->job.session, (size_t)segment, slot);
}

static ht_status run_forward(stepping *s, unsigned slot)
{
    ht_bound_batch batch;
    ht_run *run = s->run;
    HT_TRY(ht_batch_binding_in_slot(&run->binding, run->train, s->forwards, slot, &batch));
    s->in_flight[slot] = batch.shape;
    HT_TRY(start(s, batch.shape->forward, slot));
    return ht_step_records_micro(run->records, s->forwards++);
}

/* The same part for the shape of the batch in its slot; what is no part of a micro-batch is run as it is. */
static ht_status run_call(stepping *s, const ht_program_call *call)
{
    const ht_shape *own = s->own, *shape = s->in_flight[call->slot];
    int segment = (int)call->segment;
    if (segment == own->forward) return run_forward(s, call->slot);
    if (segment == own->receive) return start(s, shape->receive, call->slot);
    if (segment == own->send) return start(s, shape->send, call->slot);
    if (segment == own->first) return start(s, shape->first, call->slot);
    if (segment == own->micro) return start(s, shape->micro, call->slot);
    return start(s, segment, call->slot);
}

ht_status ht_run_stage(ht_run *run)
{
    const ht_plan *plan = run->job.plan;
    const ht_plan_program *program = &plan->programs[ht_plan_program_find(plan, "train")];
    stepping s = {.run = run, .own = &run->binding.shapes[run->binding.shape_count - 1]};
    for (size_t i = 0; i < program->call_count && (int)program->calls[i].segment != run->exchange; i++)
        HT_TRY(run_call(&s, &program->calls[i]));
    return HT_OK;
}
