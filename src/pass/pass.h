/* pass: one file per pass, graph to graph, and the pipeline that verifies after each. A pass sees a graph, a target and
 * its settings; never a device, a kernel or a file. */
#ifndef HT_PASS_H
#define HT_PASS_H

#include "op/op.h"

/* `--set key=value` and what callers give in C: read by the passes that know the key. */
typedef struct ht_setting {
    const char *key, *value;
} ht_setting;
typedef struct ht_settings {
    size_t count;
    const ht_setting *pairs;
} ht_settings;

/* The last value given for a key, or `standard`. */
const char *ht_setting_text(const ht_settings *settings, const char *key, const char *standard);
/* The same as a number; a value that is none is a failure that names the key. */
ht_status ht_setting_number(ht_context *ctx, const ht_settings *settings, const char *key, double standard,
                            double *out);

typedef struct ht_pass {
    const char *name;
    const char *help; /* one line */
    bool system;      /* leaves the model as it is: the pipeline asserts its hash */
    ht_status (*run)(ht_graph *g, const ht_target *target, const ht_settings *settings);
} ht_pass;

/* All passes in the order of the pipeline; ends with NULL. */
extern const ht_pass *const ht_passes[];
const ht_pass *ht_pass_find(const char *name);

/* Runs one pass and checks what it left: the IR's rules, and the model hash of a system pass. */
ht_status ht_pass_run(ht_graph *g, const ht_pass *pass, const ht_target *target, const ht_settings *settings);

/* Somebody who hears of every pass that was run, with what it left. A failure of `after` ends the work. */
typedef struct ht_pass_observer {
    ht_status (*after)(void *arg, const ht_pass *pass, const ht_graph *g);
    void *arg;
} ht_pass_observer;
/* The same, and tells `observer`, which may be NULL. */
ht_status ht_pass_run_observed(ht_graph *g, const ht_pass *pass, const ht_target *target, const ht_settings *settings,
                               const ht_pass_observer *observer);

/* A precision class in a word: "dot". */
const char *ht_prec_name(ht_prec prec);

/* Does the pass optimizer, or autocast, read a setting of this key? */
bool ht_optimizer_reads(const char *key);
bool ht_autocast_reads(const char *key);

/* Backward for `loss`, which starts from the gradient `loss_grad` (a scalar, or none for 1), appended to the loss's segment: gradients of n
 * values; none where the loss does not depend on a value. */
ht_status ht_backward(ht_graph *g, ht_val loss, ht_val loss_grad, size_t n, const ht_val *wrt, ht_val *grads);

#endif
