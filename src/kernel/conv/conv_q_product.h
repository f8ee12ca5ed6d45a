/* conv_q by products of codes, for the files of each instruction set: rows are positions, channels-last, k counts the taps of the window and in each the channels.
 * x: u8 or i8; y: f32, u8 or i8.  Windows of one element at a stride of 1 are read where they lie; else what the window sees
 * (im2col) is gathered for a few positions at a time and read by all channels of the tile.
 * Numerics, threads: int8_gemm.c.  Traffic: x once per tap from cache.  Bound: integer products. */
#ifndef HT_KERNEL_CONV_Q_PRODUCT_H
#define HT_KERNEL_CONV_Q_PRODUCT_H

#include <string.h>

#include "kernel/conv/conv_q.h"

enum { CHUNK = 16, LONG_CHUNK = 64 };

/* Neighbours along k that lie side by side in x, unless the edge of the plane cuts them. */
typedef struct run {
    int32_t down, right; /* of its tap from the position's first */
    int32_t from, bytes; /* of its bytes; from: before the first */
} run;

/* What the product reads instead of rows. */
typedef struct window_rows {
    const conv_q *c;
    const uint8_t *x;        /* the group's first channel */
    int64_t channels, pixel; /* of the group; of x: bytes from position to position */
    int64_t taps;            /* that lie side by side in memory: of a line of the window, or 1 */
    uint8_t zero, flip;      /* as the product reads them: zero is flipped already */
} window_rows;

/* ---- gathering ---- */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* n is at least `chunk`: the last one overlaps the one before it. */
static inline __attribute__((always_inline)) void copy_chunks(uint8_t *to, const uint8_t *from, int64_t n,
                                                              const int64_t chunk)
{
    for (int64_t i = 0; i < n - chunk; i += chunk) memcpy(to + i, from + i, (size_t)chunk);
    memcpy(to + n - chunk, from + n - chunk, (size_t)chunk);
}

static void copy_bytes(uint8_t *to, const uint8_t *from, int64_t n, uint8_t flip)
{
    if (flip)
        for (int64_t i = 0; i < n; i++) to[i] = from[i] ^ flip;
    else if (n >= LONG_CHUNK)
        copy_chunks(to, from, n, LONG_CHUNK);
    else if (n >= CHUNK)
        copy_chunks(to, from, n, CHUNK);
    else
        for (int64_t i = 0; i < n; i++) to[i] = from[i];
}

static int64_t list_runs(const window_rows *r, int64_t k, int64_t depth, run *runs)
{
    const ht_window *v = &r->c->conv.window;
    int64_t length = r->taps * r->channels, count = 0;
    for (int64_t done = 0, n; done < depth; done += n) {
        int64_t line = (k + done) / length, from = (k + done) % length, tap = line * r->taps;
        n = smaller(length - from, depth - done);
        runs[count++] = (run){(int32_t)(tap / v->size[1] * v->dilation[0]),
                              (int32_t)(tap % v->size[1] * v->dilation[1]), (int32_t)from, (int32_t)n};
    }
    return count;
}

/* One run of the position whose window begins at (h, w) of an image. */
static void gather_run(const window_rows *r, const run *part, const uint8_t *image, int64_t h, int64_t w, uint8_t *to)
{
    const ht_window *v = &r->c->conv.window;
    int64_t row = h + part->down, column = w + part->right, end = part->from + part->bytes;
    if (row < 0 || row >= v->plane[0]) {
        memset(to, r->zero, (size_t)part->bytes);
        return;
    }
    int64_t low = smaller(larger(part->from, -column * r->channels), end);
    int64_t high = larger(smaller(end, (v->plane[1] - column) * r->channels), low);
    const uint8_t *from = image + (row * v->plane[1] + column) * r->pixel;
    if (low > part->from) memset(to, r->zero, (size_t)(low - part->from));
    copy_bytes(to + low - part->from, from + low, high - low, r->flip);
    if (end > high) memset(to + high - part->from, r->zero, (size_t)(end - high));
}

static void gather(const void *arg, uint8_t *to, int64_t pitch, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const window_rows *r = arg;
    const ht_window *v = &r->c->conv.window;
    int64_t all = v->size[0] * v->size[1] * r->channels, here = smaller(depth, all - k);
    int64_t positions = v->steps[0] * v->steps[1], bytes = v->plane[0] * v->plane[1] * r->pixel;
    run runs[INT8_KC + INT8_AMX_STEP];
    int64_t count = list_runs(r, k, here, runs);
    for (int64_t i = row; i < row + rows; i++, to += pitch) {
        const uint8_t *image = r->x + i / positions * bytes;
        int64_t at = i % positions;
        int64_t h = ht_window_at(v, 0, at / v->steps[1], 0), w = ht_window_at(v, 1, at % v->steps[1], 0);
        uint8_t *part = to;
        for (int64_t j = 0; j < count; part += runs[j++].bytes) gather_run(r, &runs[j], image, h, w, part);
        memset(part, 0, (size_t)(depth - here));
    }
}

/* ---- products ---- */

static bool reads_in_place(const ht_window *v)
{
    bool yes = true;
    for (int axis = 0; axis < 2; axis++) yes &= v->size[axis] == 1 && v->stride[axis] == 1 && v->padding[axis] == 0;
    return yes;
}

static int64_t depth_of(const ht_conv *conv)
{
    return conv->in_channels * conv->window.size[0] * conv->window.size[1];
}

static int64_t group_bytes(const ht_conv *conv, const int8_kernel *kernel)
{
    return ht_int8_packed_bytes(kernel, conv->out_channels, depth_of(conv));
}

/* Of one group; what a run needs, but for the rows of x. */
static int8_product product_of(const conv_q *c, const int8_kernel *kernel, int64_t group)
{
    const ht_conv *conv = &c->conv;
    const ht_type *w = c->call->in[CONV_Q_W];
    int64_t first = group * conv->out_channels, channels = conv->in_channels * conv->groups;
    const float *scale = c->in[CONV_Q_W_SCALE], *bias = c->in[CONV_Q_BIAS];
    bool each = c->call->in[CONV_Q_W_SCALE]->rank > 0;
    int8_product p = {
        .kernel = kernel,
        .m = conv->batch * conv->window.steps[0] * conv->window.steps[1],
        .n = conv->out_channels,
        .k = depth_of(conv),
        .a = (const uint8_t *)c->in[CONV_Q_X] + group * conv->in_channels,
        .a_pitch = channels,
        .is_signed = c->call->in[CONV_Q_X]->dtype == HT_I8,
        .w = {.data = (const int8_t *)c->in[CONV_Q_W] + first * w->stride[0],
              .across = w->stride[0],
              .down = w->stride[1],
              .right = w->stride[3],
              .below = w->stride[2],
              .channels = conv->in_channels ? conv->in_channels : 1,
              .columns = conv->window.size[1]},
        .a_scale = c->in[CONV_Q_X_SCALE],
        .w_scale = each && scale ? scale + first : scale,
        .bias = bias ? bias + first : NULL,
        .a_zero = &c->x_zero,
        .column_scales = each,
        .residual = c->in[CONV_Q_R],
        .residual_dtype = c->r_dtype,
        .residual_scale = c->r_scale,
        .residual_zero = c->r_zero,
        .y = c->y,
        .y_pitch = conv->out_channels * conv->groups,
        .y_first = first,
        .dtype = c->call->out[0]->dtype,
        .coding = c->coding,
    };
    return p;
}

static window_rows rows_of(const conv_q *c, const int8_product *p)
{
    const ht_conv *conv = &c->conv;
    uint8_t flip = p->is_signed ? INT8_CODE_SHIFT : 0;
    bool lines = conv->groups == 1 && conv->window.dilation[1] == 1;
    return (window_rows){.c = c,
                         .x = p->a,
                         .channels = conv->in_channels,
                         .pixel = conv->in_channels * conv->groups,
                         .taps = lines ? conv->window.size[1] : 1,
                         .zero = (uint8_t)((uint8_t)c->x_zero ^ flip),
                         .flip = flip};
}

static void conv_q_product_run(const ht_launch *launch, const int8_kernel *kernel)
{
    const ht_call *call = launch->fused ? launch->fused->gemm : launch->call;
    conv_q sizes = ht_conv_q_of(call);
    int64_t bytes = group_bytes(&sizes.conv, kernel);
    ht_epilogue epilogue;
    if (ht_type_elems(call->out[0]) == 0) return;
    conv_q c = ht_conv_q_begin(launch, bytes * sizes.conv.groups);
    if (launch->fused) ht_epilogue_begin(&epilogue, launch->fused, launch);
    for (int64_t group = 0; group < c.conv.groups; group++) {
        int8_product p = product_of(&c, kernel, group);
        window_rows rows = rows_of(&c, &p);
        if (launch->fused) p.epilogue = &epilogue;
        if (!reads_in_place(&c.conv.window)) {
            p.gather = gather;
            p.gather_arg = &rows;
        }
        ht_int8_set_columns(&p, c.packed + group * bytes, 0, p.n);
        if (!launch->prepacked) ht_int8_pack(&p, launch->pool);
        ht_int8_multiply(&p, launch->pool, launch->threads);
    }
    ht_conv_q_end(&c);
}

static int64_t conv_q_product_prepack_bytes(const ht_call *call, const int8_kernel *kernel)
{
    conv_q c = ht_conv_q_of(call);
    return group_bytes(&c.conv, kernel) * c.conv.groups;
}

static void conv_q_product_prepack(const ht_launch *launch, const int8_kernel *kernel)
{
    const ht_fused *fused = launch->fused;
    const ht_call *call = fused ? fused->gemm : launch->call;
    conv_q c = ht_conv_q_of(call);
    c.in[CONV_Q_W] = launch->in[(fused ? (size_t)fused->n_in : 0) + CONV_Q_W];
    for (int64_t group = 0; group < c.conv.groups; group++) {
        int8_product p = product_of(&c, kernel, group);
        ht_int8_set_columns(&p, (char *)launch->prepacked + group * group_bytes(&c.conv, kernel), 0, p.n);
        ht_int8_pack(&p, launch->pool);
    }
}

#endif
