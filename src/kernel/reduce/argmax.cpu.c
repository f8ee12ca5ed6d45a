/* y = index of the largest x along an axis, the first of equals, NaN above all.  x: any float, row-major; y: i64.
 * Numerics: exact.  Threads: rows, or blocks of columns where the axis is not the last.  Traffic: 1 read.
 * Bound: bandwidth, or the comparisons of a row. */
#include "kernel/reduce/rows.h"
#include "op/op.h"

enum { COLUMNS = 256 };

typedef struct argmax_job {
    const ht_launch *launch;
    ht_dtype dtype;
    ht_around around;
    int64_t grain, column_tiles;
} argmax_job;

static inline bool beats(real x, real best)
{
    return x > best || (x != x && best == best);
}

static int64_t argmax_row(const argmax_job *job, int64_t start, int64_t n)
{
    real x[HT_ROW_CHUNK], best = 0;
    int64_t index = 0;
    for (int64_t at = 0; at < n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, n - at);
        ht_load(x, job->launch->in[0], job->dtype, start + at, count);
        if (at == 0) best = x[0];
        for (int64_t i = 0; i < count; i++) {
            if (!beats(x[i], best)) continue;
            best = x[i];
            index = at + i;
        }
    }
    return index;
}

static void row_tile(void *arg, int64_t tile)
{
    const argmax_job *job = arg;
    int64_t *y = job->launch->out[0], n = job->around.size;
    for (int64_t r = tile * job->grain; r < ht_min_i64(job->around.outer, (tile + 1) * job->grain); r++)
        y[r] = argmax_row(job, r * n, n);
}

static void column_tile(void *arg, int64_t tile)
{
    const argmax_job *job = arg;
    int64_t n = job->around.size, inner = job->around.inner, outer = tile / job->column_tiles;
    int64_t column = tile % job->column_tiles * COLUMNS, count = ht_min_i64(COLUMNS, inner - column);
    int64_t *y = (int64_t *)job->launch->out[0] + outer * inner + column;
    real x[COLUMNS], best[COLUMNS];
    ht_load(best, job->launch->in[0], job->dtype, outer * n * inner + column, count);
    memset(y, 0, (size_t)count * sizeof *y);
    for (int64_t k = 1; k < n; k++) {
        ht_load(x, job->launch->in[0], job->dtype, (outer * n + k) * inner + column, count);
        for (int64_t i = 0; i < count; i++) {
            if (!beats(x[i], best[i])) continue;
            best[i] = x[i];
            y[i] = k;
        }
    }
}

static ht_status argmax_run(const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    argmax_job job = {launch, x->dtype, ht_around_axis(x, ht_call_axis(launch->call, "axis", x->rank)), 0, 0};
    job.grain = ht_row_grain(job.around.size);
    job.column_tiles = ht_tiles(job.around.inner, COLUMNS);
    if (job.around.inner == 1)
        ht_parallel(launch->pool, ht_tiles(job.around.outer, job.grain), row_tile, &job);
    else
        ht_parallel(launch->pool, job.around.outer * job.column_tiles, column_tile, &job);
    return HT_OK;
}

static const char *argmax_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(argmax, argmax_can, NULL, argmax_run)
