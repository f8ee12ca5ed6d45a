/* y[i] = x[i] rounded to the neighbour below or above in size, above where number first + i of the stream is less than what x[i]
 * is beyond the one below, in steps.  x: any float.  y: f16, bf16.
 * Numerics: f64, exact; the comparison is exact.  Threads and neighbours: kernel/elementwise/fused.h.  Traffic: one read, one write.
 * Bound: compute (Philox). */
#include <string.h>

#include "kernel/cpu.h"
#include "op/op.h"

enum { CHUNK = 256 };

typedef struct rounding {
    ht_stream stream;
    int64_t first;      /* number of the stream */
    int digits, lowest; /* of the result: bits of a significand, exponent of the smallest normal number */
    double largest;
} rounding;

_Static_assert(sizeof(rounding) <= HT_SPAN_CONSTANTS, "constants of a launch");

/* 2^exponent, of a normal number. */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

static double round_one(const rounding *job, double x, uint32_t word)
{
    uint64_t bits;
    if (!(fabs(x) <= job->largest)) return x;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52 & 2047) - 1023;
    if (exponent < job->lowest) exponent = job->lowest;
    double steps = fabs(x) * power_of_two(job->digits - 1 - exponent), below = (double)(int64_t)steps;
    if (((double)word + 0.5) * 0x1p-32 < steps - below) below += 1;
    return copysign(below * power_of_two(exponent - job->digits + 1), x);
}

static void round_span(const ht_span_args *s)
{
    const rounding *job = s->constants;
    real x[CHUNK];
    for (int64_t at = 0; at < s->n; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, s->n - at);
        ht_load(x, s->in[0], s->call->in[0]->dtype, at, n);
        uint64_t index = (uint64_t)(job->first + s->first + at);
        for (int64_t done = 0; done < n;) {
            ht_philox block = ht_stream_block(&job->stream, index / 4);
            for (uint64_t lane = index % 4; lane < 4 && done < n; lane++, index++, done++)
                x[done] = (real)round_one(job, (double)x[done], block.word[lane]);
        }
        ht_save(s->out[0], s->call->out[0]->dtype, at, x, n);
    }
}

static void round_begin(const ht_span_args *whole, void *constants)
{
    const ht_call *call = whole->call;
    const int64_t *seed = whole->in[1], *step = whole->in[2];
    bool f16 = call->out[0]->dtype == HT_F16;
    rounding job = {
        .stream = {(uint64_t)*seed, (uint64_t)*step, ht_hash_text(ht_call_text(call, "site"))},
        .first = ht_call_int(call, "first"),
        .digits = f16 ? 11 : 8,
        .lowest = f16 ? -14 : -126,
        .largest = f16 ? 65504 : 0x1.fep127,
    };
    memcpy(constants, &job, sizeof job);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided_results(call);
}

HT_CPU_ELEMENTWISE_KERNEL(round_stochastic, can, round_begin, round_span)
