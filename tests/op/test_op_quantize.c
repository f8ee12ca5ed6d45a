/* quantize and amax_step: scales at the ends of the types, what saturates and what becomes NaN, histories that move on. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_call.h"

/* By both definitions. */
static void quantize(op_call *call)
{
    double by_reference[64];
    int64_t n = op_call_elems_out(call, 0);
    assert_true(n <= 60);
    op_call_reference(call);
    memcpy(by_reference, call->a.out[0], (size_t)n * sizeof(double));
    by_reference[60] = call->a.out[1][0];
    by_reference[61] = call->a.out[2][0];
    op_call_kernel(call);
    for (int64_t i = 0; i < n; i++)
        assert_true(call->a.out[0][i] == by_reference[i] || (isnan(call->a.out[0][i]) && isnan(by_reference[i])));
    assert_true(call->a.out[1][0] == by_reference[60]);
    assert_true(call->a.out[2][0] == by_reference[61] || (isnan(call->a.out[2][0]) && isnan(by_reference[61])));
}

static double scale_found(const char *type, double amax)
{
    op_call call;
    op_call_open(&call, "quantize", "(f32[2]) -> %s[2], f32[], f32[]", type);
    call.a.in[0][0] = amax;
    call.a.in[0][1] = -amax / 3;
    quantize(&call);
    double scale = call.a.out[1][0];
    op_call_close(&call);
    return scale;
}

static void scale__is_the_smallest_power_of_two_that_brings_the_largest_into_range(void **state)
{
    (void)state;
    static const struct {
        double amax, e4m3, e5m2;
    } table[] = {
        {448, 1, 0x1p-7},
        {448.00003, 2, 0x1p-6},
        {57344, 128, 1},
        {57344.004, 256, 2},
        {1, 0x1p-8, 0x1p-15},
        {1.75, 0x1p-8, 0x1p-15},
        {1.7500001, 0x1p-7, 0x1p-14},
        {2, 0x1p-7, 0x1p-14},
        {0x1p-126, 0x1p-126, 0x1p-126},
        {0x1p-149, 0x1p-126, 0x1p-126},
        {FLT_MAX, 0x1p120, 0x1p113},
        {0, 1, 1},
        {INFINITY, 1, 1},
        {NAN, 1, 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        assert_float_equal(scale_found("f8e4m3", (float)table[i].amax), table[i].e4m3, 0);
        assert_float_equal(scale_found("f8e5m2", (float)table[i].amax), table[i].e5m2, 0);
    }
}

static void codes__saturate_where_finite_and_are_nan_where_not(void **state)
{
    (void)state;
    static const double x[] = {448, 463, 465, 1e30, -1e30, INFINITY, -INFINITY, NAN, 0x1p-9, 0x1p-10, -0.0, 17};
    static const double y[] = {448, 448, 448, 448, -448, NAN, NAN, NAN, 0x1p-9, 0, -0.0, 16};
    op_call call;
    op_call_open(&call, "quantize", "(f32[12], f32[] 1..1) -> f8e4m3[12], f32[], f32[]");
    memcpy(call.a.in[0], x, sizeof x);
    quantize(&call);
    for (size_t i = 0; i < 12; i++) assert_true(call.a.out[0][i] == y[i] || (isnan(call.a.out[0][i]) && isnan(y[i])));
    assert_float_equal(call.a.out[1][0], 1, 0);
    assert_true(isnan(call.a.out[2][0]));
    op_call_close(&call);
}

/* All codes: each value comes back, and what lies between two goes to the nearer one. */
static void codes__round_to_the_nearest_of_all_values(void **state)
{
    (void)state;
    static const char *const types[] = {"f8e4m3", "f8e5m2"};
    static const ht_dtype dtypes[] = {HT_F8E4M3, HT_F8E5M2};
    for (size_t t = 0; t < 2; t++)
        for (int code = 0; code < 0x7a; code++) {
            uint8_t low = (uint8_t)code, high = (uint8_t)(code + 1);
            double a = ht_load_f64(&low, dtypes[t], 0), b = ht_load_f64(&high, dtypes[t], 0), scale = 0x1p-20;
            op_call call;
            op_call_open(&call, "quantize", "(f32[5], f32[] 1..1) -> %s[5], f32[], f32[]", types[t]);
            const double x[] = {a, b, (a + b) / 2, a + (b - a) * 0.49, -(a + (b - a) * 0.51)};
            const double y[] = {a, b, code % 2 ? b : a, a, -b};
            for (size_t i = 0; i < 5; i++) call.a.in[0][i] = x[i] * scale;
            call.a.in[1][0] = scale;
            quantize(&call);
            for (size_t i = 0; i < 5; i++) assert_float_equal(call.a.out[0][i], y[i], 0);
            op_call_close(&call);
        }
}

static void both__has_the_last_axis_first(void **state)
{
    (void)state;
    op_call call;
    op_call_open(&call, "quantize_both", "(bf16[2,3,4]) -> f8e4m3[2,3,4], f8e4m3[4,2,3], f32[], f32[]");
    op_call_kernel(&call);
    for (int row = 0; row < 6; row++)
        for (int column = 0; column < 4; column++)
            assert_float_equal(call.a.out[1][column * 6 + row], call.a.out[0][row * 4 + column], 0);
    op_call_close(&call);
}

static void quantize__refuses_what_it_cannot_scale(void **state)
{
    (void)state;
    op_call_refused("quantize", "(f64[4]) -> f8e4m3[4], f32[], f32[]", "x is f64");
    op_call_refused("quantize", "(f32[4]) -> f16[4], f32[], f32[]", "not f8");
    op_call_refused("quantize", "(f32[4]) -> f8e4m3[5], f32[], f32[]", "not of the shape");
    op_call_refused("quantize", "(f32[4], f32[2]) -> f8e4m3[4], f32[], f32[]", "the scale is f32[2]");
    op_call_refused("quantize_both", "(f32[4,3]) -> f8e4m3[4,3], f8e4m3[4,3], f32[], f32[]", "not of the shape");
    op_call_refused("quantize_both", "(f32[]) -> f8e4m3[], f8e4m3[], f32[], f32[]", "a single number");
    op_call_refused("scaled_matmul", "(f32[3,4], f8e4m3[4,5], f32[], f32[])", "input 0 is f32[3,4], not f8");
    op_call_refused("scaled_matmul", "(f8e4m3[3,4], f8e4m3[4,5], f32[], f32[1])", "the scale of input 1 is f32[1]");
}

/* ---- histories ---- */

enum { AMAX, HISTORY, SCALE };

/* One step; the results become the next inputs. */
static void next_step(op_call *call, double amax)
{
    double by_reference[4];
    call->a.in[AMAX][0] = amax;
    op_call_reference(call);
    memcpy(by_reference, call->a.out[0], 3 * sizeof(double));
    by_reference[3] = call->a.out[1][0];
    op_call_kernel(call);
    for (int i = 0; i < 3; i++) assert_float_equal(call->a.out[0][i], by_reference[i], 0);
    assert_float_equal(call->a.out[1][0], by_reference[3], 0);
    memcpy(call->a.in[HISTORY], call->a.out[0], 3 * sizeof(double));
    call->a.in[SCALE][0] = call->a.out[1][0];
}

static void history__has_the_last_steps_and_a_scale_for_their_largest(void **state)
{
    (void)state;
    static const struct {
        double amax, scale, history[3];
    } table[] = {
        {448, 1, {448, 0, 0}},         {7, 1, {7, 448, 0}},
        {0, 1, {7, 448, 0}}, /* tells nothing */
        {INFINITY, 1, {7, 448, 0}},    {NAN, 1, {7, 448, 0}},
        {14, 1, {14, 7, 448}},         {3.5, 0x1p-5, {3.5, 14, 7}}, /* 448 was too long ago */
        {3.5, 0x1p-5, {3.5, 3.5, 14}}, {3.5, 0x1p-7, {3.5, 3.5, 3.5}},
        {1e6, 4096, {1e6, 3.5, 3.5}},
    };
    op_call call;
    op_call_open(&call, "amax_step", "(f32[1], f32[1,3] 0..0, f32[1] 0..0)");
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        next_step(&call, table[i].amax);
        assert_float_equal(call.a.in[SCALE][0], table[i].scale, 0);
        for (int k = 0; k < 3; k++) assert_float_equal(call.a.in[HISTORY][k], table[i].history[k], 0);
    }
    op_call_close(&call);
}

static void history__leaves_its_margin(void **state)
{
    (void)state;
    op_call call;
    op_call_open(&call, "amax_step", "(f32[1], f32[1,3] 0..0, f32[1] 0..0) top=15 margin=4");
    next_step(&call, 57344);
    assert_float_equal(call.a.in[SCALE][0], 16, 0);
    next_step(&call, FLT_MAX);
    assert_float_equal(call.a.in[SCALE][0], 0x1p117, 0);
    op_call_close(&call);
    op_call_open(&call, "amax_step", "(f32[1], f32[1,3] 0..0, f32[1] 0..0) top=15 margin=16");
    next_step(&call, FLT_MAX);
    assert_float_equal(call.a.in[SCALE][0], 0x1p126, 0); /* whose inverse is a normal number */
    op_call_close(&call);
}

static void history__refuses_what_does_not_fit(void **state)
{
    (void)state;
    op_call_refused("amax_step", "(f32[2], f32[3,4], f32[2])", "2 magnitudes, 3 histories and 2 scales");
    op_call_refused("amax_step", "(f32[2], f32[2,0], f32[2])", "the histories are empty");
    op_call_refused("amax_step", "(f32[2], f32[2,4], f16[2])", "scale is f16[2]");
    op_call_refused("amax_step", "(f32[2], f32[2,4], f32[2]) top=7", "top is 7");
    op_call_refused("amax_step", "(f32[2], f32[2,4], f32[2]) margin=17", "margin is 17");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale__is_the_smallest_power_of_two_that_brings_the_largest_into_range),
        cmocka_unit_test(codes__saturate_where_finite_and_are_nan_where_not),
        cmocka_unit_test(codes__round_to_the_nearest_of_all_values),
        cmocka_unit_test(both__has_the_last_axis_first),
        cmocka_unit_test(quantize__refuses_what_it_cannot_scale),
        cmocka_unit_test(history__has_the_last_steps_and_a_scale_for_their_largest),
        cmocka_unit_test(history__leaves_its_margin),
        cmocka_unit_test(history__refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
