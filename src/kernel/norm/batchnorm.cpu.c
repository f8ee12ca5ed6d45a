/* batchnorm_stats: m, v and scale/√(v+eps).  batchnorm: y = (x-m[c]) scale[c]/√(v[c]+eps) + shift[c], m and v of each channel c of x [N,C,S] (v divided by N S).
 * batchnorm_grad: with h = (x-m)/√(v+eps) and n = N S:  dshift = Σ dy,  dscale = Σ dy h,
 * dx = scale/√(v+eps) (dy - dshift/n - h dscale/n); with shift, dy is 0 where the norm's result is not above 0.
 * Any float, row-major.
 * Numerics: real inside; the mean first, then squares about it; 16 lanes, fixed order; one rounding.
 * Threads: blocks of channels, each whole, so that no sum is shared.  Traffic: batchnorm 3 reads, 1 write;
 * batchnorm_grad 4 reads, 1 write.  Bound: bandwidth. */
#include "kernel/lanes.h"
#include "op/op.h"

enum { CHUNK = 1024, BLOCK = 16 };

typedef struct channels {
    const ht_launch *launch;
    int64_t samples, count, size, per_tile; /* N, C, S; channels in a tile */
    real n, eps;
} channels;

/* The channels of one tile: operands of the formulas above, and two sums. */
typedef struct several {
    int64_t first, count;
    real mean[BLOCK], factor[BLOCK], shift[BLOCK]; /* factor: rstd scale */
    ht_lanes a[BLOCK], b[BLOCK];
} several;

static const void *input(const channels *job, size_t i)
{
    return i < job->launch->call->n_in ? job->launch->in[i] : NULL;
}

static real param(const channels *job, size_t i, int64_t c, real otherwise)
{
    return input(job, i) ? ht_load1(job->launch->in[i], job->launch->call->in[i]->dtype, c) : otherwise;
}

typedef void (*visit_fn)(const channels *job, several *k, int64_t c, int64_t at, int64_t start, int64_t n);

/* Every piece of the tile's channels in the order of memory: channel first + c, elements start .. start+n-1 of the
 * tensor, which are `at` and following of the channel. */
static void visit(const channels *job, several *k, visit_fn fn)
{
    for (int64_t s = 0; s < job->samples; s++)
        for (int64_t c = 0; c < k->count; c++)
            for (int64_t i = 0; i < job->size; i += CHUNK)
                fn(job, k, c, s * job->size + i, (s * job->count + k->first + c) * job->size + i,
                   ht_min_i64(CHUNK, job->size - i));
}

static const real *piece(const channels *job, real *buffer, size_t operand, int64_t start, int64_t n)
{
    return ht_view(buffer, job->launch->in[operand], job->launch->call->in[operand]->dtype, start, n);
}

static void add_values(const channels *job, several *k, int64_t c, int64_t at, int64_t start, int64_t n)
{
    real buffer[CHUNK];
    ht_lanes_add(&k->a[c], at, piece(job, buffer, 0, start, n), n);
}

static void add_squares(const channels *job, several *k, int64_t c, int64_t at, int64_t start, int64_t n)
{
    real buffer[CHUNK];
    ht_lanes_add_squares(&k->b[c], at, piece(job, buffer, 0, start, n), k->mean[c], n);
}

static void write_values(const channels *job, several *k, int64_t c, int64_t at, int64_t start, int64_t n)
{
    (void)at;
    real buffer[CHUNK], y[CHUNK], mean = k->mean[c], factor = k->factor[c], shift = k->shift[c];
    const real *x = piece(job, buffer, 0, start, n);
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean) * factor + shift;
    ht_save(job->launch->out[0], job->launch->call->out[0]->dtype, start, y, n);
}

static several several_of(const channels *job, int64_t tile)
{
    several k = {.first = tile * job->per_tile};
    k.count = ht_min_i64(job->per_tile, job->count - k.first);
    return k;
}

/* Mean and variance of the tile's channels, into this result and the one behind it, and their factors. */
static void measure(const channels *job, several *k, size_t result)
{
    const ht_launch *launch = job->launch;
    visit(job, k, add_values);
    for (int64_t c = 0; c < k->count; c++) k->mean[c] = ht_lanes_total(&k->a[c]) / job->n;
    visit(job, k, add_squares);
    for (int64_t c = 0; c < k->count; c++) {
        real variance = ht_lanes_total(&k->b[c]) / job->n;
        k->factor[c] = param(job, 1, k->first + c, 1) / fn_sqrt(variance + job->eps);
        ht_save1(launch->out[result], launch->call->out[result]->dtype, k->first + c, k->mean[c]);
        ht_save1(launch->out[result + 1], launch->call->out[result + 1]->dtype, k->first + c, variance);
    }
}

static void batchnorm_stats_tile(void *arg, int64_t tile)
{
    const channels *job = arg;
    several k = several_of(job, tile);
    measure(job, &k, 0);
    for (int64_t c = 0; c < k.count; c++)
        ht_save1(job->launch->out[2], job->launch->call->out[2]->dtype, k.first + c, k.factor[c]);
}

static void batchnorm_tile(void *arg, int64_t tile)
{
    const channels *job = arg;
    several k = several_of(job, tile);
    measure(job, &k, 1);
    for (int64_t c = 0; c < k.count; c++) k.shift[c] = param(job, 2, k.first + c, 0);
    visit(job, &k, write_values);
}

/* dy, or of a norm with a relu behind it what that lets through, in `buffer`. */
static const real *slopes(const channels *job, const several *k, int64_t c, const real *x, int64_t start, int64_t n,
                          real *buffer)
{
    const real *dy = piece(job, buffer, 0, start, n);
    if (!input(job, 5)) return dy;
    ht_dtype dtype = job->launch->call->out[0]->dtype;
    real deviation = fn_sqrt(param(job, 3, k->first + c, 0) + job->eps), shift = param(job, 5, k->first + c, 0);
    real factor = param(job, 4, k->first + c, 1) / deviation;
    for (int64_t i = 0; i < n; i++) {
        _Alignas(double) char rounded[sizeof(double)]; /* as it was stored */
        ht_save1(rounded, dtype, 0, (x[i] - k->mean[c]) * factor + shift);
        buffer[i] = ht_load1(rounded, dtype, 0) <= 0 ? 0 : dy[i];
    }
    return buffer;
}

static void add_gradients(const channels *job, several *k, int64_t c, int64_t at, int64_t start, int64_t n)
{
    real dy_buffer[CHUNK], x_buffer[CHUNK];
    const real *x = piece(job, x_buffer, 1, start, n), *dy = slopes(job, k, c, x, start, n, dy_buffer);
    ht_lanes_add(&k->a[c], at, dy, n);
    ht_lanes_add_products(&k->b[c], at, dy, x, k->mean[c], n);
}

/* By now a[c].sum[0] is dshift/n and b[c].sum[0] is dscale rstd/n. */
static void write_gradients(const channels *job, several *k, int64_t c, int64_t at, int64_t start, int64_t n)
{
    (void)at;
    real dy_buffer[CHUNK], x_buffer[CHUNK], dx[CHUNK];
    real mean = k->mean[c], factor = k->factor[c], plain = k->a[c].sum[0], along = k->b[c].sum[0];
    const real *x = piece(job, x_buffer, 1, start, n), *dy = slopes(job, k, c, x, start, n, dy_buffer);
    for (int64_t i = 0; i < n; i++) dx[i] = factor * (dy[i] - plain - (x[i] - mean) * along);
    ht_save(job->launch->out[0], job->launch->call->out[0]->dtype, start, dx, n);
}

static void batchnorm_grad_tile(void *arg, int64_t tile)
{
    const channels *job = arg;
    const ht_launch *launch = job->launch;
    several k = several_of(job, tile);
    for (int64_t c = 0; c < k.count; c++) k.mean[c] = param(job, 2, k.first + c, 0);
    visit(job, &k, add_gradients);
    for (int64_t c = 0; c < k.count; c++) {
        real rstd = 1 / fn_sqrt(param(job, 3, k.first + c, 0) + job->eps);
        real dshift = ht_lanes_total(&k.a[c]), dscale = ht_lanes_total(&k.b[c]) * rstd;
        ht_save1(launch->out[1], launch->call->out[1]->dtype, k.first + c, dscale);
        ht_save1(launch->out[2], launch->call->out[2]->dtype, k.first + c, dshift);
        k.factor[c] = param(job, 4, k.first + c, 1) * rstd;
        k.a[c].sum[0] = dshift / job->n;
        k.b[c].sum[0] = dscale * rstd / job->n;
    }
    visit(job, &k, write_gradients);
}

static void channels_run(const ht_launch *launch, const ht_type *x, ht_tile_fn fn)
{
    if (x->dim[1] == 0) return;
    channels job = {.launch = launch, .samples = x->dim[0], .count = x->dim[1], .size = 1};
    for (int i = 2; i < x->rank; i++) job.size *= x->dim[i];
    /* Short runs of several channels lie side by side in a cache line. */
    job.per_tile = job.size < BLOCK ? BLOCK / job.size : 1;
    job.n = (real)(job.samples * job.size);
    job.eps = (real)ht_call_float(launch->call, "eps");
    ht_parallel(launch->pool, ht_tiles(job.count, job.per_tile), fn, &job);
}

static ht_status batchnorm_run(const ht_launch *launch)
{
    channels_run(launch, launch->call->in[0], batchnorm_tile);
    return HT_OK;
}

static ht_status batchnorm_stats_run(const ht_launch *launch)
{
    channels_run(launch, launch->call->in[0], batchnorm_stats_tile);
    return HT_OK;
}

static ht_status batchnorm_grad_run(const ht_launch *launch)
{
    channels_run(launch, launch->call->in[1], batchnorm_grad_tile);
    return HT_OK;
}

static const char *batchnorm_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(batchnorm, batchnorm_can, NULL, batchnorm_run)
HT_CPU_KERNEL(batchnorm_stats, batchnorm_can, NULL, batchnorm_stats_run)
HT_CPU_KERNEL(batchnorm_grad, batchnorm_can, NULL, batchnorm_grad_run)
