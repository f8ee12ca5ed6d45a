/* round_stochastic.  x: any float but f8.  y: f16, bf16.  Numerics: exact, in double.  Threads and neighbours:
 * fused.cuda.c.  Bound: compute (Philox). */
#include <inttypes.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

static void write_rounding(ht_cuda_step *s)
{
    bool f16 = s->call->out[0]->dtype == HT_F16;
    ht_cuda_include(s->emission, "round_stochastic");
    ht_text_add(s->shared, "__shared__ uint64_t key%d;\n    ", s->number);
    ht_text_add(s->once, "key%d = random_key((uint64_t)%s, %" PRIu64 "ull);\n        ", s->number, s->in[1],
                ht_hash_text(ht_call_text(s->call, "site")));
    ht_text_add(s->each, "%s = round_stochastic<%d, %d>(%s, %a, random_word(key%d, (uint64_t)%s, %" PRId64 "ll + i));",
                s->out[0], f16 ? 11 : 8, f16 ? -14 : -126, s->in[0], f16 ? 65504 : 0x1.fep127, s->number, s->in[2],
                ht_call_int(s->call, "first"));
}

HT_CUDA_ELEMENTWISE_KERNEL(round_stochastic, write_rounding)
