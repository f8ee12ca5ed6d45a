/* attention and attention_grad for the CUDA device, by tiles in shared memory (attention.cu).
 * q, y, dy [B,H,Tq,D or Dv], k, v [B,G,Tk,D or Dv]: any float but f8, any strides but 1 along the last axis.
 *
 * Numerics: real inside, FMA, one rounding at the end; the order of every sum depends on sizes alone.
 * Blocks: tiles of queries of a head; backward also tiles of keys of a group, so that dk and dv need no atomics:
 * scores are computed twice. Traffic: keys once per tile of queries, and the other way round. Bound: compute. */
#include <math.h>
#include <stdio.h>

#include "kernel/attention/attention_cuda.h"
#include "op/op.h"

enum { SIDE = 16, MOST_TILE = 64, THREADS = SIDE * SIDE, WARP = 32 };
enum { PRODUCT_TILE = 64 };            /* as in tile_product.cu */
enum { MOST_SHARED_BYTES = 96 << 10 }; /* every GPU that has bf16 gives as much to a block */

/* ---- tiles ---- */

/* As pitch_of in attention.cu. */
static int64_t pitch(int64_t width)
{
    return ((width + 3) / 4 | 1) * 4;
}

static int64_t shared_bytes(const ht_cuda_attention *a, bool backward, int64_t tile)
{
    int64_t values = (backward ? 2 : 1) * pitch(a->value_width);
    return tile * (2 * pitch(a->width) + values + pitch(tile)) * a->real_bytes;
}

/* The largest tile that fits, and is not mostly empty. */
static int tile_of(const ht_call *call, bool backward)
{
    ht_cuda_attention a = ht_cuda_attention_sizes(call);
    int64_t longest = a.queries > a.keys ? a.queries : a.keys;
    int tile = MOST_TILE;
    while (tile > SIDE && (shared_bytes(&a, backward, tile) > MOST_SHARED_BYTES || tile / 2 >= longest)) tile /= 2;
    return tile;
}

ht_cuda_attention ht_cuda_attention_sizes(const ht_call *call)
{
    const ht_type *q = call->in[0], *v = call->in[2];
    ht_cuda_attention a = {.batch = q->dim[0], .heads = q->dim[1], .groups = v->dim[1], .queries = q->dim[2]};
    a.keys = v->dim[2], a.width = q->dim[3], a.value_width = v->dim[3];
    a.real_bytes = ht_cuda_has_f64(call) ? 8 : 4;
    return a;
}

/* ---- text ---- */

/* An optional input of integers. */
static const char *mask_input(const ht_call *call, size_t input, const char *name)
{
    return input < call->n_in && call->in[input] ? name : "(const int32_t *)nullptr";
}

ht_cuda_attention ht_cuda_attention_of(const ht_call *call, bool backward, int tile)
{
    ht_cuda_attention a = ht_cuda_attention_sizes(call);
    a.lengths = backward ? mask_input(call, 6, "in6") : mask_input(call, 3, "in3");
    a.document = backward ? mask_input(call, 7, "in7") : mask_input(call, 4, "in4");
    snprintf(a.shape, sizeof a.shape, "attention_shape<%lld, %lld, %lld, %lld, %lld, %lld, %d, %s>", (long long)a.heads,
             (long long)a.groups, (long long)a.queries, (long long)a.keys, (long long)a.width, (long long)a.value_width,
             tile, ht_call_int(call, "causal") ? "true" : "false");
    double scale = ht_call_float(call, "scale");
    if (scale == 0) scale = a.width > 0 ? 1 / sqrt((double)a.width) : 1;
    ht_cuda_real(scale, &a.scale);
    return a;
}

ht_cuda_rows ht_cuda_rows_of(const ht_type *type)
{
    ht_cuda_rows rows;
    snprintf(rows.text, sizeof rows.text, "rows_at<%lld, %lld, %lld>", (long long)type->stride[0],
             (long long)type->stride[1], (long long)type->stride[2]);
    return rows;
}

static void attention_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    int tile = tile_of(call, false);
    ht_cuda_attention a = ht_cuda_attention_of(call, false, tile);
    int64_t heads = a.batch * a.heads;
    if (heads * a.queries == 0) return;
    ht_cuda_include(e, "attention");
    ht_cuda_add_grid(e, heads * ht_cuda_blocks(a.queries, tile), THREADS, (int)shared_bytes(&a, false, tile),
                     "attend<%s, %s, %s, %s>(%s, in0, in1, in2, %s, %s, out0, out1);", a.shape,
                     ht_cuda_rows_of(call->in[0]).text, ht_cuda_rows_of(call->in[1]).text,
                     ht_cuda_rows_of(call->in[2]).text, a.scale.text, a.lengths, a.document);
}

void ht_cuda_attention_delta(ht_cuda_emission *e, const ht_launch *launch, const ht_cuda_attention *a, const char *to)
{
    const ht_call *call = launch->call;
    int64_t rows = a->batch * a->heads * a->queries;
    ht_cuda_add_grid(e, ht_cuda_blocks(rows * WARP, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "sum_delta<%s, %lld, %s, %s>(in3, in5, %s);", a->shape, (long long)rows,
                     ht_cuda_rows_of(call->in[3]).text, ht_cuda_rows_of(call->in[5]).text, to);
}

static void attention_grad_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    int tile = tile_of(call, true);
    ht_cuda_attention a = ht_cuda_attention_of(call, true, tile);
    int shared = (int)shared_bytes(&a, true, tile);
    ht_cuda_rows q = ht_cuda_rows_of(call->in[0]), k = ht_cuda_rows_of(call->in[1]), v = ht_cuda_rows_of(call->in[2]);
    ht_cuda_rows dy = ht_cuda_rows_of(call->in[5]);
    if (a.batch * a.groups == 0) return;
    ht_cuda_include(e, "attention");
    ht_cuda_attention_delta(e, launch, &a, "(real *)workspace");
    ht_cuda_add_grid(e, a.batch * a.groups * ht_cuda_blocks(a.keys, tile), THREADS, shared,
                     "key_gradient<%s, %s, %s, %s, %s>(%s, in0, in1, in2, in5, in4, (const real *)workspace, %s, %s, "
                     "out1, out2);",
                     a.shape, q.text, k.text, v.text, dy.text, a.scale.text, a.lengths, a.document);
    ht_cuda_add_grid(e, a.batch * a.heads * ht_cuda_blocks(a.queries, tile), THREADS, shared,
                     "query_gradient<%s, %s, %s, %s, %s>(%s, in0, in1, in2, in5, in4, (const real *)workspace, %s, %s, "
                     "out0);",
                     a.shape, q.text, k.text, v.text, dy.text, a.scale.text, a.lengths, a.document);
}

/* ---- rows ---- */

int64_t ht_cuda_attention_grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_type_elems(call->in[4]) * (ht_cuda_has_f64(call) ? 8 : 4);
}

static bool rows_have_gaps(const ht_type *type)
{
    return type->dim[3] > 1 && type->stride[3] != 1;
}

/* Of what any row here refuses. */
const char *ht_cuda_attention_refuse(const ht_call *call, bool backward)
{
    const char *reason = ht_cuda_elementwise_can(call, NULL);
    if (reason) return reason;
    for (size_t i = 0; i < call->n_in; i++) {
        const ht_type *type = call->in[i];
        bool wide = i < 3 || (backward && (i == 3 || i == 5));
        if (type && wide && rows_have_gaps(type)) return "the last axis is strided";
        if (type && !wide && !ht_type_contiguous(type)) return "lse, lengths or documents are strided";
    }
    return NULL;
}

static const char *refuse(const ht_call *call, bool backward)
{
    const char *reason = ht_cuda_attention_refuse(call, backward);
    if (reason) return reason;
    ht_cuda_attention a = ht_cuda_attention_sizes(call);
    if (a.width > MOST_SHARED_BYTES || a.value_width > MOST_SHARED_BYTES) return "a head is too wide for shared memory";
    return shared_bytes(&a, backward, SIDE) > MOST_SHARED_BYTES ? "a head is too wide for shared memory" : NULL;
}

static const char *attention_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return refuse(call, false);
}

static const char *attention_grad_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return refuse(call, true);
}

HT_CUDA_KERNEL(attention, attention_can, NULL, attention_emit)
HT_CUDA_KERNEL(attention_grad, attention_grad_can, ht_cuda_attention_grad_workspace, attention_grad_emit)

/* ---- rows for heads of any width (attention_wide.cu): scores and weights of all pairs are in the workspace ---- */

static int64_t pair_bytes(const ht_call *call)
{
    ht_cuda_attention a = ht_cuda_attention_sizes(call);
    return a.batch * a.heads * a.queries * a.keys * a.real_bytes;
}

static int64_t tiles_of(int64_t rows, int64_t columns)
{
    return ht_cuda_blocks(rows, PRODUCT_TILE) * ht_cuda_blocks(columns, PRODUCT_TILE);
}

static void include_wide(ht_cuda_emission *e)
{
    ht_cuda_include(e, "attention");
    ht_cuda_include(e, "tile_product");
    ht_cuda_include(e, "attention_wide");
}

static void attention_wide_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_cuda_attention a = ht_cuda_attention_of(call, false, MOST_TILE);
    int64_t heads = a.batch * a.heads, rows = heads * a.queries;
    int64_t pairs = tiles_of(a.queries, a.keys), values = tiles_of(a.queries, a.value_width);
    include_wide(e);
    ht_cuda_add_grid(e, heads * pairs, THREADS, 0, "score_pairs<%s, %lld, %s, %s>(%s, in0, in1, (real *)workspace);",
                     a.shape, (long long)pairs, ht_cuda_rows_of(call->in[0]).text, ht_cuda_rows_of(call->in[1]).text,
                     a.scale.text);
    ht_cuda_add_grid(e, ht_cuda_blocks(rows * WARP, THREADS), THREADS, 0,
                     "weigh_pairs<%s, %lld>((real *)workspace, %s, %s, out1);", a.shape, (long long)rows, a.lengths,
                     a.document);
    ht_cuda_add_grid(e, heads * values, THREADS, 0,
                     "sum_values<%s, %lld, %s>((const real *)workspace, in2, %s, %s, out0);", a.shape,
                     (long long)values, ht_cuda_rows_of(call->in[2]).text, a.lengths, a.document);
}

static void attention_grad_wide_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_cuda_attention a = ht_cuda_attention_of(call, true, MOST_TILE);
    int64_t heads = a.batch * a.heads, rows = heads * a.queries, pairs = tiles_of(a.queries, a.keys);
    int64_t query_tiles = tiles_of(a.queries, a.width), key_tiles = tiles_of(a.keys, a.width);
    int64_t value_tiles = tiles_of(a.keys, a.value_width);
    ht_cuda_rows q = ht_cuda_rows_of(call->in[0]), k = ht_cuda_rows_of(call->in[1]), v = ht_cuda_rows_of(call->in[2]),
                 dy = ht_cuda_rows_of(call->in[5]);
    /* the workspace: weights, slopes, delta */
    char slopes[64], delta[64];
    int64_t weights_end = pair_bytes(call), slopes_end = 2 * weights_end;
    snprintf(slopes, sizeof slopes, "(real *)(workspace + %lld)", (long long)weights_end);
    snprintf(delta, sizeof delta, "(real *)(workspace + %lld)", (long long)slopes_end);
    include_wide(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(rows * WARP, THREADS), THREADS, 0, "sum_delta<%s, %lld, %s, %s>(in3, in5, %s);",
                     a.shape, (long long)rows, ht_cuda_rows_of(call->in[3]).text, dy.text, delta);
    ht_cuda_add_grid(e, heads * pairs, THREADS, 0,
                     "weigh_pairs_again<%s, %lld, %s, %s, %s, %s>(%s, in0, in1, in2, in5, in4, %s, %s, %s, "
                     "(real *)workspace, %s);",
                     a.shape, (long long)pairs, q.text, k.text, v.text, dy.text, a.scale.text, delta, a.lengths,
                     a.document, slopes);
    ht_cuda_add_grid(e, heads * query_tiles, THREADS, 0,
                     "wide_query_gradient<%s, %lld, %s>(%s, %s, in1, %s, %s, out0);", a.shape, (long long)query_tiles,
                     k.text, a.scale.text, slopes, a.lengths, a.document);
    ht_cuda_add_grid(e, a.batch * a.groups * key_tiles, THREADS, 0,
                     "wide_key_gradient<%s, %lld, %lld, %s>(%s, %s, in0, out1);", a.shape, (long long)a.width,
                     (long long)key_tiles, q.text, a.scale.text, slopes);
    ht_cuda_add_grid(e, a.batch * a.groups * value_tiles, THREADS, 0,
                     "wide_key_gradient<%s, %lld, %lld, %s>(1, (const real *)workspace, in5, out2);", a.shape,
                     (long long)a.value_width, (long long)value_tiles, dy.text);
}

static const char *attention_wide_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_attention_refuse(call, false);
}

static const char *attention_grad_wide_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_attention_refuse(call, true);
}

static int64_t attention_wide_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return pair_bytes(call);
}

static int64_t attention_grad_wide_workspace(const ht_call *call, const ht_target *target)
{
    return 2 * pair_bytes(call) + ht_cuda_attention_grad_workspace(call, target);
}

const ht_kernel ht_kernel_cuda_attention_wide = {
    .size = sizeof(ht_kernel),
    .op = "attention",
    .name = "attention_wide.cuda",
    .device = HT_DEVICE_CUDA,
    .can = attention_wide_can,
    .workspace = attention_wide_workspace,
    .emit = attention_wide_emit,
    .prepare = ht_cuda_prepare,
    .run = ht_cuda_run,
};

const ht_kernel ht_kernel_cuda_attention_grad_wide = {
    .size = sizeof(ht_kernel),
    .op = "attention_grad",
    .name = "attention_grad_wide.cuda",
    .device = HT_DEVICE_CUDA,
    .can = attention_grad_wide_can,
    .workspace = attention_grad_wide_workspace,
    .emit = attention_grad_wide_emit,
    .prepare = ht_cuda_prepare,
    .run = ht_cuda_run,
};
