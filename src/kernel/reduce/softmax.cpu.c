/* y[r,c] = exp(x[r,c]-m[r])/s[r], or x[r,c]-m[r]-log s[r].  x, y: any float, the axis anywhere, row-major.
 * Numerics: real inside, sums of chunks in double, one rounding, fixed order. FMA.
 * Threads: rows, or blocks of columns where the axis is not the last.  Traffic: 1 read, 1 write, as long as a row stays
 * in L2.  Bound: bandwidth, exponentials. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/reduce/rows.h"
#include "kernel/stream_store.h"
#include "op/op.h"

enum { COLUMNS = 256, STACK_COLUMNS = 4096 };

typedef struct softmax_job {
    const ht_launch *launch;
    ht_dtype in, out;
    ht_around around;
    bool logarithm, stream;
    int64_t grain, column_tiles;
} softmax_job;

static void log_softmax_row(const softmax_job *job, int64_t start, int64_t n)
{
    const void *from = job->launch->in[0];
    real buffer[HT_ROW_CHUNK], y[HT_ROW_CHUNK], max = ht_row_max(from, job->in, start, n);
    real log_sum = fn_log((real)ht_row_sum_exp(from, job->in, start, n, max));
    for (int64_t at = 0; at < n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, n - at);
        const real *x = ht_view(buffer, from, job->in, start + at, count);
        for (int64_t i = 0; i < count; i++) y[i] = x[i] - max - log_sum;
        ht_save_streamed(job->launch->out[0], job->out, start + at, y, count, job->stream);
    }
}

/* Exponentials are taken once: short rows keep them on the stack, long ones in y if it can hold them, else in nothing:
 * then they are taken again. */
static void softmax_row(const softmax_job *job, int64_t start, int64_t n)
{
    const void *from = job->launch->in[0];
    bool real_out = job->out == HT_REAL_DTYPE;
    real buffer[HT_ROW_CHUNK], on_stack[STACK_COLUMNS], max = ht_row_max(from, job->in, start, n);
    real *e = n <= STACK_COLUMNS ? on_stack : real_out ? (real *)job->launch->out[0] + start : NULL;
    double sum = 0;
    for (int64_t at = 0; at < n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, n - at);
        const real *x = ht_view(buffer, from, job->in, start + at, count);
        sum += (double)ht_row_exp(e ? e + at : buffer, x, max, count, n <= STACK_COLUMNS ? n : 0);
    }
    real scale = 1 / (real)sum;
    for (int64_t at = 0; at < n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, n - at);
        real *y = e ? e + at : buffer;
        if (!e) ht_row_exp(buffer, ht_view(buffer, from, job->in, start + at, count), max, count, 0);
        for (int64_t i = 0; i < count; i++) y[i] *= scale;
        if (e == on_stack || !e) ht_save_streamed(job->launch->out[0], job->out, start + at, y, count, job->stream);
    }
}

static void row_tile(void *arg, int64_t tile)
{
    const softmax_job *job = arg;
    int64_t n = job->around.size;
    for (int64_t r = tile * job->grain; r < ht_min_i64(job->around.outer, (tile + 1) * job->grain); r++)
        (job->logarithm ? log_softmax_row : softmax_row)(job, r * n, n);
    if (job->stream) ht_nt_fence();
}

/* Neighbouring columns in step, so that memory is read along its rows. */
static void column_tile(void *arg, int64_t tile)
{
    const softmax_job *job = arg;
    const void *from = job->launch->in[0];
    int64_t n = job->around.size, inner = job->around.inner, column = tile % job->column_tiles * COLUMNS;
    int64_t count = ht_min_i64(COLUMNS, inner - column), start = tile / job->column_tiles * n * inner + column;
    real x[COLUMNS], max[COLUMNS], shift[COLUMNS];
    double sum[COLUMNS] = {0};
    for (int64_t i = 0; i < count; i++) max[i] = -(real)INFINITY;
    for (int64_t k = 0; k < n; k++) {
        ht_load(x, from, job->in, start + k * inner, count);
        for (int64_t i = 0; i < count; i++) max[i] = x[i] > max[i] ? x[i] : max[i];
    }
    for (int64_t k = 0; k < n; k++) {
        ht_load(x, from, job->in, start + k * inner, count);
        for (int64_t i = 0; i < count; i++) sum[i] += (double)fn_exp(x[i] - max[i]);
    }
    for (int64_t i = 0; i < count; i++) shift[i] = job->logarithm ? fn_log((real)sum[i]) : 1 / (real)sum[i];
    for (int64_t k = 0; k < n; k++) {
        ht_load(x, from, job->in, start + k * inner, count);
        if (job->logarithm)
            for (int64_t i = 0; i < count; i++) x[i] = x[i] - max[i] - shift[i];
        else
            for (int64_t i = 0; i < count; i++) x[i] = fn_exp(x[i] - max[i]) * shift[i];
        ht_save(job->launch->out[0], job->out, start + k * inner, x, count);
    }
}

static void softmax_any(const ht_launch *launch, bool logarithm)
{
    const ht_type *x = launch->call->in[0];
    softmax_job job = {
        .launch = launch,
        .in = x->dtype,
        .out = launch->call->out[0]->dtype,
        .around = ht_around_axis(x, ht_call_axis(launch->call, "axis", x->rank)),
        .logarithm = logarithm,
        .stream = ht_type_bytes(launch->call->out[0]) >= HT_NT_STORE_BYTES && launch->in[0] != launch->out[0],
    };
    job.grain = ht_row_grain(job.around.size);
    job.column_tiles = ht_tiles(job.around.inner, COLUMNS);
    if (job.around.size == 0) return;
    if (job.around.inner == 1)
        ht_parallel(launch->pool, ht_tiles(job.around.outer, job.grain), row_tile, &job);
    else
        ht_parallel(launch->pool, job.around.outer * job.column_tiles, column_tile, &job);
}

static ht_status softmax_run(const ht_launch *launch)
{
    softmax_any(launch, false);
    return HT_OK;
}

static ht_status log_softmax_run(const ht_launch *launch)
{
    softmax_any(launch, true);
    return HT_OK;
}

static const char *softmax_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(softmax, softmax_can, NULL, softmax_run)
HT_CPU_KERNEL(log_softmax, softmax_can, NULL, log_softmax_run)
