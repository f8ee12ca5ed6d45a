/* batchnorm, batchnorm_stats, batchnorm_grad of x [N,C,S].  Any float but f8, row-major or channels-last.  Threads: parts of channels, whose sums wait in
 * the workspace.  Traffic: batchnorm 2 reads, 1 write; batchnorm_grad 4 reads, 1 write.  Bound: bandwidth. */
#include <stdint.h>
#include <stdio.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum {
    PACK = 8,
    PART = 4096, /* elements of a channel that a block holds in registers */
    JOIN_THREADS = 128,
    PART_BYTES = 2 * sizeof(double), /* at most: two numbers of a part, four of a channel */
    CHANNEL_BYTES = 4 * sizeof(double),
    /* Channels last: */
    WARP = 32,
    BLOCKS = 1056, /* that keep a device busy */
    FEW_ROWS = 8,  /* of a thread */
    MANY_ROWS = 64,
};

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse_channels(call);
}

typedef struct channels {
    int64_t channels, space, count, parts; /* C, S, N S; parts of a channel */
    int64_t part;                          /* rows of one, where channels lie last */
    int columns;                           /* threads side by side there; 0: channels lie first */
} channels;

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit;
}

/* By the widest pack that the channels allow: there are no addresses yet when the workspace is asked for. */
static void cut_rows(channels *c)
{
    int pack = PACK;
    c->columns = 1;
    while (c->channels % pack != 0) pack /= 2;
    while (c->columns < WARP && c->columns < c->channels / pack) c->columns *= 2;
    int64_t slices = HT_CUDA_THREADS / c->columns, tiles = round_up(c->channels, (int64_t)c->columns * pack);
    c->part = round_up(c->count, round_up(BLOCKS, tiles));
    if (c->part < slices * FEW_ROWS) c->part = slices * FEW_ROWS;
    if (c->part > slices * MANY_ROWS) c->part = slices * MANY_ROWS;
    c->parts = round_up(c->count, c->part);
}

static channels channels_of(const ht_call *call)
{
    const ht_type *x = call->in[0];
    channels c = {.channels = x->dim[1], .space = 1};
    for (int i = 2; i < x->rank; i++) c.space *= x->dim[i];
    c.count = x->dim[0] * c.space;
    c.parts = ht_cuda_blocks(c.count, PART);
    if (ht_cuda_channels_last(call)) cut_rows(&c);
    return c;
}

/* The parts, then the channels; both of the calls' x, which is as large as their first input. */
static int64_t workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    channels c = channels_of(call);
    return c.channels * (c.parts * PART_BYTES + CHANNEL_BYTES);
}

typedef struct names {
    char shape[200];   /* a template instance */
    char channels[48]; /* the channels' place in the workspace */
    const char *order; /* what ends the names of functions for this order */
    int pack;
    int64_t blocks; /* of the grids over parts */
} names;

static names names_of(const ht_launch *launch, const channels *c)
{
    names n = {.pack = ht_cuda_pack(launch, c->columns ? c->channels : c->space, PACK)};
    if (c->columns) {
        n.order = "_rows";
        n.blocks = c->parts * round_up(c->channels, (int64_t)c->columns * n.pack);
        snprintf(n.shape, sizeof n.shape, "channel_rows<%lld, %lld, %lld, %lld, %d, %d, %d>", (long long)c->channels,
                 (long long)c->count, (long long)c->parts, (long long)c->part, c->columns, n.pack, HT_CUDA_THREADS);
    } else {
        n.order = "";
        n.blocks = c->parts * c->channels;
        snprintf(n.shape, sizeof n.shape, "channels<%lld, %lld, %lld, %lld, %d, %d, %d, %s>", (long long)c->channels,
                 (long long)c->space, (long long)c->count, (long long)c->parts, PART, n.pack, HT_CUDA_THREADS,
                 c->count < INT32_MAX - PART ? "uint32_t" : "uint64_t");
    }
    const int64_t first = c->channels * c->parts * PART_BYTES;
    snprintf(n.channels, sizeof n.channels, "(batchnorm_channel *)(workspace + %lldll)", (long long)first);
    return n;
}

/* Mean, variance and factor into these results. */
static void measure(ht_cuda_emission *e, const ht_call *call, const channels *c, const names *n, const char *results)
{
    ht_cuda_number number;
    ht_cuda_include(e, "batchnorm");
    ht_cuda_add_grid(e, n->blocks, HT_CUDA_THREADS, 0, "batchnorm_measure%s<%s, %d>(in0, (batchnorm_part *)workspace);",
                     n->order, n->shape, n->pack);
    ht_cuda_add_grid(e, c->channels, JOIN_THREADS, 0,
                     "batchnorm_join<%s, %lld, %lld>((const batchnorm_part *)workspace, %s, %s, %s, %s, %s);", n->shape,
                     (long long)c->count, (long long)c->parts, n->channels, ht_cuda_optional(call, 1),
                     ht_cuda_optional(call, 2), results, ht_cuda_real(ht_call_float(call, "eps"), &number));
}

static void batchnorm_stats(ht_cuda_emission *e, const ht_launch *launch)
{
    channels c = channels_of(launch->call);
    names n = names_of(launch, &c);
    measure(e, launch->call, &c, &n, "out0, out1, out2");
}

static void batchnorm(ht_cuda_emission *e, const ht_launch *launch)
{
    channels c = channels_of(launch->call);
    names n = names_of(launch, &c);
    measure(e, launch->call, &c, &n, "out1, out2, (real *)nullptr");
    ht_cuda_add_grid(e, n.blocks, HT_CUDA_THREADS, 0, "batchnorm_write%s<%s, %d>(in0, out0, %s);", n.order, n.shape,
                     n.pack, n.channels);
}

typedef struct slopes_text {
    char text[400];
} slopes_text;

/* An expression: how dy is read. */
static slopes_text slopes_of(const ht_call *call)
{
    slopes_text to = {"all_slopes{}"};
    ht_cuda_number eps;
    if (call->n_in < 6) return to;
    const char *dx = ht_cuda_type(call->out[0]->dtype), *variance = ht_cuda_type(call->in[3]->dtype);
    const char *scale = call->in[4] ? ht_cuda_type(call->in[4]->dtype) : "real";
    snprintf(to.text, sizeof to.text, "relu_slopes<%s, %s, %s, %s>{in3, %s, in5, %s}", dx, variance, scale,
             ht_cuda_type(call->in[5]->dtype), ht_cuda_optional(call, 4),
             ht_cuda_real(ht_call_float(call, "eps"), &eps));
    return to;
}

static void batchnorm_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    channels c = channels_of(call);
    names n = names_of(launch, &c);
    slopes_text slopes = slopes_of(call);
    ht_cuda_number eps;
    ht_cuda_include(e, "batchnorm");
    ht_cuda_add_grid(e, n.blocks, HT_CUDA_THREADS, 0,
                     "batchnorm_grad_measure%s<%s, %d>(in0, in1, in2, (batchnorm_grad_part *)workspace, %s);", n.order,
                     n.shape, n.pack, slopes.text);
    ht_cuda_add_grid(
        e, c.channels, JOIN_THREADS, 0,
        "batchnorm_grad_join<%lld, %lld>((const batchnorm_grad_part *)workspace, %s, in2, in3, %s, out1, out2, %s);",
        (long long)c.count, (long long)c.parts, n.channels, ht_cuda_optional(call, 4),
        ht_cuda_real(ht_call_float(call, "eps"), &eps));
    ht_cuda_add_grid(e, n.blocks, HT_CUDA_THREADS, 0, "batchnorm_grad_write%s<%s, %d>(in0, in1, out0, %s, %s);",
                     n.order, n.shape, n.pack, n.channels, slopes.text);
}

HT_CUDA_CHANNELS_KERNEL(batchnorm, can, workspace, batchnorm)
HT_CUDA_CHANNELS_KERNEL(batchnorm_stats, can, workspace, batchnorm_stats)
HT_CUDA_CHANNELS_KERNEL(batchnorm_grad, can, workspace, batchnorm_grad)
