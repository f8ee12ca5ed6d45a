/* y[m,n] = sum over k of a[m,k] b[k,n].
 * y is cut into tiles; a tile takes all of K, a block of K after the other. Of each block the tile's columns of b are
 * packed into slivers of NR columns that stay in L2, and every MR rows of a meet all of them: a's rows are read where
 * they lie, or copied first where they would meet in one cache set or are of another type. Only a matrix a that is
 * stored by columns is packed beforehand, for all tiles. Partial sums wait in a tile of their own, y is written once.
 * Numerics: real accumulation over k in order within blocks of K, blocks added in order, one rounding;
 * FMA. The blocks of K follow from k alone.
 * Threads: tiles of y; each thread packs for itself what only it reads.
 * Traffic: b once per row of tiles, a once per column of tiles, y once.  Bound: FLOPs. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/gemm/gemm.h"
#include "kernel/gemm/prefetch.h"
#include "kernel/simd.h"

#include <stdatomic.h>
#include <string.h>

enum {
    MR = VEC_REGISTERS == 32 ? 14 : 6, /* rows of a micro-tile: its sums fill the registers */
    NR = 2 * VL,
    KC = (VEC_BYTES == 64 ? 2048 : 1024) / sizeof(real), /* a block of K, at most */
    PITCH = KC + 16,                                     /* copied rows of a do not meet in one cache set */
    GROUP = 8 * MR,                                      /* rows of a that are packed together */
    TILE_N = 256,                                        /* columns of a tile, at most: with KC rows of b, half of L2 */
    NARROW_N = 128,                                      /* where tiles are few */
    TILE_M = 19 * MR,                                    /* rows of a tile, at most */
    LOW_M = 5 * MR,                                      /* and at least, where tiles are few */
    FEW_TILES = 6,         /* with fewer than these, tiles get smaller, so that threads share them evenly */
    FEW_THREADS = 2,       /* up to these, that is all that tiles follow */
    MOST_SLOTS = 32,       /* threads that can take part where their number is not known */
    MOST_PACKED = 1 << 22, /* elements of a that are packed beforehand at a time */
    MOST_SHARED = 1 << 24, /* the same with many threads, which wait for each other around it */
    L1_WAY_BYTES = 4096,   /* addresses so far apart meet in one set of L1 */
    CHUNK = 16,            /* steps of K between two prefetches */
    PREFETCH_STRIPS = 8,   /* the next block of b is fetched during the last strips of this one */
};

/* ---- the micro-kernel ---- */

/* Where the sums of a micro-tile go: to[r][..] = sums + before[r][..]. */
typedef struct out_tile {
    real *to;
    const real *before; /* NULL: nothing */
    int64_t to_pitch, before_pitch;
} out_tile;

/* A few rows of a by one sliver of b. `rows` is a constant at each call, the steps of packed rows are too. */
static inline __attribute__((always_inline)) void multiply(out_tile at, int rows, const real *restrict a,
                                                           int64_t row_step, int64_t k_step, const real *restrict b,
                                                           int64_t depth, prefetch next[2])
{
    vec sum[MR][2];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (int64_t k = 0; k < depth;) {
        int64_t end = ht_min_i64(k + CHUNK, depth);
        prefetch_some(next);
        for (; k < end; k++) {
            vec left = *(const vec *)(b + k * NR), right = *(const vec *)(b + k * NR + VL);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                vec x = a[r * row_step + k * k_step] - (vec){0}; /* everywhere, sign of zero included */
                sum[r][0] += x * left;
                sum[r][1] += x * right;
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        vec_unaligned *to = (vec_unaligned *)(at.to + r * at.to_pitch);
        if (at.before) {
            const vec_unaligned *before = (const vec_unaligned *)(at.before + r * at.before_pitch);
            sum[r][0] += before[0];
            sum[r][1] += before[1];
        }
        to[0] = sum[r][0];
        to[1] = sum[r][1];
    }
}

/* ---- packing ---- */

/* By columns of the source: panels of MR rows, element (r, k) at k·MR + r. */
static bool by_columns(const gemm_side *a)
{
    return !a->load && a->down == 1 && a->across != 1;
}

/* Can a's rows be read where they lie? Not where several of them meet in one set of L1. */
static bool readable_in_place(const gemm_side *a)
{
    return !a->load && a->across == 1 && a->dtype == HT_REAL_DTYPE &&
           a->down * (int64_t)sizeof(real) % L1_WAY_BYTES != 0;
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

/* From one sliver of b to the next; not a power of two, so that they do not meet in one cache set. */
static int64_t sliver_elems(int64_t depth)
{
    return (depth + 1) * NR;
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
                for (int c = 0; c < VL; c++) block[c] = *(const vec_unaligned *)(line[c] + i);
            } else {
                memset(block, 0, sizeof block);
                for (int64_t c = 0; c < wide; c++) memcpy(&block[c], line[c] + i, (size_t)deep * sizeof(real));
            }
            vec_transpose(block);
            for (int64_t c = 0; c < deep; c++) *(vec *)(to + (i + c) * NR + j) = block[c];
        }
    }
}

/* Slivers whose source lies along its columns: a row of all of them at a time, for long runs of memory. */
static void pack_straight(const gemm_side *b, real *to, int64_t apart, int64_t k, int64_t depth, int64_t column,
                          int64_t columns)
{
    real stage[TILE_N];
    for (int64_t i = 0; i < depth; i++, to += NR) {
        int64_t at = (k + i) * b->down + column * b->across, j = 0;
        const real *row = stage;
        if (b->across == 1)
            row = ht_view(stage, b->data, b->dtype, at, columns);
        else
            ht_load_strided(stage, b->data, b->dtype, at, b->across, columns);
        for (; j + NR <= columns; j += NR) memcpy(to + j / NR * apart, row + j, NR * sizeof *to);
        for (int64_t c = j; c < columns; c++) to[j / NR * apart + c - j] = row[c];
    }
}

/* The slivers of up to TILE_N columns of one block of K, `apart` elements from each other; columns beyond the matrix are
 * zero. */
static void pack_b(const gemm_side *b, real *to, int64_t apart, int64_t k, int64_t depth, int64_t column,
                   int64_t columns)
{
    int64_t rest = columns % NR;
    if (rest) memset(to + columns / NR * apart, 0, (size_t)(depth * NR) * sizeof *to);
    if (!b->load && (b->down != 1 || b->across == 1)) {
        pack_straight(b, to, apart, k, depth, column, columns);
        return;
    }
    for (int64_t j = 0; j < columns; j += NR) {
        int64_t wide = ht_min_i64(NR, columns - j);
        if (b->load)
            b->load(b, to + j / NR * apart, NR, k, depth, column + j, wide);
        else
            pack_turned(b, to + j / NR * apart, k, depth, column + j, wide);
    }
}

/* ---- one tile of y: all of K ---- */

typedef struct extent {
    int64_t steps, depth;   /* blocks of K */
    int64_t tile_m, tile_n; /* rows and columns of a tile */
    int64_t rows;           /* of y that are made between two packings of a */
    int64_t packed;         /* elements of packed a */
    int64_t slots, slot;    /* threads that have scratch, elements for each */
} extent;

static int64_t sums_elems(const extent *e)
{
    return (e->steps > 1 ? e->tile_m : MR) * e->tile_n;
}

typedef struct work {
    const gemm_job *job;
    extent e;
    int64_t row, rows; /* of y that a was packed for */
    int64_t tiles;
    real *packed, *slots;
    _Atomic int64_t next;
} work;

/* What a thread has to itself. */
typedef struct scratch {
    real *packed;  /* slivers of one block of K */
    real *sums;    /* of a tile, or of a strip where K is one block; rows tile_n apart */
    real *a;       /* MR rows, PITCH apart */
    const real *b; /* the slivers at hand: packed, or part of what was prepacked */
    int64_t apart; /* from sliver to sliver, elements */
} scratch;

/* A few panels of a matrix a that is stored by columns, for one block of K: a column of all of them at a time, for long
 * runs of memory. Rows beyond the matrix are zero: they are multiplied and thrown away. */
static void pack_columns(void *arg, int64_t stripe)
{
    const work *w = arg;
    const gemm_side *a = &w->job->a;
    int64_t row = stripe / w->e.steps * GROUP, rows = ht_min_i64(GROUP, w->rows - row),
            k = stripe % w->e.steps * w->e.depth;
    int64_t end = ht_min_i64(k + w->e.depth, w->job->k);
    real *to = w->packed + row * w->job->k, line[GROUP] = {0};
    for (; k < end; k++) {
        const real *from = line;
        if (rows == GROUP)
            from = ht_view(line, a->data, a->dtype, w->row + row + k * a->across, rows);
        else
            ht_load(line, a->data, a->dtype, w->row + row + k * a->across, rows);
        for (int64_t p = 0; p < rows; p += MR) memcpy(to + p * w->job->k + k * MR, from + p, MR * sizeof *to);
    }
}

/* MR rows of a (fewer at the end) of one block of K, as the micro-kernel takes them. */
typedef struct strip {
    const real *a;
    int64_t row_step; /* 0: a packed panel */
    int rows;         /* as many as there are, or a few more */
} strip;

/* There are lower micro-kernels for the last rows; in between, rows of zeros are multiplied and thrown away. */
static int rows_made(int64_t rows)
{
    return rows <= 2 ? 2 : rows <= 4 ? 4 : rows <= 8 && MR > 8 ? 8 : MR;
}

static strip strip_of(const work *w, const scratch *o, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const gemm_side *a = &w->job->a;
    strip s = {.rows = rows_made(rows)};
    if (by_columns(a)) {
        s.a = w->packed + (row - w->row) * w->job->k + k * MR;
        return s;
    }
    if (rows == MR && readable_in_place(a)) {
        s.a = (const real *)a->data + row * a->down + k;
        s.row_step = a->down;
        return s;
    }
    load_rows(a, o->a, PITCH, row, rows, k, depth);
    for (int64_t r = rows; r < s.rows; r++) memset(o->a + r * PITCH, 0, (size_t)depth * sizeof(real));
    s.a = o->a;
    s.row_step = PITCH;
    return s;
}

static void multiply_strip(out_tile at, const strip *s, const real *b, int64_t depth, prefetch next[2])
{
    enum { EIGHT = MR > 8 ? 8 : MR };
    if (s->row_step == 0) {
        if (s->rows == MR)
            multiply(at, MR, s->a, 1, MR, b, depth, next);
        else if (s->rows == 2)
            multiply(at, 2, s->a, 1, MR, b, depth, next);
        else if (s->rows == 4)
            multiply(at, 4, s->a, 1, MR, b, depth, next);
        else
            multiply(at, EIGHT, s->a, 1, MR, b, depth, next);
    } else if (s->row_step != PITCH) {
        multiply(at, MR, s->a, s->row_step, 1, b, depth, next);
    } else if (s->rows == MR) {
        multiply(at, MR, s->a, PITCH, 1, b, depth, next);
    } else if (s->rows == 2) {
        multiply(at, 2, s->a, PITCH, 1, b, depth, next);
    } else if (s->rows == 4) {
        multiply(at, 4, s->a, PITCH, 1, b, depth, next);
    } else {
        multiply(at, EIGHT, s->a, PITCH, 1, b, depth, next);
    }
}

static bool plain(const gemm_job *job)
{
    return !job->finish && job->dtype == HT_REAL_DTYPE;
}

/* Complete sums to y. */
static void write_back(const work *w, real *sums, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    const gemm_job *job = w->job;
    if (job->finish) job->finish(job->finish_arg, row, column, rows, columns, sums, w->e.tile_n);
    for (int64_t r = 0; r < rows && job->y; r++)
        ht_save(job->y, job->dtype, (row + r) * job->y_down + column, sums + r * w->e.tile_n, columns);
}

/* One block of K in what was prepacked: a sliver holds all of K. */
static const real *prepacked_at(const gemm_job *job, int64_t k, int64_t column)
{
    return (const real *)job->prepacked + column / NR * sliver_elems(job->k) + k * NR;
}

/* What making or reading slivers of b will read. */
static prefetch prefetch_of(const gemm_job *job, int64_t k, int64_t depth, int64_t column, int64_t columns)
{
    const gemm_side *b = &job->b;
    int64_t bytes = (int64_t)ht_dtype_bytes(b->dtype);
    if (job->prepacked)
        return (prefetch){.run = (const char *)prepacked_at(job, k, column),
                          .bytes = depth * NR * (int64_t)sizeof(real),
                          .pitch = sliver_elems(job->k) * (int64_t)sizeof(real),
                          .runs = ht_tiles(columns, NR)};
    const char *run = (const char *)b->data + (k * b->down + column * b->across) * bytes;
    if (!b->load && b->across == 1)
        return (prefetch){.run = run, .bytes = columns * bytes, .pitch = b->down * bytes, .runs = depth};
    if (!b->load && b->down == 1)
        return (prefetch){.run = run, .bytes = depth * bytes, .pitch = b->across * bytes, .runs = columns};
    return (prefetch){0};
}

/* What the strip from `row` will read of a. */
static prefetch strip_prefetch(const work *w, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const gemm_side *a = &w->job->a;
    int64_t bytes = (int64_t)ht_dtype_bytes(a->dtype);
    if (by_columns(a))
        return (prefetch){.run = (const char *)(w->packed + (row - w->row) * w->job->k + k * MR),
                          .bytes = MR * depth * (int64_t)sizeof(real),
                          .runs = 1};
    if (a->load || a->across != 1) return (prefetch){0};
    return (prefetch){.run = (const char *)a->data + (row * a->down + k) * bytes,
                      .bytes = depth * bytes,
                      .pitch = a->down * bytes,
                      .runs = rows};
}

static int64_t depth_of(const work *w, int64_t step)
{
    return ht_min_i64(w->e.depth, w->job->k - step * w->e.depth);
}

/* One block of K, `b` packed: strip after strip of the tile. */
static void add_block(const work *w, const scratch *o, int64_t step, int64_t row, int64_t rows, int64_t column,
                      int64_t columns, prefetch *next)
{
    const gemm_job *job = w->job;
    int64_t pitch = w->e.tile_n, k = step * w->e.depth, depth = depth_of(w, step);
    bool last = step + 1 == w->e.steps;
    int64_t chunks = ht_tiles(columns, NR) * ht_tiles(depth, CHUNK);
    prefetch_set_rate(next, ht_tiles(ht_min_i64(ht_tiles(rows, MR), PREFETCH_STRIPS) * chunks, 2));
    for (int64_t i = 0; i < rows; i += MR) {
        prefetch fetch[2] = {{0}, {0}};
        if (i + MR < rows) fetch[0] = strip_prefetch(w, row + i + MR, ht_min_i64(MR, rows - i - MR), k, depth);
        prefetch_set_rate(&fetch[0], ht_tiles(chunks, 2));
        if (i + PREFETCH_STRIPS * MR >= rows) fetch[1] = *next;
        int64_t high = ht_min_i64(MR, rows - i), direct = 0;
        strip s = strip_of(w, o, row + i, high, k, depth);
        if (last && s.rows == high && plain(job)) direct = columns / NR * NR;
        real *sums = o->sums + (w->e.steps > 1 ? i * pitch : 0);
        for (int64_t j = 0; j < columns; j += NR) {
            out_tile at = {sums + j, step > 0 ? sums + j : NULL, pitch, pitch};
            if (j < direct) {
                at.to = (real *)job->y + (row + i) * job->y_down + column + j;
                at.to_pitch = job->y_down;
            }
            multiply_strip(at, &s, o->b + j / NR * o->apart, depth, fetch);
        }
        if (i + PREFETCH_STRIPS * MR >= rows) *next = fetch[1];
        if (last && direct < columns) write_back(w, sums + direct, row + i, high, column + direct, columns - direct);
    }
}

typedef struct tile {
    int64_t row, rows, column, columns;
} tile;

/* The next tile; without columns when there are no more. */
static tile tile_of(work *w)
{
    int64_t number = atomic_fetch_add_explicit(&w->next, 1, memory_order_relaxed);
    if (number >= w->tiles) return (tile){0};
    int64_t down = ht_tiles(w->rows, w->e.tile_m);
    tile t = {.row = number % down * w->e.tile_m, .column = number / down * w->e.tile_n};
    t.rows = ht_min_i64(w->e.tile_m, w->rows - t.row);
    t.columns = ht_min_i64(w->e.tile_n, w->job->n - t.column);
    return t;
}

/* Slivers for one block of K of a tile. */
static void take_b(const work *w, scratch *o, int64_t step, const tile *t)
{
    int64_t k = step * w->e.depth, depth = depth_of(w, step);
    o->apart = sliver_elems(w->job->prepacked ? w->job->k : depth);
    o->b = w->job->prepacked ? prepacked_at(w->job, k, t->column) : o->packed;
    if (!w->job->prepacked) pack_b(&w->job->b, o->packed, o->apart, k, depth, t->column, t->columns);
}

/* A slot's thread takes tiles until there are none. */
static void take_tiles(void *arg, int64_t slot)
{
    work *w = arg;
    const extent *e = &w->e;
    scratch o = {.packed = w->slots + slot * e->slot};
    o.sums = o.packed + e->tile_n / NR * sliver_elems(e->depth);
    o.a = o.sums + sums_elems(e);
    tile t = tile_of(w);
    while (t.columns > 0) {
        tile after = t;
        for (int64_t step = 0; step < e->steps; step++) {
            take_b(w, &o, step, &t);
            int64_t later = (step + 1) % e->steps;
            if (later == 0) after = tile_of(w);
            prefetch next = prefetch_of(w->job, later * e->depth, depth_of(w, later), after.column, after.columns);
            if (after.columns == 0) next.runs = 0;
            add_block(w, &o, step, w->row + t.row, t.rows, t.column, t.columns, &next);
        }
        t = after;
    }
}

/* ---- the whole product ---- */

/* Tiles for one or two threads. */
static void choose_tile(extent *e, int64_t n)
{
    e->tile_n = ht_min_i64(TILE_N, ht_tiles(n, NR) * NR);
    int64_t down = ht_tiles(e->rows, TILE_M);
    if (down * ht_tiles(n, e->tile_n) < FEW_TILES) e->tile_n = ht_min_i64(e->tile_n, NARROW_N);
    int64_t across = ht_tiles(n, e->tile_n);
    do e->tile_m = ht_tiles(ht_tiles(e->rows, down), MR) * MR;
    while (ht_tiles(e->rows, e->tile_m) * across < FEW_TILES && e->tile_m > LOW_M && down++);
}

/* Tiles for many threads: the size with which the last thread is done first. A tile costs its micro-tiles, and beyond
 * them reading a strip of a for each of its rows of micro-tiles and packing a sliver of b for each of its columns. */
static void share_out(extent *e, int64_t n, int64_t threads)
{
    enum { MICRO_TILE = 16, READ_STRIP = 4, PACK_SLIVER = 24, TILE = 16 };
    int64_t least = INT64_MAX;
    for (int64_t wide = TILE_N; wide >= 2 * NR; wide /= 2) {
        int64_t tile_n = ht_min_i64(wide, ht_tiles(n, NR) * NR), slivers = tile_n / NR;
        for (int64_t strips = TILE_M / MR; strips > 0; strips--) {
            int64_t tiles = ht_tiles(e->rows, strips * MR) * ht_tiles(n, tile_n);
            int64_t cost = ht_tiles(tiles, threads) *
                           (strips * slivers * MICRO_TILE + strips * READ_STRIP + slivers * PACK_SLIVER + TILE);
            if (cost >= least) continue;
            least = cost;
            e->tile_m = strips * MR;
            e->tile_n = tile_n;
        }
    }
}

int64_t gemm_block_depth(int64_t k)
{
    return ht_tiles(k, ht_tiles(k, KC));
}

/* threads: for which the workspace is planned; 0: not known. Only tiles and how much of a is packed at a time follow
 * from it: blocks of K and so the bits do not. */
static extent extent_of(int64_t m, int64_t n, int64_t k, int64_t threads, bool packs_a)
{
    extent e = {.depth = gemm_block_depth(k), .rows = m};
    e.steps = ht_tiles(k, e.depth);
    if (packs_a) {
        int64_t most = (threads > FEW_THREADS ? MOST_SHARED : MOST_PACKED) / k;
        e.rows = ht_tiles(ht_tiles(m, ht_tiles(m, most < TILE_M ? TILE_M : most)), MR) * MR;
        e.packed = ht_tiles(e.rows * k, NR) * NR;
    }
    if (threads > FEW_THREADS)
        share_out(&e, n, threads);
    else
        choose_tile(&e, n);
    e.slots = ht_min_i64(ht_tiles(e.rows, e.tile_m) * ht_tiles(n, e.tile_n), threads > 0 ? threads : MOST_SLOTS);
    e.slot = e.tile_n / NR * sliver_elems(e.depth) + sums_elems(&e) + MR * PITCH;
    return e;
}

int64_t gemm_workspace(int64_t m, int64_t n, int64_t k, int64_t threads, bool by_columns)
{
    if (m == 0 || n == 0 || k == 0) return 0;
    extent e = extent_of(m, n, k, threads, by_columns);
    return (e.packed + e.slots * e.slot) * (int64_t)sizeof(real);
}

/* ---- b packed once for many products ---- */

typedef struct prepack_job {
    const gemm_side *b;
    real *to;
    int64_t n, k;
} prepack_job;

static void prepack_stripe(void *arg, int64_t stripe)
{
    const prepack_job *c = arg;
    int64_t column = stripe * TILE_N, apart = sliver_elems(c->k);
    for (int64_t k = 0; k < c->k; k += KC)
        pack_b(c->b, c->to + column / NR * apart + k * NR, apart, k, ht_min_i64(KC, c->k - k), column,
               ht_min_i64(TILE_N, c->n - column));
}

void gemm_prepack(const gemm_side *b, int64_t n, int64_t k, void *to, ht_pool *pool)
{
    prepack_job c = {b, to, n, k};
    ht_parallel(pool, ht_tiles(n, TILE_N), prepack_stripe, &c);
}

int64_t gemm_prepacked_bytes(int64_t n, int64_t k)
{
    return ht_tiles(n, NR) * sliver_elems(k) * (int64_t)sizeof(real);
}

static void zero_result(const gemm_job *job)
{
    real values[NR];
    for (int64_t r = 0; r < job->m; r++) {
        for (int64_t j = 0; j < job->n; j += NR) {
            int64_t columns = ht_min_i64(NR, job->n - j);
            memset(values, 0, sizeof values);
            if (job->finish) job->finish(job->finish_arg, r, j, 1, columns, values, NR);
            if (job->y) ht_save(job->y, job->dtype, r * job->y_down + j, values, columns);
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
    bool packs_a = by_columns(&job->a);
    work w = {.job = job, .packed = job->workspace};
    w.e = extent_of(job->m, job->n, job->k, job->threads, packs_a);
    w.slots = w.packed + w.e.packed;
    for (w.row = 0; w.row < job->m; w.row += w.rows) {
        w.rows = ht_min_i64(w.e.rows, job->m - w.row);
        w.tiles = ht_tiles(w.rows, w.e.tile_m) * ht_tiles(job->n, w.e.tile_n);
        if (packs_a) ht_parallel(pool, ht_tiles(w.rows, GROUP) * w.e.steps, pack_columns, &w);
        atomic_store_explicit(&w.next, 0, memory_order_relaxed);
        ht_parallel(pool, ht_min_i64(w.tiles, w.e.slots), take_tiles, &w);
    }
}
