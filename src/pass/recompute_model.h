/* What recomputation would cost and save in one segment, without changing it: the pass tries thousands of choices on
 * this model, and the planner measures the few that matter. */
#ifndef HT_PASS_RECOMPUTE_MODEL_H
#define HT_PASS_RECOMPUTE_MODEL_H

#include "pass/pass.h"

/* A value that forward makes, that takes memory, that backward reads, and that can be computed again. */
typedef struct ht_recompute_candidate {
    ht_val value;
    int64_t bytes;
} ht_recompute_candidate;

typedef struct ht_recompute_model {
    const ht_graph *g;
    const ht_segment *s;
    ht_arena *arena; /* of all that follows */
    const ht_recompute_candidate *candidates;
    size_t candidate_count;

    ht_val *root;           /* by value id: whose bytes these are; views are seen through */
    bool *saved;            /* by value id of a root: backward reads it */
    uint32_t *candidate_of; /* by value id of a root: 1 + index of its candidate; 0: it is none */
    bool *fixed;            /* by node id: cannot run a second time */
    bool *made;             /* by value id: a node makes its root */
    uint32_t *forward;      /* the nodes of forward, in their order */
    size_t forward_count;
    double *seconds; /* by node id: of running it once more */

    /* With a profile: times are those of its instructions. */
    const ht_segment_memory *memory; /* NULL: there is none */
    const ht_value_life *lives;
    uint32_t *last_forward;         /* by value id of a root: time of its last reader in forward */
    uint32_t *first_read;           /* by value id: time of its first reader in backward; UINT32_MAX: none */
    uint32_t *again_first, *needed; /* scratch by value id: when clones read it first and last */
    int64_t *live;                  /* scratch by time */
} ht_recompute_model;

/* profile: NULL: nothing is known about memory, and only the candidates and their nodes count. */
ht_status ht_recompute_model_open(ht_recompute_model *m, const ht_graph *g, uint32_t segment, const ht_target *target,
                                  const ht_memory_profile *profile);
void ht_recompute_model_close(ht_recompute_model *m);

/* Is v at hand in backward, with these candidates dropped (by index)? State and inputs always are. */
bool ht_recompute_at_hand(const ht_recompute_model *m, const bool *dropped, ht_val v);

typedef struct ht_recompute_outcome {
    double seconds;     /* of what is computed again */
    int64_t peak_bytes; /* of transients in main */
    double excess;      /* bytes above the limit, summed over time */
} ht_recompute_outcome;
/* With a profile. */
ht_recompute_outcome ht_recompute_try(ht_recompute_model *m, const bool *dropped, int64_t limit);

/* Of the candidates, whether each is dropped: the least time for a peak of at most `limit` bytes. *dropped comes with a
 * choice that is worth a look. False: none fits; then it is the one with the lowest peak that was found. */
bool ht_recompute_choose(ht_recompute_model *m, int64_t limit, bool *dropped);

#endif
