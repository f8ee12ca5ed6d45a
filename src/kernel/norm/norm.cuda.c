/* layernorm, rmsnorm.  x, y, scale, shift: any float but f8; the mean and 1/deviation are results; rows along the last
 * axis, row-major.  Threads: a warp for a row that it can hold, which then waits for no other; a block for a longer one.  Traffic: 1 read, 1 write.
 * Bound: bandwidth. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum {
    PACK = 8,
    WARP = 32,
    WARP_VALUES = 64, /* of a row that a thread of a warp holds; half as many of f64, or where packs are small */
    SMALL_PACK = 4,
    BLOCK_VALUES = 16,
    MOST_THREADS = 1024,
};

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static int threads_of_row(int64_t size, int pack, bool wide)
{
    if (size <= (int64_t)WARP * WARP_VALUES / (wide || pack < SMALL_PACK ? 2 : 1)) return WARP;
    int threads = HT_CUDA_THREADS;
    while (threads < MOST_THREADS && (int64_t)threads * BLOCK_VALUES < size) threads *= 2;
    return threads;
}

static void emit_norm(ht_cuda_emission *e, const ht_launch *launch, bool centred)
{
    const ht_call *call = launch->call;
    const ht_type *x = call->in[0];
    int64_t rows = ht_type_elems(call->out[1]), size = x->dim[x->rank - 1];
    int pack = ht_cuda_pack(launch, size, PACK), width = threads_of_row(size, pack, ht_cuda_has_f64(call));
    int threads = width == WARP ? HT_CUDA_THREADS : width;
    ht_cuda_number eps;
    ht_cuda_include(e, "norm");
    ht_cuda_add_grid(e, ht_cuda_blocks(rows, threads / width), threads, 0,
                     "norm_row<%lld, %lld, %d, %d, %s>(in0, %s, %s, out0, out1, %s, %s);", (long long)rows,
                     (long long)size, pack, width, centred ? "true" : "false", ht_cuda_optional(call, 1),
                     ht_cuda_optional(call, 2), centred ? "out2" : "out1",
                     ht_cuda_real(ht_call_float(call, "eps"), &eps));
}

static void layernorm(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_norm(e, launch, true);
}

static void rmsnorm(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_norm(e, launch, false);
}

HT_CUDA_KERNEL(layernorm, can, NULL, layernorm)
HT_CUDA_KERNEL(rmsnorm, can, NULL, rmsnorm)
