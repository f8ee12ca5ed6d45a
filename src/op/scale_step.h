/* The loss scaler's rule as a plain function, for the op's reference and its kernel. */
#ifndef HT_OP_SCALE_STEP_H
#define HT_OP_SCALE_STEP_H

#include "graph/graph.h"

typedef struct ht_scale_rule {
    bool dynamic, consecutive;
    int64_t window, hysteresis, most_skips;
    float min;
} ht_scale_rule;

/* The state of the loss scaler; scale_step.c describes each field. */
typedef struct ht_scale_state {
    float scale;
    int64_t hysteresis, iteration, last, skips;
    bool fatal;
} ht_scale_state;

ht_scale_rule ht_scale_rule_of(const ht_call *call);
ht_scale_state ht_scale_next(const ht_scale_rule *rule, ht_scale_state now, bool finite);

#endif
