/* Tensors that are stored sparse in a safetensors file: for `w` it has "w.sparse", the elements whose bytes are not all zero,
 * in order; "w.sparse_mask", a bit for each element, the lowest bit of a byte first; and "w.sparse_shape". */
#ifndef HT_FORMAT_SPARSE_TENSORS_H
#define HT_FORMAT_SPARSE_TENSORS_H

#include "base/base.h"
#include "format/safetensors.h"

/* Puts the dense tensors, made in the arena, in the place of their parts. `name` is the file's, for messages. */
ht_status ht_sparse_expand(ht_context *ctx, ht_arena *arena, const char *name, ht_named_array *entries, size_t *count);

#endif
