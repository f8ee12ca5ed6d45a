/* What a probe times. Loops over arrays in the first level of the caches are written plainly, for the compiler to put into
 * vectors as it would a kernel's; chains have one value that waits for the last one. KEEP and FORGET keep the compiler from
 * seeing through them: a value that it must take as changed, memory that it must take as changed. */
/* HT_COMPILE: -O3 -ffp-contract=fast */
#include <string.h>

#include "probe/loops.h"

typedef HT_REAL real;
#define CAT_(a, b, c)      a##_##b##_##c
#define CAT(a, b, c)       CAT_(a, b, c)
#define COLUMN_(isa, name) isa##_##name
#define COLUMN(isa, name)  COLUMN_(isa, name)

#define KEEP(value) __asm__ volatile("" : "+r"(value))
#define FORGET()    __asm__ volatile("" ::: "memory")

enum {
    VECTOR_BYTES = COLUMN(HT_ISA_ID, VECTOR_BYTES),
    LANES = VECTOR_BYTES / sizeof(real),
    REALS = HT_LOOP_BYTES / sizeof(real),
    INTS = HT_LOOP_BYTES / sizeof(int32_t),
    CHAINS = 12, /* two units, each with a latency of up to five cycles; they leave registers for the operands */
    CHAIN_STEPS = 1024,
    LINE_BYTES = 64,
};
typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
typedef uint64_t words __attribute__((vector_size(VECTOR_BYTES)));

/* ---- ceilings ---- */

#define EACH_CHAIN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

static double loop_peak(ht_loop_data *d, int64_t rounds)
{
    vec scale, shift, all;
    for (int i = 0; i < LANES; i++) scale[i] = (real)0.999, shift[i] = (real)0.001;
#define START(i) vec s##i = shift * (real)(i);
#define STEP(i)  s##i = s##i * scale + shift;
#define ADD(i)   all += s##i;
    EACH_CHAIN(START)
    for (int64_t r = 0; r < rounds; r++)
        for (int k = 0; k < CHAIN_STEPS; k++) {
            EACH_CHAIN(STEP)
        }
    all = shift;
    EACH_CHAIN(ADD)
#undef START
#undef STEP
#undef ADD
    d->sink = (double)all[0];
    return 2.0 * LANES * CHAINS * CHAIN_STEPS * (double)rounds;
}

static double loop_read(ht_loop_data *d, int64_t rounds)
{
    enum { STEP = 8 };
    const words *v = (const words *)d->memory;
    size_t count = d->memory_bytes / sizeof *v;
    words s[STEP] = {{0}};
    for (int64_t r = 0; r < rounds; r++) {
        for (size_t i = 0; i < count; i += STEP) {
#pragma GCC unroll 8
            for (int k = 0; k < STEP; k++) s[k] |= v[i + (size_t)k];
        }
        FORGET();
    }
    for (int k = 1; k < STEP; k++) s[0] |= s[k];
    d->sink = (double)s[0][0];
    return (double)d->memory_bytes * (double)rounds;
}

static double loop_write(ht_loop_data *d, int64_t rounds)
{
    words *v = (words *)d->memory;
    size_t count = d->memory_bytes / sizeof *v;
    for (int64_t r = 0; r < rounds; r++) {
        words x = {(uint64_t)r};
        for (size_t i = 0; i < count; i++) {
            v[i] = x;
            FORGET(); /* no memset of its own mind */
        }
    }
    return (double)d->memory_bytes * (double)rounds;
}

static double loop_copy(ht_loop_data *d, int64_t rounds)
{
    words *from = (words *)d->memory;
    size_t count = d->memory_bytes / 2 / sizeof *from;
    words *to = from + count;
    for (int64_t r = 0; r < rounds; r++)
        for (size_t i = 0; i < count; i++) {
            to[i] = from[i];
            FORGET();
        }
    return 2.0 * (double)(count * sizeof *from) * (double)rounds;
}

static double loop_triad(ht_loop_data *d, int64_t rounds)
{
    size_t count = d->memory_bytes / 3 / LINE_BYTES * LINE_BYTES / sizeof(real);
    real *restrict a = (real *)d->memory;
    const real *restrict b = a + count, *restrict c = b + count;
    for (int64_t r = 0; r < rounds; r++) {
        real scale = (real)3 + (real)(r & 1);
        for (size_t i = 0; i < count; i++) a[i] = b[i] + scale * c[i];
        FORGET();
    }
    return 3.0 * (double)(count * sizeof(real)) * (double)rounds;
}

/* ---- logic, vector arithmetic: arrays in the first level of the caches ---- */

/* c[i] = expression of x and y, elements of a and b. */
#define ARRAY_LOOP(name, type, expression)                                                                             \
    static double loop_##name(ht_loop_data *d, int64_t rounds)                                                         \
    {                                                                                                                  \
        const type *restrict a = (const type *)d->a, *restrict b = (const type *)d->b;                                 \
        type *restrict c = (type *)d->c;                                                                               \
        const size_t elems = HT_LOOP_BYTES / sizeof(type);                                                             \
        for (int64_t r = 0; r < rounds; r++) {                                                                         \
            for (size_t i = 0; i < elems; i++) {                                                                       \
                type x = a[i], y = b[i];                                                                               \
                (void)y;                                                                                               \
                c[i] = (type)(expression);                                                                             \
            }                                                                                                          \
            FORGET();                                                                                                  \
        }                                                                                                              \
        d->sink = (double)c[0];                                                                                        \
        return (double)elems * (double)rounds;                                                                         \
    }

ARRAY_LOOP(and_bits, uint32_t, x &y)
ARRAY_LOOP(or_bits, uint32_t, x | y)
ARRAY_LOOP(xor_bits, uint32_t, x ^ y)
ARRAY_LOOP(not_bits, uint32_t, ~x)
ARRAY_LOOP(shift_bits, uint32_t, x >> 5)
ARRAY_LOOP(count_bits, uint64_t, __builtin_popcountll(x))
ARRAY_LOOP(compare_i32, int32_t, x < y)
ARRAY_LOOP(add_i8, uint8_t, x + y)
ARRAY_LOOP(add_i32, uint32_t, x + y)
ARRAY_LOOP(mul_i32, uint32_t, x *y)
ARRAY_LOOP(compare_f32, real, x < y)
ARRAY_LOOP(select_f32, real, x < y ? x : y)
ARRAY_LOOP(add_f32, real, x + y)
ARRAY_LOOP(mul_f32, real, x *y)
ARRAY_LOOP(div_f32, real, x / y)
#define loop_add_f64 loop_add_f32 /* the rows for f64 are taken of the build for it */
#define loop_mul_f64 loop_mul_f32
#define loop_div_f64 loop_div_f32

static double loop_accumulate_i8(ht_loop_data *d, int64_t rounds)
{
    const int8_t *restrict a = (const int8_t *)d->a, *restrict b = (const int8_t *)d->b;
    int32_t sum = 0;
    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < HT_LOOP_BYTES; i++) sum += (int32_t)a[i] * (int32_t)b[i];
        FORGET();
    }
    d->sink = (double)sum;
    return 2.0 * HT_LOOP_BYTES * (double)rounds;
}

/* Several sums, as a kernel has: one would wait for itself. */
enum { SUMS = 8, VECTORS = HT_LOOP_BYTES / VECTOR_BYTES };

static double loop_accumulate_f32(ht_loop_data *d, int64_t rounds)
{
    const vec *a = (const vec *)d->a, *b = (const vec *)d->b;
    vec s[SUMS] = {{0}};
    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < VECTORS; i += SUMS) {
#pragma GCC unroll 8
            for (int k = 0; k < SUMS; k++) s[k] += a[i + k] * b[i + k];
        }
        FORGET();
    }
    for (int k = 1; k < SUMS; k++) s[0] += s[k];
    d->sink = (double)s[0][0];
    return 2.0 * REALS * (double)rounds;
}

static double loop_reduce_f32(ht_loop_data *d, int64_t rounds)
{
    const vec *a = (const vec *)d->a;
    vec s[SUMS] = {{0}};
    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < VECTORS; i += SUMS) {
#pragma GCC unroll 8
            for (int k = 0; k < SUMS; k++) s[k] += a[i + k];
        }
        FORGET();
    }
    for (int k = 1; k < SUMS; k++) s[0] += s[k];
    d->sink = (double)s[0][0];
    return (double)REALS * (double)rounds;
}

static double loop_reduce_i32(ht_loop_data *d, int64_t rounds)
{
    const uint32_t *a = (const uint32_t *)d->a;
    uint32_t sum = 0;
    for (int64_t r = 0; r < rounds; r++) {
        for (int i = 0; i < INTS; i++) sum += a[i];
        FORGET();
    }
    d->sink = (double)sum;
    return (double)INTS * (double)rounds;
}

/* ---- scalar arithmetic: one value ---- */

/* Integers are kept in a register by KEEP; of floats no step can be left out, since rounding has no short cuts. */
#define INT_CHAIN(name, step)                                                                                          \
    static double loop_##name(ht_loop_data *d, int64_t rounds)                                                         \
    {                                                                                                                  \
        uint32_t x = 0xfffffff1u, by = (uint32_t)d->a[0] | 3u;                                                         \
        KEEP(by);                                                                                                      \
        for (int64_t r = 0; r < rounds; r++)                                                                           \
            for (int k = 0; k < CHAIN_STEPS; k++) {                                                                    \
                step;                                                                                                  \
                KEEP(x);                                                                                               \
            }                                                                                                          \
        d->sink = (double)x;                                                                                           \
        return (double)CHAIN_STEPS * (double)rounds;                                                                   \
    }
#define REAL_CHAIN(name, step)                                                                                         \
    static double loop_##name(ht_loop_data *d, int64_t rounds)                                                         \
    {                                                                                                                  \
        real x = (real)1.5, by = *(const real *)d->a;                                                                  \
        for (int64_t r = 0; r < rounds; r++)                                                                           \
            for (int k = 0; k < CHAIN_STEPS; k++) step;                                                                \
        d->sink = (double)x;                                                                                           \
        return (double)CHAIN_STEPS * (double)rounds;                                                                   \
    }

INT_CHAIN(add_i32_chain, x += by)
INT_CHAIN(mul_i32_chain, x *= by)
INT_CHAIN(div_i32_chain, x = 0xfffffff1u / (x | 3u))
REAL_CHAIN(add_chain_f32, x += by)
REAL_CHAIN(mul_chain_f32, x *= by)
REAL_CHAIN(div_chain_f32, x = by / x)
#define loop_add_chain_f64 loop_add_chain_f32
#define loop_mul_chain_f64 loop_mul_chain_f32
#define loop_div_chain_f64 loop_div_chain_f32

/* ---- branching: both kinds of a pair draw the same random numbers ---- */

static inline uint32_t draw(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

/* With something in each arm that has to be run, a branch cannot become a choice. */
static inline __attribute__((always_inline)) double branches(ht_loop_data *d, int64_t rounds, uint32_t mask)
{
    uint32_t state = 2463534242u, sum = 0;
    KEEP(mask);
    for (int64_t r = 0; r < rounds * CHAIN_STEPS; r++) {
        if ((draw(&state) >> 16 & mask) == 0) {
            sum += 3;
            KEEP(sum);
        } else {
            sum ^= 5;
            KEEP(sum);
        }
    }
    d->sink = (double)sum;
    return (double)CHAIN_STEPS * (double)rounds;
}

static double loop_branch_predictable(ht_loop_data *d, int64_t rounds)
{
    return branches(d, rounds, 0);
}

static double loop_branch_random(ht_loop_data *d, int64_t rounds)
{
    return branches(d, rounds, 1);
}

static __attribute__((noinline)) uint32_t callee(uint32_t x)
{
    KEEP(x);
    return x + 1;
}

static double loop_call_function(ht_loop_data *d, int64_t rounds)
{
    uint32_t (*function)(uint32_t) = callee;
    uint32_t x = 0;
    for (int64_t r = 0; r < rounds * CHAIN_STEPS; r++) {
        KEEP(function);
        x = function(x);
    }
    d->sink = (double)x;
    return (double)CHAIN_STEPS * (double)rounds;
}

static inline __attribute__((always_inline)) double turns(ht_loop_data *d, int64_t rounds, bool random)
{
    uint32_t state = 2463534242u, sum = 0;
    for (int64_t r = 0; r < rounds * CHAIN_STEPS; r++) {
        uint32_t drawn = draw(&state) >> 16 & 15, count = random ? drawn : 8;
        KEEP(count);
        for (uint32_t k = 0; k < count; k++) {
            sum += 3;
            KEEP(sum);
        }
    }
    d->sink = (double)sum;
    return (double)CHAIN_STEPS * (double)rounds;
}

static double loop_loop_fixed(ht_loop_data *d, int64_t rounds)
{
    return turns(d, rounds, false);
}

static double loop_loop_random(ht_loop_data *d, int64_t rounds)
{
    return turns(d, rounds, true);
}

/* ---- memory ---- */

static double loop_read_sequential(ht_loop_data *d, int64_t rounds)
{
    return loop_read(d, rounds) / sizeof(uint32_t);
}

static double loop_write_sequential(ht_loop_data *d, int64_t rounds)
{
    return loop_write(d, rounds) / sizeof(uint32_t);
}

static double loop_read_strided(ht_loop_data *d, int64_t rounds)
{
    const size_t reads = d->memory_bytes / HT_LOOP_STRIDE;
    uint32_t sum = 0;
    for (int64_t r = 0; r < rounds; r++) {
        for (size_t i = 0; i < reads * HT_LOOP_STRIDE; i += HT_LOOP_STRIDE) sum += *(const uint32_t *)(d->memory + i);
        FORGET();
    }
    d->sink = (double)sum;
    return (double)reads * (double)rounds;
}

static double loop_read_random(ht_loop_data *d, int64_t rounds)
{
    uint64_t state = 88172645463325252u, lines = d->memory_bytes / LINE_BYTES;
    uint32_t sum = 0;
    for (int64_t r = 0; r < rounds * CHAIN_STEPS; r++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint64_t line = (uint64_t)((unsigned __int128)state * lines >> 64);
        sum += *(const uint32_t *)(d->memory + line * LINE_BYTES);
    }
    d->sink = (double)sum;
    return (double)CHAIN_STEPS * (double)rounds;
}

static double loop_chase(ht_loop_data *d, int64_t rounds)
{
    void **at = d->start;
    for (int64_t r = 0; r < rounds * CHAIN_STEPS; r++) at = *at;
    d->start = at;
    return (double)CHAIN_STEPS * (double)rounds;
}

/* ---- the table ---- */

extern const ht_loop_fn CAT(ht_probe_loops, HT_REAL_NAME, HT_ISA_NAME)[HT_LOOP_COUNT];
const ht_loop_fn CAT(ht_probe_loops, HT_REAL_NAME, HT_ISA_NAME)[HT_LOOP_COUNT] = {
#define HT_LOOP(name, ...) [HT_LOOP_##name] = HT_RUN(loop_##name),
#include "probe/catalogue.def"
    [HT_LOOP_peak] = HT_RUN(loop_peak), [HT_LOOP_read] = HT_RUN(loop_read),   [HT_LOOP_write] = HT_RUN(loop_write),
    [HT_LOOP_copy] = HT_RUN(loop_copy), [HT_LOOP_triad] = HT_RUN(loop_triad),
};
