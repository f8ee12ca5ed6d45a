/* attention and attention_grad in f32 for the CUDA device, by tensor cores and parts of tf32 (attention_parts.cu).
 * q, y, dy [B,H,Tq,D or Dv], k, v [B,G,Tk,D or Dv]: f32, heads up to 128 wide, any strides but 1 along the last axis.
 *
 * Numerics: products as those of f32, but for infinite operands, whose products are NaN; sums over tiles by FMA, one
 * rounding at the end; the order of every sum depends on sizes alone.
 * Blocks: tiles of queries of a head; backward also tiles of keys of a group: scores are computed twice, as in
 * attention.cuda.c. Traffic: keys once per tile of queries, and the other way round. Bound: tensor cores. */
#include <stdio.h>

#include "kernel/attention/attention_cuda.h"
#include "op/op.h"

/* A warp has M times 16 rows of its block's tile. */
enum { WARPS = 4, WARP = 32, THREADS = WARPS * WARP, M = 1, TILE = WARPS * M * 16, MOST_OTHER = 32, LEAST_OTHER = 16 };
enum { LINE = 32, MOST_WIDTH = 128, PACK = 4, RESIDENT = 3 };
enum { MOST_SHARED_BYTES = 99 << 10 }; /* every GPU that has tf32 gives as much to a block */

/* Floats of a row in shared memory, as line_pitch in attention_parts.cu. */
static int64_t pitch(int64_t width)
{
    return (width + LINE - 1) / LINE * LINE;
}

/* The block's own tile, and two of `other` rows; forward has no dy, backward has lse and delta. */
static int64_t shared_bytes(const ht_cuda_attention *a, bool backward, int other)
{
    int64_t both = pitch(a->width) + pitch(a->value_width);
    int64_t own = backward ? both : pitch(a->width), numbers = backward ? 2 : 0;
    return (TILE * own + 2 * other * (both + numbers)) * (int64_t)sizeof(float);
}

static int other_of(const ht_cuda_attention *a, bool backward)
{
    return shared_bytes(a, backward, MOST_OTHER) <= MOST_SHARED_BYTES ? MOST_OTHER : LEAST_OTHER;
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
    ht_cuda_attention a = ht_cuda_attention_of(call, false, TILE);
    int64_t heads = a.batch * a.heads;
    int other = other_of(&a, false);
    ht_cuda_include(e, "attention");
    ht_cuda_include(e, "attention_parts");
    e->resident = RESIDENT;
    ht_cuda_add_grid(e, heads * ht_cuda_blocks(a.queries, TILE), THREADS, (int)shared_bytes(&a, false, other),
                     "attend_in_parts<%s, %d, %d, %d, %s, %s, %s>(%s, in0, in1, in2, %s, %s, out0, out1);", a.shape, M,
                     other, pack_of(launch, false), ht_cuda_rows_of(call->in[0]).text,
                     ht_cuda_rows_of(call->in[1]).text, ht_cuda_rows_of(call->in[2]).text, a.scale.text, a.lengths,
                     a.document);
}

static void attention_grad_parts_emit(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    ht_cuda_attention a = ht_cuda_attention_of(call, true, TILE);
    int other = other_of(&a, true), pack = pack_of(launch, true), shared = (int)shared_bytes(&a, true, other);
    ht_cuda_rows q = ht_cuda_rows_of(call->in[0]), k = ht_cuda_rows_of(call->in[1]), v = ht_cuda_rows_of(call->in[2]);
    ht_cuda_rows dy = ht_cuda_rows_of(call->in[5]);
    ht_cuda_include(e, "attention");
    ht_cuda_include(e, "attention_parts");
    ht_cuda_attention_delta(e, launch, &a, "(real *)workspace");
    ht_cuda_add_grid(e, a.batch * a.groups * ht_cuda_blocks(a.keys, TILE), THREADS, shared,
                     "key_gradient_in_parts<%s, %d, %d, %d, %s, %s, %s, %s>(%s, in0, in1, in2, in5, in4, "
                     "(const real *)workspace, %s, %s, out1, out2);",
                     a.shape, M, other, pack, q.text, k.text, v.text, dy.text, a.scale.text, a.lengths, a.document);
    e->resident = RESIDENT;
    ht_cuda_add_grid(e, a.batch * a.heads * ht_cuda_blocks(a.queries, TILE), THREADS, shared,
                     "query_gradient_in_parts<%s, %d, %d, %d, %s, %s, %s, %s>(%s, in0, in1, in2, in5, in4, "
                     "(const real *)workspace, %s, %s, out0);",
                     a.shape, M, other, pack, q.text, k.text, v.text, dy.text, a.scale.text, a.lengths, a.document);
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
};
