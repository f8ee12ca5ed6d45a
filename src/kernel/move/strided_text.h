/* Copies between strided arrays as CUDA text (strided.cu). */
#ifndef HT_KERNEL_STRIDED_TEXT_H
#define HT_KERNEL_STRIDED_TEXT_H

#include "kernel/cuda/cuda.h"

/* One end of a copy. */
typedef struct ht_text_end {
    char first[96];        /* expression: a pointer to the first element, in elements of the operand */
    uintptr_t alignment;   /* a number with as many trailing zeros as the address of the first element at least */
    const int64_t *stride; /* in elements */
} ht_text_end;

/* Operand "in0" or "out0" of a launch, `offset` elements in. */
ht_text_end ht_text_end_at(const char *name, const void *address, const ht_type *type, int64_t offset);

/* Copies that share a grid. */
typedef struct ht_text_copies {
    ht_cuda_emission *emission;
    ht_text body;
    int64_t blocks;
} ht_text_copies;

/* Elements of 1, 2, 4 or 8 bytes, strides that are not negative; the ends do not overlap. A source stride of 0
 * repeats. */
void ht_text_copies_add(ht_text_copies *copies, size_t elem_bytes, int rank, const int64_t *dims, const ht_text_end *to,
                        const ht_text_end *from);
void ht_text_copies_finish(ht_text_copies *copies);
/* One of them alone. */
void ht_text_copy(ht_cuda_emission *e, size_t elem_bytes, int rank, const int64_t *dims, const ht_text_end *to,
                  const ht_text_end *from);

/* Along an axis the part has `count` elements, from `start` in steps of `step`. */
typedef struct ht_text_part {
    int64_t start, step, count;
} ht_text_part;
/* The whole `to` of sizes `dims`: `from` where the part is, elsewhere the element `rest`. */
void ht_text_copy_part(ht_cuda_emission *e, ht_dtype dtype, int rank, const int64_t *dims, const ht_text_part *parts,
                       double rest, const ht_text_end *to, const ht_text_end *from);

/* The widest word in which `count` neighbours of `elem_bytes` bytes can be moved at such an alignment, in bytes. */
size_t ht_text_word_bytes(size_t elem_bytes, int64_t count, uintptr_t alignment);
/* Its name in the text. */
const char *ht_text_word(size_t bytes);
/* Eight bytes of an element that repeats. */
uint64_t ht_text_bits(ht_dtype dtype, double value);

#endif
