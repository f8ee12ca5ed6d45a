/* scale_step, the rule of the loss scale: the worked table, hysteresis, what is fatal, counters at their ends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loss_scale_table.h"
#include "op_call.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
