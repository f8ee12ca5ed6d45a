/* argmax along any axis, topk along the last.  x, values: any float but f8, row-major; indices: i64.
 * Threads: a block for a row, or a thread for a column where the axis is not the last.  Traffic: 1 read; topk k reads,
 * most of them from the caches.  Bound: bandwidth. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static void argmax(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    ht_around a = ht_around_axis(x, ht_call_axis(launch->call, "axis", x->rank));
    int threads = ht_cuda_row_threads(a.size);
    ht_cuda_include(e, "argmax");
    if (a.inner == 1)
        ht_cuda_add_grid(e, a.outer, threads, 0, "argmax_row<%lld, %d>(in0, out0);", (long long)a.size, threads);
    else
        ht_cuda_add_grid(e, ht_cuda_blocks(a.outer * a.inner, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                         "argmax_column<%lld, %lld, %lld>(in0, out0);", (long long)a.outer, (long long)a.size,
                         (long long)a.inner);
}

static void topk(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    int64_t size = x->dim[x->rank - 1], k = ht_call_int(launch->call, "k");
    int threads = ht_cuda_row_threads(size);
    if (k == 0) return;
    ht_cuda_include(e, "argmax");
    ht_cuda_add_grid(e, ht_type_elems(x) / size, threads, 0, "topk_row<%lld, %lld, %d>(in0, out0, out1);",
                     (long long)size, (long long)k, threads);
}

HT_CUDA_KERNEL(argmax, can, NULL, argmax)
HT_CUDA_KERNEL(topk, can, NULL, topk)
