/* y[j] = sum over k of a[k] b[k,j]: matmul with a single row or column, as in decoding.
 * Numerics: real accumulation; K in blocks of DEPTH, their sums added in order; lanes of k where b lies along K.
 * Threads: blocks of K, or of columns where b lies along K: each reads its own stretch of b from end to end.
 * Traffic: b once.  Bound: bandwidth. */
#include "kernel/product.h"

enum {
    LINE = 1024,   /* columns at a time: sums stay in L1 */
    STREAMS = 8,   /* rows of b at a time: sums are read and written less often than b */
    DOTS = 16,     /* columns of a tile where b lies along K */
    LANES = 32,    /* partial sums of a dot product */
    BLOCKS = 64,   /* of K at most */
    SHORTEST = 64, /* rows of a block of K at least */
};

typedef struct line {
    product p;
    int64_t blocks, depth; /* of K */
    real *partial;         /* by block: n sums */
} line;

static int64_t block_count(const product *p)
{
    int64_t blocks = p->k / SHORTEST;
    return blocks < 1 ? 1 : ht_min_i64(blocks, BLOCKS);
}

/* ---- b lies along K: one dot product per column ---- */

static real dot(const real *restrict a, const real *restrict b, int64_t n)
{
    real lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] = multiply_add(a[i + l], b[i + l], lane[l]);
    for (int l = 0; i + l < n; l++) lane[l] = multiply_add(a[i + l], b[i + l], lane[l]);
    for (int width = LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

static void dots_tile(void *arg, int64_t tile)
{
    const line *job = arg;
    const product *p = &job->p;
    real a_stage[LINE], b_stage[LINE], sum[DOTS] = {0};
    int64_t first = tile * DOTS, columns = ht_min_i64(DOTS, p->n - first);
    for (int64_t k = 0; k < p->k; k += LINE) {
        int64_t n = ht_min_i64(LINE, p->k - k);
        ht_load_strided(a_stage, p->a.data, p->a.dtype, k * p->a.across, p->a.across, n);
        for (int64_t j = 0; j < columns; j++)
            sum[j] += dot(a_stage, ht_view(b_stage, p->b.data, p->b.dtype, k + (first + j) * p->b.across, n), n);
    }
    ht_save(p->y, p->dtype, first, sum, columns);
}

/* ---- b lies along its columns, or anyhow ---- */

static const real *line_of(const matrix *b, real *stage, int64_t k, int64_t column, int64_t n)
{
    int64_t at = k * b->down + column * b->across;
    if (b->across == 1) return ht_view(stage, b->data, b->dtype, at, n);
    ht_load_strided(stage, b->data, b->dtype, at, b->across, n);
    return stage;
}

static inline void add_lines(real *restrict sum, const real *a, const real *const *b, int streams, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        real t = sum[i];
        for (int s = 0; s < streams; s++) t = multiply_add(a[s], b[s][i], t);
        sum[i] = t;
    }
}

static void lines_tile(void *arg, int64_t block)
{
    const line *job = arg;
    const product *p = &job->p;
    int64_t first = block * job->depth, end = ht_min_i64(p->k, first + job->depth);
    real *sum = job->partial + block * p->n, stage[STREAMS][LINE], a[STREAMS];
    const real *b[STREAMS];
    memset(sum, 0, (size_t)p->n * sizeof *sum);
    for (int64_t k = first; k < end; k += STREAMS) {
        int streams = (int)ht_min_i64(STREAMS, end - k);
        ht_load_strided(a, p->a.data, p->a.dtype, k * p->a.across, p->a.across, streams);
        for (int64_t j = 0; j < p->n; j += LINE) {
            int64_t n = ht_min_i64(LINE, p->n - j);
            for (int s = 0; s < streams; s++) b[s] = line_of(&p->b, stage[s], k + s, j, n);
            if (streams == STREAMS)
                add_lines(sum + j, a, b, STREAMS, n);
            else
                add_lines(sum + j, a, b, streams, n);
        }
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

static void matmul_line_run(const ht_launch *launch)
{
    line job = {.p = product_of(launch->call, launch->in, launch->out), .partial = launch->workspace};
    const product *p = &job.p;
    if (p->b.down == 1) {
        ht_parallel(launch->pool, ht_tiles(p->n, DOTS), dots_tile, &job);
        return;
    }
    job.depth = ht_tiles(ht_tiles(p->k, block_count(p)), STREAMS) * STREAMS;
    job.blocks = ht_tiles(p->k, job.depth);
    ht_parallel(launch->pool, job.blocks, lines_tile, &job);
    ht_parallel(launch->pool, ht_tiles(p->n, LINE), fold_tile, &job);
}

static int64_t matmul_line_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    product p = product_of(call, NULL, NULL);
    return block_count(&p) * p.n * (int64_t)sizeof(real);
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
