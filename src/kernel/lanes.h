/* Sums in a fixed number of lanes, for *.cpu.c files: compilers may not reorder a plain sum, and so do not vectorise
 * it. Element i goes to lane i mod HT_LANES on every ISA, so the bits are the same on all of them. */
#ifndef HT_KERNEL_LANES_H
#define HT_KERNEL_LANES_H

#include "kernel/cpu.h"

enum { HT_LANES = 16 };

typedef struct ht_lanes {
    real sum[HT_LANES];
} ht_lanes;

static inline real ht_lanes_total(const ht_lanes *lanes)
{
    real sum[HT_LANES];
    for (int l = 0; l < HT_LANES; l++) sum[l] = lanes->sum[l];
    for (int half = HT_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    return sum[0];
}

/* Adds x[0..n-1]; `at` is where x starts in what is summed, so that short pieces fill all lanes. */
static inline void ht_lanes_add(ht_lanes *lanes, int64_t at, const real *x, int64_t n)
{
    int64_t i = 0;
    for (; i + HT_LANES <= n; i += HT_LANES)
        for (int l = 0; l < HT_LANES; l++) lanes->sum[l] += x[i + l];
    for (; i < n; i++) lanes->sum[(uint64_t)(at + i) % HT_LANES] += x[i];
}

/* Adds (x - centre)². */
static inline void ht_lanes_add_squares(ht_lanes *lanes, int64_t at, const real *x, real centre, int64_t n)
{
    int64_t i = 0;
    for (; i + HT_LANES <= n; i += HT_LANES)
        for (int l = 0; l < HT_LANES; l++) lanes->sum[l] += (x[i + l] - centre) * (x[i + l] - centre);
    for (; i < n; i++) lanes->sum[(uint64_t)(at + i) % HT_LANES] += (x[i] - centre) * (x[i] - centre);
}

/* Adds w (x - centre). */
static inline void ht_lanes_add_products(ht_lanes *lanes, int64_t at, const real *w, const real *x, real centre,
                                         int64_t n)
{
    int64_t i = 0;
    for (; i + HT_LANES <= n; i += HT_LANES)
        for (int l = 0; l < HT_LANES; l++) lanes->sum[l] += w[i + l] * (x[i + l] - centre);
    for (; i < n; i++) lanes->sum[(uint64_t)(at + i) % HT_LANES] += w[i] * (x[i] - centre);
}

/* n elements as real: where they lie if they are of that type, else converted into the buffer. */
static inline const real *ht_as_real(real *buffer, const void *from, ht_dtype dtype, int64_t start, int64_t n)
{
    if (dtype == (sizeof(real) == sizeof(double) ? HT_F64 : HT_F32)) return (const real *)from + start;
    ht_load(buffer, from, dtype, start, n);
    return buffer;
}

#endif
