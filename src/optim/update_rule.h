/* What the files of the optimisers share: moments by name, and the arithmetic of rules made of point-wise ops. */
#ifndef HT_OPTIM_UPDATE_RULE_H
#define HT_OPTIM_UPDATE_RULE_H

#include "optim/optim.h"

/* Moments of a rule that keeps the same ones for all hyper-parameters. */
const char *const *ht_moments_momentum(const ht_hyper *hyper); /* "momentum" */
const char *const *ht_moments_adam(const ht_hyper *hyper);     /* "m", "v" */

/* The op adam: L2 decay, or decoupled as in AdamW. */
ht_val ht_adam_update(ht_graph *g, const ht_hyper *hyper, bool decoupled, ht_val param, ht_val grad,
                      const ht_val *moments, ht_val lr, ht_val applied, ht_val *new_moments);

/* A scalar, or a parameter, as the number type in which the rule computes: f32, or f64 for f64 parameters. */
ht_val ht_as_exact(ht_graph *g, ht_val value, ht_val grad);
/* The way back to the parameter's type rounds once. */
ht_val ht_as_param(ht_graph *g, ht_val value, ht_val param);
/* a·x + b·y */
ht_val ht_blend(ht_graph *g, double a, ht_val x, double b, ht_val y);
/* β·x + (1-β)·y with β1, which a schedule may move. */
ht_val ht_blend_first(ht_graph *g, const ht_hyper *hyper, ht_val x, ht_val y);
/* Adam's two moments after this gradient. */
void ht_adam_blend(ht_graph *g, const ht_hyper *hyper, ht_val grad, const ht_val *moments, ht_val *next);
/* The rate of a rule that corrects the ratio of its moments, not each: lr·√c2/c1. */
ht_val ht_corrected_rate(ht_graph *g, const ht_hyper *hyper, ht_val lr, ht_val applied, ht_val grad);

#endif
