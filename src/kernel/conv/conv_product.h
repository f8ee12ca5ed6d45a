/* The blocked product for conv.cpu.c: total[r,q] = sum over k of left[r,k] right[k,q], for one block of the output at a
 * time. What a block needs of the right operand is gathered (im2col) a step of KC at a time and used at once, out of L2;
 * the whole matrix never exists. For files that are compiled with contraction. */
#ifndef HT_KERNEL_CONV_PRODUCT_H
#define HT_KERNEL_CONV_PRODUCT_H

#include "kernel/simd.h"
#include "op/op.h"

#include <string.h>

enum {
    MR = VEC_REGISTERS == 32 ? 14 : 6, /* rows of a micro-tile at most: its sums fill the registers */
    NR = 2 * VL,                       /* columns of a sliver */
    KC = 128,                          /* depth of a step: a sliver stays in L1 */
    PITCH = KC + 16,                   /* rows of left do not meet in one cache set */
    ROWS = 6 * MR,                     /* of a block, at most */
    SLIVERS = 8,                       /* of a block */
    COLS = SLIVERS * NR,
};

/* Rows are dealt out evenly to blocks and their panels, so that little is multiplied for nothing. */
typedef struct row_split {
    int64_t panel, rows, blocks; /* rows of a panel and of a block; blocks in all */
} row_split;

static inline row_split split_rows(int64_t rows)
{
    int64_t each = ht_tiles(rows, ht_tiles(rows, ROWS)), panels = ht_tiles(each, MR), panel = ht_tiles(each, panels);
    return (row_split){panel, panel * panels, ht_tiles(rows, panel * panels)};
}

/* ---- the micro-kernel ---- */

/* `rows` rows of left, PITCH apart, by one sliver; summed from zero, then added to total, rows `down` apart. Line k of the
 * sliver is at k NR, or at offset[k] where it is read from where it lies; its second half is `half` after the first. */
static inline __attribute__((always_inline)) void micro(real *restrict total, int64_t down, const real *restrict left,
                                                        const real *restrict sliver, const int64_t *restrict offset,
                                                        int64_t half, int64_t depth, const int rows)
{
    vec sum[MR][2];
    for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (int64_t k = 0; k < depth; k++) {
        const real *line = sliver + (offset ? offset[k] : k * NR);
        vec first = *(const vec_unaligned *)line, second = *(const vec_unaligned *)(line + half);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++) {
            vec x = left[r * PITCH + k] - (vec){0}; /* everywhere, sign of zero included */
            sum[r][0] += x * first;
            sum[r][1] += x * second;
        }
    }
    for (int r = 0; r < rows; r++) {
        *(vec *)(total + r * down) += sum[r][0];
        *(vec *)(total + r * down + VL) += sum[r][1];
    }
}

static inline __attribute__((always_inline)) void multiply_panel(real *total, int64_t down, const real *left,
                                                                 const real *sliver, const int64_t *offset,
                                                                 int64_t half, int64_t depth, int64_t rows)
{
    switch (rows) {
    case 1: micro(total, down, left, sliver, offset, half, depth, 1); break;
    case 2: micro(total, down, left, sliver, offset, half, depth, 2); break;
    case 3: micro(total, down, left, sliver, offset, half, depth, 3); break;
    case 4: micro(total, down, left, sliver, offset, half, depth, 4); break;
    case 5: micro(total, down, left, sliver, offset, half, depth, 5); break;
    case 6: micro(total, down, left, sliver, offset, half, depth, 6); break;
    default: break;
    }
    if (MR <= 6) return;
    switch (rows) {
    case 7: micro(total, down, left, sliver, offset, half, depth, MR < 7 ? MR : 7); break;
    case 8: micro(total, down, left, sliver, offset, half, depth, MR < 8 ? MR : 8); break;
    case 9: micro(total, down, left, sliver, offset, half, depth, MR < 9 ? MR : 9); break;
    case 10: micro(total, down, left, sliver, offset, half, depth, MR < 10 ? MR : 10); break;
    case 11: micro(total, down, left, sliver, offset, half, depth, MR < 11 ? MR : 11); break;
    case 12: micro(total, down, left, sliver, offset, half, depth, MR < 12 ? MR : 12); break;
    case 13: micro(total, down, left, sliver, offset, half, depth, MR < 13 ? MR : 13); break;
    case 14: micro(total, down, left, sliver, offset, half, depth, MR < 14 ? MR : 14); break;
    default: break;
    }
}

/* `rows` rows by one sliver: up to whole panels are multiplied, the surplus thrown away later. */
static inline void multiply_packed(real *total, int64_t down, const real *left, const real *sliver, int64_t depth,
                                   int64_t panel, int64_t rows)
{
    for (int64_t r = 0; r < rows; r += panel)
        multiply_panel(total + r * down, down, left + r * PITCH, sliver, NULL, VL, depth, panel);
}

static inline void multiply_lying(real *total, int64_t down, const real *left, const real *sliver,
                                  const int64_t *offset, int64_t half, int64_t depth, int64_t panel, int64_t rows)
{
    for (int64_t r = 0; r < rows; r += panel)
        multiply_panel(total + r * down, down, left + r * PITCH, sliver, offset, half, depth, panel);
}

#endif
