/* Small dense products for kernels that work on tiles of their own. */
#ifndef HT_KERNEL_PANEL_H
#define HT_KERNEL_PANEL_H

#include "kernel/cpu.h"

/* A matrix inside a buffer: element (i, j) lies at data[i * row + j]. */
typedef struct panel {
    real *data;
    int64_t row;
} panel;

/* Cuts buffers out of a workspace; with no start it only counts. */
typedef struct panel_scratch {
    real *start;
    int64_t used;
} panel_scratch;

static inline panel panel_take(panel_scratch *scratch, int64_t row_count, int64_t row)
{
    panel p = {scratch->start ? scratch->start + scratch->used : NULL, row};
    scratch->used += (row_count * row + 15) / 16 * 16;
    return p;
}

/* c[m,n] += a[m,k] b[k,n]; element (i, p) of a lies at a[i * a_row + p * a_step], so a may be read transposed. Every
 * element of c is summed in the order of p, however the work is cut. */
static inline void panel_product(panel c, const real *a, int64_t a_row, int64_t a_step, panel b, int64_t m, int64_t k,
                                 int64_t n)
{
    for (int64_t i = 0; i < m; i++) {
        real *restrict to = c.data + i * c.row;
        const real *from = a + i * a_row;
        int64_t p = 0;
        /* Four rows of b at a time: c goes through registers a quarter as often. */
        for (; p + 4 <= k; p += 4) {
            const real *restrict b0 = b.data + p * b.row, *restrict b1 = b0 + b.row;
            const real *restrict b2 = b1 + b.row, *restrict b3 = b2 + b.row;
            real a0 = from[p * a_step], a1 = from[(p + 1) * a_step];
            real a2 = from[(p + 2) * a_step], a3 = from[(p + 3) * a_step];
            for (int64_t j = 0; j < n; j++) to[j] = (((to[j] + a0 * b0[j]) + a1 * b1[j]) + a2 * b2[j]) + a3 * b3[j];
        }
        for (; p < k; p++) {
            const real *restrict row = b.data + p * b.row;
            real weight = from[p * a_step];
            for (int64_t j = 0; j < n; j++) to[j] += weight * row[j];
        }
    }
}

static inline void panel_zero(panel c, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) c.data[i * c.row + j] = 0;
}

/* to[n,m] = from[m,n]', columns m and beyond filled with zeros up to to.row. */
static inline void panel_transpose(panel to, panel from, int64_t m, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        for (int64_t i = 0; i < m; i++) to.data[j * to.row + i] = from.data[i * from.row + j];
        for (int64_t i = m; i < to.row; i++) to.data[j * to.row + i] = 0;
    }
}

#endif
