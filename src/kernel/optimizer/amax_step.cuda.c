/* amax_step: the next histories and scales of tensors in f8.  All f32, row-major.  Threads: one for each tensor. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static void amax_step(ht_cuda_emission *e, const ht_launch *launch)
{
    ht_amax_rule rule = ht_amax_rule_of(launch->call);
    int64_t tensors = launch->call->in[0]->dim[0];
    ht_cuda_include(e, "amax_step");
    ht_cuda_add_grid(e, ht_cuda_blocks(tensors, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "amax_step<%lld, %lld, %lld, %d>(in0, in1, in2, out0, out1);", (long long)tensors,
                     (long long)rule.history, (long long)ht_call_int(launch->call, "top"), rule.margin);
}

HT_CUDA_KERNEL(amax_step, can, NULL, amax_step)
