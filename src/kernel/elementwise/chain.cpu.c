/* Loads and stores of chains (kernel/elementwise/chain.h): a block between memory of a type and registers.  Numerics: one rounding
 * per store.  Threads: none of its own.  Traffic: each element once; streamed stores go past the caches. */
#include "kernel/elementwise/chain.h"

#define UNUSED(k, ...) (void)v##k;

static void end(HT_CHAIN_ARGS)
{
    (void)op;
    (void)at;
    HT_CHAIN_ALL(UNUSED, )
}

static inline void stream_block(char *to, const void *from, int64_t bytes)
{
    int64_t part = bytes < VEC_BYTES ? bytes : VEC_BYTES;
    for (int64_t i = 0; i < bytes; i += part) ht_nt_store_vector(to + i, (const char *)from + i, part);
}

#define LOAD(k, m)  v##k = vec_load((const real *)(m), k);
#define STORE(k, m) memcpy((real *)(m) + (k)*VL, &v##k, sizeof v##k);

/* load, stage (memory 0 to the array at memory 1, registers untouched), store, stream for one type. */
#define MOVES(name, dtype, type)                                                                                       \
    static void name##_load(HT_CHAIN_ARGS)                                                                             \
    {                                                                                                                  \
        real x[HT_CHAIN_BLOCK];                                                                                        \
        char *m = ht_chain_memory(op, 0, at);                                                                          \
        if (HT_REAL_DTYPE == (dtype)) {                                                                                \
            HT_CHAIN_ALL(LOAD, m)                                                                                      \
        } else {                                                                                                       \
            ht_load(x, m, dtype, 0, HT_CHAIN_BLOCK);                                                                   \
            HT_CHAIN_ALL(LOAD, x)                                                                                      \
        }                                                                                                              \
        HT_CHAIN_NEXT;                                                                                                 \
    }                                                                                                                  \
    static void name##_stage(HT_CHAIN_ARGS)                                                                            \
    {                                                                                                                  \
        ht_load((real *)op->memory[1], ht_chain_memory(op, 0, at), dtype, 0, HT_CHAIN_BLOCK);                          \
        HT_CHAIN_NEXT;                                                                                                 \
    }                                                                                                                  \
    static void name##_store(HT_CHAIN_ARGS)                                                                            \
    {                                                                                                                  \
        real x[HT_CHAIN_BLOCK];                                                                                        \
        char *m = ht_chain_memory(op, 0, at);                                                                          \
        if (HT_REAL_DTYPE == (dtype)) {                                                                                \
            HT_CHAIN_ALL(STORE, m)                                                                                     \
        } else {                                                                                                       \
            HT_CHAIN_ALL(STORE, x)                                                                                     \
            ht_save(m, dtype, 0, x, HT_CHAIN_BLOCK);                                                                   \
        }                                                                                                              \
        HT_CHAIN_NEXT;                                                                                                 \
    }                                                                                                                  \
    static void name##_stream(HT_CHAIN_ARGS)                                                                           \
    {                                                                                                                  \
        real x[HT_CHAIN_BLOCK];                                                                                        \
        type y[HT_CHAIN_BLOCK];                                                                                        \
        HT_CHAIN_ALL(STORE, x)                                                                                         \
        ht_save(y, dtype, 0, x, HT_CHAIN_BLOCK);                                                                       \
        stream_block(ht_chain_memory(op, 0, at), y, sizeof y);                                                         \
        HT_CHAIN_NEXT;                                                                                                 \
    }
MOVES(f32, HT_F32, float)
MOVES(f64, HT_F64, double)
MOVES(bf16, HT_BF16, ht_bf16)
MOVES(f16, HT_F16, ht_f16)

static void bool_load(HT_CHAIN_ARGS)
{
    real x[HT_CHAIN_BLOCK];
    const uint8_t *m = (const uint8_t *)ht_chain_memory(op, 0, at);
    for (int k = 0; k < HT_CHAIN_BLOCK; k++) x[k] = m[k] != 0;
    HT_CHAIN_ALL(LOAD, x)
    HT_CHAIN_NEXT;
}

static void bool_stage(HT_CHAIN_ARGS)
{
    real *x = (real *)op->memory[1];
    const uint8_t *m = (const uint8_t *)ht_chain_memory(op, 0, at);
    for (int k = 0; k < HT_CHAIN_BLOCK; k++) x[k] = m[k] != 0;
    HT_CHAIN_NEXT;
}

static void bool_store(HT_CHAIN_ARGS)
{
    real x[HT_CHAIN_BLOCK];
    uint8_t *m = (uint8_t *)ht_chain_memory(op, 0, at);
    HT_CHAIN_ALL(STORE, x)
    for (int k = 0; k < HT_CHAIN_BLOCK; k++) m[k] = x[k] != 0;
    HT_CHAIN_NEXT;
}

static void run(const ht_chain_op *ops, int64_t n)
{
    vec none = {0};
    for (int64_t at = 0; at + HT_CHAIN_BLOCK <= n; at += HT_CHAIN_BLOCK)
        ((ht_chain_fn)ops[0].run)(ops, at, none, none, none, none);
}

#define MOVE(name)                                                                                                     \
    {                                                                                                                  \
        (ht_chain_step) HT_RUN(name##_load), (ht_chain_step)HT_RUN(name##_stage), (ht_chain_step)HT_RUN(name##_store), \
            (ht_chain_step)HT_RUN(name##_stream)                                                                       \
    }

const ht_chain_build HT_K(ht_chain) = {
    .native = HT_REAL_DTYPE,
    .block = HT_CHAIN_BLOCK,
    .moves = {[HT_F32] = MOVE(f32),
              [HT_F64] = MOVE(f64),
              [HT_BF16] = MOVE(bf16),
              [HT_F16] = MOVE(f16),
              [HT_BOOL] = {(ht_chain_step)HT_RUN(bool_load), (ht_chain_step)HT_RUN(bool_stage),
                           (ht_chain_step)HT_RUN(bool_store), (ht_chain_step)HT_RUN(bool_store)}},
    .end = (ht_chain_step)HT_RUN(end),
    .run = HT_RUN(run),
};
