/* The rows of one cell, for kernels.c. */
#include "kernel/cell.h"
#include "kernel/cpu.h"

#define HT_CPU_ROW(name) extern const ht_kernel HT_K(name##_row);
#include "kernel/kernels.def"
extern const ht_kernel HT_K(ht_pointwise)[];
extern const size_t HT_K(ht_pointwise_count);

extern const ht_kernel_cell HT_K(ht_kernel_cell);
const ht_kernel_cell HT_K(ht_kernel_cell) = {
    .rows =
        {
#define HT_CPU_ROW(name) &HT_K(name##_row),
#include "kernel/kernels.def"
        },
    .pointwise = HT_K(ht_pointwise),
    .pointwise_count = &HT_K(ht_pointwise_count),
};
