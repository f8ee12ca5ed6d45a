/* Parameters and gradients that lie elsewhere, or in pieces, in segments that read them. */
#ifndef HT_PASS_FETCH_PARAMS_H
#define HT_PASS_FETCH_PARAMS_H

#include "pass/pass.h"

/* The two nodes, or more: one that begins to fetch and one that ends it, whose result is read. */
typedef struct ht_fetch_how {
    ht_val (*start)(void *arg, ht_val from);
    ht_val (*end)(void *arg, ht_val from, ht_val start);
    void *arg;
} ht_fetch_how;

typedef struct ht_fetching {
    const bool *fetched; /* by value id below `count` */
    size_t count;
    ht_space to;
    ht_role role;           /* of what fetches */
    size_t ahead;           /* that are under way before they are needed; */
    int64_t ahead_elems;    /* and more, as long as they have no more elements than this together */
    size_t from;            /* the position before which none begins; none is needed before it */
    const ht_fetch_how *by; /* NULL: by copies */
} ht_fetching;

/* Rewrites a segment: states that are marked are fetched before they are read, and what was fetched lives until a few others
 * were after its last use. */
ht_status ht_fetch_states(ht_graph *g, uint32_t segment, const ht_fetching *how);

#endif
