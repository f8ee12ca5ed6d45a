/* quantize_dynamic: scales and zero points from the ranges of x, and x as codes.  x: f32, f16, bf16, row-major; y: i8, u8.
 * Where a row of the last axis has a scale of its own, it is read twice while it is in L1. Else the ranges come first: of lines, if
 * the last axis shares a scale, or of stripes of columns; then all codes.
 * Numerics: op/quantize_linear.h; ranges do not depend on the order, so every build has the same bits.
 * Threads: lines, or stripes of columns.  Traffic: x once by rows, else twice; y once.  Bound: bandwidth. */
#include <string.h>

#include "kernel/simd.h"
#include "op/op.h"

enum { CHUNK = 1024, LINES = 8, STRIPE = 256, WAYS = 2 };

typedef struct dynamic_job {
    const ht_launch *launch;
    ht_code_groups groups;
    int64_t lines, columns;
    bool shared;           /* a line has one scale */
    ht_code_range *ranges; /* of lines if it is shared, else of groups */
} dynamic_job;

static void include_value(ht_code_range *range, float value)
{
    range->low = value < range->low ? value : range->low;
    range->high = value > range->high ? value : range->high;
    range->finite += value * 0;
}

static vec pick(vec_mask condition, vec a, vec b)
{
    return (vec)(((vec_mask)a & condition) | ((vec_mask)b & ~condition));
}

static void include_values(ht_code_range *range, const real *x, int64_t n)
{
    vec low[WAYS] = {{0}}, high[WAYS] = {{0}}, finite[WAYS] = {{0}};
    int64_t i = 0;
    for (; i + WAYS * VL <= n; i += WAYS * VL)
        for (int w = 0; w < WAYS; w++) {
            vec v = vec_at(x + i, w);
            low[w] = pick(v < low[w], v, low[w]);
            high[w] = pick(v > high[w], v, high[w]);
            finite[w] += v * (real)0;
        }
    for (int w = 0; w < WAYS; w++)
        for (int lane = 0; lane < VL; lane++) {
            include_value(range, (float)low[w][lane]);
            include_value(range, (float)high[w][lane]);
            range->finite += (float)finite[w][lane];
        }
    for (; i < n; i++) include_value(range, (float)x[i]);
}

static ht_code_range range_of_line(const dynamic_job *job, int64_t line)
{
    const ht_launch *l = job->launch;
    ht_code_range range = {0};
    real x[CHUNK];
    for (int64_t at = 0; at < job->columns; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - at);
        include_values(&range, ht_view(x, l->in[0], l->call->in[0]->dtype, line * job->columns + at, n), n);
    }
    return range;
}

static void set_scale(const dynamic_job *job, int64_t group, const ht_code_range *range)
{
    const ht_launch *l = job->launch;
    float *scales = l->out[1];
    int32_t *zeros = l->out[2];
    scales[group] = ht_dynamic_scale(l->call->out[0]->dtype, range, &zeros[group]);
}

static ht_coding coding_of(const dynamic_job *job, int64_t group)
{
    const ht_launch *l = job->launch;
    return ht_coding_of(l->call->out[0]->dtype, ((const float *)l->out[1])[group], ((const int32_t *)l->out[2])[group]);
}

static void code_line(const dynamic_job *job, int64_t line)
{
    const ht_launch *l = job->launch;
    int64_t first = line * job->columns, group = ht_code_group(&job->groups, first);
    real x[CHUNK];
    for (int64_t at = 0; at < job->columns; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - at);
        uint8_t *y = (uint8_t *)l->out[0] + first + at;
        const real *from = ht_view(x, l->in[0], l->call->in[0]->dtype, first + at, n);
        const ht_coding coding = coding_of(job, group);
        if (job->shared)
            for (int64_t i = 0; i < n; i++) y[i] = (uint8_t)ht_code_of(&coding, (float)from[i]);
        for (int64_t i = 0; i < n && !job->shared; i++) {
            const ht_coding own = coding_of(job, group + at + i);
            y[i] = (uint8_t)ht_code_of(&own, (float)from[i]);
        }
    }
}

/* ---- tiles ---- */

static void whole_rows(void *arg, int64_t tile)
{
    const dynamic_job *job = arg;
    for (int64_t line = tile * LINES; line < ht_min_i64((tile + 1) * LINES, job->lines); line++) {
        ht_code_range range = range_of_line(job, line);
        set_scale(job, line, &range);
        code_line(job, line);
    }
}

static void find_line_ranges(void *arg, int64_t tile)
{
    const dynamic_job *job = arg;
    for (int64_t line = tile * LINES; line < ht_min_i64((tile + 1) * LINES, job->lines); line++)
        job->ranges[line] = range_of_line(job, line);
}

static void find_stripe_ranges(void *arg, int64_t stripe)
{
    const dynamic_job *job = arg;
    const ht_launch *l = job->launch;
    int64_t column = stripe * STRIPE, n = ht_min_i64(STRIPE, job->columns - column);
    real x[STRIPE];
    for (int64_t line = 0; line < job->lines; line++) {
        int64_t first = line * job->columns + column;
        ht_code_range *range = job->ranges + ht_code_group(&job->groups, first);
        const real *from = ht_view(x, l->in[0], l->call->in[0]->dtype, first, n);
        for (int64_t i = 0; i < n; i++) include_value(&range[i], (float)from[i]);
    }
}

static void code_lines(void *arg, int64_t tile)
{
    const dynamic_job *job = arg;
    for (int64_t line = tile * LINES; line < ht_min_i64((tile + 1) * LINES, job->lines); line++) code_line(job, line);
}

/* Lines that share a scale, one after the other. */
static void join_lines(const dynamic_job *job, int64_t groups, ht_code_range *of_group)
{
    for (int64_t group = 0; group < groups; group++) of_group[group] = (ht_code_range){0};
    for (int64_t line = 0; line < job->lines; line++) {
        ht_code_range *all = &of_group[ht_code_group(&job->groups, line * job->columns)];
        include_value(all, job->ranges[line].low);
        include_value(all, job->ranges[line].high);
        all->finite += job->ranges[line].finite;
    }
}

/* ---- the row ---- */

static dynamic_job job_of(const ht_call *call)
{
    const ht_type *x = call->in[0];
    dynamic_job job = {.groups = ht_code_groups_of(call), .columns = x->rank ? x->dim[x->rank - 1] : 1};
    job.lines = job.columns ? ht_type_elems(x) / job.columns : 0;
    job.shared = x->rank == 0 || job.groups.stride[x->rank - 1] == 0;
    return job;
}

static bool is_by_rows(const ht_call *call, const dynamic_job *job)
{
    return job->shared && ht_type_elems(call->out[1]) == job->lines;
}

static ht_status quantize_dynamic_run(const ht_launch *launch)
{
    dynamic_job job = job_of(launch->call);
    int64_t groups = ht_type_elems(launch->call->out[1]);
    job.launch = launch;
    job.ranges = launch->workspace;
    if (is_by_rows(launch->call, &job)) {
        ht_parallel(launch->pool, ht_tiles(job.lines, LINES), whole_rows, &job);
        return HT_OK;
    }
    ht_code_range *of_group = job.ranges + (job.shared ? job.lines : 0);
    if (job.shared) {
        ht_parallel(launch->pool, ht_tiles(job.lines, LINES), find_line_ranges, &job);
        join_lines(&job, groups, of_group);
    } else {
        for (int64_t group = 0; group < groups; group++) of_group[group] = (ht_code_range){0};
        ht_parallel(launch->pool, ht_tiles(job.columns, STRIPE), find_stripe_ranges, &job);
    }
    for (int64_t group = 0; group < groups; group++) set_scale(&job, group, &of_group[group]);
    ht_parallel(launch->pool, ht_tiles(job.lines, LINES), code_lines, &job);
    return HT_OK;
}

static int64_t quantize_dynamic_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    dynamic_job job = job_of(call);
    int64_t ranges = ht_type_elems(call->out[1]) + (job.shared ? job.lines : 0);
    return is_by_rows(call, &job) ? 0 : ranges * (int64_t)sizeof(ht_code_range);
}

static const char *quantize_dynamic_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(quantize_dynamic, quantize_dynamic_can, quantize_dynamic_workspace, quantize_dynamic_run)
