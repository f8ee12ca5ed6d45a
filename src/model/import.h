/* Import of a user's graph as a model. */
#ifndef HT_MODEL_IMPORT_H
#define HT_MODEL_IMPORT_H

#include "model/layers.h"

/* Checks that the graph has a segment `forward` with the output `loss`, that its inputs match the task's data, and that
 * it is a model and not yet a training step. Adds the optional parts: `loss_sum` (the loss), `count` (1: the loss is
 * used as it is), and the segment `eval`: forward without stores and dropout. `from` names its origin. */
ht_status ht_model_import(ht_graph *g, const ht_model_request *r, const char *from);

#endif
