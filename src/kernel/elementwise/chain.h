/* For *.cpu.c files: element-wise calls whose values stay in registers from one call to the next. A block of elements
 * is held in four registers; each step works on them and jumps to the next, so a chain of calls runs as if it had been
 * written as one loop. Steps come from the same expressions as the loops over arrays: HT_CHAIN1 (x), HT_CHAIN2 (a and
 * b), HT_CHAIN_SELECT (c, a and b), with `low` and `high` for bounds. kernel/elementwise/chain.c makes the list of steps. */
#ifndef HT_KERNEL_CHAIN_H
#define HT_KERNEL_CHAIN_H

#include <string.h>

#include "kernel/simd.h"

enum { HT_CHAIN_BLOCK = 4 * VL }; /* elements */

#define HT_CHAIN_ARGS const ht_chain_op *op, int64_t at, vec v0, vec v1, vec v2, vec v3
typedef void (*ht_chain_fn)(HT_CHAIN_ARGS);
#define HT_CHAIN_NEXT ((ht_chain_fn)op[1].run)(op + 1, at, v0, v1, v2, v3)
/* DO(k, ...) for every register vk. */
#define HT_CHAIN_ALL(DO, ...)                                                                                          \
    DO(0, __VA_ARGS__)                                                                                                 \
    DO(1, __VA_ARGS__)                                                                                                 \
    DO(2, __VA_ARGS__)                                                                                                 \
    DO(3, __VA_ARGS__)

static inline char *ht_chain_memory(const ht_chain_op *op, int which, int64_t at)
{
    return op->memory[which] + at * op->bytes[which];
}

/* A call would cost the registers their values. */
#define HT_CHAIN_INLINE static inline __attribute__((always_inline))

/* Arrays that the compiler keeps in registers: it vectorises the loop over them. */
#define HT_CHAIN_LANES(result, ...)                                                                                    \
    real to_[VL];                                                                                                      \
    for (int k_ = 0; k_ < VL; k_++) {                                                                                  \
        __VA_ARGS__                                                                                                    \
    }                                                                                                                  \
    memcpy(&(result), to_, sizeof(result));

#define HT_CHAIN_DO1(k, name)         v##k = name##_lanes1(v##k, low, high);
#define HT_CHAIN_DO2(k, name)         v##k = name##_lanes2(v##k, vec_load(m, k));
#define HT_CHAIN_DO2_REVERSE(k, name) v##k = name##_lanes2(vec_load(m, k), v##k);
#define HT_CHAIN_DO3(k, name)         v##k = name##_lanes3(c, k, v##k, vec_load(m, k));
#define HT_CHAIN_DO3_REVERSE(k, name) v##k = name##_lanes3(c, k, vec_load(m, k), v##k);

#define HT_CHAIN1(name, expression)                                                                                    \
    HT_CHAIN_INLINE vec name##_lanes1(vec v, real low, real high)                                                      \
    {                                                                                                                  \
        real x_[VL];                                                                                                   \
        (void)low;                                                                                                     \
        (void)high;                                                                                                    \
        memcpy(x_, &v, sizeof v);                                                                                      \
        HT_CHAIN_LANES(v, real x = x_[k_]; to_[k_] = (real)(expression);)                                              \
        return v;                                                                                                      \
    }                                                                                                                  \
    static void name##_chain(HT_CHAIN_ARGS)                                                                            \
    {                                                                                                                  \
        real low = (real)op->bound[0], high = (real)op->bound[1];                                                      \
        HT_CHAIN_ALL(HT_CHAIN_DO1, name)                                                                               \
        HT_CHAIN_NEXT;                                                                                                 \
    }

#define HT_CHAIN2(name, expression)                                                                                    \
    HT_CHAIN_INLINE vec name##_lanes2(vec left, vec right)                                                             \
    {                                                                                                                  \
        real a_[VL], b_[VL];                                                                                           \
        memcpy(a_, &left, sizeof left);                                                                                \
        memcpy(b_, &right, sizeof right);                                                                              \
        HT_CHAIN_LANES(left, real a = a_[k_], b = b_[k_]; to_[k_] = (real)(expression);)                               \
        return left;                                                                                                   \
    }                                                                                                                  \
    static void name##_chain(HT_CHAIN_ARGS)                                                                            \
    {                                                                                                                  \
        const real *m = (const real *)ht_chain_memory(op, 0, at);                                                      \
        HT_CHAIN_ALL(HT_CHAIN_DO2, name)                                                                               \
        HT_CHAIN_NEXT;                                                                                                 \
    }                                                                                                                  \
    static void name##_chain_reverse(HT_CHAIN_ARGS)                                                                    \
    {                                                                                                                  \
        const real *m = (const real *)ht_chain_memory(op, 0, at);                                                      \
        HT_CHAIN_ALL(HT_CHAIN_DO2_REVERSE, name)                                                                       \
        HT_CHAIN_NEXT;                                                                                                 \
    }

/* The condition as numbers first: the compiler does not mix lanes of different sizes. */
#define HT_CHAIN_SELECT(name, expression)                                                                              \
    HT_CHAIN_INLINE vec name##_lanes3(const char *condition, int part, vec left, vec right)                            \
    {                                                                                                                  \
        real a_[VL], b_[VL], c_[VL];                                                                                   \
        const uint8_t *from_ = (const uint8_t *)condition + part * VL;                                                 \
        for (int k_ = 0; k_ < VL; k_++) c_[k_] = from_[k_];                                                            \
        memcpy(a_, &left, sizeof left);                                                                                \
        memcpy(b_, &right, sizeof right);                                                                              \
        HT_CHAIN_LANES(left, real a = a_[k_], b = b_[k_], c = c_[k_]; to_[k_] = (real)(expression);)                   \
        return left;                                                                                                   \
    }                                                                                                                  \
    static void name##_chain(HT_CHAIN_ARGS)                                                                            \
    {                                                                                                                  \
        const real *m = (const real *)ht_chain_memory(op, 0, at);                                                      \
        const char *c = ht_chain_memory(op, 1, at);                                                                    \
        HT_CHAIN_ALL(HT_CHAIN_DO3, name)                                                                               \
        HT_CHAIN_NEXT;                                                                                                 \
    }                                                                                                                  \
    static void name##_chain_reverse(HT_CHAIN_ARGS)                                                                    \
    {                                                                                                                  \
        const real *m = (const real *)ht_chain_memory(op, 0, at);                                                      \
        const char *c = ht_chain_memory(op, 1, at);                                                                    \
        HT_CHAIN_ALL(HT_CHAIN_DO3_REVERSE, name)                                                                       \
        HT_CHAIN_NEXT;                                                                                                 \
    }

extern const ht_chain_build HT_K(ht_chain);

#endif
