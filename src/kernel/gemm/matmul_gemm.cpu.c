/* matmul through the GEMM core: products large enough that packing pays, one matrix of a batch after the other. And products by a
 * weight of which whole runs are zero, from one row on, which leave these out once the weight is prepacked. */
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/product_cpu.h"

enum {
    FEWEST_ROWS = 3,
    FEWEST_ROWS_TURNED = 2, /* where b lies along K, which the plain row is slow at */
    FEWEST_PRODUCTS = 1 << 18,
};

static gemm_side side_of(const matrix *m, int64_t at)
{
    const char *first = (const char *)m->data + at * (int64_t)ht_dtype_bytes(m->dtype);
    return (gemm_side){.data = first, .dtype = m->dtype, .down = m->down, .across = m->across};
}

/* The element-wise calls that follow, on blocks of the product. */
typedef struct following {
    ht_epilogue epilogue;
    int64_t first, columns; /* of the matrix at hand */
} following;

static void finish(const void *arg, int64_t row, int64_t column, int64_t rows, int64_t columns, real *values,
                   int64_t pitch)
{
    const following *f = arg;
    ht_epilogue_block(&f->epilogue, f->first + row * f->columns + column, f->columns, rows, columns, (char *)values,
                      pitch * (int64_t)sizeof(real));
}

static ht_status run_product(const ht_launch *launch, void (*run)(const gemm_job *job, ht_pool *pool))
{
    const ht_fused *fused = launch->fused;
    product p = product_of_launch(launch);
    int64_t batches = product_batches(&p), y_bytes = p.m * p.n * (int64_t)ht_dtype_bytes(p.dtype);
    following after = {.columns = p.n};
    if (fused) ht_epilogue_begin(&after.epilogue, fused, launch);
    for (int64_t batch = 0; batch < batches; batch++) {
        int64_t a_at, b_at;
        product_batch(&p, batch, &a_at, &b_at);
        gemm_job job = {.a = side_of(&p.a, a_at),
                        .b = side_of(&p.b, b_at),
                        .m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .y = fused ? NULL : (char *)p.y + batch * y_bytes,
                        .dtype = p.dtype,
                        .y_down = p.n,
                        .finish = fused ? finish : NULL,
                        .finish_arg = &after,
                        .workspace = launch->workspace,
                        .threads = launch->threads,
                        .prepacked = launch->prepacked};
        after.first = batch * p.m * p.n;
        run(&job, launch->pool);
    }
    return HT_OK;
}

static ht_status matmul_gemm_run(const ht_launch *launch)
{
    return run_product(launch, gemm_run);
}

static int64_t matmul_gemm_workspace(const ht_call *call, const ht_target *target)
{
    product p = product_of(call, NULL, NULL);
    return gemm_workspace(p.m, p.n, p.k, target->threads, p.a.down == 1 && p.a.across != 1);
}

/* b of a single product with few rows. */
static int64_t matmul_gemm_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p = product_of(call, NULL, NULL);
    return p.m <= GEMM_PREPACK_ROWS && product_batches(&p) == 1 ? gemm_prepacked_bytes(p.n, p.k) : 0;
}

static ht_status matmul_gemm_prepack_make(const ht_launch *launch)
{
    product p = product_of_launch(launch);
    gemm_side b = side_of(&p.b, 0);
    gemm_prepack(&b, p.n, p.k, launch->prepacked, launch->pool);
    return HT_OK;
}

static const ht_prepack matmul_gemm_prepack = {1u << 1, matmul_gemm_prepack_bytes, HT_RUN(matmul_gemm_prepack_make)};

static const char *matmul_gemm_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = product_can(call);
    if (reason) return reason;
    product p = product_of(call, NULL, NULL);
    if (p.m < (p.b.down == 1 ? FEWEST_ROWS_TURNED : FEWEST_ROWS)) return "too few rows to pack for";
    return (double)p.m * (double)p.n * (double)p.k < FEWEST_PRODUCTS ? "too small to pack" : NULL;
}

HT_CPU_DOT_KERNEL(matmul_gemm, matmul, matmul_gemm_can, matmul_gemm_workspace, matmul_gemm_run, &matmul_gemm_prepack)

/* ---- b with runs of zeros ---- */

/* Until b is prepacked, as if it had none. */
static ht_status matmul_sparse_run(const ht_launch *launch)
{
    return run_product(launch, launch->prepacked ? gemm_sparse_run : gemm_run);
}

static int64_t matmul_sparse_workspace(const ht_call *call, const ht_target *target)
{
    product p = product_as_called(call, NULL, NULL);
    int64_t dense = matmul_gemm_workspace(call, target), sparse = gemm_sparse_workspace(p.m, p.k);
    return dense > sparse ? dense : sparse;
}

static int64_t matmul_sparse_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p = product_as_called(call, NULL, NULL);
    return gemm_sparse_prepacked_bytes(p.n, p.k);
}

static ht_status matmul_sparse_prepack_make(const ht_launch *launch)
{
    product p = product_of_launch(launch);
    gemm_side b = side_of(&p.b, 0);
    gemm_sparse_prepack(&b, p.n, p.k, launch->prepacked, launch->pool);
    return HT_OK;
}

static const ht_prepack matmul_sparse_prepack = {1u << 1, matmul_sparse_prepack_bytes,
                                                 HT_RUN(matmul_sparse_prepack_make)};

static const char *matmul_sparse_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    if (!ht_call_int(call, "sparse")) return "its weight is dense";
    const char *reason = product_can(call);
    if (reason) return reason;
    if (call->in[0]->dtype != HT_REAL_DTYPE || call->in[1]->dtype != HT_REAL_DTYPE) return "an operand is half";
    product p = product_as_called(call, NULL, NULL);
    if (product_batches(&p) != 1) return "several matrices";
    return p.m == 0 || p.n < 2 || p.k == 0 ? "too small to pack" : NULL;
}

HT_CPU_DOT_KERNEL(matmul_sparse, matmul, matmul_sparse_can, matmul_sparse_workspace, matmul_sparse_run,
                  &matmul_sparse_prepack)
