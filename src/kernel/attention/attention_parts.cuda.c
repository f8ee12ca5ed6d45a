/* attention and attention_grad in f32 for the CUDA device, by tensor cores and parts of half (attention_parts.cu).
 * q, y, dy [B,H,Tq,D or Dv], k, v [B,G,Tk,D or Dv]: f32, heads up to 128 wide, any strides but 1 along the last axis.
 *
 * Numerics: products as those of f32, but for infinite operands, whose products are NaN; sums over tiles by FMA, one
 * rounding at the end; the order of every sum depends on sizes alone.
 * Blocks: tiles of queries of a head; backward also tiles of keys of a group: scores are computed twice, as in
 * attention.cuda.c. Traffic: keys once per tile of queries, and the other way round. Bound: issue of instructions. */
#include <stdio.h>

#include "kernel/attention/attention_cuda.h"
#include "op/op.h"

enum { PARTS = 3 }; /* products of halves for each of f32 */
enum { WARP = 32, ROWS = 16, FEW_WARPS = 4, MANY_WARPS = 8, SHORT = ROWS * FEW_WARPS };
enum { LINE = 32, MOST_WIDTH = 128, WIDEST_PAIR = 64, MOST_OTHER = 32, LEAST_OTHER = 16, PACK = 4 };
enum { MOST_SHARED_BYTES = 99 << 10 }; /* every GPU that has cp.async gives as much to a block */

/* Floats of a row in shared memory, as line_pitch in half_parts.cu. */
static int64_t pitch(int64_t width)
{
    return (width + LINE - 1) / LINE * LINE;
}

/* The parameters of a kernel's text. */
typedef struct tiling {
    int warps, m; /* a warp has m times 16 rows of the block's own tile */
    int tile, other;
    int resident; /* blocks that a processor shall hold; 0: as many as there is room for */
    int64_t shared_bytes;
} tiling;

/* The block's own tile, and two of `other` rows, with their scales; forward has no dy, backward has lse and delta. */
static int64_t shared_bytes(const ht_cuda_attention *a, bool backward, int tile, int other)
{
    int64_t both = pitch(a->width) + pitch(a->value_width);
    int64_t own = backward ? both + 2 : pitch(a->width) + 1, numbers = backward ? 4 : 2;
    return (tile * own + 2 * other * (both + numbers)) * (int64_t)sizeof(float);
}

static tiling tiling_of(const ht_cuda_attention *a, bool backward, int warps, int m)
{
    tiling t = {.warps = warps, .m = m, .tile = ROWS * warps * m, .other = MOST_OTHER};
    if (shared_bytes(a, backward, t.tile, t.other) > MOST_SHARED_BYTES) t.other = LEAST_OTHER;
    t.shared_bytes = shared_bytes(a, backward, t.tile, t.other);
    return t;
}

/* Can a block have 128 queries? Every block splits its own copy of all keys, so that many rows are good. */
static bool has_long_tiles(const ht_cuda_attention *a)
{
    return a->queries > SHORT && a->width <= WIDEST_PAIR && a->value_width <= WIDEST_PAIR;
}

static tiling tiling_forward(const ht_cuda_attention *a)
{
    tiling t = tiling_of(a, false, has_long_tiles(a) ? MANY_WARPS : FEW_WARPS, 1);
    if (has_long_tiles(a)) t.resident = 2;
    return t;
}

static tiling tiling_of_queries(const ht_cuda_attention *a)
{
    return tiling_of(a, true, FEW_WARPS, has_long_tiles(a) ? 2 : 1);
}

static tiling tiling_of_keys(const ht_cuda_attention *a)
{
    return tiling_of(a, true, FEW_WARPS, 1);
}

/* How many floats can be copied at once. */
static int pack_of(const ht_launch *launch, bool backward)
{
    const ht_call *call = launch->call;
    int pack = PACK;
    for (size_t i = 0; i < call->n_in; i++) {
        if (i >= 3 && !(backward && (i == 3 || i == 5))) continue;
        const ht_type *type = call->in[i];
        pack = ht_cuda_pack(launch, type->dim[3], pack);
        for (int axis = 0; axis < 3; axis++)
            if (type->dim[axis] > 1) pack = ht_cuda_pack(launch, type->stride[axis], pack);
    }
    return pack;
}

static void attention_parts_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_cuda_attention a = ht_cuda_attention_sizes(call);
    tiling t = tiling_forward(&a);
    a = ht_cuda_attention_of(call, false, t.tile);
    ht_cuda_include(e, "attention");
    ht_cuda_include(e, "half_parts");
    ht_cuda_include(e, "attention_parts");
    e->resident = t.resident;
    ht_cuda_add_grid(e, a.batch * a.heads * ht_cuda_blocks(a.queries, t.tile), WARP * t.warps, (int)t.shared_bytes,
                     "attend_in_parts<%s, %d, %d, %d, %s, %s, %s>(%s, in0, in1, in2, %s, %s, out0, out1);", a.shape,
                     t.m, t.other, pack_of(launch, false), ht_cuda_rows_of(call->in[0]).text,
                     ht_cuda_rows_of(call->in[1]).text, ht_cuda_rows_of(call->in[2]).text, a.scale.text, a.lengths,
                     a.document);
}

/* A grid of query_gradient_in_parts or key_gradient_in_parts. */
static void add_gradient(ht_cuda_emission *e, const ht_launch *launch, const char *name, tiling t, int64_t blocks,
                         const char *results)
{
    const ht_call *call = launch->call;
    ht_cuda_attention a = ht_cuda_attention_of(call, true, t.tile);
    ht_cuda_rows q = ht_cuda_rows_of(call->in[0]), k = ht_cuda_rows_of(call->in[1]), v = ht_cuda_rows_of(call->in[2]);
    ht_cuda_add_grid(e, blocks, WARP * t.warps, (int)t.shared_bytes,
                     "%s<%s, %d, %d, %d, %s, %s, %s, %s>(%s, in0, in1, in2, in5, in4, (const real *)workspace, %s, %s, "
                     "%s);",
                     name, a.shape, t.m, t.other, pack_of(launch, true), q.text, k.text, v.text,
                     ht_cuda_rows_of(call->in[5]).text, a.scale.text, a.lengths, a.document, results);
}

static void attention_grad_parts_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    ht_cuda_attention a = ht_cuda_attention_sizes(launch->call);
    tiling keys = tiling_of_keys(&a), queries = tiling_of_queries(&a);
    a = ht_cuda_attention_of(launch->call, true, keys.tile);
    ht_cuda_include(e, "attention");
    ht_cuda_include(e, "half_parts");
    ht_cuda_include(e, "attention_parts");
    ht_cuda_attention_delta(e, launch, &a, "(real *)workspace");
    add_gradient(e, launch, "key_gradient_in_parts", keys, a.batch * a.groups * ht_cuda_blocks(a.keys, keys.tile),
                 "out1, out2");
    add_gradient(e, launch, "query_gradient_in_parts", queries,
                 a.batch * a.heads * ht_cuda_blocks(a.queries, queries.tile), "out0");
}

static const char *refuse(const ht_call *call, bool backward)
{
    const char *reason = ht_cuda_attention_refuse(call, backward);
    if (reason) return reason;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && ht_dtype_is_float(call->in[i]->dtype) && call->in[i]->dtype != HT_F32)
            return "an operand is not f32";
    for (size_t i = 0; i < call->n_out; i++)
        if (call->out[i]->dtype != HT_F32) return "a result is not f32";
    ht_cuda_attention a = ht_cuda_attention_sizes(call);
    if (a.width > MOST_WIDTH || a.value_width > MOST_WIDTH) return "a head is wider than 128";
    if (a.width == 0 || a.value_width == 0 || a.batch * a.groups * a.keys == 0 || a.queries == 0)
        return "an operand is empty";
    return NULL;
}

static const char *attention_parts_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return refuse(call, false);
}

static const char *attention_grad_parts_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return refuse(call, true);
}

const ht_kernel ht_kernel_cuda_attention_parts = {
    .size = sizeof(ht_kernel),
    .op = "attention",
    .name = "attention_parts.cuda",
    .device = HT_DEVICE_CUDA,
    .can = attention_parts_can,
    .emit = attention_parts_emit,
    .prepare = ht_cuda_prepare,
    .run = ht_cuda_run,
    .parts = {PARTS, HT_F16},
};

const ht_kernel ht_kernel_cuda_attention_grad_parts = {
    .size = sizeof(ht_kernel),
    .op = "attention_grad",
    .name = "attention_grad_parts.cuda",
    .device = HT_DEVICE_CUDA,
    .can = attention_grad_parts_can,
    .workspace = ht_cuda_attention_grad_workspace,
    .emit = attention_grad_parts_emit,
    .prepare = ht_cuda_prepare,
    .run = ht_cuda_run,
    .parts = {PARTS, HT_F16},
};
