#include "optim/update_rule.h"

#include <math.h>

const char *const *ht_moments_momentum(const ht_hyper *hyper)
{
    static const char *const names[] = {"momentum", NULL};
    (void)hyper;
    return names;
}

const char *const *ht_moments_adam(const ht_hyper *hyper)
{
    static const char *const names[] = {"m", "v", NULL};
    (void)hyper;
    return names;
}

ht_val ht_adam_update(ht_graph *g, const ht_hyper *hyper, bool decoupled, ht_val param, ht_val grad,
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

ht_val ht_as_exact(ht_graph *g, ht_val value, ht_val grad)
{
    return grad.id && value.id ? ht_cast(g, value, ht_val_dtype(g, grad)) : HT_NONE;
}

ht_val ht_as_param(ht_graph *g, ht_val value, ht_val param)
{
    return param.id && value.id ? ht_cast(g, value, ht_val_dtype(g, param)) : HT_NONE;
}

ht_val ht_blend(ht_graph *g, double a, ht_val x, double b, ht_val y)
{
    ht_val share = ht_scale(g, y, b);
    return ht_add(g, ht_scale(g, x, a), share);
}

ht_val ht_blend_first(ht_graph *g, const ht_hyper *hyper, ht_val x, ht_val y)
{
    if (!hyper->cycled.id) return ht_blend(g, hyper->beta1, x, 1 - hyper->beta1, y);
    ht_val beta = ht_as_exact(g, hyper->cycled, y);
    ht_val share = ht_mul(g, y, ht_add_scalar(g, ht_neg(g, beta), 1));
    return ht_add(g, ht_mul(g, x, beta), share);
}

void ht_adam_blend(ht_graph *g, const ht_hyper *hyper, ht_val grad, const ht_val *moments, ht_val *next)
{
    next[0] = ht_blend_first(g, hyper, moments[0], grad);
    next[1] = ht_blend(g, hyper->beta2, moments[1], 1 - hyper->beta2, ht_mul(g, grad, grad));
}

/* 1 - β^updates after this one, from ln β. */
static ht_val correction(ht_graph *g, ht_val log_beta, ht_val applied)
{
    ht_val t = ht_add_scalar(g, ht_cast(g, applied, HT_F64), 1);
    ht_val power = ht_exp(g, ht_mul(g, t, log_beta));
    return ht_sub(g, ht_fill_like(g, power, 1), power);
}

/* ln β as a scalar beside `applied`; of 0, a number whose exponential is 0. */
static ht_val log_of(ht_graph *g, double beta, ht_val applied)
{
    ht_val number = ht_fill(g, HT_F64, 0, NULL, beta > 0 ? log(beta) : -1e4);
    return ht_to_space(g, number, ht_type_of(g, applied)->space);
}

ht_val ht_corrected_rate(ht_graph *g, const ht_hyper *hyper, ht_val lr, ht_val applied, ht_val grad)
{
    ht_val first = hyper->cycled.id ? ht_log(g, ht_cast(g, hyper->cycled, HT_F64)) : log_of(g, hyper->beta1, applied);
    ht_val c1 = correction(g, first, applied), c2 = correction(g, log_of(g, hyper->beta2, applied), applied);
    ht_val corrected = ht_as_exact(g, ht_div(g, ht_sqrt(g, c2), c1), grad);
    return ht_mul(g, ht_as_exact(g, lr, grad), corrected);
}
