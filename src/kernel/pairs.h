/* Products of bf16 matrices by instructions that add up pairs: what the driver and its two inner loops share.
 * Packed a: rows PAIRS_PITCH elements apart, along k. Packed b: slivers of PAIRS_NR columns, element (k, j) at
 * (k / 2 · NR + j) · 2 + k % 2. Both end with zeros up to a multiple of PAIRS_STEP. */
#ifndef HT_KERNEL_PAIRS_H
#define HT_KERNEL_PAIRS_H

#include "base/base.h"

enum {
    PAIRS_STEP = 32,                     /* of k that a tile register holds */
    PAIRS_NR = 32,                       /* columns of a sliver */
    PAIRS_KC = 1024,                     /* of k at a time: rows of a tile and a sliver stay in L2 */
    PAIRS_PITCH = PAIRS_KC + PAIRS_STEP, /* rows do not meet in one cache set */
    PAIRS_TILE_N = 8 * PAIRS_NR,         /* columns of a tile of y: its sums lie so far apart */
    PAIRS_AVX512_ROWS = 14,              /* rows that an inner loop takes at a time */
    PAIRS_AMX_ROWS = 32,
};

/* sum[rows × NR] (rows PAIRS_TILE_N apart) = a · b, or += unless it is the first block of k. `rows` is a multiple of the
 * loop's own, depth one of PAIRS_STEP; all pointers are aligned to 64 bytes but for a, whose rows are. */
typedef void (*pairs_multiply)(float *sum, const uint16_t *a, const uint16_t *b, int64_t rows, int64_t depth,
                               bool first);

void ht_pairs_multiply_avx512(float *sum, const uint16_t *a, const uint16_t *b, int64_t rows, int64_t depth,
                              bool first);
void ht_pairs_multiply_amx(float *sum, const uint16_t *a, const uint16_t *b, int64_t rows, int64_t depth, bool first);

#endif
