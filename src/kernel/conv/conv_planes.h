/* Planes of an operand of a convolution as real, with the padding around them written out: every tap then sees
 * positions as plain runs, whatever the stride, and gathering needs no bounds. For conv.cpu.c. */
#ifndef HT_KERNEL_CONV_PLANES_H
#define HT_KERNEL_CONV_PLANES_H

#include "kernel/conv/conv_product.h"

enum {
    CHUNK_ELEMS = 1 << 21, /* of planes copied at a time: they stay in L3 */
    FEW_CHANNELS = 8,      /* of output for one of input: fewer are no product */
    STRIP_ELEMS = 1 << 14, /* of a strip at most: it stays in L1 or near it */
    STRIP_DEPTH = KC / 4,  /* of a step over strips at least, unless the whole product is less deep */
};

/* What is kept of each plane. With a stride along a line its columns are dealt out to `phases` runs: column w is
 * element w / phases of run w % phases, so that positions are neighbours. Runs and lines that no tap looks at are left
 * out where the window is smaller than its stride. */
typedef struct planes {
    const void *source;
    ht_dtype dtype;
    int64_t source_size[2];
    int64_t from[2], size[2];   /* lines and columns kept: the first of each, counted in the source, and how many */
    int64_t phases, runs;       /* the first `runs` of them are kept */
    int64_t stride, seen;       /* of each `stride` lines the first `seen` are looked at; there is space for all */
    int64_t phase, line, plane; /* elements from run to run, line to line, plane to plane */
    int64_t channels;           /* planes of an image */
    bool in_place;              /* the source serves as it is */
    const real *data;           /* plane 0 of the first image of the chunk */
    real *scratch;              /* where planes are written unless in_place */
    int64_t first;              /* plane of the source that is plane 0 here */
} planes;

/* Which taps take part, and where a tap sees a position: tap (a, b) sees position (i, j) at line origin[0] + a move[0]
 * + i advance and column origin[1] + b move[1] + j phases of what is kept. */
typedef struct taps {
    int64_t count[2], first[2], step[2]; /* along each axis: first, first + step, .. of the window */
    int64_t origin[2], move[2];
    int64_t advance;
    int64_t positions[2];
} taps;

static inline int64_t taps_total(const taps *t)
{
    return t->count[0] * t->count[1];
}

static inline int64_t positions_total(const taps *t)
{
    return t->positions[0] * t->positions[1];
}

static inline void planes_lay_out(planes *p)
{
    p->phase = ht_tiles(p->size[1], p->phases);
    p->line = p->runs * p->phase;
    p->plane = p->size[0] * p->line;
}

/* Images whose planes are copied at a time. */
static inline int64_t planes_chunk(const planes *p, int64_t batch)
{
    int64_t image = p->channels * p->plane, count = image ? CHUNK_ELEMS / image : batch;
    if (count < 1) count = 1;
    return p->in_place ? batch : ht_min_i64(count, batch);
}

/* Elements of scratch; a gathered run may read up to a sliver beyond the last plane. */
static inline int64_t planes_elems(const planes *p, int64_t batch)
{
    return p->in_place ? 0 : planes_chunk(p, batch) * p->channels * p->plane + NR;
}

/* Line i of what is kept of a plane of the source. */
static inline void planes_line(const planes *p, real *to, int64_t plane, int64_t i)
{
    int64_t h = p->from[0] + i;
    if (h < 0 || h >= p->source_size[0]) {
        memset(to, 0, (size_t)p->line * sizeof *to);
        return;
    }
    int64_t line = plane * p->source_size[0] + h;
    if (p->phases == 1) { /* no need to divide */
        int64_t before = p->from[1] < 0 ? ht_min_i64(-p->from[1], p->line) : 0, from = p->from[1] + before;
        int64_t n = ht_min_i64(p->line - before, p->source_size[1] - from);
        if (n < 0) n = 0;
        for (int64_t j = 0; j < before; j++) to[j] = 0;
        ht_load(to + before, p->source, p->dtype, line * p->source_size[1] + from, n);
        for (int64_t j = before + n; j < p->line; j++) to[j] = 0;
        return;
    }
    for (int64_t f = 0; f < p->runs; f++, to += p->phase) {
        int64_t start = p->from[1] + f;
        ht_span in = ht_span_inside(start, p->phases, p->source_size[1], 0, p->phase);
        for (int64_t j = 0; j < in.from; j++) to[j] = 0;
        if (in.to > in.from)
            ht_load_strided(to + in.from, p->source, p->dtype, line * p->source_size[1] + start + in.from * p->phases,
                            p->phases, in.to - in.from);
        for (int64_t j = in.to; j < p->phase; j++) to[j] = 0;
    }
}

static inline void planes_fill(void *arg, int64_t plane)
{
    const planes *p = arg;
    for (int64_t i = 0; i < p->size[0]; i++)
        if (i % p->stride < p->seen) planes_line(p, p->scratch + plane * p->plane + i * p->line, p->first + plane, i);
}

/* The planes of `images` images from `image` on, in p->data. */
static inline void planes_take(planes *p, ht_pool *pool, int64_t image, int64_t images)
{
    p->first = image * p->channels;
    p->data = p->in_place ? (const real *)p->source + p->first * p->plane : p->scratch;
    if (p->in_place) return;
    int64_t count = images * p->channels;
    memset(p->scratch + count * p->plane, 0, NR * sizeof *p->scratch);
    ht_parallel(pool, count, planes_fill, p);
}

/* Where `n` (channel, tap) pairs from k on see position 0, in elements from channel 0. */
static inline void tap_offsets(int64_t *offset, const planes *p, const taps *t, int64_t k, int64_t n)
{
    int64_t b = k % t->count[1], a = k / t->count[1] % t->count[0], channel = k / taps_total(t);
    for (int64_t i = 0; i < n; i++) {
        int64_t column = t->origin[1] + b * t->move[1];
        if (p->phases > 1) column = column % p->phases * p->phase + column / p->phases;
        offset[i] = channel * p->plane + (t->origin[0] + a * t->move[0]) * p->line + column;
        if (++b < t->count[1]) continue;
        b = 0;
        if (++a < t->count[0]) continue;
        a = 0;
        channel++;
    }
}

/* Neighbouring positions that lie side by side in a plane. */
typedef struct run {
    int64_t at, from, n; /* position, counted from the first of all; element from what position 0 sees; how many */
} run;

/* Cuts n positions from q on into runs; returns their number, n at most. */
static inline int64_t cut_runs(run *runs, const planes *p, const taps *t, int64_t q, int64_t n)
{
    int64_t count = 0, i = q / t->positions[1], j = q % t->positions[1];
    for (int64_t at = 0; at < n; i++, j = 0, count++) {
        runs[count] = (run){at, i * t->advance * p->line + j, ht_min_i64(n - at, t->positions[1] - j)};
        at += runs[count].n;
    }
    return count;
}

/* Copies a run NR elements at a time, past its end unless the source is the operand itself. */
static inline void copy_run(real *to, const real *from, int64_t n, bool exact)
{
    int64_t i = 0;
    for (; i + (exact ? NR : 1) <= n; i += NR) {
        vec first = *(const vec_unaligned *)(from + i), second = *(const vec_unaligned *)(from + i + VL);
        *(vec_unaligned *)(to + i) = first;
        *(vec_unaligned *)(to + i + VL) = second;
    }
    for (; i < n; i++) to[i] = from[i];
}

/* Lines of a sliver that is made of several runs, one for each offset: line i at i NR. What a run writes past its end is
 * overwritten by the next one, or surplus; `scratch` has NR elements to spare. */
static inline void gather_sliver(real *scratch, const real *data, const int64_t *offset, int64_t n_k, const run *runs,
                                 int64_t count, bool exact)
{
    for (int64_t i = 0; i < n_k; i++, scratch += NR) {
        for (int64_t r = 0; r < count; r++) {
            real *to = scratch + runs[r].at;
            const real *from = data + offset[i] + runs[r].from;
            if (exact) {
                for (int64_t j = 0; j < runs[r].n; j++) to[j] = from[j];
                continue;
            }
            vec first = *(const vec_unaligned *)from, second = *(const vec_unaligned *)(from + VL);
            *(vec_unaligned *)to = first;
            *(vec_unaligned *)(to + VL) = second;
        }
    }
}

/* What n_k (channel, tap) pairs from k on see of n positions from q on, n KC at most: pair i, position j at i PITCH +
 * j. `scratch` has NR elements to spare. */
static inline void gather_rows(real *scratch, const real *data, const planes *p, const taps *t, int64_t k, int64_t n_k,
                               int64_t q, int64_t n)
{
    int64_t offset[ROWS];
    run runs[KC];
    int64_t count = cut_runs(runs, p, t, q, n);
    tap_offsets(offset, p, t, k, n_k);
    for (int64_t i = 0; i < n_k; i++)
        for (int64_t r = 0; r < count; r++)
            copy_run(scratch + i * PITCH + runs[r].at, data + offset[i] + runs[r].from, runs[r].n, p->in_place);
}

/* ---- strips ---- */

/* A strip: the lines of a few channels that a block of positions needs. A thread copies it and reads it at once, so
 * what is copied never leaves its core's caches. */
typedef struct strips {
    int64_t channels;  /* of a strip at most; 0: strips do not serve */
    int64_t low, span; /* the first line that line 0 of positions needs; how many a line of positions needs */
} strips;

/* `lines` lines of positions go together, `channels` of the planes take part in a result. */
static inline strips strips_of(const planes *p, const taps *t, int64_t lines, int64_t channels)
{
    int64_t reach = (t->count[0] - 1) * t->move[0], window = taps_total(t);
    strips s = {0, t->origin[0] + (reach < 0 ? reach : 0), (reach < 0 ? -reach : reach) + 1};
    if (p->in_place || window == 0 || window > KC) return s;
    int64_t fit = STRIP_ELEMS / (((lines - 1) * t->advance + s.span) * p->line),
            most = ht_min_i64(KC / window, channels);
    fit = ht_min_i64(fit, most);
    if (fit * window >= STRIP_DEPTH || fit == most) s.channels = fit;
    return s;
}

/* Planes `plane`, .. of the source for `lines` lines of positions from `line` on. `seen` and `t` are then what the
 * strip is to positions counted from that line on; `scratch` has NR elements to spare. */
static inline void strip_fill(const planes *p, const strips *s, real *scratch, int64_t plane, int64_t channels,
                              int64_t line, int64_t lines, planes *seen, taps *t)
{
    int64_t first = s->low + line * t->advance, count = (lines - 1) * t->advance + s->span;
    real *to = scratch;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < count; i++, to += p->line)
            if ((first + i) % p->stride < p->seen) planes_line(p, to, plane + c, first + i);
    memset(to, 0, NR * sizeof *to);
    *seen = *p;
    seen->plane = count * p->line;
    seen->data = scratch;
    t->origin[0] = t->move[0] < 0 ? (1 - t->count[0]) * t->move[0] : 0;
}

/* Starts to fetch what strip_fill will copy. */
static inline void strip_fetch(const planes *p, const taps *t, const strips *s, int64_t plane, int64_t channels,
                               int64_t line, int64_t lines)
{
    int64_t first = p->from[0] + s->low + line * t->advance, last = first + (lines - 1) * t->advance + s->span;
    int64_t bytes = ht_dtype_bytes(p->dtype), width = p->source_size[1] * bytes;
    if (first < 0) first = 0;
    last = ht_min_i64(last, p->source_size[0]);
    for (int64_t c = 0; c < channels; c++) {
        const char *from = (const char *)p->source + (plane + c) * p->source_size[0] * width;
        for (int64_t at = first * width; at < last * width; at += HT_CACHE_LINE_BYTES)
            __builtin_prefetch(from + at, 0, 2);
    }
}

/* ---- what the three ops copy and see ---- */

/* Whether planes are little more than what they hold and give. */
static inline bool sane(const planes *p, const ht_window *v)
{
    double copied = (double)p->size[0] * ((double)p->size[1] + (double)p->phases);
    double used = (double)v->plane[0] * (double)v->plane[1] + (double)v->steps[0] * (double)v->steps[1];
    return copied <= 4 * used + 4096;
}

static inline bool pointwise(const ht_window *v)
{
    bool one = true;
    for (int a = 0; a < 2; a++) one &= v->size[a] == 1 && v->stride[a] == 1 && v->padding[a] == 0;
    return one;
}

/* One tap, no padding: the operand serves as it is, a plane as a single line. */
static inline void take_in_place(planes *p, const ht_window *v)
{
    if (p->dtype != HT_REAL_DTYPE || !pointwise(v)) return;
    p->in_place = true;
    p->size[1] = p->source_size[1] *= p->source_size[0];
    p->size[0] = p->source_size[0] = 1;
}

static inline void one_line(taps *t)
{
    t->positions[1] *= t->positions[0];
    t->positions[0] = 1;
}

/* x as the window slides over it. */
static inline void image_planes(planes *p, taps *t, const ht_conv *c, const void *x, ht_dtype dtype)
{
    const ht_window *v = &c->window;
    *p = (planes){.source = x, .dtype = dtype, .phases = v->stride[1], .channels = c->groups * c->in_channels};
    *t = (taps){.advance = v->stride[0]};
    for (int a = 0; a < 2; a++) {
        p->source_size[a] = v->plane[a];
        p->from[a] = -v->padding[a];
        p->size[a] = (v->steps[a] - 1) * v->stride[a] + (v->size[a] - 1) * v->dilation[a] + 1;
        t->count[a] = v->size[a];
        t->step[a] = 1;
        t->move[a] = v->dilation[a];
        t->positions[a] = v->steps[a];
    }
    p->runs = ht_min_i64(p->phases, (v->size[1] - 1) * v->dilation[1] + 1);
    p->stride = v->stride[0];
    p->seen = (v->size[0] - 1) * v->dilation[0] + 1;
    take_in_place(p, v);
    if (p->in_place) one_line(t);
    if (sane(p, v)) planes_lay_out(p);
}

static inline int64_t floor_divide(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static inline int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* dy as positions of the plane see it: from step (at + padding - tap dilation) / stride, where that is whole. */
static inline void result_planes(planes *p, const ht_conv *c, const void *dy, ht_dtype dtype)
{
    const ht_window *v = &c->window;
    *p = (planes){.source = dy, .dtype = dtype, .channels = c->groups * c->out_channels};
    p->phases = p->runs = p->stride = p->seen = 1;
    for (int a = 0; a < 2; a++) {
        p->source_size[a] = v->steps[a];
        p->from[a] = floor_divide(v->padding[a] - (v->size[a] - 1) * v->dilation[a], v->stride[a]);
        p->size[a] = (v->plane[a] - 1 + v->padding[a]) / v->stride[a] + 1 - p->from[a];
    }
    take_in_place(p, v);
    if (sane(p, v)) planes_lay_out(p);
}

/* The taps that carry dy to positions `phase`, phase + stride, .. along an axis; none when no multiple of dilation
 * fits. */
static inline void phase_taps(taps *t, const planes *p, const ht_window *v, int a, int64_t phase)
{
    int64_t step = v->stride[a] / common_divisor(v->stride[a], v->dilation[a]), first = 0;
    while (first < ht_min_i64(step, v->size[a]) && (phase + v->padding[a] - first * v->dilation[a]) % v->stride[a] != 0)
        first++;
    t->first[a] = first;
    t->step[a] = step;
    t->count[a] = first < ht_min_i64(step, v->size[a]) ? ht_tiles(v->size[a] - first, step) : 0;
    t->origin[a] = (phase + v->padding[a] - first * v->dilation[a]) / v->stride[a] - p->from[a];
    t->move[a] = -(step * v->dilation[a] / v->stride[a]);
    t->positions[a] = ht_tiles(v->plane[a] - phase, v->stride[a]);
}

/* Depthwise convolution has too little to multiply for a product. */
static inline bool multiplies(const ht_conv *c, const planes *p)
{
    return p->plane != 0 && (c->in_channels != 1 || c->out_channels >= FEW_CHANNELS);
}

static inline const char *conv_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

#endif
