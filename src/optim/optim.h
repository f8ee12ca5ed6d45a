/* optim: optimisers as graph builders. A rule turns a parameter, its gradient and its moments into their new values; it
 * works on one tensor or on a whole flat group alike. Schedules will live here too. */
#ifndef HT_OPTIM_H
#define HT_OPTIM_H

#include "op/op.h"

enum { HT_MAX_MOMENTS = 2 };

/* What the rules read; each uses what it knows. */
typedef struct ht_hyper {
    double beta1, beta2, eps, weight_decay;
    double momentum, dampening;
    bool nesterov;
} ht_hyper;

typedef struct ht_optimizer {
    const char *name;
    ht_hyper standard;
    /* Names of the moments that this rule keeps, ending with NULL; depends on the hyper-parameters. */
    const char *const *(*moments)(const ht_hyper *hyper);
    /* lr: scalar of the parameter's type or f32; applied: i64 scalar, updates made so far. Fills new_moments. */
    ht_val (*step)(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                   ht_val applied, ht_val *new_moments);
} ht_optimizer;

/* NULL when there is none; `names` (may be NULL) receives a list for messages. */
const ht_optimizer *ht_optimizer_find(const char *name, const char **names);

#endif
