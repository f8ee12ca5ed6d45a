/* quantize_linear: y = round(x / scale) + zero.  x: f32, f16, bf16; y: i8, u8.  dequantize_linear: x = (y - zero) · scale, y: f32.
 * Rows for one scale are element-wise; those for scales along some axes take lines of the last axis.
 * Numerics: op/quantize_linear.h, the same bits in every build.  Threads: elements, or lines.  Traffic: one read, one write.
 * Bound: bandwidth. */
#include <string.h>

#include "kernel/cpu.h"
#include "op/op.h"

enum { CHUNK = 256, LINES = 16 };

static int32_t single_zero(const ht_span_args *s)
{
    return s->call->n_in > 2 && s->call->in[2] ? *(const int32_t *)s->in[2] : 0;
}

/* n codes of real numbers. */
static void write_codes(const ht_coding *coding, const real *x, uint8_t *to, int64_t n)
{
    const ht_coding c = *coding;
    for (int64_t i = 0; i < n; i++) to[i] = (uint8_t)ht_code_of(&c, (float)x[i]);
}

/* n codes as numbers, counted from the zero point. */
static void read_codes(ht_dtype dtype, const void *from, int64_t start, int32_t zero, float *to, int64_t n)
{
    const int8_t *i8 = (const int8_t *)from + start;
    const uint8_t *u8 = (const uint8_t *)from + start;
    if (dtype == HT_I8)
        for (int64_t i = 0; i < n; i++) to[i] = (float)i8[i] - (float)zero;
    else
        for (int64_t i = 0; i < n; i++) to[i] = (float)u8[i] - (float)zero;
}

static const char *can_as(const ht_call *call, bool single)
{
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    if (single != (call->in[1]->rank == 0)) return single ? "there are several scales" : "there is one scale";
    return NULL;
}

/* ---- one scale ---- */

static void quantize_linear_begin(const ht_span_args *whole, void *constants)
{
    ht_coding coding = ht_coding_of(whole->call->out[0]->dtype, *(const float *)whole->in[1], single_zero(whole));
    memcpy(constants, &coding, sizeof coding);
}

static void quantize_linear_span(const ht_span_args *s)
{
    real x[CHUNK];
    for (int64_t at = 0; at < s->n; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, s->n - at);
        const real *from = ht_view(x, s->in[0], s->call->in[0]->dtype, at, n);
        write_codes(s->constants, from, (uint8_t *)s->out[0] + at, n);
    }
}

static void dequantize_linear_span(const ht_span_args *s)
{
    float scale = *(const float *)s->in[1], line[CHUNK];
    int32_t zero = single_zero(s);
    for (int64_t at = 0; at < s->n; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, s->n - at);
        float *y = (float *)s->out[0] + at;
        read_codes(s->call->in[0]->dtype, s->in[0], at, zero, line, n);
        for (int64_t i = 0; i < n; i++) y[i] = line[i] * scale;
    }
}

static const char *single_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = can_as(call, true);
    return reason || ht_type_dense(call->out[0]) ? reason : "the result has gaps"; /* any order will do */
}

HT_CPU_ELEMENTWISE_KERNEL(quantize_linear, single_can, quantize_linear_begin, quantize_linear_span)
HT_CPU_ELEMENTWISE_KERNEL(dequantize_linear, single_can, NULL, dequantize_linear_span)

/* ---- scales along some axes ---- */

typedef struct code_lines {
    const ht_launch *launch;
    ht_code_groups groups;
    int64_t lines, columns;
    bool shared; /* a line has one scale */
} code_lines;

static const int32_t *zeros_of(const ht_launch *launch)
{
    return launch->call->n_in > 2 && launch->call->in[2] ? launch->in[2] : NULL;
}

static void quantize_line(const code_lines *job, int64_t line)
{
    const ht_launch *l = job->launch;
    const int32_t *zeros = zeros_of(l);
    const float *scales = (const float *)l->in[1];
    int64_t first = line * job->columns, group = ht_code_group(&job->groups, first);
    ht_dtype codes = l->call->out[0]->dtype;
    real x[CHUNK];
    for (int64_t at = 0; at < job->columns; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - at);
        uint8_t *y = (uint8_t *)l->out[0] + first + at;
        const real *from = ht_view(x, l->in[0], l->call->in[0]->dtype, first + at, n);
        if (job->shared) {
            ht_coding coding = ht_coding_of(codes, scales[group], zeros ? zeros[group] : 0);
            write_codes(&coding, from, y, n);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            ht_coding coding = ht_coding_of(codes, scales[group + at + i], zeros ? zeros[group + at + i] : 0);
            y[i] = (uint8_t)ht_code_of(&coding, (float)from[i]);
        }
    }
}

static void dequantize_line(const code_lines *job, int64_t line)
{
    const ht_launch *l = job->launch;
    const int32_t *zeros = zeros_of(l);
    const float *scales = (const float *)l->in[1];
    int64_t first = line * job->columns, group = ht_code_group(&job->groups, first);
    ht_dtype codes = l->call->in[0]->dtype;
    for (int64_t at = 0; at < job->columns; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - at);
        float steps[CHUNK], *y = (float *)l->out[0] + first + at;
        read_codes(codes, l->in[0], first + at, job->shared && zeros ? zeros[group] : 0, steps, n);
        for (int64_t i = 0; i < n && !job->shared && zeros; i++) steps[i] -= (float)zeros[group + at + i];
        for (int64_t i = 0; i < n; i++) y[i] = steps[i] * scales[job->shared ? group : group + at + i];
    }
}

static void quantize_lines(void *arg, int64_t tile)
{
    const code_lines *job = arg;
    for (int64_t i = tile * LINES; i < ht_min_i64((tile + 1) * LINES, job->lines); i++) quantize_line(job, i);
}

static void dequantize_lines(void *arg, int64_t tile)
{
    const code_lines *job = arg;
    for (int64_t i = tile * LINES; i < ht_min_i64((tile + 1) * LINES, job->lines); i++) dequantize_line(job, i);
}

static void run_lines(const ht_launch *launch, ht_tile_fn lines)
{
    const ht_type *x = launch->call->in[0];
    code_lines job = {.launch = launch, .groups = ht_code_groups_of(launch->call), .columns = x->dim[x->rank - 1]};
    job.lines = job.columns ? ht_type_elems(x) / job.columns : 0;
    job.shared = job.groups.stride[x->rank - 1] == 0;
    ht_parallel(launch->pool, ht_tiles(job.lines, LINES), lines, &job);
}

static ht_status quantize_linear_axes_run(const ht_launch *launch)
{
    run_lines(launch, quantize_lines);
    return HT_OK;
}

static ht_status dequantize_linear_axes_run(const ht_launch *launch)
{
    run_lines(launch, dequantize_lines);
    return HT_OK;
}

static const char *axes_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = can_as(call, false);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL_NAMED(quantize_linear_axes, quantize_linear, axes_can, NULL, quantize_linear_axes_run)
HT_CPU_KERNEL_NAMED(dequantize_linear_axes, dequantize_linear, axes_can, NULL, dequantize_linear_axes_run)
