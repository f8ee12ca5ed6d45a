/* matmul of bf16 matrices by dot products of pairs, with AMX or AVX512_BF16: products large enough that packing pays,
 * one matrix of a batch after the other.
 * Numerics: f32 accumulation over k in order, a pair at a time, one rounding; subnormal inputs and sums count as zero,
 * as these instructions have it.
 * Threads: packing by stripes, then tiles of y, which take all of K.  Traffic: a and b once, y once.  Bound: FLOPs. */
#include "kernel/gemm/bf16_dot.h"
#include "kernel/gemm/product.h"
#include "kernel/simd.h"

enum {
    STEP = BF16_DOT_STEP,
    NR = BF16_DOT_NR,
    KC = BF16_DOT_KC,
    TILE_N = BF16_DOT_TILE_N,
    HIGHEST_TILE = 128,     /* rows */
    MOST_ELEMS = 1 << 22,   /* of packed b at a time */
    MOST_ROWS = 2016,       /* of packed a at a time, about */
    MOST_A_ELEMS = 1 << 25, /* of those rows: with a K of tens of thousands they are fewer */
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
    int64_t unit;                /* rows that multiply takes at a time */
    const ht_epilogue *epilogue; /* of the calls that follow; NULL: none */
    int64_t first;               /* element of all of y that this matrix begins with */
    int64_t row, rows, column, columns;
    int64_t tile_m, a_tiles, slivers, steps;
    uint16_t *a;         /* by tile of rows, then block of K: tile_m × PITCH each */
    uint16_t *b;         /* by block of K, then sliver: KC × NR each */
    uint16_t *prepacked; /* b of all blocks of columns, one after the other; NULL: packed here */
} block;

static uint16_t *a_at(const block *c, int64_t tile, int64_t step)
{
    return c->a + (tile * c->steps + step) * c->tile_m * BF16_DOT_PITCH;
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

/* Rows of a that are stored by columns: two columns at a time, so that each store is a pair. */
static void pack_a_turned(const matrix *a, const uint16_t *from, uint16_t *to, int64_t rows, int64_t depth)
{
    for (int64_t k = 0; k < depth; k += 2) {
        const uint16_t *even = from + k * a->across, *odd = k + 1 < depth ? even + a->across : NULL;
        uint32_t line[HIGHEST_TILE];
        for (int64_t r = 0; r < rows; r++) line[r] = even[r];
        for (int64_t r = 0; odd && r < rows; r++) line[r] |= (uint32_t)odd[r] << 16;
        for (int64_t r = 0; r < rows; r++) memcpy(to + r * BF16_DOT_PITCH + k, &line[r], sizeof line[r]);
    }
}

/* One tile's rows of one block of K. */
static void pack_a(const block *c, uint16_t *to, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const matrix *a = &c->p.a;
    const uint16_t *from = (const uint16_t *)a->data + row * a->down + k * a->across;
    int64_t all = ht_tiles(rows, c->unit) * c->unit;
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
        for (int64_t r = 0; r < rows; r++)
            for (int64_t i = 0; i < depth; i++) to[r * BF16_DOT_PITCH + i] = from[r * a->down + i * a->across];
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
static void pack_b_bf16(const matrix *b, const uint16_t *from, uint16_t *to, int64_t k, int64_t depth, int64_t columns)
{
    for (; k < depth; k += 2) {
        const uint16_t *even = from + k * b->down, *odd = k + 1 < depth ? even + b->down : NULL;
        uint32_t line[NR];
        if (b->across == 1) {
            for (int64_t j = 0; j < columns; j++) line[j] = even[j];
            for (int64_t j = 0; odd && j < columns; j++) line[j] |= (uint32_t)odd[j] << 16;
        } else {
            for (int64_t j = 0; j < columns; j++)
                line[j] = even[j * b->across] | (odd ? (uint32_t)odd[j * b->across] << 16 : 0);
        }
        memcpy(to + k * NR, line, (size_t)columns * sizeof *line);
    }
}

/* One sliver of one block of K; columns beyond the matrix are zero. */
static void pack_b(const block *c, uint16_t *to, int64_t k, int64_t depth, int64_t column, int64_t columns)
{
    const matrix *b = &c->p.b;
    const uint16_t *from = (const uint16_t *)b->data + k * b->down + column * b->across;
    int64_t filled = columns < NR ? 0 : depth / 2 * 2;
    memset(to + filled * NR, 0, (size_t)((padded(depth) - filled) * NR) * sizeof *to);
    if (b->down != 1 || b->across == 1) {
        pack_b_bf16(b, from, to, 0, depth, columns);
        return;
    }
    for (int64_t j = 0; j < columns; j += VL) {
        int64_t wide = ht_min_i64(VL, columns - j);
        int64_t done = wide == VL ? pack_b_turned(b, from + j * b->across, to + 2 * j, depth) : 0;
        pack_b_bf16(b, from + j * b->across, to + 2 * j, done, depth, wide);
    }
}

/* Stripes: first those of a (a tile of rows and a block of K), then those of b (a block of K and a sliver). */
static void pack_stripe(void *arg, int64_t stripe)
{
    const block *c = arg;
    int64_t a_stripes = c->a_tiles * c->steps, which = stripe < a_stripes ? stripe : stripe - a_stripes;
    int64_t step = which % c->steps, k = step * KC, depth = ht_min_i64(KC, c->p.k - k), index = which / c->steps;
    if (stripe < a_stripes) {
        int64_t row = index * c->tile_m;
        pack_a(c, a_at(c, index, step), c->row + row, ht_min_i64(c->tile_m, c->rows - row), k, depth);
    } else {
        int64_t column = index * NR;
        pack_b(c, b_at(c, step, index), k, depth, c->column + column, ht_min_i64(NR, c->columns - column));
    }
}

/* ---- multiplying ---- */

static void multiply_tile(void *arg, int64_t tile)
{
    const block *c = arg;
    float local[HIGHEST_TILE * TILE_N] __attribute__((aligned(64)));
    int64_t across = ht_tiles(c->columns, TILE_N), at = tile / across, row = at * c->tile_m;
    int64_t column = tile % across * TILE_N, columns = ht_min_i64(TILE_N, c->columns - column);
    int64_t rows = ht_min_i64(c->tile_m, c->rows - row), whole = ht_tiles(rows, c->unit) * c->unit;
    int64_t y_at = (c->row + row) * c->p.n + c->column + column;
    for (int64_t step = 0; step < c->steps; step++) {
        int64_t depth = padded(ht_min_i64(KC, c->p.k - step * KC));
        for (int64_t j = 0; j < columns; j += NR) {
            c->multiply(local + j, a_at(c, at, step), b_at(c, step, (column + j) / NR), whole, depth, step == 0);
            if (step + 1 < c->steps || c->epilogue) continue;
            for (int64_t r = 0; r < rows; r++)
                ht_save(c->p.y, c->p.dtype, y_at + r * c->p.n + j, local + r * TILE_N + j, ht_min_i64(NR, columns - j));
        }
    }
    /* What follows works on long lines. */
    if (c->epilogue)
        ht_epilogue_block(c->epilogue, c->first + y_at, c->p.n, rows, columns, (char *)local, TILE_N * sizeof *local);
}

/* ---- the whole product ---- */

/* Rows of a tile with which the last of many threads is done first. A tile costs its rows, and reading slivers of b as
 * if it had half a unit more. */
static int64_t shared_height(int64_t rows, int64_t across, int64_t unit, int64_t threads)
{
    int64_t least = INT64_MAX, height = unit;
    for (int64_t units = HIGHEST_TILE / unit; units > 0; units--) {
        int64_t cost = ht_tiles(ht_tiles(rows, units * unit) * across, threads) * (2 * units + 1);
        if (cost >= least) continue;
        least = cost;
        height = units * unit;
    }
    return height;
}

/* The largest block, its tiles and its packed operands, from sizes and the number of threads. Only tiles follow
 * from the latter: the bits do not. */
static block extent_of(const product *p, int64_t unit, int64_t threads)
{
    block e = {.unit = unit, .steps = ht_tiles(p->k, KC)};
    int64_t widest = MOST_ELEMS / (e.steps * KC) / TILE_N * TILE_N;
    e.columns = ht_min_i64(ht_tiles(p->n, NR) * NR, widest < TILE_N ? TILE_N : widest);
    int64_t most = ht_min_i64(MOST_ROWS, MOST_A_ELEMS / (e.steps * BF16_DOT_PITCH)) / unit * unit;
    e.rows = ht_min_i64(p->m, most < unit ? unit : most);
    int64_t highest = HIGHEST_TILE / unit * unit, down = ht_tiles(e.rows, highest),
            across = ht_tiles(e.columns, TILE_N);
    do e.tile_m = ht_tiles(ht_tiles(e.rows, down), unit) * unit;
    while (down++ * across < FEW_TILES && e.tile_m > 2 * unit);
    if (threads > FEW_THREADS) e.tile_m = shared_height(e.rows, across, unit, threads);
    e.a_tiles = ht_tiles(e.rows, e.tile_m);
    e.slivers = ht_tiles(e.columns, NR);
    return e;
}

static int64_t a_elems(const block *e)
{
    return e->a_tiles * e->steps * e->tile_m * BF16_DOT_PITCH;
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
            c.a_tiles = ht_tiles(c.rows, c.tile_m);
            c.slivers = ht_tiles(c.columns, NR);
            if (c.prepacked) c.b = prepacked_at(&c, column);
            /* b is packed once for all blocks of rows. */
            ht_parallel(pool, (c.a_tiles + (row == 0 && !c.prepacked ? c.slivers : 0)) * c.steps, pack_stripe, &c);
            ht_parallel(pool, c.a_tiles * ht_tiles(c.columns, TILE_N), multiply_tile, &c);
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
    c.a_tiles = 0;
    for (c.column = 0; c.column < p.n; c.column += columns) {
        c.columns = ht_min_i64(columns, p.n - c.column);
        c.slivers = ht_tiles(c.columns, NR);
        c.b = prepacked_at(&c, c.column);
        ht_parallel(launch->pool, c.slivers * c.steps, pack_stripe, &c);
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
