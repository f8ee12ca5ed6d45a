#include "pass/pipeline_parallel.h"

#include <stdbool.h>

const char *const ht_pipeline_part_names[HT_PIPELINE_PARTS] = {"fwd", "recv", "send", "bwd"};

/* Forwards before the first backward: one for each stage behind. */
static int64_t warm_up(int64_t stages, int64_t stage, int64_t micros)
{
    int64_t behind = stages - 1 - stage;
    return behind < micros ? behind : micros;
}

int64_t ht_pipeline_slots(int64_t stages, int64_t stage, int64_t micros)
{
    int64_t warm = warm_up(stages, stage, micros);
    return warm < micros ? warm + 1 : micros;
}

/* Each message blocks until both sides are there. Between two neighbours they are in the order
 *      a0 … aw, g0, aw+1, g1, …
 * (activations down, gradients up; w: forwards that the second one makes before its first backward). So gradients are
 * received before the last forward's result is sent, and sent before the next forward receives. */
size_t ht_pipeline_calls(int64_t stages, int64_t stage, int64_t micros, ht_pipeline_call *calls)
{
    int64_t warm = warm_up(stages, stage, micros), slots = ht_pipeline_slots(stages, stage, micros);
    bool last = stage == stages - 1;
    size_t count = 0;
    for (int64_t i = 0; i < micros + warm; i++) {
        int64_t forward = i, backward = i - warm;
        uint32_t slot = (uint32_t)(forward % slots);
        if (forward < micros) calls[count++] = (ht_pipeline_call){HT_PIPELINE_FORWARD, forward, slot};
        if (backward >= 0 && !last)
            calls[count++] = (ht_pipeline_call){HT_PIPELINE_RECEIVE, backward, (uint32_t)(backward % slots)};
        if (forward < micros && !last) calls[count++] = (ht_pipeline_call){HT_PIPELINE_SEND, forward, slot};
        if (backward >= 0)
            calls[count++] = (ht_pipeline_call){HT_PIPELINE_BACKWARD, backward, (uint32_t)(backward % slots)};
    }
    return count;
}

double ht_pipeline_bubble(int64_t stages, int64_t micros)
{
    return (double)(stages - 1) / (double)(micros + stages - 1);
}
