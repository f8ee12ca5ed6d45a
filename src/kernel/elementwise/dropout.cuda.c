/* y[i] = x[i]/(1-p) where the element's number (op/rules.h: ht_random_index) of the stream is at least p, else 0.  x, y:
 * any float but f8.  Numerics: real, one rounding; the comparison is exact.  Threads and neighbours: fused.cuda.c.
 * Bound: compute (Philox). */
#include <inttypes.h>
#include <math.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

/* The number of element i in the stream; `sample` is the name of the row at which the batch begins. */
static void write_number(ht_text *text, const ht_call *call, const char *sample)
{
    ht_random_index index = ht_random_indices(call, 1);
    ht_text_add(text, "(uint64_t)%s * %" PRIu64 "ull + (uint64_t)i", sample, index.first);
    if (index.skip) ht_text_add(text, " + (uint64_t)i / %" PRIu64 "ull * %" PRIu64 "ull", index.block, index.skip);
}

static void write_dropout(ht_cuda_step *s)
{
    double p = ht_call_float(s->call, "p");
    ht_cuda_number scale;
    ht_text_add(s->shared, "__shared__ uint64_t key%d;\n    ", s->number);
    ht_text_add(s->once, "key%d = random_key((uint64_t)%s, %" PRIu64 "ull);\n        ", s->number, s->in[1],
                ht_hash_text(ht_call_text(s->call, "site")));
    ht_text_add(s->each, "%s = random_word(key%d, (uint64_t)%s, ", s->out[0], s->number, s->in[2]);
    write_number(s->each, s->call, s->in[3]);
    /* word + 1/2 >= p 2^32 for whole words. Not a product alone: a dropped infinity is 0. */
    ht_text_add(s->each, ") >= %lldll ? %s * %s : 0;", (long long)ceil(p * 0x1p32 - 0.5), s->in[0],
                ht_cuda_real(1 / (1 - p), &scale));
}

HT_CUDA_ELEMENTWISE_KERNEL(dropout, write_dropout)
