/* From exact sums to results, for the files of each instruction set: y = (sum - zero · column sum) · scales + bias + residual in f32,
 * and where y is codes rounded to them. The loops are for the compiler to vectorise; the bits are the same in every build. */
#ifndef HT_KERNEL_INT8_FINISH_H
#define HT_KERNEL_INT8_FINISH_H

#include "kernel/gemm/int8_gemm.h"

static inline __attribute__((always_inline)) float int8_value(const int8_results *r, const int32_t *restrict sums,
                                                              float scale, int32_t zero, bool bias, int64_t j)
{
    /* Unsigned: it wraps where a zero point is no code. */
    int32_t sum = (int32_t)((uint32_t)sums[j] - (uint32_t)zero * (uint32_t)r->column_sum[j]);
    float value = (float)sum * (scale * r->column_scale[j]);
    return bias ? value + r->bias[j] : value;
}

static inline __attribute__((always_inline)) void int8_add_residual(const int8_results *r, float *restrict line,
                                                                    int64_t row, int64_t columns)
{
    const char *from = r->residual + row * r->residual_pitch;
    const float *numbers = (const float *)(const void *)from;
    const int8_t *i8 = (const int8_t *)from;
    const uint8_t *u8 = (const uint8_t *)from;
    float scale = r->residual_scale, zero = r->residual_zero;
    if (r->residual_dtype == HT_F32)
        for (int64_t j = 0; j < columns; j++) line[j] += numbers[j];
    else if (r->residual_dtype == HT_I8)
        for (int64_t j = 0; j < columns; j++) line[j] += ((float)i8[j] - zero) * scale;
    else
        for (int64_t j = 0; j < columns; j++) line[j] += ((float)u8[j] - zero) * scale;
}

static inline __attribute__((always_inline)) void int8_finish_rows(const int8_results *r, int64_t rows, int64_t columns,
                                                                   bool bias, ht_dtype dtype)
{
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *sums = r->sums + i * INT8_TILE_N;
        float scale = r->row_scale[i * r->scale_step], line[INT8_NR];
        int32_t zero = r->row_zero[i];
        char *y = r->y + i * r->y_pitch;
        for (int64_t j = 0; j < columns; j++) line[j] = int8_value(r, sums, scale, zero, bias, j);
        if (r->residual) int8_add_residual(r, line, i, columns);
        if (dtype == HT_F32) {
            memcpy(y, line, (size_t)columns * sizeof *line);
        } else { /* the bytes of both code types are the same */
            uint8_t codes[INT8_NR];
            ht_coding coding = r->coding;
            for (int64_t j = 0; j < columns; j++) codes[j] = (uint8_t)ht_code_of(&coding, line[j]);
            memcpy(y, codes, (size_t)columns);
        }
    }
}

static inline __attribute__((always_inline)) void int8_finish_columns(const int8_results *r, int64_t rows,
                                                                      int64_t columns)
{
    if (r->dtype == HT_F32 && r->bias)
        int8_finish_rows(r, rows, columns, true, HT_F32);
    else if (r->dtype == HT_F32)
        int8_finish_rows(r, rows, columns, false, HT_F32);
    else if (r->bias)
        int8_finish_rows(r, rows, columns, true, HT_I8);
    else
        int8_finish_rows(r, rows, columns, false, HT_I8);
}

/* Whole slivers apart, so that their loops have a known length. */
static void int8_finish(const int8_results *r, int64_t rows)
{
    if (r->columns == INT8_NR)
        int8_finish_columns(r, rows, INT8_NR);
    else
        int8_finish_columns(r, rows, r->columns);
}

#endif
