/* Adam (Kingma and Ba 2014) and its two forms with decoupled decay. */
#include "optim/update_rule.h"

static ht_val adam_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    return ht_adam_update(g, hyper, false, param, grad, moments, lr, applied, new_moments);
}

static ht_val adamw_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments,
                         ht_val lr, ht_val applied, ht_val *new_moments)
{
    return ht_adam_update(g, hyper, true, param, grad, moments, lr, applied, new_moments);
}

/* p -= lr·√c2/c1·m/(√v + eps), then p -= lr·λ·p with the new p: Hugging Face's before 2025, whose eps weighs more. */
static ht_val adamw_hf_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments,
                            ht_val lr, ht_val applied, ht_val *new_moments)
{
    ht_adam_blend(g, hyper, grad, moments, new_moments);
    ht_val u = ht_div(g, new_moments[0], ht_add_scalar(g, ht_sqrt(g, new_moments[1]), hyper->eps));
    ht_val step = ht_mul(g, ht_corrected_rate(g, hyper, lr, applied, grad), u);
    ht_val p = ht_sub(g, ht_as_exact(g, param, grad), step);
    if (hyper->weight_decay != 0)
        p = ht_sub(g, p, ht_mul(g, ht_scale(g, ht_as_exact(g, lr, grad), hyper->weight_decay), p));
    return ht_as_param(g, p, param);
}

static const ht_hyper_param params[] = {
    {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0}, {NULL, 0}};
static const ht_hyper_param hf_params[] = {
    {"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-6}, {"weight_decay", 0}, {NULL, 0}};

const ht_optimizer ht_optimizer_adam = {
    .name = "adam",
    .help = "Adam with L2 decay.",
    .params = params,
    .moments = ht_moments_adam,
    .step = adam_step,
    .skips = true,
};

const ht_optimizer ht_optimizer_adamw = {
    .name = "adamw",
    .help = "Adam with decoupled decay.",
    .params = params,
    .moments = ht_moments_adam,
    .step = adamw_step,
    .skips = true,
};

const ht_optimizer ht_optimizer_adamw_hf = {
    .name = "adamw_hf",
    .help = "AdamW as Hugging Face had it before 2025.",
    .params = hf_params,
    .moments = ht_moments_adam,
    .step = adamw_hf_step,
};
