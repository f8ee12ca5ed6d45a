/* Ranges of static activations, as their states name them behind the weight of a layer. What evaluation reads:
 *     in_scale, in_zero           the scale, and the code of 0 (not of symmetric ones)
 * What training has, which follows batches or gradients and is averaged over ranks, so all of it is f32:
 *     in_scale, in_low            observed: the scale, and the number of the first code
 *     in_start, in_gain, in_low   learned: the scale is the product of the first two
 * They stand for each other: a plan is given what it wants, made of what a file has. */
#ifndef HT_TRAIN_RANGE_TENSORS_H
#define HT_TRAIN_RANGE_TENSORS_H

#include "train/weight_codes.h"

/* *out: the state that the plan wants; NULL: the file has none of its range. */
ht_status ht_range_convert(const ht_tensor_source *source, const ht_snapshot_tensor *wanted,
                           const ht_named_array **out);
/* A scale that calibration has not found yet is a failure of a plan that evaluates. */
ht_status ht_range_check(ht_context *ctx, const char *path, const ht_named_array *tensor);

#endif
