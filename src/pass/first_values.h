/* First values of which only a part is kept. Random numbers are a function of the element's place, so a part draws those that
 * the whole would have there. */
#ifndef HT_PASS_FIRST_VALUES_H
#define HT_PASS_FIRST_VALUES_H

#include "pass/pass.h"

/* What a value is computed of, element by element: random numbers or a constant; none: of something else. */
ht_val ht_first_value_source(const ht_graph *g, ht_val v);
/* `count` elements of a source from `first` on, in row-major order. */
ht_val ht_first_value_part(ht_graph *g, ht_val source, int64_t first, int64_t count);
/* The elements of v that follow from `part` of its source. */
ht_val ht_first_value_of(ht_graph *g, ht_val v, ht_val source, ht_val part);

#endif
