/* Passes over a row that lies in memory without gaps, converted in chunks on the stack. For *.cpu.c files. */
#ifndef HT_KERNEL_ROWS_H
#define HT_KERNEL_ROWS_H

#include "kernel/lanes.h"

enum { HT_ROW_CHUNK = 1024, HT_ROW_LANES = 32, HT_ROW_TILE = 4096 };

/* Rows of a tile: about HT_ROW_TILE elements. */
static inline int64_t ht_row_grain(int64_t row_elems)
{
    return row_elems < HT_ROW_TILE ? HT_ROW_TILE / (row_elems > 0 ? row_elems : 1) : 1;
}

/* n elements in lanes that are folded in halves: the order that compilers vectorise, and the same for every ISA. */
static inline real ht_lane_sum(const real *restrict x, int64_t n)
{
    real lane[HT_ROW_LANES] = {0};
    int64_t i = 0;
    for (; i + HT_ROW_LANES <= n; i += HT_ROW_LANES)
        for (int l = 0; l < HT_ROW_LANES; l++) lane[l] += x[i + l];
    for (int l = 0; i + l < n; l++) lane[l] += x[i + l];
    for (int width = HT_ROW_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

/* -∞ of no elements; a NaN may be passed over, for it shows in the sum. */
static inline real ht_row_max(const void *from, ht_dtype dtype, int64_t start, int64_t n)
{
    real buffer[HT_ROW_CHUNK], lane[HT_ROW_LANES];
    for (int l = 0; l < HT_ROW_LANES; l++) lane[l] = -(real)INFINITY;
    for (int64_t at = 0; at < n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, n - at), i = 0;
        const real *x = ht_view(buffer, from, dtype, start + at, count);
        for (; i + HT_ROW_LANES <= count; i += HT_ROW_LANES)
            for (int l = 0; l < HT_ROW_LANES; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
        for (int l = 0; i + l < count; l++) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    }
    for (int width = HT_ROW_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
    return lane[0];
}

/* e = exp(x - max), and the sum of it. e may be x. Also fetches what lies `prefetch_distance` elements on: the next row, while this
 * one keeps the processor busy. */
static inline real ht_row_exp(real *e, const real *x, real max, int64_t n, int64_t prefetch_distance)
{
    real lane[HT_ROW_LANES] = {0};
    int64_t i = 0;
    for (; i + HT_ROW_LANES <= n; i += HT_ROW_LANES) {
        for (int l = 0; l < HT_ROW_LANES; l += 64 / (int)sizeof(real))
            __builtin_prefetch(x + i + l + prefetch_distance, 0, 2);
        for (int l = 0; l < HT_ROW_LANES; l++) e[i + l] = fn_exp(x[i + l] - max);
        for (int l = 0; l < HT_ROW_LANES; l++) lane[l] += e[i + l];
    }
    for (int l = 0; i + l < n; l++) {
        e[i + l] = fn_exp(x[i + l] - max);
        lane[l] += e[i + l];
    }
    for (int width = HT_ROW_LANES / 2; width; width /= 2)
        for (int l = 0; l < width; l++) lane[l] += lane[l + width];
    return lane[0];
}

/* Σ exp(x - max). */
static inline double ht_row_sum_exp(const void *from, ht_dtype dtype, int64_t start, int64_t n, real max)
{
    real buffer[HT_ROW_CHUNK], e[HT_ROW_CHUNK];
    double sum = 0;
    for (int64_t at = 0; at < n; at += HT_ROW_CHUNK) {
        int64_t count = ht_min_i64(HT_ROW_CHUNK, n - at);
        sum += (double)ht_row_exp(e, ht_view(buffer, from, dtype, start + at, count), max, count, n);
    }
    return sum;
}

#endif
