/* Whole layers of a model that is a stack of them (stack.h). */
#ifndef HT_COMPRESS_WHOLE_LAYERS_H
#define HT_COMPRESS_WHOLE_LAYERS_H

#include "compress/compression.h"

/* A share of the layers of which a tensor is chosen becomes zero: those without which the loss is smallest. `belong` receives
 * the tensors that are cleared. */
ht_status ht_layers_prune(ht_compression *c, double ratio, const bool *chosen, bool *belong);
/* Removes layers that are zero from weights and model; *removed: how many. */
ht_status ht_layers_shrink(ht_compression *c, ht_json_writer *json, int64_t *removed);

#endif
