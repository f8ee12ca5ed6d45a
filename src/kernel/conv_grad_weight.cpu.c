/* conv2d_grad_weight as a product per group, out[r,q] = sum over k of left[r,k] right[k,q], with r: input channel and tap,
 * q: output channel, k: image and place; left is gathered from the planes of x (conv_planes.h), right is dy turned.
 * The steps of k are dealt out to parts, whose sums are added and turned at the end.
 * x, dy, dw: any float, row-major.  Numerics: real inside, FMA; each step of KC products at most is summed from zero and
 * added to the part, in order, then the parts in order; one rounding.  Threads: planes and pieces of dy, then blocks of
 * the output by parts; their number depends on sizes alone.
 * Traffic: x and dy once, then from L3.  Bound: compute. */
#include "kernel/conv_lines.h"
#include "kernel/depthwise.h"

enum {
    MANY_TILES = 64,       /* k is cut until there are as many, */
    PART_STEPS = 8,        /* but not into parts of fewer steps, */
    PARTS_ELEMS = 1 << 22, /* nor into more elements of partial sums */
    TURNED_ROWS = 32,      /* of partial sums that are added and turned at a time */
};

typedef struct weight_job {
    const ht_launch *launch;
    const ht_conv *conv;
    planes planes;
    taps taps;
    int64_t chunk;               /* images at a time: their planes and dy stay in L3 */
    int64_t images, first_image; /* of the chunk */
    int64_t rows, cols;
    row_split split;
    int64_t step, steps; /* places of a step; steps of an image */
    int64_t parts;       /* of the steps of a chunk, each with its own sums */
    real *sums;          /* by part, group, row: cols each */
    real *turned;        /* dy of the chunk by image, group, step and sliver of columns: KC × NR each */
} weight_job;

static int64_t turned_elems(const weight_job *job, int64_t images)
{
    return images * job->conv->groups * job->steps * ht_tiles(job->cols, NR) * KC * NR;
}

static void weight_plan(weight_job *job, const ht_conv *c, const ht_call *call, const void *x)
{
    *job = (weight_job){.conv = c, .cols = c->out_channels};
    image_planes(&job->planes, &job->taps, c, x, call->in[0]->dtype);
    int64_t places = places_total(&job->taps);
    job->rows = c->in_channels * taps_total(&job->taps);
    job->split = split_rows(job->rows);
    job->step = ht_tiles(places, ht_tiles(places, KC));
    job->steps = ht_tiles(places, job->step);
    int64_t tiles = c->groups * job->split.blocks * ht_tiles(job->cols, COLS);
    job->chunk = CHUNK_ELEMS / turned_elems(job, 1);
    job->chunk = job->chunk < 1 ? 1 : ht_min_i64(job->chunk, planes_chunk(&job->planes, c->batch));
    job->parts = ht_min_i64(ht_tiles(MANY_TILES, tiles), job->chunk * job->steps / PART_STEPS);
    job->parts = ht_min_i64(job->parts, PARTS_ELEMS / (c->groups * job->rows * job->cols));
    if (job->parts < 1) job->parts = 1;
}

static int64_t sums_elems(const weight_job *job)
{
    return job->parts * job->conv->groups * job->rows * job->cols;
}

/* VL output channels of dy from `channel` on, in n places from q on, into half a sliver. */
static void turn_channels(const weight_job *job, real *to, int64_t channel, int64_t channels, int64_t q, int64_t n)
{
    int64_t places = places_total(&job->taps);
    const void *dy = job->launch->in[1];
    ht_dtype dtype = job->launch->call->in[1]->dtype;
    vec square[VL];
    for (int64_t i = 0; i < n; i += VL) {
        int64_t deep = ht_min_i64(VL, n - i), at = channel * places + q + i;
        if (channels == VL && deep == VL && dtype == real_dtype) {
            for (int64_t j = 0; j < VL; j++) square[j] = *(const loose *)((const real *)dy + at + j * places);
        } else {
            memset(square, 0, sizeof square);
            for (int64_t j = 0; j < channels; j++) ht_load((real *)&square[j], dy, dtype, at + j * places, deep);
        }
        transpose(square);
        for (int64_t j = 0; j < deep; j++) *(vec *)(to + (i + j) * NR) = square[j];
    }
}

/* One step of one image and group of dy. */
static void turn_tile(void *arg, int64_t tile)
{
    const weight_job *job = arg;
    int64_t q = tile % job->steps * job->step, batch = job->first_image * job->conv->groups + tile / job->steps;
    int64_t n = ht_min_i64(places_total(&job->taps) - q, job->step), slivers = ht_tiles(job->cols, NR);
    for (int64_t c = 0; c < slivers * NR; c += VL) {
        int64_t channels = job->cols - c < 0 ? 0 : ht_min_i64(job->cols - c, VL);
        turn_channels(job, job->turned + (tile * slivers + c / NR) * KC * NR + c % NR, batch * job->cols + c, channels,
                      q, n);
    }
}

static void weight_tile(void *arg, int64_t tile)
{
    const weight_job *job = arg;
    const ht_conv *c = job->conv;
    real left[ROWS * PITCH + NR] __attribute__((aligned(64))), total[ROWS * COLS] __attribute__((aligned(64)));
    int64_t across = ht_tiles(job->cols, COLS), col = tile % across * COLS, columns = ht_min_i64(job->cols - col, COLS);
    int64_t row = tile / across % job->split.blocks * job->split.rows, batch = tile / across / job->split.blocks;
    int64_t rows = ht_min_i64(job->rows - row, job->split.rows), group = batch % c->groups, part = batch / c->groups;
    int64_t all = job->images * job->steps;
    memset(total, 0, (size_t)(job->split.rows * COLS) * sizeof *total);
    memset(left + rows * PITCH, 0, (size_t)((job->split.rows - rows) * PITCH) * sizeof *left);
    for (int64_t i = part * all / job->parts; i < (part + 1) * all / job->parts; i++) {
        int64_t image = i / job->steps, q = i % job->steps * job->step;
        int64_t n = ht_min_i64(places_total(&job->taps) - q, job->step);
        const real *data = job->planes.data + (image * c->groups + group) * c->in_channels * job->planes.plane;
        gather_rows(left, data, &job->planes, &job->taps, row, rows, q, n);
        const real *right =
            job->turned +
            ((image * c->groups + group) * job->steps + i % job->steps) * ht_tiles(job->cols, NR) * KC * NR +
            col / NR * KC * NR;
        for (int64_t j = 0; j < columns; j += NR)
            multiply_packed(total + j, left, right + j * KC, n, job->split.panel, rows);
    }
    for (int64_t r = 0; r < rows; r++) {
        real *to = job->sums + (batch * job->rows + row + r) * job->cols + col;
        for (int64_t j = 0; j < columns; j++) to[j] = total[r * COLS + j] + (job->first_image > 0 ? to[j] : 0);
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
            const real *from = job->sums + ((part * c->groups + group) * job->rows + row) * job->cols + col;
            for (int64_t r = 0; r < rows; r++)
                for (int64_t j = 0; j < columns; j++) total[r * COLS + j] += from[r * job->cols + j];
        }
        for (int64_t j = 0; j < columns; j++) {
            for (int64_t r = 0; r < rows; r++) line[r] = total[r * COLS + j];
            ht_save(job->launch->out[0], job->launch->call->out[0]->dtype,
                    (group * job->cols + col + j) * job->rows + row, line, rows);
        }
    }
}

static int64_t conv2d_grad_weight_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    weight_job job;
    ht_conv c = ht_conv_of(call, call->in[0], call->out[0]);
    if (ht_type_elems(call->out[0]) == 0) return 0;
    weight_plan(&job, &c, call, NULL);
    if (!multiplies(&c, &job.planes)) return 0;
    int64_t turned = turned_elems(&job, job.chunk);
    return (sums_elems(&job) + turned + planes_elems(&job.planes, c.batch)) * (int64_t)sizeof(real);
}

static void grad_weight_lines(const ht_launch *launch, const weight_job *weights)
{
    depthwise job = {.launch = launch, .conv = weights->conv, .planes = weights->planes, .taps = weights->taps};
    const ht_conv *c = weights->conv;
    job.sources = 1;
    if (c->in_channels == 1 && depthwise_bands(&job))
        ht_parallel(launch->pool, c->groups * c->out_channels, depthwise_grad_weight_tile, &job);
    else
        lines_grad_weight(launch, c);
}

static void conv2d_grad_weight_run(const ht_launch *launch)
{
    weight_job job;
    ht_conv c = ht_conv_of(launch->call, launch->call->in[0], launch->call->out[0]);
    if (ht_type_elems(launch->call->out[0]) == 0) return;
    weight_plan(&job, &c, launch->call, launch->in[0]);
    if (!multiplies(&c, &job.planes)) {
        grad_weight_lines(launch, &job);
        return;
    }
    job.launch = launch;
    job.images = job.chunk;
    job.turned = launch->workspace;
    job.sums = job.turned + turned_elems(&job, job.images);
    job.planes.room = job.sums + sums_elems(&job);
    for (; job.first_image < c.batch; job.first_image += job.images) {
        job.images = ht_min_i64(job.images, c.batch - job.first_image);
        planes_take(&job.planes, launch->pool, job.first_image, job.images);
        ht_parallel(launch->pool, job.images * c.groups * job.steps, turn_tile, &job);
        ht_parallel(launch->pool, job.parts * c.groups * job.split.blocks * ht_tiles(job.cols, COLS), weight_tile,
                    &job);
    }
    ht_parallel(launch->pool, c.groups * ht_tiles(job.rows, TURNED_ROWS), weight_turn_tile, &job);
}

HT_CPU_KERNEL(conv2d_grad_weight, conv_can, conv2d_grad_weight_workspace, conv2d_grad_weight_run)
