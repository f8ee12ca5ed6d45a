/* The inner loop of products of codes with AVX512_VNNI: up to 14 rows by 32 columns in registers. vpdpbusd adds four products of u8
 * and i8 to each i32 lane, exactly. Few rows wait for b, so they are not filled up to 14. */
#include "kernel/gemm/int8_finish_avx512.h"

enum { ROWS = INT8_VNNI_ROWS, VECTOR = 16 };

/* Four elements of a row, in every lane. */
static inline __m512i broadcast_quad(const uint8_t *a)
{
    int32_t bits;
    memcpy(&bits, a, sizeof bits);
    return _mm512_set1_epi32(bits);
}

static inline __attribute__((always_inline)) void dot_rows(const int8_block *block, const int rows)
{
    const uint8_t *a = block->a;
    const int8_t *b = block->b;
    int64_t pitch = block->a_pitch;
    __m512i left[ROWS], right[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        const int32_t *sums = block->sums + r * INT8_TILE_N;
        left[r] = block->first ? _mm512_setzero_si512() : _mm512_load_si512(sums);
        right[r] = block->first ? _mm512_setzero_si512() : _mm512_load_si512(sums + VECTOR);
    }
    for (int64_t k = 0; k < block->depth; k += 4, a += 4, b += 4 * INT8_NR) {
        __m512i x = _mm512_load_si512(b), y = _mm512_load_si512(b + 4 * VECTOR);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            __m512i quad = broadcast_quad(a + r * pitch);
            left[r] = _mm512_dpbusd_epi32(left[r], quad, x);
            right[r] = _mm512_dpbusd_epi32(right[r], quad, y);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < rows; r++) {
        _mm512_store_si512(block->sums + r * INT8_TILE_N, left[r]);
        _mm512_store_si512(block->sums + r * INT8_TILE_N + VECTOR, right[r]);
    }
}

void ht_int8_dot_vnni(const int8_block *block)
{
    int64_t rows = block->rows;
    if (rows == 1)
        dot_rows(block, 1);
    else if (rows == 2)
        dot_rows(block, 2);
    else if (rows <= 4)
        dot_rows(block, 4);
    else if (rows <= 8)
        dot_rows(block, 8);
    else
        dot_rows(block, ROWS);
}

void ht_int8_finish_vnni(const int8_results *results, int64_t rows)
{
    int8_finish_avx512(results, rows);
}
