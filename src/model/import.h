/* A graph that somebody else made, as a model of ours. */
#ifndef HT_MODEL_IMPORT_H
#define HT_MODEL_IMPORT_H

#include "model/layers.h"

/* Checks that the graph has a segment `forward` with the output `loss`, that its inputs are what the task's data
 * delivers, and that it is no training step yet. Adds what may be left out: `loss_sum` (the loss), `count` (1: the loss
 * is taken as it is), and the segment `eval`: forward without stores and dropout. `from` names its origin. */
ht_status ht_model_import(ht_graph *g, const ht_model_request *r, const char *from);

#endif
