/* conv2d and conv2d_grad_input as products per image and group, out[r,q] = sum over k of left[r,k] right[k,q]:
 *
 *     conv2d              r: output channel   q: place of the window   k: input channel, tap   left: w   right: x
 *     conv2d_grad_input   r: input channel    q: place in the plane    k: output channel, tap  left: w   right: dy
 *
 * The weights are packed once; the planes of x or dy are copied with their padding a few images at a time
 * (conv_planes.h). There what a tap sees of neighbouring places is a run: a sliver of the right operand that is a single
 * run is read where it lies, others are gathered. conv2d_grad_input with a stride is one product per phase: places that
 * agree modulo the stride see the same taps. Depthwise convolution goes by depthwise.h, windows that are mostly padding
 * by conv_lines.h.
 * x, w, y: any float, row-major.  Numerics: real inside, FMA; each step of KC products at most is summed from zero and
 * added to the total, in order; one rounding.  Threads: planes, then blocks of the output.
 * Traffic: x or dy once, then from L3; y once.  Bound: compute. */
#include "kernel/conv_lines.h"
#include "kernel/depthwise.h"

typedef struct product {
    const ht_launch *launch;
    const ht_conv *conv;
    planes planes;
    taps taps;
    int64_t images, first_image; /* of the chunk */
    int64_t rows, depth;
    row_split split;
    real *left; /* by group, block of rows and step: split.rows × PITCH each */
    int64_t step, steps;
    int64_t phase[2]; /* conv2d_grad_input: which places */
    void (*pack_left)(const struct product *p, real *left, int64_t group, int64_t row, int64_t rows, int64_t k,
                      int64_t n_k);
    void (*save)(const struct product *p, const real *total, int64_t batch, int64_t row, int64_t rows, int64_t q,
                 int64_t n);
} product;

/* ---- the product by blocks of the output ---- */

static int64_t left_elems(int64_t groups, int64_t rows, int64_t depth)
{
    row_split split = split_rows(rows);
    return groups * split.blocks * ht_tiles(depth, KC) * split.rows * PITCH;
}

static void pack_left_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    int64_t step = tile % p->steps, row = tile / p->steps % p->split.blocks * p->split.rows;
    int64_t rows = ht_min_i64(p->rows - row, p->split.rows), k = step * p->step;
    real *left = p->left + tile * p->split.rows * PITCH;
    p->pack_left(p, left, tile / p->steps / p->split.blocks, row, rows, k, ht_min_i64(p->depth - k, p->step));
    for (int64_t r = rows; r < p->split.rows; r++) memset(left + r * PITCH, 0, PITCH * sizeof *left);
}

/* One step of a sliver of n places from q on: read where it lies if it is one run, else gathered. */
static void multiply_sliver(const product *p, real *total, const real *left, const real *data, const int64_t *offset,
                            int64_t n_k, int64_t rows, int64_t q, int64_t n)
{
    run runs[NR];
    int64_t count = cut_runs(runs, &p->planes, &p->taps, q, n);
    if (count == 1 && (n == NR || !p->planes.in_place)) {
        multiply_lying(total, left, data + runs[0].from, offset, n_k, p->split.panel, rows);
        return;
    }
    real sliver[KC * NR + NR] __attribute__((aligned(64)));
    if (p->planes.in_place) memset(sliver, 0, sizeof sliver);
    gather_sliver(sliver, data, offset, n_k, runs, count, p->planes.in_place);
    multiply_packed(total, left, sliver, n_k, p->split.panel, rows);
}

static void product_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    real total[ROWS * COLS] __attribute__((aligned(64)));
    int64_t offset[KC];
    int64_t across = ht_tiles(places_total(&p->taps), COLS), block = tile % p->split.blocks;
    int64_t q = tile / p->split.blocks % across * COLS, batch = tile / p->split.blocks / across;
    int64_t n = ht_min_i64(places_total(&p->taps) - q, COLS), row = block * p->split.rows;
    int64_t rows = ht_min_i64(p->rows - row, p->split.rows), group = batch % p->conv->groups;
    const real *data = p->planes.data + batch * (p->planes.channels / p->conv->groups) * p->planes.plane;
    const real *left = p->left + (group * p->split.blocks + block) * p->steps * p->split.rows * PITCH;
    memset(total, 0, (size_t)(p->split.rows * COLS) * sizeof *total);
    for (int64_t step = 0; step < p->steps; step++, left += p->split.rows * PITCH) {
        int64_t k = step * p->step, n_k = ht_min_i64(p->depth - k, p->step);
        tap_offsets(offset, &p->planes, &p->taps, k, n_k);
        for (int64_t j = 0; j < n; j += NR)
            multiply_sliver(p, total + j, left, data, offset, n_k, rows, q + j, ht_min_i64(NR, n - j));
    }
    p->save(p, total, p->first_image * p->conv->groups + batch, row, rows, q, n);
}

/* One chunk of images, one set of taps. */
static void product_run(product *p)
{
    int64_t blocks = p->conv->groups * p->split.blocks, batches = p->images * p->conv->groups;
    p->steps = ht_tiles(p->depth, KC);
    p->step = p->steps ? ht_tiles(p->depth, p->steps) : 0;
    ht_parallel(p->launch->pool, blocks * p->steps, pack_left_tile, p);
    ht_parallel(p->launch->pool, batches * p->split.blocks * ht_tiles(places_total(&p->taps), COLS), product_tile, p);
}

/* ---- conv2d ---- */

static void forward_left(const product *p, real *left, int64_t group, int64_t row, int64_t rows, int64_t k, int64_t n_k)
{
    for (int64_t r = 0; r < rows; r++)
        ht_load(left + r * PITCH, p->launch->in[1], p->launch->call->in[1]->dtype,
                (group * p->rows + row + r) * p->depth + k, n_k);
}

static void forward_save(const product *p, const real *total, int64_t batch, int64_t row, int64_t rows, int64_t q,
                         int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        ht_save(p->launch->out[0], p->launch->call->out[0]->dtype,
                (batch * p->rows + row + r) * places_total(&p->taps) + q, total + r * COLS, n);
}

static void forward_product(product *p, const ht_conv *c, const ht_call *call, const void *x)
{
    *p = (product){.conv = c, .rows = c->out_channels, .split = split_rows(c->out_channels)};
    image_planes(&p->planes, &p->taps, c, x, call->in[0]->dtype);
    p->depth = c->in_channels * taps_total(&p->taps);
    p->pack_left = forward_left;
    p->save = forward_save;
}

static int64_t product_workspace(const product *p, int64_t depth)
{
    int64_t elems = left_elems(p->conv->groups, p->rows, depth) + planes_elems(&p->planes, p->conv->batch);
    return elems * (int64_t)sizeof(real);
}

static int64_t conv2d_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p;
    ht_conv c = ht_conv_of(call, call->in[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return 0;
    forward_product(&p, &c, call, NULL);
    return multiplies(&c, &p.planes) ? product_workspace(&p, p.depth) : 0;
}

static void forward_lines(const ht_launch *launch, const product *p)
{
    depthwise job = {.launch = launch, .conv = p->conv, .planes = p->planes, .taps = p->taps, .sources = 1};
    const ht_conv *c = p->conv;
    if (c->in_channels == 1 && depthwise_bands(&job))
        ht_parallel(launch->pool, c->batch * c->groups * c->out_channels, depthwise_forward_tile, &job);
    else
        lines_forward(launch, c);
}

static void conv2d_run(const ht_launch *launch)
{
    product p;
    ht_conv c = ht_conv_of(launch->call, launch->call->in[0], launch->call->in[1]);
    if (ht_type_elems(launch->call->out[0]) == 0) return;
    forward_product(&p, &c, launch->call, launch->in[0]);
    if (!multiplies(&c, &p.planes)) {
        forward_lines(launch, &p);
        return;
    }
    p.launch = launch;
    p.left = launch->workspace;
    p.planes.room = p.left + left_elems(c.groups, p.rows, p.depth);
    p.images = planes_chunk(&p.planes, c.batch);
    for (; p.first_image < c.batch; p.first_image += p.images) {
        p.images = ht_min_i64(p.images, c.batch - p.first_image);
        planes_take(&p.planes, launch->pool, p.first_image, p.images);
        product_run(&p);
    }
}

/* ---- conv2d_grad_input ---- */

static void grad_input_left(const product *p, real *left, int64_t group, int64_t row, int64_t rows, int64_t k,
                            int64_t n_k)
{
    const ht_conv *c = p->conv;
    const taps *t = &p->taps;
    const ht_window *v = &c->window;
    for (int64_t i = 0; i < n_k;) {
        int64_t b = (k + i) % t->count[1], a = (k + i) / t->count[1] % t->count[0], channel = (k + i) / taps_total(t);
        int64_t tap = (t->first[0] + a * t->step[0]) * v->size[1] + t->first[1] + b * t->step[1];
        int64_t n = ht_min_i64(n_k - i, t->count[1] - b);
        for (int64_t r = 0; r < rows; r++) {
            int64_t w = ((group * c->out_channels + channel) * c->in_channels + row + r) * v->size[0] * v->size[1];
            ht_load_strided(left + r * PITCH + i, p->launch->in[1], p->launch->call->in[1]->dtype, w + tap, t->step[1],
                            n);
        }
        i += n;
    }
}

/* Places of a phase are stride apart in the plane. */
static void grad_input_save(const product *p, const real *total, int64_t batch, int64_t row, int64_t rows, int64_t q,
                            int64_t n)
{
    const ht_window *v = &p->conv->window;
    const taps *t = &p->taps;
    int64_t stride = v->stride[1];
    for (int64_t r = 0; r < rows; r++) {
        int64_t plane = (batch * p->rows + row + r) * v->plane[0] * v->plane[1];
        const real *from = total + r * COLS;
        if (stride == 1 && v->stride[0] == 1) {
            ht_save(p->launch->out[0], p->launch->call->out[0]->dtype, plane + q, from, n);
            continue;
        }
        for (int64_t i = 0; i < n;) {
            int64_t h = (q + i) / t->places[1], w = (q + i) % t->places[1], count = ht_min_i64(n - i, t->places[1] - w);
            save_strided(p->launch, plane + (h * v->stride[0] + p->phase[0]) * v->plane[1] + w * stride + p->phase[1],
                         stride, from + i, count);
            i += count;
        }
    }
}

static void grad_input_product(product *p, const ht_conv *c, const ht_call *call, const void *dy)
{
    *p = (product){.conv = c, .rows = c->in_channels, .split = split_rows(c->in_channels)};
    result_planes(&p->planes, c, dy, call->in[0]->dtype);
    p->taps.advance = 1;
    p->pack_left = grad_input_left;
    p->save = grad_input_save;
}

/* The taps of one phase. */
static void grad_input_phase(product *p, int64_t phase_h, int64_t phase_w)
{
    p->phase[0] = phase_h;
    p->phase[1] = phase_w;
    for (int a = 0; a < 2; a++) phase_taps(&p->taps, &p->planes, &p->conv->window, a, p->phase[a]);
    if (p->planes.in_place) one_line(&p->taps);
    p->depth = p->conv->out_channels * taps_total(&p->taps);
}

/* No phase has a deeper product. */
static int64_t grad_input_depth(const ht_conv *c)
{
    int64_t depth = c->out_channels;
    for (int a = 0; a < 2; a++) {
        int64_t stride = c->window.stride[a], step = stride / common_divisor(stride, c->window.dilation[a]);
        depth *= ht_tiles(c->window.size[a], step);
    }
    return depth;
}

static int64_t conv2d_grad_input_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p;
    ht_conv c = ht_conv_of(call, call->out[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return 0;
    grad_input_product(&p, &c, call, NULL);
    return multiplies(&c, &p.planes) ? product_workspace(&p, grad_input_depth(&c)) : 0;
}

/* Runs or, with launch false, asks whether every phase can be run. */
static bool grad_input_bands(depthwise *job, bool launch)
{
    const ht_conv *c = job->conv;
    const ht_window *v = &c->window;
    for (int64_t h = 0; h < ht_min_i64(v->stride[0], v->plane[0]); h++) {
        for (int64_t w = 0; w < ht_min_i64(v->stride[1], v->plane[1]); w++) {
            phase_taps(&job->taps, &job->planes, v, 0, job->phase[0] = h);
            phase_taps(&job->taps, &job->planes, v, 1, job->phase[1] = w);
            if (job->planes.in_place) one_line(&job->taps);
            if (!depthwise_bands(job)) return false;
            if (launch) ht_parallel(job->launch->pool, c->batch * c->groups, depthwise_grad_input_tile, job);
        }
    }
    return true;
}

static void grad_input_lines(const ht_launch *launch, const product *p)
{
    depthwise job = {.launch = launch, .conv = p->conv, .planes = p->planes, .taps = p->taps};
    job.sources = p->conv->out_channels;
    if (p->conv->in_channels == 1 && grad_input_bands(&job, false))
        grad_input_bands(&job, true);
    else
        lines_grad_input(launch, p->conv);
}

static void conv2d_grad_input_run(const ht_launch *launch)
{
    product p;
    ht_conv c = ht_conv_of(launch->call, launch->call->out[0], launch->call->in[1]);
    if (ht_type_elems(launch->call->out[0]) == 0) return;
    grad_input_product(&p, &c, launch->call, launch->in[0]);
    if (!multiplies(&c, &p.planes)) {
        grad_input_lines(launch, &p);
        return;
    }
    p.launch = launch;
    p.left = launch->workspace;
    p.planes.room = p.left + left_elems(c.groups, p.rows, grad_input_depth(&c));
    p.images = planes_chunk(&p.planes, c.batch);
    for (; p.first_image < c.batch; p.first_image += p.images) {
        p.images = ht_min_i64(p.images, c.batch - p.first_image);
        planes_take(&p.planes, launch->pool, p.first_image, p.images);
        for (int64_t h = 0; h < ht_min_i64(c.window.stride[0], c.window.plane[0]); h++) {
            for (int64_t w = 0; w < ht_min_i64(c.window.stride[1], c.window.plane[1]); w++) {
                grad_input_phase(&p, h, w);
                product_run(&p);
            }
        }
    }
}

/* ---- rows ---- */

HT_CPU_KERNEL(conv2d, conv_can, conv2d_workspace, conv2d_run)
HT_CPU_KERNEL(conv2d_grad_input, conv_can, conv2d_grad_input_workspace, conv2d_grad_input_run)
