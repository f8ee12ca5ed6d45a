/* Counting what is not finite. A launch that carries counts (ht_launch.nonfinite) counts while it runs, so that values
 * which never reach memory are counted, too. */
#ifndef HT_KERNEL_COUNT_NONFINITE_H
#define HT_KERNEL_COUNT_NONFINITE_H

#include <stdatomic.h>

typedef struct ht_nonfinite_count {
    _Atomic int64_t inf, nan;
} ht_nonfinite_count;

/* By operand of the launch's fused calls: the product, and what the calls make. Such calls have no chain: they are
 * compiled with space for none (ht_fused_compile). Of ht_nonfinite_run: the first. */
typedef struct ht_nonfinite {
    ht_nonfinite_count operand[HT_FUSED_OPERANDS];
} ht_nonfinite;

/* Adds those of n numbers in a row. Numbers that are no floats are all finite. */
void ht_nonfinite_add(ht_nonfinite_count *count, ht_dtype dtype, const void *data, int64_t n);
/* Those of the first result of the launch's call, as it lies in memory, with any strides. */
ht_status ht_nonfinite_run(const ht_launch *launch);

#endif
