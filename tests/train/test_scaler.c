/* The loss scale: its rule against the worked tables, and what it does to the update of a training step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "op_call.h"
#include "session_fixture.h"
#include "tiny_model.h"
#include "train/train.h"

/* Window 4, first scale 65536, hysteresis 2, minimum 16384: scale in units of 1024 and hysteresis after each step,
 * where hysteresis refills at growth, and where it refills at each clean step. */
static const struct {
    bool overflow;
    int scale[2], left[2];
} table[] = {
    {false, {64, 64}, {2, 2}},   {false, {64, 64}, {2, 2}},  {false, {64, 64}, {2, 2}}, {false, {64, 64}, {2, 2}},
    {false, {128, 128}, {2, 2}}, {true, {128, 128}, {1, 1}}, {true, {64, 64}, {1, 1}},  {true, {32, 32}, {1, 1}},
    {true, {16, 16}, {1, 1}},    {false, {16, 16}, {1, 2}},  {false, {16, 16}, {1, 2}}, {false, {16, 16}, {1, 2}},
    {false, {16, 16}, {1, 2}},   {false, {32, 32}, {2, 2}},  {true, {32, 32}, {1, 1}},  {false, {32, 32}, {1, 2}},
    {false, {32, 32}, {1, 2}},   {false, {32, 32}, {1, 2}},  {true, {16, 32}, {1, 1}},  {false, {16, 32}, {1, 2}},
    {false, {16, 32}, {1, 2}},   {false, {16, 32}, {1, 2}},  {false, {16, 32}, {1, 2}}, {false, {32, 64}, {2, 2}},
    {true, {32, 64}, {1, 1}},    {true, {16, 32}, {1, 1}},   {false, {16, 32}, {1, 2}}, {false, {16, 32}, {1, 2}},
    {false, {16, 32}, {1, 2}},   {false, {16, 32}, {1, 2}},
};
enum { TABLE_STEPS = sizeof table / sizeof table[0], FATAL_AT = 26 };

/* ---- the rule ---- */

enum { FINITE, SCALE, LEFT, ITERATION, LAST, SKIPS, FATAL };
#define LINE "(bool[] 1..1, f32[] 65536..65536, i64[] 2..2, i64[] 0..0, i64[] 0..0, i64[] 0..0, bool[] 0..0) "

static void open_rule(op_call *call, const char *attributes)
{
    op_call_open(call, "scale_step", LINE "%s", attributes);
    call->a.in[LAST][0] = -1;
}

/* One step by both definitions; the results become the next inputs. */
static void rule_step(op_call *call, bool finite)
{
    double by_reference[FATAL];
    call->a.in[FINITE][0] = finite;
    op_call_reference(call);
    for (int i = 0; i < FATAL; i++) by_reference[i] = call->a.out[i][0];
    op_call_kernel(call);
    for (int i = 0; i < FATAL; i++) {
        assert_true(call->a.out[i][0] == by_reference[i]);
        call->a.in[i + 1][0] = call->a.out[i][0];
    }
}

static void rule__follows_the_worked_table(void **state)
{
    (void)state;
    for (int consecutive = 0; consecutive < 2; consecutive++) {
        op_call call;
        open_rule(&call, consecutive ? "window=4 min=16384 consecutive=1" : "window=4 min=16384");
        for (int i = 0; i < TABLE_STEPS; i++) {
            rule_step(&call, !table[i].overflow);
            assert_float_equal(call.a.in[SCALE][0], table[i].scale[consecutive] * 1024, 0);
            assert_int_equal(call.a.in[LEFT][0], table[i].left[consecutive]);
            assert_int_equal(call.a.in[ITERATION][0], i + 1);
            assert_int_equal(call.a.in[FATAL][0], 0);
        }
        op_call_close(&call);
    }
}

static void rule__an_overflow_at_the_minimum_is_fatal_once_hysteresis_is_used_up(void **state)
{
    (void)state;
    for (int consecutive = 0; consecutive < 2; consecutive++) {
        op_call call;
        open_rule(&call, consecutive ? "window=4 min=16384 consecutive=1" : "window=4 min=16384");
        for (int i = 0; i < FATAL_AT; i++) rule_step(&call, !table[i].overflow);
        rule_step(&call, false);
        assert_float_equal(call.a.in[SCALE][0], 16384, 0);
        assert_int_equal(call.a.in[LEFT][0], 1);
        assert_int_equal(call.a.in[FATAL][0], !consecutive);
        op_call_close(&call);
    }
}

/* With DeepSpeed's defaults the 18th overflow in a row: one for hysteresis, sixteen halvings, and one more. */
static void rule__the_eighteenth_overflow_in_a_row_is_fatal_by_default(void **state)
{
    (void)state;
    op_call call;
    open_rule(&call, "");
    for (int i = 1; i <= 18; i++) {
        assert_int_equal(call.a.in[FATAL][0], 0);
        rule_step(&call, false);
        assert_int_equal(call.a.in[SKIPS][0], i);
    }
    assert_int_equal(call.a.in[FATAL][0], 1);
    assert_float_equal(call.a.in[SCALE][0], 1, 0);
    op_call_close(&call);
}

static void rule__after_fatal_nothing_moves(void **state)
{
    (void)state;
    op_call call;
    open_rule(&call, "hysteresis=1 min=65536 window=1");
    rule_step(&call, false);
    assert_int_equal(call.a.in[FATAL][0], 1);
    for (int i = 0; i < 4; i++) {
        rule_step(&call, i % 2);
        assert_float_equal(call.a.in[SCALE][0], 65536, 0);
        assert_int_equal(call.a.in[ITERATION][0], 1);
        assert_int_equal(call.a.in[SKIPS][0], 1);
        assert_int_equal(call.a.in[FATAL][0], 1);
    }
    op_call_close(&call);
}

static void rule__hysteresis_of_one_halves_at_once(void **state)
{
    (void)state;
    op_call call;
    open_rule(&call, "hysteresis=1");
    rule_step(&call, false);
    assert_float_equal(call.a.in[SCALE][0], 32768, 0);
    op_call_close(&call);
}

/* A minimum that f32 does not have is the f32 beside it: the scale stops there, and the next overflow is fatal. */
static void rule__a_minimum_that_f32_lacks_still_stops(void **state)
{
    (void)state;
    op_call call;
    open_rule(&call, "hysteresis=1 min=0.3");
    for (int i = 0; i < 18; i++) rule_step(&call, false);
    assert_float_equal(call.a.in[SCALE][0], (double)0.3f, 0);
    assert_int_equal(call.a.in[FATAL][0], 0);
    rule_step(&call, false);
    assert_int_equal(call.a.in[FATAL][0], 1);
    op_call_close(&call);
}

static void rule__a_scale_that_is_not_dynamic_stays_and_counts(void **state)
{
    (void)state;
    op_call call;
    open_rule(&call, "dynamic=0 window=1 most_skips=3");
    static const bool finite[] = {true, true, false, false, true, false, false, false};
    static const int skips[] = {0, 0, 1, 2, 0, 1, 2, 3};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(call.a.in[FATAL][0], 0);
        rule_step(&call, finite[i]);
        assert_int_equal(call.a.in[SKIPS][0], skips[i]);
        assert_float_equal(call.a.in[SCALE][0], 65536, 0);
        assert_int_equal(call.a.in[LEFT][0], 2);
    }
    assert_int_equal(call.a.in[FATAL][0], 1);
    op_call_close(&call);
    open_rule(&call, "dynamic=0 most_skips=0");
    for (int i = 0; i < 100; i++) rule_step(&call, false);
    assert_int_equal(call.a.in[FATAL][0], 0);
    op_call_close(&call);
}

static void rule__the_scale_stays_finite(void **state)
{
    (void)state;
    op_call call;
    open_rule(&call, "window=1");
    for (int i = 0; i < 200; i++) rule_step(&call, true);
    assert_float_equal(call.a.in[SCALE][0], 0x1p127, 0);
    op_call_close(&call);
}

/* The state of a model in f64; what f32 cannot hold is infinite, and stays so without undefined behaviour. */
static void rule__takes_a_scale_in_f64(void **state)
{
    (void)state;
    op_call call;
    op_call_open(&call, "scale_step",
                 "(bool[] 1..1, f64[] 1024..1024, i64[] 1..1, i64[] 0..0, i64[] 0..0, i64[] 0..0, bool[] 0..0)");
    rule_step(&call, false);
    assert_float_equal(call.a.in[SCALE][0], 512, 0);
    call.a.in[SCALE][0] = 1e300;
    rule_step(&call, false);
    assert_true(isinf(call.a.in[SCALE][0]));
    op_call_close(&call);
}

static void rule__wrong_calls_are_refused(void **state)
{
    (void)state;
    op_call_refused("scale_step", LINE "window=0", "window is 0");
    op_call_refused("scale_step", LINE "hysteresis=0", "hysteresis is 0");
    op_call_refused("scale_step", LINE "min=-1", "min is -1");
    op_call_refused("scale_step", LINE "most_skips=-1", "most_skips is -1");
    op_call_refused("scale_step", LINE "dynamic=2", "dynamic");
    op_call_refused("scale_step", "(bool[], f16[], i64[], i64[], i64[], i64[], bool[])", "input 1 is f16[], not f32[]");
    op_call_refused("scale_step", "(bool[], f32[2], i64[], i64[], i64[], i64[], bool[])", "input 1 is f32[2]");
}

/* Counters that a damaged file may hold: no overflow of the sum, which the sanitizers would tell. */
static void rule__extreme_counters_do_no_harm(void **state)
{
    (void)state;
    static const int64_t extremes[] = {INT64_MIN, -1, 0, INT64_MAX};
    ht_scale_rule rule = {.dynamic = true, .window = 7, .hysteresis = 2, .most_skips = 20, .min = 1};
    for (int i = 0; i < 4 * 4 * 4 * 2; i++) {
        ht_scale_state now = {.scale = 8,
                              .hysteresis = extremes[i % 4],
                              .iteration = extremes[i / 4 % 4],
                              .last = extremes[i / 16 % 4],
                              .skips = extremes[(i + i / 4) % 4]};
        ht_scale_state next = ht_scale_next(&rule, now, i / 64);
        assert_true(next.iteration == now.iteration + (now.iteration < INT64_MAX));
        assert_true(next.scale == 4 || next.scale == 8 || next.scale == 16);
    }
}

/* ---- the update ---- */

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
        run(&w, "train");
        assert_int_equal(scalar(&w, "fatal"), i == FATAL_AT);
    }
    double p = parameter(&w, MATRIX, 0), m = element(&w, "vector.m", 3, 1), applied = scalar(&w, "applied");
    set_gradients(&w, 0.25);
    for (int i = 0; i < 6; i++) {
        run(&w, "train");
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

/* A small language model, some steps; the table and the norm of the last step's gradients. */
static void train_tiny(const choice *c, float *weights, double *norm)
{
    session_fixture w;
    ht_train_opts opts = opts_of(c);
    w = session_begin(2);
    tiny_build(w.g, 0.1);
    must(&w, ht_graph_train(w.g, &opts));
    session_plan(&w, NULL, 7);
    for (int i = 0; i < 6; i++) {
        int32_t token[TOKENS], label[TOKENS];
        tiny_tokens(i, token, label);
        must(&w, ht_session_write(w.s, "token", token, sizeof token));
        must(&w, ht_session_write(w.s, "label", label, sizeof label));
        run(&w, "train");
    }
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
        cmocka_unit_test(rule__follows_the_worked_table),
        cmocka_unit_test(rule__an_overflow_at_the_minimum_is_fatal_once_hysteresis_is_used_up),
        cmocka_unit_test(rule__the_eighteenth_overflow_in_a_row_is_fatal_by_default),
        cmocka_unit_test(rule__after_fatal_nothing_moves),
        cmocka_unit_test(rule__hysteresis_of_one_halves_at_once),
        cmocka_unit_test(rule__a_minimum_that_f32_lacks_still_stops),
        cmocka_unit_test(rule__a_scale_that_is_not_dynamic_stays_and_counts),
        cmocka_unit_test(rule__the_scale_stays_finite),
        cmocka_unit_test(rule__takes_a_scale_in_f64),
        cmocka_unit_test(rule__wrong_calls_are_refused),
        cmocka_unit_test(rule__extreme_counters_do_no_harm),
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
