/* What the files of the pass fp8 share: values in f8, and the state that goes with them. */
#ifndef HT_PASS_FP8_H
#define HT_PASS_FP8_H

#include "pass/pass.h"

/* A value in f8: codes as it lies, where the target wants them also with the last axis first, and the scale. */
typedef struct ht_f8_value {
    ht_val codes, turned, scale;
} ht_f8_value;

/* A weight's copies in f8: derived state, written beside the weight. */
typedef struct ht_f8_weight {
    ht_val master; /* the parameter */
    ht_val read;   /* what products read before: its half copy, or itself */
    ht_f8_value copy;
} ht_f8_weight;

/* Tensors of one f8 type whose scale follows from former steps. */
typedef struct ht_f8_group {
    ht_dtype dtype;
    int top, margin; /* of amax_step */
    ht_val *amax, *history, *scale;
    size_t count, capacity;
} ht_f8_group;

enum { HT_F8_FORWARD, HT_F8_BACKWARD, HT_F8_GROUPS }; /* e4m3 and e5m2 */

typedef struct ht_f8_state {
    ht_graph *g;
    const ht_precision_options *options;
    bool both; /* the target's products read along the axis that they sum over: codes lie in both orders */
    ht_f8_weight *weights;
    size_t weight_count, weight_capacity;
    ht_f8_group groups[HT_F8_GROUPS];
} ht_f8_state;

void ht_f8_state_begin(ht_f8_state *s, ht_graph *g, const ht_precision_options *options, bool both);
void ht_f8_state_free(ht_f8_state *s);
/* Emits x in f8. scale: none: found from x itself. amax (may be NULL) receives the largest magnitude. */
ht_f8_value ht_f8_quantize(ht_f8_state *s, ht_val x, ht_dtype dtype, ht_val scale, ht_val *amax);
/* The copies of the parameter that `read` is, or is the half copy of; NULL when it is neither, or memory is out. */
const ht_f8_weight *ht_f8_weight_of(ht_f8_state *s, ht_val read);
/* Emits tensor `name` in f8 with the group's type by the recipe, and the store of its magnitude; `more`: the segment adds
 * to what former ones of the step found. */
ht_f8_value ht_f8_tensor(ht_f8_state *s, size_t group, const char *name, ht_val x, bool more);
/* At the end: flat groups of the tensors' state, their next scales in the update, and the weights' copies wherever
 * weights are written. */
ht_status ht_f8_state_finish(ht_f8_state *s);

#endif
