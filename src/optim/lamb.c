/* LAMB (You et al. 2019): Adam whose step is as long, against its tensor, as a trust ratio says. */
#include "optim/update_rule.h"

/* u = m/(√v + eps) + λp; p -= lr·√c2/c1·r·u, r = ‖p‖/‖u‖ within bounds, 1 where a norm is 0. The moments are not
 * corrected, their ratio is: as DeepSpeed has it. */
static ht_val lamb_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    ht_val p = ht_as_exact(g, param, grad);
    ht_adam_blend(g, hyper, grad, moments, new_moments);
    ht_val m = new_moments[0], v = new_moments[1];
    ht_val root = hyper->eps_inside_sqrt ? ht_sqrt(g, ht_add_scalar(g, v, hyper->eps))
                                         : ht_add_scalar(g, ht_sqrt(g, v), hyper->eps);
    ht_val u = ht_div(g, m, root);
    if (hyper->weight_decay != 0) u = ht_add(g, u, ht_scale(g, p, hyper->weight_decay));
    ht_val p_norm = ht_norm(g, p, 0, NULL, false), u_norm = ht_norm(g, u, 0, NULL, false);
    if (!p_norm.id || !u_norm.id) return HT_NONE;
    ht_val zero = ht_fill_like(g, p_norm, 0), one = ht_fill_like(g, p_norm, 1);
    ht_val moves = ht_gt(g, u_norm, zero), both = ht_and(g, ht_gt(g, p_norm, zero), moves);
    ht_val trust = ht_clip(g, ht_div(g, p_norm, u_norm), hyper->min_coeff, hyper->max_coeff);
    trust = ht_select(g, both, trust, one);
    ht_val rate = ht_mul(g, ht_corrected_rate(g, hyper, lr, applied, grad), trust);
    return ht_as_param(g, ht_sub(g, p, ht_mul(g, rate, u)), param);
}

static const ht_hyper_param params[] = {
    {"beta1", 0.9},      {"beta2", 0.999},  {"eps", 1e-8},          {"weight_decay", 0},
    {"min_coeff", 0.01}, {"max_coeff", 10}, {"eps_inside_sqrt", 0}, {NULL, 0}};

const ht_optimizer ht_optimizer_lamb = {
    .name = "lamb",
    .help = "Adam with a trust ratio per tensor.",
    .params = params,
    .moments = ht_moments_adam,
    .step = lamb_step,
    .per_tensor = true,
};
