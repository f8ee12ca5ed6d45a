/* Products of bf16 matrices by instructions that add up pairs: what the driver and its two inner loops share.
 * a: rows along k. Packed b: slivers of BF16_DOT_NR columns, element (k, j) at (k / 2 · NR + j) · 2 + k % 2. What is packed
 * ends with zeros up to a multiple of BF16_DOT_STEP. */
#ifndef HT_KERNEL_BF16_DOT_H
#define HT_KERNEL_BF16_DOT_H

#include "base/base.h"
#include "kernel/gemm/prefetch.h"

enum {
    BF16_DOT_STEP = 32,                           /* of k that a tile register holds */
    BF16_DOT_NR = 32,                             /* columns of a sliver */
    BF16_DOT_KC = 1024,                           /* of k at a time: slivers of a tile stay in L2 */
    BF16_DOT_PITCH = BF16_DOT_KC + BF16_DOT_STEP, /* between packed rows of a: they do not meet in one cache set */
    BF16_DOT_TILE_N = 8 * BF16_DOT_NR,            /* columns of a tile of y, at most: its sums lie so far apart */
    BF16_DOT_AVX512_ROWS = 14,                    /* rows of a strip, which an inner loop takes at a time */
    BF16_DOT_AMX_ROWS = 32,
};

/* A strip of a tile, one block of k: sums[rows × slivers · NR] (rows BF16_DOT_TILE_N apart) = a · b, or += unless it is
 * the first block. depth is a multiple of BF16_DOT_STEP; sums and b are aligned to 64 bytes. */
typedef struct bf16_strip {
    float *sums;
    const uint16_t *a;
    int64_t a_pitch;   /* elements from row to row */
    const uint16_t *b; /* slivers, BF16_DOT_KC · BF16_DOT_NR elements apart */
    int64_t slivers, depth;
    bool first;
    prefetch next[2]; /* some of it at every BF16_DOT_STEP of k and sliver */
} bf16_strip;

typedef void (*bf16_dot_fn)(bf16_strip *strip);

void ht_bf16_dot_avx512(bf16_strip *strip);
void ht_bf16_dot_amx(bf16_strip *strip);

#endif
