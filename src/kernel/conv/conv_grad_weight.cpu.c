/* conv2d_grad_weight as a product per group, out[r,q] = sum over k of left[r,k] right[k,q], with r: input channel and tap,
 * q: output channel, k: image and position. A step of k is some lines of one image: a thread turns dy of the step,
 * gathers left from strips of x (conv_planes.h) block by block, and adds the products to sums that stay in its L2;
 * where a strip would be too large, whole planes are copied first, a few images at a time.
 * The steps are dealt out to parts, whose sums are added and turned at the end. Small planes go by conv_im2col.h.
 * x, dy, dw: any float, row-major.  Numerics: real inside, FMA; each step of KC products at most is summed from zero and
 * added to the part, in order, then the parts in order; one rounding.  Threads: parts, and spans of rows where parts are
 * few; their number depends on sizes alone.
 * Traffic: x and dy once for each span of rows, x again at the seams of steps; then from L2.  Bound: compute. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/conv/conv_direct.h"
#include "kernel/conv/conv_im2col.h"
#include "kernel/conv/conv_product.h"
#include "kernel/conv/depthwise.h"

enum {
    MANY_TILES = 32,       /* k is cut until there are as many, */
    PART_STEPS = 12,       /* but not into parts of fewer steps, */
    PARTS_ELEMS = 1 << 22, /* nor into more elements of partial sums; then rows are cut */
    TURNED_ROWS = 32,      /* of partial sums that are added and turned at a time */
};

typedef struct weight_job {
    const ht_launch *launch;
    int64_t threads; /* of the target, for the product by the GEMM core */
    const ht_conv *conv;
    planes planes;
    taps taps;
    strips strips;
    int64_t images, first_image; /* of a chunk: all, or those whose planes are copied */
    int64_t rows, cols;
    row_split split;
    int64_t step, steps; /* positions of a step; steps of an image */
    int64_t parts;       /* of the steps of a chunk, each with its own sums */
    int64_t span, spans; /* blocks of rows of a tile; tiles of a part and group */
    int64_t down;        /* from row to row of sums */
    real *sums;          /* by part, group, row */
    real *turned;        /* by tile: dy of a step by sliver of columns, KC × NR each */
} weight_job;

static bool copies_planes(const weight_job *job)
{
    return !job->strips.channels && !job->planes.in_place;
}

/* Channels that a block of rows can touch must fit into a strip. */
static void weight_strips(weight_job *job, int64_t lines)
{
    const taps *t = &job->taps;
    int64_t most = (job->split.rows - 1) / taps_total(t) + 2;
    job->strips = (strips){.low = t->origin[0], .span = (t->count[0] - 1) * t->move[0] + 1};
    int64_t elems = ((lines - 1) * t->advance + job->strips.span) * job->planes.line;
    if (!job->planes.in_place && elems <= STRIP_ELEMS / most) job->strips.channels = most;
}

static void weight_plan(weight_job *job, const ht_conv *c, const ht_call *call, const void *x)
{
    *job = (weight_job){.conv = c, .cols = c->out_channels};
    image_planes(&job->planes, &job->taps, c, x, call->in[0]->dtype);
    if (!job->planes.plane) return;
    int64_t positions = positions_total(&job->taps), line = job->taps.positions[1];
    job->rows = c->in_channels * taps_total(&job->taps);
    job->split = split_rows(job->rows);
    job->step = line <= KC ? KC / line * line : ht_tiles(positions, ht_tiles(positions, KC));
    job->steps = ht_tiles(positions, job->step);
    weight_strips(job, line <= KC ? KC / line : 2);
    job->images = copies_planes(job) ? planes_chunk(&job->planes, c->batch) : c->batch;
    job->down = ht_tiles(job->cols, NR) * NR;
    int64_t sums = c->groups * job->split.blocks * job->split.rows * job->down;
    job->parts = ht_min_i64(ht_tiles(MANY_TILES, c->groups), job->images * job->steps / PART_STEPS);
    job->parts = ht_min_i64(job->parts, PARTS_ELEMS / sums);
    if (job->parts < 1) job->parts = 1;
    job->span = ht_tiles(job->split.blocks, ht_tiles(MANY_TILES, 2 * job->parts * c->groups));
    job->spans = ht_tiles(job->split.blocks, job->span);
}

static int64_t sums_elems(const weight_job *job)
{
    return job->parts * job->conv->groups * job->split.blocks * job->split.rows * job->down;
}

static int64_t turned_elems(const weight_job *job)
{
    return job->parts * job->conv->groups * job->spans * job->down * KC;
}

/* VL output channels of dy from `channel` on, in n positions from q on, into half a sliver. */
static void turn_channels(const weight_job *job, real *to, int64_t channel, int64_t channels, int64_t q, int64_t n)
{
    int64_t positions = positions_total(&job->taps);
    const void *dy = job->launch->in[1];
    ht_dtype dtype = job->launch->call->in[1]->dtype;
    vec square[VL];
    for (int64_t i = 0; i < n; i += VL) {
        int64_t deep = ht_min_i64(VL, n - i), at = channel * positions + q + i;
        if (channels == VL && deep == VL && dtype == HT_REAL_DTYPE) {
            for (int64_t j = 0; j < VL; j++)
                square[j] = *(const vec_unaligned *)((const real *)dy + at + j * positions);
        } else {
            memset(square, 0, sizeof square);
            for (int64_t j = 0; j < channels; j++) ht_load((real *)&square[j], dy, dtype, at + j * positions, deep);
        }
        vec_transpose(square);
        for (int64_t j = 0; j < deep; j++) *(vec *)(to + (i + j) * NR) = square[j];
    }
}

/* dy of n positions from q on, of one image and group: `batch` counts these. */
static void turn_step(const weight_job *job, real *turned, int64_t batch, int64_t q, int64_t n)
{
    for (int64_t c = 0; c < job->down; c += VL) {
        int64_t channels = job->cols - c < 0 ? 0 : ht_min_i64(job->cols - c, VL);
        turn_channels(job, turned + c / NR * KC * NR + c % NR, batch * job->cols + c, channels, q, n);
    }
}

/* Starts to fetch x and dy of a step. */
static void fetch_step(const weight_job *job, int64_t batch, int64_t q, int64_t n)
{
    int64_t line = q / job->taps.positions[1], lines = (q + n - 1) / job->taps.positions[1] - line + 1;
    int64_t bytes = ht_dtype_bytes(job->launch->call->in[1]->dtype);
    if (job->strips.channels)
        strip_fetch(&job->planes, &job->taps, &job->strips, batch * job->conv->in_channels, job->conv->in_channels,
                    line, lines);
    for (int64_t c = 0; c < job->cols; c++) {
        const char *from =
            (const char *)job->launch->in[1] + ((batch * job->cols + c) * positions_total(&job->taps) + q) * bytes;
        for (int64_t at = 0; at < n * bytes; at += HT_CACHE_LINE_BYTES) __builtin_prefetch(from + at, 0, 2);
    }
}

/* sums += a block of rows of left by turned dy, for one step of an image and group of the chunk. */
static void weight_block(const weight_job *job, real *sums, const real *turned, int64_t batch, int64_t row, int64_t q,
                         int64_t n)
{
    real left[ROWS * PITCH + NR] __attribute__((aligned(64))), strip[STRIP_ELEMS + NR];
    int64_t rows = ht_min_i64(job->rows - row, job->split.rows), window = taps_total(&job->taps);
    int64_t plane = batch * job->conv->in_channels, k = row;
    planes seen = job->planes;
    taps t = job->taps;
    if (job->strips.channels) {
        int64_t line = q / t.positions[1], lines = (q + n - 1) / t.positions[1] - line + 1, first = row / window;
        plane += job->first_image * job->conv->groups * job->conv->in_channels + first;
        strip_fill(&job->planes, &job->strips, strip, plane, (row + rows - 1) / window - first + 1, line, lines, &seen,
                   &t);
        k -= first * window;
        q -= line * t.positions[1];
    } else {
        seen.data += plane * seen.plane;
    }
    gather_rows(left, seen.data, &seen, &t, k, rows, q, n);
    memset(left + rows * PITCH, 0, (size_t)((job->split.rows - rows) * PITCH) * sizeof *left);
    for (int64_t j = 0; j < job->down; j += NR)
        multiply_packed(sums + j, job->down, left, turned + j * KC, n, job->split.panel, rows);
}

static void weight_tile(void *arg, int64_t tile)
{
    const weight_job *job = arg;
    int64_t groups = job->conv->groups, owner = tile / job->spans, group = owner % groups, part = owner / groups;
    int64_t from = tile % job->spans * job->span, to = ht_min_i64(job->split.blocks, from + job->span);
    int64_t block = job->split.rows * job->down, all = job->images * job->steps,
            positions = positions_total(&job->taps);
    real *sums = job->sums + owner * job->split.blocks * block, *turned = job->turned + tile * job->down * KC;
    if (job->first_image == 0) memset(sums + from * block, 0, (size_t)((to - from) * block) * sizeof *sums);
    for (int64_t i = part * all / job->parts, end = (part + 1) * all / job->parts; i < end; i++) {
        int64_t batch = i / job->steps * groups + group, q = i % job->steps * job->step;
        turn_step(job, turned, job->first_image * groups + batch, q, ht_min_i64(positions - q, job->step));
        if (i + 1 < end) {
            int64_t next = (i + 1) % job->steps * job->step;
            fetch_step(job, (job->first_image + (i + 1) / job->steps) * groups + group, next,
                       ht_min_i64(positions - next, job->step));
        }
        for (int64_t b = from; b < to; b++)
            weight_block(job, sums + b * block, turned, batch, b * job->split.rows, q,
                         ht_min_i64(positions - q, job->step));
    }
}

/* Adds the parts of a few rows, in order, and writes them as columns of the result. */
static void weight_turn_tile(void *arg, int64_t tile)
{
    const weight_job *job = arg;
    const ht_conv *c = job->conv;
    real total[TURNED_ROWS * COLS], line[TURNED_ROWS];
    int64_t blocks = ht_tiles(job->rows, TURNED_ROWS), row = tile % blocks * TURNED_ROWS, group = tile / blocks;
    int64_t rows = ht_min_i64(job->rows - row, TURNED_ROWS), parts = c->batch > 0 ? job->parts : 0;
    for (int64_t col = 0; col < job->cols; col += COLS) {
        int64_t columns = ht_min_i64(job->cols - col, COLS);
        memset(total, 0, sizeof total);
        for (int64_t part = 0; part < parts; part++) {
            int64_t start = (part * c->groups + group) * job->split.blocks * job->split.rows + row;
            const real *from = job->sums + start * job->down + col;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t j = 0; j < columns; j++) total[r * COLS + j] += from[r * job->down + j];
        }
        for (int64_t j = 0; j < columns; j++) {
            for (int64_t r = 0; r < rows; r++) line[r] = total[r * COLS + j];
            ht_save(job->launch->out[0], job->launch->call->out[0]->dtype,
                    (group * job->cols + col + j) * job->rows + row, line, rows);
        }
    }
}

/* ---- all images at once ---- */

/* What k counts. */
static int64_t im2col_positions(const weight_job *job)
{
    return job->conv->batch * positions_total(&job->taps);
}

typedef struct weight_im2col {
    int64_t planes, dy, all; /* bytes: x with its padding, then dy by channel, then the GEMM core's */
} weight_im2col;

static weight_im2col weight_im2col_of(const weight_job *job)
{
    const planes *p = &job->planes;
    weight_im2col w = {.planes = p->in_place ? 0 : im2col_bytes(job->conv->batch * p->channels * p->plane + NR)};
    w.dy = im2col_bytes(job->cols * im2col_pitch(im2col_positions(job)));
    w.all = w.planes + w.dy + gemm_workspace(job->cols, job->rows, im2col_positions(job), job->threads, false);
    return w;
}

/* One channel of dy, image after image. */
static void im2col_channel(void *arg, int64_t channel)
{
    const weight_job *job = arg;
    int64_t positions = positions_total(&job->taps);
    real *to = job->turned + channel * im2col_pitch(im2col_positions(job));
    for (int64_t image = 0; image < job->conv->batch; image++)
        ht_load(to + image * positions, job->launch->in[1], job->launch->call->in[1]->dtype,
                (image * job->cols + channel) * positions, positions);
}

static void weight_im2col_run(weight_job *job)
{
    const ht_launch *launch = job->launch;
    weight_im2col w = weight_im2col_of(job);
    im2col positions = {&job->planes, &job->taps};
    char *scratch = launch->workspace;
    job->planes.scratch = (real *)scratch;
    job->turned = (real *)(scratch + w.planes);
    planes_take(&job->planes, launch->pool, 0, job->conv->batch);
    ht_parallel(launch->pool, job->cols, im2col_channel, job);
    gemm_job product = {
        .m = job->cols, .n = job->rows, .k = im2col_positions(job), .workspace = scratch + w.planes + w.dy};
    product.a = (gemm_side){job->turned, HT_REAL_DTYPE, im2col_pitch(im2col_positions(job)), 1, NULL, NULL};
    product.b = (gemm_side){.dtype = HT_REAL_DTYPE, .load = im2col_load_turned, .more = &positions};
    product.threads = job->threads;
    product.y = launch->out[0];
    product.dtype = launch->call->out[0]->dtype;
    product.y_down = job->rows;
    gemm_run(&product, launch->pool);
}

static int64_t conv2d_grad_weight_workspace(const ht_call *call, const ht_target *target)
{
    weight_job job;
    ht_conv c = ht_conv_of(call, call->in[0], call->out[0]);
    if (ht_type_elems(call->out[0]) == 0) return 0;
    weight_plan(&job, &c, call, NULL);
    job.threads = target->threads;
    if (!multiplies(&c, &job.planes)) return 0;
    if (uses_im2col(&c, positions_total(&job.taps))) return weight_im2col_of(&job).all;
    int64_t copied = copies_planes(&job) ? planes_elems(&job.planes, c.batch) : 0;
    return (sums_elems(&job) + turned_elems(&job) + copied) * (int64_t)sizeof(real);
}

static void grad_weight_direct(const ht_launch *launch, const weight_job *weights)
{
    depthwise job = {.launch = launch, .conv = weights->conv, .planes = weights->planes, .taps = weights->taps};
    const ht_conv *c = weights->conv;
    job.sources = 1;
    if (c->in_channels == 1 && depthwise_strips(&job))
        ht_parallel(launch->pool, c->groups * c->out_channels, depthwise_grad_weight_tile, &job);
    else
        direct_grad_weight(launch, c);
}

static ht_status conv2d_grad_weight_run(const ht_launch *launch)
{
    weight_job job;
    ht_conv c = ht_conv_of(launch->call, launch->call->in[0], launch->call->out[0]);
    if (ht_type_elems(launch->call->out[0]) == 0) return HT_OK;
    weight_plan(&job, &c, launch->call, launch->in[0]);
    if (!multiplies(&c, &job.planes)) {
        grad_weight_direct(launch, &job);
        return HT_OK;
    }
    job.launch = launch;
    job.threads = launch->threads;
    if (uses_im2col(&c, positions_total(&job.taps))) {
        weight_im2col_run(&job);
        return HT_OK;
    }
    job.turned = launch->workspace;
    job.sums = job.turned + turned_elems(&job);
    job.planes.scratch = job.sums + sums_elems(&job);
    for (; job.first_image < c.batch; job.first_image += job.images) {
        job.images = ht_min_i64(job.images, c.batch - job.first_image);
        if (!job.strips.channels) planes_take(&job.planes, launch->pool, job.first_image, job.images);
        ht_parallel(launch->pool, job.parts * c.groups * job.spans, weight_tile, &job);
    }
    ht_parallel(launch->pool, c.groups * ht_tiles(job.rows, TURNED_ROWS), weight_turn_tile, &job);
    return HT_OK;
}

HT_CPU_KERNEL(conv2d_grad_weight, conv_can, conv2d_grad_weight_workspace, conv2d_grad_weight_run)
