/* optim: optimisers and learning-rate schedules as graph builders. A rule turns a parameter, its gradient and its
 * moments into their new values; a schedule turns the number of updates made so far into the rate of the next one. */
#ifndef HT_OPTIM_H
#define HT_OPTIM_H

#include "op/op.h"

enum { HT_MAX_MOMENTS = 2 };

/* What the rules read; each uses what it knows. */
typedef struct ht_hyper {
#define HT_HYPER(name, kind, type, low, high, place, help) type name;
#include "optim/hyper.def"
#undef HT_HYPER
    ht_val cycled; /* a scalar in place of beta1, where a schedule moves it; or none (Adam: only with apply) */
    ht_val apply;  /* for a rule that `skips`: where this bool[] is false, all stays; or none */
} ht_hyper;

/* The rows of hyper.def as fields of ht_hyper. */
extern const ht_setting_key ht_hyper_keys[];
/* Does the train block get a key from this row, for jobs whose optimiser reads it? */
bool ht_hyper_has_own_key(const ht_setting_key *key);

/* A hyper-parameter that an optimiser reads. */
typedef struct ht_hyper_param {
    const char *name; /* of a row of hyper.def; NULL ends the list */
    double standard;  /* of a switch: 0 or 1 */
} ht_hyper_param;

typedef struct ht_optimizer ht_optimizer;
struct ht_optimizer {
    const char *name, *help;
    const ht_hyper_param *params; /* all that it reads */
    /* The rate of a job that gives none; the job's other hyper-parameters default to `params` then. 0: they all default
     * to what the train block says. */
    double lr;
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

/* All of them, in the order of messages and docs; ends with NULL. */
extern const ht_optimizer *const ht_optimizers[];
/* NULL when there is none; `names` (may be NULL) receives a list for messages. */
const ht_optimizer *ht_optimizer_find(const char *name, const char **names);
/* Every hyper-parameter as the row says; what it does not read is 0. */
ht_hyper ht_optimizer_standards(const ht_optimizer *optimizer);
/* The row's parameter of this name; NULL when it reads none. */
const ht_hyper_param *ht_optimizer_param(const ht_optimizer *optimizer, const char *name);

/* ---- parameters chosen by name ---- */

enum { HT_MOST_PARAM_PATTERNS = 64 };

/* What the update does otherwise for parameters whose name matches. */
typedef struct ht_param_group {
    const char *match;   /* an extended regular expression of POSIX */
    double lr_scale;     /* of the rate that all others have */
    double weight_decay; /* NAN: that of all others */
} ht_param_group;

/* ---- schedules ---- */

/* A number that a schedule takes; names are those of DeepSpeed's scheduler parameters. */
typedef struct ht_schedule_param {
    const char *name; /* NULL ends the list */
    double standard;  /* NAN: `required`, or else what `help` says */
    bool required;
    const char *help;
} ht_schedule_param;

enum { HT_MAX_SCHEDULE_PARAMS = 12 };
#define HT_CYCLED_BETA2 0.99

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
/* beta1 as f32[], or none where the schedule leaves it alone. With it beta2 is HT_CYCLED_BETA2: DeepSpeed's OneCycle sets
 * both, whatever betas the optimiser was given. */
ht_val ht_schedule_momentum(ht_graph *g, const ht_schedule *schedule, const double *p, ht_val applied);

#endif
