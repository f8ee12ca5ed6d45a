/* y[..,m,n] = sum over k of a[..,m,k] b[..,k,n].  a, b: any float, any strides (transposed, permuted and expanded views
 * cost nothing); y: any float, row-major.
 * The row for every shape; matmul_gemm and matmul_line take the large products and single rows.
 * Numerics: real accumulation in the order of k, FMA from AVX2 on, one rounding.
 * Threads: tiles of y (batch, rows, columns); each reads all of K.
 * Traffic: a once per column of tiles, b once per row of tiles, y once.  Bound: FLOPs, or b's bandwidth for one row. */
#include "kernel/gemm/product_cpu.h"

enum {
    TILE = 64,       /* rows and columns of y at a time, at most */
    DEPTH = 64,      /* of K at a time */
    STEP = 4,        /* rows, and steps of K, that one pass over a tile's columns handles */
    FEW_TILES = 16,  /* with fewer than these tiles get smaller, so that threads share them */
    SMALL_TILE = 16, /* but not below this */
};

/* A block of a strided matrix from element `at`, as real, row-major with `pitch` between rows. */
static void load_block(real *restrict to, int64_t pitch, const matrix *from, int64_t at, int64_t rows, int64_t columns)
{
    if (from->down != 1 || from->across == 1) {
        for (int64_t r = 0; r < rows; r++)
            ht_load_strided(to + r * pitch, from->data, from->dtype, at + r * from->down, from->across, columns);
        return;
    }
    for (int64_t c = 0; c < columns; c++) { /* stored by columns: read it that way */
        real line[TILE > DEPTH ? TILE : DEPTH];
        ht_load(line, from->data, from->dtype, at + c * from->across, rows);
        for (int64_t r = 0; r < rows; r++) to[r * pitch + c] = line[r];
    }
}

/* sum[r][j] += a[r][k] b[k][j] for STEP steps of k. The loop over j is the one that is vectorised; rows share b's
 * loads. */
static inline void multiply_rows(real *restrict sum, const real *restrict a, const real *restrict b, int rows,
                                 int64_t columns)
{
    for (int64_t j = 0; j < columns; j++) {
        for (int r = 0; r < rows; r++) {
            real s = sum[r * TILE + j];
            for (int k = 0; k < STEP; k++) s = multiply_add(a[r * DEPTH + k], b[k * TILE + j], s);
            sum[r * TILE + j] = s;
        }
    }
}

static void multiply_block(real *restrict sum, const real *restrict a, const real *restrict b, int64_t rows,
                           int64_t columns, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += STEP) {
        int64_t r = 0;
        for (; r + STEP <= rows; r += STEP)
            multiply_rows(sum + r * TILE, a + r * DEPTH + k, b + k * TILE, STEP, columns);
        for (; r < rows; r++) multiply_rows(sum + r * TILE, a + r * DEPTH + k, b + k * TILE, 1, columns);
    }
}

/* Blocks end with zeros where K is no multiple of STEP. */
static void sum_blocks(const product *p, real *restrict sum, int64_t a_at, int64_t b_at, int64_t rows, int64_t columns)
{
    real a[TILE * DEPTH], b[DEPTH * TILE];
    for (int64_t k = 0; k < p->k; k += DEPTH) {
        int64_t depth = ht_min_i64(DEPTH, p->k - k), padded = ht_tiles(depth, STEP) * STEP;
        load_block(a, DEPTH, &p->a, a_at + k * p->a.across, rows, depth);
        load_block(b, TILE, &p->b, b_at + k * p->b.down, depth, columns);
        for (int64_t r = 0; r < rows && padded > depth; r++)
            memset(a + r * DEPTH + depth, 0, (size_t)(padded - depth) * sizeof *a);
        memset(b + depth * TILE, 0, (size_t)((padded - depth) * TILE) * sizeof *b);
        multiply_block(sum, a, b, rows, columns, padded);
    }
}

typedef struct tiling {
    product p;
    int64_t tile_m, tile_n;
} tiling;

static void product_tile(void *arg, int64_t tile)
{
    const tiling *t = arg;
    const product *p = &t->p;
    int64_t down = ht_tiles(p->m, t->tile_m), across = ht_tiles(p->n, t->tile_n), batch = tile / (down * across);
    int64_t row = tile / across % down * t->tile_m, column = tile % across * t->tile_n;
    int64_t rows = ht_min_i64(t->tile_m, p->m - row), columns = ht_min_i64(t->tile_n, p->n - column), a_at, b_at;
    product_batch(p, batch, &a_at, &b_at);
    real sum[TILE * TILE];
    memset(sum, 0, (size_t)(rows * TILE) * sizeof *sum);
    sum_blocks(p, sum, a_at + row * p->a.down, b_at + column * p->b.across, rows, columns);
    for (int64_t r = 0; r < rows; r++)
        ht_save(p->y, p->dtype, (batch * p->m + row + r) * p->n + column, sum + r * TILE, columns);
}

static int64_t tile_count(const tiling *t)
{
    return ht_tiles(t->p.m, t->tile_m) * ht_tiles(t->p.n, t->tile_n) * product_batches(&t->p);
}

static ht_status matmul_run(const ht_launch *launch)
{
    if (ht_type_elems(launch->call->out[0]) == 0) return HT_OK;
    tiling t = {product_of(launch->call, launch->in, launch->out), TILE, TILE};
    while (t.tile_m > SMALL_TILE && tile_count(&t) < FEW_TILES) t.tile_m /= 2;
    ht_parallel(launch->pool, tile_count(&t), product_tile, &t);
    return HT_OK;
}

static const char *matmul_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return product_can(call);
}

HT_CPU_KERNEL(matmul, matmul_can, NULL, matmul_run)
