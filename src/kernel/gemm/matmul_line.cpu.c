/* y[j] = sum over k of a[k] b[k,j]: matmul with a single row or column, as in decoding.
 * Half numbers are converted in registers, on their way from memory to the product.
 * Numerics: real accumulation. Where b lies along K, lanes of k over all of K; else K in blocks of rows, their sums added
 * in order. FMA.
 * Threads: columns where b lies along K, else blocks of K: each reads its own span of b from end to end.
 * Traffic: b once.  Bound: bandwidth. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/gemm/product_cpu.h"
#include "kernel/lanes.h"

enum {
    LINE = 2048,     /* columns at a time where numbers pass through an array: it stays in L1 */
    LONG = 16384,    /* and where b's rows are read in place: the processor prefetches, in long runs best */
    STREAMS = 8,     /* rows of b at a time: sums are read and written less often than b */
    FEW_STREAMS = 4, /* of wide elements: more runs at once slow each other down */
    DOTS = 64,       /* columns of a tile where b lies along K, at most: a long span of memory */
    TILES = 32,      /* with fewer than these, tiles get narrower */
    TOGETHER = 8,    /* of which so many at once */
    BLOCKS = 32,     /* of K at most */
    SHORTEST = 64,   /* rows of a block of K at least */
    AHEAD = 1024,    /* bytes: reads are asked for so early, since the processor's own foresight ends with a page */
};

typedef struct line {
    product p;
    const real *a;         /* contiguous */
    int64_t columns;       /* of a tile where b lies along K */
    int64_t blocks, depth; /* of K */
    real *partial;         /* by block: n sums */
} line;

static int64_t block_count(const product *p)
{
    int64_t blocks = p->k / SHORTEST;
    return blocks < 1 ? 1 : ht_min_i64(blocks, BLOCKS);
}

/* ---- elements to vectors ---- */

typedef float floats __attribute__((vector_size(VL * 4)));
typedef float floats_unaligned __attribute__((vector_size(VL * 4), aligned(4), may_alias));

static inline int64_t bytes_of(ht_dtype dtype)
{
    return dtype == HT_F32 ? 4 : dtype == HT_F16 || dtype == HT_BF16 ? 2 : (int64_t)ht_dtype_bytes(dtype);
}

/* VL elements from byte `from` on; dtype is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) vec_unaligned vector_of(const char *from, ht_dtype dtype)
{
    if (dtype == HT_F32) return __builtin_convertvector(*(const floats_unaligned *)from, vec_unaligned);
    float single[VL];
    floats x;
    if (dtype == HT_BF16) {
        ht_bf16_line_to_f32(single, (const ht_bf16 *)from, VL);
    } else if (dtype == HT_F16) {
        ht_f16_line_to_f32(single, (const ht_f16 *)from, VL);
    } else {
        vec_unaligned own;
        ht_load((real *)&own, from, dtype, 0, VL);
        return own;
    }
    memcpy(&x, single, sizeof x);
    return __builtin_convertvector(x, vec_unaligned);
}

/* ---- b lies along K: one dot product per column ---- */

/* `count` columns from b on, `step` bytes apart, share the loads of a. */
static inline __attribute__((always_inline)) void dots(real *total, const real *a, const char *b, int64_t step,
                                                       ht_dtype dtype, int count, int64_t n)
{
    const int64_t bytes = bytes_of(dtype);
    vec_unaligned sum[TOGETHER][HT_LANE_VECTORS] = {{{0}}};
    int64_t i = 0;
    for (; i + HT_LANES <= n; i += HT_LANES) {
#pragma GCC unroll 8
        for (int c = 0; c < count; c++) {
            const char *from = b + c * step + i * bytes;
            for (int at = 0; at < HT_LANES * bytes; at += 64) __builtin_prefetch(from + AHEAD + at);
#pragma GCC unroll 8
            for (int v = 0; v < HT_LANE_VECTORS; v++)
                sum[c][v] += vec_at(a + i, v) * vector_of(from + v * VL * bytes, dtype);
        }
    }
    for (int c = 0; c < count; c++) {
        ht_lanes lanes;
        real rest[HT_LANES] = {0};
        memcpy(lanes.sum, sum[c], sizeof lanes.sum);
        ht_load(rest, b + c * step, dtype, i, n - i);
        for (int l = 0; l < n - i; l++) lanes.sum[l] = multiply_add(a[i + l], rest[l], lanes.sum[l]);
        total[c] = ht_lanes_total(&lanes);
    }
}

static inline __attribute__((always_inline)) void dots_typed(real *total, const real *a, const char *b, int64_t step,
                                                             ht_dtype dtype, int64_t columns, int64_t n)
{
    int64_t j = 0;
    for (; j + TOGETHER <= columns; j += TOGETHER) dots(total + j, a, b + j * step, step, dtype, TOGETHER, n);
    for (; j < columns; j++) dots(total + j, a, b + j * step, step, dtype, 1, n);
}

static void dots_tile(void *arg, int64_t tile)
{
    const line *job = arg;
    const product *p = &job->p;
    real sum[DOTS];
    int64_t first = tile * job->columns, columns = ht_min_i64(job->columns, p->n - first);
    int64_t step = p->b.across * bytes_of(p->b.dtype);
    const char *b = (const char *)p->b.data + first * step;
    switch (p->b.dtype) {
    case HT_F32: dots_typed(sum, job->a, b, step, HT_F32, columns, p->k); break;
    case HT_BF16: dots_typed(sum, job->a, b, step, HT_BF16, columns, p->k); break;
    case HT_F16: dots_typed(sum, job->a, b, step, HT_F16, columns, p->k); break;
    default: dots_typed(sum, job->a, b, step, p->b.dtype, columns, p->k); break;
    }
    ht_save(p->y, p->dtype, first, sum, columns);
}

/* ---- b lies along its columns, or anyhow ---- */

/* sum[0..n-1] += a[s] b[s][0..n-1] for all streams; stream s starts `step` bytes after the one before. */
static inline __attribute__((always_inline)) void add_lines(real *restrict sum, const real *a, const char *b,
                                                            int64_t step, ht_dtype dtype, int streams, int64_t n)
{
    const int64_t bytes = bytes_of(dtype);
    int64_t i = 0;
    for (; i + VL <= n; i += VL) {
        vec_unaligned *at = (vec_unaligned *)(sum + i), t = *at;
        for (int s = 0; s < streams; s++) t += a[s] * vector_of(b + s * step + i * bytes, dtype);
        *at = t;
    }
    for (; i < n; i++)
        for (int s = 0; s < streams; s++) sum[i] = multiply_add(a[s], ht_load1(b + s * step, dtype, i), sum[i]);
}

static inline __attribute__((always_inline)) void add_typed(real *restrict sum, const real *a, const char *b,
                                                            int64_t step, ht_dtype dtype, int streams, int64_t n)
{
    if (streams == STREAMS)
        add_lines(sum, a, b, step, dtype, STREAMS, n);
    else if (streams == FEW_STREAMS)
        add_lines(sum, a, b, step, dtype, FEW_STREAMS, n);
    else
        add_lines(sum, a, b, step, dtype, streams, n);
}

static void add_rows(const product *p, real *restrict sum, const real *a, int64_t k, int64_t column, int streams,
                     int64_t n)
{
    const matrix *b = &p->b;
    int64_t bytes = bytes_of(b->dtype), at = k * b->down + column * b->across;
    const char *from = (const char *)b->data + at * bytes;
    if (b->across != 1) {
        real stage[STREAMS][LINE];
        for (int s = 0; s < streams; s++) ht_load_strided(stage[s], b->data, b->dtype, at + s * b->down, b->across, n);
        add_typed(sum, a, (const char *)stage, sizeof stage[0], HT_REAL_DTYPE, streams, n);
        return;
    }
    switch (b->dtype) {
    case HT_F32: add_typed(sum, a, from, b->down * bytes, HT_F32, streams, n); break;
    case HT_BF16: add_typed(sum, a, from, b->down * bytes, HT_BF16, streams, n); break;
    case HT_F16: add_typed(sum, a, from, b->down * bytes, HT_F16, streams, n); break;
    default: add_typed(sum, a, from, b->down * bytes, b->dtype, streams, n); break;
    }
}

static void direct_tile(void *arg, int64_t block)
{
    const line *job = arg;
    const product *p = &job->p;
    int64_t first = block * job->depth, end = ht_min_i64(p->k, first + job->depth);
    real *sum = job->partial + block * p->n;
    int64_t wide = p->b.across == 1 ? LONG : LINE, most = bytes_of(p->b.dtype) < 4 ? STREAMS : FEW_STREAMS;
    memset(sum, 0, (size_t)p->n * sizeof *sum);
    for (int64_t k = first; k < end; k += most) {
        int streams = (int)ht_min_i64(most, end - k);
        for (int64_t j = 0; j < p->n; j += wide)
            add_rows(p, sum + j, job->a + k, k, j, streams, ht_min_i64(wide, p->n - j));
    }
}

static void fold_tile(void *arg, int64_t tile)
{
    const line *job = arg;
    const product *p = &job->p;
    int64_t first = tile * LINE, n = ht_min_i64(LINE, p->n - first);
    real sum[LINE];
    memcpy(sum, job->partial + first, (size_t)n * sizeof *sum);
    for (int64_t block = 1; block < job->blocks; block++) {
        const real *more = job->partial + block * p->n + first;
        for (int64_t i = 0; i < n; i++) sum[i] += more[i];
    }
    ht_save(p->y, p->dtype, first, sum, n);
}

static ht_status matmul_line_run(const ht_launch *launch)
{
    line job = {.p = product_of(launch->call, launch->in, launch->out), .partial = launch->workspace};
    const product *p = &job.p;
    real *a = job.partial + block_count(p) * p->n;
    ht_load_strided(a, p->a.data, p->a.dtype, 0, p->a.across, p->k);
    job.a = a;
    if (p->b.down == 1) {
        job.columns = ht_min_i64(DOTS, ht_tiles(p->n, TILES * TOGETHER) * TOGETHER);
        ht_parallel(launch->pool, ht_tiles(p->n, job.columns), dots_tile, &job);
        return HT_OK;
    }
    job.depth = ht_tiles(ht_tiles(p->k, block_count(p)), STREAMS) * STREAMS;
    job.blocks = ht_tiles(p->k, job.depth);
    ht_parallel(launch->pool, job.blocks, direct_tile, &job);
    ht_parallel(launch->pool, ht_tiles(p->n, LINE), fold_tile, &job);
    return HT_OK;
}

static int64_t matmul_line_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p = product_of(call, NULL, NULL);
    return (block_count(&p) * p.n + p.k) * (int64_t)sizeof(real);
}

static const char *matmul_line_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = product_can(call);
    if (reason) return reason;
    product p = product_of(call, NULL, NULL);
    if (p.m != 1 || product_batches(&p) != 1) return "more than one row";
    return p.n == 0 || p.k == 0 ? "nothing to multiply" : NULL;
}

HT_CPU_KERNEL_NAMED(matmul_line, matmul, matmul_line_can, matmul_line_workspace, matmul_line_run)
