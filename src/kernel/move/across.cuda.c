/* copy and copy_start between the memory of a CUDA device and that of the host: one transfer by the device's own engines, which
 * takes nothing from what computes. Strided values are left to the rows behind these. Traffic: each byte once over the
 * link. */
#include "kernel/kernel.h"

static const char *across_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    if (call->in[0]->space == call->out[0]->space) return "both ends lie in one memory";
    return ht_refuse_strided(call);
}

static ht_status across_run(const ht_launch *launch)
{
    bool to_device = launch->call->out[0]->space == HT_SPACE_MAIN;
    return launch->queue->device->class->copy(launch->queue, launch->out[0], launch->in[0],
                                              (size_t)ht_type_bytes(launch->call->out[0]),
                                              to_device ? HT_COPY_TO_DEVICE : HT_COPY_FROM_DEVICE);
}

#define ACROSS(op_)                                                                                                    \
    const ht_kernel ht_kernel_cuda_##op_##_across = {                                                                  \
        .size = sizeof(ht_kernel),                                                                                     \
        .op = #op_,                                                                                                    \
        .name = #op_ "_across.cuda",                                                                                   \
        .device = HT_DEVICE_CUDA,                                                                                      \
        .can = across_can,                                                                                             \
        .run = across_run,                                                                                             \
    };
ACROSS(copy)
ACROSS(copy_start)
