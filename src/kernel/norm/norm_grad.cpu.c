/* With h = (x-m) s and g = dy scale:  dx = s (g - mean(g) - h mean(g h)),  dscale = Σ_rows dy h,  dshift = Σ_rows dy.
 * layernorm_grad (dy, x, m, s, scale or _, plus or _);  rmsnorm_grad (dy, x, s, scale or _, plus or _): m = 0, no mean(g),
 * no dshift. What is given as plus is added to dx. layernorm_grad_sum: Σ_rows dx as well, of dx as it is stored.
 * Any float, rows along the last axis, row-major.
 * Numerics: real inside, 32 lanes; sums over rows in partial sums per tile of rows, added in order; one rounding.
 * Threads: tiles of rows, no more than 64 so that partial sums stay few; then columns.
 * Traffic: 2 reads (2 more from L1, while rows after it are on their way), 1 write, past the caches where dx is large.
 * Bound: bandwidth. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/lanes.h"
#include "kernel/stream_store.h"
#include "op/op.h"

#include <string.h>

enum { CHUNK = 1024, GRAIN = 4096, MAX_TILES = 64, COLUMN_GRAIN = 256 };

typedef struct norm_grad {
    const ht_launch *launch;
    int64_t rows, columns, rows_per_tile;
    bool centred, stream;
    size_t rstd;    /* which input; the scale follows, then plus */
    int64_t sums;   /* over rows */
    real *partials; /* [tiles, sums, columns]: of dscale, of dshift, of dx */
} norm_grad;

static int64_t rows_per_tile(int64_t rows, int64_t columns)
{
    int64_t few = ht_tiles(rows, MAX_TILES), fill = columns < GRAIN ? GRAIN / (columns + 1) : 1;
    return few > fill ? few : fill;
}

/* A piece of a row as real. */
typedef struct piece {
    real x_buffer[CHUNK], dy_buffer[CHUNK], scale_buffer[CHUNK];
    const real *x, *dy, *scale;
} piece;

static void load_piece(const norm_grad *job, piece *p, int64_t row, int64_t c, int64_t n)
{
    const ht_launch *launch = job->launch;
    const ht_call *call = launch->call;
    int64_t start = row * job->columns + c;
    p->dy = ht_view(p->dy_buffer, launch->in[0], call->in[0]->dtype, start, n);
    p->x = ht_view(p->x_buffer, launch->in[1], call->in[1]->dtype, start, n);
    p->scale = p->scale_buffer;
    size_t scale = job->rstd + 1;
    if (scale < call->n_in && launch->in[scale])
        p->scale = ht_view(p->scale_buffer, launch->in[scale], call->in[scale]->dtype, c, n);
    else
        for (int64_t i = 0; i < n; i++) p->scale_buffer[i] = 1;
}

/* Σ g, Σ g h, and what the piece adds to dscale and dshift, in one sweep. */
static void add_sums(const piece *p, ht_lanes *plain, ht_lanes *along, real *restrict dscale, real *restrict dshift,
                     real mean, real rstd, int64_t n)
{
    vec_unaligned g_sum[HT_LANE_VECTORS], gh_sum[HT_LANE_VECTORS];
    int64_t i = 0;
    memcpy(g_sum, plain->sum, sizeof g_sum);
    memcpy(gh_sum, along->sum, sizeof gh_sum);
    for (; i + HT_LANES <= n; i += HT_LANES) {
        for (int v = 0; v < HT_LANE_VECTORS; v++) {
            vec_unaligned dy = vec_at(p->dy + i, v), h = (vec_at(p->x + i, v) - mean) * rstd;
            vec_unaligned g = dy * vec_at(p->scale + i, v);
            g_sum[v] += g;
            gh_sum[v] += g * h;
            ((vec_unaligned *)(dscale + i))[v] += dy * h;
            ((vec_unaligned *)(dshift + i))[v] += dy;
        }
    }
    memcpy(plain->sum, g_sum, sizeof g_sum);
    memcpy(along->sum, gh_sum, sizeof gh_sum);
    for (int l = 0; i < n; i++, l++) {
        real h = (p->x[i] - mean) * rstd, g = p->dy[i] * p->scale[i];
        plain->sum[l] += g;
        along->sum[l] += g * h;
        dscale[i] += p->dy[i] * h;
        dshift[i] += p->dy[i];
    }
}

/* dx of whole vectors, past the caches. Each turn also fetches what lies `prefetch_distance` elements on. */
static void write_streamed(const piece *p, real *dx, real mean, real rstd, real plain, real slope, int64_t n,
                           int64_t prefetch_distance)
{
    for (int64_t i = 0; i < n; i += VL) {
        __builtin_prefetch(p->x + i + prefetch_distance, 0, 2);
        __builtin_prefetch(p->dy + i + prefetch_distance, 0, 2);
        vec_unaligned g = vec_at(p->dy + i, 0) * vec_at(p->scale + i, 0);
        ht_vector_stream_store(dx + i, (g - plain) * rstd - (vec_at(p->x + i, 0) - mean) * slope);
    }
}

static bool has_plus(const norm_grad *job)
{
    size_t plus = job->rstd + 2;
    return plus < job->launch->call->n_in && job->launch->in[plus];
}

static void add_plus(const norm_grad *job, real *dx, int64_t start, int64_t n)
{
    real buffer[CHUNK];
    size_t plus = job->rstd + 2;
    const real *more = ht_view(buffer, job->launch->in[plus], job->launch->call->in[plus]->dtype, start, n);
    for (int64_t i = 0; i < n; i++) dx[i] += more[i];
}

/* What stands in dx now, to its sums. */
static void add_total(const norm_grad *job, real *restrict sums, int64_t start, int64_t n)
{
    real buffer[CHUNK];
    const real *dx = ht_view(buffer, job->launch->out[0], job->launch->call->out[0]->dtype, start, n);
    for (int64_t i = 0; i < n; i++) sums[i] += dx[i];
}

static void grad_row(const norm_grad *job, piece *p, int64_t row, real *partials)
{
    const ht_launch *launch = job->launch;
    const ht_call *call = launch->call;
    real mean = job->centred ? ht_load1(launch->in[2], call->in[2]->dtype, row) : 0;
    real rstd = ht_load1(launch->in[job->rstd], call->in[job->rstd]->dtype, row), dx[CHUNK];
    ht_lanes plain_sum = {{0}}, along_sum = {{0}};
    int64_t prefetch_distance = job->columns <= CHUNK ? 2 * job->columns : 0; /* into L2: L1 has no space for them */
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c);
        load_piece(job, p, row, c, n);
        add_sums(p, &plain_sum, &along_sum, partials + c, partials + job->columns + c, mean, rstd, n);
    }
    real plain = job->centred ? ht_lanes_total(&plain_sum) / (real)job->columns : 0;
    real slope = ht_lanes_total(&along_sum) / (real)job->columns * rstd * rstd;
    for (int64_t c = 0; c < job->columns; c += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, job->columns - c), start = row * job->columns + c;
        if (job->columns > CHUNK) load_piece(job, p, row, c, n); /* else it is still there */
        if (job->stream) {
            write_streamed(p, (real *)launch->out[0] + start, mean, rstd, plain, slope, n, prefetch_distance);
            continue;
        }
        for (int64_t i = 0; i < n; i++) dx[i] = (p->dy[i] * p->scale[i] - plain) * rstd - (p->x[i] - mean) * slope;
        if (has_plus(job)) add_plus(job, dx, start, n);
        ht_save(launch->out[0], call->out[0]->dtype, start, dx, n);
        if (job->sums > 2) add_total(job, partials + 2 * job->columns + c, start, n);
    }
}

static void grad_tile(void *arg, int64_t tile)
{
    const norm_grad *job = arg;
    int64_t first = tile * job->rows_per_tile;
    int64_t size = job->sums * job->columns;
    real *partials = job->partials + tile * size;
    memset(partials, 0, (size_t)size * sizeof(real));
    piece p;
    for (int64_t r = first; r < ht_min_i64(job->rows, first + job->rows_per_tile); r++) grad_row(job, &p, r, partials);
    if (job->stream) ht_nt_fence();
}

static void combine_tile(void *arg, int64_t tile)
{
    const norm_grad *job = arg;
    const ht_launch *launch = job->launch;
    int64_t first = tile * COLUMN_GRAIN, n = ht_min_i64(COLUMN_GRAIN, job->columns - first);
    int64_t tiles = ht_tiles(job->rows, job->rows_per_tile);
    real total[COLUMN_GRAIN];
    for (size_t out = 1; out < launch->call->n_out; out++) {
        if (ht_type_elems(launch->call->out[out]) == 0) continue;
        const real *part = job->partials + (int64_t)(out - 1) * job->columns + first;
        for (int64_t i = 0; i < n; i++) total[i] = 0;
        for (int64_t t = 0; t < tiles; t++)
            for (int64_t i = 0; i < n; i++) total[i] += part[t * job->sums * job->columns + i];
        ht_save(launch->out[out], launch->call->out[out]->dtype, first, total, n);
    }
}

static int64_t sums_of(const ht_call *call)
{
    return call->n_out > 3 ? 3 : 2;
}

static void grad_run(const ht_launch *launch, size_t rstd)
{
    const ht_type *x = launch->call->in[1];
    norm_grad job = {.launch = launch, .centred = rstd == 3, .rstd = rstd, .sums = sums_of(launch->call)};
    job.rows = ht_type_elems(launch->call->in[rstd]);
    job.columns = x->dim[x->rank - 1];
    job.rows_per_tile = rows_per_tile(job.rows, job.columns);
    job.partials = launch->workspace;
    job.stream = !has_plus(&job) && job.sums == 2 && ht_type_bytes(launch->call->out[0]) >= HT_NT_STORE_BYTES &&
                 ht_rows_can_stream(launch->out[0], launch->call->out[0]->dtype, job.columns);
    ht_parallel(launch->pool, ht_tiles(job.rows, job.rows_per_tile), grad_tile, &job);
    ht_parallel(launch->pool, ht_tiles(job.columns, COLUMN_GRAIN), combine_tile, &job);
}

static ht_status layernorm_grad_run(const ht_launch *launch)
{
    grad_run(launch, 3);
    return HT_OK;
}

static ht_status rmsnorm_grad_run(const ht_launch *launch)
{
    grad_run(launch, 2);
    return HT_OK;
}

static int64_t grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *x = call->in[1];
    int64_t columns = x->dim[x->rank - 1];
    if (columns == 0) return 0;
    int64_t rows = ht_type_elems(x) / columns, tiles = ht_tiles(rows, rows_per_tile(rows, columns));
    return (tiles ? tiles : 1) * sums_of(call) * columns * (int64_t)sizeof(real);
}

static const char *grad_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(layernorm_grad, grad_can, grad_workspace, layernorm_grad_run)
HT_CPU_KERNEL(layernorm_grad_sum, grad_can, grad_workspace, layernorm_grad_run)
HT_CPU_KERNEL(rmsnorm_grad, grad_can, grad_workspace, rmsnorm_grad_run)
