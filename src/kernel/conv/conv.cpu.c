/* conv2d and conv2d_grad_input as products per image and group, out[r,q] = sum over k of left[r,k] right[k,q]:
 *
 *     conv2d              r: output channel   q: position of the window   k: input channel, tap   left: w   right: x
 *     conv2d_grad_input   r: input channel    q: position in the plane    k: output channel, tap  left: w   right: dy
 *
 * The weights are packed once; of x or dy a thread copies what a block of the output needs of a few channels, with its
 * padding, and multiplies it at once (strips, conv_planes.h); where a strip would be too large, whole planes are copied
 * a few images at a time. There what a tap sees of neighbouring positions is a run: a sliver of the right operand that
 * is a single run is read where it lies, others are gathered. conv2d_grad_input with a stride is one product per phase:
 * positions that agree modulo the stride see the same taps. Small planes go by conv_im2col.h, depthwise convolution by
 * depthwise.h, windows that are mostly padding by conv_direct.h.
 * x, w, y: any float, row-major.  Numerics: real inside, FMA; each step of KC products at most is summed from zero and
 * added to the total, in order; one rounding.  Threads: blocks of the output (after planes, where these are copied).
 * Traffic: x or dy once, and again at the seams of blocks, then from L2; y once.  Bound: compute. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/conv/conv_direct.h"
#include "kernel/conv/conv_im2col.h"
#include "kernel/conv/conv_product.h"
#include "kernel/conv/depthwise.h"

typedef struct product {
    const ht_launch *launch;
    int64_t threads; /* of the target, for products by the GEMM core */
    const ht_conv *conv;
    planes planes;
    taps taps;
    int64_t images, first_image; /* of the chunk */
    int64_t rows, depth;
    int64_t columns; /* positions of a block: whole lines where they fit */
    strips strips;
    row_split split;
    real *left; /* by group, block of rows and step: split.rows × PITCH each */
    int64_t step, steps;
    int64_t phase[2]; /* conv2d_grad_input: which positions */
    /* Block [row, row + rows) × [k, k + n_k) of left, rows `pitch` apart. */
    void (*pack_left)(const struct product *p, real *left, int64_t pitch, int64_t group, int64_t row, int64_t rows,
                      int64_t k, int64_t n_k);
    bool whole_lines; /* a run of positions is a run of the result */
    void (*save)(const struct product *p, const real *total, int64_t pitch, int64_t batch, int64_t row, int64_t rows,
                 int64_t q, int64_t n);
} product;

/* ---- the product by blocks of the output ---- */

/* Once the taps are known. A step takes whole channels where there are strips. */
static void product_cut(product *p)
{
    int64_t line = p->taps.positions[1], window = taps_total(&p->taps), channels = window ? p->depth / window : 0;
    p->columns = line <= COLS ? COLS / line * line : COLS;
    p->strips = strips_of(&p->planes, &p->taps, line <= COLS ? COLS / line : 2, channels);
    int64_t most = p->strips.channels ? p->strips.channels * window : KC, unit = p->strips.channels ? window : 1;
    p->steps = ht_tiles(p->depth, most);
    p->step = p->steps ? ht_tiles(p->depth / unit, p->steps) * unit : 0;
}

static int64_t left_elems(const product *p)
{
    return p->conv->groups * p->split.blocks * p->steps * p->split.rows * PITCH;
}

/* Planes are copied as a whole for taps that have no strips. */
static bool copies_planes(const product *p)
{
    return !p->strips.channels && !p->planes.in_place && p->depth > 0;
}

static void pack_left_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    int64_t step = tile % p->steps, row = tile / p->steps % p->split.blocks * p->split.rows;
    int64_t rows = ht_min_i64(p->rows - row, p->split.rows), k = step * p->step;
    real *left = p->left + tile * p->split.rows * PITCH;
    p->pack_left(p, left, PITCH, tile / p->steps / p->split.blocks, row, rows, k, ht_min_i64(p->depth - k, p->step));
    for (int64_t r = rows; r < p->split.rows; r++) memset(left + r * PITCH, 0, PITCH * sizeof *left);
}

/* One step of a sliver of n positions from q on: read where it lies if each half of it is one run, else gathered. */
static void multiply_sliver(const row_split *split, const planes *seen, const taps *t, real *total, const real *left,
                            const int64_t *offset, int64_t n_k, int64_t rows, int64_t q, int64_t n)
{
    run runs[NR];
    int64_t count = cut_runs(runs, seen, t, q, n);
    if ((count == 1 && (n == NR || !seen->in_place)) || (count == 2 && n == NR && runs[1].at == VL)) {
        int64_t half = count == 1 ? VL : runs[1].from - runs[0].from;
        multiply_lying(total, COLS, left, seen->data + runs[0].from, offset, half, n_k, split->panel, rows);
        return;
    }
    real sliver[KC * NR + NR] __attribute__((aligned(64)));
    if (seen->in_place) memset(sliver, 0, sizeof sliver);
    gather_sliver(sliver, seen->data, offset, n_k, runs, count, seen->in_place);
    multiply_packed(total, COLS, left, sliver, n_k, split->panel, rows);
}

/* Starts to fetch what a step will copy, if there is such a step. */
static void fetch_strip(const product *p, int64_t step, int64_t batch, int64_t line, int64_t lines)
{
    int64_t window = taps_total(&p->taps), k = step * p->step, channels = p->planes.channels / p->conv->groups;
    if (p->strips.channels && step < p->steps)
        strip_fetch(&p->planes, &p->taps, &p->strips,
                    (p->first_image * p->conv->groups + batch) * channels + k / window,
                    ht_min_i64(p->step, p->depth - k) / window, line, lines);
}

/* Starts to fetch the lines that will be written: the result is not in the caches. */
static void fetch_result(const product *p, int64_t batch, int64_t row, int64_t rows, int64_t q, int64_t n)
{
    int64_t bytes = ht_dtype_bytes(p->launch->call->out[0]->dtype);
    for (int64_t r = 0; r < rows; r++) {
        const char *to =
            (const char *)p->launch->out[0] + ((batch * p->rows + row + r) * positions_total(&p->taps) + q) * bytes;
        for (int64_t at = 0; at < n * bytes; at += HT_CACHE_LINE_BYTES) __builtin_prefetch(to + at, 1, 2);
    }
}

/* total = left · what n positions from q on see, over all steps. */
static void product_steps(const product *p, real *total, const real *left, int64_t batch, int64_t row, int64_t q,
                          int64_t n)
{
    int64_t rows = ht_min_i64(p->rows - row, p->split.rows), start = q;
    real strip[STRIP_ELEMS + NR];
    int64_t offset[KC], channels = p->planes.channels / p->conv->groups, first = 0;
    int64_t line = q / p->taps.positions[1], lines = (q + n - 1) / p->taps.positions[1] - line + 1;
    planes seen = p->planes;
    taps t = p->taps;
    fetch_strip(p, 0, batch, line, lines);
    memset(total, 0, (size_t)(p->split.rows * COLS) * sizeof *total);
    if (p->strips.channels)
        q -= line * t.positions[1];
    else if (p->steps)
        seen.data += batch * channels * p->planes.plane;
    for (int64_t step = 0; step < p->steps; step++, left += p->split.rows * PITCH) {
        int64_t k = step * p->step, n_k = ht_min_i64(p->depth - k, p->step);
        if (p->strips.channels) {
            int64_t window = taps_total(&t);
            int64_t plane = (p->first_image * p->conv->groups + batch) * channels + k / window;
            strip_fill(&p->planes, &p->strips, strip, plane, n_k / window, line, lines, &seen, &t);
            fetch_strip(p, step + 1, batch, line, lines);
            first = k;
        }
        if (p->whole_lines && step + 1 == p->steps)
            fetch_result(p, p->first_image * p->conv->groups + batch, row, rows, start, n);
        tap_offsets(offset, &seen, &t, k - first, n_k);
        for (int64_t j = 0; j < n; j += NR)
            multiply_sliver(&p->split, &seen, &t, total + j, left, offset, n_k, rows, q + j, ht_min_i64(NR, n - j));
    }
}

static void product_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    real total[ROWS * COLS] __attribute__((aligned(64)));
    int64_t across = ht_tiles(positions_total(&p->taps), p->columns), block = tile % p->split.blocks;
    int64_t q = tile / p->split.blocks % across * p->columns, batch = tile / p->split.blocks / across;
    int64_t n = ht_min_i64(positions_total(&p->taps) - q, p->columns), row = block * p->split.rows;
    int64_t rows = ht_min_i64(p->rows - row, p->split.rows), group = batch % p->conv->groups;
    const real *left = p->left + (group * p->split.blocks + block) * p->steps * p->split.rows * PITCH;
    product_steps(p, total, left, batch, row, q, n);
    p->save(p, total, COLS, p->first_image * p->conv->groups + batch, row, rows, q, n);
}

/* One chunk of images, one set of taps. */
static void product_run(product *p)
{
    int64_t blocks = p->conv->groups * p->split.blocks, batches = p->images * p->conv->groups;
    int64_t across = ht_tiles(positions_total(&p->taps), p->columns);
    ht_parallel(p->launch->pool, blocks * p->steps, pack_left_tile, p);
    ht_parallel(p->launch->pool, batches * p->split.blocks * across, product_tile, p);
}

/* ---- the product for all images at once ---- */

static int64_t im2col_positions(const product *p)
{
    return p->conv->batch * positions_total(&p->taps);
}

/* Bytes for the planes of all images. */
static int64_t im2col_planes(const product *p)
{
    return p->planes.in_place ? 0 : im2col_bytes(p->conv->batch * p->planes.channels * p->planes.plane + NR);
}

/* Elements of left as a matrix. */
static int64_t im2col_left(const product *p)
{
    return p->rows * im2col_pitch(p->depth);
}

/* A gemm_finish: columns are positions of all images. */
static void im2col_finish(const void *arg, int64_t row, int64_t column, int64_t rows, int64_t columns, real *values,
                          int64_t pitch)
{
    const product *p = arg;
    int64_t positions = positions_total(&p->taps);
    for (int64_t at = 0; at < columns;) {
        int64_t image = (column + at) / positions, q = (column + at) % positions,
                n = ht_min_i64(positions - q, columns - at);
        p->save(p, values + at, pitch, image, row, rows, q, n);
        at += n;
    }
}

static void im2col_left_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    int64_t row = tile * IM2COL_ROWS, pitch = im2col_pitch(p->depth);
    p->pack_left(p, p->left + row * pitch, pitch, 0, row, ht_min_i64(IM2COL_ROWS, p->rows - row), 0, p->depth);
}

/* left NULL: it is arranged in p->left first. */
static void im2col_product(product *p, const gemm_side *left, void *workspace)
{
    im2col positions = {&p->planes, &p->taps};
    gemm_job job = {
        .m = p->rows, .n = im2col_positions(p), .k = p->depth, .workspace = workspace, .threads = p->threads};
    job.a = left ? *left : (gemm_side){p->left, HT_REAL_DTYPE, im2col_pitch(p->depth), 1, NULL, NULL};
    job.b = (gemm_side){.dtype = HT_REAL_DTYPE, .load = im2col_load, .more = &positions};
    job.finish = im2col_finish;
    job.finish_arg = p;
    if (!left) ht_parallel(p->launch->pool, ht_tiles(p->rows, IM2COL_ROWS), im2col_left_tile, p);
    gemm_run(&job, p->launch->pool);
}

/* ---- conv2d ---- */

static void forward_left(const product *p, real *left, int64_t pitch, int64_t group, int64_t row, int64_t rows,
                         int64_t k, int64_t n_k)
{
    for (int64_t r = 0; r < rows; r++)
        ht_load(left + r * pitch, p->launch->in[1], p->launch->call->in[1]->dtype,
                (group * p->rows + row + r) * p->depth + k, n_k);
}

static void forward_save(const product *p, const real *total, int64_t pitch, int64_t batch, int64_t row, int64_t rows,
                         int64_t q, int64_t n)
{
    for (int64_t r = 0; r < rows; r++)
        ht_save(p->launch->out[0], p->launch->call->out[0]->dtype,
                (batch * p->rows + row + r) * positions_total(&p->taps) + q, total + r * pitch, n);
}

static void forward_product(product *p, const ht_conv *c, const ht_call *call, const void *x)
{
    *p = (product){.conv = c, .rows = c->out_channels, .split = split_rows(c->out_channels)};
    image_planes(&p->planes, &p->taps, c, x, call->in[0]->dtype);
    p->depth = c->in_channels * taps_total(&p->taps);
    p->pack_left = forward_left;
    p->save = forward_save;
    p->whole_lines = true;
    if (p->planes.plane) product_cut(p);
}

static int64_t product_workspace(const product *p, int64_t left, bool copies)
{
    return (left + (copies ? planes_elems(&p->planes, p->conv->batch) : 0)) * (int64_t)sizeof(real);
}

static int64_t conv2d_workspace(const ht_call *call, const ht_target *target)
{
    product p;
    ht_conv c = ht_conv_of(call, call->in[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return 0;
    forward_product(&p, &c, call, NULL);
    p.threads = target->threads;
    if (!multiplies(&c, &p.planes)) return 0;
    if (uses_im2col(&c, positions_total(&p.taps)))
        return gemm_workspace(p.rows, im2col_positions(&p), p.depth, p.threads, false) + im2col_planes(&p);
    return product_workspace(&p, left_elems(&p), copies_planes(&p));
}

static void forward_direct(const ht_launch *launch, const product *p)
{
    depthwise job = {.launch = launch, .conv = p->conv, .planes = p->planes, .taps = p->taps, .sources = 1};
    const ht_conv *c = p->conv;
    if (c->in_channels == 1 && depthwise_strips(&job))
        ht_parallel(launch->pool, c->batch * c->groups * c->out_channels, depthwise_forward_tile, &job);
    else
        direct_forward(launch, c);
}

static ht_status conv2d_run(const ht_launch *launch)
{
    product p;
    ht_conv c = ht_conv_of(launch->call, launch->call->in[0], launch->call->in[1]);
    if (ht_type_elems(launch->call->out[0]) == 0) return HT_OK;
    forward_product(&p, &c, launch->call, launch->in[0]);
    if (!multiplies(&c, &p.planes)) {
        forward_direct(launch, &p);
        return HT_OK;
    }
    p.launch = launch;
    p.threads = launch->threads;
    if (uses_im2col(&c, positions_total(&p.taps))) {
        gemm_side weights = {launch->in[1], launch->call->in[1]->dtype, p.depth, 1, NULL, NULL};
        p.planes.scratch = launch->workspace;
        planes_take(&p.planes, launch->pool, 0, c.batch);
        im2col_product(&p, &weights, (char *)launch->workspace + im2col_planes(&p));
        return HT_OK;
    }
    p.left = launch->workspace;
    p.planes.scratch = p.left + left_elems(&p);
    bool copies = copies_planes(&p);
    p.images = copies ? planes_chunk(&p.planes, c.batch) : c.batch;
    for (; p.first_image < c.batch; p.first_image += p.images) {
        p.images = ht_min_i64(p.images, c.batch - p.first_image);
        if (copies || p.planes.in_place) planes_take(&p.planes, launch->pool, p.first_image, p.images);
        product_run(&p);
    }
    return HT_OK;
}

/* ---- conv2d_grad_input ---- */

/* Where the taps of a phase are in a window. */
static int64_t tap_at(const product *p, int64_t tap)
{
    const taps *t = &p->taps;
    return (t->first[0] + tap / t->count[1] * t->step[0]) * p->conv->window.size[1] + t->first[1] +
           tap % t->count[1] * t->step[1];
}

static void grad_input_left(const product *p, real *left, int64_t pitch, int64_t group, int64_t row, int64_t rows,
                            int64_t k, int64_t n_k)
{
    const ht_conv *c = p->conv;
    const void *w = p->launch->in[1];
    ht_dtype dtype = p->launch->call->in[1]->dtype;
    int64_t window = taps_total(&p->taps), area = c->window.size[0] * c->window.size[1], at[KC];
    for (int64_t i = 0, n; i < n_k; i += n) {
        int64_t channel = (k + i) / window, tap = (k + i) % window;
        int64_t from = ((group * c->out_channels + channel) * c->in_channels + row) * area;
        n = ht_min_i64(ht_min_i64(n_k - i, window - tap), KC);
        for (int64_t j = 0; j < n && window != area; j++) at[j] = tap_at(p, tap + j);
        for (int64_t r = 0; r < rows; r++) {
            real *to = left + r * pitch + i;
            if (window == area) /* all taps of a channel are one run */
                ht_load(to, w, dtype, from + r * area + tap, n);
            else if (dtype == HT_REAL_DTYPE)
                for (int64_t j = 0; j < n; j++) to[j] = ((const real *)w)[from + r * area + at[j]];
            else
                for (int64_t j = 0; j < n; j++) to[j] = ht_load1(w, dtype, from + r * area + at[j]);
        }
    }
}

/* Positions of a phase are stride apart in the plane. */
static void grad_input_save(const product *p, const real *total, int64_t pitch, int64_t batch, int64_t row,
                            int64_t rows, int64_t q, int64_t n)
{
    const ht_window *v = &p->conv->window;
    const taps *t = &p->taps;
    int64_t stride = v->stride[1];
    for (int64_t r = 0; r < rows; r++) {
        int64_t plane = (batch * p->rows + row + r) * v->plane[0] * v->plane[1];
        const real *from = total + r * pitch;
        if (stride == 1 && v->stride[0] == 1) {
            ht_save(p->launch->out[0], p->launch->call->out[0]->dtype, plane + q, from, n);
            continue;
        }
        for (int64_t i = 0; i < n;) {
            int64_t h = (q + i) / t->positions[1], w = (q + i) % t->positions[1],
                    count = ht_min_i64(n - i, t->positions[1] - w);
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
    p->whole_lines = c->window.stride[0] == 1 && c->window.stride[1] == 1;
}

/* The taps of one phase. */
static void grad_input_phase(product *p, int64_t phase_h, int64_t phase_w)
{
    p->phase[0] = phase_h;
    p->phase[1] = phase_w;
    for (int a = 0; a < 2; a++) phase_taps(&p->taps, &p->planes, &p->conv->window, a, p->phase[a]);
    if (p->planes.in_place) one_line(&p->taps);
    p->depth = p->conv->out_channels * taps_total(&p->taps);
    product_cut(p);
}

/* The most that any phase needs: elements of left, whole planes. */
static void grad_input_needs(product *p, int64_t *left, bool *copies)
{
    const ht_window *v = &p->conv->window;
    *left = 0;
    *copies = false;
    for (int64_t h = 0; h < ht_min_i64(v->stride[0], v->plane[0]); h++) {
        for (int64_t w = 0; w < ht_min_i64(v->stride[1], v->plane[1]); w++) {
            grad_input_phase(p, h, w);
            if (left_elems(p) > *left) *left = left_elems(p);
            *copies |= copies_planes(p);
        }
    }
}

static bool grad_input_uses_im2col(const ht_conv *c)
{
    const ht_window *v = &c->window;
    return uses_im2col(c, ht_tiles(v->plane[0], v->stride[0]) * ht_tiles(v->plane[1], v->stride[1]));
}

static void clear_image(void *arg, int64_t image)
{
    const ht_launch *launch = arg;
    const ht_type *type = launch->call->out[0];
    size_t bytes = (size_t)(ht_type_bytes(type) / type->dim[0]);
    memset((char *)launch->out[0] + (size_t)image * bytes, 0, bytes);
}

/* Positions that no tap reaches are zero, and their phases need not be run. */
static void grad_input_clear(product *p)
{
    const ht_window *v = &p->conv->window;
    bool all = true;
    for (int64_t h = 0; h < ht_min_i64(v->stride[0], v->plane[0]); h++) {
        for (int64_t w = 0; w < ht_min_i64(v->stride[1], v->plane[1]); w++) {
            grad_input_phase(p, h, w);
            all &= p->depth > 0;
        }
    }
    if (!all) ht_parallel(p->launch->pool, p->conv->batch, clear_image, (void *)p->launch);
}

/* Phase by phase; without a launch only the bytes of workspace are counted. */
static int64_t grad_input_im2col(product *p, const ht_launch *launch)
{
    const ht_window *v = &p->conv->window;
    int64_t most = 0, planes_bytes = im2col_planes(p);
    for (int64_t h = 0; h < ht_min_i64(v->stride[0], v->plane[0]); h++) {
        for (int64_t w = 0; w < ht_min_i64(v->stride[1], v->plane[1]); w++) {
            grad_input_phase(p, h, w);
            int64_t left = im2col_bytes(im2col_left(p)),
                    bytes = left + gemm_workspace(p->rows, im2col_positions(p), p->depth, p->threads, false);
            if (bytes > most) most = bytes;
            if (!launch || p->depth == 0) continue;
            p->left = (real *)((char *)launch->workspace + planes_bytes);
            im2col_product(p, NULL, (char *)p->left + left);
        }
    }
    return planes_bytes + most;
}

static int64_t conv2d_grad_input_workspace(const ht_call *call, const ht_target *target)
{
    product p;
    ht_conv c = ht_conv_of(call, call->out[0], call->in[1]);
    if (ht_type_elems(call->out[0]) == 0) return 0;
    grad_input_product(&p, &c, call, NULL);
    p.threads = target->threads;
    if (!multiplies(&c, &p.planes)) return 0;
    if (grad_input_uses_im2col(&c)) return grad_input_im2col(&p, NULL);
    int64_t left;
    bool copies;
    grad_input_needs(&p, &left, &copies);
    return product_workspace(&p, left, copies);
}

/* Runs or, with launch false, asks whether every phase can be run. */
static bool grad_input_strips(depthwise *job, bool launch)
{
    const ht_conv *c = job->conv;
    const ht_window *v = &c->window;
    for (int64_t h = 0; h < ht_min_i64(v->stride[0], v->plane[0]); h++) {
        for (int64_t w = 0; w < ht_min_i64(v->stride[1], v->plane[1]); w++) {
            phase_taps(&job->taps, &job->planes, v, 0, job->phase[0] = h);
            phase_taps(&job->taps, &job->planes, v, 1, job->phase[1] = w);
            if (job->planes.in_place) one_line(&job->taps);
            if (!depthwise_strips(job)) return false;
            if (launch) ht_parallel(job->launch->pool, c->batch * c->groups, depthwise_grad_input_tile, job);
        }
    }
    return true;
}

static void grad_input_direct(const ht_launch *launch, const product *p)
{
    depthwise job = {.launch = launch, .conv = p->conv, .planes = p->planes, .taps = p->taps};
    job.sources = p->conv->out_channels;
    if (p->conv->in_channels == 1 && grad_input_strips(&job, false))
        grad_input_strips(&job, true);
    else
        direct_grad_input(launch, p->conv);
}

static ht_status conv2d_grad_input_run(const ht_launch *launch)
{
    product p;
    ht_conv c = ht_conv_of(launch->call, launch->call->out[0], launch->call->in[1]);
    if (ht_type_elems(launch->call->out[0]) == 0) return HT_OK;
    grad_input_product(&p, &c, launch->call, launch->in[0]);
    if (!multiplies(&c, &p.planes)) {
        grad_input_direct(launch, &p);
        return HT_OK;
    }
    p.launch = launch;
    p.threads = launch->threads;
    grad_input_clear(&p);
    if (grad_input_uses_im2col(&c)) {
        p.planes.scratch = launch->workspace;
        planes_take(&p.planes, launch->pool, 0, c.batch);
        grad_input_im2col(&p, launch);
        return HT_OK;
    }
    p.left = launch->workspace;
    int64_t left;
    bool copies;
    grad_input_needs(&p, &left, &copies);
    p.planes.scratch = p.left + left;
    p.images = copies ? planes_chunk(&p.planes, c.batch) : c.batch;
    for (; p.first_image < c.batch; p.first_image += p.images) {
        p.images = ht_min_i64(p.images, c.batch - p.first_image);
        if (copies || p.planes.in_place) planes_take(&p.planes, launch->pool, p.first_image, p.images);
        for (int64_t h = 0; h < ht_min_i64(c.window.stride[0], c.window.plane[0]); h++) {
            for (int64_t w = 0; w < ht_min_i64(c.window.stride[1], c.window.plane[1]); w++) {
                grad_input_phase(&p, h, w);
                if (p.depth > 0) product_run(&p);
            }
        }
    }
    return HT_OK;
}

/* ---- rows ---- */

HT_CPU_KERNEL(conv2d, conv_can, conv2d_workspace, conv2d_run)
HT_CPU_KERNEL(conv2d_grad_input, conv_can, conv2d_grad_input_workspace, conv2d_grad_input_run)
