#ifndef HT_PLAN_PLACEMENT_H
#define HT_PLAN_PLACEMENT_H

#include "plan/plan.h"

/* Who reads what in a segment, before anything is a view. NULL when memory is out. */
typedef struct ht_readers ht_readers;
ht_readers *ht_plan_find_readers(const ht_graph *g, const ht_segment *s, ht_arena *arena);

/* Strides of result y that spare its readers a copy; false: row-major is as good. */
bool ht_plan_place_result(const ht_readers *readers, ht_val y, ht_type *type);

#endif
