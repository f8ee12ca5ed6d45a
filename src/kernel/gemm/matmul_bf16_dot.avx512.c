/* matmul of bf16 matrices by dot products of pairs, with AMX or AVX512_BF16: products large enough that packing pays,
 * one matrix of a batch after the other.
 * b is packed for all tiles of y, a few columns of tiles at a time; a's rows are read where they lie, and packed, too,
 * only where k is not their inner axis.
 * Numerics: f32 accumulation over k in order, a pair at a time, one rounding; subnormal inputs and sums count as zero,
 * as these instructions have it.
 * Threads: packing by stripes, then tiles of y, which take all of K.  Traffic: b once per row of tiles, a once per
 * column of tiles, y once.  Bound: FLOPs, and with many threads reading what others have packed. */
#include "kernel/gemm/bf16_dot.h"
#include "kernel/gemm/product_cpu.h"
#include "kernel/simd.h"

enum {
    STEP = BF16_DOT_STEP,
    NR = BF16_DOT_NR,
    KC = BF16_DOT_KC,
    TILE_N = BF16_DOT_TILE_N,
    HIGHEST_STRIP = BF16_DOT_AMX_ROWS,
    HIGHEST_TILE = 256,     /* rows */
    LOWER_TILE = 128,       /* the same with few threads */
    MOST_ELEMS = 1 << 22,   /* of packed b at a time */
    MOST_ROWS = 2016,       /* of packed a at a time, with few threads, about */
    MOST_A_ELEMS = 1 << 25, /* of those rows, with any number of threads */
    PACK_K = 256,           /* of k in a stripe of packing */
    PACK_ROWS = 64,         /* of a in a stripe: lines of memory, and whole vectors */
    PACK_SLIVERS = 4,       /* of b in a stripe, for the same reason */
    L1_WAY_BYTES = 4096,    /* addresses so far apart meet in one set of L1 */
    FEW_TILES = 16,         /* with fewer than these, tiles get lower, so that threads share them evenly */
    FEW_THREADS = 2,        /* up to these, that is all that tiles follow */
    FEWEST_ROWS = 8,
    FEWEST_ROWS_TURNED = 4, /* where b lies along K: its pairs lie together already */
    FEWEST_PRODUCTS = 1 << 18,
    PREPACK_ROWS = 128, /* with more, packing b in every run does not matter much (decision 0014) */
};

/* Pairs on their way from memory to memory. */
typedef vec bf16_pairs __attribute__((may_alias));
typedef vec bf16_pairs_unaligned __attribute__((aligned(2), may_alias));

/* A block of y: rows [row, row + rows) × columns [column, column + columns), all of K. */
typedef struct block {
    product p; /* of one matrix of the batch */
    bf16_dot_fn multiply;
    int64_t unit;                /* rows of a strip, which multiply takes at a time */
    const ht_epilogue *epilogue; /* of the calls that follow; NULL: none */
    int64_t first;               /* element of all of y that this matrix begins with */
    int64_t row, rows, column, columns;
    int64_t tile_m, tile_n, slivers, steps;
    bool in_place;       /* a is read where it lies, but for ragged ends */
    int64_t packed_rows; /* of a at a time; 0: none is packed beforehand */
    uint16_t *a;         /* by block of K: packed_rows × PITCH */
    uint16_t *b;         /* by block of K, then sliver: KC × NR each */
    uint16_t *prepacked; /* b of all blocks of columns, one after the other; NULL: packed here */
} block;

static uint16_t *a_at(const block *c, int64_t step, int64_t row)
{
    return c->a + (step * c->packed_rows + row) * BF16_DOT_PITCH;
}

static uint16_t *b_at(const block *c, int64_t step, int64_t sliver)
{
    return c->b + (step * c->slivers + sliver) * KC * NR;
}

static int64_t padded(int64_t depth)
{
    return ht_tiles(depth, STEP) * STEP;
}

/* ---- packing ---- */

static uint32_t pair_of(uint16_t even, uint16_t odd)
{
    return even | (uint32_t)odd << 16;
}

/* VL rows of a that are stored by columns, by 2 VL columns: as pairs they make a square. */
static void pack_a_square(const matrix *a, const uint16_t *from, uint16_t *to)
{
    vec square[VL];
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++, from += 2 * a->across) {
        uint32_t pairs[VL];
        for (int r = 0; r < VL; r++) pairs[r] = pair_of(from[r], from[a->across + r]);
        memcpy(&square[i], pairs, sizeof pairs);
    }
    vec_transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < VL; r++) *(bf16_pairs *)(to + r * BF16_DOT_PITCH) = square[r];
}

static void pack_a_strided(const matrix *a, const uint16_t *from, uint16_t *to, int64_t rows, int64_t depth)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < depth; i++) to[r * BF16_DOT_PITCH + i] = from[r * a->down + i * a->across];
}

static void pack_a_turned(const matrix *a, const uint16_t *from, uint16_t *to, int64_t rows, int64_t depth)
{
    int64_t k = 0;
    for (; k + 2 * VL <= depth; k += 2 * VL, from += 2 * VL * a->across, to += 2 * VL) {
        int64_t r = 0;
        for (; r + VL <= rows; r += VL) pack_a_square(a, from + r, to + r * BF16_DOT_PITCH);
        pack_a_strided(a, from + r, to + r * BF16_DOT_PITCH, rows - r, 2 * VL);
    }
    pack_a_strided(a, from, to, rows, depth - k);
}

/* Rows of a for some steps of k, followed by zeros: columns up to a multiple of STEP, rows up to `all`. */
static void pack_a(const block *c, uint16_t *to, int64_t row, int64_t rows, int64_t all, int64_t k, int64_t depth)
{
    const matrix *a = &c->p.a;
    const uint16_t *from = (const uint16_t *)a->data + row * a->down + k * a->across;
    for (int64_t r = 0; r < all; r++) {
        int64_t filled = r < rows ? depth : 0;
        memset(to + r * BF16_DOT_PITCH + filled, 0, (size_t)(padded(depth) - filled) * sizeof *to);
    }
    if (a->across == 1) {
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + r * BF16_DOT_PITCH, from + r * a->down, (size_t)depth * sizeof *to);
    } else if (a->down == 1) {
        pack_a_turned(a, from, to, rows, depth);
    } else {
        pack_a_strided(a, from, to, rows, depth);
    }
}

/* A full half of a sliver, 16 columns that lie along k: their pairs lie together already. Returns how far it came. */
static int64_t pack_b_turned(const matrix *b, const uint16_t *from, uint16_t *to, int64_t depth)
{
    int64_t k = 0;
    for (; k + 2 * VL <= depth; k += 2 * VL) {
        vec v[VL];
#pragma GCC unroll 16
        for (int j = 0; j < VL; j++) v[j] = *(const bf16_pairs_unaligned *)(from + j * b->across + k);
        vec_transpose(v);
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) *(bf16_pairs *)(to + (k / 2 + i) * 2 * NR) = v[i];
    }
    return k;
}

/* `columns` columns of a sliver from step `k` on, by their strides. */
static void pack_b_strided(const matrix *b, const uint16_t *from, uint16_t *to, int64_t k, int64_t depth,
                           int64_t columns)
{
    for (; k < depth; k += 2) {
        const uint16_t *even = from + k * b->down, *odd = k + 1 < depth ? even + b->down : NULL;
        uint32_t line[NR];
        for (int64_t j = 0; j < columns; j++) line[j] = pair_of(even[j * b->across], odd ? odd[j * b->across] : 0);
        memcpy(to + k * NR, line, (size_t)columns * sizeof *line);
    }
}

/* Whole slivers whose source lies along its columns: two rows of all of them at a time, for long runs of memory. depth
 * is even. */
static void pack_b_straight(const matrix *b, const uint16_t *from, uint16_t *to, int64_t depth, int64_t slivers)
{
    for (int64_t k = 0; k < depth; k += 2, from += 2 * b->down) {
        for (int64_t s = 0; s < slivers; s++) {
            const uint16_t *even = from + s * NR, *odd = even + b->down;
            uint32_t line[NR];
            for (int64_t j = 0; j < NR; j++) line[j] = pair_of(even[j], odd[j]);
            memcpy(to + s * KC * NR + k * NR, line, sizeof line);
        }
    }
}

/* One sliver for some steps of k; columns beyond the matrix are zero. */
static void pack_b_sliver(const matrix *b, const uint16_t *from, uint16_t *to, int64_t depth, int64_t columns)
{
    int64_t filled = columns < NR ? 0 : depth / 2 * 2;
    memset(to + filled * NR, 0, (size_t)((padded(depth) - filled) * NR) * sizeof *to);
    if (b->down != 1 || b->across == 1) {
        pack_b_strided(b, from, to, 0, depth, columns);
        return;
    }
    for (int64_t j = 0; j < columns; j += VL) {
        int64_t wide = ht_min_i64(VL, columns - j);
        int64_t done = wide == VL ? pack_b_turned(b, from + j * b->across, to + 2 * j, depth) : 0;
        pack_b_strided(b, from + j * b->across, to + 2 * j, done, depth, wide);
    }
}

/* Up to PACK_SLIVERS slivers for some steps of k. */
static void pack_b(const block *c, uint16_t *to, int64_t k, int64_t depth, int64_t column, int64_t columns)
{
    const matrix *b = &c->p.b;
    const uint16_t *from = (const uint16_t *)b->data + k * b->down + column * b->across;
    int64_t j = 0;
    if (b->across == 1 && depth % STEP == 0) {
        pack_b_straight(b, from, to, depth, columns / NR);
        j = columns / NR * NR;
    }
    for (; j < columns; j += NR)
        pack_b_sliver(b, from + j * b->across, to + j * KC, depth, ht_min_i64(NR, columns - j));
}

/* Stripes of packing: how many of a, of b, and of both together per PACK_K of k. */
typedef struct packing {
    const block *c;
    int64_t a_stripes, b_stripes, parts;
} packing;

static void pack_stripe(void *arg, int64_t stripe)
{
    const packing *all = arg;
    const block *c = all->c;
    int64_t k = stripe % all->parts * PACK_K, depth = ht_min_i64(PACK_K, c->p.k - k), step = k / KC;
    int64_t which = stripe / all->parts;
    if (which < all->a_stripes) {
        int64_t row = which * PACK_ROWS, whole = ht_tiles(c->rows, c->unit) * c->unit;
        pack_a(c, a_at(c, step, row) + k % KC, c->row + row, ht_min_i64(PACK_ROWS, c->rows - row),
               ht_min_i64(PACK_ROWS, whole - row), k, depth);
    } else {
        int64_t sliver = (which - all->a_stripes) * PACK_SLIVERS, column = sliver * NR;
        pack_b(c, b_at(c, step, sliver) + k % KC * NR, k, depth, c->column + column,
               ht_min_i64(PACK_SLIVERS * NR, c->columns - column));
    }
}

static void pack(const block *c, bool a, bool b, ht_pool *pool)
{
    packing all = {.c = c,
                   .a_stripes = a ? ht_tiles(ht_tiles(c->rows, c->unit) * c->unit, PACK_ROWS) : 0,
                   .b_stripes = b ? ht_tiles(c->slivers, PACK_SLIVERS) : 0,
                   .parts = ht_tiles(c->p.k, PACK_K)};
    ht_parallel(pool, (all.a_stripes + all.b_stripes) * all.parts, pack_stripe, &all);
}

/* ---- multiplying ---- */

/* One tile of y: rows and columns of the block. */
typedef struct tile {
    int64_t row, rows, column, columns;
} tile;

static int64_t depth_of(const block *c, int64_t step)
{
    return ht_min_i64(KC, c->p.k - step * KC);
}

/* The rows of a strip, for one block of K: packed beforehand, where they lie, or copied. */
static void take_a(const block *c, bf16_strip *s, uint16_t *copy, int64_t step, int64_t row, int64_t rows)
{
    const matrix *a = &c->p.a;
    int64_t depth = depth_of(c, step);
    s->a_pitch = BF16_DOT_PITCH;
    if (c->packed_rows) {
        s->a = a_at(c, step, row);
    } else if (c->in_place && rows == c->unit && depth % STEP == 0) {
        s->a = (const uint16_t *)a->data + (c->row + row) * a->down + step * KC;
        s->a_pitch = a->down;
    } else {
        pack_a(c, copy, c->row + row, rows, c->unit, step * KC, depth);
        s->a = copy;
    }
}

/* What take_a will read for another strip; nothing where there are no rows. */
static prefetch a_prefetch(const block *c, int64_t step, int64_t row, int64_t rows)
{
    const matrix *a = &c->p.a;
    if (rows <= 0) return (prefetch){0};
    int64_t bytes = depth_of(c, step) * 2;
    if (c->packed_rows)
        return (prefetch){
            .run = (const char *)a_at(c, step, row), .bytes = bytes, .pitch = BF16_DOT_PITCH * 2, .runs = rows};
    return (prefetch){.run = (const char *)((const uint16_t *)a->data + (c->row + row) * a->down + step * KC),
                      .bytes = bytes,
                      .pitch = a->down * 2,
                      .runs = rows};
}

static prefetch b_prefetch(const block *c, int64_t step, int64_t sliver, int64_t slivers)
{
    if (step == c->steps) return (prefetch){0};
    return (prefetch){.run = (const char *)b_at(c, step, sliver),
                      .bytes = padded(depth_of(c, step)) * NR * 2,
                      .pitch = KC * NR * 2,
                      .runs = slivers};
}

/* Complete sums of a strip to y. */
static void write_back(const block *c, float *sums, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    int64_t at = (c->row + row) * c->p.n + c->column + column;
    if (c->epilogue)
        ht_epilogue_block(c->epilogue, c->first + at, c->p.n, rows, columns, (char *)sums, TILE_N * sizeof *sums);
    for (int64_t r = 0; r < rows && !c->epilogue; r++)
        ht_save(c->p.y, c->p.dtype, at + r * c->p.n, sums + r * TILE_N, columns);
}

/* What follows is fetched during a strip: the next one's rows of a, and of the next block of K's b this strip's share.
 * The first strip of a tile finds no b yet, and fetches its own a sliver ahead. */
static void set_prefetch(const block *c, const tile *t, bf16_strip *s, int64_t step, int64_t strip, prefetch *next_b)
{
    int64_t times = s->slivers * (s->depth / STEP), after = (strip + 1) * c->unit;
    prefetch next_a = a_prefetch(c, step, t->row + after, ht_min_i64(c->unit, t->rows - after));
    if (step == 0 && strip == 0) {
        s->next[0] = b_prefetch(c, 0, t->column / NR + 1, s->slivers - 1);
        s->next[1] = next_a;
        prefetch_set_rate(&s->next[1], times);
    } else {
        s->next[0] = next_a;
        s->next[1] = *next_b;
    }
    prefetch_set_rate(&s->next[0], times);
}

static void multiply_tile(void *arg, int64_t number)
{
    const block *c = arg;
    float sums[HIGHEST_TILE * TILE_N] __attribute__((aligned(64)));
    uint16_t copy[HIGHEST_STRIP * BF16_DOT_PITCH] __attribute__((aligned(64)));
    int64_t across = ht_tiles(c->columns, c->tile_n);
    tile t = {.row = number / across * c->tile_m, .column = number % across * c->tile_n};
    t.rows = ht_min_i64(c->tile_m, c->rows - t.row);
    t.columns = ht_min_i64(c->tile_n, c->columns - t.column);
    int64_t slivers = ht_tiles(t.columns, NR), strips = ht_tiles(t.rows, c->unit);
    for (int64_t step = 0; step < c->steps; step++) {
        int64_t depth = padded(depth_of(c, step));
        prefetch next_b = b_prefetch(c, step + 1, t.column / NR, slivers);
        prefetch_set_rate(&next_b, slivers * (depth / STEP) * strips);
        for (int64_t i = 0; i < strips; i++) {
            int64_t row = i * c->unit, rows = ht_min_i64(c->unit, t.rows - row);
            bf16_strip s = {.sums = sums + row * TILE_N, .slivers = slivers, .depth = depth, .first = step == 0};
            s.b = b_at(c, step, t.column / NR);
            take_a(c, &s, copy, step, t.row + row, rows);
            set_prefetch(c, &t, &s, step, i, &next_b);
            c->multiply(&s);
            if (step > 0 || i > 0) next_b = s.next[1];
            if (step + 1 == c->steps) write_back(c, s.sums, t.row + row, rows, t.column, t.columns);
        }
    }
}

/* ---- the whole product ---- */

/* Tiles for many threads: the size with which the last thread is done first. A tile costs its micro-tiles; reading a
 * strip of a or a sliver of b costs half a micro-tile. */
static void share_out(block *e, int64_t threads)
{
    int64_t least = INT64_MAX, highest = ht_min_i64(HIGHEST_TILE / e->unit, ht_tiles(e->rows, e->unit));
    for (int64_t slivers = TILE_N / NR; slivers > 1; slivers--) {
        for (int64_t strips = highest; strips > 0; strips--) {
            int64_t tiles = ht_tiles(e->rows, strips * e->unit) * ht_tiles(e->columns, slivers * NR);
            int64_t cost = ht_tiles(tiles, threads) * (2 * slivers * strips + slivers + strips);
            if (cost >= least) continue;
            least = cost;
            e->tile_m = strips * e->unit;
            e->tile_n = slivers * NR;
        }
    }
}

/* Tiles for one or two threads. */
static void choose_tile(block *e)
{
    int64_t down = ht_tiles(e->rows, LOWER_TILE / e->unit * e->unit), across = ht_tiles(e->columns, TILE_N);
    e->tile_n = TILE_N;
    do e->tile_m = ht_tiles(ht_tiles(e->rows, down), e->unit) * e->unit;
    while (down++ * across < FEW_TILES && e->tile_m > 2 * e->unit);
}

/* The largest block, its tiles and its packed operands, from sizes and the number of threads. Only tiles follow
 * from the latter: the bits do not. */
static block extent_of(const product *p, int64_t unit, int64_t threads)
{
    block e = {.unit = unit, .steps = ht_tiles(p->k, KC), .rows = p->m};
    int64_t widest = MOST_ELEMS / (e.steps * KC) / TILE_N * TILE_N;
    e.columns = ht_min_i64(ht_tiles(p->n, NR) * NR, widest < TILE_N ? TILE_N : widest);
    e.slivers = ht_tiles(e.columns, NR);
    /* AMX reads whole lines, once: rows that meet in one set of L1 do not harm it. */
    e.in_place = unit == BF16_DOT_AMX_ROWS || p->a.down * (int64_t)sizeof(uint16_t) % L1_WAY_BYTES != 0;
    if (p->a.across != 1) {
        int64_t most = MOST_A_ELEMS / (e.steps * BF16_DOT_PITCH);
        if (threads <= FEW_THREADS) most = ht_min_i64(most, MOST_ROWS);
        e.rows = ht_tiles(ht_tiles(p->m, ht_tiles(p->m, most < unit ? unit : most)), unit) * unit;
        e.packed_rows = e.rows;
    }
    if (threads > FEW_THREADS)
        share_out(&e, threads);
    else
        choose_tile(&e);
    return e;
}

static int64_t a_elems(const block *e)
{
    return e->steps * e->packed_rows * BF16_DOT_PITCH;
}

/* The part of what is prepacked for the columns from `column` on. */
static uint16_t *prepacked_at(const block *e, int64_t column)
{
    return e->prepacked + column * e->steps * KC;
}

static void run_matrix(const block *extent, ht_pool *pool)
{
    const product *p = &extent->p;
    for (int64_t column = 0; column < p->n; column += extent->columns) {
        for (int64_t row = 0; row < p->m; row += extent->rows) {
            block c = *extent;
            c.row = row;
            c.column = column;
            c.rows = ht_min_i64(extent->rows, p->m - row);
            c.columns = ht_min_i64(extent->columns, p->n - column);
            c.slivers = ht_tiles(c.columns, NR);
            if (c.prepacked) c.b = prepacked_at(&c, column);
            /* b is packed once for all blocks of rows, and a once if all of it is. */
            pack(&c, c.packed_rows > 0 && (column == 0 || c.rows < p->m), row == 0 && !c.prepacked, pool);
            ht_parallel(pool, ht_tiles(c.rows, c.tile_m) * ht_tiles(c.columns, c.tile_n), multiply_tile, &c);
        }
    }
}

static void run(const ht_launch *launch, bf16_dot_fn multiply, int64_t unit)
{
    product p = product_of_launch(launch);
    block extent = extent_of(&p, unit, launch->threads);
    ht_epilogue epilogue;
    if (launch->fused) ht_epilogue_begin(&epilogue, launch->fused, launch);
    if (launch->fused) extent.epilogue = &epilogue;
    extent.multiply = multiply;
    extent.a = launch->workspace;
    extent.b = extent.a + a_elems(&extent);
    extent.prepacked = launch->prepacked;
    for (int64_t batch = 0; batch < product_batches(&p); batch++) {
        int64_t a_first, b_first;
        product_batch(&p, batch, &a_first, &b_first);
        extent.p = p;
        extent.p.a.data = (const uint16_t *)p.a.data + a_first;
        extent.p.b.data = (const uint16_t *)p.b.data + b_first;
        extent.first = batch * p.m * p.n;
        if (!launch->fused) extent.p.y = (char *)p.y + extent.first * (int64_t)ht_dtype_bytes(p.dtype);
        run_matrix(&extent, launch->pool);
    }
}

static int64_t workspace(const ht_call *call, int64_t unit, int64_t threads)
{
    product p = product_of(call, NULL, NULL);
    block e = extent_of(&p, unit, threads);
    return (a_elems(&e) + e.slivers * e.steps * KC * NR) * (int64_t)sizeof(uint16_t);
}

/* Neither bytes nor what they hold depend on the rows of a, so both processors' rows share this. */
static int64_t prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p = product_of(call, NULL, NULL);
    if (p.m > PREPACK_ROWS || product_batches(&p) != 1) return 0;
    return ht_tiles(p.n, NR) * NR * ht_tiles(p.k, KC) * KC * (int64_t)sizeof(uint16_t);
}

static ht_status prepack_make(const ht_launch *launch)
{
    product p = product_of_launch(launch);
    block c = extent_of(&p, BF16_DOT_AVX512_ROWS, launch->threads);
    int64_t columns = c.columns;
    c.p = p;
    c.prepacked = launch->prepacked;
    for (c.column = 0; c.column < p.n; c.column += columns) {
        c.columns = ht_min_i64(columns, p.n - c.column);
        c.slivers = ht_tiles(c.columns, NR);
        c.b = prepacked_at(&c, c.column);
        pack(&c, false, true, launch->pool);
    }
    return HT_OK;
}

static const ht_prepack prepack = {1u << 1, prepack_bytes, HT_RUN(prepack_make)};

static const char *can(const ht_call *call)
{
    const char *reason = product_can(call);
    if (reason) return reason;
    if (call->in[0]->dtype != HT_BF16 || call->in[1]->dtype != HT_BF16) return "an input is not bf16";
    product p = product_of(call, NULL, NULL);
    if (p.m < (p.b.down == 1 ? FEWEST_ROWS_TURNED : FEWEST_ROWS)) return "too few rows to pack for";
    return (double)p.m * (double)p.n * (double)p.k < FEWEST_PRODUCTS ? "too small to pack" : NULL;
}

/* ---- the rows ---- */

static ht_status amx_run(const ht_launch *launch)
{
    run(launch, ht_bf16_dot_amx, BF16_DOT_AMX_ROWS);
    return HT_OK;
}

static int64_t amx_workspace(const ht_call *call, const ht_target *target)
{
    return workspace(call, BF16_DOT_AMX_ROWS, target->threads);
}

static const char *amx_can(const ht_call *call, const ht_target *target)
{
    return ht_target_has(target, HT_FEATURE_AMX_BF16) ? can(call) : "needs amx_bf16";
}

static ht_status avx512_run(const ht_launch *launch)
{
    run(launch, ht_bf16_dot_avx512, BF16_DOT_AVX512_ROWS);
    return HT_OK;
}

static int64_t avx512_workspace(const ht_call *call, const ht_target *target)
{
    return workspace(call, BF16_DOT_AVX512_ROWS, target->threads);
}

static const char *avx512_can(const ht_call *call, const ht_target *target)
{
    return ht_target_has(target, HT_FEATURE_AVX512_BF16) ? can(call) : "needs avx512_bf16";
}

extern const ht_kernel ht_kernel_matmul_amx, ht_kernel_matmul_avx512_bf16;
const ht_kernel ht_kernel_matmul_amx = {
    .size = sizeof(ht_kernel),
    .op = "matmul",
    .name = "matmul_bf16_dot.bf16.amx",
    .isa = HT_ISA_AVX512,
    .can = amx_can,
    .workspace = amx_workspace,
    .run = HT_RUN(amx_run),
    .takes = ht_epilogue_takes,
    .prepack = &prepack,
};
const ht_kernel ht_kernel_matmul_avx512_bf16 = {
    .size = sizeof(ht_kernel),
    .op = "matmul",
    .name = "matmul_bf16_dot.bf16.avx512",
    .isa = HT_ISA_AVX512,
    .can = avx512_can,
    .workspace = avx512_workspace,
    .run = HT_RUN(avx512_run),
    .takes = ht_epilogue_takes,
    .prepack = &prepack,
};
