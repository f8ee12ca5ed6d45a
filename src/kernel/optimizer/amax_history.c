/* amax_step: the next histories and scales of tensors in f8.  All f32, row-major.  Numerics: comparisons and powers of two,
 * the same function as the reference's.  Threads: one.  Traffic: some numbers for each tensor. */
#include "kernel/kernel.h"
#include "op/op.h"

static ht_status amax_step_run(const ht_launch *launch)
{
    const ht_amax_rule rule = ht_amax_rule_of(launch->call);
    const float *amax = launch->in[0], *history = launch->in[1], *scale = launch->in[2];
    float *next = launch->out[0], *next_scale = launch->out[1];
    for (int64_t s = 0; s < launch->call->in[0]->dim[0]; s++)
        next_scale[s] = ht_amax_next(&rule, history + s * rule.history, scale[s], amax[s], next + s * rule.history);
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
