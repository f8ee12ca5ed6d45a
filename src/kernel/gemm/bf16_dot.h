/* Products of bf16 matrices by instructions that add up pairs: what the driver and its two inner loops share.
 * Packed a: rows BF16_DOT_PITCH elements apart, along k. Packed b: slivers of BF16_DOT_NR columns, element (k, j) at
 * (k / 2 · NR + j) · 2 + k % 2. Both end with zeros up to a multiple of BF16_DOT_STEP. */
#ifndef HT_KERNEL_BF16_DOT_H
#define HT_KERNEL_BF16_DOT_H

#include "base/base.h"

enum {
    BF16_DOT_STEP = 32,                           /* of k that a tile register holds */
    BF16_DOT_NR = 32,                             /* columns of a sliver */
    BF16_DOT_KC = 1024,                           /* of k at a time: rows of a tile and a sliver stay in L2 */
    BF16_DOT_PITCH = BF16_DOT_KC + BF16_DOT_STEP, /* rows do not meet in one cache set */
    BF16_DOT_TILE_N = 8 * BF16_DOT_NR,            /* columns of a tile of y: its sums lie so far apart */
    BF16_DOT_AVX512_ROWS = 14,                    /* rows that an inner loop takes at a time */
    BF16_DOT_AMX_ROWS = 32,
};

/* sum[rows × NR] (rows BF16_DOT_TILE_N apart) = a · b, or += unless it is the first block of k. `rows` is a multiple of the
 * loop's own, depth one of BF16_DOT_STEP; all pointers are aligned to 64 bytes but for a, whose rows are. */
typedef void (*bf16_dot_fn)(float *sum, const uint16_t *a, const uint16_t *b, int64_t rows, int64_t depth, bool first);

void ht_bf16_dot_avx512(float *sum, const uint16_t *a, const uint16_t *b, int64_t rows, int64_t depth, bool first);
void ht_bf16_dot_amx(float *sum, const uint16_t *a, const uint16_t *b, int64_t rows, int64_t depth, bool first);

#endif
