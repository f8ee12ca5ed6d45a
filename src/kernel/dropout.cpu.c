/* y[i] = x[i]/(1-p) where number first + i of the stream is at least p, else 0.  x, y: any float, row-major.
 * Numerics: real, one rounding; the comparison is exact.  Threads: tiles of elements.  Traffic: one read, one write.
 * Bound: compute (Philox). */
#include "kernel/cpu.h"
#include "op/op.h"

enum { GRAIN = 8192, CHUNK = 1024 };

typedef struct masking {
    const ht_launch *launch;
    ht_stream stream;
    uint64_t first;
    double threshold; /* in units of the words */
    real scale;
    int64_t elems;
} masking;

/* Factors of n elements from number `index` of the stream: 0 or the scale. */
static void draw_factors(const masking *job, uint64_t index, real *factor, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        ht_philox block = ht_stream_block(&job->stream, index / 4);
        for (uint64_t lane = index % 4; lane < 4 && done < n; lane++, index++, done++)
            factor[done] = (double)block.word[lane] + 0.5 >= job->threshold ? job->scale : 0;
    }
}

static void dropout_tile(void *arg, int64_t tile)
{
    const masking *job = arg;
    const ht_call *call = job->launch->call;
    real x[CHUNK], factor[CHUNK];
    int64_t end = ht_min_i64(job->elems, (tile + 1) * GRAIN);
    for (int64_t at = tile * GRAIN; at < end; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, end - at);
        draw_factors(job, job->first + (uint64_t)at, factor, n);
        ht_load(x, job->launch->in[0], call->in[0]->dtype, at, n);
        /* Not a product alone: a dropped infinity is 0. */
        for (int64_t i = 0; i < n; i++) x[i] = factor[i] != 0 ? x[i] * factor[i] : 0;
        ht_save(job->launch->out[0], call->out[0]->dtype, at, x, n);
    }
}

static void dropout_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    double p = ht_call_float(call, "p");
    const int64_t *seed = launch->in[1], *step = launch->in[2], *sample = launch->in[3];
    masking job = {
        .launch = launch,
        .stream = {(uint64_t)*seed, (uint64_t)*step, ht_hash_text(ht_call_text(call, "site"))},
        .first = ht_random_first(call->out[0], *sample),
        .threshold = p * 0x1p32,
        .scale = (real)(1 / (1 - p)),
        .elems = ht_type_elems(call->out[0]),
    };
    ht_parallel(launch->pool, ht_tiles(job.elems, GRAIN), dropout_tile, &job);
}

static const char *dropout_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(dropout, dropout_can, NULL, dropout_run)
