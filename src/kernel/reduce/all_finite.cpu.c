/* y = no x is infinite or NaN.  x: any float, row-major; y: bool.
 * Numerics: exact.  Threads: blocks of x, whose answers wait in the workspace.  Traffic: 1 read.  Bound: bandwidth. */
#include "kernel/cpu.h"

#include <float.h>

enum { BLOCK = 16384, CHUNK = 1024 };

typedef struct finite_job {
    const ht_launch *launch;
    int64_t elems;
} finite_job;

static void finite_tile(void *arg, int64_t tile)
{
    const finite_job *job = arg;
    const real largest = sizeof(real) == sizeof(float) ? (real)FLT_MAX : (real)DBL_MAX;
    int64_t end = ht_min_i64(job->elems, (tile + 1) * BLOCK);
    unsigned finite = 1;
    for (int64_t at = tile * BLOCK; at < end; at += CHUNK) {
        real x[CHUNK];
        int64_t count = ht_min_i64(CHUNK, end - at);
        ht_load(x, job->launch->in[0], job->launch->call->in[0]->dtype, at, count);
        for (int64_t i = 0; i < count; i++) finite &= (x[i] <= largest) & (x[i] >= -largest);
    }
    ((uint8_t *)job->launch->workspace)[tile] = (uint8_t)finite;
}

static ht_status all_finite_run(const ht_launch *launch)
{
    finite_job job = {launch, ht_type_elems(launch->call->in[0])};
    int64_t tiles = ht_tiles(job.elems, BLOCK);
    const uint8_t *answer = launch->workspace;
    uint8_t finite = 1;
    ht_parallel(launch->pool, tiles, finite_tile, &job);
    for (int64_t i = 0; i < tiles; i++) finite &= answer[i];
    *(uint8_t *)launch->out[0] = finite;
    return HT_OK;
}

static int64_t all_finite_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_tiles(ht_type_elems(call->in[0]), BLOCK);
}

static const char *all_finite_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(all_finite, all_finite_can, all_finite_workspace, all_finite_run)
