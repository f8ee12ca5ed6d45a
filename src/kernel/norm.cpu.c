/* layernorm: y[r,c] = (x[r,c]-m[r]) s[r] scale[c] + shift[c];  rmsnorm: the same with m = 0 and no shift.
 * s = 1/√(mean((x-m)²) + eps).  x, y, scale, shift: any float; m, s are results; rows along the last axis, row-major.
 * Numerics: real inside; the mean first, then squares about it; 16 lanes, fixed order; one rounding.
 * Threads: rows.  Traffic: 1 read (3 from cache), 1 write.  Bound: bandwidth. */
#include "kernel/lanes.h"
#include "op/op.h"

enum { CHUNK = 1024, GRAIN = 8192 };

typedef struct norm {
    const ht_launch *launch;
    int64_t rows, columns, rows_per_tile;
    bool centred;
    real eps;
} norm;

/* Operand i where the call has it. */
static const void *input(const norm *job, size_t i)
{
    return i < job->launch->call->n_in ? job->launch->in[i] : NULL;
}

static real row_mean(const norm *job, int64_t start)
{
    ht_dtype dtype = job->launch->call->in[0]->dtype;
    ht_lanes sum = {{0}};
    real buffer[CHUNK];
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        ht_lanes_add(&sum, c, ht_as_real(buffer, job->launch->in[0], dtype, start + c, n), n);
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
        ht_lanes_add_squares(&squares, c, ht_as_real(buffer, job->launch->in[0], dtype, start + c, n), mean, n);
    }
    real variance = job->columns ? ht_lanes_total(&squares) / (real)job->columns : 0;
    return 1 / fn_sqrt(variance + job->eps);
}

static void write_row(const norm *job, int64_t start, real mean, real rstd)
{
    const ht_call *call = job->launch->call;
    const void *scale = input(job, 1), *shift = input(job, 2);
    real buffer[CHUNK], param[CHUNK], y[CHUNK];
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        const real *x = ht_as_real(buffer, job->launch->in[0], call->in[0]->dtype, start + c, n);
        for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * rstd;
        if (scale) {
            const real *w = ht_as_real(param, scale, call->in[1]->dtype, c, n);
            for (int64_t i = 0; i < n; i++) y[i] *= w[i];
        }
        if (shift) {
            const real *b = ht_as_real(param, shift, call->in[2]->dtype, c, n);
            for (int64_t i = 0; i < n; i++) y[i] += b[i];
        }
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
}

static void norm_run(const ht_launch *launch, bool centred)
{
    const ht_type *x = launch->call->in[0];
    norm job = {.launch = launch, .centred = centred, .eps = (real)ht_call_float(launch->call, "eps")};
    job.rows = ht_type_elems(launch->call->out[1]);
    job.columns = x->dim[x->rank - 1];
    job.rows_per_tile = job.columns < GRAIN ? GRAIN / (job.columns + 1) : 1;
    ht_parallel(launch->pool, ht_tiles(job.rows, job.rows_per_tile), norm_tile, &job);
}

static void layernorm_run(const ht_launch *launch)
{
    norm_run(launch, true);
}

static void rmsnorm_run(const ht_launch *launch)
{
    norm_run(launch, false);
}

static const char *norm_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(layernorm, norm_can, NULL, layernorm_run)
HT_CPU_KERNEL(rmsnorm, norm_can, NULL, rmsnorm_run)
