/* y[k] = x[0] + … + x[k] along an axis, or from the other end.  x, y: any float, row-major.
 * Numerics: sums in double, each rounded once on its way out.
 * Threads: rows, or blocks of columns where the axis is not the last.  Traffic: 1 read, 1 write.
 * Bound: the latency of an addition along a row, bandwidth across columns. */
#include "kernel/reduce/rows.h"
#include "op/op.h"

enum { COLUMNS = 256 };

typedef struct cumsum_job {
    const ht_launch *launch;
    ht_dtype in, out;
    ht_around around;
    bool reverse;
    int64_t grain, column_tiles;
} cumsum_job;

static void cumsum_row(const cumsum_job *job, int64_t start, int64_t n)
{
    real x[HT_ROW_CHUNK];
    double sum = 0;
    for (int64_t at = 0; at < n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, n - at), first = start + (job->reverse ? n - at - count : at);
        ht_load(x, job->launch->in[0], job->in, first, count);
        for (int64_t k = 0; k < count; k++) {
            int64_t i = job->reverse ? count - 1 - k : k;
            sum += (double)x[i];
            x[i] = (real)sum;
        }
        ht_save(job->launch->out[0], job->out, first, x, count);
    }
}

static void row_tile(void *arg, int64_t tile)
{
    const cumsum_job *job = arg;
    int64_t n = job->around.size;
    for (int64_t r = tile * job->grain; r < ht_min_i64(job->around.outer, (tile + 1) * job->grain); r++)
        cumsum_row(job, r * n, n);
}

static void column_tile(void *arg, int64_t tile)
{
    const cumsum_job *job = arg;
    int64_t n = job->around.size, inner = job->around.inner, column = tile % job->column_tiles * COLUMNS;
    int64_t count = ht_min_i64(COLUMNS, inner - column);
    real x[COLUMNS];
    double sum[COLUMNS] = {0};
    for (int64_t k = 0; k < n; k++) {
        int64_t row = tile / job->column_tiles * n + (job->reverse ? n - 1 - k : k);
        ht_load(x, job->launch->in[0], job->in, row * inner + column, count);
        for (int64_t i = 0; i < count; i++) {
            sum[i] += (double)x[i];
            x[i] = (real)sum[i];
        }
        ht_save(job->launch->out[0], job->out, row * inner + column, x, count);
    }
}

static ht_status cumsum_run(const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0];
    cumsum_job job = {
        .launch = launch,
        .in = x->dtype,
        .out = launch->call->out[0]->dtype,
        .around = ht_around_axis(x, ht_call_axis(launch->call, "axis", x->rank)),
        .reverse = ht_call_int(launch->call, "reverse"),
    };
    job.grain = ht_row_grain(job.around.size);
    job.column_tiles = ht_tiles(job.around.inner, COLUMNS);
    if (job.around.inner == 1)
        ht_parallel(launch->pool, ht_tiles(job.around.outer, job.grain), row_tile, &job);
    else
        ht_parallel(launch->pool, job.around.outer * job.column_tiles, column_tile, &job);
    return HT_OK;
}

static const char *cumsum_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(cumsum, cumsum_can, NULL, cumsum_run)
