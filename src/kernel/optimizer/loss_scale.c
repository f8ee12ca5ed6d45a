/* scale_step: the next loss scale and its counters.  All scalars; the scale f32 or f64.
 * Numerics: halves and doubles in f32, the same function as the reference.  Threads: one.  Everything is read before
 * anything is written, so that the results may lie over the inputs. */
#include "kernel/kernel.h"
#include "op/op.h"

static ht_status scale_step_run(const ht_launch *launch)
{
    ht_scale_rule rule = ht_scale_rule_of(launch->call);
    ht_dtype dtype = launch->call->in[1]->dtype; /* of the scale */
    const void *const *in = launch->in;
    void *const *out = launch->out;
    ht_scale_state now = {
        .scale = (float)ht_round_to(HT_F32, ht_load_f64(in[1], dtype, 0)),
        .hysteresis = *(const int64_t *)in[2],
        .iteration = *(const int64_t *)in[3],
        .last = *(const int64_t *)in[4],
        .skips = *(const int64_t *)in[5],
        .fatal = *(const uint8_t *)in[6] != 0,
    };
    ht_scale_state next = ht_scale_next(&rule, now, *(const uint8_t *)in[0] != 0);
    ht_store_f64(out[0], dtype, 0, (double)next.scale);
    *(int64_t *)out[1] = next.hysteresis;
    *(int64_t *)out[2] = next.iteration;
    *(int64_t *)out[3] = next.last;
    *(int64_t *)out[4] = next.skips;
    *(uint8_t *)out[5] = next.fatal;
    return HT_OK;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)call, (void)target;
    return NULL; /* scalars have no strides */
}

extern const ht_kernel ht_kernel_scale_step;
const ht_kernel ht_kernel_scale_step = {
    .size = sizeof(ht_kernel), .op = "scale_step", .name = "scale_step", .can = can, .run = scale_step_run};
