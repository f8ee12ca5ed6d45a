/* Sums in a fixed number of lanes, for *.cpu.c files: compilers may not reorder a plain sum, and so do not vectorise
 * it. Element i goes to lane i mod HT_LANES on every ISA, so the bits are the same on all of them. */
#ifndef HT_KERNEL_LANES_H
#define HT_KERNEL_LANES_H

#include "kernel/simd.h"

#include <string.h>

enum {
    HT_LANES = 32,
    HT_LANE_VECTORS = HT_LANES / VL,
};

typedef struct ht_lanes {
    real sum[HT_LANES];
} ht_lanes;

/* Folded in halves. */
static inline real ht_lanes_total(const ht_lanes *lanes)
{
    vec_unaligned sum[HT_LANE_VECTORS];
    memcpy(sum, lanes->sum, sizeof sum);
    for (int half = HT_LANE_VECTORS / 2; half > 0; half /= 2)
        for (int v = 0; v < half; v++) sum[v] += sum[v + half];
    for (int half = VL / 2; half > 0; half /= 2) {
        __typeof__(sum[0] < sum[0]) other;
        for (int l = 0; l < VL; l++) other[l] = l ^ half;
        sum[0] += HT_SHUFFLE(sum[0], sum[0], other);
    }
    return sum[0][0];
}

/* Adds x[0..n-1]; `at` is where x starts in what is summed, so that short pieces fill all lanes. */
static inline void ht_lanes_add(ht_lanes *lanes, int64_t at, const real *x, int64_t n)
{
    vec_unaligned sum[HT_LANE_VECTORS];
    int64_t i = 0;
    memcpy(sum, lanes->sum, sizeof sum);
    for (; i + HT_LANES <= n; i += HT_LANES)
        for (int v = 0; v < HT_LANE_VECTORS; v++) sum[v] += vec_at(x + i, v);
    memcpy(lanes->sum, sum, sizeof sum);
    for (; i < n; i++) lanes->sum[(uint64_t)(at + i) % HT_LANES] += x[i];
}

/* Adds (x - centre)². */
static inline void ht_lanes_add_squares(ht_lanes *lanes, int64_t at, const real *x, real centre, int64_t n)
{
    vec_unaligned sum[HT_LANE_VECTORS];
    int64_t i = 0;
    memcpy(sum, lanes->sum, sizeof sum);
    for (; i + HT_LANES <= n; i += HT_LANES) {
        for (int v = 0; v < HT_LANE_VECTORS; v++) {
            vec_unaligned d = vec_at(x + i, v) - centre;
            sum[v] += d * d;
        }
    }
    memcpy(lanes->sum, sum, sizeof sum);
    for (; i < n; i++) lanes->sum[(uint64_t)(at + i) % HT_LANES] += (x[i] - centre) * (x[i] - centre);
}

/* Adds w (x - centre). */
static inline void ht_lanes_add_products(ht_lanes *lanes, int64_t at, const real *w, const real *x, real centre,
                                         int64_t n)
{
    vec_unaligned sum[HT_LANE_VECTORS];
    int64_t i = 0;
    memcpy(sum, lanes->sum, sizeof sum);
    for (; i + HT_LANES <= n; i += HT_LANES)
        for (int v = 0; v < HT_LANE_VECTORS; v++) sum[v] += vec_at(w + i, v) * (vec_at(x + i, v) - centre);
    memcpy(lanes->sum, sum, sizeof sum);
    for (; i < n; i++) lanes->sum[(uint64_t)(at + i) % HT_LANES] += w[i] * (x[i] - centre);
}

#endif
