// sgd, sgd_momentum, adam: rules in op/optimizer_step.c. What depends on the step alone is computed once per block, in
// double; elements in real, one rounding per result.

// The same numbers serve all three; each uses what its rule needs.
struct optimizer_step {
    bool keep, first;           // keep: the results are the old values
    real lr, shrink, decay;     // p · shrink, g + decay · p
    real beta1, one_minus1;     // also momentum and 1 - dampening
    real beta2, one_minus2;
    real step_size, root_scale; // lr/c1 and 1/√c2
};

DEVICE void sgd_begin(optimizer_step *u, bool keep, double lr, double decay)
{
    u->keep = keep;
    u->lr = (real)lr;
    u->decay = (real)decay;
}

DEVICE real sgd_step(const optimizer_step &u, real p, real g) { return u.keep ? p : p - u.lr * (g + u.decay * p); }

DEVICE void sgd_momentum_begin(optimizer_step *u, bool keep, double lr, int64_t step, double decay, double momentum,
                               double dampening)
{
    sgd_begin(u, keep, lr, decay);
    u->first = step == 0;
    u->beta1 = (real)momentum;
    u->one_minus1 = u->first ? 1 : (real)(1 - dampening);
}

template <bool NESTEROV>
DEVICE void sgd_momentum_step(const optimizer_step &u, real p, real g, real b, real *to, real *velocity)
{
    const real slope = g + u.decay * p, now = u.beta1 * (u.first ? 0 : b) + u.one_minus1 * slope;
    *to = u.keep ? p : p - u.lr * (NESTEROV ? slope + u.beta1 * now : now);
    *velocity = u.keep ? b : now;
}

// x^n by squaring: as exact as x itself is, and short, since all threads of a block wait for it.
DEVICE double whole_power(double x, int64_t n)
{
    double power = 1;
    for (; n > 0; n /= 2, x *= x)
        if (n % 2) power *= x;
    return power;
}

DEVICE void adam_begin(optimizer_step *u, bool keep, double lr, int64_t step, double beta1, double beta2, double decay,
                       bool decoupled)
{
    u->keep = keep;
    u->shrink = decoupled ? (real)(1 - lr * decay) : 1;
    u->decay = decoupled ? 0 : (real)decay;
    u->beta1 = (real)beta1;
    u->beta2 = (real)beta2;
    u->one_minus1 = (real)(1 - beta1);
    u->one_minus2 = (real)(1 - beta2);
    u->step_size = (real)(lr / (1 - whole_power(beta1, step + 1)));
    u->root_scale = (real)(1 / sqrt(1 - whole_power(beta2, step + 1)));
}

// COUPLED: the decay is part of the gradient; decoupled it leaves g alone, also where p is infinite.
template <bool COUPLED>
DEVICE void adam_step(const optimizer_step &u, real eps, real p, real g, real m, real v, real *to, real *mean, real *square)
{
    const real slope = COUPLED ? g + u.decay * p : g;
    const real m1 = u.beta1 * m + u.one_minus1 * slope, v1 = u.beta2 * v + u.one_minus2 * slope * slope;
    *to = u.keep ? p : p * u.shrink - u.step_size * m1 / (fn_sqrt(v1) * u.root_scale + eps);
    *mean = u.keep ? m : m1;
    *square = u.keep ? v : v1;
}
