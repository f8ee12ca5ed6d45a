/* sgd, sgd_momentum, adam: rules in op/optimizer_step.c.  Parameter, gradient and moments: any floats.
 * Numerics: real, one rounding per result; what depends on the step alone is f64, once per launch.  Threads and
 * neighbours: kernel/elementwise/fused.h.  Traffic: each operand once.  Bound: bandwidth. */
#include <string.h>

#include "kernel/cpu.h"
#include "op/op.h"

enum { CHUNK = 256, TENSORS = 4, RESULTS = 3 };

/* The same scalars serve all three; each uses what its rule needs. */
typedef struct update {
    bool keep, first, nesterov; /* keep: the results are the old values */
    real lr, shrink, decay;     /* p · shrink, g + decay · p */
    real beta1, one_minus1;     /* also momentum and 1 - dampening */
    real beta2, one_minus2;
    real step_size, root_scale; /* lr/c1 and 1/√c2 */
    real eps;
} update;

_Static_assert(sizeof(update) <= HT_SPAN_CONSTANTS, "constants of a launch");

/* x: p, g and the moments.  y: the new p and moments, each perhaps over one of x. */
typedef void (*rule)(const update *u, real *const *y, const real *const *x, int64_t n);

static void sgd_rule(const update *u, real *const *y, const real *const *x, int64_t n)
{
    const real *p = x[0], *g = x[1], lr = u->lr, decay = u->decay;
    real *to = y[0];
    HT_ELEMENTWISE_ALONE
    for (int64_t i = 0; i < n; i++) to[i] = p[i] - lr * (g[i] + decay * p[i]);
}

static void sgd_momentum_rule(const update *u, real *const *y, const real *const *x, int64_t n)
{
    const real *p = x[0], *g = x[1], *b = x[2], lr = u->lr, decay = u->decay, momentum = u->beta1;
    real *to = y[0], *velocity = y[1], fresh = u->first ? 1 : u->one_minus1;
    bool first = u->first, nesterov = u->nesterov;
    HT_ELEMENTWISE_ALONE
    for (int64_t i = 0; i < n; i++) {
        real before = p[i], slope = g[i] + decay * before;
        real now = momentum * (first ? 0 : b[i]) + fresh * slope;
        real step = nesterov ? slope + momentum * now : now;
        velocity[i] = now;
        to[i] = before - lr * step;
    }
}

static void adam_rule(const update *u, real *const *y, const real *const *x, int64_t n)
{
    const real *p = x[0], *g = x[1], *m = x[2], *v = x[3];
    const update c = *u;
    real *to = y[0], *mean = y[1], *square = y[2];
    bool coupled = c.decay != 0; /* decoupled decay leaves g alone, also where p is infinite */
    HT_ELEMENTWISE_ALONE
    for (int64_t i = 0; i < n; i++) {
        real before = p[i], slope = coupled ? g[i] + c.decay * before : g[i];
        real m1 = c.beta1 * m[i] + c.one_minus1 * slope;
        real v1 = c.beta2 * v[i] + c.one_minus2 * slope * slope;
        to[i] = before * c.shrink - c.step_size * m1 / (fn_sqrt(v1) * c.root_scale + c.eps);
        mean[i] = m1;
        square[i] = v1;
    }
}

/* The old values as results. Each may lie over another one's input, so all are read before any is written. */
static void copy_chunk(const ht_span_args *s, const real *const *x, real (*to)[CHUNK], int64_t at, int64_t n)
{
    for (size_t i = 0; i < s->call->n_out; i++) memcpy(to[i], x[i ? i + 1 : 0], (size_t)n * sizeof(real));
    for (size_t i = 0; i < s->call->n_out; i++) ht_save(s->out[i], s->call->out[i]->dtype, at, to[i], n);
}

/* Operands of other float types pass through arrays on the stack; a chunk is read whole before it is written. */
static void run_chunks(const ht_span_args *s, rule apply, size_t tensors)
{
    real from[TENSORS][CHUNK], to[RESULTS][CHUNK];
    const real *x[TENSORS];
    real *y[RESULTS];
    const ht_dtype native = HT_REAL_DTYPE;
    bool keep = ((const update *)s->constants)->keep;
    for (int64_t at = 0; at < s->n; at += CHUNK) {
        int64_t n = ht_min_i64(CHUNK, s->n - at);
        for (size_t i = 0; i < tensors; i++) x[i] = ht_view(from[i], s->in[i], s->call->in[i]->dtype, at, n);
        if (keep) {
            copy_chunk(s, x, to, at, n);
            continue;
        }
        for (size_t i = 0; i < s->call->n_out; i++)
            y[i] = s->call->out[i]->dtype == native ? (real *)s->out[i] + at : to[i];
        apply(s->constants, y, x, n);
        for (size_t i = 0; i < s->call->n_out; i++)
            if (y[i] == to[i]) ht_save(s->out[i], s->call->out[i]->dtype, at, to[i], n);
    }
}

static void sgd_span(const ht_span_args *s)
{
    run_chunks(s, sgd_rule, 2);
}

static void sgd_momentum_span(const ht_span_args *s)
{
    run_chunks(s, sgd_momentum_rule, 3);
}

static void adam_span(const ht_span_args *s)
{
    run_chunks(s, adam_rule, 4);
}

static double scalar(const ht_span_args *whole, size_t input)
{
    return ht_load_f64(whole->in[input], whole->call->in[input]->dtype, 0);
}

/* Does the input `apply`, at this place if it is there, say no? */
static bool says_no(const ht_span_args *whole, size_t apply)
{
    return whole->call->n_in > apply && scalar(whole, apply) == 0;
}

static void sgd_begin(const ht_span_args *whole, void *constants)
{
    update u = {.lr = (real)scalar(whole, 2), .keep = says_no(whole, 3)};
    u.decay = (real)ht_call_float(whole->call, "weight_decay");
    memcpy(constants, &u, sizeof u);
}

static void sgd_momentum_begin(const ht_span_args *whole, void *constants)
{
    update u = {.lr = (real)scalar(whole, 3), .first = scalar(whole, 4) == 0, .keep = says_no(whole, 5)};
    u.nesterov = ht_call_int(whole->call, "nesterov") != 0;
    u.decay = (real)ht_call_float(whole->call, "weight_decay");
    u.beta1 = (real)ht_call_float(whole->call, "momentum");
    u.one_minus1 = (real)(1 - ht_call_float(whole->call, "dampening"));
    memcpy(constants, &u, sizeof u);
}

static void adam_begin(const ht_span_args *whole, void *constants)
{
    const ht_call *call = whole->call;
    double beta1 = call->n_in > 7 ? scalar(whole, 7) : ht_call_float(call, "beta1");
    double beta2 = ht_call_float(call, "beta2"), decay = ht_call_float(call, "weight_decay"), lr = scalar(whole, 4),
           t = scalar(whole, 5) + 1;
    bool decoupled = ht_call_int(call, "decoupled") != 0;
    update u = {.shrink = decoupled ? (real)(1 - lr * decay) : 1, .keep = says_no(whole, 6)};
    u.decay = decoupled ? 0 : (real)decay;
    u.beta1 = (real)beta1;
    u.beta2 = (real)beta2;
    u.one_minus1 = (real)(1 - beta1);
    u.one_minus2 = (real)(1 - beta2);
    u.step_size = (real)(lr / (1 - pow(beta1, t)));
    u.root_scale = (real)(1 / sqrt(1 - pow(beta2, t)));
    u.eps = (real)ht_call_float(call, "eps");
    memcpy(constants, &u, sizeof u);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_refuse_strided_results(call);
}

HT_CPU_ELEMENTWISE_KERNEL(sgd, can, sgd_begin, sgd_span)
HT_CPU_ELEMENTWISE_KERNEL(sgd_momentum, can, sgd_momentum_begin, sgd_momentum_span)
HT_CPU_ELEMENTWISE_KERNEL(adam, can, adam_begin, adam_span)
