/* Coupling: which places along the axes of a model's tensors can be removed, and which only together. A channel of a
 * convolution is a row of its weight, an element of its bias and of the norm behind it, and a column of the weights that read
 * it; a residual sum adds those of the other branch. Such a set is a unit. It is derived from the graph, for any model. */
#ifndef HT_COMPRESS_COUPLING_H
#define HT_COMPRESS_COUPLING_H

#include "op/op.h"

typedef enum ht_unit_kind { HT_UNIT_ROWS, HT_UNIT_HEADS, HT_UNIT_CHANNELS, HT_UNIT_KINDS } ht_unit_kind;
extern const char *const ht_unit_names[HT_UNIT_KINDS]; /* as recipes call them */

typedef struct ht_coupled_axis {
    int32_t *unit; /* by place: its unit, from 1; 0: it cannot be removed */
    bool consumed; /* a product sums over it: the units are made elsewhere */
} ht_coupled_axis;

typedef struct ht_coupled_tensor {
    const char *name;
    bool trained;
    int rank;
    int64_t dim[HT_MAX_RANK];
    ht_coupled_axis axes[HT_MAX_RANK];
} ht_coupled_tensor;

typedef struct ht_coupling {
    ht_coupled_tensor *tensors;
    size_t count;
    int32_t units;      /* they are 1 to `units` */
    ht_unit_kind *kind; /* by unit */
    int32_t *layer;     /* by unit: those that are made by one tensor have one number, from 1 */
} ht_coupling;

/* Of the segment "eval". All of it lives in the arena. */
ht_status ht_coupling_derive(ht_coupling *out, ht_context *ctx, ht_arena *arena, const ht_graph *g);

#endif
