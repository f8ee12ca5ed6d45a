/* A stream of the program around a session. Runs keep their own queue, for a caller's stream may be the default one or under
 * capture, where a recording could not begin; events put the two in one order. */
#include "exec/executor_own.h"

void ht_executor_free_stream(ht_executor *e)
{
    ht_queue_free(e->caller.queue);
    ht_event_free(e->caller.here);
    e->caller = (ht_lane){0};
}

ht_status ht_executor_set_stream(ht_executor *e, void *stream)
{
    ht_device *device = e->device[HT_SPACE_MAIN];
    ht_lane caller = {0};
    if (stream && !device->class->queue_borrow)
        HT_FAIL(e->plan->ctx, HT_EINVAL, "the session computes on %s, which has no streams of CUDA", e->plan->device);
    if (stream) {
        HT_TRY(device->class->queue_borrow(device, stream, &caller.queue));
        ht_status status = device->class->event_create(device, &caller.here);
        if (status != HT_OK) {
            ht_queue_free(caller.queue);
            return status;
        }
    }
    ht_executor_free_stream(e);
    e->caller = caller;
    return HT_OK;
}

bool ht_executor_has_stream(const ht_executor *e)
{
    return e->caller.queue != NULL;
}

ht_status ht_executor_follow_stream(ht_executor *e)
{
    return e->caller.queue ? ht_executor_pass_over(&e->caller, lane_of_runs(e)) : HT_OK;
}

ht_status ht_executor_lead_stream(ht_executor *e)
{
    if (!e->caller.queue) return HT_OK;
    HT_TRY(ht_executor_finish_tail(e));
    return ht_executor_pass_over(lane_of_runs(e), &e->caller);
}
