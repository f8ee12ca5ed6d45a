/* conv_q where every channel is convolved by itself: y[p,c] = finish(sum over taps of x[p + tap, c] w[tap, c]), channels-last.
 * Two taps at a time by multiply-adds of i16 pairs, a register of channels at a time; what lies outside the plane is read from a
 * line of zero points.
 * Packed w: the sums of the taps, i32 by channel, then pairs of taps, i16: [pair][channel][2]; behind the last channel zeros.
 * Numerics: sums of i32, exact; int8_finish.h.  Threads: positions.  Traffic: x once per tap from cache, y once.
 * Bound: loads. */
#include "kernel/conv/conv_q.h"
#include "kernel/gemm/int8_finish.h"
#include "kernel/simd.h"

enum {
    LANES = VEC_BYTES / 4, /* sums in a register */
    POSITIONS = 16,        /* of a tile */
    MOST_TAPS = 64,
    MOST_CHANNELS = INT8_TILE_N, /* at a time */
    WIDEST = 16,                 /* LANES, in any build */
};
typedef HT_MADD_VECTOR(VEC_BYTES) sums_vec;

typedef struct depthwise_job {
    const conv_q *c;
    int64_t channels, width; /* width: channels of packed w */
    int64_t pairs;
    const int32_t *tap_sums;
    const int16_t *w;
    const uint8_t *padding; /* a line of zero points */
    bool is_signed;
} depthwise_job;

/* ---- packing ---- */

static int64_t packed_width(int64_t channels)
{
    return ht_tiles(channels, INT8_NR) * INT8_NR;
}

static int64_t pairs_of(const ht_window *v)
{
    return (v->size[0] * v->size[1] + 1) / 2;
}

static int64_t depthwise_bytes(const ht_call *call)
{
    ht_conv conv = ht_conv_q_of(call).conv;
    return packed_width(conv.groups) * (int64_t)sizeof(int32_t) * (1 + pairs_of(&conv.window));
}

static void pack(const ht_call *call, const int8_t *from, void *to)
{
    const ht_type *w = call->in[CONV_Q_W];
    ht_conv conv = ht_conv_q_of(call).conv;
    int64_t width = packed_width(conv.groups), columns = conv.window.size[1], taps = columns * conv.window.size[0];
    int32_t *sums = to;
    int16_t *pairs = (int16_t *)(sums + width);
    memset(to, 0, (size_t)depthwise_bytes(call));
    for (int64_t tap = 0; tap < taps; tap++)
        for (int64_t c = 0; c < conv.groups; c++) {
            int8_t code = from[c * w->stride[0] + tap / columns * w->stride[2] + tap % columns * w->stride[3]];
            pairs[(tap / 2 * width + c) * 2 + tap % 2] += code;
            sums[c] += code;
        }
}

/* ---- multiplying ---- */

/* By a loop: compilers split the conversion of vectors that they have for it. */
static inline __attribute__((always_inline)) sums_vec widen(const uint8_t *from, bool is_signed)
{
    int32_t lanes[LANES];
    sums_vec wide;
    for (int i = 0; i < LANES; i++) lanes[i] = is_signed ? (int8_t)from[i] : from[i];
    memcpy(&wide, lanes, sizeof wide);
    return wide;
}

/* LANES channels from `channel` on at one position. */
static inline __attribute__((always_inline)) void multiply_lanes(const depthwise_job *job, const uint8_t *const *taps,
                                                                 int64_t channel, int32_t *sums, bool is_signed)
{
    sums_vec sum = {0};
    const int16_t *w = job->w + channel * 2;
    for (int64_t pair = 0; pair < job->pairs; pair++, w += job->width * 2) {
        sums_vec even = widen(taps[2 * pair] + channel, is_signed), factors;
        sums_vec odd = widen(taps[2 * pair + 1] + channel, is_signed);
        memcpy(&factors, w, sizeof factors);
        even = is_signed ? (even & 0xffff) | odd << 16 : even | odd << 16;
        HT_MADD(sum, even, factors);
    }
    memcpy(sums, &sum, sizeof sum);
}

static inline __attribute__((always_inline)) void multiply_channels(const depthwise_job *job,
                                                                    const uint8_t *const *taps, int64_t first,
                                                                    int64_t n, int32_t *sums, bool is_signed)
{
    int64_t c = 0;
    for (; c + LANES <= n; c += LANES) multiply_lanes(job, taps, first + c, sums + c, is_signed);
    if (c == n) return;
    if (n >= LANES) { /* some once more */
        multiply_lanes(job, taps, first + n - LANES, sums + n - LANES, is_signed);
        return;
    }
    uint8_t stage[MOST_TAPS][WIDEST] = {{0}};
    const uint8_t *staged[MOST_TAPS];
    for (int64_t tap = 0; tap < 2 * job->pairs; tap++) {
        memcpy(stage[tap], taps[tap] + first, (size_t)n);
        staged[tap] = stage[tap] - first;
    }
    int32_t whole[WIDEST];
    multiply_lanes(job, staged, first, whole, is_signed);
    memcpy(sums, whole, (size_t)n * sizeof *sums);
}

/* Where each tap of a position finds its channels. */
static void find_taps(const depthwise_job *job, int64_t position, const uint8_t **taps)
{
    const ht_window *v = &job->c->conv.window;
    int64_t plane = v->steps[0] * v->steps[1], at = position % plane, tap = 0;
    const uint8_t *image =
        (const uint8_t *)job->c->in[CONV_Q_X] + position / plane * v->plane[0] * v->plane[1] * job->channels;
    for (int64_t i = 0; i < v->size[0]; i++) {
        int64_t h = ht_window_at(v, 0, at / v->steps[1], i);
        for (int64_t j = 0; j < v->size[1]; j++, tap++) {
            int64_t w = ht_window_at(v, 1, at % v->steps[1], j);
            bool inside = h >= 0 && h < v->plane[0] && w >= 0 && w < v->plane[1];
            taps[tap] = inside ? image + (h * v->plane[1] + w) * job->channels : job->padding;
        }
    }
    if (tap % 2) taps[tap] = job->padding;
}

static int8_results results_of(const depthwise_job *job, int32_t *sums, int64_t position, int64_t rows, int64_t channel,
                               int64_t end)
{
    const conv_q *c = job->c;
    int64_t element = position * job->channels + channel, bytes = (int64_t)ht_dtype_bytes(c->call->out[0]->dtype);
    int64_t r_bytes = (int64_t)ht_dtype_bytes(c->r_dtype);
    return (int8_results){
        .sums = sums,
        .rows = rows,
        .columns = ht_min_i64(INT8_NR, end - channel),
        .row_scale = c->in[CONV_Q_X_SCALE],
        .rows_alike = true,
        .column_sum = job->tap_sums + channel,
        .bias = c->in[CONV_Q_BIAS] ? (const float *)c->in[CONV_Q_BIAS] + channel : NULL,
        .residual = c->in[CONV_Q_R] ? (const char *)c->in[CONV_Q_R] + element * r_bytes : NULL,
        .residual_pitch = job->channels * r_bytes,
        .residual_dtype = c->r_dtype,
        .residual_scale = c->r_scale,
        .residual_zero = c->r_zero,
        .y = (char *)c->y + element * bytes,
        .y_pitch = job->channels * bytes,
        .dtype = c->call->out[0]->dtype,
        .coding = c->coding,
    };
}

static void finish(const depthwise_job *job, int32_t *sums, int64_t position, int64_t rows, int64_t first, int64_t n)
{
    const float *w_scale = job->c->in[CONV_Q_W_SCALE];
    bool each = job->c->call->in[CONV_Q_W_SCALE]->rank > 0;
    int32_t zeros[POSITIONS];
    for (int64_t i = 0; i < rows; i++) zeros[i] = job->c->x_zero;
    for (int64_t c = 0; c < n; c += INT8_NR) {
        float scales[INT8_NR] = {0};
        int8_results results = results_of(job, sums + c, position, rows, first + c, first + n);
        for (int64_t i = 0; i < results.columns; i++) scales[i] = w_scale[each ? first + c + i : 0];
        results.column_scale = scales;
        results.row_zero = zeros;
        int8_finish(&results, rows);
    }
}

static void depthwise_tile(void *arg, int64_t tile)
{
    const depthwise_job *job = arg;
    const ht_window *v = &job->c->conv.window;
    int64_t all = job->c->conv.batch * v->steps[0] * v->steps[1], first = tile * POSITIONS;
    int64_t rows = ht_min_i64(POSITIONS, all - first);
    const uint8_t *taps[POSITIONS][MOST_TAPS];
    _Alignas(64) int32_t sums[POSITIONS * MOST_CHANNELS];
    for (int64_t i = 0; i < rows; i++) find_taps(job, first + i, taps[i]);
    for (int64_t c = 0; c < job->channels; c += MOST_CHANNELS) {
        int64_t n = ht_min_i64(MOST_CHANNELS, job->channels - c);
        for (int64_t i = 0; i < rows; i++) {
            if (job->is_signed)
                multiply_channels(job, taps[i], c, n, sums + i * MOST_CHANNELS, true);
            else
                multiply_channels(job, taps[i], c, n, sums + i * MOST_CHANNELS, false);
        }
        finish(job, sums, first, rows, c, n);
    }
}

/* ---- the row ---- */

static ht_status depthwise_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    int64_t bytes = depthwise_bytes(call), width = packed_width(call->in[CONV_Q_X]->dim[1]);
    if (ht_type_elems(call->out[0]) == 0) return HT_OK;
    conv_q c = ht_conv_q_begin(launch, bytes + width);
    uint8_t *padding = (uint8_t *)launch->workspace + bytes;
    if (!launch->prepacked) pack(call, c.in[CONV_Q_W], c.packed);
    memset(padding, c.x_zero & 0xff, (size_t)width);
    depthwise_job job = {
        .c = &c,
        .channels = c.conv.groups,
        .width = width,
        .pairs = pairs_of(&c.conv.window),
        .tap_sums = (const int32_t *)c.packed,
        .w = (const int16_t *)((const int32_t *)c.packed + width),
        .padding = padding,
        .is_signed = call->in[CONV_Q_X]->dtype == HT_I8,
    };
    int64_t positions = c.conv.batch * c.conv.window.steps[0] * c.conv.window.steps[1];
    ht_parallel(launch->pool, ht_tiles(positions, POSITIONS), depthwise_tile, &job);
    ht_conv_q_end(&c);
    return HT_OK;
}

static ht_status depthwise_prepack_make(const ht_launch *launch)
{
    pack(launch->call, launch->in[CONV_Q_W], launch->prepacked);
    return HT_OK;
}

static int64_t depthwise_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return depthwise_bytes(call);
}

static int64_t depthwise_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_conv_q_workspace(call, depthwise_bytes(call) + packed_width(call->in[CONV_Q_X]->dim[1]));
}

static const ht_prepack depthwise_prepack = {1u << CONV_Q_W, depthwise_prepack_bytes, HT_RUN(depthwise_prepack_make)};

static const char *depthwise_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    if (!ht_conv_q_is_depthwise(call)) return "channels are mixed";
    const ht_type *w = call->in[CONV_Q_W];
    if (w->dim[2] >= MOST_TAPS || w->dim[3] >= MOST_TAPS || w->dim[2] * w->dim[3] >= MOST_TAPS)
        return "the window is large";
    return ht_conv_q_can(call);
}

HT_CPU_ROW_DEFINE(conv_q_depthwise, conv_q, .can = depthwise_can, .workspace = depthwise_workspace,
                  .run = HT_RUN(depthwise_run), .prepack = &depthwise_prepack, .channels = HT_CHANNELS_LAST)
