/* The inner loop of products of codes with AVX512_VNNI: 14 rows by 32 columns in registers. vpdpbusd adds four products of u8 and
 * i8 to each i32 lane, exactly. */
#include "kernel/gemm/int8_finish_avx512.h"

enum { ROWS = INT8_VNNI_ROWS, VECTOR = 16 };

/* Four elements of a row, in every lane. */
static inline __m512i broadcast_quad(const uint8_t *a)
{
    int32_t bits;
    memcpy(&bits, a, sizeof bits);
    return _mm512_set1_epi32(bits);
}

void ht_int8_dot_vnni(const int8_block *block)
{
    const uint8_t *a = block->a;
    const int8_t *b = block->b;
    int64_t pitch = block->a_pitch;
    __m512i left[ROWS], right[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        const int32_t *sums = block->sums + r * INT8_TILE_N;
        left[r] = block->first ? _mm512_setzero_si512() : _mm512_load_si512(sums);
        right[r] = block->first ? _mm512_setzero_si512() : _mm512_load_si512(sums + VECTOR);
    }
    for (int64_t k = 0; k < block->depth; k += 4, a += 4, b += 4 * INT8_NR) {
        __m512i x = _mm512_load_si512(b), y = _mm512_load_si512(b + 4 * VECTOR);
#pragma GCC unroll 16
        for (int r = 0; r < ROWS; r++) {
            __m512i quad = broadcast_quad(a + r * pitch);
            left[r] = _mm512_dpbusd_epi32(left[r], quad, x);
            right[r] = _mm512_dpbusd_epi32(right[r], quad, y);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        _mm512_store_si512(block->sums + r * INT8_TILE_N, left[r]);
        _mm512_store_si512(block->sums + r * INT8_TILE_N + VECTOR, right[r]);
    }
}

void ht_int8_finish_vnni(const int8_results *results, int64_t rows)
{
    int8_finish_avx512(results, rows);
}
