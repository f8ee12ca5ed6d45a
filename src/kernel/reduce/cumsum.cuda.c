/* cumsum along any axis.  x, y: any float but f8, row-major.  Threads: a block for a row, or a thread for a column where
 * the axis is not the last.  Traffic: 1 read, 1 write.  Bound: bandwidth. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static void cumsum(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    ht_around a = ht_around_axis(x, ht_call_axis(launch->call, "axis", x->rank));
    const char *reverse = ht_call_int(launch->call, "reverse") ? "true" : "false";
    int threads = ht_cuda_row_threads(a.size);
    if (a.outer * a.size * a.inner == 0) return;
    ht_cuda_include(e, "cumsum");
    if (a.inner == 1)
        ht_cuda_add_grid(e, a.outer, threads, 0, "cumsum_row<%lld, %d, %s>(in0, out0);", (long long)a.size, threads,
                         reverse);
    else
        ht_cuda_add_grid(e, ht_cuda_blocks(a.outer * a.inner, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                         "cumsum_column<%lld, %lld, %lld, %s>(in0, out0);", (long long)a.outer, (long long)a.size,
                         (long long)a.inner, reverse);
}

HT_CUDA_KERNEL(cumsum, can, NULL, cumsum)
