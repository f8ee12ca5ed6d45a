/* The driver of products of codes: y = finish(a · w), a: rows of u8 or i8, w: i8, packed here or beforehand.
 * a's rows are read where they lie if the inner loop reads u8, and are copied for ragged ends, for i8 and for wider elements.
 * Numerics: sums of i32, exact, so neither tiles nor blocks of K matter for the bits.
 * Threads: packing by slivers, then tiles of y, which take all of K.  Traffic: w once per row of tiles, a once per column of
 * tiles, y once.
 * Where the inner loop leaves the vector units free, a block becomes results while the next one is multiplied. */
#include "kernel/gemm/int8_gemm.h"

#include <string.h>

enum {
    NR = INT8_NR,
    TILE_N = INT8_TILE_N,
    HIGHEST_TILE = 128, /* rows */
    HIGHEST_BLOCK = INT8_AMX_ROWS,
    COPY_PITCH = INT8_KC + INT8_AMX_STEP, /* elements between copied rows: they do not meet in one set of L1 */
    MOST_PACKED = 4 << 20,                /* bytes of w at a time that is packed in every run */
    L1_WAY_BYTES = 4096,                  /* addresses so far apart meet in one set of L1 */
};

enum { A, W, A_SCALE, W_SCALE, A_ZERO, BIAS, Y_SCALE, Y_ZERO, INPUTS };

typedef int8_product product;

static int64_t tiles_of(int64_t size, int64_t tile)
{
    return (size + tile - 1) / tile;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t padded(const int8_kernel *kernel, int64_t k)
{
    return tiles_of(k, kernel->step) * kernel->step;
}

/* ---- packing ---- */

int64_t ht_int8_packed_bytes(const int8_kernel *kernel, int64_t columns, int64_t k)
{
    return tiles_of(columns, NR) * NR * ((int64_t)sizeof(int32_t) + padded(kernel, k));
}

void ht_int8_set_columns(product *p, void *packed, int64_t column, int64_t columns)
{
    p->column = column;
    p->n_packed = columns;
    p->column_sums = packed;
    p->b = (int8_t *)packed + tiles_of(columns, NR) * NR * (int64_t)sizeof(int32_t);
}

static int64_t weight_offset(const int8_weights *w, int64_t k)
{
    int64_t tap = k / w->channels;
    return k % w->channels * w->down + tap % w->columns * w->right + tap / w->columns * w->below;
}

static void pack_sliver(void *arg, int64_t sliver)
{
    const product *p = arg;
    int64_t first = sliver * NR, columns = smaller(NR, p->n_packed - first), group = p->kernel->group;
    int64_t depth = padded(p->kernel, p->k);
    const int8_t *from = p->w.data + (p->column + first) * p->w.across;
    int8_t *to = p->b + first * depth;
    int32_t sums[NR] = {0};
    for (int64_t k = 0; k < depth; k += group) {
        int8_t line[NR * 4] = {0};
        for (int64_t i = 0; i < group && k + i < p->k; i++) {
            const int8_t *codes = from + weight_offset(&p->w, k + i);
            for (int64_t j = 0; j < columns; j++) {
                line[j * group + i] = codes[j * p->w.across];
                sums[j] += codes[j * p->w.across];
            }
        }
        memcpy(to + k * NR, line, (size_t)(NR * group));
    }
    memcpy(p->column_sums + first, sums, sizeof sums);
}

void ht_int8_pack(product *p, ht_pool *pool)
{
    ht_parallel(pool, tiles_of(p->n_packed, NR), pack_sliver, p);
}

/* ---- multiplying ---- */

/* A tile of y under way. */
typedef struct tile {
    const product *p;
    int64_t row, rows, column, columns; /* column: of those that are packed */
    int64_t depth;                      /* of K at a time */
    float row_scale, column_scale[TILE_N];
    int32_t row_zero[HIGHEST_TILE];
    int8_results pending; /* the block that waits to be finished; no rows: none does */
    int64_t share;        /* rows of it at a time */
    _Alignas(64) int32_t sums[HIGHEST_TILE * TILE_N];
    _Alignas(64) int16_t copy[HIGHEST_BLOCK * COPY_PITCH];
} tile;

static void finish_some(void *arg)
{
    tile *t = arg;
    int8_results *r = &t->pending;
    int64_t rows = smaller(t->share, r->rows);
    if (rows == 0) return;
    t->p->kernel->finish(r, rows);
    r->rows -= rows;
    r->sums += rows * TILE_N;
    r->row_scale += rows * r->scale_step;
    r->row_zero += rows;
    r->y += rows * r->y_pitch;
    if (r->residual) r->residual += rows * r->residual_pitch;
}

static void finish_rest(tile *t)
{
    t->share = HIGHEST_TILE;
    finish_some(t);
}

/* The block of rows from `row` of the tile on, sliver `j`: to y, or as f32 where it lies for the calls that follow. */
static int8_results results_of(const tile *t, int32_t *sums, int64_t row, int64_t rows, int64_t j)
{
    const product *p = t->p;
    int64_t column = t->column + j * NR, bytes = (int64_t)ht_dtype_bytes(p->dtype);
    int64_t element = p->y_first + (t->row + row) * p->y_pitch + p->column + column;
    int64_t residual_bytes = p->residual ? (int64_t)ht_dtype_bytes(p->residual_dtype) : 0;
    bool kept = p->epilogue != NULL;
    return (int8_results){
        .sums = sums,
        .rows = rows,
        .columns = smaller(NR, t->columns - j * NR),
        .row_scale = p->row_scales ? p->a_scale + t->row + row : &t->row_scale,
        .scale_step = p->row_scales,
        .row_zero = t->row_zero + row,
        .rows_alike = !p->row_scales && !p->row_zeros,
        .column_sum = p->column_sums + column,
        .column_scale = t->column_scale + j * NR,
        .bias = p->bias ? p->bias + p->column + column : NULL,
        .residual = p->residual ? p->residual + element * residual_bytes : NULL,
        .residual_pitch = p->y_pitch * residual_bytes,
        .residual_dtype = p->residual_dtype,
        .residual_scale = p->residual_scale,
        .residual_zero = p->residual_zero,
        .y = kept ? (char *)sums : p->y + element * bytes,
        .y_pitch = kept ? TILE_N * (int64_t)sizeof *sums : p->y_pitch * bytes,
        .dtype = p->dtype,
        .coding = p->coding,
    };
}

/* Rows of a for some steps of k, followed by zeros up to the end of the block, as the inner loop reads them. */
static void copy_rows(const tile *t, void *to, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const product *p = t->p;
    const uint8_t *from = (const uint8_t *)p->a + (t->row + row) * p->a_pitch + k;
    int64_t here = smaller(depth, p->k - k);
    uint8_t flip = p->is_signed ? INT8_CODE_SHIFT : 0; /* adds it, modulo 256 */
    for (int64_t r = 0; r < rows; r++, from += p->a_pitch) {
        if (p->kernel->a_bytes == 1) {
            uint8_t *line = (uint8_t *)to + r * COPY_PITCH;
            for (int64_t i = 0; i < here; i++) line[i] = from[i] ^ flip;
            memset(line + here, 0, (size_t)(depth - here));
        } else {
            int16_t *line = (int16_t *)to + r * COPY_PITCH;
            for (int64_t i = 0; i < here; i++) line[i] = from[i] ^ flip;
            memset(line + here, 0, (size_t)(depth - here) * sizeof *line);
        }
    }
}

static void gather_rows(const tile *t, void *to, int64_t row, int64_t rows, int64_t k, int64_t depth)
{
    const product *p = t->p;
    if (p->kernel->a_bytes == 1) {
        p->gather(p->gather_arg, to, COPY_PITCH, t->row + row, rows, k, depth);
        return;
    }
    uint8_t stage[COPY_PITCH];
    for (int64_t r = 0; r < rows; r++) {
        int16_t *line = (int16_t *)to + r * COPY_PITCH;
        p->gather(p->gather_arg, stage, COPY_PITCH, t->row + row + r, 1, k, depth);
        for (int64_t i = 0; i < depth; i++) line[i] = stage[i];
    }
}

/* Where the inner loop finds these rows. */
static void take_a(tile *t, int8_block *block, int64_t row, int64_t rows, int64_t k)
{
    const product *p = t->p;
    bool fits =
        !p->gather && p->kernel->a_bytes == 1 && !p->is_signed && rows == p->kernel->rows && k + block->depth <= p->k;
    if (fits && (p->kernel->any_pitch || p->a_pitch % L1_WAY_BYTES != 0)) {
        block->a = (const uint8_t *)p->a + (t->row + row) * p->a_pitch + k;
        block->a_pitch = p->a_pitch;
        return;
    }
    (p->gather ? gather_rows : copy_rows)(t, t->copy, row, rows, k, block->depth);
    block->a = t->copy;
    block->a_pitch = COPY_PITCH;
}

/* All slivers of some rows, one block of K. */
static void multiply_strip(tile *t, int64_t row, int64_t k, int32_t *sums)
{
    const product *p = t->p;
    const int8_kernel *kernel = p->kernel;
    int64_t rows = smaller(kernel->rows, t->rows - row), slivers = tiles_of(t->columns, NR);
    int64_t all = padded(kernel, p->k);
    bool last = k + t->depth >= all;
    int8_block block = {.rows = rows,
                        .depth = smaller(t->depth, all - k),
                        .first = k == 0,
                        .aside = kernel->overlaps ? finish_some : NULL,
                        .aside_arg = t};
    take_a(t, &block, row, rows, k);
    for (int64_t j = 0; j < slivers; j++) {
        block.sums = sums + j * NR;
        block.b = p->b + (t->column + j * NR) * all + k * NR;
        kernel->multiply(&block);
        if (!last) continue;
        finish_rest(t);
        t->pending = results_of(t, block.sums, row, rows, j);
        t->share = tiles_of(rows, block.depth / INT8_AMX_STEP > 0 ? block.depth / INT8_AMX_STEP : 1);
        if (!kernel->overlaps) finish_rest(t);
    }
    if (!last || !p->epilogue) return;
    finish_rest(t);
    ht_epilogue_block(p->epilogue, p->y_first + (t->row + row) * p->y_pitch + p->column + t->column, p->y_pitch, rows,
                      t->columns, (char *)sums, TILE_N * (int64_t)sizeof *sums);
}

static void begin_tile(tile *t, const product *p, int64_t number)
{
    int64_t across = tiles_of(p->n_packed, p->tile_n), shift = p->is_signed ? INT8_CODE_SHIFT : 0;
    const int32_t *zero = p->a_zero;
    t->p = p;
    t->row = number / across * p->tile_m;
    t->column = number % across * p->tile_n;
    t->rows = smaller(p->tile_m, p->m - t->row);
    t->columns = smaller(p->tile_n, p->n_packed - t->column);
    int64_t blocks = tiles_of(padded(p->kernel, p->k), INT8_KC);
    t->depth = padded(p->kernel, tiles_of(p->k, blocks ? blocks : 1));
    if (!t->depth) t->depth = p->kernel->step;
    t->row_scale = p->row_scales ? 0 : *p->a_scale;
    t->pending.rows = t->share = 0;
    for (int64_t j = 0; j < t->columns; j++)
        t->column_scale[j] = p->w_scale[p->column_scales ? p->column + t->column + j : 0];
    for (int64_t i = 0; i < t->rows; i++)
        t->row_zero[i] = (int32_t)((uint32_t)(zero ? zero[p->row_zeros ? t->row + i : 0] : 0) + (uint32_t)shift);
}

static void multiply_tile(void *arg, int64_t number)
{
    const product *p = arg;
    const int64_t unit = p->kernel->rows;
    tile t;
    begin_tile(&t, p, number);
    bool whole = t.depth >= p->k; /* then sums need not wait: two strips take turns */
    if (p->kernel->begin) p->kernel->begin();
    for (int64_t k = 0; k == 0 || k < p->k; k += t.depth)
        for (int64_t row = 0; row < t.rows; row += unit)
            multiply_strip(&t, row, k, t.sums + (whole ? row / unit % 2 * unit : row) * TILE_N);
    finish_rest(&t);
    if (p->kernel->end) p->kernel->end();
}

/* The size with which the last thread is done first. A tile costs its blocks; reading a strip of a or a sliver of w costs half
 * a block. */
static void share_out(product *p, int64_t threads)
{
    int64_t unit = p->kernel->rows, least = INT64_MAX, highest = smaller(HIGHEST_TILE / unit, tiles_of(p->m, unit));
    for (int64_t slivers = TILE_N / NR; slivers > 0; slivers--) {
        for (int64_t strips = highest; strips > 0; strips--) {
            int64_t tiles = tiles_of(p->m, strips * unit) * tiles_of(p->n_packed, slivers * NR);
            int64_t cost = tiles_of(tiles, threads) * (2 * slivers * strips + slivers + strips);
            if (cost >= least) continue;
            least = cost;
            p->tile_m = strips * unit;
            p->tile_n = slivers * NR;
        }
    }
}

void ht_int8_multiply(product *p, ht_pool *pool, int threads)
{
    share_out(p, threads > 0 ? threads : 1);
    ht_parallel(pool, tiles_of(p->m, p->tile_m) * tiles_of(p->n_packed, p->tile_n), multiply_tile, p);
}

/* ---- matmul_q ---- */

/* Without pointers when only sizes matter: in and out may be NULL. */
static product product_of(const ht_call *call, const int8_kernel *kernel, const void *const *in, void *const *out)
{
    static const void *const none[INPUTS] = {NULL};
    const ht_type *a = call->in[A], *w = call->in[W];
    bool tb = ht_call_int(call, "tb");
    if (!in) in = none;
    product p = {
        .kernel = kernel,
        .n = w->dim[tb ? 0 : 1],
        .k = w->dim[tb ? 1 : 0],
        .m = 1,
        .a = in[A],
        .a_pitch = a->stride[a->rank - 2],
        .is_signed = a->dtype == HT_I8,
        .w = {.data = in[W], .down = w->stride[tb ? 1 : 0], .across = w->stride[tb ? 0 : 1], .columns = 1},
        .a_scale = in[A_SCALE],
        .w_scale = in[W_SCALE],
        .a_zero = in[A_ZERO],
        .bias = in[BIAS],
        .row_scales = call->in[A_SCALE]->rank > 0,
        .row_zeros = call->n_in > A_ZERO && call->in[A_ZERO] && call->in[A_ZERO]->rank > 0,
        .column_scales = call->in[W_SCALE]->rank > 0,
        .y = out ? out[0] : NULL,
        .dtype = call->out[0]->dtype,
    };
    p.w.channels = p.k ? p.k : 1;
    p.y_pitch = p.n;
    for (int axis = 0; axis < a->rank - 1; axis++) p.m *= a->dim[axis];
    return p;
}

/* All inputs, NULL for what is left out. */
static void take_inputs(const ht_launch *launch, const void *in[INPUTS])
{
    const ht_fused *fused = launch->fused;
    const ht_call *call = fused ? fused->gemm : launch->call;
    for (size_t i = 0; i < INPUTS; i++)
        in[i] = i < call->n_in && call->in[i] ? launch->in[(fused ? (size_t)fused->n_in : 0) + i] : NULL;
}

/* Of w that is packed in every run. */
static int64_t columns_at_once(const product *p)
{
    int64_t most = MOST_PACKED / (padded(p->kernel, p->k) + (int64_t)sizeof(int32_t)) / TILE_N * TILE_N;
    return smaller(p->n, most < TILE_N ? TILE_N : most);
}

void ht_int8_gemm_run(const ht_launch *launch, const int8_kernel *kernel)
{
    const ht_fused *fused = launch->fused;
    const void *in[INPUTS];
    ht_epilogue epilogue;
    take_inputs(launch, in);
    product p = product_of(fused ? fused->gemm : launch->call, kernel, in, launch->out);
    if (p.m == 0 || p.n == 0) return;
    if (ht_dtype_is_code(p.dtype))
        p.coding = ht_coding_of(p.dtype, *(const float *)in[Y_SCALE], in[Y_ZERO] ? *(const int32_t *)in[Y_ZERO] : 0);
    if (fused) ht_epilogue_begin(&epilogue, fused, launch);
    if (fused) p.epilogue = &epilogue;
    int64_t most = launch->prepacked ? p.n : columns_at_once(&p);
    for (int64_t column = 0; column < p.n; column += most) {
        ht_int8_set_columns(&p, launch->prepacked ? launch->prepacked : launch->workspace, column,
                            smaller(most, p.n - column));
        if (!launch->prepacked) ht_int8_pack(&p, launch->pool);
        ht_int8_multiply(&p, launch->pool, launch->threads);
    }
}

int64_t ht_int8_gemm_workspace(const ht_call *call, const int8_kernel *kernel)
{
    product p = product_of(call, kernel, NULL, NULL);
    return ht_int8_packed_bytes(kernel, columns_at_once(&p), p.k);
}

int64_t ht_int8_gemm_prepack_bytes(const ht_call *call, const int8_kernel *kernel)
{
    product p = product_of(call, kernel, NULL, NULL);
    return ht_int8_packed_bytes(kernel, p.n, p.k);
}

void ht_int8_gemm_prepack(const ht_launch *launch, const int8_kernel *kernel)
{
    const void *in[INPUTS];
    take_inputs(launch, in);
    product p = product_of(launch->fused ? launch->fused->gemm : launch->call, kernel, in, launch->out);
    ht_int8_set_columns(&p, launch->prepacked, 0, p.n);
    ht_int8_pack(&p, launch->pool);
}

/* Do the rows of a lie evenly, each without gaps? */
static bool has_even_rows(const ht_type *a)
{
    if (a->dim[a->rank - 1] > 1 && a->stride[a->rank - 1] != 1) return false;
    for (int axis = a->rank - 3; axis >= 0; axis--)
        if (a->dim[axis] > 1 && a->stride[axis] != a->stride[axis + 1] * a->dim[axis + 1]) return false;
    return true;
}

const char *ht_int8_gemm_can(const ht_call *call)
{
    if (!ht_type_contiguous(call->out[0])) return "the result is strided";
    if (!has_even_rows(call->in[A])) return "rows of a are strided";
    for (size_t i = A_SCALE; i < call->n_in; i++)
        if (call->in[i] && !ht_type_contiguous(call->in[i])) return "a scale, a zero point or the bias is strided";
    return NULL;
}
