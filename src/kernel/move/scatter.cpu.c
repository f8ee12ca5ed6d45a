/* scatter_add: y = 0, y[o, index[o,k,i], i] += u[o,k,i], k ascending.  embedding_grad: the same with one index per row,
 * y[index[k], i] += u[k,i].  u, y: any float, index i32 or i64, row-major; an index outside is skipped.
 * Numerics: sums in real, one rounding, the order of k.
 * Threads: zeros by runs of memory; then outer index and blocks of columns, which share no sum, however often an index
 * comes; then, where y is not of type real, rounding by runs.
 * Traffic: y is zeroed once, past the caches where it is large; u once, index once per block, the rows of y that are met
 * once more each.  Bound: bandwidth, latency of rows that lie apart. */
#include "kernel/stream_store.h"
#include "op/op.h"

#include <string.h>

enum { WIDE = 64, GRAIN = 8192, RUN = 16384, LOOK_AHEAD = 8 };

typedef struct scatter {
    const ht_launch *launch;
    int64_t outer, count, size, inner; /* u is [outer, count, inner], y is [outer, size, inner] */
    bool by_row;                       /* index is [outer, count] */
    real *sums;                        /* y itself where it is of type real, else workspace */
    int64_t columns, blocks, units_per_tile;
} scatter;

static bool sums_in_place(const ht_call *call)
{
    return call->out[0]->dtype == HT_REAL_DTYPE;
}

static int64_t index_of(const scatter *job, int64_t at)
{
    return ht_load_int(job->launch->in[0], job->launch->call->in[0]->dtype, at);
}

static void add_rows(const scatter *job, int64_t outer, int64_t first, int64_t n)
{
    const ht_type *updates = job->launch->call->in[1];
    real *sums = job->sums + outer * job->size * job->inner + first, buffer[WIDE];
    for (int64_t k = 0; k < job->count; k++) {
        int64_t row = outer * job->count + k;
        const real *u = ht_view(buffer, job->launch->in[1], updates->dtype, row * job->inner + first, n);
        if (job->by_row) {
            int64_t at = index_of(job, row), soon = k + LOOK_AHEAD < job->count ? index_of(job, row + LOOK_AHEAD) : -1;
            if (soon >= 0 && soon < job->size) __builtin_prefetch(sums + soon * job->inner, 1);
            if (at < 0 || at >= job->size) continue;
            real *to = sums + at * job->inner;
            for (int64_t i = 0; i < n; i++) to[i] += u[i];
        } else {
            for (int64_t i = 0; i < n; i++) {
                int64_t at = index_of(job, row * job->inner + first + i);
                if (at >= 0 && at < job->size) sums[at * job->inner + i] += u[i];
            }
        }
    }
}

static int64_t sum_count(const scatter *job)
{
    return job->outer * job->size * job->inner;
}

static void zero_tile(void *arg, int64_t tile)
{
    static const real zeros[1024];
    const scatter *job = arg;
    int64_t from = tile * RUN, to = ht_min_i64(sum_count(job), from + RUN);
    bool streamed = sum_count(job) * (int64_t)sizeof(real) >= HT_NT_STORE_BYTES;
    if (!streamed) memset(job->sums + from, 0, (size_t)(to - from) * sizeof(real));
    for (int64_t at = from; streamed && at < to; at += 1024)
        ht_nt_copy(job->sums + at, zeros, ht_min_i64(1024, to - at) * (int64_t)sizeof(real));
    if (streamed) ht_nt_fence();
}

static void round_tile(void *arg, int64_t tile)
{
    const scatter *job = arg;
    int64_t from = tile * RUN, n = ht_min_i64(RUN, sum_count(job) - from);
    ht_save(job->launch->out[0], job->launch->call->out[0]->dtype, from, job->sums + from, n);
}

static void scatter_tile(void *arg, int64_t tile)
{
    const scatter *job = arg;
    int64_t first = tile * job->units_per_tile, units = job->outer * job->blocks;
    for (int64_t u = first; u < ht_min_i64(units, first + job->units_per_tile); u++)
        add_rows(job, u / job->blocks, u % job->blocks * job->columns,
                 ht_min_i64(job->columns, job->inner - u % job->blocks * job->columns));
}

static void scatter_all(scatter *job)
{
    const ht_launch *launch = job->launch;
    job->sums = sums_in_place(launch->call) ? launch->out[0] : launch->workspace;
    job->columns = job->inner <= WIDE / 2   ? WIDE / 4
                   : job->inner <= 2 * WIDE ? WIDE / 2
                                            : WIDE; /* a few blocks at least */
    job->blocks = ht_tiles(job->inner, job->columns);
    int64_t work = job->count * ht_min_i64(job->inner, job->columns), runs = ht_tiles(sum_count(job), RUN);
    job->units_per_tile = work < GRAIN ? GRAIN / (work + 1) : 1;
    ht_parallel(launch->pool, runs, zero_tile, job);
    ht_parallel(launch->pool, ht_tiles(job->outer * job->blocks, job->units_per_tile), scatter_tile, job);
    if ((void *)job->sums != launch->out[0]) ht_parallel(launch->pool, runs, round_tile, job);
}

static ht_status scatter_add_run(const ht_launch *launch)
{
    const ht_type *updates = launch->call->in[1], *out = launch->call->out[0];
    int axis = ht_call_axis(launch->call, "axis", out->rank);
    if (ht_type_elems(out) == 0) return HT_OK;
    ht_around a = ht_around_axis(out, axis);
    scatter_all(
        &(scatter){.launch = launch, .outer = a.outer, .count = updates->dim[axis], .size = a.size, .inner = a.inner});
    return HT_OK;
}

static ht_status embedding_grad_run(const ht_launch *launch)
{
    const ht_type *index = launch->call->in[0], *out = launch->call->out[0];
    if (ht_type_elems(out) == 0) return HT_OK;
    scatter_all(&(scatter){.launch = launch,
                           .outer = 1,
                           .count = ht_type_elems(index),
                           .size = out->dim[0],
                           .inner = out->dim[1],
                           .by_row = true});
    return HT_OK;
}

static const char *scatter_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

static int64_t scatter_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return sums_in_place(call) ? 0 : ht_type_elems(call->out[0]) * (int64_t)sizeof(real);
}

HT_CPU_KERNEL(scatter_add, scatter_can, scatter_workspace, scatter_add_run)
HT_CPU_KERNEL(embedding_grad, scatter_can, scatter_workspace, embedding_grad_run)
