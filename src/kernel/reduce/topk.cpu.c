/* The k largest of each row, descending, with their indices; equal values by lower index, NaN above all.
 * x, values: any float, row-major; indices: i64.
 * Numerics: exact.  Threads: rows.  Traffic: 1 read.  Bound: bandwidth for small k, else n log k comparisons.
 * A row's indices are a heap in the result itself, whose root comes last in order; values are read where they lie. */
#include "kernel/reduce/rows.h"
#include "op/op.h"

typedef struct topk_job {
    const ht_launch *launch;
    ht_dtype dtype;
    int64_t rows, n, k, grain;
} topk_job;

typedef struct topk_row {
    const topk_job *job;
    int64_t start; /* of the row in x */
    int64_t *heap;
} topk_row;

static inline bool before(real x, int64_t i, real y, int64_t j)
{
    bool x_nan = x != x, y_nan = y != y;
    if (x_nan || y_nan) return x_nan && (!y_nan || i < j);
    return x > y || (x == y && i < j);
}

static real value_at(const topk_row *row, int64_t index)
{
    return ht_load1(row->job->launch->in[0], row->job->dtype, row->start + index);
}

static bool entry_before(const topk_row *row, int64_t i, int64_t j)
{
    return before(value_at(row, i), i, value_at(row, j), j);
}

/* Restores the heap of `size` below `at`: no entry comes before its children. */
static void sift_down(const topk_row *row, int64_t at, int64_t size)
{
    int64_t *heap = row->heap, moving = heap[at];
    for (int64_t child; (child = 2 * at + 1) < size; at = child) {
        if (child + 1 < size && entry_before(row, heap[child], heap[child + 1])) child++;
        if (!entry_before(row, moving, heap[child])) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void choose_row(const topk_row *row)
{
    const topk_job *job = row->job;
    int64_t k = job->k;
    for (int64_t i = 0; i < k; i++) row->heap[i] = i;
    for (int64_t i = k / 2; i-- > 0;) sift_down(row, i, k);
    real x[HT_ROW_CHUNK], last = value_at(row, row->heap[0]);
    for (int64_t at = k; at < job->n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, job->n - at);
        ht_load(x, job->launch->in[0], job->dtype, row->start + at, count);
        for (int64_t i = 0; i < count; i++) {
            if (!before(x[i], at + i, last, row->heap[0])) continue;
            row->heap[0] = at + i;
            sift_down(row, 0, k);
            last = value_at(row, row->heap[0]);
        }
    }
    for (int64_t size = k - 1; size > 0; size--) { /* the root is the last of those left */
        int64_t root = row->heap[0];
        row->heap[0] = row->heap[size];
        row->heap[size] = root;
        sift_down(row, 0, size);
    }
}

static void topk_tile(void *arg, int64_t tile)
{
    const topk_job *job = arg;
    for (int64_t r = tile * job->grain; r < ht_min_i64(job->rows, (tile + 1) * job->grain); r++) {
        topk_row row = {job, r * job->n, (int64_t *)job->launch->out[1] + r * job->k};
        choose_row(&row);
        for (int64_t i = 0; i < job->k; i++)
            ht_save1(job->launch->out[0], job->dtype, r * job->k + i, value_at(&row, row.heap[i]));
    }
}

static ht_status topk_run(const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    topk_job job = {launch, x->dtype, 1, x->dim[x->rank - 1], ht_call_int(launch->call, "k"), 0};
    if (job.k == 0) return HT_OK;
    for (int i = 0; i < x->rank - 1; i++) job.rows *= x->dim[i];
    job.grain = ht_row_grain(job.n);
    ht_parallel(launch->pool, ht_tiles(job.rows, job.grain), topk_tile, &job);
    return HT_OK;
}

static const char *topk_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(topk, topk_can, NULL, topk_run)
