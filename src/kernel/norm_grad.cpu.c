/* With h = (x-m) s and g = dy scale:  dx = s (g - mean(g) - h mean(g h)),  dscale = Σ_rows dy h,  dshift = Σ_rows dy.
 * layernorm_grad (dy, x, m, s, scale or _);  rmsnorm_grad (dy, x, s, scale or _): m = 0, no mean(g), no dshift.
 * Any float, rows along the last axis, row-major.
 * Numerics: real inside, 16 lanes; dscale and dshift in partial sums per tile of rows, added in order; one rounding.
 * Threads: tiles of rows, no more than 64 so that partial sums stay few; then columns.
 * Traffic: 2 reads (4 from cache), 1 write.  Bound: bandwidth. */
#include "kernel/lanes.h"
#include "op/op.h"

#include <string.h>

enum { CHUNK = 1024, GRAIN = 4096, MAX_TILES = 64, COLUMN_GRAIN = 256 };

typedef struct norm_grad {
    const ht_launch *launch;
    int64_t rows, columns, rows_per_tile;
    bool centred;
    size_t rstd;    /* which input; the scale follows */
    real *partials; /* [tiles, 2, columns]: of dscale, of dshift; NULL: nobody asks */
} norm_grad;

static int64_t rows_per_tile(int64_t rows, int64_t columns)
{
    int64_t few = ht_tiles(rows, MAX_TILES), fill = columns < GRAIN ? GRAIN / (columns + 1) : 1;
    return few > fill ? few : fill;
}

/* g and h of a piece of a row, and dy as real. */
typedef struct piece {
    real g[CHUNK], h[CHUNK], dy_buffer[CHUNK], param[CHUNK];
    const real *dy;
} piece;

static void load_piece(const norm_grad *job, piece *p, int64_t row, int64_t c, int64_t n, real mean, real rstd)
{
    const ht_launch *launch = job->launch;
    const ht_call *call = launch->call;
    int64_t start = row * job->columns + c;
    p->dy = ht_as_real(p->dy_buffer, launch->in[0], call->in[0]->dtype, start, n);
    const real *x = ht_as_real(p->h, launch->in[1], call->in[1]->dtype, start, n);
    for (int64_t i = 0; i < n; i++) p->h[i] = (x[i] - mean) * rstd;
    size_t scale = job->rstd + 1;
    if (scale < call->n_in && launch->in[scale]) {
        const real *w = ht_as_real(p->param, launch->in[scale], call->in[scale]->dtype, c, n);
        for (int64_t i = 0; i < n; i++) p->g[i] = p->dy[i] * w[i];
    } else {
        for (int64_t i = 0; i < n; i++) p->g[i] = p->dy[i];
    }
}

static void add_partials(const norm_grad *job, const piece *p, real *partials, int64_t c, int64_t n)
{
    real *restrict dscale = partials + c, *restrict dshift = partials + job->columns + c;
    for (int64_t i = 0; i < n; i++) dscale[i] += p->dy[i] * p->h[i];
    if (!job->centred) return;
    for (int64_t i = 0; i < n; i++) dshift[i] += p->dy[i];
}

static void grad_row(const norm_grad *job, piece *p, int64_t row, real *partials)
{
    const ht_launch *launch = job->launch;
    const ht_call *call = launch->call;
    real mean = job->centred ? ht_load1(launch->in[2], call->in[2]->dtype, row) : 0;
    real rstd = ht_load1(launch->in[job->rstd], call->in[job->rstd]->dtype, row);
    ht_lanes plain_sum = {{0}}, along_sum = {{0}};
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        load_piece(job, p, row, c, n, mean, rstd);
        ht_lanes_add(&plain_sum, c, p->g, n);
        ht_lanes_add_products(&along_sum, c, p->g, p->h, 0, n);
        if (partials) add_partials(job, p, partials, c, n);
    }
    real plain = job->centred ? ht_lanes_total(&plain_sum) / (real)job->columns : 0;
    real along = ht_lanes_total(&along_sum) / (real)job->columns;
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        if (job->columns > CHUNK) load_piece(job, p, row, c, n, mean, rstd); /* else it is still there */
        for (int64_t i = 0; i < n; i++) p->g[i] = rstd * (p->g[i] - plain - p->h[i] * along);
        ht_save(launch->out[0], call->out[0]->dtype, row * job->columns + c, p->g, n);
    }
}

static void grad_tile(void *arg, int64_t tile)
{
    const norm_grad *job = arg;
    int64_t first = tile * job->rows_per_tile;
    real *partials = job->partials ? job->partials + tile * 2 * job->columns : NULL;
    if (partials) memset(partials, 0, (size_t)(2 * job->columns) * sizeof(real));
    piece p;
    for (int64_t r = first; r < ht_min_i64(job->rows, first + job->rows_per_tile); r++) grad_row(job, &p, r, partials);
}

static void combine_tile(void *arg, int64_t tile)
{
    const norm_grad *job = arg;
    const ht_launch *launch = job->launch;
    int64_t first = tile * COLUMN_GRAIN, n = ht_min_i64(COLUMN_GRAIN, job->columns - first);
    int64_t tiles = ht_tiles(job->rows, job->rows_per_tile);
    real total[COLUMN_GRAIN];
    for (size_t out = 1; out < launch->call->n_out; out++) {
        const real *part = job->partials + (int64_t)(out - 1) * job->columns + first;
        for (int64_t i = 0; i < n; i++) total[i] = 0;
        for (int64_t t = 0; t < tiles; t++)
            for (int64_t i = 0; i < n; i++) total[i] += part[t * 2 * job->columns + i];
        ht_save(launch->out[out], launch->call->out[out]->dtype, first, total, n);
    }
}

static void grad_run(const ht_launch *launch, size_t rstd)
{
    const ht_type *x = launch->call->in[1];
    norm_grad job = {.launch = launch, .centred = rstd == 3, .rstd = rstd};
    job.rows = ht_type_elems(launch->call->in[rstd]);
    job.columns = x->dim[x->rank - 1];
    job.rows_per_tile = rows_per_tile(job.rows, job.columns);
    bool params = ht_type_elems(launch->call->out[1]) > 0;
    if (params) job.partials = launch->workspace;
    ht_parallel(launch->pool, ht_tiles(job.rows, job.rows_per_tile), grad_tile, &job);
    if (params) ht_parallel(launch->pool, ht_tiles(job.columns, COLUMN_GRAIN), combine_tile, &job);
}

static void layernorm_grad_run(const ht_launch *launch)
{
    grad_run(launch, 3);
}

static void rmsnorm_grad_run(const ht_launch *launch)
{
    grad_run(launch, 2);
}

static int64_t grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    int64_t columns = ht_type_elems(call->out[1]);
    if (columns == 0) return 0;
    int64_t rows = ht_type_elems(call->in[1]) / columns, tiles = ht_tiles(rows, rows_per_tile(rows, columns));
    return (tiles ? tiles : 1) * 2 * columns * (int64_t)sizeof(real);
}

static const char *grad_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(layernorm_grad, grad_can, grad_workspace, layernorm_grad_run)
HT_CPU_KERNEL(rmsnorm_grad, grad_can, grad_workspace, rmsnorm_grad_run)
