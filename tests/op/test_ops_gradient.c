/* Gradient rules against central differences, in f64 throughout: every differentiable op, every sample. The loss is
 * Σ weight·y over the float results that gradients flow into; what autodiff builds is run by the reference interpreter.
 * Second derivatives are checked the same way on Σ weight·(dloss/dx). */
#include "op_tests.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The five-point rule with this step is off by about step⁴ ≈ 1e-17 and by rounding, 1e-16/step ≈ 1e-12, both far below
 * the tolerances, and the step stays inside the margin that samples keep from kinks. */
#define STEP             5e-5
#define FIRST_TOLERANCE  1e-6
#define SECOND_TOLERANCE 1e-5
/* Above these many elements random directions are probed instead of every element; the lower bound is for what comes on
 * top of the first check: second derivatives, and losses that see one result of several. */
enum { FIRST_EVERY = 4096, MORE_EVERY = 128, DIRECTIONS = 8 };

/* Ops whose gradient cannot be differentiated again. A refusal that is not here, or a row that no longer refuses,
 * fails. */
static const char no_second[] = " attention lstm ";

/* Ops that have no gradient: discrete, random, the end of a step, or the gradient of one of the above. */
static const char no_first[] =
    " eq ne lt le gt ge and or xor not fill constant iota one_hot argmax all_finite norm_finite sum_squares_finite"
    " scale_step round_stochastic amax_step quantize quantize_both quantize_sum scaled_matmul random_normal"
    " random_uniform sgd sgd_momentum adam attention_grad lstm_grad cross_entropy_both batchnorm_stats quantize_linear"
    " layernorm_grad_sum"
    " dequantize_linear quantize_dynamic matmul_q lstm_q embedding_q conv_q matmul_nbits ";

/* Ops whose gradient is an estimate by intent, which differences do not have: tests of their own compare it with its formula. */
static const char straight_through[] = " fake_quantize straight_through ";

static bool is_listed(const char *names, const char *name)
{
    char word[128];
    snprintf(word, sizeof word, " %s ", name);
    return strstr(names, word) != NULL;
}

/* ---- the graph of a case: forward, loss, gradients, and perhaps gradients of those ---- */

enum { MAX_WRT = HT_SAMPLE_MAX + 8 };

/* A set of values that something is differentiated by, with its gradients. */
typedef struct derivatives {
    size_t n;
    ht_val wrt[MAX_WRT], grad[MAX_WRT];
} derivatives;

typedef struct grad_case {
    op_case c;
    size_t n_weighted;
    ht_val weighted[MAX_WRT], weight[MAX_WRT]; /* of the loss last built */
    derivatives first, second;
    ht_reference *ref;
} grad_case;

/* The loss sees one result, and is differentiated by one input, unless they are -1. False when the sample has no floats
 * to differentiate, such as integers that are added. */
static bool first_build(grad_case *k, const ht_op *op, const char *line, int only_result, int only_input)
{
    op_case *c = &k->c;
    ht_context *ctx = context_shared();
    memset(k, 0, sizeof *k);
    op_case_parse(c, op, line);
    op_case_floats(c, HT_F64);
    if (!op_case_build(c)) op_case_fail(c, "the builder refuses f64: %s", ht_context_message(ctx));
    const ht_node *node = op_case_node(c);
    k->n_weighted = op_case_results(c, k->weighted);
    if (only_result >= 0) {
        k->weighted[0] = ht_node_out(node, (size_t)only_result);
        k->n_weighted = 1;
    }
    for (size_t i = 0; i < node->n_in; i++) {
        if (!c->call->in[i] || !ht_dtype_is_float(c->call->in[i]->dtype)) continue;
        if (only_input < 0 || only_input == (int)i) k->first.wrt[k->first.n++] = ht_node_in(c->graph, node, i);
    }
    if (!k->n_weighted || !k->first.n) return false;
    ht_val loss = op_weighted_sum(c->graph, k->n_weighted, k->weighted, "w", k->weight);
    if (ht_gradients(c->graph, loss, k->first.n, k->first.wrt, k->first.grad) != HT_OK)
        op_case_fail(c, "no gradient: %s", ht_context_message(ctx));
    return true;
}

/* By the inputs of the op and by the weights of the first loss, which stand for the gradients that flow into it. */
static ht_status second_build(grad_case *k)
{
    derivatives *d = &k->second;
    for (size_t i = 0; i < k->first.n; i++) d->wrt[d->n++] = k->first.wrt[i];
    for (size_t i = 0; i < k->n_weighted; i++) d->wrt[d->n++] = k->weight[i];
    k->n_weighted = k->first.n;
    memcpy(k->weighted, k->first.grad, sizeof k->weighted);
    ht_val loss = op_weighted_sum(k->c.graph, k->n_weighted, k->weighted, "second.w", k->weight);
    return ht_gradients(k->c.graph, loss, d->n, d->wrt, d->grad);
}

/* Inputs from the sample and the weights' sites, then one run. */
static void evaluate(grad_case *k)
{
    ht_graph *g = k->c.graph;
    ht_context *ctx = context_shared();
    if (ht_graph_verify(g) != HT_OK) op_case_fail(&k->c, "its gradient does not verify: %s", ht_context_message(ctx));
    if (ht_reference_create(&k->ref, g, false, 1) != HT_OK) op_case_fail(&k->c, "%s", ht_context_message(ctx));
    const ht_node *node = op_case_node(&k->c);
    for (size_t s = 0; s < g->segments[0].input_count; s++) {
        ht_val v = g->segments[0].inputs[s];
        double *to = ht_reference_value(k->ref, v);
        const char *name = ht_value_of(g, v)->name;
        bool operand = false;
        for (size_t i = 0; i < node->n_in; i++) {
            if (ht_node_in(g, node, i).id != v.id) continue;
            operand = true;
            for (int64_t e = 0; e < ht_type_elems(ht_type_of(g, v)); e++) to[e] = ht_sample_value(&k->c.sample, i, e);
        }
        for (int64_t e = 0; !operand && e < ht_type_elems(ht_type_of(g, v)); e++) to[e] = op_weight(name, e);
    }
    if (ht_reference_run(k->ref, 0) != HT_OK) op_case_fail(&k->c, "%s", ht_context_message(ctx));
}

static void grad_case_free(grad_case *k)
{
    ht_reference_free(k->ref);
    op_case_free(&k->c);
}

/* ---- differences ---- */

/* What is differentiated: Σ weight·value over some arrays that `run` fills. */
typedef struct probed {
    void (*run)(void *arg);
    void *arg;
    size_t n;
    const double *value[MAX_WRT], *weight[MAX_WRT];
    int64_t elems[MAX_WRT];
    double *store[4]; /* space for all values, at the four points of the rule */
} probed;

static void probed_add(probed *p, const double *value, const double *weight, int64_t elems)
{
    p->value[p->n] = value;
    p->weight[p->n] = weight;
    p->elems[p->n++] = elems;
}

static void probed_allocate(probed *p, ht_arena *arena)
{
    int64_t all = 0;
    for (size_t i = 0; i < p->n; i++) all += p->elems[i];
    for (size_t point = 0; point < 4; point++) {
        p->store[point] = HT_NEW(arena, double, all);
        assert_non_null(p->store[point]);
    }
}

static const double rule_at[4] = {-2, -1, 1, 2}, rule_factor[4] = {1. / 12, -8. / 12, 8. / 12, -1. / 12};

/* Moves x along the direction to each point of the rule, and puts it back. */
static void probed_points(probed *p, double *x, const double *at, int64_t n, const double *direction)
{
    for (size_t point = 0; point < 4; point++) {
        for (int64_t k = 0; k < n; k++) x[k] = at[k] + rule_at[point] * STEP * direction[k];
        p->run(p->arg);
        double *to = p->store[point];
        for (size_t i = 0; i < p->n; i++) {
            memcpy(to, p->value[i], (size_t)p->elems[i] * sizeof *to);
            to += p->elems[i];
        }
    }
    memcpy(x, at, (size_t)n * sizeof *x);
}

/* Differences are taken value by value before they are summed: what does not move cancels exactly. */
static double probed_slope(const probed *p)
{
    double slope = 0;
    int64_t at = 0;
    for (size_t i = 0; i < p->n; i++)
        for (int64_t e = 0; e < p->elems[i]; e++, at++) {
            double inner = p->store[2][at] - p->store[1][at], outer = p->store[3][at] - p->store[0][at];
            if (inner != 0 || outer != 0)
                slope += p->weight[i][e] * (rule_factor[2] * inner + rule_factor[3] * outer) / STEP;
        }
    return slope;
}

typedef struct checked {
    const op_case *c;
    const char *what;
    double tolerance;
    int64_t every;
} checked;

static void check_slope(const checked *how, size_t input, int64_t element, double numeric, double analytic,
                        double scale)
{
    if (fabs(numeric - analytic) <= how->tolerance * fmax(fabs(numeric), scale) + 1e-12) return;
    op_case_fail(how->c, "%s by value %zu, %s %" PRId64 ": differences give %.12g, the graph %.12g (scale %.3g)",
                 how->what, input, element < 0 ? "direction" : "element", element < 0 ? -1 - element : element, numeric,
                 analytic, scale);
}

static void check_every_element(const checked *how, probed *p, size_t input, double *x, const double *at, int64_t n,
                                const double *analytic)
{
    double scale = op_largest(analytic, n), one = 1;
    for (int64_t k = 0; k < n; k++) {
        probed_points(p, x + k, at + k, 1, &one);
        check_slope(how, input, k, probed_slope(p), analytic[k], scale);
    }
}

static void check_directions(const checked *how, probed *p, size_t input, double *x, const double *at, int64_t n,
                             const double *analytic, ht_arena *arena)
{
    double *direction = HT_NEW(arena, double, n), scale = op_largest(analytic, n);
    assert_non_null(direction);
    for (int64_t d = 0; d < DIRECTIONS; d++) {
        double expected = 0;
        for (int64_t k = 0; k < n; k++) {
            direction[k] = op_weight("direction", d * n + k);
            expected += direction[k] * analytic[k];
        }
        probed_points(p, x, at, n, direction);
        check_slope(how, input, -1 - d, probed_slope(p), expected, scale);
    }
}

static void check_input(const checked *how, probed *p, size_t input, double *x, int64_t n, const double *analytic,
                        ht_arena *arena)
{
    double *at = HT_NEW(arena, double, n);
    assert_non_null(at);
    memcpy(at, x, (size_t)n * sizeof *at);
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(analytic[k])) op_case_fail(how->c, "%s by value %zu is not finite", how->what, input);
    if (n <= how->every)
        check_every_element(how, p, input, x, at, n, analytic);
    else
        check_directions(how, p, input, x, at, n, analytic, arena);
}

/* ---- first derivatives ---- */

typedef struct op_run {
    const op_case *c;
    op_arrays arrays;
} op_run;

static void run_op(void *arg)
{
    op_run *r = arg;
    op_arrays_reference(&r->arrays, r->c);
}

/* A point-wise op computes element k from elements k: one probe moves them all, and the slopes are read one by one. */
static bool is_local(const ht_call *call)
{
    if (call->op->fuse != HT_FUSE_POINT || call->n_out != 1) return false;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && !ht_type_same_shape(call->in[i], call->out[0])) return false;
    return true;
}

static void check_local(const checked *how, probed *p, size_t input, double *x, int64_t n, const double *analytic,
                        ht_arena *arena)
{
    double *at = HT_NEW(arena, double, n), *ones = HT_NEW(arena, double, n), scale = op_largest(analytic, n);
    assert_non_null(at);
    assert_non_null(ones);
    for (int64_t k = 0; k < n; k++) ones[k] = 1;
    memcpy(at, x, (size_t)n * sizeof *at);
    probed_points(p, x, at, n, ones);
    for (int64_t k = 0; k < n; k++) {
        double slope = 0;
        for (size_t point = 0; point < 4; point++) slope += rule_factor[point] * p->store[point][k] / STEP;
        check_slope(how, input, k, p->weight[0][k] * slope, analytic[k], scale);
    }
}

/* Returns the results that the loss saw, a bit for each. */
static unsigned check_first(const ht_op *op, const char *line, int only_result)
{
    grad_case k;
    if (!first_build(&k, op, line, only_result, -1)) {
        grad_case_free(&k);
        return 0;
    }
    evaluate(&k);
    op_run r = {.c = &k.c};
    op_arrays_make(&r.arrays, &k.c);
    probed p = {.run = run_op, .arg = &r};
    unsigned seen = 0;
    const ht_node *node = op_case_node(&k.c);
    for (size_t i = 0, w = 0; i < node->n_out; i++) {
        if (w == k.n_weighted || ht_node_out(node, i).id != k.weighted[w].id) continue;
        seen |= 1u << i;
        probed_add(&p, r.arrays.out[i], ht_reference_value(k.ref, k.weight[w++]), ht_type_elems(k.c.call->out[i]));
    }
    probed_allocate(&p, k.c.arena);
    checked how = {&k.c, "gradient", FIRST_TOLERANCE, only_result < 0 ? FIRST_EVERY : MORE_EVERY};
    for (size_t i = 0, f = 0; i < node->n_in; i++) {
        if (f == k.first.n || ht_node_in(k.c.graph, node, i).id != k.first.wrt[f].id) continue;
        const double *analytic = ht_reference_value(k.ref, k.first.grad[f++]);
        int64_t n = ht_type_elems(k.c.call->in[i]);
        if (is_local(k.c.call))
            check_local(&how, &p, i, r.arrays.in[i], n, analytic, k.c.arena);
        else
            check_input(&how, &p, i, r.arrays.in[i], n, analytic, k.c.arena);
    }
    grad_case_free(&k);
    return seen;
}

/* A rule that is asked for one input only must answer as if it was asked for all. */
static void check_alone(const ht_op *op, const char *line)
{
    grad_case all;
    first_build(&all, op, line, -1, -1);
    evaluate(&all);
    const ht_node *node = op_case_node(&all.c);
    for (size_t i = 0, f = 0; i < node->n_in && all.first.n > 1; i++) {
        if (f == all.first.n || ht_node_in(all.c.graph, node, i).id != all.first.wrt[f].id) continue;
        grad_case one;
        first_build(&one, op, line, -1, (int)i);
        evaluate(&one);
        const double *a = ht_reference_value(all.ref, all.first.grad[f++]);
        const double *b = ht_reference_value(one.ref, one.first.grad[0]);
        for (int64_t e = 0; e < ht_type_elems(all.c.call->in[i]); e++)
            if (a[e] != b[e])
                op_case_fail(&all.c, "gradient by input %zu, element %" PRId64 ": %.17g alone, %.17g with others", i, e,
                             b[e], a[e]);
        grad_case_free(&one);
    }
    grad_case_free(&all);
}

/* ---- second derivatives ---- */

static void run_graph(void *arg)
{
    grad_case *k = arg;
    if (ht_reference_run(k->ref, 0) != HT_OK) op_case_fail(&k->c, "%s", ht_context_message(context_shared()));
}

/* True when it was refused for a reason. */
static bool check_second(const ht_op *op, const char *line)
{
    grad_case k, once;
    ht_status status = HT_OK;
    if (first_build(&k, op, line, -1, -1)) status = second_build(&k);
    if (!k.second.n) {
        grad_case_free(&k);
        return false;
    }
    if (status != HT_OK) {
        if (status != HT_ENOTSUP)
            op_case_fail(&k.c, "second derivative: %s: %s", ht_status_name(status),
                         ht_context_message(context_shared()));
        grad_case_free(&k);
        return true;
    }
    evaluate(&k);
    /* The probes only need the first gradients: a graph without the second ones is quicker to run. */
    first_build(&once, op, line, -1, -1);
    evaluate(&once);
    probed p = {.run = run_graph, .arg = &once};
    for (size_t i = 0; i < once.first.n; i++)
        probed_add(&p, ht_reference_value(once.ref, once.first.grad[i]), ht_reference_value(k.ref, k.weight[i]),
                   ht_type_elems(ht_type_of(once.c.graph, once.first.grad[i])));
    probed_allocate(&p, once.c.arena);
    checked how = {&k.c, "second derivative", SECOND_TOLERANCE, MORE_EVERY};
    for (size_t i = 0; i < k.second.n; i++) {
        ht_val v = i < once.first.n ? once.first.wrt[i] : once.weight[i - once.first.n];
        check_input(&how, &p, i, ht_reference_value(once.ref, v), ht_type_elems(ht_type_of(once.c.graph, v)),
                    ht_reference_value(k.ref, k.second.grad[i]), once.c.arena);
    }
    grad_case_free(&k);
    grad_case_free(&once);
    return false;
}

/* A part of a pair has no derivative by itself; test_op_move differentiates the whole. */
static bool is_part(const ht_op *op)
{
    return op->done || op->start;
}

static void gradients_match_differences(void **state)
{
    const ht_op *op = *state;
    if (is_part(op)) skip();
    if (!op->grad) {
        if (!op->no_grad) fail_msg("%s has no gradient and no reason for it", op->name);
        if (!is_listed(no_first, op->name)) fail_msg("%s has no gradient: %s", op->name, op->no_grad);
        skip();
    }
    if (is_listed(no_first, op->name)) fail_msg("%s is listed as having no gradient, but it has one", op->name);
    if (is_listed(straight_through, op->name)) skip();
    bool any = false;
    for (size_t s = 0; op->samples[s]; s++) {
        unsigned seen = check_first(op, op->samples[s], -1);
        for (int i = 0; i < op->n_out; i++)
            if (seen >> i & 1 && seen != 1u << i) check_first(op, op->samples[s], i);
        if (seen) check_alone(op, op->samples[s]);
        any |= seen != 0;
    }
    if (!any) fail_msg("%s has a gradient rule, but no sample has floats to differentiate", op->name);
}

static bool has_gradient(const ht_op *op)
{
    return op->grad != NULL && !is_part(op) && !is_listed(straight_through, op->name);
}

static void second_derivatives_match_differences(void **state)
{
    const ht_op *op = *state;
    bool refused = false;
    for (size_t s = 0; op->samples[s]; s++) refused |= check_second(op, op->samples[s]);
    if (refused && !is_listed(no_second, op->name))
        fail_msg("%s has no second derivative: %s", op->name, ht_context_message(context_shared()));
    if (!refused && is_listed(no_second, op->name)) fail_msg("%s is listed as having no second derivative", op->name);
}

int main(void)
{
    int failures = op_tests_run("gradients match differences", gradients_match_differences, NULL);
    return failures +
           op_tests_run("second derivatives match differences", second_derivatives_match_differences, has_gradient);
}
