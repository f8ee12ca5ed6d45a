/* From exact sums to results with AVX-512, for the files of its features: the same steps as int8_finish.h, and the same bits. */
#ifndef HT_KERNEL_INT8_FINISH_AVX512_H
#define HT_KERNEL_INT8_FINISH_AVX512_H

#include <immintrin.h>

#include "kernel/gemm/int8_gemm.h"

enum { INT8_HALF = INT8_NR / 2 }; /* columns of a register */

/* What is the same for all rows. */
typedef struct int8_columns {
    __m512i sum;        /* of the column; where rows are alike, times their zero point */
    __m512 scale, bias; /* scale: likewise, times theirs */
    __m512 inverse, low, high;
    __m512i zero;
    __m512 residual_scale, residual_zero;
    __mmask16 there;
} int8_columns;

static inline __attribute__((always_inline)) int8_columns int8_take_columns(const int8_results *r, int half, bool bias)
{
    int64_t first = half * INT8_HALF, columns = r->columns - first;
    __mmask16 there = columns >= INT8_HALF ? 0xffff : columns <= 0 ? 0 : (__mmask16)((1u << columns) - 1);
    int8_columns c = {
        .sum = _mm512_loadu_si512(r->column_sum + first),
        .scale = _mm512_loadu_ps(r->column_scale + first),
        .bias = bias ? _mm512_maskz_loadu_ps(there, r->bias + first) : _mm512_setzero_ps(),
        .inverse = _mm512_set1_ps(r->coding.inverse),
        .low = _mm512_set1_ps(r->coding.low),
        .high = _mm512_set1_ps(r->coding.high),
        .zero = _mm512_set1_epi32(r->coding.zero),
        .residual_scale = _mm512_set1_ps(r->residual_scale),
        .residual_zero = _mm512_set1_ps(r->residual_zero),
        .there = there,
    };
    if (!r->rows_alike) return c;
    c.sum = _mm512_mullo_epi32(c.sum, _mm512_set1_epi32(r->row_zero[0]));
    c.scale = _mm512_mul_ps(_mm512_set1_ps(r->row_scale[0]), c.scale);
    return c;
}

/* The residual, or what its codes stand for. */
static inline __attribute__((always_inline)) __m512 int8_residual(const int8_results *r, const int8_columns *c,
                                                                  int64_t row, int half)
{
    const char *from = r->residual + row * r->residual_pitch;
    if (r->residual_dtype == HT_F32)
        return _mm512_maskz_loadu_ps(c->there, (const float *)(const void *)from + half * INT8_HALF);
    __m128i codes = _mm_maskz_loadu_epi8(c->there, from + half * INT8_HALF);
    __m512i wide = r->residual_dtype == HT_I8 ? _mm512_cvtepi8_epi32(codes) : _mm512_cvtepu8_epi32(codes);
    return _mm512_mul_ps(_mm512_sub_ps(_mm512_cvtepi32_ps(wide), c->residual_zero), c->residual_scale);
}

static inline __attribute__((always_inline)) void
int8_finish_half(const int8_results *r, const int8_columns *c, int64_t row, int half, bool alike, bool bias, bool codes)
{
    __m512i sum = _mm512_load_si512(r->sums + row * INT8_TILE_N + half * INT8_HALF), shift = c->sum;
    __m512 scale = c->scale;
    if (!alike) {
        shift = _mm512_mullo_epi32(shift, _mm512_set1_epi32(r->row_zero[row]));
        scale = _mm512_mul_ps(_mm512_set1_ps(r->row_scale[row * r->scale_step]), scale);
    }
    __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, shift)), scale);
    char *y = r->y + row * r->y_pitch;
    if (bias) value = _mm512_add_ps(value, c->bias);
    if (r->residual) value = _mm512_add_ps(value, int8_residual(r, c, row, half));
    if (!codes) {
        _mm512_mask_storeu_ps((float *)(void *)y + half * INT8_HALF, c->there, value);
        return;
    }
    /* The order of operands decides that NaN becomes the lowest code. */
    value = _mm512_min_ps(_mm512_max_ps(_mm512_mul_ps(value, c->inverse), c->low), c->high);
    __m512i code = _mm512_add_epi32(_mm512_cvtps_epi32(value), c->zero);
    _mm_mask_storeu_epi8(y + half * INT8_HALF, c->there, _mm512_cvtepi32_epi8(code));
}

static inline __attribute__((always_inline)) void int8_finish_each(const int8_results *r, int64_t rows, bool alike,
                                                                   bool bias, bool codes)
{
    const int8_columns left = int8_take_columns(r, 0, bias), right = int8_take_columns(r, 1, bias);
    for (int64_t row = 0; row < rows; row++) {
        int8_finish_half(r, &left, row, 0, alike, bias, codes);
        int8_finish_half(r, &right, row, 1, alike, bias, codes);
    }
}

static inline __attribute__((always_inline)) void int8_finish_as(const int8_results *r, int64_t rows, bool alike,
                                                                 bool bias)
{
    if (r->dtype == HT_F32)
        int8_finish_each(r, rows, alike, bias, false);
    else
        int8_finish_each(r, rows, alike, bias, true);
}

static void int8_finish_avx512(const int8_results *r, int64_t rows)
{
    if (r->rows_alike && r->bias)
        int8_finish_as(r, rows, true, true);
    else if (r->rows_alike)
        int8_finish_as(r, rows, true, false);
    else if (r->bias)
        int8_finish_as(r, rows, false, true);
    else
        int8_finish_as(r, rows, false, false);
}

#endif
