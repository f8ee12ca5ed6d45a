/* Parameters that lie elsewhere, in segments that read them. */
#ifndef HT_PASS_FETCH_PARAMS_H
#define HT_PASS_FETCH_PARAMS_H

#include "pass/pass.h"

/* Rewrites a segment: states that are marked (by value id below `count`) are copied to main before they are read, and the copy
 * lives until a few others were fetched after its last use. `ahead` copies are under way before they are needed. */
ht_status ht_fetch_params(ht_graph *g, uint32_t segment, const bool *fetched, size_t count, size_t ahead);

#endif
