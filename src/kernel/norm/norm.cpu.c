/* layernorm: y[r,c] = (x[r,c]-m[r]) s[r] scale[c] + shift[c];  rmsnorm: the same with m = 0 and no shift.
 * s = 1/√(mean((x-m)²) + eps).  x, y, scale, shift: any float; m, s are results; rows along the last axis, row-major.
 * Numerics: real inside; the mean first, then squares about it; 32 lanes, fixed order; one rounding.
 * Threads: rows.  Traffic: 1 read (2 more from L1, while the next row is on its way), 1 write, past the caches where y is
 * large.  Bound: bandwidth. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/lanes.h"
#include "kernel/stream_store.h"
#include "op/op.h"

enum { CHUNK = 1024, GRAIN = 8192 };

typedef struct norm {
    const ht_launch *launch;
    int64_t rows, columns, rows_per_tile;
    bool centred, stream;
    real eps;
} norm;

/* n parameters from column c, or n times `missing` where the call has none. */
static const real *param(const norm *job, size_t i, real *buffer, int64_t c, int64_t n, real missing)
{
    const ht_call *call = job->launch->call;
    if (i < call->n_in && call->in[i]) return ht_view(buffer, job->launch->in[i], call->in[i]->dtype, c, n);
    for (int64_t k = 0; k < n; k++) buffer[k] = missing;
    return buffer;
}

static real row_mean(const norm *job, int64_t start)
{
    ht_dtype dtype = job->launch->call->in[0]->dtype;
    ht_lanes sum = {{0}};
    real buffer[CHUNK];
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        ht_lanes_add(&sum, c, ht_view(buffer, job->launch->in[0], dtype, start + c, n), n);
    }
    return job->columns ? ht_lanes_total(&sum) / (real)job->columns : 0;
}

static real row_rstd(const norm *job, int64_t start, real mean)
{
    ht_dtype dtype = job->launch->call->in[0]->dtype;
    ht_lanes squares = {{0}};
    real buffer[CHUNK];
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        ht_lanes_add_squares(&squares, c, ht_view(buffer, job->launch->in[0], dtype, start + c, n), mean, n);
    }
    real variance = job->columns ? ht_lanes_total(&squares) / (real)job->columns : 0;
    return 1 / fn_sqrt(variance + job->eps);
}

/* y of whole vectors, past the caches. Each turn also fetches a line `prefetch_distance` elements on. */
static void write_streamed(real *y, const real *x, const real *scale, const real *shift, real mean, real rstd,
                           int64_t n, int64_t prefetch_distance)
{
    for (int64_t i = 0; i < n; i += VL) {
        __builtin_prefetch(x + i + prefetch_distance);
        vec_unaligned h = (vec_at(x + i, 0) - mean) * rstd;
        ht_vector_stream_store(y + i, h * vec_at(scale + i, 0) + vec_at(shift + i, 0));
    }
}

static void write_row(const norm *job, int64_t start, real mean, real rstd)
{
    const ht_call *call = job->launch->call;
    real buffer[CHUNK], scale_buffer[CHUNK], shift_buffer[CHUNK], y[CHUNK];
    int64_t prefetch_distance = job->columns <= CHUNK ? 2 * job->columns : 0; /* rows that three of fit into L1 */
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        const real *x = ht_view(buffer, job->launch->in[0], call->in[0]->dtype, start + c, n);
        const real *scale = param(job, 1, scale_buffer, c, n, 1), *shift = param(job, 2, shift_buffer, c, n, 0);
        if (job->stream) {
            write_streamed((real *)job->launch->out[0] + start + c, x, scale, shift, mean, rstd, n, prefetch_distance);
            continue;
        }
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd * scale[i] + shift[i];
        ht_save(job->launch->out[0], call->out[0]->dtype, start + c, y, n);
    }
}

static void norm_tile(void *arg, int64_t tile)
{
    const norm *job = arg;
    const ht_launch *launch = job->launch;
    int64_t first = tile * job->rows_per_tile;
    size_t last = launch->call->n_out - 1;
    for (int64_t r = first; r < ht_min_i64(job->rows, first + job->rows_per_tile); r++) {
        real mean = job->centred ? row_mean(job, r * job->columns) : 0;
        real rstd = row_rstd(job, r * job->columns, mean);
        write_row(job, r * job->columns, mean, rstd);
        if (job->centred) ht_save1(launch->out[1], launch->call->out[1]->dtype, r, mean);
        ht_save1(launch->out[last], launch->call->out[last]->dtype, r, rstd);
    }
    if (job->stream) ht_nt_fence();
}

static void norm_run(const ht_launch *launch, bool centred)
{
    const ht_type *x = launch->call->in[0];
    norm job = {.launch = launch, .centred = centred, .eps = (real)ht_call_float(launch->call, "eps")};
    job.rows = ht_type_elems(launch->call->out[1]);
    job.columns = x->dim[x->rank - 1];
    job.rows_per_tile = job.columns < GRAIN ? GRAIN / (job.columns + 1) : 1;
    job.stream = ht_type_bytes(launch->call->out[0]) >= HT_NT_STORE_BYTES &&
                 ht_rows_can_stream(launch->out[0], launch->call->out[0]->dtype, job.columns);
    ht_parallel(launch->pool, ht_tiles(job.rows, job.rows_per_tile), norm_tile, &job);
}

static ht_status layernorm_run(const ht_launch *launch)
{
    norm_run(launch, true);
    return HT_OK;
}

static ht_status rmsnorm_run(const ht_launch *launch)
{
    norm_run(launch, false);
    return HT_OK;
}

static const char *norm_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(layernorm, norm_can, NULL, layernorm_run)
HT_CPU_KERNEL(rmsnorm, norm_can, NULL, rmsnorm_run)
