/* Vectors of `real` as wide as the registers of the build's ISA, for *.cpu.c files. */
#ifndef HT_KERNEL_SIMD_H
#define HT_KERNEL_SIMD_H

#include <string.h>

#include "kernel/cpu.h"

enum {
    VEC_BYTES = HT_ISA_COLUMN(VECTOR_BYTES),
    VEC_REGISTERS = HT_ISA_COLUMN(VECTOR_REGISTERS),
    VL = VEC_BYTES / sizeof(real), /* vector length: elements */
};

typedef real vec __attribute__((vector_size(VEC_BYTES)));
typedef real vec_unaligned __attribute__((vector_size(VEC_BYTES), aligned(sizeof(real)))); /* anywhere in memory */
typedef __typeof__((vec){0} < (vec){0}) vec_mask; /* an integer per lane, all ones for true */

/* Vector number `part` of an array that may start anywhere. */
static inline vec_unaligned vec_at(const real *x, int part)
{
    return ((const vec_unaligned *)x)[part];
}

/* The same of memory that was written as whatever type. */
static inline vec vec_load(const real *x, int part)
{
    vec v;
    memcpy(&v, x + part * VL, sizeof v);
    return v;
}

/* VL vectors of VL elements, transposed by log2(VL) rounds of interleaving the first half with the second. */
static inline __attribute__((always_inline)) void vec_transpose(vec v[VL])
{
    vec_mask low, high;
    for (int i = 0; i < VL; i++) {
        low[i] = i / 2 + i % 2 * VL;
        high[i] = VL / 2 + i / 2 + i % 2 * VL;
    }
#pragma GCC unroll 4
    for (int width = 1; width < VL; width *= 2) {
        vec turned[VL];
#pragma GCC unroll 8
        for (int i = 0; i < VL / 2; i++) {
            turned[2 * i] = HT_SHUFFLE(v[i], v[i + VL / 2], low);
            turned[2 * i + 1] = HT_SHUFFLE(v[i], v[i + VL / 2], high);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++) v[i] = turned[i];
    }
}

#endif
