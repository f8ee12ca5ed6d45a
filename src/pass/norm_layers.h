/* Norms whose result layers alone read. A factor of a channel can go from the norm's parameters to the weights, and the model
 * stays the same. */
#ifndef HT_PASS_NORM_LAYERS_H
#define HT_PASS_NORM_LAYERS_H

#include "graph/graph.h"

typedef struct ht_norm_layers {
    const char *scale, *shift;  /* parameters of the norm; shift: NULL: it has none */
    const char *const *weights; /* of the layers that read its result, and nothing else reads them */
    const int *input_axes;      /* by weight: its axis of inputs */
    size_t count;
} ht_norm_layers;

/* Calls `visit` for each such norm of a model's graph, before any pass. */
ht_status ht_norm_layers_visit(const ht_graph *g, ht_status (*visit)(void *arg, const ht_norm_layers *norm), void *arg);

#endif
