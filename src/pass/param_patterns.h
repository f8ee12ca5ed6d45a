/* Parameters chosen by regular expressions over their names. */
#ifndef HT_PASS_PARAM_PATTERNS_H
#define HT_PASS_PARAM_PATTERNS_H

#include "pass/pass.h"

/* Takes the parameters that options->freeze names out of training. An expression that matches no parameter is a failure,
 * and so is it when none is left to train. */
ht_status ht_params_freeze(ht_graph *g, const ht_train_options *options);

/* By state: which of options->groups a trained parameter belongs to; group_count: none. A group that no parameter
 * belongs to is a failure, unless only `some` of the model's parameters are here. *out is heap memory for free(). */
ht_status ht_params_group(ht_graph *g, const ht_train_options *options, bool some, size_t **out);

/* By state: is it a trained parameter that options->pruned names? An expression that matches none is a failure, unless only
 * `some` of the model's parameters are here. *out is heap memory for free(). */
ht_status ht_params_pruned(ht_graph *g, const ht_train_options *options, bool some, bool **out);

/* By value: those of `candidates` whose names match become `chosen`, too; *count of them. */
ht_status ht_params_match(ht_graph *g, const char *setting, const char *pattern, const bool *candidates, bool *chosen,
                          size_t *count);

#endif
