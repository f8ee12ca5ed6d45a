// What a probe times on a GPU: the loops of the catalogue, one grid each, of all threads that the device holds, or of one.
// Arithmetic is in registers: of several values in turn, so that no step waits for the one
// before, and each with its neighbour, so that the compiler finds no shorter way.

#ifdef HT_EMULATED
#define DEVICE static inline
#define GPU_KEEP(x)
#define LOGIC(name, operator) x operator y
#else
#define DEVICE static __device__ __forceinline__
#define GPU_KEEP(x) asm volatile("" : "+r"(x))
#define LOGIC(name, operator) logic_##name(x, y)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif

#ifndef HT_EMULATED
// A compiler that sees them finds that a bit that is set stays set.
#define LOGIC_FUNCTION(name)                                                                                           \
    DEVICE uint32_t logic_##name(uint32_t x, uint32_t y)                                                               \
    {                                                                                                                  \
        asm volatile(#name ".b32 %0, %0, %1;" : "+r"(x) : "r"(y));                                                     \
        return x;                                                                                                      \
    }
LOGIC_FUNCTION(and)
LOGIC_FUNCTION(or)
LOGIC_FUNCTION(xor)
#endif

struct loop_control {
    uint64_t bytes; // of memory
    int64_t rounds;
    uint64_t sink; // never written, which no compiler knows
    uint64_t line; // that the last chase came to
};
struct loop_arguments {
    char *memory;
    uint64_t bytes;
    int64_t rounds;
    uint64_t *sink, *line;
};

DEVICE uint64_t thread_number() { return (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE uint64_t thread_count() { return (uint64_t)gridDim.x * blockDim.x; }
DEVICE void put_away(const loop_arguments &a, uint64_t value)
{
    if (a.rounds < 0) *a.sink = value;
}
DEVICE uint64_t as_bits(float x) { return __float_as_uint(x); }
DEVICE uint64_t as_bits(double x) { return (uint64_t)__double_as_longlong(x); }
DEVICE uint64_t as_bits(uint32_t x) { return x; }
DEVICE uint64_t as_bits(int32_t x) { return (uint32_t)x; }
DEVICE uint64_t as_bits(uint64_t x) { return x; }

// ---- throughput: VALUES of each thread, STEPS of each round ----

enum { VALUES = 8, STEPS = 16 };

template <class T> DEVICE void begin(T *x, int i) { *x = (T)(threadIdx.x + 37 * i + 3); }
DEVICE void begin(float *x, int i) { *x = 1.0f + 0.0001f * (float)(threadIdx.x + i); }
DEVICE void begin(double *x, int i) { *x = 1.0 + 0.0001 * (double)(threadIdx.x + i); }

template <class T, class STEP> DEVICE void in_turn(const loop_arguments &a, STEP step)
{
    T x[VALUES];
    for (int i = 0; i < VALUES; i++) begin(&x[i], i);
    for (int64_t r = 0; r < a.rounds; r++) {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int i = 0; i < VALUES; i++) x[i] = step(x[i], x[(i + 1) % VALUES]);
        }
    }
    uint64_t all = 0;
    for (int i = 0; i < VALUES; i++) all ^= as_bits(x[i]);
    put_away(a, all);
}

// One value, whose every step waits for the one before.
template <class T, class STEP> DEVICE void one_by_one(const loop_arguments &a, STEP step)
{
    T x, by;
    begin(&x, 0);
    begin(&by, 1);
    for (int64_t r = 0; r < a.rounds; r++) {
#pragma unroll
        for (int k = 0; k < STEPS * VALUES; k++) x = step(x, by);
    }
    put_away(a, as_bits(x));
}

#define IN_TURN(name, type, expression)                                                                                \
    DEVICE void loop_##name(const loop_arguments &a)                                                                   \
    {                                                                                                                  \
        in_turn<type>(a, [](type x, type y) -> type { return (type)(expression); });                                   \
    }
#define ONE_BY_ONE(name, type, expression)                                                                             \
    DEVICE void loop_##name(const loop_arguments &a)                                                                   \
    {                                                                                                                  \
        one_by_one<type>(a, [](type x, type y) -> type { return (type)(expression); });                                \
    }

IN_TURN(and_bits, uint32_t, LOGIC(and, &))
IN_TURN(or_bits, uint32_t, LOGIC(or, |))
IN_TURN(xor_bits, uint32_t, LOGIC(xor, ^))
IN_TURN(not_bits, uint32_t, ~(x + y))
IN_TURN(shift_bits, uint32_t, x >> (y & 31))
IN_TURN(count_bits, uint64_t, __popcll(x) + y)
IN_TURN(compare_i32, int32_t, (x < y) + y)
IN_TURN(compare_f32, float, x < y ? 1.0f : 0.5f)
IN_TURN(select_f32, float, x < 1.5f ? y : x)
IN_TURN(add_i8, uint8_t, x + y)
IN_TURN(add_i32, uint32_t, x + y)
IN_TURN(mul_i32, uint32_t, x *y)
IN_TURN(add_f32, float, x + y)
IN_TURN(mul_f32, float, x *y)
IN_TURN(div_f32, float, x / y)
IN_TURN(add_f64, double, x + y)
IN_TURN(mul_f64, double, x *y)
IN_TURN(div_f64, double, x / y)
IN_TURN(accumulate_f32, float, __fmaf_rn(x, 0.999f, y))
IN_TURN(peak_f32, float, __fmaf_rn(x, 0.999f, y))
IN_TURN(peak_f64, double, __fma_rn(x, 0.999, y))
#ifdef HT_EMULATED
IN_TURN(accumulate_i8, int32_t, x + y * 3)
#else
IN_TURN(accumulate_i8, int32_t, __dp4a(x, 0x01020304, y))
#endif

ONE_BY_ONE(add_i32_chain, uint32_t, (x ^ y) + y)
ONE_BY_ONE(mul_i32_chain, uint32_t, x *y)
ONE_BY_ONE(div_i32_chain, uint32_t, 0xfffffff1u / (x | 3u))
ONE_BY_ONE(add_chain_f32, float, x + y)
ONE_BY_ONE(mul_chain_f32, float, x *y)
ONE_BY_ONE(div_chain_f32, float, y / x)
ONE_BY_ONE(add_chain_f64, double, x + y)
ONE_BY_ONE(mul_chain_f64, double, x *y)
ONE_BY_ONE(div_chain_f64, double, y / x)

// ---- sums of an array in shared memory ----

template <class T> DEVICE void reduce_shared(const loop_arguments &a)
{
    enum { ELEMS = 2048 };
    __shared__ T array[ELEMS];
    for (int i = (int)threadIdx.x; i < ELEMS; i += (int)blockDim.x) array[i] = (T)i;
    __syncthreads();
    T sum[VALUES];
    for (int i = 0; i < VALUES; i++) sum[i] = 0;
    for (int64_t r = 0; r < a.rounds; r++) {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int i = 0; i < VALUES; i++) sum[i] += array[(threadIdx.x + (unsigned)(k * VALUES + i) * 32 + (unsigned)r) % ELEMS];
        }
    }
    uint64_t all = 0;
    for (int i = 0; i < VALUES; i++) all ^= as_bits(sum[i]);
    put_away(a, all);
}
DEVICE void loop_reduce_i32(const loop_arguments &a) { reduce_shared<uint32_t>(a); }
DEVICE void loop_reduce_f32(const loop_arguments &a) { reduce_shared<float>(a); }

// ---- branching ----

DEVICE uint32_t draw(uint32_t *state)
{
    uint32_t x = *state;
    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return *state = x;
}

// All threads of a warp go the same way, or each its own.
DEVICE void branches(const loop_arguments &a, uint32_t mask)
{
    uint32_t state = 2463534242u + (mask ? (uint32_t)thread_number() * 2654435761u : 0), sum = 0;
    GPU_KEEP(mask);
    for (int64_t r = 0; r < a.rounds * STEPS * VALUES; r++) {
        if ((draw(&state) >> 16 & mask) == 0) {
            sum += 3;
            GPU_KEEP(sum);
        } else {
            sum ^= 5;
            GPU_KEEP(sum);
        }
    }
    put_away(a, sum);
}
DEVICE void loop_branch_predictable(const loop_arguments &a) { branches(a, 0); }
DEVICE void loop_branch_random(const loop_arguments &a) { branches(a, 1); }

__device__ __noinline__ static uint32_t callee_a(uint32_t x) { return x * 3 + 1; }
__device__ __noinline__ static uint32_t callee_b(uint32_t x) { return x * 5 + 7; }
DEVICE void loop_call_function(const loop_arguments &a)
{
    uint32_t (*function)(uint32_t) = a.rounds < 0 ? callee_b : callee_a;
    uint32_t x = (uint32_t)thread_number();
    for (int64_t r = 0; r < a.rounds * STEPS * VALUES; r++) x = function(x);
    put_away(a, x);
}

DEVICE void turns(const loop_arguments &a, bool random)
{
    uint32_t state = 2463534242u + (uint32_t)thread_number() * 2654435761u, sum = 0;
    for (int64_t r = 0; r < a.rounds * STEPS * VALUES; r++) {
        uint32_t drawn = draw(&state) >> 16 & 15, count = random ? drawn : 8;
        GPU_KEEP(count);
        for (uint32_t k = 0; k < count; k++) {
            sum += 3;
            GPU_KEEP(sum);
        }
    }
    put_away(a, sum);
}
DEVICE void loop_loop_fixed(const loop_arguments &a) { turns(a, false); }
DEVICE void loop_loop_random(const loop_arguments &a) { turns(a, true); }

// ---- memory: every round goes through all of it ----

struct alignas(16) quad {
    uint32_t x[4];
};

DEVICE void loop_read(const loop_arguments &a)
{
    const quad *v = (const quad *)a.memory;
    uint64_t count = a.bytes / sizeof *v;
    uint32_t s[4] = {0, 0, 0, 0};
    for (int64_t r = 0; r < a.rounds; r++) {
#pragma unroll 4
        for (uint64_t i = thread_number(); i < count; i += thread_count()) {
            quad q = v[i];
            for (int k = 0; k < 4; k++) s[k] ^= q.x[k];
        }
        s[0] += 1; // each round is its own
    }
    put_away(a, (uint64_t)(s[0] ^ s[1]) << 32 | (s[2] ^ s[3]));
}
DEVICE void loop_write(const loop_arguments &a)
{
    quad *v = (quad *)a.memory;
    uint64_t count = a.bytes / sizeof *v;
    for (int64_t r = 0; r < a.rounds; r++)
        for (uint64_t i = thread_number(); i < count; i += thread_count()) {
            quad q = {{(uint32_t)r, 0, 0, 0}};
            v[i] = q;
        }
}
DEVICE void loop_copy(const loop_arguments &a)
{
    quad *from = (quad *)a.memory;
    uint64_t count = a.bytes / 2 / sizeof *from;
    for (int64_t r = 0; r < a.rounds; r++)
#pragma unroll 4
        for (uint64_t i = thread_number(); i < count; i += thread_count()) from[count + i] = from[i];
}
struct alignas(16) pair_f64 {
    double x[2];
};
DEVICE void loop_triad(const loop_arguments &a)
{
    uint64_t count = a.bytes / 3 / sizeof(pair_f64);
    pair_f64 *to = (pair_f64 *)a.memory;
    const pair_f64 *b = to + count, *c = b + count;
    for (int64_t r = 0; r < a.rounds; r++)
#pragma unroll 4
        for (uint64_t i = thread_number(); i < count; i += thread_count()) {
            pair_f64 x = b[i], y = c[i];
            for (int k = 0; k < 2; k++) x.x[k] += 3.0 * y.x[k];
            to[i] = x;
        }
}
DEVICE void loop_read_sequential(const loop_arguments &a) { loop_read(a); }
DEVICE void loop_write_sequential(const loop_arguments &a) { loop_write(a); }

// Neighbouring threads read 256 bytes apart.
DEVICE void loop_read_strided(const loop_arguments &a)
{
    uint64_t count = a.bytes / 256;
    uint32_t sum = 0;
    for (int64_t r = 0; r < a.rounds; r++) {
#pragma unroll 4
        for (uint64_t i = thread_number(); i < count; i += thread_count())
            sum ^= *(const uint32_t *)(a.memory + i * 256);
        sum++;
    }
    put_away(a, sum);
}
DEVICE void loop_read_random(const loop_arguments &a)
{
    uint64_t state = 88172645463325252ull + thread_number() * 2862933555777941757ull, lines = a.bytes / 64;
    uint32_t sum = 0;
    for (int64_t r = 0; r < a.rounds * STEPS; r++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        sum ^= *(const uint32_t *)(a.memory + (state >> 33) * lines / 0x80000000ull * 64);
    }
    put_away(a, sum);
}
// Addresses are numbers of lines of 128 bytes: each holds that of the next one. A chase goes on where the last one ended:
// else those of a measurement would all go through the same lines, which caches hold.
DEVICE void loop_chase(const loop_arguments &a)
{
    uint64_t lines = a.bytes / 128, at = (*a.line + thread_number()) % lines;
    for (int64_t r = 0; r < a.rounds * STEPS; r++) at = *(const uint64_t *)(a.memory + at * 128);
    put_away(a, at);
    if (thread_number() == 0) *a.line = at;
}
// Makes them: a step by a number that has no divisor in common with the lines, a power of two, and is no neighbour.
DEVICE void loop_link_lines(const loop_arguments &a)
{
    uint64_t lines = a.bytes / 128;
    for (uint64_t i = thread_number(); i < lines; i += thread_count())
        *(uint64_t *)(a.memory + i * 128) = (i * 1664525ull + 1013904223ull) % lines;
}
