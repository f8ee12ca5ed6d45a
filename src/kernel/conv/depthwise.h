/* Depthwise convolution for conv.cpu.c: each group has one input channel, so an output plane is a few shifted copies of
 * one input plane, weighted and added. A strip of lines is copied with its padding (conv_planes.h); there every tap is a
 * run of neighbours, and a few vectors of sums stay in registers over all taps.
 * Numerics: real inside, FMA, taps in order; weight gradients in lanes, added at the end; one rounding.
 * Threads: planes of the result; weight gradients: output channels.
 * Traffic: each operand about once.  Bound: bandwidth. */
#ifndef HT_KERNEL_DEPTHWISE_H
#define HT_KERNEL_DEPTHWISE_H

#include "kernel/conv/conv_planes.h"

enum {
    LINE_STRIP_ELEMS = 1 << 14, /* of a strip */
    LINE_STRIP_VECTORS = 4,     /* of sums at a time */
    LINE_STRIP_STEP = LINE_STRIP_VECTORS * VL,
    LINE_STRIP_POSITIONS = 256, /* of a line at a time */
    LINE_STRIP_TAPS = 64,       /* at most; over all planes that a result needs */
    TAPS_TOGETHER = 4,          /* of a weight gradient */
};

typedef struct depthwise {
    const ht_launch *launch;
    const ht_conv *conv;
    planes planes; /* what the taps see */
    taps taps;
    int64_t sources; /* planes that one plane of the result needs */
    int64_t phase[2];
    int64_t low, span,
        strip; /* first line that position 0 needs; lines that a line needs; lines of the result in a strip */
} depthwise;

/* Sets how many lines go together; false when not even one fits. */
static inline bool depthwise_strips(depthwise *job)
{
    const taps *t = &job->taps;
    int64_t reach = (t->count[0] - 1) * t->move[0];
    job->low = t->origin[0] + (reach < 0 ? reach : 0);
    job->span = (reach < 0 ? -reach : reach) + 1;
    if (job->planes.plane == 0 || job->sources * taps_total(t) > LINE_STRIP_TAPS) return false;
    int64_t lines = LINE_STRIP_ELEMS / (job->sources * job->planes.line);
    job->strip = lines < job->span ? 0 : (lines - job->span) / t->advance + 1;
    return job->strip > 0;
}

/* Lines of the sources from what line i of the result needs on, for `count` of them; source to source `pitch` apart. */
static inline int64_t depthwise_fill(const depthwise *job, real *strip, int64_t source, int64_t i, int64_t count)
{
    int64_t lines = (count - 1) * job->taps.advance + job->span, first = job->low + i * job->taps.advance;
    for (int64_t s = 0; s < job->sources; s++)
        for (int64_t l = 0; l < lines; l++)
            planes_line(&job->planes, strip + (s * lines + l) * job->planes.line, source + s, first + l);
    memset(strip + job->sources * lines * job->planes.line, 0, LINE_STRIP_STEP * sizeof *strip);
    return lines * job->planes.line;
}

/* Where each tap of each source sees position 0 of a strip. */
static inline void depthwise_offsets(const depthwise *job, int64_t *offset, int64_t pitch)
{
    int64_t n = taps_total(&job->taps);
    for (int64_t s = 0; s < job->sources && n > 0; s++) {
        tap_offsets(offset + s * n, &job->planes, &job->taps, 0, n);
        for (int64_t i = 0; i < n; i++) offset[s * n + i] += s * pitch - job->low * job->planes.line;
    }
}

/* The weights that these taps have, for output channels from `channel` on, one per source. */
static inline void depthwise_weights(const depthwise *job, real *weights, int64_t channel)
{
    const taps *t = &job->taps;
    const ht_window *v = &job->conv->window;
    for (int64_t s = 0; s < job->sources; s++)
        for (int64_t a = 0; a < t->count[0]; a++, weights += t->count[1])
            ht_load_strided(weights, job->launch->in[1], job->launch->call->in[1]->dtype,
                            ((channel + s) * v->size[0] + t->first[0] + a * t->step[0]) * v->size[1] + t->first[1],
                            t->step[1], t->count[1]);
}

/* sum[j] = sum over taps of weight · what it sees from position j, up to whole steps of positions. */
static inline void depthwise_sum(real *sum, const real *from, const int64_t *offset, const real *weights,
                                 int64_t n_taps, int64_t n)
{
    for (int64_t j = 0; j < n; j += LINE_STRIP_STEP) {
        vec part[LINE_STRIP_VECTORS] = {{0}};
        for (int64_t i = 0; i < n_taps; i++) {
            const vec_unaligned *seen = (const vec_unaligned *)(from + offset[i] + j);
            for (int b = 0; b < LINE_STRIP_VECTORS; b++) part[b] += weights[i] * seen[b];
        }
        for (int b = 0; b < LINE_STRIP_VECTORS; b++) *(vec_unaligned *)(sum + j + b * VL) = part[b];
    }
}

/* n elements, stride apart from `at` on. */
static inline void save_strided(const ht_launch *launch, int64_t at, int64_t stride, const real *from, int64_t n)
{
    void *out = launch->out[0];
    ht_dtype dtype = launch->call->out[0]->dtype;
    if (stride == 1)
        ht_save(out, dtype, at, from, n);
    else if (dtype == HT_REAL_DTYPE)
        for (int64_t j = 0; j < n; j++) ((real *)out)[at + j * stride] = from[j];
    else
        for (int64_t j = 0; j < n; j++) ht_save1(out, dtype, at + j * stride, from[j]);
}

/* One phase of a plane of the result: positions are `stride` apart in it, from phase on. */
static inline void depthwise_plane(const depthwise *job, int64_t plane, const int64_t size[2], const int64_t stride[2],
                                   int64_t source, int64_t channel)
{
    real strip[LINE_STRIP_ELEMS + LINE_STRIP_STEP], weights[LINE_STRIP_TAPS], sum[LINE_STRIP_POSITIONS];
    int64_t offset[LINE_STRIP_TAPS], n_taps = job->sources * taps_total(&job->taps), lines = job->taps.positions[0];
    depthwise_weights(job, weights, channel);
    for (int64_t i = 0; i < lines; i += job->strip) {
        int64_t count = ht_min_i64(job->strip, lines - i);
        depthwise_offsets(job, offset, depthwise_fill(job, strip, source, i, count));
        for (int64_t l = 0; l < count; l++) {
            int64_t at = (plane * size[0] + (i + l) * stride[0] + job->phase[0]) * size[1] + job->phase[1];
            for (int64_t j = 0; j < job->taps.positions[1]; j += LINE_STRIP_POSITIONS) {
                int64_t n = ht_min_i64(LINE_STRIP_POSITIONS, job->taps.positions[1] - j);
                depthwise_sum(sum, strip + l * job->taps.advance * job->planes.line + j, offset, weights, n_taps, n);
                save_strided(job->launch, at + j * stride[1], stride[1], sum, n);
            }
        }
    }
}

static inline void depthwise_forward_tile(void *arg, int64_t tile)
{
    const depthwise *job = arg;
    const ht_conv *c = job->conv;
    depthwise_plane(job, tile, c->window.steps, (const int64_t[]){1, 1}, tile / c->out_channels,
                    tile % (c->groups * c->out_channels));
}

static inline void depthwise_grad_input_tile(void *arg, int64_t tile)
{
    const depthwise *job = arg;
    const ht_conv *c = job->conv;
    depthwise_plane(job, tile, c->window.plane, c->window.stride, tile * c->out_channels,
                    tile % c->groups * c->out_channels);
}

/* ---- weight gradients ---- */

/* sum[t] += x · dy over one line for a few taps, by lanes. */
static inline void depthwise_dot(vec *sum, const real *x, const int64_t *offset, const real *dy, int64_t n)
{
    vec part[TAPS_TOGETHER];
    int64_t j = 0;
    for (int t = 0; t < TAPS_TOGETHER; t++) part[t] = sum[t];
    for (; j + VL <= n; j += VL)
        for (int t = 0; t < TAPS_TOGETHER; t++)
            part[t] += *(const vec_unaligned *)(x + offset[t] + j) * *(const vec_unaligned *)(dy + j);
    if (j < n) { /* lanes beyond the line must not count, whatever they hold */
        vec_mask inside = (vec_mask)(vec){0};
        real last[VL] = {0};
        for (int i = 0; i < VL; i++) inside[i] = i < n - j ? -1 : 0;
        memcpy(last, dy + j, (size_t)(n - j) * sizeof *dy);
        for (int t = 0; t < TAPS_TOGETHER; t++) {
            vec seen = *(const vec_unaligned *)(x + offset[t] + j);
            part[t] += (vec)((vec_mask)seen & inside) * *(const vec_unaligned *)last;
        }
    }
    for (int t = 0; t < TAPS_TOGETHER; t++) sum[t] = part[t];
}

/* One image of x, source number `source`, and one plane of dy. */
static inline void depthwise_correlate(const depthwise *job, vec *sum, int64_t source, int64_t plane)
{
    const taps *t = &job->taps;
    ht_dtype dtype = job->launch->call->in[1]->dtype;
    real strip[LINE_STRIP_ELEMS + LINE_STRIP_STEP], stage[LINE_STRIP_POSITIONS];
    int64_t offset[LINE_STRIP_TAPS + TAPS_TOGETHER] = {0}, n_taps = taps_total(t);
    for (int64_t i = 0; i < t->positions[0]; i += job->strip) {
        int64_t count = ht_min_i64(job->strip, t->positions[0] - i);
        depthwise_offsets(job, offset, depthwise_fill(job, strip, source, i, count));
        for (int64_t l = 0; l < count; l++) {
            for (int64_t j = 0; j < t->positions[1]; j += LINE_STRIP_POSITIONS) {
                int64_t n = ht_min_i64(LINE_STRIP_POSITIONS, t->positions[1] - j);
                const real *x = strip + l * t->advance * job->planes.line + j;
                const real *dy = ht_view(stage, job->launch->in[1], dtype,
                                         (plane * t->positions[0] + i + l) * t->positions[1] + j, n);
                for (int64_t k = 0; k < n_taps; k += TAPS_TOGETHER) depthwise_dot(sum + k, x, offset + k, dy, n);
            }
        }
    }
}

static inline void depthwise_grad_weight_tile(void *arg, int64_t channel)
{
    const depthwise *job = arg;
    const ht_conv *c = job->conv;
    vec sum[LINE_STRIP_TAPS + TAPS_TOGETHER];
    int64_t n_taps = taps_total(&job->taps), channels = c->groups * c->out_channels;
    memset(sum, 0, sizeof sum);
    for (int64_t image = 0; image < c->batch; image++)
        depthwise_correlate(job, sum, image * c->groups + channel / c->out_channels, image * channels + channel);
    for (int64_t k = 0; k < n_taps; k++) {
        real total = 0;
        for (int i = 0; i < VL; i++) total += sum[k][i];
        ht_save1(job->launch->out[0], job->launch->call->out[0]->dtype, channel * n_taps + k, total);
    }
}

#endif
