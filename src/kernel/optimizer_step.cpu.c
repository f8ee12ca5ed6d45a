/* sgd, sgd_momentum, adam: rules in op/optimizer_step.c.  Parameter, gradient and moments: any floats, row-major.
 * Numerics: real, one rounding per result; what depends on the step alone is f64, once per call.  Threads: tiles of
 * elements.  Traffic: each operand once.  Bound: bandwidth.
 * A chunk is read whole before it is written, so any result may lie over any input of its type. */
#include <string.h>

#include "kernel/cpu.h"
#include "op/op.h"

enum { GRAIN = 16384, CHUNK = 512, TENSORS = 4 };

/* The same scalars serve all three; each uses what its rule needs. */
typedef struct update {
    const ht_launch *launch;
    int tensors; /* inputs that have the parameter's shape */
    int64_t elems;
    void (*run)(const struct update *u, real (*x)[CHUNK], int64_t n);
    bool first, nesterov;
    real lr, shrink, decay; /* p · shrink, g + decay · p */
    real beta1, one_minus1; /* also momentum and 1 - dampening */
    real beta2, one_minus2;
    real step_size, root_scale; /* lr/c1 and 1/√c2 */
    real eps;
} update;

/* x holds p, g and the moments, and leaves with p and the new moments in the order of the results. */
static void sgd_chunk(const update *u, real (*x)[CHUNK], int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[0][i] -= u->lr * (x[1][i] + u->decay * x[0][i]);
}

static void sgd_momentum_chunk(const update *u, real (*x)[CHUNK], int64_t n)
{
    real fresh = u->first ? 1 : u->one_minus1;
    if (u->first) memset(x[2], 0, (size_t)n * sizeof(real));
    for (int64_t i = 0; i < n; i++) {
        real g = x[1][i] + u->decay * x[0][i];
        real b = u->beta1 * x[2][i] + fresh * g;
        x[1][i] = b;
        x[2][i] = g;
    }
    if (u->nesterov)
        for (int64_t i = 0; i < n; i++) x[0][i] -= u->lr * (x[2][i] + u->beta1 * x[1][i]);
    else
        for (int64_t i = 0; i < n; i++) x[0][i] -= u->lr * x[1][i];
}

static void adam_chunk(const update *u, real (*x)[CHUNK], int64_t n)
{
    /* Decoupled decay leaves g alone, also where p is infinite. */
    if (u->decay != 0)
        for (int64_t i = 0; i < n; i++) x[1][i] += u->decay * x[0][i];
    for (int64_t i = 0; i < n; i++) {
        real g = x[1][i];
        real m = u->beta1 * x[2][i] + u->one_minus1 * g;
        real v = u->beta2 * x[3][i] + u->one_minus2 * g * g;
        x[0][i] = x[0][i] * u->shrink - u->step_size * m / (fn_sqrt(v) * u->root_scale + u->eps);
        x[1][i] = m;
        x[2][i] = v;
    }
}

static void update_tile(void *arg, int64_t tile)
{
    const update *u = arg;
    const ht_call *call = u->launch->call;
    real x[TENSORS][CHUNK];
    int64_t end = ht_min_i64(u->elems, (tile + 1) * GRAIN);
    for (int64_t at = tile * GRAIN; at < end; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, end - at);
        for (int i = 0; i < u->tensors; i++) ht_load(x[i], u->launch->in[i], call->in[i]->dtype, at, n);
        u->run(u, x, n);
        for (size_t i = 0; i < call->n_out; i++) ht_save(u->launch->out[i], call->out[i]->dtype, at, x[i], n);
    }
}

static void run(update *u)
{
    u->elems = ht_type_elems(u->launch->call->out[0]);
    ht_parallel(u->launch->pool, ht_tiles(u->elems, GRAIN), update_tile, u);
}

static double scalar(const ht_launch *launch, size_t input)
{
    return ht_load_f64(launch->in[input], launch->call->in[input]->dtype, 0);
}

static void sgd_run(const ht_launch *launch)
{
    update u = {.launch = launch, .tensors = 2, .run = sgd_chunk};
    u.lr = (real)scalar(launch, 2);
    u.decay = (real)ht_call_float(launch->call, "weight_decay");
    run(&u);
}

static void sgd_momentum_run(const ht_launch *launch)
{
    update u = {.launch = launch, .tensors = 3, .run = sgd_momentum_chunk};
    u.lr = (real)scalar(launch, 3);
    u.first = scalar(launch, 4) == 0;
    u.nesterov = ht_call_int(launch->call, "nesterov") != 0;
    u.decay = (real)ht_call_float(launch->call, "weight_decay");
    u.beta1 = (real)ht_call_float(launch->call, "momentum");
    u.one_minus1 = (real)(1 - ht_call_float(launch->call, "dampening"));
    run(&u);
}

static void adam_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    double beta1 = ht_call_float(call, "beta1"), beta2 = ht_call_float(call, "beta2");
    double decay = ht_call_float(call, "weight_decay"), lr = scalar(launch, 4), t = scalar(launch, 5) + 1;
    bool decoupled = ht_call_int(call, "decoupled") != 0;
    update u = {.launch = launch, .tensors = 4, .run = adam_chunk};
    u.shrink = decoupled ? (real)(1 - lr * decay) : 1;
    u.decay = decoupled ? 0 : (real)decay;
    u.beta1 = (real)beta1;
    u.beta2 = (real)beta2;
    u.one_minus1 = (real)(1 - beta1);
    u.one_minus2 = (real)(1 - beta2);
    u.step_size = (real)(lr / (1 - pow(beta1, t)));
    u.root_scale = (real)(1 / sqrt(1 - pow(beta2, t)));
    u.eps = (real)ht_call_float(call, "eps");
    run(&u);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided(call);
}

HT_CPU_KERNEL(sgd, can, NULL, sgd_run)
HT_CPU_KERNEL(sgd_momentum, can, NULL, sgd_momentum_run)
HT_CPU_KERNEL(adam, can, NULL, adam_run)
