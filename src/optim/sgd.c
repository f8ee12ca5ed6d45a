#include "optim/update_rule.h"

static const char *const *sgd_moments(const ht_hyper *hyper)
{
    static const char *const none[] = {NULL};
    return hyper->momentum != 0 ? ht_moments_momentum(hyper) : none;
}

static ht_val sgd_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                       ht_val applied, ht_val *new_moments)
{
    if (hyper->momentum == 0)
        return ht_emit1(g, "sgd", NULL, HT_VALS(param, grad, lr, hyper->apply),
                        HT_ATTRS(HT_FLOAT("weight_decay", hyper->weight_decay)));
    ht_val out[2];
    ht_emit_n(g, "sgd_momentum", NULL, HT_VALS(param, grad, moments[0], lr, applied, hyper->apply),
              HT_ATTRS(HT_FLOAT("momentum", hyper->momentum), HT_FLOAT("dampening", hyper->dampening),
                       HT_INT("nesterov", hyper->nesterov), HT_FLOAT("weight_decay", hyper->weight_decay)),
              out);
    new_moments[0] = out[1];
    return out[0];
}

static const ht_hyper_param params[] = {
    {"momentum", 0}, {"dampening", 0}, {"nesterov", 0}, {"weight_decay", 0}, {NULL, 0}};

const ht_optimizer ht_optimizer_sgd = {
    .name = "sgd",
    .help = "Gradient descent, with momentum and L2 decay.",
    .params = params,
    .moments = sgd_moments,
    .step = sgd_step,
    .skips = true,
};
