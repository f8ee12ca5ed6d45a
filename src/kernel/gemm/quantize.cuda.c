/* quantize, quantize_both.  x: f32, f16, bf16, row-major.  Threads: blocks of x, in quantize_both tiles; their largest
 * magnitudes wait in the workspace.  Traffic: x once, twice where the scale is not known; y once for each order.  Bound:
 * bandwidth. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum {
    LEAST_PART = 16384, /* elements of a block */
    MOST_PARTS = 512,   /* of what every block of the second grid joins */
    PACK = 8,
    TILE = 128, /* as in quantize.cu */
};

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

/* How x is cut: parts of grids 1 and 2, tiles of quantize_both. */
typedef struct cut {
    int64_t elems, part, parts, rows, columns, tiles;
} cut;

static cut cut_of(const ht_call *call)
{
    const ht_type *x = call->in[0];
    cut c = {.elems = ht_type_elems(x), .part = LEAST_PART, .columns = x->rank ? x->dim[x->rank - 1] : 1};
    while (c.part * MOST_PARTS < c.elems) c.part *= 2;
    c.parts = c.elems ? (c.elems + c.part - 1) / c.part : 1; /* the numbers are results even of nothing */
    c.rows = c.columns ? c.elems / c.columns : 0;
    c.tiles = c.elems ? ht_cuda_blocks(c.rows, TILE) * ht_cuda_blocks(c.columns, TILE) : 1;
    return c;
}

/* What lies in the workspace: the largest magnitudes of parts, those of blocks of the second grid, how many have ended. */
static int64_t workspace(const ht_call *call, const ht_target *target)
{
    cut c = cut_of(call);
    (void)target;
    return (c.parts + (c.tiles > c.parts ? c.tiles : c.parts)) * (int64_t)sizeof(float) + (int64_t)sizeof(uint32_t);
}

/* An input that may be left out. */
static const char *scale_of(const ht_call *call)
{
    return call->n_in > 1 && call->in[1] ? "in1" : "(const float *)nullptr";
}

static void begin(ht_cuda_emission *e, const ht_launch *launch, const cut *c, int64_t blocks)
{
    int64_t ended = c->parts + blocks;
    ht_cuda_include(e, "f8");
    ht_cuda_include(e, "quantize");
    ht_cuda_add_grid(e, c->parts, HT_CUDA_THREADS, 0,
                     "quantize_parts<%lld, %lld, %d>(in0, %s, (float *)workspace, (uint32_t *)workspace + %lld);",
                     (long long)c->elems, (long long)c->part, ht_cuda_pack(launch, c->elems, PACK),
                     scale_of(launch->call), (long long)ended);
}

/* `quantized` of the second grid; `used` is the number of the first of the last two results. */
static void write_quantized(ht_text *text, const ht_call *call, const cut *c, int64_t blocks, int used)
{
    int64_t ended = c->parts + blocks;
    ht_text_add(text, "quantized{%s, (float *)workspace + %lld, out%d, out%d, (uint32_t *)workspace + %lld}",
                scale_of(call), (long long)c->parts, used, used + 1, (long long)ended);
}

static void quantize(ht_cuda_emission *e, const ht_launch *launch)
{
    cut c = cut_of(launch->call);
    ht_text found = {0};
    write_quantized(&found, launch->call, &c, c.parts, 1);
    begin(e, launch, &c, c.parts);
    ht_cuda_add_grid(e, c.parts, HT_CUDA_THREADS, 0,
                     "quantize_codes<%lld, %lld, %lld, %d>(in0, (const float *)workspace, out0, %s);",
                     (long long)c.elems, (long long)c.part, (long long)c.parts, ht_cuda_pack(launch, c.elems, PACK),
                     found.data);
    e->text.failed |= found.failed;
    ht_text_free(&found);
}

static void quantize_both(ht_cuda_emission *e, const ht_launch *launch)
{
    cut c = cut_of(launch->call);
    bool packs = ht_cuda_pack(launch, c.columns, PACK) == PACK && ht_cuda_pack(launch, c.rows, PACK) == PACK;
    ht_text found = {0};
    write_quantized(&found, launch->call, &c, c.tiles, 2);
    begin(e, launch, &c, c.tiles);
    ht_cuda_add_grid(e, c.tiles, HT_CUDA_THREADS, 0,
                     "quantize_turned%s<%lld, %lld, %lld>(in0, (const float *)workspace, out0, out1, %s);",
                     packs ? "_packs" : "", (long long)c.rows, (long long)c.columns, (long long)c.parts, found.data);
    e->text.failed |= found.failed;
    ht_text_free(&found);
}

HT_CUDA_KERNEL(quantize, can, workspace, quantize)
HT_CUDA_KERNEL(quantize_both, can, workspace, quantize_both)
