/* Weights as codes. A tensor `w` of floats, and the pair `w.int8` (by its format) and `w.int8_scale`, stand for each other: a plan
 * that wants one of them is given it although a file has the other. So a job that evaluates with codes reads what training
 * left, and training goes on from codes. */
#ifndef HT_TRAIN_WEIGHT_CODES_H
#define HT_TRAIN_WEIGHT_CODES_H

#include "train/snapshot_tensors.h"

/* Where tensors come from. */
typedef struct ht_tensor_source {
    ht_context *ctx;
    ht_arena *arena;                     /* of what is made */
    const char *path;                    /* of the file, for messages */
    const ht_snapshot_tensor_list *list; /* of the plan */
    /* A tensor of the file that is read now, or NULL. */
    const ht_named_array *(*find)(void *arg, const char *name);
    void *arg;
} ht_tensor_source;

/* *out: the tensor that the plan wants, made of its other form; NULL: the file has none. Floats that are not finite have no
 * codes: a failure. */
ht_status ht_weight_convert(const ht_tensor_source *source, const ht_snapshot_tensor *wanted,
                            const ht_named_array **out);

#endif
