// What the kernels of all families share. In front of it stands `typedef float real;`, or double where a float operand is
// f64: arithmetic is in `real`, and what is stored is rounded once, to nearest even.

// DEVICE_TABLE: an array of constants outside of functions. SHARED_BYTES(name): the shared memory that a grid asks for.
#ifdef HT_EMULATED
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define DEVICE_TABLE static const
#define SHARED_BYTES(name) char *const name = emulated_shared_bytes
#else
#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define DEVICE_TABLE static __device__ const
#define SHARED_BYTES(name) extern __shared__ __align__(16) char name[]
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#endif

// ---- number formats ----

struct f16 {
    uint16_t bits;
};
struct bf16 {
    uint16_t bits;
};
struct boolean {
    uint8_t byte;
};

DEVICE float get(float x) { return x; }
DEVICE double get(double x) { return x; }
DEVICE real get(int8_t x) { return (real)x; }
DEVICE real get(uint8_t x) { return (real)x; }
DEVICE real get(int32_t x) { return (real)x; }
DEVICE real get(int64_t x) { return (real)x; }
DEVICE real get(boolean x) { return (real)(x.byte != 0); }
DEVICE float get(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
// A NaN stays one, and quiet.
#ifdef HT_EMULATED
DEVICE float get(f16 x) { return emulated_f16_to_f32(x.bits); }
DEVICE uint16_t f16_bits(float x) { return emulated_f32_to_f16(x); }
DEVICE uint16_t bf16_bits(float x)
{
    uint32_t bits = __float_as_uint(x);
    if (x != x) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
#else
DEVICE float get(f16 x)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
DEVICE uint16_t f16_bits(float x)
{
    uint16_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
DEVICE uint16_t bf16_bits(float x)
{
    uint16_t y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
}
#endif

DEVICE void put(float *to, real x) { *to = (float)x; }
DEVICE void put(double *to, real x) { *to = (double)x; }
DEVICE void put(f16 *to, real x) { to->bits = f16_bits((float)x); }
DEVICE void put(bf16 *to, real x) { to->bits = bf16_bits((float)x); }
DEVICE void put(boolean *to, bool x) { to->byte = x; }

// From double with one rounding, as the host stores numbers: the float between is rounded to odd, which leaves the last
// rounding what it would be without it.
DEVICE float odd_float(double x)
{
    float y = (float)x;
    uint32_t bits = __float_as_uint(y);
    if ((double)y == x || x != x) return y;
    if (fabs((double)y) > fabs(x)) bits--;
    return __uint_as_float(bits | 1u);
}
DEVICE void put_double(float *to, double x) { *to = (float)x; }
DEVICE void put_double(double *to, double x) { *to = x; }
DEVICE void put_double(f16 *to, double x) { to->bits = f16_bits(odd_float(x)); }
DEVICE void put_double(bf16 *to, double x) { to->bits = bf16_bits(odd_float(x)); }

// Integers, for rows that know no float; the result wraps to the type.
DEVICE int64_t get_int(int8_t x) { return x; }
DEVICE int64_t get_int(uint8_t x) { return x; }
DEVICE int64_t get_int(int32_t x) { return x; }
DEVICE int64_t get_int(int64_t x) { return x; }
DEVICE int64_t get_int(boolean x) { return x.byte != 0; }
DEVICE void put_int(int8_t *to, int64_t x) { *to = (int8_t)x; }
DEVICE void put_int(uint8_t *to, int64_t x) { *to = (uint8_t)x; }
DEVICE void put_int(int32_t *to, int64_t x) { *to = (int32_t)x; }
DEVICE void put_int(int64_t *to, int64_t x) { *to = x; }
DEVICE void put_int(boolean *to, int64_t x) { to->byte = x != 0; }

// N neighbours that a thread reads or writes at once. ht_cuda_pack of the row finds an N that alignment allows.
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pack {
    T item[N];
};
template <int N, class T> DEVICE pack<T, N> get_pack(const T *from)
{
    if constexpr (sizeof(T) == 2 && N % 2 == 0) { // by words: an upper half becomes a float in one instruction
        const pack<uint32_t, N / 2> words = *(const pack<uint32_t, N / 2> *)from;
        pack<T, N> x;
        for (int k = 0; k < N; k++) x.item[k].bits = (uint16_t)(words.item[k / 2] >> k % 2 * 16);
        return x;
    } else {
        return *(const pack<T, N> *)from;
    }
}
// Two neighbours, with what would be two instructions for f16 and bf16 as one.
template <class T> DEVICE void put_pair(T *to, real low, real high)
{
    put(&to[0], low);
    put(&to[1], high);
}
#ifndef HT_EMULATED
DEVICE void put_word(uint16_t *to, uint32_t word)
{
    to[0] = (uint16_t)word;
    to[1] = (uint16_t)(word >> 16);
}
DEVICE void put_pair(f16 *to, real low, real high)
{
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"((float)high), "f"((float)low));
    put_word(&to->bits, word);
}
DEVICE void put_pair(bf16 *to, real low, real high)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"((float)high), "f"((float)low));
    put_word(&to->bits, word);
}
#endif
template <int N, class T> DEVICE void put_pack(T *to, const pack<T, N> &x) { *(pack<T, N> *)to = x; }
// What a reduction reads, from memory. Where element-wise calls make it, `source` has the same members.
template <class T> struct stored {
    typedef T item;
    enum { AHEAD = 4 }; // loads that a thread should have on their way
    const T *from;
    template <int N> DEVICE_MEMBER pack<T, N> at(int64_t i) const { return get_pack<N>(from + i); }
};
template <class T> DEVICE stored<T> stored_in(const T *from) { return stored<T>{from}; }
// N numbers, rounded.
template <class T, int N> DEVICE pack<T, N> rounded_pack(const real (&from)[N])
{
    pack<T, N> result;
    for (int k = 0; k + 1 < N; k += 2) put_pair(&result.item[k], from[k], from[k + 1]);
    if (N % 2) put(&result.item[N - 1], from[N - 1]);
    return result;
}
template <int N, class T> DEVICE void put_numbers(T *to, const real (&from)[N]) { put_pack(to, rounded_pack<T>(from)); }

// Copies from the device's memory to shared memory that go on while a thread does other things. What is begun up to
// end_of_stage is a stage; await_stage waits until all stages but the last `left`, at most 3, are there, for the thread
// that began them. BYTES is a multiple of 16, as both addresses are.
#ifdef HT_EMULATED
template <int BYTES> DEVICE void begin_copy(void *to, const void *from)
{
    for (int i = 0; i < BYTES; i++) ((char *)to)[i] = ((const char *)from)[i];
}
DEVICE void end_of_stage() {}
DEVICE void await_stage(int) {}
#else
template <int BYTES> DEVICE void begin_copy(void *to, const void *from)
{
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(to);
    for (int i = 0; i < BYTES; i += 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place + i), "l"((const char *)from + i) : "memory");
}
DEVICE void end_of_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEVICE void await_stage(int left)
{
    switch (left) { // known when the text is compiled, which an operand of the instruction must be
    case 0: asm volatile("cp.async.wait_group 0;" ::: "memory"); break;
    case 1: asm volatile("cp.async.wait_group 1;" ::: "memory"); break;
    case 2: asm volatile("cp.async.wait_group 2;" ::: "memory"); break;
    default: asm volatile("cp.async.wait_group 3;" ::: "memory");
    }
}
#endif

// A value as it would be in memory: rounded to the type, and `real` again.
template <class T> DEVICE real rounded(real x)
{
    T stored;
    put(&stored, x);
    return (real)get(stored);
}

template <class T> DEVICE int64_t wrapped(int64_t x)
{
    T stored;
    put_int(&stored, x);
    return get_int(stored);
}

// A number as an integer of a type, at its ends where it lies beyond them; NaN is 0.
DEVICE void ends_of(int8_t, int64_t *low, int64_t *high) { *low = -128, *high = 127; }
DEVICE void ends_of(uint8_t, int64_t *low, int64_t *high) { *low = 0, *high = 255; }
DEVICE void ends_of(int32_t, int64_t *low, int64_t *high) { *low = -2147483648ll, *high = 2147483647ll; }
DEVICE void ends_of(int64_t, int64_t *low, int64_t *high) { *low = -9223372036854775807ll - 1, *high = ~*low; }
template <class T> DEVICE int64_t saturated(int64_t x)
{
    int64_t low, high;
    ends_of((T)0, &low, &high);
    return x < low ? low : x > high ? high : x;
}
template <class T> DEVICE int64_t saturated(real x)
{
    int64_t low, high;
    ends_of((T)0, &low, &high);
    if (x != x) return 0;
    return x <= (real)low ? low : x >= (real)high ? high : (int64_t)x;
}

// ---- functions of the point-wise rows ----

DEVICE float fn_exp(float x) { return expf(x); }
DEVICE double fn_exp(double x) { return exp(x); }
// 2^x to 22 bits: for numbers that were or will be half.
#ifdef HT_EMULATED
DEVICE float rough_exp2(float x) { return exp2f(x); }
#else
DEVICE float rough_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif
DEVICE float fn_log(float x) { return logf(x); }
DEVICE double fn_log(double x) { return log(x); }
DEVICE float fn_log1p(float x) { return log1pf(x); }
DEVICE double fn_log1p(double x) { return log1p(x); }
DEVICE float fn_sqrt(float x) { return sqrtf(x); }
DEVICE double fn_sqrt(double x) { return sqrt(x); }
DEVICE float fn_sin(float x) { return sinf(x); }
DEVICE double fn_sin(double x) { return sin(x); }
DEVICE float fn_cos(float x) { return cosf(x); }
DEVICE double fn_cos(double x) { return cos(x); }
DEVICE float fn_tanh(float x) { return tanhf(x); }
DEVICE double fn_tanh(double x) { return tanh(x); }
DEVICE float fn_erf(float x) { return erff(x); }
DEVICE double fn_erf(double x) { return erf(x); }
DEVICE float fn_abs(float x) { return fabsf(x); }
DEVICE double fn_abs(double x) { return fabs(x); }
DEVICE float fn_floor(float x) { return floorf(x); }
DEVICE double fn_floor(double x) { return floor(x); }
DEVICE float fn_pow(float x, float y) { return (float)pow((double)x, (double)y); }
DEVICE double fn_pow(double x, double y) { return pow(x, y); }
DEVICE float fn_fma(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double fn_fma(double a, double b, double c) { return fma(a, b, c); }
template <class T> DEVICE T fn_rsqrt(T x) { return (T)1 / fn_sqrt(x); }
// a / b and 2^x within two units in the last place, where the results are normal numbers; smaller ones may become 0.
#ifdef HT_EMULATED
DEVICE float near_quotient(float a, float b) { return a / b; }
DEVICE float near_exp2(float x) { return exp2f(x); }
#else
DEVICE float near_quotient(float a, float b) { return __fdividef(a, b); }
DEVICE float near_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
#endif
DEVICE double near_quotient(double a, double b) { return a / b; }
template <class T> DEVICE T fn_sigmoid(T x)
{
    const T e = fn_exp(-fn_abs(x));
    return near_quotient(x < 0 ? e : (T)1, (T)1 + e);
}
// (1 + tanh u)/2 = 1 / (1 + e^-2u), u = k (x + c x³); the factors are -2k log2 e and that by c.
DEVICE float gelu_gate(float x, float square)
{
    const float power = x * fn_fma(square, -0.1029432395800235f, -2.302208198144325f);
    return near_quotient(1.f, 1.f + near_exp2(power));
}
DEVICE float fn_gelu_tanh(float x) { return x * gelu_gate(x, x * x); }
// gate + x gate (1 - gate) 2u'.
DEVICE float fn_gelu_tanh_slope(float x)
{
    const float square = x * x, gate = gelu_gate(x, square);
    return fn_fma(x * gate * (1.f - gate), fn_fma(square, 0.21406444881780076f, 1.5957691216057308f), gate);
}
DEVICE double fn_gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
DEVICE double fn_gelu_tanh_slope(double x)
{
    const double square = x * x, t = tanh(x * (square * 0.035677408136300125 + 0.79788456080286535588));
    const double tail = x * ((1 - t * t) * (square * 0.10703222440890038 + 0.79788456080286535588));
    return 0.5 * t + 0.5 + 0.5 * tail;
}
template <class T> DEVICE T fn_softplus(T x) { return (x > 0 ? x : (T)0) + fn_log1p(fn_exp(-fn_abs(x))); }
// -1, 1, or x itself where it is a zero or NaN.
template <class T> DEVICE T fn_sign(T x) { return x < 0 ? (T)-1 : x > 0 ? (T)1 : x; }
// NaN if either is.
template <class T> DEVICE T fn_min(T a, T b) { return a < b || a != a ? a : b; }
template <class T> DEVICE T fn_max(T a, T b) { return a > b || a != a ? a : b; }

DEVICE real infinity() { return (real)__uint_as_float(0x7f800000u); }
DEVICE bool is_finite(real x) { return fn_abs(x) < infinity(); }

// ---- a thread's place ----

// Number of this thread in the grid, and how many there are.
DEVICE int64_t thread_number() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
DEVICE int64_t thread_count() { return (int64_t)gridDim.x * blockDim.x; }

// ---- sums over a block ----

struct sum_of {
    static DEVICE_MEMBER real none() { return 0; }
    template <class T> static DEVICE_MEMBER T join(T a, T b) { return a + b; }
};
struct max_of {
    static DEVICE_MEMBER real none() { return -infinity(); }
    template <class T> static DEVICE_MEMBER T join(T a, T b) { return fn_max(a, b); }
};

// Over the 32 threads of a warp, the same in all of them, in a fixed order.
template <class OF> DEVICE real warp_fold(real x)
{
    for (int half = 16; half > 0; half /= 2) x = OF::join(x, __shfl_xor_sync(0xffffffffu, x, half));
    return x;
}

// Over all threads of a block, in a fixed order, the same in all of them. All threads call it, with a whole number of
// warps; it may be called again at once.
template <class OF> DEVICE real block_fold(real x)
{
    __shared__ real of_warp[32];
    int warps = (int)blockDim.x / 32;
    x = warp_fold<OF>(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = x;
    __syncthreads();
    x = OF::none();
    for (int i = 0; i < warps; i++) x = OF::join(x, of_warp[i]);
    return x;
}
DEVICE real block_sum(real x) { return block_fold<sum_of>(x); }
DEVICE real block_max(real x) { return block_fold<max_of>(x); }

// Over the threads whose numbers are equal modulo COLUMNS, in a fixed order; the first COLUMNS threads have the results.
// All THREADS of the block call it; both are powers of two.
template <class OF, int COLUMNS, int THREADS, int N, class T> DEVICE void column_folds(T (&x)[N])
{
    __shared__ T value[N][THREADS];
    const int thread = (int)threadIdx.x;
    __syncthreads();
    for (int k = 0; k < N; k++) value[k][thread] = x[k];
    for (int half = THREADS / 2; half >= COLUMNS; half /= 2) {
        __syncthreads();
        for (int k = 0; k < N && thread < half; k++) value[k][thread] = OF::join(value[k][thread], value[k][thread + half]);
    }
    for (int k = 0; k < N; k++) x[k] = value[k][thread];
}
template <class OF, int COLUMNS, int THREADS, class T> DEVICE T column_fold(T x)
{
    T one[1] = {x};
    column_folds<OF, COLUMNS, THREADS>(one);
    return one[0];
}

// ---- random numbers: the CPU's bits (base/philox.h) ----

struct random_words {
    uint32_t word[4];
};

DEVICE uint64_t random_spread(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

// The key of all numbers of a seed and site.
DEVICE uint64_t random_key(uint64_t seed, uint64_t site)
{
    return random_spread(site ^ random_spread(seed + 0x9e3779b97f4a7c15ull));
}

DEVICE random_words random_block(uint64_t key, uint64_t step, uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)step, c3 = (uint32_t)(step >> 32);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return random_words{{c0, c1, c2, c3}};
}

DEVICE random_words random_block(uint64_t seed, uint64_t step, uint64_t site, uint64_t block)
{
    return random_block(random_key(seed, site), step, block);
}

DEVICE uint32_t random_word(uint64_t key, uint64_t step, uint64_t index)
{
    const random_words w = random_block(key, step, index / 4);
    const uint32_t low = index % 2 ? w.word[1] : w.word[0], high = index % 2 ? w.word[3] : w.word[2];
    return index % 4 < 2 ? low : high;
}

// Element `index` of a stream, in (0, 1).
DEVICE double random_uniform(uint64_t seed, uint64_t step, uint64_t site, uint64_t index)
{
    random_words w = random_block(seed, step, site, index / 4);
    return ((double)w.word[index % 4] + 0.5) * 2.3283064365386962890625e-10;
}
