// CUDA C++ for a C++ compiler of the host: stands in front of every kernel that the emulated NVRTC compiles, behind
// emulated_state.h. It includes nothing, so that a text compiles in a few hundredths of a second. What Halftone's kernels
// may not use is not here: a float atomic is an error of the compiler.

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef __SIZE_TYPE__ size_t;

// Set by the driver. All that begins with zeros (.bss) is shared memory, so this does not.
extern "C" {
emulated_state *emulated_here = (emulated_state *)1;
extern char __bss_start, _end;
extern char *const emulated_shared[2];
char *const emulated_shared[2] = {&__bss_start, &_end};
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__    __attribute__((noinline))
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __shared__   static
#define __constant__ static

#define threadIdx             (emulated_here->thread)
#define blockIdx              (emulated_here->block)
#define blockDim              (emulated_here->block_size)
#define gridDim               (emulated_here->grid_size)
#define emulated_shared_bytes (emulated_here->shared_bytes)
static const int warpSize = 32;

// ---- entries: the arguments of a launch are the addresses of pointers ----

template <int... I> struct emulated_list {};
template <int N, int... I> struct emulated_count : emulated_count<N - 1, N - 1, I...> {};
template <int... I> struct emulated_count<0, I...> {
    typedef emulated_list<I...> type;
};
template <class... P, int... I> static inline void emulated_call(void (*f)(P...), void **arguments, emulated_list<I...>)
{
    f(*(P *)arguments[I]...);
}
template <class... P> static inline void emulated_call(void (*f)(P...), void **arguments)
{
    emulated_call(f, arguments, typename emulated_count<sizeof...(P)>::type());
}
template <class... P> constexpr int emulated_parameters(void (*)(P...)) { return sizeof...(P); }
#define EMULATED_ENTRY(name)                                                                                           \
    extern "C" void name##_emulated(void **arguments) { emulated_call(name, arguments); }                              \
    extern "C" const int name##_parameters = emulated_parameters(name);

// ---- threads together ----

static inline void __syncthreads() { emulated_here->meet(EMULATED_BLOCK, 0, 0, 0); }
static inline int __syncthreads_count(int x) { return (int)emulated_here->meet(EMULATED_BLOCK, 0, x != 0, 0); }
static inline int __syncthreads_or(int x) { return __syncthreads_count(x) > 0; }
static inline int __syncthreads_and(int x) { return __syncthreads_count(x) == (int)blockDim.x; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { emulated_here->meet(EMULATED_WARP, mask, 0, 0); }
static inline unsigned __ballot_sync(unsigned mask, int x)
{
    return (unsigned)emulated_here->meet(EMULATED_BALLOT, mask, x != 0, 0);
}
static inline int __any_sync(unsigned mask, int x) { return __ballot_sync(mask, x) != 0; }
static inline int __all_sync(unsigned mask, int x) { return __ballot_sync(mask, x) == mask; }

static inline int emulated_lane() { return (int)(threadIdx.x % 32); }
template <class T> static inline T emulated_shuffle(unsigned mask, T x, int lane)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &x, sizeof x);
    bits = emulated_here->meet(EMULATED_SHUFFLE, mask, bits, lane);
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
// Lanes outside the part of `width` lanes are not read: the thread gets its own value.
template <class T> static inline T __shfl_sync(unsigned mask, T x, int from, int width = 32)
{
    return emulated_shuffle(mask, x, (emulated_lane() & -width) | (from & (width - 1)));
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T x, unsigned delta, int width = 32)
{
    int lane = emulated_lane(), from = lane - (int)delta;
    return emulated_shuffle(mask, x, from < (lane & -width) ? lane : from);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T x, unsigned delta, int width = 32)
{
    int lane = emulated_lane(), from = lane + (int)delta;
    return emulated_shuffle(mask, x, from > (lane | (width - 1)) ? lane : from);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32)
{
    int lane = emulated_lane(), from = lane ^ bits;
    return emulated_shuffle(mask, x, from > (lane | (width - 1)) ? lane : from);
}

// For loops that wait until another block has written something.
static inline void emulated_pause() { emulated_here->meet(EMULATED_OTHERS, 0, 0, 0); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

// ---- atomics: one thread runs at a time ----

#define EMULATED_ATOMICS(T)                                                                                            \
    static inline T emulated_exchange(T *at, T x)                                                                      \
    {                                                                                                                  \
        T old = *at;                                                                                                   \
        *at = x;                                                                                                       \
        return old;                                                                                                    \
    }                                                                                                                  \
    static inline T atomicExch(T *at, T x) { return emulated_exchange(at, x); }                                        \
    static inline T atomicAdd(T *at, T x) { return emulated_exchange(at, *at + x); }                                   \
    static inline T atomicSub(T *at, T x) { return emulated_exchange(at, *at - x); }                                   \
    static inline T atomicMax(T *at, T x) { return emulated_exchange(at, *at > x ? *at : x); }                         \
    static inline T atomicMin(T *at, T x) { return emulated_exchange(at, *at < x ? *at : x); }                         \
    static inline T atomicOr(T *at, T x) { return emulated_exchange(at, *at | x); }                                    \
    static inline T atomicAnd(T *at, T x) { return emulated_exchange(at, *at & x); }                                   \
    static inline T atomicCAS(T *at, T compare, T x) { return emulated_exchange(at, *at == compare ? x : *at); }
EMULATED_ATOMICS(int)
EMULATED_ATOMICS(unsigned)
EMULATED_ATOMICS(unsigned long long)

// ---- bits ----

template <class TO, class FROM> static inline TO emulated_bits(FROM x)
{
    TO y;
    static_assert(sizeof x == sizeof y, "");
    __builtin_memcpy(&y, &x, sizeof y);
    return y;
}
static inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return emulated_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return emulated_bits<float>(x); }
static inline float __int_as_float(int x) { return emulated_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return emulated_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return emulated_bits<double>(x); }
static inline int __popcll(unsigned long long x) // the builtin may be a function of a library, which is not there
{
    x -= x >> 1 & 0x5555555555555555ull;
    x = (x & 0x3333333333333333ull) + (x >> 2 & 0x3333333333333333ull);
    return (int)(((x + (x >> 4)) & 0x0f0f0f0f0f0f0f0full) * 0x0101010101010101ull >> 56);
}
static inline int __popc(unsigned x) { return __popcll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b >> 64); }

static inline float emulated_f16_to_f32(uint16_t h)
{
    unsigned sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ffu;
    if (exponent == 0) return __uint_as_float(sign | __float_as_uint((float)fraction * 0x1p-24f));
    return __uint_as_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}
// To nearest even. Adding 0.5 leaves subnormal numbers in the low bits.
static inline uint16_t emulated_f32_to_f16(float x)
{
    unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7fff;
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (size < 0x38800000u)
        return (uint16_t)(sign | (__float_as_uint(__uint_as_float(size) + 0.5f) - __float_as_uint(0.5f)));
    return (uint16_t)(sign | ((size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13));
}

// ---- mathematics ----

extern "C" {
#define EMULATED_FUNCTION1(name)                                                                                       \
    float name##f(float);                                                                                              \
    double name(double);
#define EMULATED_FUNCTION2(name)                                                                                       \
    float name##f(float, float);                                                                                       \
    double name(double, double);
EMULATED_FUNCTION1(exp)
EMULATED_FUNCTION1(exp2)
EMULATED_FUNCTION1(expm1)
EMULATED_FUNCTION1(log)
EMULATED_FUNCTION1(log2)
EMULATED_FUNCTION1(log1p)
EMULATED_FUNCTION1(sqrt)
EMULATED_FUNCTION1(sin)
EMULATED_FUNCTION1(cos)
EMULATED_FUNCTION1(tanh)
EMULATED_FUNCTION1(erf)
EMULATED_FUNCTION1(fabs)
EMULATED_FUNCTION1(floor)
EMULATED_FUNCTION1(ceil)
EMULATED_FUNCTION1(trunc)
EMULATED_FUNCTION1(rint)
EMULATED_FUNCTION2(pow)
EMULATED_FUNCTION2(fmod)
EMULATED_FUNCTION2(fmin)
EMULATED_FUNCTION2(fmax)
EMULATED_FUNCTION2(copysign)
float fmaf(float, float, float);
double fma(double, double, double);
float ldexpf(float, int);
double ldexp(double, int);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
}
static inline void sincosf(float x, float *s, float *c) { *s = sinf(x), *c = cosf(x); }
static inline void sincos(double x, double *s, double *c) { *s = sin(x), *c = cos(x); }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __expf(float x) { return expf(x); }
static inline float __logf(float x) { return logf(x); }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
static inline int abs(int x) { return x < 0 ? -x : x; }

// ---- memory ----

template <class T> static inline T __ldg(const T *at) { return *at; }
template <class T> static inline T __ldcs(const T *at) { return *at; }
template <class T> static inline T __ldcg(const T *at) { return *at; }
template <class T> static inline void __stcs(T *at, T x) { *at = x; }
template <class T> static inline void __stcg(T *at, T x) { *at = x; }

#define EMULATED_VECTORS(name, T)                                                                                      \
    struct __align__(2 * sizeof(T)) name##2 {                                                                          \
        T x, y;                                                                                                        \
    };                                                                                                                 \
    struct __align__(sizeof(T) == 8 ? 16 : 4 * sizeof(T)) name##4 {                                                    \
        T x, y, z, w;                                                                                                  \
    };                                                                                                                 \
    static inline name##2 make_##name##2(T x, T y) { return name##2{x, y}; }                                           \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return name##4{x, y, z, w}; }
EMULATED_VECTORS(float, float)
EMULATED_VECTORS(double, double)
EMULATED_VECTORS(int, int)
EMULATED_VECTORS(uint, unsigned)
EMULATED_VECTORS(short, short)
EMULATED_VECTORS(ushort, unsigned short)
EMULATED_VECTORS(longlong, long long)
EMULATED_VECTORS(ulonglong, unsigned long long)
