/* Weights as words of codes, in files: the tensors "w.q4", "w.q4_scale", "w.q4_zero" and "w.q4_a_scale" (by their bits, "q4t" where w
 * is [n, k]) stand for w, as pass/quantize_nbits.c names them. */
#ifndef HT_TRAIN_NBITS_TENSORS_H
#define HT_TRAIN_NBITS_TENSORS_H

#include "train/train.h"
#include "train/weight_codes.h"

/* Finds tensors of a file by name; NULL: there is none. */
typedef const ht_named_array *(*ht_find_tensor_fn)(void *arg, const char *name);

/* The shape of w, and its elements (`data` may be NULL) of the codes of this name. */
ht_status ht_nbits_decode(ht_context *ctx, const char *path, ht_find_tensor_fn find, void *arg, const char *codes,
                          int64_t shape[2], float *data);

/* As ht_weight_convert, for these tensors: rounded to nearest, or decoded. */
ht_status ht_nbits_convert(const ht_tensor_source *source, const ht_snapshot_tensor *wanted,
                           const ht_named_array **out);

#endif
