/* Gradients that lie elsewhere, in segments that make them. */
#ifndef HT_PASS_OFFLOAD_GRADIENTS_H
#define HT_PASS_OFFLOAD_GRADIENTS_H

#include "pass/pass.h"

/* Is the state a gradient, or a view of some? */
bool ht_is_gradient(const ht_graph *g, ht_val state);

/* Rewrites a segment: what it stores into gradients that go elsewhere (`goes`, by value id below `count`) is made as soon as
 * it can be, copied beside what follows, and stored when `ahead` others were made after it. What it reads of gradients is
 * left to ht_fetch_states. */
ht_status ht_offload_gradients(ht_graph *g, uint32_t segment, const ht_space *goes, size_t count, size_t ahead);

#endif
