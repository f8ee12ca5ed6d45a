/* The update of a training step through the public API: groups, schedules, rules for whole tensors, skipped steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_fixture.h"
#include "tiny_model.h"
#include "train/train.h"

#define SETTINGS(...)                                                                                                  \
    .setting_count = sizeof((ht_train_setting[]){__VA_ARGS__}) / sizeof(ht_train_setting),                             \
    .settings = (const ht_train_setting[])                                                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define OPTS(name, rate, ...)                                                                                          \
    ((ht_train_opts){.size = sizeof(ht_train_opts), .optimizer = name, .lr = rate, .accumulate = 1, __VA_ARGS__})

/* Parameters "matrix" [2,2], "vector" [3] and "other" [2]; the loss is Σ p·g, so the inputs "g.*" are the gradients. */
static const struct {
    const char *name, *grad;
    int rank;
    int64_t dims[2];
    size_t elems;
} tensors[3] = {
    {"matrix", "g.matrix", 2, {2, 2}, 4}, {"vector", "g.vector", 1, {3}, 3}, {"other", "g.other", 1, {2}, 2}};
enum { MATRIX, VECTOR, OTHER };

static ht_status build_products(session_fixture *w, ht_dtype dtype, const ht_train_opts *opts)
{
    ht_val loss = HT_NONE;
    *w = session_begin(2);
    for (int i = 0; i < 3; i++) {
        ht_val p = ht_param(w->g, tensors[i].name, dtype, tensors[i].rank, tensors[i].dims, HT_CONSTANT(1));
        ht_val grad = ht_input(w->g, tensors[i].grad, dtype, tensors[i].rank, tensors[i].dims);
        ht_val one = ht_sum(w->g, ht_mul(w->g, p, grad), 0, NULL, false);
        loss = loss.id ? ht_add(w->g, loss, one) : one;
    }
    ht_output(w->g, "loss", loss);
    return ht_graph_train(w->g, opts);
}

static void start_products(session_fixture *w, ht_dtype dtype, const ht_train_opts *opts)
{
    must(w, build_products(w, dtype, opts));
    session_plan(w, NULL, 0);
}

static void set_gradient(const session_fixture *w, int tensor, const double *values)
{
    must(w, ht_session_write_f64(w->s, tensors[tensor].grad, values, tensors[tensor].elems));
}

static void set_all_gradients(const session_fixture *w, double value)
{
    for (int i = 0; i < 3; i++) set_gradient(w, i, (double[]){value, value, value, value});
}

static double element(const session_fixture *w, int tensor, size_t at)
{
    double values[4];
    must(w, ht_session_read_f64(w->s, tensors[tensor].name, values, tensors[tensor].elems));
    return values[at];
}

static double scalar(const session_fixture *w, const char *name)
{
    double value;
    must(w, ht_session_read_f64(w->s, name, &value, 1));
    return value;
}

static void step(const session_fixture *w)
{
    must(w, ht_session_run(w->s, "train"));
}

/* ---- decay ---- */

static void update__decay_spares_what_is_no_matrix(void **state)
{
    (void)state;
    static const char *const rules[] = {"adamw", "adamw_hf", "lion", "sgd", "adagrad"};
    for (size_t r = 0; r < 5; r++) {
        for (int all = 0; all < 2; all++) {
            session_fixture w;
            ht_train_opts opts =
                OPTS(rules[r], 0.1, .weight_decay = 0.5, SETTINGS({"decay", all ? "all" : "matrices"}));
            start_products(&w, HT_F32, &opts);
            step(&w); /* gradients of 0: decay alone moves */
            assert_true(element(&w, MATRIX, 0) < 0.96 && element(&w, MATRIX, 3) < 0.96);
            assert_int_equal(element(&w, VECTOR, 2) < 0.96, all);
            assert_int_equal(element(&w, OTHER, 0) < 0.96, all);
            session_end(&w);
        }
    }
}

/* Two groups clip by one norm and move as one group does. */
static void update__groups_share_the_norm_and_the_check(void **state)
{
    (void)state;
    double moved[2][3], norm[2];
    for (int split = 0; split < 2; split++) {
        session_fixture w;
        ht_train_opts opts = OPTS("sgd", 1, .clip = 0.5, SETTINGS({"decay", split ? "matrices" : "all"}));
        start_products(&w, HT_F32, &opts);
        set_all_gradients(&w, 2);
        step(&w);
        norm[split] = scalar(&w, "grad_norm");
        for (int i = 0; i < 3; i++) moved[split][i] = 1 - element(&w, i, 0);
        set_gradient(&w, OTHER, (double[]){0, NAN});
        step(&w);
        assert_true(scalar(&w, "applied_now") == 0);
        for (int i = 0; i < 3; i++) assert_float_equal(1 - element(&w, i, 0), moved[split][i], 0);
        session_end(&w);
    }
    assert_float_equal(norm[0], 6, 1e-6); /* √(9 · 2²) */
    assert_float_equal(norm[1], norm[0], 1e-6);
    for (int i = 0; i < 3; i++) {
        assert_float_equal(moved[0][i], 0.5 * 2 / 6, 1e-6);
        assert_float_equal(moved[1][i], moved[0][i], 1e-7);
    }
}

/* ---- what is finite ---- */

/* f32 gradients whose norm f32 cannot hold: they are finite, so the step is made, and clipping still finds its length.
 */
static void update__a_norm_that_overflows_skips_nothing(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS("sgd", 1, .clip = 3);
    start_products(&w, HT_F32, &opts);
    set_all_gradients(&w, 3e38);
    step(&w);
    assert_true(isinf(scalar(&w, "grad_norm")));
    assert_true(scalar(&w, "applied_now") == 1);
    for (int i = 0; i < 3; i++) assert_float_equal(element(&w, i, 0), 1 - 3.0 / 3, 1e-5); /* nine equal parts of 3 */
    session_end(&w);
    /* In f64 the squares overflow, too. */
    opts = OPTS("sgd", 1e-200, .clip = 0);
    start_products(&w, HT_F64, &opts);
    set_all_gradients(&w, 1e200);
    must(&w, ht_session_write_f64(w.s, "lr", (double[]){0x1p-100}, 1));
    step(&w);
    assert_true(scalar(&w, "applied_now") == 1);
    assert_float_equal(element(&w, VECTOR, 1) / (-1e200 * 0x1p-100), 1, 1e-6);
    session_end(&w);
}

static void update__what_is_not_finite_is_found_in_every_type(void **state)
{
    (void)state;
    static const ht_dtype types[] = {HT_F32, HT_F64, HT_BF16};
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int t = 0; t < 3; t++) {
        for (int k = 0; k < 3; k++) {
            session_fixture w;
            ht_train_opts opts = OPTS("adamw", 0.1, .clip = 1);
            start_products(&w, types[t], &opts);
            set_all_gradients(&w, 0.5);
            set_gradient(&w, VECTOR, (double[]){1, bad[k], 1});
            step(&w);
            assert_true(scalar(&w, "applied_now") == 0);
            assert_true(scalar(&w, "applied") == 0);
            for (int i = 0; i < 3; i++) assert_float_equal(element(&w, i, 1), 1, 0);
            set_gradient(&w, VECTOR, (double[]){1, 1, 1});
            step(&w);
            assert_true(scalar(&w, "applied_now") == 1);
            assert_true(scalar(&w, "applied") == 1);
            assert_true(element(&w, VECTOR, 1) < 0.95);
            session_end(&w);
        }
    }
}

/* ---- schedules ---- */

static void update__a_skipped_step_advances_neither_rate_nor_count(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS("sgd", 1,
                              SETTINGS({"schedule", "cosine"}, {"schedule.warmup_steps", "4"},
                                       {"schedule.decay_steps", "5"}, {"schedule.min_lr", "0.25"}));
    start_products(&w, HT_F32, &opts);
    static const double rates[] = {.2, .4, .4, .4, .6, .8, 1, .25, .25};
    double p = 1;
    for (int i = 0; i < 9; i++) {
        bool skipped = i == 1 || i == 2;
        set_all_gradients(&w, skipped ? INFINITY : 0.125);
        step(&w);
        p -= skipped ? 0 : rates[i] * 0.125;
        assert_float_equal(scalar(&w, "lr"), rates[i], 1e-6);
        assert_float_equal(element(&w, MATRIX, 2), p, 1e-6);
    }
    assert_true(scalar(&w, "applied") == 7);
    session_end(&w);
}

static void update__without_a_schedule_the_rate_is_a_state(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS("sgd", 0.5, SETTINGS({"schedule", "constant"}));
    start_products(&w, HT_F32, &opts);
    set_all_gradients(&w, 1);
    step(&w);
    assert_float_equal(element(&w, OTHER, 1), 0.5, 0);
    must(&w, ht_session_write_f64(w.s, "lr", (double[]){0.125}, 1));
    step(&w);
    assert_float_equal(element(&w, OTHER, 1), 0.375, 0);
    session_end(&w);
}

static void update__a_rate_of_zero_changes_nothing(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS("sgd", 0);
    start_products(&w, HT_F32, &opts);
    double before = element(&w, OTHER, 1);
    set_all_gradients(&w, 1);
    step(&w);
    assert_true(scalar(&w, "lr") == 0 && scalar(&w, "applied") == 1);
    assert_true(element(&w, OTHER, 1) == before);
    session_end(&w);
}

/* One element by the rules' formulas, in f64, with a beta1 of its own at each step and DeepSpeed's beta2. */
typedef struct by_hand {
    double p, m, v;
} by_hand;

static void step_by_hand(const char *rule, by_hand *x, double g, double lr, double beta1, int t)
{
    double beta2 = 0.99, c1 = 1 - pow(beta1, t), c2 = 1 - pow(beta2, t), old = x->m;
    x->m = beta1 * x->m + (1 - beta1) * g;
    x->v = beta2 * x->v + (1 - beta2) * g * g;
    if (strcmp(rule, "adamw") == 0) x->p -= lr / c1 * x->m / (sqrt(x->v / c2) + 1e-8);
    if (strcmp(rule, "adamw_hf") == 0) x->p -= lr * sqrt(c2) / c1 * x->m / (sqrt(x->v) + 1e-6);
    if (strcmp(rule, "lion") != 0) return;
    x->p -= lr * (x->m > 0 ? 1 : -1);
    x->m = beta2 * old + (1 - beta2) * g;
}

/* Four steps up and four down: the rate 0.1 to 0.5, beta1 the other way between 0.2 and 0.9, 0.2 at the first step. */
static void update__one_cycle_sets_both_betas_as_deepspeed_does(void **state)
{
    (void)state;
    static const char *const rules[] = {"adamw", "adamw_hf", "lion"};
    static const double gradients[8] = {1, -0.5, -0.25, 2, -1, 0.125, 0.5, -2};
    for (int r = 0; r < 3; r++) {
        session_fixture w;
        by_hand x = {.p = 1};
        ht_train_opts opts = OPTS(rules[r], 1,
                                  SETTINGS({"schedule", "OneCycle"}, {"schedule.cycle_min_lr", "0.1"},
                                           {"schedule.cycle_max_lr", "0.5"}, {"schedule.cycle_first_step_size", "4"},
                                           {"schedule.cycle_min_mom", "0.2"}, {"schedule.cycle_max_mom", "0.9"}));
        start_products(&w, HT_F32, &opts);
        for (int k = 0; k < 8; k++) {
            double top = k <= 4 ? k / 4.0 : (8 - k) / 4.0, beta1 = k == 0 ? 0.2 : 0.9 - 0.7 * top;
            set_all_gradients(&w, gradients[k]);
            step(&w);
            step_by_hand(rules[r], &x, gradients[k], 0.1 + 0.4 * top, beta1, k + 1);
            assert_float_equal(scalar(&w, "lr"), 0.1 + 0.4 * top, 1e-6);
            assert_float_equal(element(&w, VECTOR, 2), x.p, 1e-5);
        }
        session_end(&w);
    }
}

/* ---- rules for whole tensors ---- */

/* The worked steps of test_optim, for two tensors at once: a norm over both would move neither like this. */
static void update__lamb_takes_each_tensor_for_itself(void **state)
{
    (void)state;
    static const double gradient[3] = {.5, -.25, .1};
    static const double want[3][2] = {{.947651, -2.047535}, {.905296, -2.079548}, {.869853, -2.108583}};
    session_fixture w;
    ht_train_opts opts = OPTS("lamb", 0.1, .weight_decay = 0.1);
    start_products(&w, HT_F32, &opts);
    must(&w, ht_session_write_f64(w.s, "other", (double[]){1, -2}, 2));
    must(&w, ht_session_write_f64(w.s, "vector", (double[]){-2, 0, 1}, 3));
    for (int t = 0; t < 3; t++) {
        double g = gradient[t];
        set_gradient(&w, OTHER, (double[]){g, 2 * g});
        set_gradient(&w, VECTOR, (double[]){2 * g, 0, g});
        set_gradient(&w, MATRIX, (double[]){9 * g, 8, 7, -6});
        step(&w);
        for (size_t i = 0; i < 2; i++) {
            assert_float_equal(element(&w, OTHER, i), want[t][i], 2e-6);
            assert_float_equal(element(&w, VECTOR, 2 - 2 * i), want[t][i], 2e-6);
        }
    }
    session_end(&w);
}

/* Bounds of the trust ratio, and eps under the root. */
static void update__lamb_reads_its_numbers(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS(
        "lamb", 0.1, SETTINGS({"min_coeff", "0.5"}, {"max_coeff", "0.5"}, {"eps_inside_sqrt", "1"}, {"eps", "0.001"}));
    start_products(&w, HT_F32, &opts);
    set_all_gradients(&w, 1);
    step(&w);
    /* m = 0.1, v = 0.001, c1 = 0.1, c2 = 0.001 */
    double u = 0.1 / sqrt(0.001 + 0.001), rate = 0.1 * sqrt(0.001) / 0.1 * 0.5;
    for (int i = 0; i < 3; i++) assert_float_equal(element(&w, i, 1), 1 - rate * u, 1e-6);
    session_end(&w);
}

/* diag(3, -1) has the singular values of its entries; what is no matrix moves by AdamW at a part of the rate. */
static void update__muon_moves_matrices_and_adamw_the_rest(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts =
        OPTS("muon", 0.5, .weight_decay = 0.5, SETTINGS({"rest_lr_scale", "0.25"}, {"decay", "matrices"}));
    start_products(&w, HT_F32, &opts);
    set_all_gradients(&w, 2);
    set_gradient(&w, MATRIX, (double[]){3, 0, 0, -1});
    step(&w);
    for (size_t k = 0; k < 2; k++) {
        double x = (k ? -1 : 3) / sqrt(10);
        for (int i = 0; i < 5; i++) x = 3.4445 * x - 4.7750 * pow(x, 3) + 2.0315 * pow(x, 5);
        assert_float_equal(element(&w, MATRIX, 3 * k), 0.75 - 0.5 * x, 1e-5);
    }
    assert_float_equal(element(&w, MATRIX, 1), 0.75, 1e-5);
    assert_float_equal(element(&w, VECTOR, 0), 1 - 0.5 * 0.25, 1e-6);
    assert_float_equal(element(&w, OTHER, 1), 1 - 0.5 * 0.25, 1e-6);
    /* One moment for matrices, two for the rest. */
    double moment[32];
    must(&w, ht_session_read_f64(w.s, "matrix.momentum", moment, 4));
    assert_float_equal(moment[0], 3 * 0.05, 1e-6);
    assert_int_equal(ht_session_read_f64(w.s, "flat.v.f32.matrices", moment, 16), HT_EINVAL);
    must(&w, ht_session_read_f64(w.s, "flat.v.f32.rest", moment, 32));
    session_end(&w);
}

/* ---- settings ---- */

static void update__adagrad_starts_where_it_is_told(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS("adagrad", 0.5, SETTINGS({"initial_accumulator", "3"}, {"lr_decay", "1"}));
    start_products(&w, HT_F32, &opts);
    set_all_gradients(&w, 1);
    step(&w);
    assert_float_equal(element(&w, MATRIX, 1), 1 - 0.5 / 2, 1e-6);
    step(&w);
    assert_float_equal(element(&w, MATRIX, 1), 0.75 - 0.25 / sqrt(5), 1e-6);
    session_end(&w);
}

/* A setting goes before its field, and can say zero, which a field cannot. */
static void update__settings_go_before_fields(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS("adamw", 0.5, .beta1 = 0.5, SETTINGS({"beta1", "0"}, {"beta2", "0"}, {"lr", "0.25"}));
    start_products(&w, HT_F32, &opts);
    for (int i = 0; i < 3; i++) {
        set_all_gradients(&w, i % 2 ? -0.125 : 4);
        step(&w); /* without memory, Adam is the sign of the gradient */
    }
    assert_float_equal(element(&w, VECTOR, 0), 0.75, 1e-6);
    session_end(&w);
}

static void update__wrong_settings_are_errors_that_name_them(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"beta3", "1", "setting beta3: training has no such setting"},
        {"beta1", "1", "setting beta1: 1 is outside [0, 1)"},
        {"beta2", "one", "setting beta2: 'one' is no number"},
        {"eps", "-1", "setting eps: -1 is outside [0, inf)"},
        {"nesterov", "2", "setting nesterov: 2 is neither 0 nor 1"},
        {"lr", "-0.5", "setting lr: -0.5 is no rate"},
        {"clip", "-1", "setting clip"},
        {"decay", "biases", "setting decay: there is no 'biases'; known: matrices, all"},
        {"optimizer", "adamant", "there is no 'adamant'"},
        {"schedule", "sine", "setting schedule: there is no 'sine'; known: constant, WarmupLR"},
        {"schedule", "cosine", "decay_steps must be given"},
        {"schedule.decay_steps", "8", "the schedule constant has no such number"},
        {"min_coeff", "11", "is above max_coeff"},
        {NULL, "1", "has no key or no value"},
        {"lr", NULL, "has no key or no value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        session_fixture w;
        ht_train_opts opts = OPTS("lamb", 0.1, SETTINGS({cases[i].key, cases[i].value}));
        ht_status status = build_products(&w, HT_F32, &opts);
        if (status == HT_OK || !strstr(ht_context_message(w.ctx), cases[i].says))
            fail_msg("%s=%s: %d %s", cases[i].key, cases[i].value, status, ht_context_message(w.ctx));
        session_end(&w);
    }
}

/* ---- whole models ---- */

enum { TOKENS = TINY_BATCH * TINY_TIME, TABLE = TINY_VOCAB * TINY_WIDTH };

static void start_tiny(session_fixture *w, int threads, const ht_train_opts *opts, bool no_fusion)
{
    *w = session_begin(threads);
    tiny_build(w->g, 0);
    must(w, ht_graph_train(w->g, opts));
    ht_plan_opts plan_opts = HT_PLAN_OPTS;
    plan_opts.no_fusion = no_fusion;
    must(w, ht_plan_create(&w->plan, w->g, &plan_opts));
    ht_session_opts session_opts = HT_SESSION_OPTS;
    session_opts.seed = 7;
    must(w, ht_session_create(&w->s, w->plan, &session_opts));
}

static float tiny_step(const session_fixture *w, int which)
{
    int32_t token[TOKENS], label[TOKENS];
    float loss;
    tiny_tokens(which, token, label);
    must(w, ht_session_write(w->s, "token", token, sizeof token));
    must(w, ht_session_write(w->s, "label", label, sizeof label));
    step(w);
    must(w, ht_session_read(w->s, "loss", &loss, sizeof loss));
    return loss;
}

static const struct {
    const char *name;
    double lr;
} every_rule[] = {{"sgd", 0.3},      {"adam", 0.01}, {"adamw", 0.01}, {"adamw_hf", 0.01},
                  {"adagrad", 0.05}, {"lion", 3e-3}, {"lamb", 0.03},  {"muon", 0.05}};
enum { RULES = sizeof every_rule / sizeof every_rule[0] };

static void update__every_rule_lowers_the_loss(void **state)
{
    (void)state;
    for (size_t r = 0; r < RULES; r++) {
        session_fixture w;
        ht_train_opts opts = OPTS(every_rule[r].name, every_rule[r].lr, .clip = 1, .weight_decay = 0.01,
                                  SETTINGS({"decay", "matrices"}, {"schedule", "cosine"},
                                           {"schedule.warmup_steps", "5"}, {"schedule.decay_steps", "60"}));
        start_tiny(&w, 1, &opts, false);
        float first = tiny_step(&w, 0), last = 0;
        for (int i = 1; i < 60; i++) last = tiny_step(&w, 0);
        if (!(last < 0.5f * first)) fail_msg("%s: %g, then %g", every_rule[r].name, (double)first, (double)last);
        session_end(&w);
    }
}

static void update__same_bits_for_any_number_of_threads_and_unfused(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 4, 2};
    for (size_t r = 0; r < RULES; r++) {
        float first[TABLE];
        for (int run = 0; run < 4; run++) {
            session_fixture w;
            float table[TABLE];
            ht_train_opts opts = OPTS(every_rule[r].name, every_rule[r].lr, .clip = 0.1, .weight_decay = 0.1,
                                      SETTINGS({"decay", "matrices"}));
            start_tiny(&w, threads[run], &opts, run == 3);
            for (int i = 0; i < 4; i++) tiny_step(&w, i);
            must(&w, ht_session_read(w.s, "table", table, sizeof table));
            if (run == 0) memcpy(first, table, sizeof table);
            assert_memory_equal(table, first, sizeof table);
            session_end(&w);
        }
    }
}

/* The table stands at both ends of the model: it is in its group once, and so are its gradient and moments. */
static void update__a_tied_table_is_there_once(void **state)
{
    (void)state;
    session_fixture w;
    ht_train_opts opts = OPTS("adamw", 0.01, SETTINGS({"decay", "matrices"}));
    start_tiny(&w, 1, &opts, false);
    enum { C = TINY_WIDTH };
    /* table, qkv, proj, up, down; each is a multiple of 16 elements but the table. */
    int64_t elems = (TABLE + 15) / 16 * 16 + 3 * C * C + C * C + 4 * C * C + 4 * C * C;
    const ht_slot *flat = ht_plan_slot(w.plan, "flat.param.f32.matrices");
    assert_non_null(flat);
    assert_int_equal(ht_type_elems(&flat->type), elems);
    assert_int_equal(w.plan->heading_bytes[HT_HEADING_OPTIMIZER], 2 * w.plan->heading_bytes[HT_HEADING_PARAMETERS]);
    session_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update__decay_spares_what_is_no_matrix),
        cmocka_unit_test(update__groups_share_the_norm_and_the_check),
        cmocka_unit_test(update__a_norm_that_overflows_skips_nothing),
        cmocka_unit_test(update__what_is_not_finite_is_found_in_every_type),
        cmocka_unit_test(update__a_skipped_step_advances_neither_rate_nor_count),
        cmocka_unit_test(update__without_a_schedule_the_rate_is_a_state),
        cmocka_unit_test(update__a_rate_of_zero_changes_nothing),
        cmocka_unit_test(update__one_cycle_sets_both_betas_as_deepspeed_does),
        cmocka_unit_test(update__lamb_takes_each_tensor_for_itself),
        cmocka_unit_test(update__lamb_reads_its_numbers),
        cmocka_unit_test(update__muon_moves_matrices_and_adamw_the_rest),
        cmocka_unit_test(update__adagrad_starts_where_it_is_told),
        cmocka_unit_test(update__settings_go_before_fields),
        cmocka_unit_test(update__wrong_settings_are_errors_that_name_them),
        cmocka_unit_test(update__every_rule_lowers_the_loss),
        cmocka_unit_test(update__same_bits_for_any_number_of_threads_and_unfused),
        cmocka_unit_test(update__a_tied_table_is_there_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
