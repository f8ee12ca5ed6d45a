/* The inner loop of products of codes by multiply-adds of i16 pairs, one for each build: matmul_q.cpu.c has it. For *.cpu.c
 * files. */
#ifndef HT_KERNEL_INT8_PAIRS_H
#define HT_KERNEL_INT8_PAIRS_H

#include "kernel/cpu.h"
#include "kernel/gemm/int8_gemm.h"

extern const int8_kernel HT_K(ht_int8_pairs);

#endif
