/* Internal: a model inside the graph of another one. */
#ifndef HT_PASS_DISTILL_H
#define HT_PASS_DISTILL_H

#include "pass/pass.h"

/* Appends to the current segment, `to`, what the teacher's segment `from` computes for `count` of its values; out: those
 * values in g. Inputs are those of the same names, states are added without being trained. */
ht_status ht_teacher_join(ht_graph *g, uint32_t to, const ht_graph *teacher, uint32_t from, size_t count,
                          const ht_val *wanted, ht_val *out);

#endif
