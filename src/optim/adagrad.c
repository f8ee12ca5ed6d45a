#include "optim/update_rule.h"

static const char *const *adagrad_moments(const ht_hyper *hyper)
{
    static const char *const names[] = {"sum", NULL};
    (void)hyper;
    return names;
}

/* g += λp; s += g²; p -= lr/(1 + updates·decay) · g/(√s + eps) */
static ht_val adagrad_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments,
                           ht_val lr, ht_val applied, ht_val *new_moments)
{
    ht_val p = ht_as_exact(g, param, grad), rate = ht_as_exact(g, lr, grad);
    if (hyper->weight_decay != 0) grad = ht_add(g, grad, ht_scale(g, p, hyper->weight_decay));
    ht_val sum = ht_add(g, moments[0], ht_mul(g, grad, grad));
    if (hyper->lr_decay != 0)
        rate = ht_div(g, rate, ht_add_scalar(g, ht_scale(g, ht_as_exact(g, applied, grad), hyper->lr_decay), 1));
    ht_val root = ht_add_scalar(g, ht_sqrt(g, sum), hyper->eps);
    ht_val step = ht_div(g, ht_mul(g, rate, grad), root);
    new_moments[0] = sum;
    return ht_as_param(g, ht_sub(g, p, step), param);
}

static const ht_hyper_param params[] = {
    {"eps", 1e-10}, {"weight_decay", 0}, {"lr_decay", 0}, {"initial_accumulator", 0}, {NULL, 0}};

const ht_optimizer ht_optimizer_adagrad = {
    .name = "adagrad",
    .help = "Steps that shrink with the sum of squared gradients.",
    .params = params,
    .moments = adagrad_moments,
    .step = adagrad_step,
    .accumulates = true,
};
