/* batchnorm, batchnorm_grad of x [N,C,S].  Any float but f8, row-major.  Threads: parts of channels, whose sums wait in
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
};

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

typedef struct channels {
    int64_t channels, space, count, parts; /* C, S, N S; parts of a channel */
} channels;

static channels channels_of(const ht_type *x)
{
    channels c = {.channels = x->dim[1], .space = 1};
    for (int i = 2; i < x->rank; i++) c.space *= x->dim[i];
    c.count = x->dim[0] * c.space;
    c.parts = ht_cuda_blocks(c.count, PART);
    return c;
}

/* The parts, then the channels; both of the calls' x, which is as large as their first input. */
static int64_t workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    channels c = channels_of(call->in[0]);
    return c.channels * (c.parts * PART_BYTES + CHANNEL_BYTES);
}

typedef struct names {
    char shape[200];   /* a template instance */
    char channels[48]; /* the channels' place in the workspace */
    int pack;
} names;

static names names_of(const ht_launch *launch, const channels *c)
{
    names n = {.pack = ht_cuda_pack(launch, c->space, PACK)};
    snprintf(n.shape, sizeof n.shape, "channels<%lld, %lld, %lld, %lld, %d, %d, %d, %s>", (long long)c->channels,
             (long long)c->space, (long long)c->count, (long long)c->parts, PART, n.pack, HT_CUDA_THREADS,
             c->count < INT32_MAX - PART ? "uint32_t" : "uint64_t");
    const int64_t first = c->channels * c->parts * PART_BYTES;
    snprintf(n.channels, sizeof n.channels, "(batchnorm_channel *)(workspace + %lldll)", (long long)first);
    return n;
}

static void batchnorm(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    channels c = channels_of(call->in[0]);
    names n = names_of(launch, &c);
    ht_cuda_number eps;
    ht_cuda_include(e, "batchnorm");
    ht_cuda_add_grid(e, c.channels * c.parts, HT_CUDA_THREADS, 0,
                     "batchnorm_measure<%s, %d>(in0, (batchnorm_part *)workspace);", n.shape, n.pack);
    ht_cuda_add_grid(e, c.channels, JOIN_THREADS, 0,
                     "batchnorm_join<%s, %lld, %lld>((const batchnorm_part *)workspace, %s, %s, %s, out1, out2, %s);",
                     n.shape, (long long)c.count, (long long)c.parts, n.channels, ht_cuda_optional(call, 1),
                     ht_cuda_optional(call, 2), ht_cuda_real(ht_call_float(call, "eps"), &eps));
    ht_cuda_add_grid(e, c.channels * c.parts, HT_CUDA_THREADS, 0, "batchnorm_write<%s, %d>(in0, out0, %s);", n.shape,
                     n.pack, n.channels);
}

static void batchnorm_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    channels c = channels_of(call->in[0]);
    names n = names_of(launch, &c);
    ht_cuda_number eps;
    ht_cuda_include(e, "batchnorm");
    ht_cuda_add_grid(e, c.channels * c.parts, HT_CUDA_THREADS, 0,
                     "batchnorm_grad_measure<%s, %d>(in0, in1, in2, (batchnorm_grad_part *)workspace);", n.shape,
                     n.pack);
    ht_cuda_add_grid(
        e, c.channels, JOIN_THREADS, 0,
        "batchnorm_grad_join<%lld, %lld>((const batchnorm_grad_part *)workspace, %s, in2, in3, %s, out1, out2, %s);",
        (long long)c.count, (long long)c.parts, n.channels, ht_cuda_optional(call, 4),
        ht_cuda_real(ht_call_float(call, "eps"), &eps));
    ht_cuda_add_grid(e, c.channels * c.parts, HT_CUDA_THREADS, 0, "batchnorm_grad_write<%s, %d>(in0, in1, out0, %s);",
                     n.shape, n.pack, n.channels);
}

HT_CUDA_KERNEL(batchnorm, can, workspace, batchnorm)
HT_CUDA_KERNEL(batchnorm_grad, can, workspace, batchnorm_grad)
