/* embedding_grad, scatter_add for the CUDA device. u, y: any float but f8, index i32 or i64, row-major.
 * embedding_grad sorts the positions by row: chunks in shared memory, then each key's place among all chunks. Its
 * sums are those of whole segments of sorted positions, then of rows; no atomics, so that the order depends on the
 * index alone.
 * Traffic: u once, y once, the index a few times. Bound: bandwidth.
 * scatter_add looks through all indices of a column for each element: right for the few of a gather along an axis. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum { CHUNK = 1024, SEGMENT = 64, WARP = 32 }; /* as in scatter.cu */

/* The workspace of embedding_grad, in bytes. */
typedef struct layout {
    int64_t rows, columns, count;
    int64_t chunks, sorted, first, sums, bytes;
} layout;

static layout layout_of(const ht_call *call)
{
    const ht_type *out = call->out[0];
    layout l = {.rows = out->dim[0], .columns = out->dim[1], .count = ht_type_elems(call->in[0])};
    int64_t real_bytes = out->dtype == HT_F64 || call->in[1]->dtype == HT_F64 ? 8 : 4;
    bool merged = l.count > CHUNK;
    l.sorted = merged ? l.count * 8 : 0;
    l.first = l.sorted + l.count * 8;
    l.sums = l.first + (l.rows + 1 + 3) / 4 * 16;
    l.bytes = l.sums + l.count / SEGMENT * l.columns * real_bytes;
    return l;
}

static void embedding_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    layout l = layout_of(launch->call);
    long long rows = l.rows, columns = l.columns, count = l.count, sorted = l.sorted, first = l.first, sums = l.sums;
    if (rows * columns == 0) return;
    int threads = ht_cuda_row_threads(l.columns);
    ht_cuda_include(e, "scatter");
    ht_cuda_add_grid(e, ht_cuda_blocks(l.count, CHUNK), CHUNK / 2, 0,
                     "sort_chunk<%lld, %lld>(in0, (uint64_t *)workspace);", count, rows);
    if (l.sorted != 0)
        ht_cuda_add_grid(e, ht_cuda_blocks(l.count * WARP, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                         "merge_chunks<%lld>((const uint64_t *)workspace, (uint64_t *)(workspace + %lld));", count,
                         sorted);
    ht_cuda_add_grid(e, ht_cuda_blocks(l.rows + 1, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "find_rows<%lld, %lld>((const uint64_t *)(workspace + %lld), (uint32_t *)(workspace + %lld));",
                     count, rows, sorted, first);
    ht_cuda_add_grid(e, l.count / SEGMENT, threads, 0,
                     "sum_segment<%lld, %lld>(in1, (const uint64_t *)(workspace + %lld), (real *)(workspace + %lld));",
                     rows, columns, sorted, sums);
    ht_cuda_add_grid(e, l.rows, threads, 0,
                     "sum_row<%lld>(in1, (const uint64_t *)(workspace + %lld), (const uint32_t *)(workspace + %lld), "
                     "(const real *)(workspace + %lld), out0);",
                     columns, sorted, first, sums);
}

static int64_t embedding_grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return layout_of(call).bytes;
}

static void scatter_add(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *updates = launch->call->in[1], *out = launch->call->out[0];
    int axis = ht_call_axis(launch->call, "axis", out->rank);
    int64_t elems = ht_type_elems(out);
    if (elems == 0) return;
    ht_around a = ht_around_axis(out, axis);
    ht_cuda_include(e, "scatter");
    ht_cuda_add_grid(e, ht_cuda_blocks(elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "scatter_add<%lld, %lld, %lld, %lld>(in0, in1, out0);", (long long)elems,
                     (long long)updates->dim[axis], (long long)a.size, (long long)a.inner);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

static const char *embedding_grad_can(const ht_call *call, const ht_target *target)
{
    const char *reason = can(call, target);
    if (reason) return reason;
    return ht_type_elems(call->in[0]) > INT32_MAX || call->out[0]->dim[0] >= INT32_MAX ? "more than 2^31 rows" : NULL;
}

HT_CUDA_KERNEL(embedding_grad, embedding_grad_can, embedding_grad_workspace, embedding_grad)
HT_CUDA_KERNEL(scatter_add, can, NULL, scatter_add)
