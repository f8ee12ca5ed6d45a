/* y[m,n] = sum over k of a[m,k] b[k,n].
 * Both operands are packed block by block: a as rows of KC elements, or as panels of MR rows where it is stored by
 * columns, so that packing is a copy either way; b as slivers of NR columns, transposed in registers where needed.
 * A tile of y takes all of K: partial sums stay in a local array, y is written once.
 * Numerics: real accumulation over k in order within blocks of KC, blocks added in order, one rounding; FMA: this file
 * is compiled with -ffp-contract=fast.
 * Threads: packing by stripes, then tiles of y.  Traffic: a and b once per block, y once.  Bound: FLOPs. */
#include "kernel/gemm.h"

#include <string.h>

enum {
    VECTOR_BYTES = HT_ISA_ID == HT_ISA_AVX512 ? 64
                   : HT_ISA_ID == HT_ISA_AVX2 ? 32
                                              : 16,
    VL = VECTOR_BYTES / sizeof(real),
    MR = HT_ISA_ID == HT_ISA_AVX512 ? 14 : 6, /* rows of a micro-tile: its sums fill the registers */
    NR = 2 * VL,
    KC = 256,        /* a sliver of b stays in L1 or near it */
    PITCH = KC + 16, /* rows of packed a do not meet in one cache set */
    TILE_M = 8 * MR, /* packed a of a tile stays in L2 */
    TILE_N = 8 * NR,
    MOST_ELEMS = 1 << 22, /* of packed b at a time */
    MOST_ROWS = 18 * TILE_M,
    FEW_TILES = 16, /* with fewer than these, tiles get lower, so that threads share them evenly */
    LOWEST_TILE = 4 * MR,
};

typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
typedef real loose __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)))); /* anywhere in memory */

/* ---- the micro-kernel ---- */

typedef struct sums {
    vec at[MR][2];
} sums;

/* MR rows of a by one sliver of b. The steps are constants at each call, so addresses are too. */
static inline __attribute__((always_inline)) void multiply(sums *out, const real *restrict a, int64_t row_step,
                                                           int64_t k_step, const real *restrict b, int64_t depth)
{
    vec sum[MR][2];
    for (int r = 0; r < MR; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (int64_t k = 0; k < depth; k++) {
        vec left = *(const vec *)(b + k * NR), right = *(const vec *)(b + k * NR + VL);
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++) {
            vec x = a[r * row_step + k * k_step] - (vec){0}; /* everywhere, sign of zero included */
            sum[r][0] += x * left;
            sum[r][1] += x * right;
        }
    }
    for (int r = 0; r < MR; r++) {
        out->at[r][0] = sum[r][0];
        out->at[r][1] = sum[r][1];
    }
}

/* ---- packing ---- */

/* By columns of the source: panels of MR rows, element (r, k) at k·MR + r. By rows: PITCH apart. */
static bool by_columns(const gemm_side *a)
{
    return !a->load && a->down == 1 && a->across != 1;
}

static void load_rows(const gemm_side *side, real *to, int64_t pitch, int64_t row, int64_t rows, int64_t column,
                      int64_t columns)
{
    if (side->load) {
        side->load(side, to, pitch, row, rows, column, columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++)
        ht_load_strided(to + r * pitch, side->data, side->dtype, (row + r) * side->down + column * side->across,
                        side->across, columns);
}

/* One tile's rows of one block of K. Rows beyond the matrix are zero: they are multiplied and thrown away. */
static void pack_a(const gemm_side *a, real *to, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    if (!by_columns(a)) {
        load_rows(a, to, PITCH, row, rows, k, depth);
        for (int64_t r = rows; r < ht_tiles(rows, MR) * MR; r++) memset(to + r * PITCH, 0, (size_t)depth * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < depth; i++) {
        real line[TILE_M] = {0};
        ht_load(line, a->data, a->dtype, row + (k + i) * a->across, rows);
        for (int64_t p = 0; p * MR < rows; p++) memcpy(to + p * MR * PITCH + i * MR, line + p * MR, MR * sizeof *line);
    }
}

/* VL vectors of VL elements, transposed by log2(VL) rounds of interleaving the first half with the second. */
static inline __attribute__((always_inline)) void transpose(vec v[VL])
{
    typedef __typeof__(v[0] < v[0]) mask;
    mask low, high;
    for (int i = 0; i < VL; i++) {
        low[i] = i / 2 + i % 2 * VL;
        high[i] = VL / 2 + i / 2 + i % 2 * VL;
    }
#pragma GCC unroll 4
    for (int width = 1; width < VL; width *= 2) {
        vec turned[VL];
#pragma GCC unroll 8
        for (int i = 0; i < VL / 2; i++) {
            turned[2 * i] = HT_SHUFFLE(v[i], v[i + VL / 2], low);
            turned[2 * i + 1] = HT_SHUFFLE(v[i], v[i + VL / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) v[i] = turned[i];
    }
}

/* A sliver whose source lies along k: VL columns by VL steps of k at a time. */
static void pack_turned(const gemm_side *b, real *to, int64_t k, int64_t depth, int64_t column, int64_t columns)
{
    real stage[VL][KC];
    const real *line[VL];
    for (int64_t j = 0; j < columns; j += VL) {
        int64_t wide = ht_min_i64(VL, columns - j);
        for (int64_t c = 0; c < wide; c++)
            line[c] = ht_view(stage[c], b->data, b->dtype, (column + j + c) * b->across + k, depth);
        for (int64_t i = 0; i < depth; i += VL) {
            int64_t deep = ht_min_i64(VL, depth - i);
            vec block[VL];
            if (wide == VL && deep == VL) {
#pragma GCC unroll 16
                for (int c = 0; c < VL; c++) block[c] = *(const loose *)(line[c] + i);
            } else {
                memset(block, 0, sizeof block);
                for (int64_t c = 0; c < wide; c++) memcpy(&block[c], line[c] + i, (size_t)deep * sizeof(real));
            }
            transpose(block);
            for (int64_t c = 0; c < deep; c++) *(vec *)(to + (i + c) * NR + j) = block[c];
        }
    }
}

/* Slivers whose source lies along its columns: a row of all of them at a time, for long runs of memory. */
static void pack_straight(const gemm_side *b, real *to, int64_t k, int64_t depth, int64_t column, int64_t columns)
{
    real stage[TILE_N];
    for (int64_t i = 0; i < depth; i++, to += NR) {
        int64_t at = (k + i) * b->down + column * b->across, j = 0;
        const real *row = stage;
        if (b->across == 1)
            row = ht_view(stage, b->data, b->dtype, at, columns);
        else
            ht_load_strided(stage, b->data, b->dtype, at, b->across, columns);
        for (; j + NR <= columns; j += NR) memcpy(to + j * KC, row + j, NR * sizeof *to);
        for (int64_t c = j; c < columns; c++) to[j * KC + c - j] = row[c];
    }
}

/* The slivers of up to TILE_N columns of one block of K; columns beyond the matrix are zero. */
static void pack_b(const gemm_side *b, real *to, int64_t k, int64_t depth, int64_t column, int64_t columns)
{
    int64_t rest = columns % NR;
    if (rest) memset(to + (columns - rest) * KC, 0, (size_t)(depth * NR) * sizeof *to);
    if (!b->load && (b->down != 1 || b->across == 1)) {
        pack_straight(b, to, k, depth, column, columns);
        return;
    }
    for (int64_t j = 0; j < columns; j += NR) {
        int64_t wide = ht_min_i64(NR, columns - j);
        if (b->load)
            b->load(b, to + j * KC, NR, k, depth, column + j, wide);
        else
            pack_turned(b, to + j * KC, k, depth, column + j, wide);
    }
}

/* ---- one block of y: rows [row, row + rows) × columns [column, column + columns), all of K ---- */

typedef struct block {
    const gemm_job *job;
    int64_t row, rows, column, columns;
    real *a; /* by tile of rows, then block of K: tile_m × PITCH each */
    real *b; /* by block of K, then sliver: KC × NR each */
    int64_t tile_m, a_tiles, slivers, steps;
} block;

static real *a_at(const block *c, int64_t tile, int64_t step)
{
    return c->a + (tile * c->steps + step) * c->tile_m * PITCH;
}

static real *b_at(const block *c, int64_t step, int64_t sliver)
{
    return c->b + (step * c->slivers + sliver) * KC * NR;
}

/* Stripes: first those of a (a tile of rows and a block of K), then those of b (a block of K and a few slivers). */
static void pack_stripe(void *arg, int64_t stripe)
{
    const block *c = arg;
    int64_t a_stripes = c->a_tiles * c->steps;
    int64_t step = stripe < a_stripes ? stripe % c->steps : (stripe - a_stripes) % c->steps;
    int64_t k = step * KC, depth = ht_min_i64(KC, c->job->k - k);
    if (stripe < a_stripes) {
        int64_t tile = stripe / c->steps, row = tile * c->tile_m;
        pack_a(&c->job->a, a_at(c, tile, step), c->row + row, ht_min_i64(c->tile_m, c->rows - row), k, depth);
        return;
    }
    int64_t column = (stripe - a_stripes) / c->steps * TILE_N;
    pack_b(&c->job->b, b_at(c, step, column / NR), k, depth, c->column + column,
           ht_min_i64(TILE_N, c->columns - column));
}

/* Sums of a micro-tile into the tile's local array: rows TILE_N apart. */
static void keep(real *local, const sums *s, bool first)
{
    for (int r = 0; r < MR; r++) {
        for (int h = 0; h < 2; h++) {
            vec *at = (vec *)(local + r * TILE_N + h * VL);
            *at = first ? s->at[r][h] : *at + s->at[r][h];
        }
    }
}

/* Sums of a micro-tile, complete with what the array holds of the earlier blocks of K, to y. */
static void release(const block *c, real *local, const sums *s, bool first, int64_t row, int64_t column)
{
    const gemm_job *job = c->job;
    int64_t rows = ht_min_i64(MR, c->rows - row), columns = ht_min_i64(NR, c->columns - column);
    bool plain = !job->finish && columns == NR && ht_dtype_bytes(job->dtype) == sizeof(real) &&
                 job->dtype == (sizeof(real) == 4 ? HT_F32 : HT_F64);
    if (!plain) keep(local, s, first);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = (c->row + row + r) * job->y_down + c->column + column;
        if (plain) {
            loose *y = (loose *)((real *)job->y + at);
            const vec *before = (const vec *)(local + r * TILE_N);
            y[0] = first ? s->at[r][0] : before[0] + s->at[r][0];
            y[1] = first ? s->at[r][1] : before[1] + s->at[r][1];
            continue;
        }
        real *values = local + r * TILE_N;
        if (job->finish) job->finish(job->finish_arg, c->row + row + r, c->column + column, values, columns);
        ht_save(job->y, job->dtype, at, values, columns);
    }
}

static void multiply_tile(void *arg, int64_t tile)
{
    const block *c = arg;
    real local[TILE_M * TILE_N] __attribute__((aligned(64)));
    int64_t across = ht_tiles(c->columns, TILE_N), row = tile / across, column = tile % across * TILE_N;
    int64_t rows = ht_min_i64(c->tile_m, c->rows - row * c->tile_m), columns = ht_min_i64(TILE_N, c->columns - column);
    bool panels = by_columns(&c->job->a);
    for (int64_t step = 0; step < c->steps; step++) {
        int64_t depth = ht_min_i64(KC, c->job->k - step * KC);
        const real *a = a_at(c, row, step);
        for (int64_t j = 0; j < columns; j += NR) {
            const real *b = b_at(c, step, (column + j) / NR);
            for (int64_t i = 0; i < rows; i += MR) {
                sums s;
                if (panels)
                    multiply(&s, a + i * PITCH, 1, MR, b, depth);
                else
                    multiply(&s, a + i * PITCH, PITCH, 1, b, depth);
                if (step + 1 < c->steps)
                    keep(local + i * TILE_N + j, &s, step == 0);
                else
                    release(c, local + i * TILE_N + j, &s, step == 0, row * c->tile_m + i, column + j);
            }
        }
    }
}

/* ---- the whole product ---- */

typedef struct extent {
    int64_t rows, columns, steps; /* of a block */
    int64_t tile_m;               /* rows of its tiles */
    int64_t a_elems, b_elems;
} extent;

static extent extent_of(int64_t m, int64_t n, int64_t k)
{
    extent e = {.steps = ht_tiles(k, KC)};
    int64_t widest = MOST_ELEMS / (e.steps * KC) / TILE_N * TILE_N;
    e.columns = ht_min_i64(ht_tiles(n, NR) * NR, widest < TILE_N ? TILE_N : widest);
    e.rows = ht_min_i64(m, MOST_ROWS);
    int64_t down = ht_tiles(e.rows, TILE_M), across = ht_tiles(e.columns, TILE_N);
    do e.tile_m = ht_tiles(ht_tiles(e.rows, down), MR) * MR;
    while (ht_tiles(e.rows, e.tile_m) * across < FEW_TILES && e.tile_m > LOWEST_TILE && down++);
    e.a_elems = ht_tiles(e.rows, e.tile_m) * e.tile_m * e.steps * PITCH;
    e.b_elems = e.columns * e.steps * KC;
    return e;
}

int64_t gemm_workspace(int64_t m, int64_t n, int64_t k)
{
    extent e = extent_of(m, n, k);
    return (e.a_elems + e.b_elems) * (int64_t)sizeof(real);
}

static void zero_result(const gemm_job *job)
{
    real zeros[NR] = {0}, values[NR];
    for (int64_t r = 0; r < job->m; r++) {
        for (int64_t j = 0; j < job->n; j += NR) {
            int64_t columns = ht_min_i64(NR, job->n - j);
            memcpy(values, zeros, sizeof values);
            if (job->finish) job->finish(job->finish_arg, r, j, values, columns);
            ht_save(job->y, job->dtype, r * job->y_down + j, values, columns);
        }
    }
}

void gemm_run(const gemm_job *job, ht_pool *pool)
{
    if (job->m == 0 || job->n == 0) return;
    if (job->k == 0) {
        zero_result(job);
        return;
    }
    extent e = extent_of(job->m, job->n, job->k);
    for (int64_t column = 0; column < job->n; column += e.columns) {
        for (int64_t row = 0; row < job->m; row += e.rows) {
            block c = {.job = job, .row = row, .column = column, .steps = e.steps, .tile_m = e.tile_m};
            c.rows = ht_min_i64(e.rows, job->m - row);
            c.columns = ht_min_i64(e.columns, job->n - column);
            c.a = job->workspace;
            c.b = c.a + e.a_elems;
            c.a_tiles = ht_tiles(c.rows, e.tile_m);
            c.slivers = ht_tiles(c.columns, NR);
            /* b is packed once for all blocks of rows. */
            int64_t b_stripes = row == 0 ? ht_tiles(c.slivers, TILE_N / NR) * c.steps : 0;
            ht_parallel(pool, c.a_tiles * c.steps + b_stripes, pack_stripe, &c);
            ht_parallel(pool, c.a_tiles * ht_tiles(c.columns, TILE_N), multiply_tile, &c);
        }
    }
}
