/* The rewriting of the segment "update" on pieces, as the files that do it share it. */
#ifndef HT_PASS_ZERO_UPDATE_H
#define HT_PASS_ZERO_UPDATE_H

#include "pass/zero.h"

/* What is on its way into a state. */
typedef struct ht_zero_gathering {
    ht_val start, from, into;
} ht_zero_gathering;

typedef struct ht_zero_cutter {
    ht_zero *z;
    ht_graph *g;
    ht_rewrite rw;
    size_t *group;  /* by value id: 1 + the group that it is an array of, or of a tensor of; 0: none */
    size_t *bucket; /* by value id: 1 + the bucket of what follows from one tensor alone; 0: of all */
    ht_val *map;    /* by value id: its piece of the bucket at hand, or none; of a scalar, what stands for it */
    ht_val *whole;  /* by value id: all of it, where the rule needs all; or none */
    ht_zero_gathering *under_way; /* parameters and half copies of buckets that are done */
    size_t under_way_count, under_way_capacity;
} ht_zero_cutter;

/* zero_update.c. A value of the group becomes that of one of its states: each rank stores its piece, and what every rank has
 * whole is gathered. */
void ht_zero_cut_store(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, ht_val state, ht_val value);
/* The node's op on pieces; the results are in c->map. */
void ht_zero_cut_emit(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, uint32_t id, const ht_val *in);
/* A rounding by chance of a piece draws the numbers that the whole has there. */
ht_val ht_zero_cut_rounding(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, const ht_node *n,
                            const ht_val *in);
bool ht_zero_is_rounding(const ht_node *n);
bool ht_zero_is_slice(const ht_node *n);

/* zero_tensors.c: a node of the update of one tensor, whose rule looks at all of it; or of what is made of a whole tensor. */
void ht_zero_cut_tensor_node(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, uint32_t id);

#endif
