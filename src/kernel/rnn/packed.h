/* A few rows times a matrix that is packed once and used many times, as recurrent steps do. For *.cpu.c files that are
 * compiled with contraction. */
#ifndef HT_KERNEL_PACKED_H
#define HT_KERNEL_PACKED_H

#include "kernel/cpu.h"

enum {
    PACKED_BYTES = HT_ISA_ID == HT_ISA_AVX512 ? 64
                   : HT_ISA_ID == HT_ISA_AVX2 ? 32
                                              : 16,
    PACKED_HALF = PACKED_BYTES / sizeof(real), /* columns in a vector */
    PACKED_WIDTH = 2 * PACKED_HALF,            /* columns of a sliver: element (k, j) at k·WIDTH + j */
    PACKED_ROWS = HT_ISA_ID == HT_ISA_AVX512 ? 8 : 4,
};

typedef real packed_vec __attribute__((vector_size(PACKED_BYTES)));

/* `count` rows of a, a_row apart, by one sliver, in the order of k. The two halves of the result's rows go to `left` and
 * `right`, to_row apart. */
static inline __attribute__((always_inline)) void packed_rows(real *left, real *right, int64_t to_row,
                                                              const real *restrict a, int64_t a_row,
                                                              const real *restrict b, int64_t depth, const int count)
{
    packed_vec sum[PACKED_ROWS][2];
    for (int r = 0; r < count; r++) sum[r][0] = sum[r][1] = (packed_vec){0};
    for (int64_t k = 0; k < depth; k++) {
        packed_vec first = *(const packed_vec *)(b + k * PACKED_WIDTH);
        packed_vec second = *(const packed_vec *)(b + k * PACKED_WIDTH + PACKED_HALF);
#pragma GCC unroll 16
        for (int r = 0; r < count; r++) {
            packed_vec x = a[r * a_row + k] - (packed_vec){0}; /* everywhere, sign of zero included */
            sum[r][0] += x * first;
            sum[r][1] += x * second;
        }
    }
    for (int r = 0; r < count; r++) {
        *(packed_vec *)(left + r * to_row) = sum[r][0];
        *(packed_vec *)(right + r * to_row) = sum[r][1];
    }
}

/* The same for up to PACKED_ROWS rows. Each row's bits are those that it would have alone. */
static inline void packed_product(real *left, real *right, int64_t to_row, const real *a, int64_t a_row, const real *b,
                                  int64_t depth, int64_t rows)
{
    if (rows == PACKED_ROWS) {
        packed_rows(left, right, to_row, a, a_row, b, depth, PACKED_ROWS);
        return;
    }
    int64_t r = 0;
    for (; r + PACKED_ROWS / 2 <= rows; r += PACKED_ROWS / 2)
        packed_rows(left + r * to_row, right + r * to_row, to_row, a + r * a_row, a_row, b, depth, PACKED_ROWS / 2);
    for (; r < rows; r++) packed_rows(left + r * to_row, right + r * to_row, to_row, a + r * a_row, a_row, b, depth, 1);
}

#endif
