/* The loss scale in the update of a training step. test_op_loss_scale has its rule. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "loss_scale_table.h"
#include "session_fixture.h"
#include "tiny_model.h"
#include "train/train.h"

#define MOST_SETTINGS 8
typedef struct choice {
    const char *optimizer;
    double lr, clip;
    int accumulate;
    ht_train_setting settings[MOST_SETTINGS]; /* up to the first without a key */
} choice;

static ht_train_opts opts_of(const choice *c)
{
    ht_train_opts opts = {.size = sizeof opts, .optimizer = c->optimizer, .lr = c->lr, .clip = c->clip};
    opts.accumulate = c->accumulate ? c->accumulate : 1;
    opts.settings = c->settings;
    while (opts.setting_count < MOST_SETTINGS && c->settings[opts.setting_count].key) opts.setting_count++;
    return opts;
}

/* Parameters "matrix" [2,2] and "vector" [3], both ones, in groups of their own; the loss is Σ p·g, so that the inputs
 * "g.matrix" and "g.vector" are their gradients, times the seed. */
static const struct {
    const char *name, *input, *grad;
    int rank;
    int64_t dims[2];
    size_t elems;
} tensors[2] = {{"matrix", "g.matrix", "matrix.grad", 2, {2, 2}, 4}, {"vector", "g.vector", "vector.grad", 1, {3}, 3}};
enum { MATRIX, VECTOR, TENSORS };

static ht_status build_products(session_fixture *w, ht_dtype dtype, const choice *c)
{
    ht_val loss = HT_NONE;
    ht_train_opts opts = opts_of(c);
    *w = session_begin(2);
    for (int i = 0; i < TENSORS; i++) {
        ht_val p = ht_param(w->g, tensors[i].name, dtype, tensors[i].rank, tensors[i].dims, HT_CONSTANT(1));
        ht_val grad = ht_input(w->g, tensors[i].input, dtype, tensors[i].rank, tensors[i].dims);
        ht_val one = ht_sum(w->g, ht_mul(w->g, p, grad), 0, NULL, false);
        loss = loss.id ? ht_add(w->g, loss, one) : one;
    }
    ht_output(w->g, "loss", loss);
    return ht_graph_train(w->g, &opts);
}

static void start_products(session_fixture *w, ht_dtype dtype, const choice *c)
{
    must(w, build_products(w, dtype, c));
    session_plan(w, NULL, 7);
}

static void fill(const session_fixture *w, const char *name, size_t elems, double value)
{
    double values[4] = {value, value, value, value};
    must(w, ht_session_write_f64(w->s, name, values, elems));
}

static void set_gradients(const session_fixture *w, double value)
{
    for (int i = 0; i < TENSORS; i++) fill(w, tensors[i].input, tensors[i].elems, value);
}

static double element(const session_fixture *w, const char *name, size_t elems, size_t at)
{
    double values[4];
    must(w, ht_session_read_f64(w->s, name, values, elems));
    return values[at];
}

static double parameter(const session_fixture *w, int tensor, size_t at)
{
    return element(w, tensors[tensor].name, tensors[tensor].elems, at);
}

static double scalar(const session_fixture *w, const char *name)
{
    double value;
    must(w, ht_session_read_f64(w->s, name, &value, 1));
    return value;
}

static void run(const session_fixture *w, const char *name)
{
    must(w, ht_session_run(w->s, name));
}

/* A step that makes no update any more. */
static void run_in_vain(const session_fixture *w)
{
    assert_int_equal(ht_session_run(w->s, "train"), HT_ENONFINITE);
}

#define DYNAMIC(...)                                                                                                   \
    {                                                                                                                  \
        {"loss_scale", "dynamic"}, {"decay", "matrices"}, __VA_ARGS__                                                  \
    }
#define TABLE_SETTINGS                                                                                                 \
    {"scale_window", "4"},                                                                                             \
    {                                                                                                                  \
        "scale_min", "16384"                                                                                           \
    }

/* The table by whole steps: parameters move by the gradient itself, whatever the scale was and becomes. */
static void update__the_scale_follows_the_worked_table(void **state)
{
    (void)state;
    for (int consecutive = 0; consecutive < 2; consecutive++) {
        session_fixture w;
        choice c = {"sgd", 1, .settings = DYNAMIC(TABLE_SETTINGS, {"scale_consecutive", consecutive ? "1" : "0"})};
        int applied = 0;
        start_products(&w, HT_F32, &c);
        assert_float_equal(scalar(&w, "loss_scale"), 65536, 0);
        for (int i = 0; i < TABLE_STEPS; i++) {
            double before = scalar(&w, "loss_scale");
            set_gradients(&w, table[i].overflow ? INFINITY : 0x1p-7);
            run(&w, "train");
            applied += !table[i].overflow;
            assert_float_equal(scalar(&w, "loss_scale"), table[i].scale[consecutive] * 1024, 0);
            assert_int_equal(scalar(&w, "loss_scale.hysteresis"), table[i].left[consecutive]);
            assert_int_equal(scalar(&w, "applied"), applied);
            assert_int_equal(scalar(&w, "applied_now"), !table[i].overflow);
            for (int t = 0; t < TENSORS; t++) assert_float_equal(parameter(&w, t, 1), 1 - applied * 0x1p-7, 0);
            if (table[i].overflow) continue;
            assert_float_equal(element(&w, "vector.grad", 3, 0), before * 0x1p-7, 0);
            assert_float_equal(scalar(&w, "grad_norm"), sqrt(7) * 0x1p-7, 1e-8);
        }
        assert_int_equal(scalar(&w, "fatal"), 0);
        session_end(&w);
    }
}

/* What is fatal stays so: later gradients may be fine, nothing moves. Writing the state lets it go on. */
static void update__fatal_blocks_all_later_updates(void **state)
{
    (void)state;
    session_fixture w;
    choice c = {"adamw", 0.5, .settings = DYNAMIC(TABLE_SETTINGS)};
    start_products(&w, HT_F32, &c);
    for (int i = 0; i <= FATAL_AT; i++) {
        set_gradients(&w, table[i].overflow || i == FATAL_AT ? NAN : 0.25);
        if (i == FATAL_AT)
            run_in_vain(&w);
        else
            run(&w, "train");
        assert_int_equal(scalar(&w, "fatal"), i == FATAL_AT);
    }
    double p = parameter(&w, MATRIX, 0), m = element(&w, "vector.m", 3, 1), applied = scalar(&w, "applied");
    set_gradients(&w, 0.25);
    for (int i = 0; i < 6; i++) {
        run_in_vain(&w);
        assert_int_equal(scalar(&w, "applied_now"), 0);
        assert_int_equal(scalar(&w, "fatal"), 1);
        assert_float_equal(scalar(&w, "loss_scale"), 16384, 0);
    }
    assert_float_equal(parameter(&w, MATRIX, 0), p, 0);
    assert_float_equal(element(&w, "vector.m", 3, 1), m, 0);
    assert_float_equal(scalar(&w, "applied"), applied, 0);
    must(&w, ht_session_write_f64(w.s, "fatal", (double[]){0}, 1));
    run(&w, "train");
    assert_int_equal(scalar(&w, "applied_now"), 1);
    assert_true(parameter(&w, MATRIX, 0) < p);
    session_end(&w);
}

static void update__twenty_skips_in_a_row_are_fatal_without_a_dynamic_scale(void **state)
{
    (void)state;
    static const char *const scales[] = {"none", "1024"};
    for (int k = 0; k < 2; k++) {
        session_fixture w;
        choice c = {"lion", 0.1, .settings = {{"loss_scale", scales[k]}}};
        start_products(&w, HT_F32, &c);
        for (int i = 0; i < 19; i++) {
            set_gradients(&w, -INFINITY);
            run(&w, "train");
            assert_int_equal(scalar(&w, "skips_in_a_row"), i + 1);
        }
        set_gradients(&w, 1);
        run(&w, "train");
        assert_int_equal(scalar(&w, "skips_in_a_row"), 0);
        set_gradients(&w, NAN);
        for (int i = 0; i < 20; i++) {
            assert_int_equal(scalar(&w, "fatal"), 0);
            if (i == 19)
                run_in_vain(&w);
            else
                run(&w, "train");
        }
        assert_int_equal(scalar(&w, "fatal"), 1);
        assert_float_equal(scalar(&w, "loss_scale"), k ? 1024 : 1, 0);
        session_end(&w);
    }
}

/* ---- what is not finite, wherever it comes from ---- */

typedef enum source { FROM_INPUT, FROM_STATE, SOURCES } source;

/* Three micro-batches; the bad one brings its number through the model, or finds it in the accumulator afterwards. */
static void step_with(const session_fixture *w, double bad, bool all, int bad_micro, source from)
{
    static const char *const segments[] = {"micro_first", "micro", "micro"};
    for (int k = 0; k < 3; k++) {
        set_gradients(w, 0.75);
        double one[4] = {0.75, bad, 0.75, 0.75};
        if (k == bad_micro && from == FROM_INPUT && all) set_gradients(w, bad);
        if (k == bad_micro && from == FROM_INPUT && !all) must(w, ht_session_write_f64(w->s, "g.vector", one, 3));
        run(w, segments[k]);
        if (k != bad_micro || from != FROM_STATE) continue;
        for (int t = all ? MATRIX : VECTOR; t < TENSORS; t++) {
            double values[4];
            must(w, ht_session_read_f64(w->s, tensors[t].grad, values, tensors[t].elems));
            for (size_t i = 0; i < tensors[t].elems; i++)
                if (all || i == 1) values[i] = bad;
            must(w, ht_session_write_f64(w->s, tensors[t].grad, values, tensors[t].elems));
        }
    }
    run(w, "update");
}

static void check_injection(const choice *c, double bad, bool all, int micro, source from)
{
    session_fixture w;
    start_products(&w, HT_F32, c);
    step_with(&w, bad, all, micro, from);
    assert_int_equal(scalar(&w, "applied_now"), 0);
    assert_int_equal(scalar(&w, "applied"), 0);
    assert_int_equal(scalar(&w, "skips_in_a_row"), 1);
    assert_float_equal(scalar(&w, "loss_scale"), 65536, 0); /* hysteresis takes the first */
    assert_int_equal(scalar(&w, "loss_scale.hysteresis"), 1);
    for (int t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tensors[t].elems; i++) assert_float_equal(parameter(&w, t, i), 1, 0);
    step_with(&w, bad, all, micro, from);
    assert_float_equal(scalar(&w, "loss_scale"), 32768, 0);
    /* Nothing of it stays: the next step is as if they had not been. */
    step_with(&w, 0.75, true, 0, FROM_INPUT);
    assert_int_equal(scalar(&w, "applied"), 1);
    assert_int_equal(scalar(&w, "skips_in_a_row"), 0);
    for (int t = 0; t < TENSORS; t++) assert_float_equal(parameter(&w, t, 1), 0.25, 1e-6);
    session_end(&w);
}

static void update__an_inf_or_nan_anywhere_skips_the_step(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    choice c = {"sgd", 1, .accumulate = 3, .settings = DYNAMIC({"scale_power", "16"})};
    for (int b = 0; b < 3; b++)
        for (int all = 0; all < 2; all++)
            for (int micro = 0; micro < 3; micro++)
                for (source from = FROM_INPUT; from < SOURCES; from++) check_injection(&c, bad[b], all, micro, from);
}

/* Finite as they are, too large once they are scaled; with half the scale they fit. */
static void update__an_overflow_that_the_scale_makes_is_one(void **state)
{
    (void)state;
    session_fixture w;
    choice c = {"sgd", 0x1p-120, .settings = DYNAMIC({"scale_hysteresis", "1"})};
    start_products(&w, HT_F32, &c);
    set_gradients(&w, 0x1p112);
    run(&w, "train");
    assert_int_equal(scalar(&w, "applied_now"), 0);
    run(&w, "train");
    assert_int_equal(scalar(&w, "applied_now"), 1);
    assert_float_equal(parameter(&w, VECTOR, 0), 1 - 0x1p-8, 0);
    session_end(&w);
}

/* ---- unscaling ---- */

enum { TOKENS = TINY_BATCH * TINY_TIME, WEIGHTS = TINY_VOCAB * TINY_WIDTH };

/* Writes micro-batch `index` of step *arg. */
static ht_status fill_tiny(void *arg, ht_session *session, int64_t index)
{
    int32_t token[TOKENS], label[TOKENS];
    tiny_tokens(*(const int *)arg * 2 + (int)index, token, label);
    HT_TRY(ht_session_write(session, "token", token, sizeof token));
    return ht_session_write(session, "label", label, sizeof label);
}

/* A small language model, some steps; the table and the norm of the last step's gradients. */
static void train_tiny(const choice *c, float *weights, double *norm)
{
    session_fixture w;
    ht_train_opts opts = opts_of(c);
    w = session_begin(2);
    tiny_build(w.g, 0.1);
    must(&w, ht_graph_train(w.g, &opts));
    session_plan(&w, NULL, 7);
    for (int i = 0; i < 6; i++) must(&w, ht_session_run_batches(w.s, "train", fill_tiny, &i));
    must(&w, ht_session_read(w.s, "table", weights, WEIGHTS * sizeof *weights));
    *norm = scalar(&w, "grad_norm");
    session_end(&w);
}

/* Powers of two change no digit on the way there and back: with any such scale, moving or not, training has the bits
 * that it has without. So the scale that divides is the one that multiplied, and the norm that clips is the unscaled. */
static void update__scales_that_are_powers_of_two_change_no_bit(void **state)
{
    (void)state;
    static const char *const rules[] = {"sgd", "adamw", "lamb", "muon"};
    for (int r = 0; r < 4; r++) {
        for (int clip = 0; clip < 2; clip++) {
            float plain[WEIGHTS], scaled[WEIGHTS];
            double plain_norm, norm;
            choice c = {rules[r], 0.02, clip ? 0.05 : 0, .accumulate = 2};
            train_tiny(&c, plain, &plain_norm);
            assert_true(plain_norm > 0.1);
            static const ht_train_setting scales[][2] = {{{"loss_scale", "1024"}},
                                                         {{"loss_scale", "0.0078125"}},
                                                         {{"loss_scale", "dynamic"}, {"scale_window", "1"}}};
            for (int k = 0; k < 3; k++) {
                memcpy(c.settings, scales[k], sizeof scales[k]);
                train_tiny(&c, scaled, &norm);
                assert_memory_equal(scaled, plain, sizeof plain);
                assert_float_equal(norm, plain_norm, 0);
            }
        }
    }
}

/* Three is no power of two: one rounding on the way there and two back. */
static void update__other_scales_are_undone_within_roundings(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        session_fixture w;
        choice c = {"sgd", 1, .settings = {{"loss_scale", "3"}}};
        start_products(&w, d ? HT_F64 : HT_F32, &c);
        set_gradients(&w, 0.1);
        run(&w, "train");
        assert_float_equal(parameter(&w, VECTOR, 2), 0.9, d ? 1e-15 : 2e-7);
        session_end(&w);
    }
}

/* The state is the scale: who writes it sets the next step's. */
static void update__a_written_scale_is_used_by_both_ends(void **state)
{
    (void)state;
    session_fixture w;
    choice c = {"sgd", 1, .settings = {{"loss_scale", "64"}}};
    start_products(&w, HT_F32, &c);
    must(&w, ht_session_write_f64(w.s, "loss_scale", (double[]){4096}, 1));
    set_gradients(&w, 0.125);
    run(&w, "train");
    assert_float_equal(element(&w, "matrix.grad", 4, 2), 512, 0);
    assert_float_equal(parameter(&w, MATRIX, 2), 0.875, 0);
    assert_float_equal(scalar(&w, "loss_scale"), 4096, 0);
    session_end(&w);
}

static void update__without_a_scale_nothing_is_multiplied(void **state)
{
    (void)state;
    session_fixture w;
    choice c = {.optimizer = "sgd", .lr = 1};
    start_products(&w, HT_F32, &c);
    set_gradients(&w, 0.1);
    run(&w, "train");
    assert_float_equal(element(&w, "matrix.grad", 4, 2), (double)0.1f, 0);
    assert_float_equal(scalar(&w, "loss_scale"), 1, 0);
    session_end(&w);
}

static void update__wrong_scale_settings_are_errors_that_name_them(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"loss_scale", "0", "setting loss_scale: '0' is neither none, dynamic nor a number above 0"},
        {"loss_scale", "-2", "setting loss_scale: '-2'"},
        {"loss_scale", "inf", "setting loss_scale: 'inf'"},
        {"loss_scale", "1e39", "setting loss_scale: '1e39'"},
        {"loss_scale", "dynamo", "setting loss_scale: 'dynamo'"},
        {"scale_power", "127", "setting scale_power: 127 is outside [0, 126]"},
        {"scale_power", "1.5", "setting scale_power: 1.5 is no whole number"},
        {"scale_window", "0", "setting scale_window: 0 is outside"},
        {"scale_hysteresis", "0", "setting scale_hysteresis: 0 is outside"},
        {"scale_consecutive", "2", "setting scale_consecutive: 2 is outside [0, 1]"},
        {"scale_min", "0", "setting scale_min: 0 would let the scale fall to 0"},
        {"scale_min", "1e-40", "setting scale_min: 1e-40 would let the scale fall to 0"},
        {"scale_min", "nan", "setting scale_min: nan is outside"},
        {"scale_min", "65537", "setting scale_min: 65537 is above 65536"},
        {"most_skips", "many", "setting most_skips: 'many' is no number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        session_fixture w;
        choice c = {"sgd", 1, .settings = {{"loss_scale", "dynamic"}, {cases[i].key, cases[i].value}}};
        ht_status status = build_products(&w, HT_F32, &c);
        if (status != HT_EINVAL || !strstr(ht_context_message(w.ctx), cases[i].says))
            fail_msg("%s=%s: %d %s", cases[i].key, cases[i].value, status, ht_context_message(w.ctx));
        session_end(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(update__the_scale_follows_the_worked_table),
        cmocka_unit_test(update__fatal_blocks_all_later_updates),
        cmocka_unit_test(update__twenty_skips_in_a_row_are_fatal_without_a_dynamic_scale),
        cmocka_unit_test(update__an_inf_or_nan_anywhere_skips_the_step),
        cmocka_unit_test(update__an_overflow_that_the_scale_makes_is_one),
        cmocka_unit_test(update__scales_that_are_powers_of_two_change_no_bit),
        cmocka_unit_test(update__other_scales_are_undone_within_roundings),
        cmocka_unit_test(update__a_written_scale_is_used_by_both_ends),
        cmocka_unit_test(update__without_a_scale_nothing_is_multiplied),
        cmocka_unit_test(update__wrong_scale_settings_are_errors_that_name_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
