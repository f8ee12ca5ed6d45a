/* optim: optimisers and learning-rate schedules as graph builders. A rule turns a parameter, its gradient and its
 * moments into their new values; a schedule turns the number of updates made so far into the rate of the next one. */
#ifndef HT_OPTIM_H
#define HT_OPTIM_H

#include "op/op.h"

enum { HT_MAX_MOMENTS = 2 };

/* What the rules read; each uses what it knows. */
typedef struct ht_hyper {
    double beta1, beta2, eps, weight_decay;
    double momentum, dampening;
    bool nesterov;
    double lr_decay;             /* Adagrad: the rate is divided by 1 + updates · this */
    double min_coeff, max_coeff; /* LAMB: bounds of the trust ratio */
    bool eps_inside_sqrt;        /* LAMB: √(v + eps), not √v + eps */
    double rest_lr_scale;        /* Muon: the rate of what is no matrix, as a part of the matrices' */
    double initial_accumulator;  /* Adagrad: where its sum starts */
    ht_val cycled; /* a scalar in place of beta1, where a schedule moves it; or none (Adam: only with apply) */
    ht_val apply;  /* for a rule that `skips`: where this bool[] is false, all stays; or none */
} ht_hyper;

/* A number of ht_hyper by its name in settings. */
typedef struct ht_hyper_key {
    const char *name; /* NULL ends the list */
    size_t at;        /* its place in ht_hyper; a bool where is_switch */
    bool is_switch;
    double low, below; /* low <= number < below */
} ht_hyper_key;
extern const ht_hyper_key ht_hyper_keys[];

typedef struct ht_optimizer ht_optimizer;
struct ht_optimizer {
    const char *name;
    ht_hyper standard;
    /* Names of the moments that this rule keeps, ending with NULL; depends on the hyper-parameters. */
    const char *const *(*moments)(const ht_hyper *hyper);
    /* lr: scalar of the parameter's type or f32; applied: i64 scalar, updates made so far. Fills new_moments. */
    ht_val (*step)(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                   ht_val applied, ht_val *new_moments);
    /* The rule looks at a tensor as a whole (its norm): one call per tensor. Others work on a flat group alike. */
    bool per_tensor;
    /* The rule reads hyper.apply. Of others the caller chooses between old and new values. */
    bool skips;
    /* Its moment starts as hyper.initial_accumulator, not as 0. */
    bool accumulates;
    /* The rule for tensors of rank 0 and 1; NULL: this one. */
    const ht_optimizer *rest;
};

/* NULL when there is none; `names` (may be NULL) receives a list for messages. */
const ht_optimizer *ht_optimizer_find(const char *name, const char **names);

/* ---- schedules ---- */

/* A number that a schedule takes; names are those of DeepSpeed's scheduler parameters. */
typedef struct ht_schedule_param {
    const char *name; /* NULL ends the list */
    double standard;  /* NAN: `required`, or else what `help` says */
    bool required;
    const char *help;
} ht_schedule_param;

enum { HT_MAX_SCHEDULE_PARAMS = 12 };

typedef struct ht_schedule {
    const char *name, *help;
    const ht_schedule_param *params;
    /* p: one number per row of params, NAN where none is given; base: the optimiser's own rate; k: f64 scalar, updates
     * made so far. Gives an f64 scalar. */
    ht_val (*rate)(ht_graph *g, const double *p, double base, ht_val k);
    /* The optimiser's momentum (beta1) for the same step, or NULL: left alone. */
    ht_val (*momentum)(ht_graph *g, const double *p, ht_val k);
} ht_schedule;

/* NULL when there is none; `names` (may be NULL) receives a list for messages. */
const ht_schedule *ht_schedule_find(const char *name, const char **names);
/* Standards into p, for callers that then write what they were given. */
void ht_schedule_standards(const ht_schedule *schedule, double *p);
/* Is every required number there, and each one finite and not negative? */
ht_status ht_schedule_check(ht_context *ctx, const ht_schedule *schedule, const double *p);
/* The rate as f32[] from the i64 counter of updates made; checks p first. */
ht_val ht_schedule_rate(ht_graph *g, const ht_schedule *schedule, const double *p, double base, ht_val applied);
/* beta1 as f32[], or none where the schedule leaves it alone. */
ht_val ht_schedule_momentum(ht_graph *g, const ht_schedule *schedule, const double *p, ht_val applied);

#endif
