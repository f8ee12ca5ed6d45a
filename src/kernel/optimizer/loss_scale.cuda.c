/* scale_step: the next loss scale and its counters.  All scalars; the scale f32 or f64.  Threads: one. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static void scale_step(ht_cuda_emission *e, const ht_launch *launch)
{
    ht_scale_rule rule = ht_scale_rule_of(launch->call);
    ht_cuda_include(e, "loss_scale");
    ht_cuda_add_grid(e, 1, 1, 0,
                     "scale_step(scale_rule{%s, %s, %lld, %lld, %lld, %af}, in0, in1, in2, in3, in4, in5, in6, out0, "
                     "out1, out2, out3, out4, out5);",
                     rule.dynamic ? "true" : "false", rule.consecutive ? "true" : "false", (long long)rule.window,
                     (long long)rule.hysteresis, (long long)rule.most_skips, (double)rule.min);
}

HT_CUDA_KERNEL(scale_step, can, NULL, scale_step)
