#ifndef HT_PLAN_PLACEMENT_H
#define HT_PLAN_PLACEMENT_H

#include "plan/plan.h"

/* Who reads what in a segment, before anything is a view. NULL when memory is out. */
typedef struct ht_readers ht_readers;
ht_readers *ht_plan_find_readers(const ht_graph *g, const ht_segment *s, ht_arena *arena);

/* Is it an output, or stored? Then others know where and how it lies. */
bool ht_plan_is_pinned(const ht_readers *readers, ht_val v);
/* The readers of v, one after the other, *at being 0 before the first; NULL: there are no more. */
const ht_node *ht_plan_reader(const ht_readers *readers, ht_val v, uint32_t *at);

/* Strides of result y that spare its readers a copy; false: row-major is as good. */
bool ht_plan_place_result(const ht_readers *readers, ht_val y, ht_type *type);

#endif
