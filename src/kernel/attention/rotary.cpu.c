/* (a, b) -> (a cos t - b sin t, b cos t + a sin t), t = position base^(-2j/D), for each pair of the last axis.
 * x [.., T, D]: any float, any strides but 1 along the last axis.  position [T] or [B,T].
 * Numerics: angle, sine and cosine in double (positions reach millions, where float has no digits left), then real and
 * one rounding.  Threads: positions, then rows.  The table of sines and cosines [P,D] is made once for all heads.
 * Traffic: 1 read, 1 write, the table once per head.  Bound: bandwidth. */
#include "kernel/cpu.h"
#include "op/op.h"

enum { POSITION_GRAIN = 8, ROW_GRAIN = 32, CHUNK = 256 };

typedef struct rotary {
    const ht_launch *launch;
    int64_t steps, width, count; /* count: rows of x */
    int64_t per_sequence;        /* rows that share a row of positions */
    int64_t positions;
    bool interleaved;
    real sign;
    double *frequency; /* [D/2] */
    real *table;       /* [positions, 2, D/2]: cosines, sines */
} rotary;

static void fill_table(void *arg, int64_t tile)
{
    const rotary *job = arg;
    const ht_type *type = job->launch->call->in[1];
    int64_t half = job->width / 2, end = ht_min_i64(job->positions, (tile + 1) * POSITION_GRAIN);
    for (int64_t p = tile * POSITION_GRAIN; p < end; p++) {
        double position = (double)ht_load_int(job->launch->in[1], type->dtype, p);
        real *restrict cosine = job->table + p * job->width, *restrict sine = cosine + half;
        for (int64_t j = 0; j < half; j++) {
            double angle = position * job->frequency[j];
            cosine[j] = (real)cos(angle);
            sine[j] = job->sign * (real)sin(angle);
        }
    }
}

/* Elements from the first to the row's first, by the strides of every axis but the last. */
static int64_t row_start(const ht_type *x, int64_t row)
{
    int64_t at = 0;
    for (int axis = x->rank - 2; axis >= 0; axis--) {
        at += row % x->dim[axis] * x->stride[axis];
        row /= x->dim[axis];
    }
    return at;
}

static void turn(real *restrict a, real *restrict b, const real *restrict cosine, const real *restrict sine, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        real first = a[j], second = b[j];
        a[j] = first * cosine[j] - second * sine[j];
        b[j] = second * cosine[j] + first * sine[j];
    }
}

static void turn_neighbours(real *restrict x, const real *restrict cosine, const real *restrict sine, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        real first = x[2 * j], second = x[2 * j + 1];
        x[2 * j] = first * cosine[j] - second * sine[j];
        x[2 * j + 1] = second * cosine[j] + first * sine[j];
    }
}

static void rotary_row(const rotary *job, int64_t row)
{
    const ht_launch *launch = job->launch;
    const ht_type *in = launch->call->in[0], *out = launch->call->out[0];
    int64_t half = job->width / 2, from = row_start(in, row), to = row * job->width;
    int64_t sequence = launch->call->in[1]->rank == 2 ? row / job->per_sequence : 0;
    const real *cosine = job->table + (sequence * job->steps + row % job->steps) * job->width;
    real buffer[2 * CHUNK], *second = buffer + CHUNK;
    for (int64_t j = 0; j < half; j += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, half - j);
        if (job->interleaved) {
            ht_load(buffer, launch->in[0], in->dtype, from + 2 * j, 2 * n);
            turn_neighbours(buffer, cosine + j, cosine + half + j, n);
            ht_save(launch->out[0], out->dtype, to + 2 * j, buffer, 2 * n);
        } else {
            ht_load(buffer, launch->in[0], in->dtype, from + j, n);
            ht_load(second, launch->in[0], in->dtype, from + half + j, n);
            turn(buffer, second, cosine + j, cosine + half + j, n);
            ht_save(launch->out[0], out->dtype, to + j, buffer, n);
            ht_save(launch->out[0], out->dtype, to + half + j, second, n);
        }
    }
}

static void rotary_tile(void *arg, int64_t tile)
{
    const rotary *job = arg;
    int64_t end = ht_min_i64(job->count, (tile + 1) * ROW_GRAIN);
    for (int64_t row = tile * ROW_GRAIN; row < end; row++) rotary_row(job, row);
}

static ht_status rotary_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *x = call->in[0];
    if (ht_type_elems(x) == 0) return HT_OK;
    rotary job = {.launch = launch, .interleaved = ht_call_int(call, "interleaved") != 0};
    job.steps = x->dim[x->rank - 2], job.width = x->dim[x->rank - 1];
    job.count = ht_type_elems(x) / job.width;
    job.per_sequence = job.count / x->dim[0];
    job.positions = ht_type_elems(call->in[1]);
    job.sign = ht_call_int(call, "inverse") ? -1 : 1;
    job.frequency = launch->workspace;
    job.table = (real *)(job.frequency + job.width / 2);
    double base = ht_call_float(call, "base");
    for (int64_t j = 0; j < job.width / 2; j++) job.frequency[j] = pow(base, -2.0 * (double)j / (double)job.width);
    ht_parallel(launch->pool, ht_tiles(job.positions, POSITION_GRAIN), fill_table, &job);
    ht_parallel(launch->pool, ht_tiles(job.count, ROW_GRAIN), rotary_tile, &job);
    return HT_OK;
}

static int64_t rotary_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    if (ht_type_elems(call->in[0]) == 0) return 0;
    int64_t width = call->in[0]->dim[call->in[0]->rank - 1];
    return width / 2 * (int64_t)sizeof(double) + ht_type_elems(call->in[1]) * width * (int64_t)sizeof(real);
}

static const char *rotary_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *x = call->in[0];
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    if (x->dim[x->rank - 1] > 1 && x->stride[x->rank - 1] != 1) return "the last axis of x is strided";
    if (!ht_type_contiguous(call->in[1]) || !ht_type_contiguous(call->out[0])) return "positions or result are strided";
    /* The table is no larger than x has elements, but its elements may be wider. */
    if (ht_type_elems(x) > (int64_t)1 << 55) return "more than 2^55 elements";
    return NULL;
}

HT_CPU_KERNEL(rotary, rotary_can, rotary_workspace, rotary_run)
