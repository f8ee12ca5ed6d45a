#include "optim/optim.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "optim/muon.h"

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

static ht_val adam_rule(ht_graph *g, const ht_hyper *hyper, int64_t decoupled, ht_val param, ht_val grad,
                        const ht_val *moments, ht_val lr, ht_val applied, ht_val *new_moments)
{
    ht_val out[3];
    ht_emit_n(g, "adam", NULL, HT_VALS(param, grad, moments[0], moments[1], lr, applied, hyper->apply, hyper->cycled),
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

/* ---- rules made of point-wise ops ---- */

/* A scalar as the number type in which the rule computes: f32, or f64 for f64 parameters. */
static ht_val as_exact(ht_graph *g, ht_val scalar, ht_val grad)
{
    return grad.id && scalar.id ? ht_cast(g, scalar, ht_val_dtype(g, grad)) : HT_NONE;
}

/* The same for a parameter; the way back rounds once. */
static ht_val rounded(ht_graph *g, ht_val value, ht_val param)
{
    return param.id && value.id ? ht_cast(g, value, ht_val_dtype(g, param)) : HT_NONE;
}

/* a·x + b·y */
static ht_val blend(ht_graph *g, double a, ht_val x, double b, ht_val y)
{
    return ht_add(g, ht_scale(g, x, a), ht_scale(g, y, b));
}

/* β·x + (1-β)·y with β1, which a schedule may move. */
static ht_val blend_first(ht_graph *g, const ht_hyper *hyper, ht_val x, ht_val y)
{
    if (!hyper->cycled.id) return blend(g, hyper->beta1, x, 1 - hyper->beta1, y);
    ht_val beta = as_exact(g, hyper->cycled, y);
    return ht_add(g, ht_mul(g, x, beta), ht_mul(g, y, ht_add_scalar(g, ht_neg(g, beta), 1)));
}

static const char *const sum_names[] = {"sum", NULL};
static const char *const *adagrad_moments(const ht_hyper *hyper)
{
    (void)hyper;
    return sum_names;
}

/* g += λp; s += g²; p -= lr/(1 + updates·decay) · g/(√s + eps) */
static ht_val adagrad_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments,
                           ht_val lr, ht_val applied, ht_val *new_moments)
{
    ht_val p = as_exact(g, param, grad), rate = as_exact(g, lr, grad);
    if (hyper->weight_decay != 0) grad = ht_add(g, grad, ht_scale(g, p, hyper->weight_decay));
    ht_val sum = ht_add(g, moments[0], ht_mul(g, grad, grad));
    if (hyper->lr_decay != 0)
        rate = ht_div(g, rate, ht_add_scalar(g, ht_scale(g, as_exact(g, applied, grad), hyper->lr_decay), 1));
    ht_val step = ht_div(g, ht_mul(g, rate, grad), ht_add_scalar(g, ht_sqrt(g, sum), hyper->eps));
    new_moments[0] = sum;
    return rounded(g, ht_sub(g, p, step), param);
}

static const char *const lion_names[] = {"m", NULL};
static const char *const *lion_moments(const ht_hyper *hyper)
{
    (void)hyper;
    return lion_names;
}

/* p = p(1 - lr λ) - lr·sign(β1 m + (1-β1) g);  m = β2 m + (1-β2) g */
static ht_val lion_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    (void)applied;
    ht_val p = as_exact(g, param, grad), rate = as_exact(g, lr, grad);
    ht_val way = ht_sign(g, blend_first(g, hyper, moments[0], grad));
    if (hyper->weight_decay != 0) way = ht_add(g, way, ht_scale(g, p, hyper->weight_decay));
    new_moments[0] = blend(g, hyper->beta2, moments[0], 1 - hyper->beta2, grad);
    return rounded(g, ht_sub(g, p, ht_mul(g, rate, way)), param);
}

/* 1 - β^updates after this one, from ln β. */
static ht_val correction(ht_graph *g, ht_val log_beta, ht_val applied)
{
    ht_val t = ht_add_scalar(g, ht_cast(g, applied, HT_F64), 1);
    ht_val power = ht_exp(g, ht_mul(g, t, log_beta));
    return ht_sub(g, ht_fill(g, HT_F64, 0, NULL, 1), power);
}

/* ln β as a scalar; of 0, a number whose exponential is 0. */
static ht_val log_of(ht_graph *g, double beta)
{
    return ht_fill(g, HT_F64, 0, NULL, beta > 0 ? log(beta) : -1e4);
}

/* The rate of a rule that corrects the ratio of its moments, not each: lr·√c2/c1. */
static ht_val corrected_rate(ht_graph *g, const ht_hyper *hyper, ht_val lr, ht_val applied, ht_val grad)
{
    ht_val first = hyper->cycled.id ? ht_log(g, ht_cast(g, hyper->cycled, HT_F64)) : log_of(g, hyper->beta1);
    ht_val c1 = correction(g, first, applied), c2 = correction(g, log_of(g, hyper->beta2), applied);
    return ht_mul(g, as_exact(g, lr, grad), as_exact(g, ht_div(g, ht_sqrt(g, c2), c1), grad));
}

static void adam_blend(ht_graph *g, const ht_hyper *hyper, ht_val grad, const ht_val *moments, ht_val *next)
{
    next[0] = blend_first(g, hyper, moments[0], grad);
    next[1] = blend(g, hyper->beta2, moments[1], 1 - hyper->beta2, ht_mul(g, grad, grad));
}

/* p -= lr·√c2/c1·m/(√v + eps), then p -= lr·λ·p with the new p: Hugging Face's before 2025, whose eps weighs more. */
static ht_val adamw_hf_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments,
                            ht_val lr, ht_val applied, ht_val *new_moments)
{
    adam_blend(g, hyper, grad, moments, new_moments);
    ht_val u = ht_div(g, new_moments[0], ht_add_scalar(g, ht_sqrt(g, new_moments[1]), hyper->eps));
    ht_val p = ht_sub(g, as_exact(g, param, grad), ht_mul(g, corrected_rate(g, hyper, lr, applied, grad), u));
    if (hyper->weight_decay != 0)
        p = ht_sub(g, p, ht_mul(g, ht_scale(g, as_exact(g, lr, grad), hyper->weight_decay), p));
    return rounded(g, p, param);
}

/* u = m/(√v + eps) + λp; p -= lr·√c2/c1·r·u, r = ‖p‖/‖u‖ within bounds, 1 where a norm is 0. The moments are not
 * corrected, their ratio is: as DeepSpeed has it. */
static ht_val lamb_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    ht_val p = as_exact(g, param, grad);
    adam_blend(g, hyper, grad, moments, new_moments);
    ht_val m = new_moments[0], v = new_moments[1];
    ht_val root = hyper->eps_inside_sqrt ? ht_sqrt(g, ht_add_scalar(g, v, hyper->eps))
                                         : ht_add_scalar(g, ht_sqrt(g, v), hyper->eps);
    ht_val u = ht_div(g, m, root);
    if (hyper->weight_decay != 0) u = ht_add(g, u, ht_scale(g, p, hyper->weight_decay));
    ht_val p_norm = ht_norm(g, p, 0, NULL, false), u_norm = ht_norm(g, u, 0, NULL, false);
    if (!p_norm.id || !u_norm.id) return HT_NONE;
    ht_val zero = ht_fill_like(g, p_norm, 0), one = ht_fill_like(g, p_norm, 1);
    ht_val both = ht_and(g, ht_gt(g, p_norm, zero), ht_gt(g, u_norm, zero));
    ht_val trust = ht_clip(g, ht_div(g, p_norm, u_norm), hyper->min_coeff, hyper->max_coeff);
    trust = ht_select(g, both, trust, one);
    ht_val rate = ht_mul(g, corrected_rate(g, hyper, lr, applied, grad), trust);
    return rounded(g, ht_sub(g, p, ht_mul(g, rate, u)), param);
}

static const char *const *muon_moments(const ht_hyper *hyper)
{
    (void)hyper;
    return momentum_names;
}

static ht_val muon_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    (void)applied;
    return ht_muon_matrix(g, hyper, param, grad, moments[0], lr, &new_moments[0]);
}

/* What is no matrix moves by AdamW, at a rate of its own. */
static ht_val muon_rest_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments,
                             ht_val lr, ht_val applied, ht_val *new_moments)
{
    return adam_rule(g, hyper, 1, param, grad, moments, ht_scale(g, lr, hyper->rest_lr_scale), applied, new_moments);
}

static const ht_optimizer muon_rest = {.name = "muon", .moments = adam_moments, .step = muon_rest_step, .skips = true};

static const ht_optimizer optimizers[] = {
    {.name = "sgd", .moments = sgd_moments, .step = sgd_step, .skips = true},
    {.name = "adam",
     .standard = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
     .moments = adam_moments,
     .step = adam_step,
     .skips = true},
    {.name = "adamw",
     .standard = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
     .moments = adam_moments,
     .step = adamw_step,
     .skips = true},
    {.name = "adamw_hf",
     .standard = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6},
     .moments = adam_moments,
     .step = adamw_hf_step},
    {.name = "adagrad",
     .standard = {.eps = 1e-10},
     .moments = adagrad_moments,
     .step = adagrad_step,
     .accumulates = true},
    {.name = "lion", .standard = {.beta1 = 0.9, .beta2 = 0.999}, .moments = lion_moments, .step = lion_step},
    {.name = "lamb",
     .standard = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .min_coeff = 0.01, .max_coeff = 10},
     .moments = adam_moments,
     .step = lamb_step,
     .per_tensor = true},
    {.name = "muon",
     .standard = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-10, .momentum = 0.95, .rest_lr_scale = 0.015},
     .moments = muon_moments,
     .step = muon_step,
     .per_tensor = true,
     .rest = &muon_rest},
};

#define NUMBER(field, low, below)                                                                                      \
    {                                                                                                                  \
#field, offsetof(ht_hyper, field), false, low, below                                                           \
    }
#define SWITCH(field)                                                                                                  \
    {                                                                                                                  \
#field, offsetof(ht_hyper, field), true, 0, INFINITY                                                           \
    }

const ht_hyper_key ht_hyper_keys[] = {
    NUMBER(beta1, 0, 1),
    NUMBER(beta2, 0, 1),
    NUMBER(eps, 0, INFINITY),
    NUMBER(weight_decay, 0, INFINITY),
    NUMBER(momentum, 0, INFINITY),
    NUMBER(dampening, -INFINITY, INFINITY),
    SWITCH(nesterov),
    NUMBER(lr_decay, 0, INFINITY),
    NUMBER(min_coeff, 0, INFINITY),
    NUMBER(max_coeff, 0, INFINITY),
    SWITCH(eps_inside_sqrt),
    NUMBER(rest_lr_scale, 0, INFINITY),
    NUMBER(initial_accumulator, 0, INFINITY),
    {NULL, 0, false, 0, 0},
};

const ht_optimizer *ht_optimizer_find(const char *name, const char **names)
{
    if (names) *names = "sgd, adam, adamw, adamw_hf, adagrad, lion, lamb, muon";
    for (size_t i = 0; i < sizeof optimizers / sizeof optimizers[0]; i++)
        if (strcmp(optimizers[i].name, name) == 0) return &optimizers[i];
    return NULL;
}
