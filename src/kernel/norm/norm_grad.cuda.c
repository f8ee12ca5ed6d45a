/* layernorm_grad (dy, x, m, s, scale or _, plus or _), rmsnorm_grad (dy, x, s, scale or _, plus or _).  Any float but f8, rows along the last
 * axis, row-major.  Threads: blocks of rows, then columns.  Traffic: 2 reads, 1 write, partial sums.  Bound: bandwidth.
 */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

enum {
    PACK = 8,
    WARP = 32,
    MOST_THREADS = 1024,
    MOST_BLOCKS = 6 * 132, /* of rows: so many run at once on 132 processors, and their partial sums stay few */
    FEWEST_ROWS = 4,       /* of a block */
    JOIN_COLUMNS = 8,      /* of a block */
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
    n.per_block = (n.rows + MOST_BLOCKS - 1) / MOST_BLOCKS;
    if (n.per_block < FEWEST_ROWS) n.per_block = FEWEST_ROWS;
    n.blocks = (n.rows + n.per_block - 1) / n.per_block;
    return n;
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    norm_grad n = shape_of(call);
    bool wide = false;
    for (size_t i = 0; i < call->n_in; i++) wide |= call->in[i] && call->in[i]->dtype == HT_F64;
    for (size_t i = 0; i < call->n_out; i++) wide |= call->out[i]->dtype == HT_F64;
    return n.blocks * 2 * n.size * (int64_t)(wide ? sizeof(double) : sizeof(float));
}

static void emit_rows(ht_cuda_emission *e, const ht_launch *launch, const norm_grad *n, bool centred, bool params)
{
    int pack = ht_cuda_pack(launch, n->size, PACK);
    int64_t packs = n->size / pack, threads = (packs + WARP - 1) / WARP * WARP;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    ht_cuda_add_grid(e, n->blocks, (int)threads, 0,
                     "norm_grad_rows<%lld, %lld, %lld, %d, %lld, %lld, %s, %s>(in0, in1, in2, %s, %s, %s, out0, "
                     "(real *)workspace);",
                     (long long)n->rows, (long long)n->size, (long long)n->per_block, pack,
                     (long long)((packs + threads - 1) / threads), (long long)threads, centred ? "true" : "false",
                     params ? "true" : "false", centred ? "in3" : "in2",
                     ht_cuda_optional(launch->call, centred ? 4 : 3), ht_cuda_optional(launch->call, centred ? 5 : 4));
}

static void emit_norm_grad(ht_cuda_emission *e, const ht_launch *launch, bool centred)
{
    norm_grad n = shape_of(launch->call);
    bool params = ht_type_elems(launch->call->out[1]) > 0;
    int64_t total = params ? n.size * (centred ? 2 : 1) : 0;
    if (n.size == 0) return;
    ht_cuda_include(e, "norm_grad");
    emit_rows(e, launch, &n, centred, params);
    ht_cuda_add_grid(e, ht_cuda_blocks(total, JOIN_COLUMNS), HT_CUDA_THREADS, 0,
                     "norm_grad_join<%lld, %lld, %lld, %d, %d>((const real *)workspace, out1, %s);", (long long)n.size,
                     (long long)total, (long long)n.blocks, JOIN_COLUMNS, HT_CUDA_THREADS, centred ? "out2" : "out1");
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
HT_CUDA_KERNEL(rmsnorm_grad, can, workspace, rmsnorm_grad)
