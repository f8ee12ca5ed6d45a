/* y = (sum over k of a[..,m,k] b[..,k,n]) scale_a scale_b.  a, b: f8, any strides; y: any float, row-major.
 * Numerics: an operand times its scale becomes real where it is packed, by a table of its 256 codes: exact for scales that
 * are powers of two. Then real accumulation in blocks of K, and one rounding.
 * Threads and traffic: the GEMM core's, one matrix of a batch after the other.  Slow and portable: it is here for tests. */
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/product_cpu.h"

enum { CODES = 256 };

/* What the codes of an operand stand for. */
typedef struct code_table {
    real value[CODES];
} code_table;

static void fill_table(code_table *table, ht_dtype dtype, const void *scale)
{
    real factor = (real) * (const float *)scale;
    for (int code = 0; code < CODES; code++) {
        uint8_t byte = (uint8_t)code;
        table->value[code] = (real)ht_load_f64(&byte, dtype, 0) * factor;
    }
}

static void load_codes(const gemm_side *side, real *to, int64_t pitch, int64_t row, int64_t rows, int64_t column,
                       int64_t columns)
{
    const code_table *table = side->more;
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *from = (const uint8_t *)side->data + (row + r) * side->down + column * side->across;
        for (int64_t c = 0; c < columns; c++) to[r * pitch + c] = table->value[from[c * side->across]];
    }
}

static gemm_side side_of(const matrix *m, int64_t at, const code_table *table)
{
    return (gemm_side){.data = (const uint8_t *)m->data + at,
                       .dtype = m->dtype,
                       .down = m->down,
                       .across = m->across,
                       .load = load_codes,
                       .more = table};
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

static ht_status scaled_matmul_run(const ht_launch *launch)
{
    const ht_fused *fused = launch->fused;
    const void *const *in = launch->in + (fused ? fused->n_in : 0);
    product p = product_as_called(fused ? fused->gemm : launch->call, in, launch->out);
    int64_t y_bytes = p.m * p.n * (int64_t)ht_dtype_bytes(p.dtype);
    code_table a, b;
    following after = {.columns = p.n};
    fill_table(&a, p.a.dtype, in[2]);
    fill_table(&b, p.b.dtype, in[3]);
    if (fused) ht_epilogue_begin(&after.epilogue, fused, launch);
    for (int64_t batch = 0; batch < product_batches(&p); batch++) {
        int64_t a_at, b_at;
        product_batch(&p, batch, &a_at, &b_at);
        gemm_job job = {.a = side_of(&p.a, a_at, &a),
                        .b = side_of(&p.b, b_at, &b),
                        .m = p.m,
                        .n = p.n,
                        .k = p.k,
                        .y = fused ? NULL : (char *)p.y + batch * y_bytes,
                        .dtype = p.dtype,
                        .y_down = p.n,
                        .finish = fused ? finish : NULL,
                        .finish_arg = &after,
                        .workspace = launch->workspace,
                        .threads = launch->threads};
        after.first = batch * p.m * p.n;
        gemm_run(&job, launch->pool);
    }
    return HT_OK;
}

static int64_t scaled_matmul_workspace(const ht_call *call, const ht_target *target)
{
    product p = product_as_called(call, NULL, NULL);
    return gemm_workspace(p.m, p.n, p.k, target->threads, false);
}

static const char *scaled_matmul_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return product_can(call);
}

HT_CPU_DOT_KERNEL(scaled_matmul, scaled_matmul, scaled_matmul_can, scaled_matmul_workspace, scaled_matmul_run, NULL)
