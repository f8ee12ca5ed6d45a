/* amax_step: the next histories and scales of tensors in f8.  All f32, row-major.  Numerics: comparisons and powers of two,
 * the same function as the reference's.  Threads: one.  Traffic: some numbers for each tensor. */
#include "kernel/kernel.h"
#include "op/op.h"

static ht_status amax_step_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_dtype f8 = ht_amax_step_dtype(call);
    const float *amax = launch->in[0], *history = launch->in[1], *scale = launch->in[2];
    float *next = launch->out[0], *next_scale = launch->out[1];
    int64_t tensors = call->in[0]->dim[0], n = call->in[1]->dim[1];
    for (int64_t s = 0; s < tensors; s++)
        next_scale[s] = ht_amax_next(f8, (ht_amax_state){history + s * n, scale[s]}, amax[s], n, next + s * n);
    return HT_OK;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

extern const ht_kernel ht_kernel_amax_step;
const ht_kernel ht_kernel_amax_step = {
    .size = sizeof(ht_kernel), .op = "amax_step", .name = "amax_step", .can = can, .run = amax_step_run};
