/* layernorm_grad, layernorm_grad_sum (dy, x, m, s, scale or _, plus or _), rmsnorm_grad (dy, x, s, scale or _, plus or _).
 * Any float but f8, rows along the last axis, row-major.  Threads: blocks of rows, then columns.  Traffic: 2 reads, 1 write, partial sums.  Bound: bandwidth.
 */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum {
    PACK = 8,
    WARP = 32,
    MOST_THREADS = 1024,
    PROCESSORS = 132,             /* of an H200 */
    THREADS_AT_ONCE = 768,        /* on one of them: no more, so that blocks do not wait for others to end */
    STAGES = 2,                   /* rows on their way to a block */
    STAGED_THREADS = 128,         /* fewer, and so more blocks, gain nothing from it */
    MOST_SHARED_BYTES = 48 << 10, /* for these rows */
    FEWEST_ROWS = 4,              /* of a block */
    MOST_KEEPING_THREADS = 256,   /* of a block whose threads have registers for what they need twice */
    JOIN_COLUMNS = 8,             /* of a block */
};

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

typedef struct norm_grad {
    int64_t rows, size, per_block, blocks;
} norm_grad;

static norm_grad shape_of(const ht_call *call)
{
    const ht_type *x = call->in[1];
    norm_grad n = {.size = x->dim[x->rank - 1]};
    n.rows = n.size ? ht_type_elems(x) / n.size : 0;
    int64_t threads = (n.size / PACK + WARP - 1) / WARP * WARP;
    int64_t blocks = PROCESSORS * (threads > 0 && threads < THREADS_AT_ONCE ? THREADS_AT_ONCE / threads : 1);
    n.per_block = (n.rows + blocks - 1) / blocks;
    if (n.per_block < FEWEST_ROWS) n.per_block = FEWEST_ROWS;
    n.blocks = (n.rows + n.per_block - 1) / n.per_block;
    return n;
}

/* Numbers that a block keeps for each column: of dscale, of dshift, of the sum of dx. */
static int sums_of(const ht_call *call)
{
    return call->n_out > 3 ? 3 : 2;
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    norm_grad n = shape_of(call);
    bool wide = false;
    for (size_t i = 0; i < call->n_in; i++) wide |= call->in[i] && call->in[i]->dtype == HT_F64;
    for (size_t i = 0; i < call->n_out; i++) wide |= call->out[i]->dtype == HT_F64;
    return n.blocks * sums_of(call) * n.size * (int64_t)(wide ? sizeof(double) : sizeof(float));
}

/* Bytes of a pack that can be copied to shared memory without a thread; 0: it cannot. */
static int64_t copied_bytes(const ht_type *type, int pack)
{
    enum { UNIT = 16 };
    int64_t bytes = pack * (int64_t)ht_dtype_bytes(type->dtype);
    return bytes % UNIT == 0 ? bytes : 0;
}

/* How many rows have a place in shared memory, and the bytes of one; 1: none has. */
static int stages_of(const ht_call *call, const ht_type *plus, int pack, int64_t packs, int64_t *bytes)
{
    int64_t dy = copied_bytes(call->in[0], pack), x = copied_bytes(call->in[1], pack);
    int64_t more = plus ? copied_bytes(plus, pack) : 0;
    *bytes = packs * (dy + x + more);
    bool copied = dy && x && (more || !plus);
    return copied && packs >= STAGED_THREADS && STAGES * *bytes <= MOST_SHARED_BYTES ? STAGES : 1;
}

static const char *word(bool x)
{
    return x ? "true" : "false";
}

static void emit_rows(ht_cuda_emission *e, const ht_launch *launch, const norm_grad *n, bool centred, bool params)
{
    const ht_call *call = launch->call;
    size_t scale = centred ? 4 : 3, plus = scale + 1;
    int pack = ht_cuda_pack(launch, n->size, PACK);
    int64_t packs = n->size / pack, threads = (packs + WARP - 1) / WARP * WARP, row_bytes;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    int64_t turns = (packs + threads - 1) / threads;
    bool has_plus = plus < call->n_in && call->in[plus], keep = turns == 1 && threads <= MOST_KEEPING_THREADS;
    int stages = stages_of(call, has_plus ? call->in[plus] : NULL, pack, turns * threads, &row_bytes);
    if (keep) e->resident = THREADS_AT_ONCE / (int)threads;
    ht_cuda_add_grid(
        e, n->blocks, (int)threads, stages > 1 ? stages * (int)row_bytes : 0,
        "norm_grad_rows<%lld, %lld, %lld, %d, %d, %lld, %lld, %s, %s, %s, %s, %s>(in0, in1, in2, %s, %s, %s, "
        "out0, (real *)workspace);",
        (long long)n->rows, (long long)n->size, (long long)n->per_block, stages, pack, (long long)turns,
        (long long)threads, word(centred), word(params), word(sums_of(call) > 2), word(has_plus), word(keep),
        centred ? "in3" : "in2", ht_cuda_optional(call, scale), ht_cuda_optional(call, plus));
    e->resident = 0;
}

static void emit_norm_grad(ht_cuda_emission *e, const ht_launch *launch, bool centred)
{
    norm_grad n = shape_of(launch->call);
    bool params = ht_type_elems(launch->call->out[1]) > 0;
    int sums = sums_of(launch->call);
    int64_t first = params ? 0 : 2 * n.size, last = centred ? sums * n.size : params ? n.size : first;
    if (n.size == 0) return;
    ht_cuda_include(e, "norm_grad");
    emit_rows(e, launch, &n, centred, params);
    ht_cuda_add_grid(e, ht_cuda_blocks(last - first, JOIN_COLUMNS), HT_CUDA_THREADS, 0,
                     "norm_grad_join<%lld, %d, %lld, %lld, %lld, %d, %d>((const real *)workspace, out1, %s, %s);",
                     (long long)n.size, sums, (long long)first, (long long)last, (long long)n.blocks, JOIN_COLUMNS,
                     HT_CUDA_THREADS, centred ? "out2" : "out1", sums > 2 ? "out3" : "out1");
}

static void layernorm_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_norm_grad(e, launch, true);
}

static void rmsnorm_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_norm_grad(e, launch, false);
}

HT_CUDA_KERNEL(layernorm_grad, can, workspace, layernorm_grad)
HT_CUDA_KERNEL(layernorm_grad_sum, can, workspace, layernorm_grad)
HT_CUDA_KERNEL(rmsnorm_grad, can, workspace, rmsnorm_grad)
