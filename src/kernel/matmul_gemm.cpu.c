/* matmul through the GEMM core: products large enough that packing pays, one matrix of a batch after the other. */
#include "kernel/gemm.h"
#include "kernel/product.h"

enum { FEWEST_ROWS = 8, FEWEST_PRODUCTS = 1 << 18 };

static gemm_side side_of(const matrix *m, int64_t at)
{
    const char *first = (const char *)m->data + at * (int64_t)ht_dtype_bytes(m->dtype);
    return (gemm_side){.data = first, .dtype = m->dtype, .down = m->down, .across = m->across};
}

static void matmul_gemm_run(const ht_launch *launch)
{
    product p = product_of(launch->call, launch->in, launch->out);
    int64_t batches = product_batches(&p), y_bytes = p.m * p.n * (int64_t)ht_dtype_bytes(p.dtype);
    for (int64_t batch = 0; batch < batches; batch++) {
        int64_t a_at, b_at;
        product_batch(&p, batch, &a_at, &b_at);
        gemm_job job = {.a = side_of(&p.a, a_at),
                        .b = side_of(&p.b, b_at),
                        .m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .y = (char *)p.y + batch * y_bytes,
                        .dtype = p.dtype,
                        .y_down = p.n,
                        .workspace = launch->workspace};
        gemm_run(&job, launch->pool);
    }
}

static int64_t matmul_gemm_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p = product_of(call, NULL, NULL);
    return gemm_workspace(p.m, p.n, p.k);
}

static const char *matmul_gemm_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = product_can(call);
    if (reason) return reason;
    product p = product_of(call, NULL, NULL);
    if (p.m < FEWEST_ROWS) return "too few rows to pack for";
    return (double)p.m * (double)p.n * (double)p.k < FEWEST_PRODUCTS ? "too small to pack" : NULL;
}

HT_CPU_KERNEL_NAMED(matmul_gemm, matmul, matmul_gemm_can, matmul_gemm_workspace, matmul_gemm_run)
