/* Multiply-add of neighbours: the products of i16 lanes, added in pairs to i32 lanes. Exact but for two products of
 * -32768 by itself. */
#ifndef HT_BASE_MADD_H
#define HT_BASE_MADD_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Vectors of 16, 32 or 64 bytes as i32; their halves are the i16 that are multiplied. */
#define HT_MADD_VECTOR(bytes) int32_t __attribute__((vector_size(bytes)))

/* sums += the pairs of a · b, modulo 2^32: a sum that fits in the end may leave the range on the way. */
#if defined(__AVX512BW__)
#define HT_MADD(sums, a, b)                                                                                            \
    ((sums) = (__typeof__(sums))_mm512_add_epi32((__m512i)(sums), _mm512_madd_epi16((__m512i)(a), (__m512i)(b))))
#elif defined(__AVX2__)
#define HT_MADD(sums, a, b)                                                                                            \
    ((sums) = (__typeof__(sums))_mm256_add_epi32((__m256i)(sums), _mm256_madd_epi16((__m256i)(a), (__m256i)(b))))
#elif defined(__SSE2__)
#define HT_MADD(sums, a, b)                                                                                            \
    ((sums) = (__typeof__(sums))_mm_add_epi32((__m128i)(sums), _mm_madd_epi16((__m128i)(a), (__m128i)(b))))
#else
#define HT_MADD(sums, a, b)                                                                                            \
    __extension__({                                                                                                    \
        typedef uint32_t ht_madd_sums __attribute__((vector_size(sizeof(sums))));                                      \
        (sums) = (__typeof__(sums))((ht_madd_sums)(sums) + (ht_madd_sums)(((a) << 16 >> 16) * ((b) << 16 >> 16)) +     \
                                    (ht_madd_sums)(((a) >> 16) * ((b) >> 16)));                                        \
    })
#endif

#endif
