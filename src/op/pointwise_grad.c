/* Gradients of the point-wise rows, in graph terms, so that they can be differentiated again. At kinks and ties they
 * follow PyTorch. A gradient leaves in the number type of its input. */
#include "op/pointwise.h"

#include "op/op.h"

static ht_status give(ht_graph *g, const ht_grad *d, size_t input, ht_val dx)
{
    d->dx[input] = ht_cast(g, dx, ht_val_dtype(g, d->x[input]));
    return ht_graph_status(g);
}

static ht_val zeros(ht_graph *g, ht_val like)
{
    return ht_fill_like(g, like, 0);
}

/* a·factor + term, for constants. */
static ht_val affine(ht_graph *g, ht_val a, double factor, double term)
{
    return ht_add_scalar(g, ht_scale(g, a, factor), term);
}

ht_status ht_add_grad(ht_graph *g, const ht_grad *d)
{
    if (d->need[0]) give(g, d, 0, d->dy[0]);
    if (d->need[1]) give(g, d, 1, d->dy[0]);
    return ht_graph_status(g);
}

ht_status ht_sub_grad(ht_graph *g, const ht_grad *d)
{
    if (d->need[0]) give(g, d, 0, d->dy[0]);
    if (d->need[1]) give(g, d, 1, ht_neg(g, d->dy[0]));
    return ht_graph_status(g);
}

ht_status ht_mul_grad(ht_graph *g, const ht_grad *d)
{
    if (d->need[0]) give(g, d, 0, ht_mul(g, d->dy[0], d->x[1]));
    if (d->need[1]) give(g, d, 1, ht_mul(g, d->dy[0], d->x[0]));
    return ht_graph_status(g);
}

ht_status ht_div_grad(ht_graph *g, const ht_grad *d)
{
    if (d->need[0]) give(g, d, 0, ht_div(g, d->dy[0], d->x[1]));
    if (d->need[1]) give(g, d, 1, ht_neg(g, ht_mul(g, d->dy[0], ht_div(g, d->y[0], d->x[1]))));
    return ht_graph_status(g);
}

/* The gradient goes to the selected operand; a tie shares it equally. */
static ht_status extreme_grad(ht_graph *g, const ht_grad *d, ht_val (*loses)(ht_graph *, ht_val, ht_val))
{
    ht_val tie = ht_eq(g, d->x[0], d->x[1]);
    ht_val share = ht_select(g, tie, ht_scale(g, d->dy[0], 0.5), d->dy[0]);
    for (int i = 0; i < 2; i++) {
        if (!d->need[i]) continue;
        ht_val none = zeros(g, share);
        give(g, d, i, ht_select(g, loses(g, d->x[i], d->x[1 - i]), none, share));
    }
    return ht_graph_status(g);
}

ht_status ht_min_grad(ht_graph *g, const ht_grad *d)
{
    return extreme_grad(g, d, ht_gt);
}

ht_status ht_max_grad(ht_graph *g, const ht_grad *d)
{
    return extreme_grad(g, d, ht_lt);
}

/* da = dy b a^(b-1), and 0 for 0^0; db = dy y log a, and 0 where a is 0 and b is not negative. The base is replaced by
 * 1 where the answer is 0 anyway, so that no infinity comes up in a second derivative either. */
ht_status ht_pow_grad(ht_graph *g, const ht_grad *d)
{
    ht_val a = d->x[0], b = d->x[1];
    ht_val at_zero = ht_eq(g, a, zeros(g, a)), ones = ht_fill_like(g, a, 1);
    if (d->need[0]) {
        ht_val flat = ht_and(g, at_zero, ht_eq(g, b, zeros(g, b)));
        ht_val power = ht_add_scalar(g, b, -1);
        ht_val slope = ht_mul(g, b, ht_pow(g, ht_select(g, flat, ones, a), power));
        give(g, d, 0, ht_mul(g, d->dy[0], slope));
    }
    if (d->need[1]) {
        ht_val flat = ht_and(g, at_zero, ht_ge(g, b, zeros(g, b)));
        ht_val slope = ht_mul(g, d->y[0], ht_log(g, ht_select(g, flat, ones, a)));
        give(g, d, 1, ht_mul(g, d->dy[0], slope));
    }
    return ht_graph_status(g);
}

ht_status ht_neg_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_neg(g, d->dy[0]));
}

ht_status ht_abs_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_mul(g, d->dy[0], ht_sign(g, d->x[0])));
}

ht_status ht_sign_grad(ht_graph *g, const ht_grad *d)
{
    d->dx[0] = HT_NONE;
    return ht_graph_status(g);
}

ht_status ht_exp_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_mul(g, d->dy[0], d->y[0]));
}

ht_status ht_log_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_div(g, d->dy[0], d->x[0]));
}

ht_status ht_sqrt_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_div(g, d->dy[0], ht_scale(g, d->y[0], 2)));
}

/* -y³/2 */
ht_status ht_rsqrt_grad(ht_graph *g, const ht_grad *d)
{
    ht_val cube = ht_mul(g, d->y[0], ht_mul(g, d->y[0], d->y[0]));
    return give(g, d, 0, ht_mul(g, d->dy[0], ht_scale(g, cube, -0.5)));
}

ht_status ht_reciprocal_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_neg(g, ht_mul(g, d->dy[0], ht_mul(g, d->y[0], d->y[0]))));
}

ht_status ht_sin_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_mul(g, d->dy[0], ht_cos(g, d->x[0])));
}

ht_status ht_cos_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_neg(g, ht_mul(g, d->dy[0], ht_sin(g, d->x[0]))));
}

/* 1 - y² */
ht_status ht_tanh_grad(ht_graph *g, const ht_grad *d)
{
    ht_val slope = affine(g, ht_mul(g, d->y[0], d->y[0]), -1, 1);
    return give(g, d, 0, ht_mul(g, d->dy[0], slope));
}

/* 2/√π exp(-x²) */
ht_status ht_erf_grad(ht_graph *g, const ht_grad *d)
{
    ht_val bell = ht_exp(g, ht_neg(g, ht_mul(g, d->x[0], d->x[0])));
    return give(g, d, 0, ht_mul(g, d->dy[0], ht_scale(g, bell, 1.12837916709551257390)));
}

/* y (1 - y) */
ht_status ht_sigmoid_grad(ht_graph *g, const ht_grad *d)
{
    ht_val slope = ht_mul(g, d->y[0], affine(g, d->y[0], -1, 1));
    return give(g, d, 0, ht_mul(g, d->dy[0], slope));
}

ht_status ht_relu_grad(ht_graph *g, const ht_grad *d)
{
    ht_val off = ht_le(g, d->y[0], zeros(g, d->y[0]));
    return give(g, d, 0, ht_select(g, off, zeros(g, d->dy[0]), d->dy[0]));
}

/* Φ(x) + x φ(x) */
ht_status ht_gelu_grad(ht_graph *g, const ht_grad *d)
{
    ht_val x = d->x[0];
    ht_val below = affine(g, ht_erf(g, ht_scale(g, x, 0.70710678118654752440)), 0.5, 0.5);
    ht_val density = ht_scale(g, ht_exp(g, ht_scale(g, ht_mul(g, x, x), -0.5)), 0.39894228040143267794);
    return give(g, d, 0, ht_mul(g, d->dy[0], ht_add(g, below, ht_mul(g, x, density))));
}

ht_status ht_gelu_tanh_rule(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_gelu_tanh_grad(g, d->dy[0], d->x[0]));
}

/* a s(b), s the slope of gelu_tanh. With t = tanh(u), u = k (x + c x³): s' = (1 - t²) (u' + x u''/2 - x t u'²). */
ht_status ht_gelu_tanh_grad_rule(ht_graph *g, const ht_grad *d)
{
    const double k = 0.79788456080286535588, c = 0.044715;
    if (d->need[0]) give(g, d, 0, ht_gelu_tanh_grad(g, d->dy[0], d->x[1]));
    if (!d->need[1]) return ht_graph_status(g);
    ht_val x = d->x[1], square = ht_mul(g, x, x);
    ht_val t = ht_tanh(g, ht_mul(g, x, affine(g, square, k * c, k)));
    ht_val u1 = affine(g, square, 3 * k * c, k), half_u2 = ht_scale(g, x, 3 * k * c);
    ht_val inner = ht_mul(g, x, ht_sub(g, half_u2, ht_mul(g, t, ht_mul(g, u1, u1))));
    ht_val bend = ht_mul(g, affine(g, ht_mul(g, t, t), -1, 1), ht_add(g, u1, inner));
    return give(g, d, 1, ht_mul(g, ht_mul(g, d->dy[0], d->x[0]), bend));
}

/* s (1 + x (1 - s)) */
ht_status ht_silu_grad(ht_graph *g, const ht_grad *d)
{
    ht_val s = ht_sigmoid(g, d->x[0]);
    ht_val slope = ht_mul(g, s, ht_add_scalar(g, ht_mul(g, d->x[0], affine(g, s, -1, 1)), 1));
    return give(g, d, 0, ht_mul(g, d->dy[0], slope));
}

ht_status ht_softplus_grad(ht_graph *g, const ht_grad *d)
{
    return give(g, d, 0, ht_mul(g, d->dy[0], ht_sigmoid(g, d->x[0])));
}

ht_status ht_clip_grad(ht_graph *g, const ht_grad *d)
{
    double low = ht_call_float(d->call, "low"), high = ht_call_float(d->call, "high");
    ht_val x = d->x[0];
    ht_val above = ht_ge(g, x, ht_number_beside(g, x, low));
    ht_val below = ht_le(g, x, ht_number_beside(g, x, high));
    ht_val none = zeros(g, d->dy[0]);
    return give(g, d, 0, ht_select(g, ht_and(g, above, below), d->dy[0], none));
}

ht_status ht_select_grad(ht_graph *g, const ht_grad *d)
{
    ht_val none = zeros(g, d->dy[0]);
    if (d->need[1]) give(g, d, 1, ht_select(g, d->x[0], d->dy[0], none));
    if (d->need[2]) give(g, d, 2, ht_select(g, d->x[0], none, d->dy[0]));
    return ht_graph_status(g);
}

ht_status ht_cast_grad(ht_graph *g, const ht_grad *d)
{
    if (ht_dtype_is_float(ht_val_dtype(g, d->x[0]))) give(g, d, 0, d->dy[0]);
    return ht_graph_status(g);
}
