/* Lion (Chen et al. 2023): the sign of a blend of momentum and gradient. */
#include "optim/update_rule.h"

static const char *const *lion_moments(const ht_hyper *hyper)
{
    static const char *const names[] = {"m", NULL};
    (void)hyper;
    return names;
}

/* p = p(1 - lr λ) - lr·sign(β1 m + (1-β1) g);  m = β2 m + (1-β2) g */
static ht_val lion_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    (void)applied;
    ht_val p = ht_as_exact(g, param, grad), rate = ht_as_exact(g, lr, grad);
    ht_val direction = ht_sign(g, ht_blend_first(g, hyper, moments[0], grad));
    if (hyper->weight_decay != 0) direction = ht_add(g, direction, ht_scale(g, p, hyper->weight_decay));
    new_moments[0] = ht_blend(g, hyper->beta2, moments[0], 1 - hyper->beta2, grad);
    return ht_as_param(g, ht_sub(g, p, ht_mul(g, rate, direction)), param);
}

static const ht_hyper_param params[] = {{"beta1", 0.9}, {"beta2", 0.999}, {"weight_decay", 0}, {NULL, 0}};

const ht_optimizer ht_optimizer_lion = {
    .name = "lion",
    .help = "The sign of a blend of momentum and gradient.",
    .params = params,
    .moments = lion_moments,
    .step = lion_step,
};
