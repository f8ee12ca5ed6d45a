/* softmax, log_softmax.  x, y: any float but f8, the axis anywhere, row-major.  Bound: bandwidth. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static void emit_softmax(ht_cuda_emission *e, const ht_call *call, bool logarithm)
{
    ht_around a = ht_around_axis(call->in[0], ht_call_axis(call, "axis", call->in[0]->rank));
    if (a.outer * a.size * a.inner == 0) return;
    ht_cuda_include(e, "softmax");
    if (a.inner == 1)
        ht_cuda_add_grid(e, a.outer, ht_cuda_row_threads(a.size), 0, "softmax_row<%lld, %d>(in0, out0);",
                         (long long)a.size, logarithm);
    else
        ht_cuda_add_grid(e, ht_cuda_blocks(a.outer * a.inner, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                         "softmax_column<%lld, %lld, %lld, %d>(in0, out0);", (long long)a.outer, (long long)a.size,
                         (long long)a.inner, logarithm);
}

static void softmax(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_softmax(e, launch->call, false);
}

static void log_softmax(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_softmax(e, launch->call, true);
}

HT_CUDA_KERNEL(softmax, can, NULL, softmax)
HT_CUDA_KERNEL(log_softmax, can, NULL, log_softmax)
