/* y[i] = x[i]/(1-p) where the element's number (op/rules.h: ht_random_index) of the stream is at least p, else 0.  x, y:
 * any float.
 * Numerics: real, one rounding; the comparison is exact.  Threads and neighbours: kernel/elementwise/fused.h.  Traffic: one read,
 * one write.  Bound: compute (Philox). */
#include "kernel/cpu.h"
#include "op/op.h"

enum { CHUNK = 256 };

typedef struct masking {
    ht_stream stream;
    ht_random_index index;
    double threshold; /* in units of the words */
    real scale;
} masking;

_Static_assert(sizeof(masking) <= HT_SPAN_CONSTANTS, "constants of a launch");

/* Factors of n elements from number `index` of the stream: 0 or the scale. */
static void draw_run(const masking *job, uint64_t index, real *factor, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        ht_philox block = ht_stream_block(&job->stream, index / 4);
        for (uint64_t lane = index % 4; lane < 4 && done < n; lane++, index++, done++)
            factor[done] = (double)block.word[lane] + 0.5 >= job->threshold ? job->scale : 0;
    }
}

/* Factors of n elements from element `first` of the result, in runs of numbers that follow each other. */
static void draw_factors(const masking *job, uint64_t first, real *factor, int64_t n)
{
    const ht_random_index *index = &job->index;
    for (int64_t done = 0, run; done < n; done += run) {
        uint64_t i = first + (uint64_t)done, left = index->block - i % index->block;
        run = index->skip && left < (uint64_t)(n - done) ? (int64_t)left : n - done;
        draw_run(job, ht_random_number(index, i), factor + done, run);
    }
}

static void dropout_span(const ht_span_args *s)
{
    const masking *job = s->constants;
    real x[CHUNK], factor[CHUNK];
    for (int64_t at = 0; at < s->n; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, s->n - at);
        draw_factors(job, (uint64_t)(s->first + at), factor, n);
        ht_load(x, s->in[0], s->call->in[0]->dtype, at, n);
        /* Not a product alone: a dropped infinity is 0. */
        for (int64_t i = 0; i < n; i++) x[i] = factor[i] != 0 ? x[i] * factor[i] : 0;
        ht_save(s->out[0], s->call->out[0]->dtype, at, x, n);
    }
}

static void dropout_begin(const ht_span_args *whole, void *constants)
{
    const ht_call *call = whole->call;
    double p = ht_call_float(call, "p");
    const int64_t *seed = whole->in[1], *step = whole->in[2], *sample = whole->in[3];
    masking job = {
        .stream = {(uint64_t)*seed, (uint64_t)*step, ht_hash_text(ht_call_text(call, "site"))},
        .index = ht_random_indices(call, *sample),
        .threshold = p * 0x1p32,
        .scale = (real)(1 / (1 - p)),
    };
    memcpy(constants, &job, sizeof job);
}

static const char *dropout_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided_results(call);
}

HT_CPU_ELEMENTWISE_KERNEL(dropout, dropout_can, dropout_begin, dropout_span)
