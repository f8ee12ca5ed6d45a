/* Parameters and gradients that lie elsewhere, in segments that read them. */
#ifndef HT_PASS_FETCH_PARAMS_H
#define HT_PASS_FETCH_PARAMS_H

#include "pass/pass.h"

typedef struct ht_fetching {
    const bool *fetched; /* by value id below `count` */
    size_t count;
    ht_space to;
    ht_role role; /* of the copies */
    size_t ahead; /* copies that are under way before they are needed */
    size_t from;  /* the position before which none begins; none is needed before it */
} ht_fetching;

/* Rewrites a segment: states that are marked are copied before they are read, and the copy lives until a few others were
 * fetched after its last use. */
ht_status ht_fetch_states(ht_graph *g, uint32_t segment, const ht_fetching *how);

#endif
