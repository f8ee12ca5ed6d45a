/* A few rows times a matrix that is packed once and used many times, as recurrent steps do. For *.cpu.c files that are
 * compiled with contraction. */
#ifndef HT_KERNEL_PACKED_H
#define HT_KERNEL_PACKED_H

#include "kernel/simd.h"

enum {
    PACKED_WIDTH = 2 * VL, /* columns of a sliver: element (k, j) at k·WIDTH + j */
    PACKED_ROWS = VEC_REGISTERS == 32 ? 8 : 4,
};

/* `count` rows of a, a_row apart, by one sliver, in the order of k. The two halves of the result's rows go to `left` and
 * `right`, to_row apart. */
static inline __attribute__((always_inline)) void packed_rows(real *left, real *right, int64_t to_row,
                                                              const real *restrict a, int64_t a_row,
                                                              const real *restrict b, int64_t depth, const int count)
{
    vec sum[PACKED_ROWS][2];
    for (int r = 0; r < count; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (int64_t k = 0; k < depth; k++) {
        vec first = *(const vec *)(b + k * PACKED_WIDTH);
        vec second = *(const vec *)(b + k * PACKED_WIDTH + VL);
#pragma GCC unroll 16
        for (int r = 0; r < count; r++) {
            vec x = a[r * a_row + k] - (vec){0}; /* everywhere, sign of zero included */
            sum[r][0] += x * first;
            sum[r][1] += x * second;
        }
    }
    for (int r = 0; r < count; r++) {
        *(vec *)(left + r * to_row) = sum[r][0];
        *(vec *)(right + r * to_row) = sum[r][1];
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
