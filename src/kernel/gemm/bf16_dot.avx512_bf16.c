/* The inner loop of bf16 products with AVX512_BF16: 14 rows by 32 columns in registers.
 * vdpbf16ps adds two products to each f32 lane, the odd one first, and takes subnormal numbers for zero. */
#include <immintrin.h>

#include "kernel/gemm/bf16_dot.h"

enum { ROWS = BF16_DOT_AVX512_ROWS, VECTOR = 16 };

/* Two elements of a row, in every lane. */
static inline __m512bh broadcast_bf16_pair(const uint16_t *a)
{
    int32_t bits;
    memcpy(&bits, a, sizeof bits);
    return (__m512bh)_mm512_set1_epi32(bits);
}

static void multiply_sliver(bf16_strip *s, float *sums, const uint16_t *b)
{
    const uint16_t *a = s->a;
    int64_t a_pitch = s->a_pitch;
    __m512 left[ROWS], right[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        left[r] = s->first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * BF16_DOT_TILE_N);
        right[r] = s->first ? _mm512_setzero_ps() : _mm512_load_ps(sums + r * BF16_DOT_TILE_N + VECTOR);
    }
    for (int64_t k = 0; k < s->depth; k += BF16_DOT_STEP) {
        prefetch_some(s->next);
        for (int64_t pair = 0; pair < BF16_DOT_STEP / 2; pair++, a += 2, b += 2 * BF16_DOT_NR) {
            __m512bh x = (__m512bh)_mm512_load_si512(b), y = (__m512bh)_mm512_load_si512(b + 2 * VECTOR);
#pragma GCC unroll 16
            for (int r = 0; r < ROWS; r++) {
                __m512bh both = broadcast_bf16_pair(a + r * a_pitch);
                left[r] = _mm512_dpbf16_ps(left[r], both, x);
                right[r] = _mm512_dpbf16_ps(right[r], both, y);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        _mm512_store_ps(sums + r * BF16_DOT_TILE_N, left[r]);
        _mm512_store_ps(sums + r * BF16_DOT_TILE_N + VECTOR, right[r]);
    }
}

void ht_bf16_dot_avx512(bf16_strip *strip)
{
    for (int64_t j = 0; j < strip->slivers; j++)
        multiply_sliver(strip, strip->sums + j * BF16_DOT_NR, strip->b + j * BF16_DOT_KC * BF16_DOT_NR);
}
