/* y[m,n] = sum over k of a[m,k] b[k,n], where runs of columns of b are zero in many rows: of b, by slivers of VL columns, only the
 * rows that are not zero are prepacked, each with its number. A tile of y takes a block of K after the other: a panel of ROWS
 * rows of a, which is packed beforehand and stays in L1, meets the slivers of the tile.
 * Numerics: as gemm.cpu.c, whose blocks of K and whose order of sums it keeps: a product by zero that is left out changes no sum.
 * Numbers of a that are not finite are lost where they meet zeros alone.
 * Threads: panels of a to pack, then tiles of columns.
 * Traffic: what is not zero of b once per SPAN rows of a, a once, y once.  Bound: of few rows bandwidth, else FLOPs. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/gemm/gemm.h"
#include "kernel/simd.h"

#include <string.h>

enum {
    ROWS = VEC_REGISTERS == 32 ? 16 : 12, /* of a panel: their sums and a row of b are in registers */
    TILE_N = 128,                         /* columns of a tile; a multiple of VL */
    LINE = 64,                            /* bytes: slivers begin at whole ones */
    MOST_SPAN = 64 * ROWS,                /* rows of a that are packed at a time, at most */
    SPAN_ELEMS = 1 << 20,                 /* and elements: they stay in L2 or L3 */
};

/* What is prepacked. */
typedef struct slivers {
    real *values;    /* of sliver s from s · k · VL on: rows that are not zero */
    int32_t *counts; /* [slivers, steps]: of them in each block of K */
    uint16_t *rows;  /* of sliver s from s · k on: their numbers within the block */
} slivers;

static int64_t align(int64_t bytes)
{
    return ht_tiles(bytes, LINE) * LINE;
}

static int64_t value_bytes(int64_t n, int64_t k)
{
    return align(ht_tiles(n, VL) * k * VL * (int64_t)sizeof(real));
}

static int64_t count_bytes(int64_t n, int64_t k)
{
    return align(ht_tiles(n, VL) * ht_tiles(k, gemm_block_depth(k)) * (int64_t)sizeof(int32_t));
}

int64_t gemm_sparse_prepacked_bytes(int64_t n, int64_t k)
{
    return value_bytes(n, k) + count_bytes(n, k) + align(ht_tiles(n, VL) * k * (int64_t)sizeof(uint16_t));
}

static slivers slivers_at(const void *at, int64_t n, int64_t k)
{
    char *bytes = (char *)at;
    return (slivers){(real *)bytes, (int32_t *)(bytes + value_bytes(n, k)),
                     (uint16_t *)(bytes + value_bytes(n, k) + count_bytes(n, k))};
}

/* ---- packing b ---- */

typedef struct prepack_job {
    const gemm_side *b;
    slivers to;
    int64_t n, k;
} prepack_job;

static bool is_zero(const real *line)
{
    for (int i = 0; i < VL; i++)
        if (line[i] != 0) return false;
    return true;
}

static void prepack_sliver(void *arg, int64_t sliver)
{
    const prepack_job *job = arg;
    const gemm_side *b = job->b;
    int64_t depth = gemm_block_depth(job->k), column = sliver * VL, columns = ht_min_i64(VL, job->n - column),
            found = 0;
    int32_t *counts = job->to.counts + sliver * ht_tiles(job->k, depth);
    real *values = job->to.values + sliver * job->k * VL;
    uint16_t *rows = job->to.rows + sliver * job->k;
    for (int64_t first = 0; first < job->k; first += depth) {
        int64_t before = found;
        for (int64_t k = first; k < ht_min_i64(first + depth, job->k); k++) {
            real line[VL] = {0};
            ht_load_strided(line, b->data, b->dtype, k * b->down + column * b->across, b->across, columns);
            if (is_zero(line)) continue;
            memcpy(values + found * VL, line, sizeof line);
            rows[found++] = (uint16_t)(k - first);
        }
        *counts++ = (int32_t)(found - before);
    }
}

void gemm_sparse_prepack(const gemm_side *b, int64_t n, int64_t k, void *to, ht_pool *pool)
{
    prepack_job job = {b, slivers_at(to, n, k), n, k};
    ht_parallel(pool, ht_tiles(n, VL), prepack_sliver, &job);
}

/* ---- packing a ---- */

typedef struct work {
    const gemm_job *job;
    slivers b;
    int64_t depth, row, rows; /* of a block of K; rows of a that are packed */
    real *packed; /* panels of ROWS rows (the last one: fewer), element (k, r) of one at k · its rows + r */
} work;

static int64_t span_of(int64_t m, int64_t k)
{
    int64_t most = ht_min_i64(SPAN_ELEMS / k / ROWS * ROWS, MOST_SPAN);
    return ht_min_i64(m, most < ROWS ? ROWS : most);
}

int64_t gemm_sparse_workspace(int64_t m, int64_t k)
{
    return m == 0 || k == 0 ? 0 : ht_tiles(span_of(m, k), ROWS) * ROWS * k * (int64_t)sizeof(real);
}

/* There are lower micro-kernels for the last rows; in between, rows of zeros are multiplied and thrown away. */
static int64_t height_of(int64_t rows)
{
    return rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : rows <= 8 ? 8 : ROWS;
}

static void pack_panel(void *arg, int64_t panel)
{
    const work *w = arg;
    const gemm_side *a = &w->job->a;
    int64_t k = w->job->k, first = panel * ROWS, rows = ht_min_i64(ROWS, w->rows - first), height = height_of(rows);
    real *to = w->packed + first * k, line[512];
    enum { PIECE = sizeof line / sizeof line[0] };
    for (int64_t at = 0; at < k; at += PIECE) {
        int64_t count = ht_min_i64(PIECE, k - at);
        for (int64_t r = 0; r < height; r++) {
            if (r < rows)
                ht_load_strided(line, a->data, a->dtype, (w->row + first + r) * a->down + at * a->across, a->across,
                                count);
            else
                memset(line, 0, sizeof line);
            for (int64_t i = 0; i < count; i++) to[(at + i) * height + r] = line[i];
        }
    }
}

/* ---- tiles ---- */

/* Rows of a panel by one sliver of a block of K. `height` is a constant at each call. */
static inline __attribute__((always_inline)) void multiply(real *sums, bool first, int height, const real *restrict a,
                                                           const real *restrict b, const uint16_t *restrict rows,
                                                           int64_t count)
{
    vec sum[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < height; r++) sum[r] = (vec){0};
    for (int64_t i = 0; i < count; i++) {
        const vec line = *(const vec *)(b + i * VL);
        const real *at = a + (int64_t)rows[i] * height;
#pragma GCC unroll 16
        for (int r = 0; r < height; r++) {
            vec x = at[r] - (vec){0}; /* everywhere, sign of zero included */
            sum[r] += x * line;
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < height; r++) {
        vec_unaligned *to = (vec_unaligned *)(sums + r * TILE_N);
        if (!first) sum[r] += *to;
        *to = sum[r];
    }
}

static void multiply_sliver(real *sums, bool first, int64_t height, const real *a, const real *b, const uint16_t *rows,
                            int64_t count)
{
    switch (height) {
    case 1: multiply(sums, first, 1, a, b, rows, count); break;
    case 2: multiply(sums, first, 2, a, b, rows, count); break;
    case 4: multiply(sums, first, 4, a, b, rows, count); break;
    case 8: multiply(sums, first, 8, a, b, rows, count); break;
    default: multiply(sums, first, ROWS, a, b, rows, count); break;
    }
}

static void write_back(const gemm_job *job, real *sums, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    if (job->finish) job->finish(job->finish_arg, row, column, rows, columns, sums, TILE_N);
    for (int64_t r = 0; r < rows && job->y; r++)
        ht_save(job->y, job->dtype, (row + r) * job->y_down + column, sums + r * TILE_N, columns);
}

/* One panel by the slivers of a tile. */
static void multiply_panel(const work *w, int64_t panel, int64_t column, int64_t columns)
{
    enum { SLIVERS = TILE_N / VL };
    const gemm_job *job = w->job;
    _Alignas(LINE) real sums[ROWS * TILE_N];
    int64_t steps = ht_tiles(job->k, w->depth), found[SLIVERS] = {0}, first = panel * ROWS;
    int64_t rows = ht_min_i64(ROWS, w->rows - first), height = height_of(rows);
    for (int64_t step = 0; step < steps; step++) {
        const real *a = w->packed + first * job->k + step * w->depth * height;
        for (int64_t s = 0; s < ht_tiles(columns, VL); s++) {
            int64_t sliver = column / VL + s, count = w->b.counts[sliver * steps + step];
            multiply_sliver(sums + s * VL, step == 0, height, a, w->b.values + (sliver * job->k + found[s]) * VL,
                            w->b.rows + sliver * job->k + found[s], count);
            found[s] += count;
        }
    }
    write_back(job, sums, w->row + first, rows, column, columns);
}

static void multiply_tile(void *arg, int64_t tile)
{
    const work *w = arg;
    int64_t column = tile * TILE_N, columns = ht_min_i64(TILE_N, w->job->n - column);
    for (int64_t panel = 0; panel < ht_tiles(w->rows, ROWS); panel++) multiply_panel(w, panel, column, columns);
}

void gemm_sparse_run(const gemm_job *job, ht_pool *pool)
{
    work w = {.job = job,
              .b = slivers_at(job->prepacked, job->n, job->k),
              .depth = gemm_block_depth(job->k),
              .packed = job->workspace};
    int64_t span = span_of(job->m, job->k);
    for (w.row = 0; w.row < job->m; w.row += span) {
        w.rows = ht_min_i64(span, job->m - w.row);
        ht_parallel(pool, ht_tiles(w.rows, ROWS), pack_panel, &w);
        ht_parallel(pool, ht_tiles(job->n, TILE_N), multiply_tile, &w);
    }
}
