/* Names of tensors in a file from elsewhere, and the names that they have in the model. */
#ifndef HT_TRAIN_TENSOR_NAMES_H
#define HT_TRAIN_TENSOR_NAMES_H

#include "base/base.h"

typedef struct ht_tensor_names ht_tensor_names;

/* `map` is checked already (config/fine_tuning.c) and borrowed: an object of names; or a list of {"match", "replace"},
 * which all apply, one after the other, each to the first match in what those before left; NULL: names stay. A name that
 * is not in the object stays, and null instead of a name leaves the tensor out. */
ht_status ht_tensor_names_create(ht_tensor_names **out, ht_context *ctx, const ht_json *map);
void ht_tensor_names_free(ht_tensor_names *names);

/* *to: the name in the model, which lives as long as `names`; NULL: the tensor is left out. */
ht_status ht_tensor_names_map(ht_tensor_names *names, const char *from, const char **to);

#endif
