/* A cell of the kernel matrix: what *.cpu.c files give when they are compiled for one real type and one ISA. */
#ifndef HT_KERNEL_CELL_H
#define HT_KERNEL_CELL_H

#include "kernel/kernel.h"

/* Their places in kernels.def. */
#define HT_CPU_ROW(name) HT_CPU_ROW_##name,
enum {
#include "kernel/kernels.def"
    HT_CPU_ROW_COUNT
};

typedef struct ht_kernel_cell {
    const ht_kernel *rows[HT_CPU_ROW_COUNT];
    const ht_kernel *pointwise; /* one per row of op/pointwise.def */
    const size_t *pointwise_count;
} ht_kernel_cell;

#endif
