/* y[..,m,n] = sum over k of a[..,m,k] b[..,k,n].  a, b: any float, any strides (transposed, permuted and expanded views
 * cost nothing); y: any float, row-major.
 * Numerics: real accumulation in a fixed order (that of k, but lanes of k for a single row), FMA from AVX2 on, one
 * rounding.
 * Threads: tiles of y (batch, rows, columns); each reads all of K.
 * Traffic: a once per column of tiles, b once per row of tiles, y once.  Bound: FLOPs, or b's bandwidth for one row. */
#include "kernel/cpu.h"
#include "op/op.h"

enum {
    TILE = 64,       /* rows and columns of y at a time, at most */
    DEPTH = 64,      /* of K at a time */
    STEP = 4,        /* rows, and steps of K, that one pass over a tile's columns handles */
    LINE = 512,      /* columns at a time where y is a single row, and K of a dot product */
    FEW_TILES = 16,  /* with fewer than these tiles get smaller, so that threads share them */
    SMALL_TILE = 16, /* but not below this */
    LANES = 32,      /* partial sums of a dot product */
};

typedef struct matrix {
    const void *data;
    ht_dtype dtype;
    int64_t down, across;       /* strides from row to row and from column to column */
    int64_t batch[HT_MAX_RANK]; /* strides of the leading axes of y; 0 where broadcast */
} matrix;

typedef struct product {
    matrix a, b;
    void *y;
    ht_dtype dtype;
    int64_t m, n, k;
    int batch_rank;
    int64_t batch_dim[HT_MAX_RANK];
    int64_t tile_m, tile_n;
} product;

static inline real multiply_add(real x, real y, real sum)
{
    if (HT_ISA_ID < HT_ISA_AVX2) return x * y + sum;
    return sizeof(real) == sizeof(float) ? (real)fmaf((float)x, (float)y, (float)sum) : (real)fma(x, y, sum);
}

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

/* One row of a, where b lies along K: a dot product per column, in lanes that are folded in halves. */
static void sum_dots(const product *p, real *restrict sum, int64_t a_at, int64_t b_at, int64_t columns)
{
    real a[LINE], b[LINE];
    for (int64_t k = 0; k < p->k; k += LINE) {
        int64_t depth = ht_min_i64(LINE, p->k - k);
        ht_load_strided(a, p->a.data, p->a.dtype, a_at + k * p->a.across, p->a.across, depth);
        for (int64_t j = 0; j < columns; j++) {
            real lane[LANES] = {0};
            int64_t i = 0;
            ht_load(b, p->b.data, p->b.dtype, b_at + k + j * p->b.across, depth);
            for (; i + LANES <= depth; i += LANES)
                for (int l = 0; l < LANES; l++) lane[l] = multiply_add(a[i + l], b[i + l], lane[l]);
            for (int l = 0; i + l < depth; l++) lane[l] = multiply_add(a[i + l], b[i + l], lane[l]);
            for (int width = LANES / 2; width; width /= 2)
                for (int l = 0; l < width; l++) lane[l] += lane[l + width];
            sum[j] += lane[0];
        }
    }
}

/* One row of a, b in any other order. */
static void sum_lines(const product *p, real *restrict sum, int64_t a_at, int64_t b_at, int64_t columns)
{
    real b[LINE];
    for (int64_t k = 0; k < p->k; k++) {
        real a = ht_load1(p->a.data, p->a.dtype, a_at + k * p->a.across);
        ht_load_strided(b, p->b.data, p->b.dtype, b_at + k * p->b.down, p->b.across, columns);
        for (int64_t j = 0; j < columns; j++) sum[j] = multiply_add(a, b[j], sum[j]);
    }
}

static void product_tile(void *arg, int64_t tile)
{
    const product *p = arg;
    int64_t down = ht_tiles(p->m, p->tile_m), across = ht_tiles(p->n, p->tile_n), batch = tile / (down * across);
    int64_t row = tile / across % down * p->tile_m, column = tile % across * p->tile_n;
    int64_t rows = ht_min_i64(p->tile_m, p->m - row), columns = ht_min_i64(p->tile_n, p->n - column);
    int64_t a_at = row * p->a.down, b_at = column * p->b.across, y_at = (batch * p->m + row) * p->n + column;
    for (int i = p->batch_rank - 1; i >= 0; i--) {
        a_at += batch % p->batch_dim[i] * p->a.batch[i];
        b_at += batch % p->batch_dim[i] * p->b.batch[i];
        batch /= p->batch_dim[i];
    }
    real sum[TILE * TILE];
    memset(sum, 0, (size_t)(p->m == 1 ? columns : rows * TILE) * sizeof *sum);
    if (p->m == 1 && p->b.down == 1)
        sum_dots(p, sum, a_at, b_at, columns);
    else if (p->m == 1)
        sum_lines(p, sum, a_at, b_at, columns);
    else
        sum_blocks(p, sum, a_at, b_at, rows, columns);
    for (int64_t r = 0; r < rows; r++) ht_save(p->y, p->dtype, y_at + r * p->n, sum + r * TILE, columns);
}

static matrix as_matrix(const ht_launch *launch, size_t i, const char *transposed)
{
    const ht_type *type = launch->call->in[i], *y = launch->call->out[0];
    bool swap = ht_call_int(launch->call, transposed);
    matrix m = {launch->in[i],
                type->dtype,
                type->stride[type->rank - (swap ? 1 : 2)],
                type->stride[type->rank - (swap ? 2 : 1)],
                {0}};
    int missing = y->rank - type->rank;
    for (int axis = 0; axis < type->rank - 2; axis++)
        if (type->dim[axis] != 1) m.batch[missing + axis] = type->stride[axis];
    return m;
}

static matrix transposed(matrix m)
{
    int64_t down = m.down;
    m.down = m.across;
    m.across = down;
    return m;
}

/* Rows of a batch that all meet the same b are rows of one matrix, if a lies so. */
static void join_batches(product *p)
{
    for (; p->batch_rank > 0; p->batch_rank--) {
        int last = p->batch_rank - 1;
        if (p->batch_dim[last] == 1) continue;
        if (p->m == 1) p->a.down = p->a.batch[last];
        if (p->b.batch[last] != 0 || p->a.batch[last] != p->m * p->a.down) return;
        p->m *= p->batch_dim[last];
    }
}

static int64_t tile_count(const product *p)
{
    int64_t count = ht_tiles(p->m, p->tile_m) * ht_tiles(p->n, p->tile_n);
    for (int i = 0; i < p->batch_rank; i++) count *= p->batch_dim[i];
    return count;
}

static void matmul_run(const ht_launch *launch)
{
    const ht_type *a = launch->call->in[0], *y = launch->call->out[0];
    if (ht_type_elems(y) == 0) return;
    product p = {.a = as_matrix(launch, 0, "ta"), .b = as_matrix(launch, 1, "tb"), .y = launch->out[0]};
    p.dtype = y->dtype;
    p.m = y->dim[y->rank - 2];
    p.n = y->dim[y->rank - 1];
    p.k = a->dim[a->rank - (ht_call_int(launch->call, "ta") ? 2 : 1)];
    p.batch_rank = y->rank - 2;
    memcpy(p.batch_dim, y->dim, sizeof p.batch_dim);
    join_batches(&p);
    if (p.n == 1 && p.m > 1) { /* a column is a row of the transposed product */
        matrix row = transposed(p.b);
        p.b = transposed(p.a);
        p.a = row;
        p.n = p.m;
        p.m = 1;
    }
    p.tile_m = TILE;
    p.tile_n = p.m == 1 ? LINE : TILE;
    while (p.tile_n > TILE && tile_count(&p) < FEW_TILES) p.tile_n /= 2;
    while (p.tile_m > SMALL_TILE && tile_count(&p) < FEW_TILES) p.tile_m /= 2;
    ht_parallel(launch->pool, tile_count(&p), product_tile, &p);
}

static const char *matmul_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    return ht_type_contiguous(call->out[0]) ? NULL : "the result is strided";
}

HT_CPU_KERNEL(matmul, matmul_can, NULL, matmul_run)
