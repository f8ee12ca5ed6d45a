/* conv2d and its two gradients as one blocked product per image and group, out[r,q] = sum over k of left[r,k]
 * right[k,q]:
 *
 *     conv2d              r: output channel   q: place of the window   k: input channel and tap   left: w   right: x
 *     conv2d_grad_input   r: input channel    q: place in the plane    k: output channel and tap  left: w   right: dy
 *     conv2d_grad_weight  r: output channel   q: input channel and tap k: image and place         left: dy  right: x
 *
 * Blocks of left and right are gathered (im2col) onto the stack; the whole matrix never exists. Depthwise convolution
 * (one input channel per group) has too little to multiply for that and goes by depthwise.h.
 * x, w, y: any float, row-major.  Numerics: real inside; each block of DEPTH products is summed from zero and added to
 * the total, in order; one rounding.  Threads: blocks of the output.  Traffic: the right operand is read once per ROWS
 * rows.  Bound: compute. */
#include "kernel/cpu.h"
#include "kernel/depthwise.h"
#include "op/op.h"

#include <string.h>

/* A block of the output, and how deep a step of the product is. STEP_ROWS by STEP_COLS sums stay in registers. */
enum { ROWS = 32, COLS = 64, DEPTH = 64, STEP_ROWS = 4, STEP_COLS = 64 / sizeof(real) };

typedef struct block {
    int64_t batch; /* image and group; only the group for conv2d_grad_weight */
    int64_t row, n_rows;
    int64_t col, n_cols;
    int64_t k, n_k;
} block;

typedef struct product {
    const ht_launch *launch;
    ht_conv conv;
    int64_t batch, rows, cols, depth;
    /* left[r][k], DEPTH apart; right[k][q], COLS apart. */
    void (*pack_left)(const struct product *p, const block *b, real *left);
    void (*pack_right)(const struct product *p, const block *b, real *right);
} product;

/* ---- gathering ---- */

/* What one tap sees from n places of the window, from place q on; zeros in the padding. */
static void gather_image(real *to, const void *x, ht_dtype dtype, int64_t plane, const ht_window *v, int64_t tap,
                         int64_t q, int64_t n)
{
    int64_t tap_h = tap / v->size[1], tap_w = tap % v->size[1];
    while (n > 0) {
        int64_t step_h = q / v->steps[1], step_w = q % v->steps[1], run = ht_min_i64(n, v->steps[1] - step_w);
        int64_t h = ht_window_at(v, 0, step_h, tap_h), w = ht_window_at(v, 1, 0, tap_w);
        ht_span in = {step_w, step_w};
        if (h >= 0 && h < v->plane[0]) in = ht_span_inside(w, v->stride[1], v->plane[1], step_w, step_w + run);
        int64_t count = in.to - in.from, before = in.from - step_w;
        for (int64_t i = 0; i < before; i++) to[i] = 0;
        if (count > 0)
            ht_load_strided(to + before, x, dtype, plane + h * v->plane[1] + w + in.from * v->stride[1], v->stride[1],
                            count);
        for (int64_t i = before + count; i < run; i++) to[i] = 0;
        to += run, q += run, n -= run;
    }
}

/* The other way: which element of dy one tap carried from n places of the plane, from place p on; zeros where none. */
static void gather_result(real *to, const void *dy, ht_dtype dtype, int64_t plane, const ht_window *v, int64_t tap,
                          int64_t p, int64_t n)
{
    real line[COLS];
    int64_t tap_h = tap / v->size[1], tap_w = tap % v->size[1];
    while (n > 0) {
        int64_t h = p / v->plane[1], w = p % v->plane[1], run = ht_min_i64(n, v->plane[1] - w);
        int64_t from_top = h - ht_window_at(v, 0, 0, tap_h), step_h = from_top / v->stride[0];
        for (int64_t i = 0; i < run; i++) to[i] = 0;
        if (from_top >= 0 && from_top % v->stride[0] == 0 && step_h < v->steps[0]) {
            int64_t start = ht_window_at(v, 1, 0, tap_w) - w;
            ht_span in = ht_span_inside(start, v->stride[1], run, 0, v->steps[1]);
            ht_load(line, dy, dtype, plane + step_h * v->steps[1] + in.from, in.to - in.from);
            for (int64_t i = in.from; i < in.to; i++) to[start + i * v->stride[1]] = line[i - in.from];
        }
        to += run, p += run, n -= run;
    }
}

/* ---- what each op multiplies ---- */

static int64_t taps(const ht_window *v)
{
    return v->size[0] * v->size[1];
}

static int64_t places(const ht_window *v)
{
    return v->steps[0] * v->steps[1];
}

static int64_t plane_size(const ht_window *v)
{
    return v->plane[0] * v->plane[1];
}

static void forward_left(const product *p, const block *b, real *left)
{
    int64_t first = b->batch % p->conv.groups * p->rows + b->row;
    for (int64_t r = 0; r < b->n_rows; r++)
        ht_load(left + r * DEPTH, p->launch->in[1], p->launch->call->in[1]->dtype, (first + r) * p->depth + b->k,
                b->n_k);
}

static void forward_right(const product *p, const block *b, real *right)
{
    const ht_window *v = &p->conv.window;
    for (int64_t i = 0; i < b->n_k; i++) {
        int64_t channel = (b->k + i) / taps(v), tap = (b->k + i) % taps(v);
        int64_t plane = (b->batch * p->conv.in_channels + channel) * plane_size(v);
        gather_image(right + i * COLS, p->launch->in[0], p->launch->call->in[0]->dtype, plane, v, tap, b->col,
                     b->n_cols);
    }
}

static void grad_input_left(const product *p, const block *b, real *left)
{
    int64_t n_taps = taps(&p->conv.window), group = b->batch % p->conv.groups;
    for (int64_t r = 0; r < b->n_rows; r++) {
        for (int64_t i = 0; i < b->n_k;) {
            int64_t channel = (b->k + i) / n_taps, tap = (b->k + i) % n_taps,
                    run = ht_min_i64(b->n_k - i, n_taps - tap);
            int64_t row = (group * p->conv.out_channels + channel) * p->rows + b->row + r;
            ht_load(left + r * DEPTH + i, p->launch->in[1], p->launch->call->in[1]->dtype, row * n_taps + tap, run);
            i += run;
        }
    }
}

static void grad_input_right(const product *p, const block *b, real *right)
{
    const ht_window *v = &p->conv.window;
    for (int64_t i = 0; i < b->n_k; i++) {
        int64_t channel = (b->k + i) / taps(v), tap = (b->k + i) % taps(v);
        int64_t plane = (b->batch * p->conv.out_channels + channel) * places(v);
        gather_result(right + i * COLS, p->launch->in[0], p->launch->call->in[0]->dtype, plane, v, tap, b->col,
                      b->n_cols);
    }
}

/* A run of the depth of conv2d_grad_weight that stays in one image. */
typedef struct image_run {
    int64_t image, place, count;
} image_run;

static image_run image_run_at(const product *p, const block *b, int64_t i)
{
    int64_t n = places(&p->conv.window), place = (b->k + i) % n;
    return (image_run){(b->k + i) / n, place, ht_min_i64(b->n_k - i, n - place)};
}

static void grad_weight_left(const product *p, const block *b, real *left)
{
    const ht_conv *c = &p->conv;
    for (int64_t i = 0; i < b->n_k;) {
        image_run run = image_run_at(p, b, i);
        for (int64_t r = 0; r < b->n_rows; r++) {
            int64_t plane = (run.image * c->groups + b->batch) * c->out_channels + b->row + r;
            ht_load(left + r * DEPTH + i, p->launch->in[1], p->launch->call->in[1]->dtype,
                    plane * places(&c->window) + run.place, run.count);
        }
        i += run.count;
    }
}

static void grad_weight_right(const product *p, const block *b, real *right)
{
    real line[DEPTH];
    const ht_conv *c = &p->conv;
    const ht_window *v = &c->window;
    for (int64_t i = 0; i < b->n_k;) {
        image_run run = image_run_at(p, b, i);
        for (int64_t q = 0; q < b->n_cols; q++) {
            int64_t channel = (b->col + q) / taps(v), tap = (b->col + q) % taps(v);
            int64_t plane = ((run.image * c->groups + b->batch) * c->in_channels + channel) * plane_size(v);
            gather_image(line, p->launch->in[0], p->launch->call->in[0]->dtype, plane, v, tap, run.place, run.count);
            for (int64_t j = 0; j < run.count; j++) right[(i + j) * COLS + q] = line[j];
        }
        i += run.count;
    }
}

/* ---- the product ---- */

/* total += left · right over n_k; both are zero beyond the block's rows and columns up to whole steps. */
static void multiply(real *restrict total, const real *restrict left, const real *restrict right, const block *b)
{
    for (int64_t r = 0; r < b->n_rows; r += STEP_ROWS) {
        for (int64_t q = 0; q < b->n_cols; q += STEP_COLS) {
            real sum[STEP_ROWS][STEP_COLS] = {{0}};
            for (int64_t k = 0; k < b->n_k; k++)
                for (int i = 0; i < STEP_ROWS; i++)
                    for (int j = 0; j < STEP_COLS; j++)
                        sum[i][j] += left[(r + i) * DEPTH + k] * right[k * COLS + q + j];
            for (int i = 0; i < STEP_ROWS; i++)
                for (int j = 0; j < STEP_COLS; j++) total[(r + i) * COLS + q + j] += sum[i][j];
        }
    }
}

static void product_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    real left[ROWS * DEPTH], right[DEPTH * COLS], total[ROWS * COLS] = {0};
    int64_t row_blocks = ht_tiles(p->rows, ROWS), col_blocks = ht_tiles(p->cols, COLS);
    block b = {.row = tile % row_blocks * ROWS, .col = tile / row_blocks % col_blocks * COLS};
    b.batch = tile / row_blocks / col_blocks;
    b.n_rows = ht_min_i64(p->rows - b.row, ROWS);
    b.n_cols = ht_min_i64(p->cols - b.col, COLS);
    if (b.n_rows < ROWS) memset(left, 0, sizeof left);
    if (b.n_cols < COLS) memset(right, 0, sizeof right);
    for (b.k = 0; b.k < p->depth; b.k += DEPTH) {
        b.n_k = ht_min_i64(p->depth - b.k, DEPTH);
        p->pack_left(p, &b, left);
        p->pack_right(p, &b, right);
        multiply(total, left, right, &b);
    }
    for (int64_t r = 0; r < b.n_rows; r++)
        ht_save(p->launch->out[0], p->launch->call->out[0]->dtype, (b.batch * p->rows + b.row + r) * p->cols + b.col,
                total + r * COLS, b.n_cols);
}

static void product_run(product *p)
{
    int64_t tiles = p->batch * ht_tiles(p->rows, ROWS) * ht_tiles(p->cols, COLS);
    ht_parallel(p->launch->pool, tiles, product_tile, p);
}

/* ---- rows ---- */

static void conv2d_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_conv c = ht_conv_of(call, call->in[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return;
    if (c.in_channels == 1) {
        depthwise_forward(launch, &c);
        return;
    }
    product_run(&(product){launch, c, c.batch * c.groups, c.out_channels, places(&c.window),
                           c.in_channels * taps(&c.window), forward_left, forward_right});
}

static void conv2d_grad_input_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_conv c = ht_conv_of(call, call->out[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return;
    if (c.in_channels == 1) {
        depthwise_grad_input(launch, &c);
        return;
    }
    product_run(&(product){launch, c, c.batch * c.groups, c.in_channels, plane_size(&c.window),
                           c.out_channels * taps(&c.window), grad_input_left, grad_input_right});
}

static void conv2d_grad_weight_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_conv c = ht_conv_of(call, call->in[0], call->out[0]);
    if (ht_type_elems(call->out[0]) == 0) return;
    if (c.in_channels == 1) {
        depthwise_grad_weight(launch, &c);
        return;
    }
    product_run(&(product){launch, c, c.groups, c.out_channels, c.in_channels * taps(&c.window),
                           c.batch * places(&c.window), grad_weight_left, grad_weight_right});
}

static const char *conv_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(conv2d, conv_can, NULL, conv2d_run)
HT_CPU_KERNEL(conv2d_grad_input, conv_can, NULL, conv2d_grad_input_run)
HT_CPU_KERNEL(conv2d_grad_weight, conv_can, NULL, conv2d_grad_weight_run)
