/* Index arithmetic and costs shared by the data movement ops. */
#ifndef HT_OP_VIEW_H
#define HT_OP_VIEW_H

#include "graph/graph.h"

/* Where element `flat` of a row-major array lies along each axis. The type has elements. */
static inline void ht_unravel(const ht_type *type, int64_t flat, int64_t index[HT_MAX_RANK])
{
    for (int i = type->rank - 1; i >= 0; i--) {
        index[i] = flat % type->dim[i];
        flat /= type->dim[i];
    }
}

static inline int64_t ht_ravel(const ht_type *type, const int64_t *index)
{
    int64_t flat = 0;
    for (int i = 0; i < type->rank; i++) flat = flat * type->dim[i] + index[i];
    return flat;
}

/* An index as the references hold it: its place in 0..size-1, or -1 outside. */
static inline int64_t ht_place_of(double index, int64_t size)
{
    return index >= 0 && index < (double)size ? (int64_t)index : -1;
}

/* Cost of a view: none. */
void ht_cost_view(const ht_call *call, ht_cost *cost);

#endif
