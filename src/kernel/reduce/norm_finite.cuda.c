/* norm_finite, sum_squares_finite, all_finite.  x: any float but f8, row-major.  Threads: blocks of x, whose results wait in the workspace;
 * one block joins them.  Traffic: 1 read.  Bound: bandwidth. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum { PART = 16384, PACK = 8, JOIN_THREADS = 1024, PART_BYTES = 2 * sizeof(double) };

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static int64_t parts_of(const ht_call *call)
{
    return ht_cuda_blocks(ht_type_elems(call->in[0]), PART);
}

static int64_t norm_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return parts_of(call) * PART_BYTES;
}

static int64_t finite_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return parts_of(call);
}

static void add_norm_parts(ht_cuda_emission *e, const ht_launch *launch)
{
    int64_t elems = ht_type_elems(launch->call->in[0]);
    ht_cuda_include(e, "norm_finite");
    ht_cuda_add_grid(e, parts_of(launch->call), HT_CUDA_THREADS, 0,
                     "norm_finite_part<%lld, %d, %d>(in0, (norm_part *)workspace);", (long long)elems, PART,
                     ht_cuda_pack(launch, elems, PACK));
}

static void norm_finite(ht_cuda_emission *e, const ht_launch *launch)
{
    add_norm_parts(e, launch);
    ht_cuda_add_grid(e, 1, JOIN_THREADS, 0, "norm_finite_join<%lld>(in0, (const norm_part *)workspace, out0, out1);",
                     (long long)parts_of(launch->call));
}

static void sum_squares_finite(ht_cuda_emission *e, const ht_launch *launch)
{
    bool goes_on = launch->call->n_in > 1;
    add_norm_parts(e, launch);
    ht_cuda_add_grid(e, 1, JOIN_THREADS, 0,
                     "sum_squares_join<%lld>(in0, (const norm_part *)workspace, %s, %s, out0, out1);",
                     (long long)parts_of(launch->call), goes_on ? "in1" : "(const double *)nullptr",
                     goes_on ? "in2" : "(const boolean *)nullptr");
}

static void all_finite(ht_cuda_emission *e, const ht_launch *launch)
{
    int64_t elems = ht_type_elems(launch->call->in[0]), parts = parts_of(launch->call);
    ht_cuda_include(e, "norm_finite");
    ht_cuda_add_grid(e, parts, HT_CUDA_THREADS, 0, "all_finite_part<%lld, %d, %d>(in0, (boolean *)workspace);",
                     (long long)elems, PART, ht_cuda_pack(launch, elems, PACK));
    ht_cuda_add_grid(e, 1, JOIN_THREADS, 0, "all_finite_join<%lld>((const boolean *)workspace, out0);",
                     (long long)parts);
}

HT_CUDA_KERNEL(norm_finite, can, norm_workspace, norm_finite)
HT_CUDA_KERNEL(sum_squares_finite, can, norm_workspace, sum_squares_finite)
HT_CUDA_KERNEL(all_finite, can, finite_workspace, all_finite)
