/* What the two files of the fold pass share: fold.c computes, fold_identity.c drops what changes nothing. */
#ifndef HT_PASS_FOLD_H
#define HT_PASS_FOLD_H

#include "graph/graph.h"

/* A value known before the run; data is NULL where it is not. */
typedef struct ht_known {
    const double *data; /* rounded to the value's type; one element when uniform */
    bool uniform;
} ht_known;

typedef struct ht_folder {
    ht_graph *g;
    ht_rewrite rw;
    ht_arena *arena;
    const ht_op *fill, *constant, *expand;
    ht_known *known; /* by value id */
    size_t known_capacity;
    uint64_t *hashes; /* model hashes of the segment's values as it was, hash_count of them */
    size_t hash_count;
    bool *seen;   /* by value id, as it was: the model hash depends on it */
    bool *stored; /* by value id: a state with a store in this segment */
} ht_folder;

/* NULL where nothing is known of v. */
const ht_known *ht_fold_known(const ht_folder *f, ht_val v);
bool ht_fold_reserve(ht_folder *f);
/* Is the node a part of the model, so that what takes its place must hash alike? */
bool ht_fold_in_model(const ht_folder *f, const ht_node *n);
/* Replaces the node's result by an equal value that is there already; false where no identity applies. */
bool ht_fold_identity(ht_folder *f, uint32_t id);

#endif
