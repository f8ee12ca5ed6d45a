/* Copies between strided arrays, and integer operands, for the kernels that move bytes. */
#ifndef HT_KERNEL_STRIDED_H
#define HT_KERNEL_STRIDED_H

#include "kernel/kernel.h"

/* One end of a copy: the first element, and the distance between neighbours along each axis, in elements. */
typedef struct ht_strided {
    void *first;
    int64_t stride[HT_MAX_RANK];
} ht_strided;

/* Copies an array of elements of 1, 2, 4 or 8 bytes. Both ends may have any strides that are not negative; the ends do
 * not overlap. A source stride of 0 repeats. */
void ht_strided_copy(ht_pool *pool, size_t elem_bytes, int rank, const int64_t *dims, const ht_strided *to,
                     const ht_strided *from);

/* A tensor as an end of a copy, starting `offset` elements in. */
static inline ht_strided ht_strided_at(const void *first, const ht_type *type, int64_t offset)
{
    ht_strided end = {.first = (char *)first + offset * (int64_t)ht_dtype_bytes(type->dtype)};
    for (int i = 0; i < type->rank; i++) end.stride[i] = type->stride[i];
    return end;
}

/* Element `at` of an i32 or i64 array; -1 when it is not in 0..size-1. */
static inline int64_t ht_index_at(const void *index, ht_dtype dtype, int64_t at, int64_t size)
{
    int64_t value = dtype == HT_I64 ? ((const int64_t *)index)[at] : ((const int32_t *)index)[at];
    return value >= 0 && value < size ? value : -1;
}

/* A row of a kernel that is compiled once. */
#define HT_MOVE_ROW(op_, can_, run_)                                                                                   \
    const ht_kernel ht_kernel_##op_ = {                                                                                \
        .size = sizeof(ht_kernel), .op = #op_, .name = #op_, .isa = HT_ISA_PORTABLE, .can = can_, .run = run_};

#endif
