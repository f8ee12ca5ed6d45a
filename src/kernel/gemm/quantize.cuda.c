/* quantize, quantize_both, quantize_sum.  x: f32, f16, bf16, row-major, or what point-wise calls make that nobody else
 * reads.  Threads: blocks of x, or tiles; their largest magnitudes, and sums of columns, wait in the workspace.  Traffic: x
 * once, twice where the scale is not known; y once for each order.  Bound: bandwidth. */
#include <stdio.h>

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

/* Grid 2 would find what grid 1 wrote over its inputs. */
static const char *takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target)
{
    const bool *kept = fusion->read_outside;
    const char *reason = ht_cuda_refuse_before(call, fusion);
    (void)target;
    for (size_t i = 0; !reason && i < fusion->count; i++) {
        const ht_call *c = fusion->calls[i];
        for (size_t k = 0; k < c->n_out; k++)
            if (kept[c->n_in + k]) reason = "others read what is quantized";
        kept += c->n_in + c->n_out;
    }
    return reason;
}

/* How x is cut: parts of grids 1 and 2, tiles of both orders; what is given for one result more. */
typedef struct cut {
    int64_t elems, part, parts, rows, columns, tiles_down, tiles;
} cut;

static cut cut_of(const ht_call *call)
{
    const ht_type *x = call->in[0];
    cut c = {.elems = ht_type_elems(x), .part = LEAST_PART, .columns = x->rank ? x->dim[x->rank - 1] : 1};
    while (c.part * MOST_PARTS < c.elems) c.part *= 2;
    c.parts = c.elems ? (c.elems + c.part - 1) / c.part : 1; /* the numbers are results even of nothing */
    c.rows = c.columns ? c.elems / c.columns : 0;
    c.tiles_down = c.elems ? ht_cuda_blocks(c.rows, TILE) : 1;
    c.tiles = c.elems ? c.tiles_down * ht_cuda_blocks(c.columns, TILE) : 1;
    return c;
}

/* What lies in the workspace: sums of columns of the tiles; the largest magnitudes of parts, those of blocks of the second
 * grid, how many have ended. */
static int64_t sums_bytes(const ht_call *call, const cut *c)
{
    return call->op->n_out == 5 ? c->tiles_down * c->columns * (int64_t)sizeof(double) : 0;
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    cut c = cut_of(call);
    (void)target;
    return sums_bytes(call, &c) + (c.parts + (c.tiles > c.parts ? c.tiles : c.parts)) * (int64_t)sizeof(float) +
           (int64_t)sizeof(uint32_t);
}

/* What both grids are told. */
typedef struct quantizing {
    cut c;
    int pack;
    ht_cuda_fold by;
    char scale[32]; /* an input that may be left out */
    /* Bytes from the start of the workspace to the largest magnitudes of parts and blocks, and to the count of those that
     * have ended. */
    long long parts_at, blocks_at, ended_at;
} quantizing;

static quantizing begin(ht_cuda_emission *e, const ht_launch *launch, int pack, bool by_tiles)
{
    const ht_call *call = ht_cuda_fold_call(launch);
    quantizing q = {.c = cut_of(call), .pack = pack, .by = ht_cuda_fold_begin(e, launch, pack)};
    int64_t blocks = by_tiles ? q.c.tiles : q.c.parts;
    q.parts_at = (long long)sums_bytes(call, &q.c);
    q.blocks_at = q.parts_at + q.c.parts * (long long)sizeof(float);
    q.ended_at = q.blocks_at + blocks * (long long)sizeof(float);
    snprintf(q.scale, sizeof q.scale, call->n_in > 1 && call->in[1] ? "in%d" : "(const float *)nullptr", q.by.in);
    ht_cuda_include(e, "f8");
    ht_cuda_include(e, "quantize");
    ht_cuda_add_grid(
        e, q.c.parts, HT_CUDA_THREADS, 0,
        "quantize_parts<%lld, %lld, %d>(%s, %s, (float *)(workspace + %lld), (uint32_t *)(workspace + %lld));",
        (long long)q.c.elems, (long long)q.c.part, pack, q.by.source.data, q.scale, q.parts_at, q.ended_at);
    return q;
}

/* `quantized` of the second grid; `used` is the number of the first of the last two results. */
static void write_quantized(ht_text *text, const quantizing *q, int used)
{
    ht_text_add(text, "quantized{%s, (float *)(workspace + %lld), out%d, out%d, (uint32_t *)(workspace + %lld)}",
                q->scale, q->blocks_at, q->by.out + used, q->by.out + used + 1, q->ended_at);
}

static void quantize(ht_cuda_emission *e, const ht_launch *launch)
{
    int64_t elems = ht_type_elems(ht_cuda_fold_call(launch)->in[0]);
    quantizing q = begin(e, launch, ht_cuda_pack(launch, elems, PACK), false);
    ht_text found = {0};
    write_quantized(&found, &q, 1);
    ht_cuda_add_grid(e, q.c.parts, HT_CUDA_THREADS, 0,
                     "quantize_codes<%lld, %lld, %lld, %d>(%s, (const float *)workspace, out%d, %s);",
                     (long long)q.c.elems, (long long)q.c.part, (long long)q.c.parts, q.pack, q.by.source.data,
                     q.by.out, found.data);
    e->text.failed |= found.failed;
    ht_text_free(&found);
    ht_cuda_fold_free(e, &q.by);
}

static void emit_turned(ht_cuda_emission *e, const ht_launch *launch, bool sums)
{
    cut c = cut_of(ht_cuda_fold_call(launch));
    bool packs = ht_cuda_pack(launch, c.columns, PACK) == PACK && ht_cuda_pack(launch, c.rows, PACK) == PACK;
    quantizing q = begin(e, launch, packs ? PACK : 1, true);
    ht_text found = {0};
    write_quantized(&found, &q, sums ? 3 : 2);
    ht_cuda_add_grid(e, c.tiles, HT_CUDA_THREADS, 0,
                     "quantize_turned%s<%s, %lld, %lld, %lld>(%s, (const float *)(workspace + %lld), out%d, out%d, %s, "
                     "(double *)workspace);",
                     packs ? "_packs" : "", sums ? "true" : "false", (long long)c.rows, (long long)c.columns,
                     (long long)c.parts, q.by.source.data, q.parts_at, q.by.out, q.by.out + 1, found.data);
    e->text.failed |= found.failed;
    ht_text_free(&found);
    if (sums)
        ht_cuda_add_grid(e, ht_cuda_blocks(c.columns, PACK), HT_CUDA_THREADS, 0,
                         "join_tiles<%lld, %lld, %d>((const double *)workspace, out%d);", (long long)c.columns,
                         (long long)c.tiles_down, PACK, q.by.out + 2);
    ht_cuda_fold_free(e, &q.by);
}

static void quantize_both(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_turned(e, launch, false);
}

static void quantize_sum(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_turned(e, launch, true);
}

#define QUANTIZE(op) const ht_kernel ht_kernel_cuda_##op = {HT_CUDA_FIELDS(op, can, workspace, op), .takes = takes};
QUANTIZE(quantize)
QUANTIZE(quantize_both)
QUANTIZE(quantize_sum)
