/* Number formats below f32. f16 and bf16 are structs of bits, so that `+` on them does not compile.
 * Conversions round to nearest even; NaN stays NaN (quiet, sign kept); f8 casts saturate (also for inf), as training
 * wants; the bits are tested exhaustively. */
#ifndef HT_BASE_HALF_H
#define HT_BASE_HALF_H

#include <halftone/types.h>

#if defined(__F16C__) || defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <string.h>

typedef struct ht_f16 {
    uint16_t bits;
} ht_f16;
typedef struct ht_bf16 {
    uint16_t bits;
} ht_bf16;
typedef struct ht_f8e4m3 {
    uint8_t bits;
} ht_f8e4m3;
typedef struct ht_f8e5m2 {
    uint8_t bits;
} ht_f8e5m2;

static inline uint32_t ht_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float ht_f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* a where the condition holds, else b. Masks instead of `?:`, because compilers turn `?:` into jumps when they may not
 * assume that float operations never trap, and a loop with jumps is not vectorised. */
static inline uint32_t ht_bits_pick(int condition, uint32_t a, uint32_t b)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

/* The four conversions that kernels loop over are here, free of branches, so that they vectorise. They give the bits
 * that F16C and AVX-512 BF16 give for every input but f32 subnormals (which VCVTNEPS2BF16 flushes and we keep). */
static inline float ht_f16_to_f32(ht_f16 x)
{
    uint32_t shifted = ((uint32_t)x.bits & 0x7fffu) << 13;
    uint32_t normal = shifted + ((127u - 15u) << 23);
    uint32_t special = shifted | 0x7f800000u;
    /* A subnormal's fraction m, put under the exponent of 2^-14, reads 2^-14 + m 2^-24; the subtraction is exact. */
    uint32_t tiny = ht_f32_bits(ht_f32_from_bits(shifted + (113u << 23)) - 0x1p-14f);
    uint32_t magnitude = ht_bits_pick(shifted < 0x00800000u, tiny, normal);
    magnitude = ht_bits_pick(shifted >= 0x0f800000u, special, magnitude);
    magnitude |= ht_bits_pick(shifted > 0x0f800000u, 0x00400000u, 0); /* a NaN becomes quiet */
    return ht_f32_from_bits(magnitude | ((uint32_t)x.bits & 0x8000u) << 16);
}

static inline ht_f16 ht_f16_from_f32(float x)
{
    uint32_t bits = ht_f32_bits(x), magnitude = bits & 0x7fffffffu;
    uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
    /* Floats in [0.5, 1) are 2^-24 apart, the step of f16 subnormals: adding 0.5 rounds to it. */
    uint32_t tiny = ht_f32_bits(ht_f32_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t nan = 0x7e00u | (magnitude >> 13 & 0x01ffu);
    uint32_t half = ht_bits_pick(magnitude < 0x38800000u, tiny, normal);
    half = ht_bits_pick(magnitude >= 0x477ff000u, 0x7c00u, half); /* 65520 and more round to infinity */
    half = ht_bits_pick(magnitude > 0x7f800000u, nan, half);
    return (ht_f16){(uint16_t)(half | (bits >> 16 & 0x8000u))};
}

/* Whole lines of f16: by the processor's own conversion where the build may use it; the same bits (tested). */
static inline void ht_f16_line_to_f32(float *restrict to, const ht_f16 *restrict from, int64_t n)
{
    int64_t whole = 0; /* the compiler sees that nothing is left of a whole number of vectors */
#if defined(__AVX512F__)
    whole = n / 16 * 16;
    for (int64_t i = 0; i < whole; i += 16)
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(from + i))));
#elif defined(__F16C__)
    whole = n / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
#endif
    for (int64_t i = whole; i < n; i++) to[i] = ht_f16_to_f32(from[i]);
}

static inline void ht_f16_line_from_f32(ht_f16 *restrict to, const float *restrict from, int64_t n)
{
    int64_t whole = 0;
#if defined(__AVX512F__)
    whole = n / 16 * 16;
    for (int64_t i = 0; i < whole; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(to + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
    whole = n / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#endif
    for (int64_t i = whole; i < n; i++) to[i] = ht_f16_from_f32(from[i]);
}

static inline float ht_bf16_to_f32(ht_bf16 x)
{
    return ht_f32_from_bits((uint32_t)x.bits << 16);
}

/* Whole lines of bf16; for a constant n of one vector they stay in registers, which no portable text achieves. */
static inline void ht_bf16_line_to_f32(float *restrict to, const ht_bf16 *restrict from, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + 16 <= n; i += 16) {
        __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(from + i)));
        _mm512_storeu_si512(to + i, _mm512_slli_epi32(wide, 16));
    }
#elif defined(__AVX2__)
    for (; i + 8 <= n; i += 8) {
        __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(from + i)));
        _mm256_storeu_si256((__m256i *)(void *)(to + i), _mm256_slli_epi32(wide, 16));
    }
#endif
    for (; i < n; i++) to[i] = ht_bf16_to_f32(from[i]);
}

static inline ht_bf16 ht_bf16_from_f32(float x)
{
    uint32_t bits = ht_f32_bits(x);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = bits >> 16 | 0x0040u;
    return (ht_bf16){(uint16_t)ht_bits_pick((bits & 0x7fffffffu) > 0x7f800000u, nan, rounded)};
}

#if defined(__AVX512F__)
static inline __m512i ht_bf16_round(const float *from)
{
    __m512 x = _mm512_loadu_ps(from);
    __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, high, _mm512_set1_epi32(0x40));
}
#endif

/* Whole lines: 32 at a time, so that a full vector is stored. */
static inline void ht_bf16_line_from_f32(ht_bf16 *restrict to, const float *restrict from, int64_t n)
{
    int64_t whole = 0;
#if defined(__AVX512F__)
    whole = n / 32 * 32;
    for (int64_t i = 0; i < whole; i += 32) {
        __m256i low = _mm512_cvtepi32_epi16(ht_bf16_round(from + i));
        __m256i high = _mm512_cvtepi32_epi16(ht_bf16_round(from + i + 16));
        _mm512_storeu_si512(to + i, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1));
    }
#endif
    for (int64_t i = whole; i < n; i++) to[i] = ht_bf16_from_f32(from[i]);
}

float ht_f8e4m3_to_f32(ht_f8e4m3 x);
ht_f8e4m3 ht_f8e4m3_from_f32(float x);
float ht_f8e5m2_to_f32(ht_f8e5m2 x);
ht_f8e5m2 ht_f8e5m2_from_f32(float x);

/* Straight from f64, rounded once (f64 → f32 → f16 would round twice). */
ht_f16 ht_f16_from_f64(double x);
ht_bf16 ht_bf16_from_f64(double x);
ht_f8e4m3 ht_f8e4m3_from_f64(double x);
ht_f8e5m2 ht_f8e5m2_from_f64(double x);

/* The value that x becomes when stored as dtype: the rounding itself. Integers truncate toward zero and saturate,
 * NaN becomes 0; bool is x != 0. */
double ht_round_to(ht_dtype dtype, double x);
/* One element of an array of dtype, as f64 (i64 beyond 2^53 rounds). */
double ht_load_f64(const void *array, ht_dtype dtype, int64_t index);
void ht_store_f64(void *array, ht_dtype dtype, int64_t index, double x);

#endif
