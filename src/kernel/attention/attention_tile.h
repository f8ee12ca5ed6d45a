/* What attention does inside a tile of queries by keys, in registers: products of panels, and sums over rows.
 * Rows of q, k, v and dy are kept in slabs of SLAB columns, so that a row of a slab has a pitch that the compiler knows:
 * element (i, d) of `rows` rows lies at (d / SLAB · rows + i) · SLAB + d % SLAB. Scores and what has their shape lie
 * KEYS apart; sums over keys or queries at a pitch of their own, a multiple of VL.
 * Everything starts at a multiple of 64 bytes. */
#ifndef HT_KERNEL_ATTENTION_TILE_H
#define HT_KERNEL_ATTENTION_TILE_H

#include "kernel/simd.h"

enum {
    MR = VEC_REGISTERS == 32 ? 12 : 6, /* rows of a micro-tile of 2 VL columns: its sums fill the registers */
    QUERIES = 96,                      /* of a tile; a multiple of MR */
    KEYS = 192,                        /* of a tile; a multiple of MR and of 2 VL */
    SLAB = 64,
};

#define INLINE static inline __attribute__((always_inline))
/* Work on a whole tile: a function of its own, so that its loops have the registers to themselves. */
#define TILE_FUNCTION static __attribute__((noinline))

/* Up to a whole number of vectors. */
static inline int64_t whole_vectors(int64_t n)
{
    return (n + VL - 1) / VL * VL;
}

/* ---- buffers ---- */

/* Cuts buffers out of a workspace; with no start it only counts. */
typedef struct scratch {
    real *start;
    int64_t used;
} scratch;

static inline real *take(scratch *from, int64_t elems)
{
    real *start = from->start ? from->start + from->used : NULL;
    from->used += (elems + 15) / 16 * 16;
    return start;
}

/* Rows in slabs. */
static inline real *take_rows(scratch *from, int64_t count, int64_t width)
{
    return take(from, ht_tiles(width, SLAB) * SLAB * count);
}

/* ---- products ---- */

/* c[MR, wide VL] (+)= a[MR, depth] b[depth, wide VL]; element (i, p) of a lies at a[i a_row + p a_step]. All but the
 * pitches of b and c and the depth are constants at each call. */
INLINE void micro(real *c, int64_t c_pitch, const real *restrict a, int64_t a_row, int64_t a_step,
                  const real *restrict b, int64_t b_pitch, int64_t depth, int wide, bool add)
{
    vec sum[MR][2];
    for (int r = 0; r < MR; r++)
        for (int v = 0; v < wide; v++) sum[r][v] = add ? *(const vec *)(c + r * c_pitch + v * VL) : (vec){0};
    for (int64_t p = 0; p < depth; p++) {
        vec right[2];
        for (int v = 0; v < wide; v++) right[v] = *(const vec *)(b + p * b_pitch + v * VL);
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++) {
            vec x = a[r * a_row + p * a_step] - (vec){0}; /* everywhere, sign of zero included */
            for (int v = 0; v < wide; v++) sum[r][v] += x * right[v];
        }
    }
    for (int r = 0; r < MR; r++)
        for (int v = 0; v < wide; v++) *(vec *)(c + r * c_pitch + v * VL) = sum[r][v];
}

/* MR rows of c; whole vectors of columns are written. */
INLINE void strip(real *c, int64_t c_pitch, const real *a, int64_t a_row, int64_t a_step, const real *b,
                  int64_t b_pitch, int64_t depth, int64_t columns, bool add)
{
    int64_t j = 0;
    for (; j + VL < columns; j += 2 * VL) micro(c + j, c_pitch, a, a_row, a_step, b + j, b_pitch, depth, 2, add);
    if (j < columns) micro(c + j, c_pitch, a, a_row, a_step, b + j, b_pitch, depth, 1, add);
}

/* Which part of a tile is computed: query i meets keys [0, end[i]), and end never falls from row to row. */
typedef struct extent {
    int64_t queries, keys;
    int64_t end[QUERIES];
} extent;

/* Keys that a strip of MR queries meets. */
static inline int64_t strip_end(const extent *e, int64_t query)
{
    return e->end[ht_min_i64(query + MR, e->queries) - 1];
}

/* score[i, j] = sum over d of x[i, d] across[d, j], where x lies in slabs of QUERIES rows and across KEYS apart. */
TILE_FUNCTION void score_product(real *score, const real *x, const real *across, int64_t width, const extent *e)
{
    for (int64_t i = 0; i < e->queries; i += MR) {
        real *to = score + i * KEYS;
        const real *rows = x + i * SLAB;
        int64_t columns = strip_end(e, i);
        strip(to, KEYS, rows, SLAB, 1, across, KEYS, ht_min_i64(SLAB, width), columns, false);
        for (int64_t d = SLAB; d < width; d += SLAB)
            strip(to, KEYS, rows + d * QUERIES, SLAB, 1, across + d * KEYS, KEYS, ht_min_i64(SLAB, width - d), columns,
                  true);
    }
}

/* sum[i, d] += sum over keys j of weight[i, j] x[j, d], where x lies in slabs of KEYS rows. */
TILE_FUNCTION void sum_over_keys(real *sum, int64_t pitch, const real *weight, const real *x, int64_t width,
                                 const extent *e)
{
    for (int64_t i = 0; i < e->queries; i += MR)
        for (int64_t d = 0; d < width; d += SLAB)
            strip(sum + i * pitch + d, pitch, weight + i * KEYS, KEYS, 1, x + d * KEYS, SLAB, strip_end(e, i),
                  ht_min_i64(SLAB, width - d), true);
}

/* ---- turning ---- */

/* across[d, j] = factor x[j, d] for all KEYS rows of x, which lies in slabs; whole vectors of columns are read. */
TILE_FUNCTION void turn_keys(real *across, const real *x, int64_t width, real factor)
{
    for (int64_t d = 0; d < width; d += VL) {
        const real *from = x + d / SLAB * SLAB * KEYS + d % SLAB;
        for (int64_t j = 0; j < KEYS; j += VL) {
            vec block[VL];
            for (int i = 0; i < VL; i++) block[i] = *(const vec *)(from + (j + i) * SLAB) * factor;
            vec_transpose(block);
            for (int i = 0; i < VL; i++) *(vec *)(across + (d + i) * KEYS + j) = block[i];
        }
    }
}

/* ---- along rows ---- */

/* Lane by lane; a NaN may get lost. */
INLINE vec larger(vec a, vec b)
{
    vec_mask left = a > b;
    return (vec)(((vec_mask)a & left) | ((vec_mask)b & ~left));
}

/* Neighbours of the first half, and of the second, side by side: VL lanes are halved log2(VL) times. */
INLINE vec first_half_twice(vec x)
{
    vec_mask from;
    for (int l = 0; l < VL; l++) from[l] = l / 2;
    return HT_SHUFFLE(x, x, from);
}

INLINE vec second_half_twice(vec x)
{
    vec_mask from;
    for (int l = 0; l < VL; l++) from[l] = VL / 2 + l / 2;
    return HT_SHUFFLE(x, x, from);
}

INLINE real largest_lane(vec x)
{
    for (int width = VL; width > 1; width /= 2) x = larger(first_half_twice(x), second_half_twice(x));
    return x[0];
}

INLINE real sum_of_lanes(vec x)
{
    for (int width = VL; width > 1; width /= 2) x = first_half_twice(x) + second_half_twice(x);
    return x[0];
}

/* 2^x; in float with a relative error of at most 9e-8, and 0 for what would be subnormal. x = n + r with |r| <= 1/2;
 * adding `shift` rounds to an integer, which the low bits then hold. */
INLINE vec power_of_two(vec x)
{
    if (sizeof(real) == sizeof(double)) {
        for (int l = 0; l < VL; l++) x[l] = (real)exp2((double)x[l]);
        return x;
    }
    const real shift = 0x1.8p23f;
    vec_mask over = x > 128;
    x = (vec)(((vec_mask)(x - x + 128) & over) | ((vec_mask)x & ~over));
    vec rounded = x + shift, r = x - (rounded - shift);
    vec y = (real)0x1.470c5ep-13f * r + (real)0x1.5f72fap-10f;
    y = y * r + (real)0x1.3b270cp-7f;
    y = y * r + (real)0x1.c6ae72p-5f;
    y = y * r + (real)0x1.ebfbe2p-3f;
    y = y * r + (real)0x1.62e432p-1f;
    y = y * r + 1;
    /* The whole number lies in the low bits of `rounded`; what is shifted out wraps, and x < -126 is cut below. */
    typedef uint32_t bits __attribute__((vector_size(sizeof(vec))));
    vec scale = (vec)(((bits)rounded << 23) + 0x3f800000u);
    return (vec)((vec_mask)(y * scale) & ~(x < -126));
}

#endif
