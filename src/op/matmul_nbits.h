/* Weights as codes of 4 or 8 bits: how the op matmul_nbits stores them, for its reference, its kernels and who makes them.
 * A matrix [k, n] of k inputs and n outputs is words of 32 bits, i32[⌈k / per⌉, n]: `per` = 32 / bits inputs of one output, the
 * first of them in the lowest bits. Bits beyond the last input are any. */
#ifndef HT_OP_MATMUL_NBITS_H
#define HT_OP_MATMUL_NBITS_H

#include "graph/graph.h"

/* Inputs of a word. */
static inline int64_t ht_nbits_per_word(int bits)
{
    return 32 / bits;
}

static inline ht_type ht_nbits_type(int bits, int64_t k, int64_t n)
{
    int64_t per = ht_nbits_per_word(bits), dim[2] = {(k + per - 1) / per, n};
    return ht_type_make(HT_I32, 2, dim);
}

/* Where the code of (row, column) lies: its word, and the bits below it. */
static inline int64_t ht_nbits_at(int bits, int64_t n, int64_t row, int64_t column, int *shift)
{
    int64_t per = ht_nbits_per_word(bits);
    *shift = (int)(row % per) * bits;
    return row / per * n + column;
}

/* The zero point of codes that have none: the middle. */
static inline int ht_nbits_middle(int bits)
{
    return 1 << (bits - 1);
}

static inline int64_t ht_nbits_groups(int64_t k, int64_t group)
{
    return k / group + (k % group != 0);
}

/* ---- codes of a matrix, one by one ---- */

typedef struct ht_nbits_format {
    int bits;       /* 4 or 8 */
    int64_t group;  /* inputs that share a scale, at least 1 */
    bool symmetric; /* every zero point is the middle */
} ht_nbits_format;

/* What stands for a matrix w[k, n] of k inputs and n outputs: w[i, j] ≈ a_scale[i] (codes[i, j] - zero[g, j]) scale[g, j],
 * g = i / group. The arrays are the caller's. */
typedef struct ht_nbits_codes {
    ht_nbits_format format;
    int64_t k, n, groups;
    uint8_t *codes; /* [k, n], a byte each */
    float *scale;   /* [groups, n] */
    uint8_t *zero;  /* [groups, n] */
    float *a_scale; /* [k] */
} ht_nbits_codes;

/* Round to nearest. w is row-major f32[k, n] and finite; a_scale is neither read nor written.
 *
 * The scale and the zero point of a group of a column: the span of its weights, 0 included, over the codes, or, symmetric, the
 * largest magnitude over those above the middle. `importance`, by row, is what the square of an error there counts; with it
 * the range is narrower where that makes their sum smaller. NULL: never. */
void ht_nbits_fit(ht_nbits_codes *codes, const float *w, int64_t group, int64_t column, const double *importance);
/* The nearest code, and the value that it stands for, without a_scale. */
uint8_t ht_nbits_code(const ht_nbits_codes *codes, int64_t group, int64_t column, float x, float *value);
/* Both, for columns [first, end). */
void ht_nbits_round(ht_nbits_codes *codes, const float *w, const double *importance, int64_t first, int64_t end);

float ht_nbits_value(const ht_nbits_codes *codes, int64_t row, int64_t column);
/* codes to and from words. */
void ht_nbits_pack(const ht_nbits_codes *codes, int32_t *to);
void ht_nbits_unpack(ht_nbits_codes *codes, const int32_t *from);

#endif
