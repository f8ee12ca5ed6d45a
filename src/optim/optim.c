#include "optim/optim.h"

#include <string.h>

static const char *const no_moments[] = {NULL};
static const char *const momentum_names[] = {"momentum", NULL};
static const char *const adam_names[] = {"m", "v", NULL};

static const char *const *sgd_moments(const ht_hyper *hyper)
{
    return hyper->momentum != 0 ? momentum_names : no_moments;
}

static const char *const *adam_moments(const ht_hyper *hyper)
{
    (void)hyper;
    return adam_names;
}

static ht_val sgd_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                       ht_val applied, ht_val *new_moments)
{
    if (hyper->momentum == 0)
        return ht_emit1(g, "sgd", NULL, HT_VALS(param, grad, lr),
                        HT_ATTRS(HT_FLOAT("weight_decay", hyper->weight_decay)));
    ht_val out[2];
    ht_emit_n(g, "sgd_momentum", NULL, HT_VALS(param, grad, moments[0], lr, applied),
              HT_ATTRS(HT_FLOAT("momentum", hyper->momentum), HT_FLOAT("dampening", hyper->dampening),
                       HT_INT("nesterov", hyper->nesterov), HT_FLOAT("weight_decay", hyper->weight_decay)),
              out);
    new_moments[0] = out[1];
    return out[0];
}

static ht_val adam_rule(ht_graph *g, const ht_hyper *hyper, int64_t decoupled, ht_val param, ht_val grad,
                        const ht_val *moments, ht_val lr, ht_val applied, ht_val *new_moments)
{
    ht_val out[3];
    ht_emit_n(g, "adam", NULL, HT_VALS(param, grad, moments[0], moments[1], lr, applied),
              HT_ATTRS(HT_FLOAT("beta1", hyper->beta1), HT_FLOAT("beta2", hyper->beta2), HT_FLOAT("eps", hyper->eps),
                       HT_FLOAT("weight_decay", hyper->weight_decay), HT_INT("decoupled", decoupled)),
              out);
    new_moments[0] = out[1];
    new_moments[1] = out[2];
    return out[0];
}

static ht_val adam_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    return adam_rule(g, hyper, 0, param, grad, moments, lr, applied, new_moments);
}

static ht_val adamw_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments,
                         ht_val lr, ht_val applied, ht_val *new_moments)
{
    return adam_rule(g, hyper, 1, param, grad, moments, lr, applied, new_moments);
}

static const ht_optimizer optimizers[] = {
    {.name = "sgd", .moments = sgd_moments, .step = sgd_step},
    {"adam", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, adam_moments, adam_step},
    {"adamw", {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}, adam_moments, adamw_step},
};

const ht_optimizer *ht_optimizer_find(const char *name, const char **names)
{
    if (names) *names = "sgd, adam, adamw";
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++)
        if (strcmp(optimizers[i].name, name) == 0) return &optimizers[i];
    return NULL;
}
