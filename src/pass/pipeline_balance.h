/* Where to cut a model into the stages of a pipeline. */
#ifndef HT_PASS_PIPELINE_BALANCE_H
#define HT_PASS_PIPELINE_BALANCE_H

#include "pass/pass.h"

/* A segment's nodes in their order, as places where it can be cut; all by position. */
typedef struct ht_pipeline_places {
    size_t count;     /* nodes */
    double *cost;     /* of the node */
    double *bytes;    /* that are sent where the cut is before the node; one more than there are nodes */
    bool *refused;    /* there may be no cut before it; one more */
    bool *has_weight; /* it reads a parameter that is trained */
} ht_pipeline_places;

/* Balanced stages: cuts[s] is the first position of stage s + 1. *found: there are places enough. */
ht_status ht_pipeline_balance(ht_context *ctx, const ht_pipeline_places *places, int64_t stages, size_t *cuts,
                              bool *found);

#endif
