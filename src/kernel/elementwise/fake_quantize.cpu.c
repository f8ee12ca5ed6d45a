/* fake_quantize: y = round(x / scale) · scale, within low .. high of the zero point.  x: f32, f64, f16, bf16; y: f32, f64.
 * Numerics: op/quantize_linear.h in f32, the same bits in every build.  Threads: lines of the last axis, or pieces of one.
 * Traffic: one read, one write.  Bound: bandwidth. */
#include "kernel/cpu.h"
#include "op/op.h"

enum { LINES = 16, PIECE = 16384, CHUNK = 256 };

typedef struct fake_job {
    const ht_launch *launch;
    const real *scale;
    const int32_t *zero; /* NULL: 0 */
    real low, high;
    ht_code_groups groups;
    int64_t lines, columns;
    bool shared; /* a line has one scale */
} fake_job;

/* Adding 1.5 · 2^23 (2^52 in f64) rounds what is small to an integer, half to even. */
static inline real rounded(real x, real inverse, real scale, real low, real high)
{
    const real magic = sizeof(real) == sizeof(float) ? (real)0x1.8p23 : (real)0x1.8p52;
    real steps = x * inverse;
    steps = steps > low ? steps : low;
    steps = steps < high ? steps : high;
    return ((steps + magic) - magic) * scale;
}

static real zero_at(const fake_job *job, int64_t group)
{
    real zero = job->zero ? (real)job->zero[group] : 0;
    return zero < job->low ? job->low : zero > job->high ? job->high : zero;
}

/* n elements whose scale, or the first of whose scales, is that of `group`. */
static void round_chunk(const fake_job *job, const real *x, real *y, int64_t n, int64_t group)
{
    const real *scale = job->scale + group;
    if (job->shared) {
        real zero = zero_at(job, group), low = job->low - zero, high = job->high - zero, inverse = 1 / scale[0];
        for (int64_t i = 0; i < n; i++) y[i] = rounded(x[i], inverse, scale[0], low, high);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        real zero = zero_at(job, group + i);
        y[i] = rounded(x[i], 1 / scale[i], scale[i], job->low - zero, job->high - zero);
    }
}

static void round_line(const fake_job *job, int64_t line, int64_t begin, int64_t end)
{
    const ht_launch *l = job->launch;
    int64_t first = line * job->columns, group = ht_code_group(&job->groups, first);
    ht_dtype dtype = l->call->in[0]->dtype;
    real stage[CHUNK], y[CHUNK];
    for (int64_t at = begin; at < end; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, end - at);
        round_chunk(job, ht_view(stage, l->in[0], dtype, first + at, n), y, n, job->shared ? group : group + at);
        ht_save(l->out[0], l->call->out[0]->dtype, first + at, y, n);
    }
}

static void round_tile(void *arg, int64_t tile)
{
    const fake_job *job = arg;
    int64_t pieces = ht_tiles(job->columns, PIECE), begin = tile % pieces * PIECE, at = tile / pieces * LINES;
    int64_t end = ht_min_i64(begin + PIECE, job->columns);
    for (int64_t line = at; line < ht_min_i64(at + LINES, job->lines); line++) round_line(job, line, begin, end);
}

static ht_status fake_quantize_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *x = call->in[0];
    fake_job job = {.launch = launch,
                    .scale = launch->in[1],
                    .zero = call->n_in > 2 && call->in[2] ? launch->in[2] : NULL,
                    .low = (real)ht_call_int(call, "low"),
                    .high = (real)ht_call_int(call, "high"),
                    .groups = ht_code_groups_of(call),
                    .columns = x->rank ? x->dim[x->rank - 1] : 1};
    if (ht_type_elems(x) == 0) return HT_OK;
    job.lines = ht_type_elems(x) / job.columns;
    job.shared = x->rank == 0 || job.groups.stride[x->rank - 1] == 0;
    ht_parallel(launch->pool, ht_tiles(job.lines, LINES) * ht_tiles(job.columns, PIECE), round_tile, &job);
    return HT_OK;
}

static const char *fake_quantize_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(fake_quantize, fake_quantize_can, NULL, fake_quantize_run)
