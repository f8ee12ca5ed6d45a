/* The update rules against values computed elsewhere: the references directly, without a graph. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "op/op.h"

extern const ht_op ht_op_sgd, ht_op_sgd_momentum, ht_op_adam;

enum { MAX_ELEMS = 64, MOST_STATES = 3 };

/* One call of an op on n elements: states (parameter first), gradient, learning rate, step. */
typedef struct rule {
    const ht_op *op;
    size_t n_attr;
    ht_attr attr[8];
} rule;

static rule rule_of(const ht_op *op, size_t n_given, const ht_attr *given)
{
    rule r = {.op = op};
    for (; op->attrs[r.n_attr].key; r.n_attr++) {
        ht_attr *a = &r.attr[r.n_attr];
        *a = op->attrs[r.n_attr].standard;
        a->key = op->attrs[r.n_attr].key;
        a->kind = op->attrs[r.n_attr].kind;
        for (size_t i = 0; i < n_given; i++)
            if (strcmp(given[i].key, a->key) == 0) *a = given[i];
    }
    return r;
}

static void apply(const rule *r, int64_t n, double (*state)[MAX_ELEMS], const double *grad, double lr, int64_t step)
{
    size_t states = (size_t)r->op->n_out, n_in = 0;
    ht_type tensor = ht_type_make(HT_F64, 1, &n), scalar = ht_type_make(HT_F64, 0, NULL);
    ht_type integer = ht_type_make(HT_I64, 0, NULL);
    const ht_type *in_types[8], *out_types[MOST_STATES] = {&tensor, &tensor, &tensor};
    const double *in[8];
    double next[MOST_STATES][MAX_ELEMS], step_value = (double)step;
    double *out[MOST_STATES] = {next[0], next[1], next[2]};
#define INPUT(type, value) (in_types[n_in] = (type), in[n_in++] = (value))
    INPUT(&tensor, state[0]);
    INPUT(&tensor, grad);
    for (size_t i = 1; i < states; i++) INPUT(&tensor, state[i]);
    INPUT(&scalar, &lr);
    if (r->op != &ht_op_sgd) INPUT(&integer, &step_value);
    assert_int_equal(n_in, r->op->min_in);
    ht_call call = {r->op, n_in, states, r->n_attr, in_types, out_types, r->attr};
    ht_type inferred[MOST_STATES];
    ht_context ctx = {0};
    assert_int_equal(r->op->infer(&ctx, &call, inferred), HT_OK);
    r->op->ref(&call, in, out);
    for (size_t i = 0; i < states; i++) memcpy(state[i], next[i], (size_t)n * sizeof(double));
}

/* p0 = 1, lr 0.1, weight decay 0.1, gradients 0.5, -0.25, 0.1. */
static void check_three(const rule *r, const double *expected, double tolerance)
{
    static const double grads[] = {0.5, -0.25, 0.1};
    double state[MOST_STATES][MAX_ELEMS] = {{1}};
    for (int64_t step = 0; step < 3; step++) {
        apply(r, 1, state, &grads[step], 0.1, step);
        assert_true(fabs(state[0][0] - expected[step]) <= tolerance);
    }
}

#define RULE(op, ...) rule_of(op, HT_ATTRS(HT_FLOAT("weight_decay", 0.1), __VA_ARGS__))

static void adam__l2_decay_matches_known_values(void **unused)
{
    (void)unused;
    rule r = RULE(&ht_op_adam, HT_INT("decoupled", 0));
    check_three(&r, (const double[]){.90000000, .85444137, .80240379}, 5e-9);
}

static void adam__decoupled_decay_matches_known_values(void **unused)
{
    (void)unused;
    rule r = RULE(&ht_op_adam, HT_INT("decoupled", 1));
    check_three(&r, (const double[]){.89000000, .85446630, .81439728}, 5e-9);
}

static void sgd__momentum_matches_known_values(void **unused)
{
    (void)unused;
    rule r = RULE(&ht_op_sgd_momentum, HT_FLOAT("momentum", 0.9));
    check_three(&r, (const double[]){.94, .9016, .848024}, 1e-12);
}

static void sgd__dampening_spares_the_first_step(void **unused)
{
    (void)unused;
    rule r = RULE(&ht_op_sgd_momentum, HT_FLOAT("momentum", 0.9), HT_FLOAT("dampening", 0.5));
    check_three(&r, (const double[]){.94, .8938, .842751}, 1e-12);
}

static void sgd__nesterov_matches_known_values(void **unused)
{
    (void)unused;
    rule r = RULE(&ht_op_sgd_momentum, HT_FLOAT("momentum", 0.9), HT_INT("nesterov", 1));
    check_three(&r, (const double[]){.886, .868066, .80190615}, 5e-9);
}

static void sgd__momentum_zero_is_plain_sgd(void **unused)
{
    (void)unused;
    const double grad = 0.3;
    rule plain = RULE(&ht_op_sgd, HT_FLOAT("weight_decay", 0.1));
    rule none = RULE(&ht_op_sgd_momentum, HT_FLOAT("momentum", 0));
    double a[MOST_STATES][MAX_ELEMS] = {{1}}, b[MOST_STATES][MAX_ELEMS] = {{1}};
    for (int64_t step = 0; step < 4; step++) {
        apply(&plain, 1, a, &grad, 0.1, step);
        apply(&none, 1, b, &grad, 0.1, step);
        assert_true(a[0][0] == b[0][0]);
    }
    assert_true(a[0][0] < 0.9);
}

static void update__bad_attributes_are_refused(void **unused)
{
    (void)unused;
    int64_t n = 1;
    ht_type tensor = ht_type_make(HT_F32, 1, &n), lr = ht_type_make(HT_F32, 0, NULL),
            step = ht_type_make(HT_I64, 0, NULL);
    const ht_type *in[] = {&tensor, &tensor, &tensor, &lr, &step};
    ht_context ctx = {0};
    ht_type out[MOST_STATES];
    rule bad[] = {
        RULE(&ht_op_sgd_momentum, HT_FLOAT("momentum", NAN)),
        RULE(&ht_op_sgd_momentum, HT_FLOAT("momentum", 0), HT_INT("nesterov", 1)),
        RULE(&ht_op_sgd_momentum, HT_FLOAT("dampening", 0.1), HT_INT("nesterov", 1)),
        RULE(&ht_op_sgd_momentum, HT_INT("nesterov", 2)),
        rule_of(&ht_op_sgd_momentum, HT_ATTRS(HT_FLOAT("weight_decay", -1))),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ht_call call = {bad[i].op, 5, 2, bad[i].n_attr, in, NULL, bad[i].attr};
        assert_int_equal(bad[i].op->infer(&ctx, &call, out), HT_EINVAL);
        assert_true(ctx.message[0]);
    }
}

/* ---- trajectories of ten steps: {"Parameters": {name: [[..] × 11]}, "Gradients": {name: [[..] × 10]}, …} ---- */

static int64_t read_numbers(const ht_json *list, double *to)
{
    int64_t n = 0;
    for (const ht_json *x = list->child; x; x = x->next) {
        assert_true(n < MAX_ELEMS);
        assert_true(ht_json_as_number(x, &to[n++]));
    }
    return n;
}

static void check_trajectory(const rule *r, const ht_json *file, const char *name, double tolerance)
{
    static const char *const state_names[MOST_STATES] = {"Parameters", "Momentum1s", "Momentum2s"};
    const ht_json *row[MOST_STATES];
    double state[MOST_STATES][MAX_ELEMS], grad[MAX_ELEMS], expected[MAX_ELEMS];
    size_t states = (size_t)r->op->n_out;
    for (size_t i = 0; i < states; i++) {
        row[i] = ht_json_get(ht_json_get(file, state_names[i]), name)->child;
        read_numbers(row[i], state[i]);
    }
    int64_t step = 0;
    for (const ht_json *g = ht_json_get(ht_json_get(file, "Gradients"), name)->child; g; g = g->next, step++) {
        int64_t n = read_numbers(g, grad);
        apply(r, n, state, grad, 1e-3, step);
        for (size_t i = 0; i < states; i++) {
            row[i] = row[i]->next;
            assert_int_equal(read_numbers(row[i], expected), n);
            for (int64_t k = 0; k < n; k++) assert_true(fabs(state[i][k] - expected[k]) <= tolerance);
        }
    }
    assert_int_equal(step, 10);
}

static void check_file(const rule *r, const char *path)
{
    const char *folder = getenv("HALFTONE_DATA");
    if (!folder) skip();
    char *text, full[4096];
    size_t length;
    ht_context ctx = {0};
    const ht_json *file;
    ht_arena *arena = ht_arena_create();
    snprintf(full, sizeof full, "%s/optimizers/%s", folder, path);
    assert_int_equal(ht_read_file(&ctx, &text, &length, full), HT_OK);
    assert_int_equal(ht_json_parse(&ctx, arena, path, text, length, &file), HT_OK);
    const ht_json *parameters = ht_json_get(file, "Parameters");
    assert_true(parameters && parameters->count > 0);
    /* The files hold f32 that was rounded after each step. */
    for (const ht_json *p = parameters->child; p; p = p->next) check_trajectory(r, file, p->key, 5e-7);
    ht_arena_free(arena);
    free(text);
}

static void adam__decoupled_follows_pytorch_for_ten_steps(void **unused)
{
    (void)unused;
    rule r = rule_of(&ht_op_adam, HT_ATTRS(HT_FLOAT("weight_decay", 0.01)));
    check_file(&r, "adamw/cpu_adamw_test_single_weight_mode_0.json");
    check_file(&r, "adamw/cpu_adamw_test_multiple_weights_mode_0.json");
}

static void sgd__follows_pytorch_for_ten_steps(void **unused)
{
    (void)unused;
    rule r = rule_of(&ht_op_sgd, HT_ATTRS(HT_FLOAT("weight_decay", 0)));
    check_file(&r, "sgd/cpu_sgd_test_single_weight.json");
    check_file(&r, "sgd/cpu_sgd_test_multiple_weights.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adam__l2_decay_matches_known_values),
        cmocka_unit_test(adam__decoupled_decay_matches_known_values),
        cmocka_unit_test(sgd__momentum_matches_known_values),
        cmocka_unit_test(sgd__dampening_spares_the_first_step),
        cmocka_unit_test(sgd__nesterov_matches_known_values),
        cmocka_unit_test(sgd__momentum_zero_is_plain_sgd),
        cmocka_unit_test(update__bad_attributes_are_refused),
        cmocka_unit_test(adam__decoupled_follows_pytorch_for_ten_steps),
        cmocka_unit_test(sgd__follows_pytorch_for_ten_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
