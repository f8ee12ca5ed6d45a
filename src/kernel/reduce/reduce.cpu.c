/* y = sum, mean, maximum or √(sum of squares) of x over any axes.  x, y: any float, row-major.
 * Numerics: every x is folded into double accumulators, in a fixed order; one rounding to real at the end, one to y's
 * type. The maximum is exact, and NaN if any x is.
 * Threads: outputs, and blocks of each reduction; partial results of blocks wait in the workspace and are folded in
 * order.  Traffic: 1 read.  Bound: bandwidth.
 * Element-wise calls before it (kernel/elementwise/fused.h) are run for each piece of x that is folded, in the same order.
 * A run of reduced elements is folded as if it were rows of LANES columns, so both cases are one vectorised loop. */
#include "kernel/reduce/reduce.h"
#include "kernel/cpu.h"

enum {
    BLOCK = 4096,   /* elements of a tile, about */
    MIN_ROWS = 64,  /* but at least these many rows of columns, for each costs a partial result per column */
    COLUMNS = 1024, /* of a tile, at most */
    FEW_COLUMNS = 256,
    TILES = 16,   /* enough for a few threads */
    CHUNK = 1024, /* elements converted or made at a time */
    LANES = 32,
    SHORT_PIECE = 128, /* elements for which it does not pay to call others */
};

typedef enum fold_kind { FOLD_SUM, FOLD_SQUARES, FOLD_MAX } fold_kind;

typedef struct reduction {
    const ht_launch *launch;
    const ht_call *call;
    void *out;
    const ht_epilogue *before; /* the calls that make x; NULL: it lies in memory */
    ht_fused_tile *tile;       /* for these, of this thread */
    ht_reduce_shape shape;
    fold_kind kind;
    bool mean;
    int64_t block;        /* positions of the reduction in a block */
    int64_t blocks;       /* per output */
    int64_t columns;      /* of a tile */
    int64_t column_tiles; /* of the run, where it is kept */
    int64_t kept_grain;   /* outer kept positions in a tile */
} reduction;

static reduction plan_of(const ht_call *call, fold_kind kind)
{
    reduction job = {.call = call, .shape = ht_reduce_shape_of(call), .kind = kind, .block = BLOCK, .column_tiles = 1};
    int64_t width = 1;
    if (!job.shape.run_reduced) {
        width = ht_min_i64(job.shape.run, COLUMNS);
        job.block = width > BLOCK / MIN_ROWS ? MIN_ROWS : BLOCK / (width ? width : 1);
    }
    job.blocks = job.shape.length > job.block ? ht_tiles(job.shape.length, job.block) : 1;
    /* Narrower tiles where there are few: columns do not meet, so the bits stay. */
    job.columns = COLUMNS;
    int64_t others = job.blocks * job.shape.kept.count;
    while (job.columns > FEW_COLUMNS && others * ht_tiles(job.shape.run, job.columns) < TILES) job.columns /= 2;
    if (!job.shape.run_reduced) job.column_tiles = ht_tiles(job.shape.run, job.columns);
    job.kept_grain = BLOCK / (1 + width * ht_min_i64(job.shape.length, job.block));
    if (job.kept_grain < 1) job.kept_grain = 1;
    return job;
}

static inline double fold_start(fold_kind kind)
{
    return kind == FOLD_MAX ? -INFINITY : 0;
}

static inline double larger(double a, double b)
{
    return ((b > a) | (b != b)) ? b : a; /* NaN wins */
}

static inline void fold(fold_kind kind, double *restrict sum, const real *restrict x, int64_t n)
{
    if (kind == FOLD_SUM)
        for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i];
    else if (kind == FOLD_SQUARES)
        for (int64_t i = 0; i < n; i++) sum[i] += (double)x[i] * (double)x[i];
    else
        for (int64_t i = 0; i < n; i++) sum[i] = larger(sum[i], (double)x[i]);
}

/* Folds partial results of b into those of a. */
static inline void join(fold_kind kind, double *restrict a, const double *restrict b, int64_t n)
{
    if (kind == FOLD_MAX)
        for (int64_t i = 0; i < n; i++) a[i] = larger(a[i], b[i]);
    else
        for (int64_t i = 0; i < n; i++) a[i] += b[i];
}

static void finish(const reduction *job, int64_t output, const double *value, int64_t n)
{
    real y[COLUMNS];
    for (int64_t i = 0; i < n; i++) {
        if (job->mean)
            y[i] = (real)(value[i] / (double)job->shape.length);
        else
            y[i] = (real)(job->kind == FOLD_SQUARES ? sqrt(value[i]) : value[i]);
    }
    ht_save(job->out, job->call->out[0]->dtype, output, y, n);
}

/* A block's results for n neighbouring outputs. */
static void deliver(const reduction *job, int64_t block, int64_t output, const double *value, int64_t n)
{
    double *partial = job->launch->workspace;
    if (job->blocks == 1)
        finish(job, output, value, n);
    else
        memcpy(partial + block * job->shape.outputs + output, value, (size_t)n * sizeof *value);
}

/* n elements of x, at most CHUNK; the buffer has space for them. */
static inline const real *take(const reduction *job, real *buffer, int64_t start, int64_t n)
{
    ht_dtype dtype = job->call->in[0]->dtype;
    if (!job->before) return ht_view(buffer, job->launch->in[0], dtype, start, n);
    return ht_view(buffer, ht_fused_piece(job->before, job->tile, start, n), dtype, 0, n);
}

static void fold_run(const reduction *job, int64_t kept, int64_t block)
{
    const ht_reduce_shape *s = &job->shape;
    int64_t base = ht_reduce_offset(&s->kept, kept);
    int64_t at = block * job->block, end = ht_min_i64(s->length, at + job->block);
    double lane[LANES];
    for (int i = 0; i < LANES; i++) lane[i] = fold_start(job->kind);
    while (at < end) {
        real buffer[CHUNK];
        int64_t inside = at % s->run, n = ht_min_i64(CHUNK, ht_min_i64(s->run - inside, end - at)), i = 0;
        const real *x = take(job, buffer, base + ht_reduce_offset(&s->reduced, at / s->run) + inside, n);
        for (; i + LANES <= n; i += LANES) fold(job->kind, lane, x + i, LANES);
        fold(job->kind, lane, x + i, n - i);
        at += n;
    }
    for (int width = LANES / 2; width; width /= 2) join(job->kind, lane, lane + width, width);
    deliver(job, block, kept, lane, 1);
}

static void fold_columns(const reduction *job, int64_t kept, int64_t column, int64_t block)
{
    const ht_reduce_shape *s = &job->shape;
    int64_t columns = ht_min_i64(job->columns, s->run - column), base = ht_reduce_offset(&s->kept, kept) + column;
    int64_t row = block * job->block, end = ht_min_i64(s->length, row + job->block);
    /* Rows of the innermost reduced axis follow each other: narrow ones are converted several at a time. */
    int64_t together = columns < s->run ? 1 : CHUNK / columns;
    int64_t axis_rows = s->reduced.rank ? s->reduced.size[s->reduced.rank - 1] : 1;
    double sum[COLUMNS];
    for (int64_t i = 0; i < columns; i++) sum[i] = fold_start(job->kind);
    while (row < end) {
        real buffer[CHUNK];
        int64_t rows = ht_min_i64(together, ht_min_i64(axis_rows - row % axis_rows, end - row));
        const real *x = take(job, buffer, base + ht_reduce_offset(&s->reduced, row), rows * columns);
        for (int64_t r = 0; r < rows; r++) fold(job->kind, sum, x + r * columns, columns);
        row += rows;
    }
    deliver(job, block, kept * s->run + column, sum, columns);
}

static void reduce_tile(void *arg, int64_t tile)
{
    const reduction *job = arg;
    int64_t block = tile % job->blocks, column = tile / job->blocks % job->column_tiles * job->columns;
    int64_t kept = tile / job->blocks / job->column_tiles * job->kept_grain;
    for (int64_t i = kept; i < ht_min_i64(job->shape.kept.count, kept + job->kept_grain); i++) {
        if (job->shape.run_reduced)
            fold_run(job, i, block);
        else
            fold_columns(job, i, column, block);
    }
}

static void reduce_fused_tile(void *arg, int64_t tile)
{
    ht_fused_tile buffers;
    reduction job = *(const reduction *)arg;
    job.tile = &buffers;
    ht_fused_open(job.before, &buffers);
    reduce_tile(&job, tile);
    ht_nt_fence();
}

static void join_tile(void *arg, int64_t tile)
{
    const reduction *job = arg;
    const double *partial = job->launch->workspace;
    int64_t output = tile * COLUMNS, n = ht_min_i64(COLUMNS, job->shape.outputs - output);
    double sum[COLUMNS];
    memcpy(sum, partial + output, (size_t)n * sizeof *sum);
    for (int64_t block = 1; block < job->blocks; block++)
        join(job->kind, sum, partial + block * job->shape.outputs + output, n);
    finish(job, output, sum, n);
}

static reduction begin(const ht_launch *launch, fold_kind kind, bool mean, ht_epilogue *before)
{
    const ht_fused *fused = launch->fused;
    reduction job = plan_of(fused ? fused->fold : launch->call, kind);
    job.launch = launch;
    job.out = launch->out[fused ? fused->n_out : 0];
    job.mean = mean;
    if (!fused) return job;
    ht_epilogue_begin(before, fused, launch);
    job.before = before;
    return job;
}

static void reduce_run(const ht_launch *launch, fold_kind kind, bool mean)
{
    ht_epilogue before;
    reduction job = begin(launch, kind, mean, &before);
    if (job.shape.outputs == 0) return;
    ht_parallel(launch->pool, ht_tiles(job.shape.kept.count, job.kept_grain) * job.column_tiles * job.blocks,
                job.before ? reduce_fused_tile : reduce_tile, &job);
    if (job.blocks > 1) ht_parallel(launch->pool, ht_tiles(job.shape.outputs, COLUMNS), join_tile, &job);
}

static void reduce_rows(const ht_launch *launch, fold_kind kind, bool mean, int64_t from, int64_t to)
{
    ht_epilogue before;
    ht_fused_tile buffers;
    reduction job = begin(launch, kind, mean, &before);
    job.tile = &buffers;
    if (job.before) ht_fused_open(job.before, &buffers);
    for (int64_t row = from; row < to; row++) fold_run(&job, row, 0);
    ht_nt_fence();
}

static int64_t reduce_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    reduction job = plan_of(call, FOLD_SUM);
    return job.blocks > 1 ? job.blocks * job.shape.outputs * (int64_t)sizeof(double) : 0;
}

static const char *reduce_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target)
{
    (void)target;
    if (!fusion->before) return "a reduction has no epilogue";
    ht_reduce_shape s = ht_reduce_shape_of(call);
    int64_t rows = s.run_reduced || !s.reduced.rank ? 1 : s.reduced.size[s.reduced.rank - 1];
    bool pays = ht_type_elems(call->in[0]) > 0 && s.run * ht_min_i64(rows, SHORT_PIECE) >= SHORT_PIECE;
    return pays ? NULL : "the pieces that it folds are too short";
}

static int64_t rows_of(const ht_call *call)
{
    reduction job = plan_of(call, FOLD_SUM);
    bool by_rows = job.shape.run_reduced && !job.shape.reduced.rank && job.blocks == 1 && job.shape.run > 1;
    return by_rows ? job.shape.outputs : 0;
}

static const char *reduce_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    if (!ht_dtype_is_float(call->in[0]->dtype)) return "x is not floating point";
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

#define REDUCTION(op, kind, mean)                                                                                      \
    static ht_status op##_run(const ht_launch *launch)                                                                 \
    {                                                                                                                  \
        reduce_run(launch, kind, mean);                                                                                \
        return HT_OK;                                                                                                  \
    }                                                                                                                  \
    static void op##_rows(const ht_launch *launch, int64_t from, int64_t to)                                           \
    {                                                                                                                  \
        reduce_rows(launch, kind, mean, from, to);                                                                     \
    }                                                                                                                  \
    static const ht_reduce_rows op##_reduce_rows = {rows_of, HT_RUN(op##_rows)};                                       \
    HT_CPU_FOLD_KERNEL(op, reduce_can, reduce_workspace, reduce_takes, &op##_reduce_rows, op##_run)

REDUCTION(sum, FOLD_SUM, false)
REDUCTION(mean, FOLD_SUM, true)
REDUCTION(reduce_max, FOLD_MAX, false)
REDUCTION(norm, FOLD_SQUARES, false)
