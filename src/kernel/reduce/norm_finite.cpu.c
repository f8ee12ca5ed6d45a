/* norm_finite: y = √Σx² as f64, and: is no x infinite or NaN?  sum_squares_finite: y = s + Σx², where s is the sum of what
 * comes before x, and finite only if that was.  x: any float, row-major.
 * Numerics: squares are summed in double, in a fixed order: each block alone, then one block after the other. So parts of
 * whole blocks, each with the sum of those before it, have the sum of the whole, to the last bit. 2^63 squares of the
 * largest f32 do not overflow there, so the sum is finite exactly if every x is; the double build, whose squares may
 * overflow, looks again where the sum is not finite.
 * Threads: blocks of x, whose sums wait in the workspace.  Traffic: 1 read.  Bound: bandwidth. */
#include "kernel/cpu.h"

#include "op/op.h"

enum { BLOCK = HT_SUM_SQUARES_BLOCK, CHUNK = 1024, LANES = 32 };

typedef struct norm_job {
    const ht_launch *launch;
    int64_t elems;
} norm_job;

static void norm_tile(void *arg, int64_t tile)
{
    const norm_job *job = arg;
    int64_t end = ht_min_i64(job->elems, (tile + 1) * BLOCK);
    double sum[LANES] = {0};
    for (int64_t at = tile * BLOCK; at < end; at += CHUNK) {
        real stage[CHUNK];
        int64_t n = ht_min_i64(CHUNK, end - at), i = 0;
        const real *x = ht_view(stage, job->launch->in[0], job->launch->call->in[0]->dtype, at, n);
        for (; i + LANES <= n; i += LANES)
            for (int k = 0; k < LANES; k++) sum[k] += (double)x[i + k] * (double)x[i + k];
        for (int k = 0; i + k < n; k++) sum[k] += (double)x[i + k] * (double)x[i + k];
    }
    for (int width = LANES / 2; width; width /= 2)
        for (int k = 0; k < width; k++) sum[k] += sum[k + width];
    ((double *)job->launch->workspace)[tile] = sum[0];
}

static bool is_every_one_finite(const norm_job *job)
{
    if (sizeof(real) == sizeof(float)) return false; /* or the sum had been finite */
    const double *x = job->launch->in[0];
    for (int64_t i = 0; i < job->elems; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* The sum of the squares, from `sum` on. */
static double add_squares(const ht_launch *launch, double sum, bool *finite)
{
    norm_job job = {launch, ht_type_elems(launch->call->in[0])};
    int64_t tiles = ht_tiles(job.elems, BLOCK);
    const double *partial = launch->workspace;
    ht_parallel(launch->pool, tiles, norm_tile, &job);
    for (int64_t i = 0; i < tiles; i++) sum += partial[i];
    *finite = isfinite(sum) || is_every_one_finite(&job);
    return sum;
}

static ht_status norm_finite_run(const ht_launch *launch)
{
    bool finite;
    *(double *)launch->out[0] = sqrt(add_squares(launch, 0, &finite));
    *(uint8_t *)launch->out[1] = finite;
    return HT_OK;
}

static ht_status sum_squares_finite_run(const ht_launch *launch)
{
    bool goes_on = launch->call->n_in > 1, finite;
    double before = goes_on ? *(const double *)launch->in[1] : 0;
    uint8_t before_finite = goes_on ? *(const uint8_t *)launch->in[2] : 1;
    *(double *)launch->out[0] = add_squares(launch, before, &finite);
    *(uint8_t *)launch->out[1] = before_finite && finite;
    return HT_OK;
}

static int64_t norm_finite_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_tiles(ht_type_elems(call->in[0]), BLOCK) * (int64_t)sizeof(double);
}

static const char *norm_finite_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    bool wide = call->in[0]->dtype == HT_F64;
    if (wide != (sizeof(real) == sizeof(double))) return wide ? "x is f64" : "x is not f64";
    return ht_refuse_strided(call);
}

HT_CPU_KERNEL(norm_finite, norm_finite_can, norm_finite_workspace, norm_finite_run)
HT_CPU_KERNEL(sum_squares_finite, norm_finite_can, norm_finite_workspace, sum_squares_finite_run)
