/* Muon (Jordan et al. 2024): matrices move along the orthogonal matrix nearest to their momentum; kernels of convolutions
 * count as [out, rest]. Tensors of one axis and none move by AdamW, at a rate of their own. */
#include "optim/update_rule.h"

#include <math.h>

enum { ROUNDS = 5 };

static ht_val product(ht_graph *g, ht_val a, ht_val b, bool transpose_b)
{
    ht_matmul_opts opts = {.size = sizeof opts, .transpose_b = transpose_b};
    return ht_matmul(g, a, b, &opts);
}

/* Newton-Schulz: X = aX + (bA + cA²)X with A = XXᵀ, for a matrix that is not taller than wide. It lifts every singular
 * value to between 0.7 and 1.2, and that is near enough to 1. */
static ht_val orthogonal(ht_graph *g, ht_val x)
{
    static const double a = 3.4445, b = -4.7750, c = 2.0315;
    ht_val norm = ht_add_scalar(g, ht_norm(g, x, 0, NULL, false), 1e-7);
    x = ht_div(g, x, norm);
    for (int i = 0; i < ROUNDS; i++) {
        ht_val square = product(g, x, x, true);
        ht_val fourth = ht_scale(g, product(g, square, square, false), c);
        ht_val inner = product(g, ht_add(g, ht_scale(g, square, b), fourth), x, false);
        x = ht_add(g, ht_scale(g, x, a), inner);
    }
    return x;
}

/* b = μb + (1-μ)g; u = (1-μ)g + μb; p = p(1 - lr λ) - lr·√max(1, rows/columns)·orthogonal(u) */
static ht_val muon_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    (void)applied;
    new_moments[0] = HT_NONE;
    if (!param.id || !grad.id || !moments[0].id || !lr.id) return HT_NONE;
    ht_type type = *ht_type_of(g, param);
    ht_dtype exact = ht_val_dtype(g, grad);
    int64_t rows = type.dim[0], columns = 1;
    for (int i = 1; i < type.rank; i++) columns *= type.dim[i];
    double mu = hyper->momentum;
    new_moments[0] = ht_blend(g, mu, moments[0], 1 - mu, grad);
    ht_val u = ht_blend(g, 1 - mu, grad, mu, new_moments[0]);
    u = ht_reshape(g, u, 2, (int64_t[]){rows, columns});
    if (rows > columns) u = ht_transpose(g, u, 0, 1);
    u = orthogonal(g, u);
    if (rows > columns) u = ht_transpose(g, u, 0, 1);
    double boost = sqrt(fmax(1, (double)rows / (double)columns));
    ht_val direction = ht_scale(g, ht_reshape(g, u, type.rank, type.dim), boost);
    ht_val p = ht_cast(g, param, exact);
    if (hyper->weight_decay != 0) direction = ht_add(g, direction, ht_scale(g, p, hyper->weight_decay));
    return ht_cast(g, ht_sub(g, p, ht_mul(g, ht_cast(g, lr, exact), direction)), type.dtype);
}

static ht_val rest_step(ht_graph *g, const ht_hyper *hyper, ht_val param, ht_val grad, const ht_val *moments, ht_val lr,
                        ht_val applied, ht_val *new_moments)
{
    ht_val rate = ht_scale(g, lr, hyper->rest_lr_scale);
    return ht_adam_update(g, hyper, true, param, grad, moments, rate, applied, new_moments);
}

static const ht_hyper_param params[] = {{"momentum", 0.95}, {"weight_decay", 0}, {"rest_lr_scale", 0.015},
                                        {"beta1", 0.9},     {"beta2", 0.95},     {"eps", 1e-10},
                                        {NULL, 0}};

static const ht_optimizer rest = {.name = "muon", .moments = ht_moments_adam, .step = rest_step, .skips = true};

const ht_optimizer ht_optimizer_muon = {
    .name = "muon",
    .help = "Matrices move along the orthogonal matrix nearest to their momentum, the rest by AdamW.",
    .params = params,
    .lr = 0.02,
    .moments = ht_moments_momentum,
    .step = muon_step,
    .per_tensor = true,
    .rest = &rest,
};
