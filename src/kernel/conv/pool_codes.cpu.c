/* max_pool2d of codes that lie channels-last: y[p,c] = max over the window, tap[p,c] = its place there (the first of equals).
 * x, y: u8 or i8; tap: u8.  Threads: positions.  Traffic: x once per tap, from cache.  Bound: loads. */
#include <string.h>

#include "kernel/cpu.h"
#include "op/op.h"

enum { POSITIONS = 32, CHUNK = 64 };

typedef struct pool_job {
    const ht_launch *launch;
    ht_window window;
    int64_t channels, positions;
    uint8_t flip; /* makes the order of codes that of u8 */
} pool_job;

/* n channels of one more tap. */
static inline __attribute__((always_inline)) void take_tap(uint8_t *restrict best, uint8_t *restrict taps,
                                                           const uint8_t *restrict from, int64_t n, uint8_t flip,
                                                           uint8_t tap)
{
    for (int64_t i = 0; i < n; i++) {
        uint8_t code = from[i] ^ flip, better = code > best[i] ? 0xff : 0;
        best[i] = code > best[i] ? code : best[i];
        taps[i] = (uint8_t)((taps[i] & ~better) | (tap & better));
    }
}

static inline __attribute__((always_inline)) void pool_channels(const pool_job *job, int64_t position, int64_t channel,
                                                                const int64_t n)
{
    const ht_window *v = &job->window;
    int64_t plane = v->steps[0] * v->steps[1], at = position % plane;
    int64_t top = ht_window_at(v, 0, at / v->steps[1], 0), left = ht_window_at(v, 1, at % v->steps[1], 0);
    ht_span rows = ht_span_inside(top, 1, v->plane[0], 0, v->size[0]);
    ht_span columns = ht_span_inside(left, 1, v->plane[1], 0, v->size[1]);
    const uint8_t *x =
        (const uint8_t *)job->launch->in[0] + channel + position / plane * v->plane[0] * v->plane[1] * job->channels;
    uint8_t best[CHUNK], taps[CHUNK], first = (uint8_t)(rows.from * v->size[1] + columns.from);
    memset(best, 0, sizeof best); /* the lowest code: the first tap stands for it */
    memset(taps, first, sizeof taps);
    for (int64_t h = rows.from; h < rows.to; h++)
        for (int64_t w = columns.from; w < columns.to; w++)
            take_tap(best, taps, x + ((top + h) * v->plane[1] + left + w) * job->channels, n, job->flip,
                     (uint8_t)(h * v->size[1] + w));
    uint8_t *y = (uint8_t *)job->launch->out[0] + position * job->channels + channel;
    for (int64_t i = 0; i < n; i++) y[i] = best[i] ^ job->flip;
    memcpy((uint8_t *)job->launch->out[1] + position * job->channels + channel, taps, (size_t)n);
}

static void pool_tile(void *arg, int64_t tile)
{
    const pool_job *job = arg;
    int64_t end = ht_min_i64((tile + 1) * POSITIONS, job->positions);
    for (int64_t position = tile * POSITIONS; position < end; position++) {
        int64_t c = 0;
        for (; c + CHUNK <= job->channels; c += CHUNK) pool_channels(job, position, c, CHUNK);
        if (c < job->channels) pool_channels(job, position, c, job->channels - c);
    }
}

static ht_status max_pool2d_codes_run(const ht_launch *launch)
{
    const ht_type *y = launch->call->out[0];
    pool_job job = {.launch = launch,
                    .window = ht_pool_of(launch->call, launch->call->in[0]),
                    .channels = y->dim[1],
                    .positions = y->dim[0] * y->dim[2] * y->dim[3],
                    .flip = y->dtype == HT_I8 ? 128 : 0};
    if (ht_type_elems(y)) ht_parallel(launch->pool, ht_tiles(job.positions, POSITIONS), pool_tile, &job);
    return HT_OK;
}

static bool lies_channels_last(const ht_type *type)
{
    ht_type last = *type;
    ht_type_channels_last(&last);
    return ht_type_same_strides(type, &last);
}

static const char *max_pool2d_codes_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    if (!ht_dtype_is_code(call->in[0]->dtype)) return "x is no codes";
    if (call->out[1]->dtype != HT_U8) return "the window is large";
    bool last = lies_channels_last(call->in[0]) && lies_channels_last(call->out[0]) && lies_channels_last(call->out[1]);
    return last ? NULL : "an operand is not channels-last";
}

HT_CPU_ROW_DEFINE(max_pool2d_codes, max_pool2d, .can = max_pool2d_codes_can, .run = HT_RUN(max_pool2d_codes_run),
                  .channels = HT_CHANNELS_FOLLOW)
