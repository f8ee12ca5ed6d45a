/* Schedules against DeepSpeed's numbers; optimisers against worked values and against PyTorch's trajectories. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "optim/optim.h"
#include "session_fixture.h"
#include "train/train.h"

/* ---- schedules ---- */

typedef struct given {
    const char *name;
    double value;
} given;

static void set_params(const ht_schedule *schedule, const given *numbers, double *p)
{
    ht_schedule_standards(schedule, p);
    for (; numbers->name; numbers++) {
        size_t i = 0;
        while (schedule->params[i].name && strcmp(schedule->params[i].name, numbers->name) != 0) i++;
        assert_non_null(schedule->params[i].name);
        p[i] = numbers->value;
    }
}

enum { STEPS = 12 };

static void assert_rates(const char *name, const given *numbers, double base, const double *rates,
                         const double *momenta)
{
    session_fixture w;
    double p[HT_MAX_SCHEDULE_PARAMS];
    const ht_schedule *schedule = ht_schedule_find(name, NULL);
    assert_non_null(schedule);
    set_params(schedule, numbers, p);
    w = session_begin(0);
    ht_val applied = ht_state_add(w.g, "applied", HT_I64, 0, NULL, HT_ZERO);
    ht_output(w.g, "rate", ht_schedule_rate(w.g, schedule, p, base, applied));
    ht_val momentum = ht_schedule_momentum(w.g, schedule, p, applied);
    assert_int_equal(momentum.id != 0, momenta != NULL);
    if (momentum.id) ht_output(w.g, "momentum", momentum);
    session_plan(&w, NULL, 0);
    for (int64_t k = 0; k < STEPS; k++) {
        float rate, mom;
        must(&w, ht_session_write(w.s, "applied", &k, sizeof k));
        must(&w, ht_session_run(w.s, "forward"));
        must(&w, ht_session_read(w.s, "rate", &rate, sizeof rate));
        if (fabs((double)rate - rates[k] * 1e-3) > 1e-9)
            print_error("%s: %.9g at %d, not %.9g\n", name, (double)rate, (int)k, rates[k] * 1e-3);
        assert_float_equal(rate, rates[k] * 1e-3, 1e-9);
        if (!momenta) continue;
        must(&w, ht_session_read(w.s, "momentum", &mom, sizeof mom));
        assert_float_equal(mom, momenta[k], 1e-6);
    }
    session_end(&w);
}

#define GIVEN(...)                                                                                                     \
    (const given[])                                                                                                    \
    {                                                                                                                  \
        __VA_ARGS__,                                                                                                   \
        {                                                                                                              \
            NULL, 0                                                                                                    \
        }                                                                                                              \
    }
#define RATES(...) ((const double[STEPS]){__VA_ARGS__})

static void schedule__warm_up_is_deepspeeds(void **state)
{
    (void)state;
    assert_rates("WarmupLR", GIVEN({"warmup_num_steps", 8}), 1e-3,
                 RATES(0, 0, .333333, .528321, .666667, .773976, .861654, .935785, 1, 1, 1, 1), NULL);
    assert_rates("WarmupLR", GIVEN({"warmup_num_steps", 8}, {"warmup_linear", 1}, {"warmup_max_lr", 1e-3}), 5,
                 RATES(0, 0, .125, .25, .375, .5, .625, .75, .875, 1, 1, 1), NULL);
    assert_rates("WarmupDecayLR", GIVEN({"warmup_num_steps", 4}, {"total_num_steps", 12}, {"warmup_min_lr", 1e-4}), 5,
                 RATES(.1, .1, .55, .813233, 1, 1, .8875, .775, .6625, .55, .4375, .325), NULL);
    assert_rates(
        "WarmupCosineLR",
        GIVEN({"warmup_num_steps", 4}, {"total_num_steps", 12}, {"warmup_min_ratio", .1}, {"cos_min_ratio", .01}), 1e-3,
        RATES(0, .1, .55, .813233, 1, .96232, .855018, .694428, .505, .315572, .154982, .0476796), NULL);
}

static void schedule__range_test_and_one_cycle_are_deepspeeds(void **state)
{
    (void)state;
    assert_rates("LRRangeTest",
                 GIVEN({"lr_range_test_min_lr", 1e-4}, {"lr_range_test_step_size", 4}, {"lr_range_test_step_rate", 5}),
                 5, RATES(.1, .225, .35, .475, .6, .725, .85, .975, 1.1, 1.225, 1.35, 1.475), NULL);
    assert_rates("LRRangeTest",
                 GIVEN({"lr_range_test_min_lr", 1e-4}, {"lr_range_test_step_size", 4}, {"lr_range_test_step_rate", 5},
                       {"lr_range_test_staircase", 1}),
                 5, RATES(.1, .1, .1, .1, .6, .6, .6, .6, 1.1, 1.1, 1.1, 1.1), NULL);
    assert_rates("OneCycle",
                 GIVEN({"cycle_min_lr", 1e-4}, {"cycle_max_lr", 1e-3}, {"cycle_first_step_size", 4},
                       {"decay_lr_rate", .5}, {"decay_step_size", 2}, {"decay_mom_rate", .1}),
                 5, RATES(.1, .325, .55, .775, 1, .775, .55, .325, .1, .08, .0666666667, .0571428571),
                 RATES(.8, .875, .85, .825, .8, .825, .85, .875, .9, .945, .99, 1.035));
    assert_rates("OneCycle",
                 GIVEN({"cycle_min_lr", 1e-4}, {"cycle_max_lr", 1e-3}, {"cycle_first_step_size", 4},
                       {"cycle_first_stair_count", 2}, {"cycle_momentum", 0}),
                 5, RATES(.1, .1, .55, .55, 1, .55, .55, .1, .1, .1, .1, .1), NULL);
}

/* get_lr of its train.py: warm-up 2, decay until 8, 1 down to 0.1. */
static void schedule__cosine_is_nanogpts(void **state)
{
    (void)state;
    double rates[STEPS];
    for (int it = 0; it < STEPS; it++) {
        double coefficient = 0.5 * (1 + cos(acos(-1.0) * (it - 2) / 6.0));
        rates[it] = it < 2 ? (it + 1) / 3.0 : it > 8 ? 0.1 : 0.1 + coefficient * 0.9;
    }
    assert_rates("cosine", GIVEN({"warmup_steps", 2}, {"decay_steps", 8}, {"min_lr", 1e-4}), 1e-3, rates, NULL);
    assert_rates("cosine", GIVEN({"warmup_steps", 2}, {"decay_steps", 8}), 1e-3, rates, NULL);
}

/* Twelve updates, three of them warm-up: a quarter of the rate more each, then down to the lowest at the last. */
static void schedule__a_jobs_own_begin_at_once_and_end_at_the_lowest_rate(void **state)
{
    (void)state;
    assert_rates("linear", GIVEN({"warmup_steps", 3}, {"decay_steps", 12}, {"min_lr", 2e-4}), 1e-3,
                 RATES(.25, .5, .75, 1, .9, .8, .7, .6, .5, .4, .3, .2), NULL);
    assert_rates("linear", GIVEN({"decay_steps", 11}), 1e-3,
                 RATES(1, .91, .82, .73, .64, .55, .46, .37, .28, .19, .1, .1), NULL);
    assert_rates("warmup", GIVEN({"warmup_steps", 3}), 1e-3, RATES(.25, .5, .75, 1, 1, 1, 1, 1, 1, 1, 1, 1), NULL);
}

static void schedule__what_must_be_given_is_asked_for(void **state)
{
    (void)state;
    session_fixture w;
    double p[HT_MAX_SCHEDULE_PARAMS];
    const char *names;
    assert_null(ht_schedule_find("WarmUp", &names));
    assert_non_null(strstr(names, "WarmupCosineLR"));
    w = session_begin(0);
    const ht_schedule *schedule = ht_schedule_find("WarmupDecayLR", NULL);
    ht_schedule_standards(schedule, p);
    assert_int_equal(ht_schedule_check(w.ctx, schedule, p), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(w.ctx), "total_num_steps must be given"));
    ht_val applied = ht_state_add(w.g, "applied", HT_I64, 0, NULL, HT_ZERO);
    ht_schedule_rate(w.g, schedule, p, 1, applied);
    assert_int_equal(ht_graph_status(w.g), HT_EINVAL);
    session_end(&w);
}

/* ---- optimisers ---- */

typedef struct rule_case {
    const char *name;
    ht_hyper over; /* fields that are not 0 replace the standard ones */
    size_t n;
    double start[2], factor[2]; /* the gradient of element j at step t is factor[j]·{.5, -.25, .1}[t] */
    double want[3][2];
} rule_case;

static void build_rule(const session_fixture *w, const rule_case *c, const ht_optimizer *rule, const ht_hyper *hyper)
{
    ht_graph *g = w->g;
    int64_t n = (int64_t)c->n;
    ht_val param = ht_state_add(g, "p", HT_F32, 1, &n, HT_ZERO), grad = ht_input(g, "g", HT_F32, 1, &n);
    ht_val applied = ht_state_add(g, "applied", HT_I64, 0, NULL, HT_ZERO), moments[HT_MAX_MOMENTS],
           next[HT_MAX_MOMENTS];
    const char *const *names = rule->moments(hyper);
    for (size_t i = 0; names[i]; i++) moments[i] = ht_state_add(g, names[i], HT_F32, 1, &n, HT_ZERO);
    ht_val lr = ht_fill(g, HT_F32, 0, NULL, 0.1);
    ht_val new_param = rule->step(g, hyper, param, grad, moments, lr, applied, next);
    ht_store(g, param, new_param);
    for (size_t i = 0; names[i]; i++) ht_store(g, moments[i], next[i]);
    ht_store(g, applied, ht_add_scalar(g, applied, 1));
}

static void check_rule(const rule_case *c)
{
    static const double gradient[3] = {.5, -.25, .1};
    session_fixture w;
    const ht_optimizer *rule = ht_optimizer_find(c->name, NULL);
    assert_non_null(rule);
    ht_hyper hyper = ht_optimizer_standards(rule);
    hyper.weight_decay = 0.1;
    hyper.momentum = c->over.momentum;
    hyper.dampening = c->over.dampening;
    hyper.nesterov = c->over.nesterov;
    w = session_begin(0);
    build_rule(&w, c, rule, &hyper);
    session_plan(&w, NULL, 0);
    must(&w, ht_session_write_f64(w.s, "p", c->start, c->n));
    for (int t = 0; t < 3; t++) {
        double g[2], p[2];
        for (size_t j = 0; j < c->n; j++) g[j] = c->factor[j] * gradient[t];
        must(&w, ht_session_write_f64(w.s, "g", g, c->n));
        must(&w, ht_session_run(w.s, "forward"));
        must(&w, ht_session_read_f64(w.s, "p", p, c->n));
        for (size_t j = 0; j < c->n; j++) {
            if (fabs(p[j] - c->want[t][j]) > 1e-6) print_error("%s step %d: %.9g\n", c->name, t, p[j]);
            assert_float_equal(p[j], c->want[t][j], 1e-6);
        }
    }
    session_end(&w);
}

/* p0 = 1, lr 0.1, weight decay 0.1, gradients 0.5, -0.25, 0.1. */
static void optimizer__three_steps_are_as_worked_out(void **state)
{
    (void)state;
#define ONE .n = 1, .start = {1}, .factor = { 1 }
    static const rule_case cases[] = {
        {"adam", ONE, .want = {{.90000000}, {.85444137}, {.80240379}}},
        {"adamw", ONE, .want = {{.89000000}, {.85446630}, {.81439728}}},
        {"adamw_hf", ONE, .want = {{.89100626}, {.85573032}, {.81596565}}},
        {"sgd", {.momentum = .9}, ONE, .want = {{.94}, {.9016}, {.848024}}},
        {"sgd", {.momentum = .9, .dampening = .5}, ONE, .want = {{.94}, {.8938}, {.842751}}},
        {"sgd", {.momentum = .9, .nesterov = true}, ONE, .want = {{.886}, {.868066}, {.80190615}}},
        {"adagrad", ONE, .want = {{.9}, {.92576627}, {.8961456}}},
        {"lion", ONE, .want = {{.89}, {.9811}, {.871289}}},
        {"lamb", .n = 2, .start = {1, -2}, .factor = {1, 2},
         .want = {{.947651, -2.047535}, {.905296, -2.079548}, {.869853, -2.108583}}},
    };
#undef ONE
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) check_rule(&cases[i]);
}

static void every_optimizer__reads_hyper_parameters_that_exist(void **state)
{
    (void)state;
    ht_context *ctx;
    assert_int_equal(ht_context_create(&ctx, NULL), HT_OK);
    for (size_t i = 0; ht_optimizers[i]; i++) {
        const ht_optimizer *rule = ht_optimizers[i];
        const ht_hyper hyper = ht_optimizer_standards(rule);
        assert_ptr_equal(ht_optimizer_find(rule->name, NULL), rule);
        assert_true(rule->help[0] && rule->params && rule->moments && rule->step);
        for (const ht_hyper_param *param = rule->params; param->name; param++) {
            const ht_setting_key *key = ht_setting_find(ht_hyper_keys, param->name);
            assert_non_null(key);
            const char *field = (const char *)&hyper + key->at;
            double value = key->kind == HT_SETTING_SWITCH ? *(const bool *)field : *(const double *)field;
            assert_true(value == param->standard);
        }
        assert_int_equal(ht_settings_check(ctx, ht_hyper_keys, &hyper), HT_OK);
    }
    ht_context_free(ctx);
}

/* A gradient U diag(s) Vᵀ moves the matrix along U diag(f(s/‖s‖)) Vᵀ, where f is five rounds of the polynomial: seen
 * here on signed permutations, wide, tall, and as the kernel of a convolution. */
static void muon_case(int rank, const int64_t *dims, double boost)
{
    enum { N = 3 };
    static const double s[N] = {2, -0.6, 0.05};
    session_fixture w;
    double grad[24] = {0}, p[24], norm = 0;
    int64_t rows = dims[0], columns = 1;
    for (int i = 1; i < rank; i++) columns *= dims[i];
    size_t n = (size_t)(rows * columns), at[N];
    for (int k = 0; k < N; k++) {
        at[k] = (size_t)((k + 1) % rows * columns + (k + 2) % columns);
        grad[at[k]] = s[k];
        norm += s[k] * s[k];
    }
    w = session_begin(0);
    const ht_optimizer *rule = ht_optimizer_find("muon", NULL);
    ht_val param = ht_state_add(w.g, "p", HT_F32, rank, dims, HT_CONSTANT(1)), next[2], moments[2];
    ht_val g = ht_input(w.g, "g", HT_F32, rank, dims);
    ht_val applied = ht_state_add(w.g, "applied", HT_I64, 0, NULL, HT_ZERO);
    for (int i = 0; i < 2; i++) moments[i] = ht_state_add(w.g, i ? "v" : "m", HT_F32, rank, dims, HT_ZERO);
    ht_val lr = ht_fill(w.g, HT_F32, 0, NULL, 0.1);
    ht_hyper hyper = ht_optimizer_standards(rule);
    hyper.weight_decay = 0.5;
    ht_store(w.g, param, rule->step(w.g, &hyper, param, g, moments, lr, applied, next));
    ht_store(w.g, moments[0], next[0]);
    session_plan(&w, NULL, 0);
    must(&w, ht_session_write_f64(w.s, "g", grad, n));
    must(&w, ht_session_run(w.s, "forward"));
    must(&w, ht_session_read_f64(w.s, "p", p, n));
    for (int k = 0; k < N; k++) {
        double x = s[k] / sqrt(norm);
        for (int i = 0; i < 5; i++) x = 3.4445 * x - 4.7750 * pow(x, 3) + 2.0315 * pow(x, 5);
        assert_float_equal(p[at[k]], 0.95 - 0.1 * boost * x, 1e-5);
    }
    assert_float_equal(p[0], 0.95, 1e-5);
    session_end(&w);
}

static void optimizer__muon_moves_along_the_nearest_orthogonal_matrix(void **state)
{
    (void)state;
    muon_case(2, (int64_t[]){3, 5}, 1);
    muon_case(2, (int64_t[]){6, 4}, sqrt(1.5));
    muon_case(4, (int64_t[]){4, 1, 2, 2}, 1);
}

/* ---- trajectories ---- */

static const ht_json *row(const ht_json *root, const char *table, const char *name, size_t step)
{
    const ht_json *list = ht_json_get(ht_json_get(root, table), name);
    assert_non_null(list);
    const ht_json *at = list->child;
    while (step-- && at) at = at->next;
    assert_non_null(at);
    return at;
}

static size_t numbers_of(const ht_json *list, double *to)
{
    size_t n = 0;
    for (const ht_json *v = list->child; v; v = v->next) assert_true(ht_json_as_number(v, &to[n++]));
    assert_true(n <= 16);
    return n;
}

/* The loss is Σ p·g, so that its gradient is what the file says. */
static void build_products(const session_fixture *w, const ht_json *root)
{
    ht_val loss = HT_NONE;
    for (const ht_json *p = ht_json_get(root, "Parameters")->child; p; p = p->next) {
        char name[64];
        double start[16];
        int64_t n = (int64_t)numbers_of(p->child, start);
        snprintf(name, sizeof name, "g.%s", p->key);
        ht_val param = ht_param(w->g, p->key, HT_F32, 1, &n, HT_ZERO), grad = ht_input(w->g, name, HT_F32, 1, &n);
        ht_val one = ht_sum(w->g, ht_mul(w->g, param, grad), 0, NULL, false);
        loss = loss.id ? ht_add(w->g, loss, one) : one;
    }
    ht_output(w->g, "loss", loss);
}

static void check_trajectory(const char *folder, const char *file, const ht_train_opts *opts)
{
    session_fixture w;
    char path[1024], *text;
    size_t length;
    const ht_json *root;
    w = session_begin(0);
    ht_arena *arena = ht_arena_create();
    snprintf(path, sizeof path, "%s/optimizers/%s", folder, file);
    must(&w, ht_read_file(w.ctx, &text, &length, path));
    must(&w, ht_json_parse(w.ctx, arena, path, text, length, &root));
    build_products(&w, root);
    must(&w, ht_graph_train(w.g, opts));
    session_plan(&w, NULL, 0);
    for (size_t t = 0; t <= 10; t++) {
        for (const ht_json *p = ht_json_get(root, "Parameters")->child; p; p = p->next) {
            double want[16], have[16], grad[16];
            char name[64];
            size_t n = numbers_of(row(root, "Parameters", p->key, t), want);
            if (t == 0) must(&w, ht_session_write_f64(w.s, p->key, want, n));
            must(&w, ht_session_read_f64(w.s, p->key, have, n));
            for (size_t i = 0; i < n; i++) assert_float_equal(have[i], want[i], 1e-6);
            if (t == 10) continue;
            numbers_of(row(root, "Gradients", p->key, t), grad);
            snprintf(name, sizeof name, "g.%s", p->key);
            must(&w, ht_session_write_f64(w.s, name, grad, n));
        }
        if (t < 10) must(&w, ht_session_run(w.s, "train"));
    }
    free(text);
    ht_arena_free(arena);
    session_end(&w);
}

static void optimizer__trajectories_are_those_of_pytorch(void **state)
{
    (void)state;
    const char *folder = getenv("HALFTONE_DATA");
    if (!folder) {
        print_message("HALFTONE_DATA is not set: the trajectories are in its folder optimizers\n");
        skip();
    }
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 1e-3;
    opts.weight_decay = 0.01;
    check_trajectory(folder, "adamw/cpu_adamw_test_single_weight_mode_0.json", &opts);
    check_trajectory(folder, "adamw/cpu_adamw_test_multiple_weights_mode_0.json", &opts);
    opts.weight_decay = 0;
    opts.eps = 1e-6;
    opts.optimizer = "adamw_hf";
    check_trajectory(folder, "adamw/cpu_adamw_test_single_weight_mode_1.json", &opts);
    check_trajectory(folder, "adamw/cpu_adamw_test_multiple_weights_mode_1.json", &opts);
    ht_train_opts sgd = HT_TRAIN_OPTS;
    sgd.optimizer = "sgd";
    sgd.lr = 1e-3;
    check_trajectory(folder, "sgd/cpu_sgd_test_single_weight.json", &sgd);
    check_trajectory(folder, "sgd/cpu_sgd_test_multiple_weights.json", &sgd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schedule__warm_up_is_deepspeeds),
        cmocka_unit_test(schedule__range_test_and_one_cycle_are_deepspeeds),
        cmocka_unit_test(schedule__cosine_is_nanogpts),
        cmocka_unit_test(schedule__a_jobs_own_begin_at_once_and_end_at_the_lowest_rate),
        cmocka_unit_test(schedule__what_must_be_given_is_asked_for),
        cmocka_unit_test(optimizer__three_steps_are_as_worked_out),
        cmocka_unit_test(optimizer__muon_moves_along_the_nearest_orthogonal_matrix),
        cmocka_unit_test(every_optimizer__reads_hyper_parameters_that_exist),
        cmocka_unit_test(optimizer__trajectories_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
