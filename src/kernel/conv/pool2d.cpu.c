/* Pooling over windows of planes and its gradients.
 *     max_pool2d        y = max over the window, tap = its place there (first of equals, last NaN)
 *     max_pool2d_grad   dx = sum of dy over the windows that cover the position and whose tap it is
 *     avg_pool2d        y = sum over the window / count
 *     avg_pool2d_grad   dx = sum of dy / count over the windows that cover the position
 * x, y: any float, row-major; tap: u8 or i32 out, any integer in.  Numerics: real inside, fixed order, one rounding.
 * Threads: lines of the output.  Traffic: the input once per tap, dy once per row of the window, from cache.
 * Bound: bandwidth. */
#include "kernel/cpu.h"
#include "op/op.h"

/* Lines of the output per tile; elements of a line that are computed together. */
enum { LINE_GRAIN = 8, LINE = 256 };

typedef struct pool_job {
    const ht_launch *launch;
    ht_window window;
    bool exclude_padding;
    int64_t lines;      /* of the output, over all planes */
    int64_t plane_line; /* of them in one plane */
    int64_t length;     /* of an output line */
    /* Computes n elements of output line `line` from `start` on. */
    void (*part)(const struct pool_job *job, int64_t line, int64_t start, int64_t n);
} pool_job;

static void pool_tile(void *arg, int64_t tile)
{
    const pool_job *job = arg;
    for (int64_t line = tile * LINE_GRAIN; line < ht_min_i64(job->lines, (tile + 1) * LINE_GRAIN); line++)
        for (int64_t start = 0; start < job->length; start += LINE)
            job->part(job, line, start, ht_min_i64(job->length - start, LINE));
}

static void pool_lines(pool_job *job)
{
    const ht_type *out = job->launch->call->out[0];
    job->plane_line = out->dim[2];
    job->lines = out->dim[0] * out->dim[1] * out->dim[2];
    job->length = out->dim[3];
    ht_parallel(job->launch->pool, ht_tiles(job->lines, LINE_GRAIN), pool_tile, job);
}

/* What one tap sees from positions start..start+n-1 of a line: the positions whose tap lies in the plane (counted from
 * start), and their elements in `to`. */
static ht_span load_tap(const pool_job *job, real *to, int64_t line, int64_t start, int64_t n, int64_t h, int64_t tap_w)
{
    const ht_window *v = &job->window;
    int64_t plane = line / job->plane_line * v->plane[0] * v->plane[1], w = ht_window_at(v, 1, start, tap_w);
    ht_span in = ht_span_inside(w, v->stride[1], v->plane[1], 0, n);
    if (in.to > in.from)
        ht_load_strided(to, job->launch->in[0], job->launch->call->in[0]->dtype,
                        plane + h * v->plane[1] + w + in.from * v->stride[1], v->stride[1], in.to - in.from);
    return in;
}

/* The taps that lie in the plane: rows for one line, columns for some position of start..start+n-1. A window may be
 * much larger than the plane, so only these are walked. */
static ht_span row_taps(const pool_job *job, int64_t line)
{
    const ht_window *v = &job->window;
    return ht_span_inside(ht_window_at(v, 0, line % job->plane_line, 0), 1, v->plane[0], 0, v->size[0]);
}

static ht_span column_taps(const pool_job *job, int64_t start, int64_t n)
{
    const ht_window *v = &job->window;
    int64_t first = ht_window_at(v, 1, start, 0), last = ht_window_at(v, 1, start + n - 1, 0);
    return (ht_span){last < 0 ? -last : 0, ht_min_i64(v->size[1], v->plane[1] - first)};
}

/* ---- maximum ---- */

static void save_taps(const ht_launch *launch, int64_t at, const int32_t *tap, int64_t n)
{
    if (launch->call->out[1]->dtype == HT_U8)
        for (int64_t i = 0; i < n; i++) ((uint8_t *)launch->out[1])[at + i] = (uint8_t)tap[i];
    else
        memcpy((int32_t *)launch->out[1] + at, tap, (size_t)n * sizeof *tap);
}

static void max_part(const pool_job *job, int64_t line, int64_t start, int64_t n)
{
    const ht_window *v = &job->window;
    real max[LINE], seen[LINE];
    int32_t chosen[LINE];
    for (int64_t i = 0; i < n; i++) max[i] = -(real)INFINITY, chosen[i] = -1;
    ht_span rows = row_taps(job, line), columns = column_taps(job, start, n);
    for (int64_t tap_h = rows.from; tap_h < rows.to; tap_h++) {
        int64_t h = ht_window_at(v, 0, line % job->plane_line, tap_h);
        for (int64_t tap_w = columns.from; tap_w < columns.to; tap_w++) {
            ht_span in = load_tap(job, seen, line, start, n, h, tap_w);
            int32_t tap = (int32_t)(tap_h * v->size[1] + tap_w);
            for (int64_t i = in.from; i < in.to; i++) {
                real x = seen[i - in.from];
                /* That none is chosen yet decides for a window of -inf alone. */
                bool better = x > max[i] || x != x || chosen[i] < 0;
                max[i] = better ? x : max[i];
                chosen[i] = better ? tap : chosen[i];
            }
        }
    }
    int64_t at = line * job->length + start;
    ht_save(job->launch->out[0], job->launch->call->out[0]->dtype, at, max, n);
    save_taps(job->launch, at, chosen, n);
}

static ht_status max_pool2d_run(const ht_launch *launch)
{
    pool_job job = {.launch = launch, .window = ht_pool_of(launch->call, launch->call->in[0]), .part = max_part};
    pool_lines(&job);
    return HT_OK;
}

/* ---- average ---- */

static void average_part(const pool_job *job, int64_t line, int64_t start, int64_t n)
{
    const ht_window *v = &job->window;
    real sum[LINE] = {0}, seen[LINE];
    int64_t step_h = line % job->plane_line;
    ht_span rows = row_taps(job, line), columns = column_taps(job, start, n);
    for (int64_t tap_h = rows.from; tap_h < rows.to; tap_h++) {
        int64_t h = ht_window_at(v, 0, step_h, tap_h);
        for (int64_t tap_w = columns.from; tap_w < columns.to; tap_w++) {
            ht_span in = load_tap(job, seen, line, start, n, h, tap_w);
            for (int64_t i = in.from; i < in.to; i++) sum[i] += seen[i - in.from];
        }
    }
    real height = (real)ht_pool_count(v, 0, step_h, job->exclude_padding);
    for (int64_t i = 0; i < n; i++) sum[i] /= height * (real)ht_pool_count(v, 1, start + i, job->exclude_padding);
    ht_save(job->launch->out[0], job->launch->call->out[0]->dtype, line * job->length + start, sum, n);
}

static ht_status avg_pool2d_run(const ht_launch *launch)
{
    pool_job job = {.launch = launch,
                    .window = ht_pool_of(launch->call, launch->call->in[0]),
                    .exclude_padding = ht_call_int(launch->call, "exclude_padding") != 0,
                    .part = average_part};
    pool_lines(&job);
    return HT_OK;
}

/* ---- gradients ---- */

/* The windows that cover position `at` of an axis. */
static ht_span covering(const ht_window *v, int axis, int64_t at)
{
    int64_t last = (at + v->padding[axis]) / v->stride[axis] + 1;
    int64_t beyond = at + v->padding[axis] - v->size[axis]; /* the last start that ends before `at` */
    int64_t first = beyond < 0 ? 0 : beyond / v->stride[axis] + 1;
    if (last > v->steps[axis]) last = v->steps[axis];
    return (ht_span){first, last < first ? first : last};
}

static void load_taps(const ht_launch *launch, int64_t *to, int64_t from, int64_t n)
{
    ht_dtype dtype = launch->call->in[1]->dtype;
    if (dtype == HT_U8)
        for (int64_t i = 0; i < n; i++) to[i] = ((const uint8_t *)launch->in[1])[from + i];
    else
        for (int64_t i = 0; i < n; i++) to[i] = ht_load_int(launch->in[1], dtype, from + i);
}

/* Adds dy of a few windows of one line, the first of which begins at column w, to the n elements of dx in `sum` that
 * begin at column `start`: where their taps lie in `row` of the window. */
static void add_chosen(const ht_window *v, real *sum, int64_t start, int64_t n, const real *dy, const int64_t *tap,
                       int64_t count, int64_t w, int64_t row)
{
    int64_t first = row * v->size[1];
    for (int64_t i = 0; i < count; i++, w += v->stride[1]) {
        if (tap[i] < first || tap[i] >= first + v->size[1]) continue;
        int64_t at = w + (tap[i] - first) - start;
        if (at >= 0 && at < n) sum[at] += dy[i];
    }
}

static void max_grad_part(const pool_job *job, int64_t line, int64_t start, int64_t n)
{
    const ht_window *v = &job->window;
    const ht_launch *launch = job->launch;
    const ht_call *call = launch->call;
    real sum[LINE] = {0}, dy[LINE];
    int64_t tap[LINE], h = line % job->plane_line, dy_plane = line / job->plane_line * v->steps[0];
    ht_span rows = covering(v, 0, h), first = covering(v, 1, start), last = covering(v, 1, start + n - 1);
    for (int64_t step_h = rows.from; step_h < rows.to; step_h++)
        for (int64_t step_w = first.from; step_w < last.to; step_w += LINE) {
            int64_t count = ht_min_i64(last.to - step_w, LINE), from = (dy_plane + step_h) * v->steps[1] + step_w;
            ht_load(dy, launch->in[0], call->in[0]->dtype, from, count);
            load_taps(launch, tap, from, count);
            add_chosen(v, sum, start, n, dy, tap, count, ht_window_at(v, 1, step_w, 0),
                       h - ht_window_at(v, 0, step_h, 0));
        }
    ht_save(launch->out[0], call->out[0]->dtype, line * job->length + start, sum, n);
}

static ht_status max_pool2d_grad_run(const ht_launch *launch)
{
    pool_job job = {.launch = launch, .window = ht_pool_of(launch->call, launch->call->out[0]), .part = max_grad_part};
    pool_lines(&job);
    return HT_OK;
}

static void spread_part(const pool_job *job, int64_t line, int64_t start, int64_t n)
{
    const ht_window *v = &job->window;
    const ht_launch *launch = job->launch;
    real sum[LINE];
    int64_t dy_plane = line / job->plane_line * v->steps[0];
    ht_span rows = covering(v, 0, line % job->plane_line);
    for (int64_t i = 0; i < n; i++) {
        ht_span columns = covering(v, 1, start + i);
        sum[i] = 0;
        for (int64_t step_h = rows.from; step_h < rows.to; step_h++) {
            real height = (real)ht_pool_count(v, 0, step_h, job->exclude_padding);
            for (int64_t step_w = columns.from; step_w < columns.to; step_w++) {
                real count = height * (real)ht_pool_count(v, 1, step_w, job->exclude_padding);
                sum[i] +=
                    ht_load1(launch->in[0], launch->call->in[0]->dtype, (dy_plane + step_h) * v->steps[1] + step_w) /
                    count;
            }
        }
    }
    ht_save(launch->out[0], launch->call->out[0]->dtype, line * job->length + start, sum, n);
}

static ht_status avg_pool2d_grad_run(const ht_launch *launch)
{
    pool_job job = {.launch = launch,
                    .window = ht_pool_of(launch->call, launch->call->out[0]),
                    .exclude_padding = ht_call_int(launch->call, "exclude_padding") != 0,
                    .part = spread_part};
    pool_lines(&job);
    return HT_OK;
}

static const char *pool_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(max_pool2d, pool_can, NULL, max_pool2d_run)
HT_CPU_KERNEL(max_pool2d_grad, pool_can, NULL, max_pool2d_grad_run)
HT_CPU_KERNEL(avg_pool2d, pool_can, NULL, avg_pool2d_run)
HT_CPU_KERNEL(avg_pool2d_grad, pool_can, NULL, avg_pool2d_grad_run)
