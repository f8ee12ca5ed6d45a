/* quantize_linear, dequantize_linear and quantize_dynamic: codes by worked tables, ends of the codes, numbers that are not finite, ranges
 * and their zero points; by the reference and by the kernel of this machine alike. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "op_call.h"

/* By both definitions, which have the same bits. */
static void run_both(op_call *call, size_t results)
{
    double by_reference[3][128];
    op_call_reference(call);
    for (size_t r = 0; r < results; r++) {
        assert_true(op_call_elems_out(call, r) <= 128);
        memcpy(by_reference[r], call->a.out[r], (size_t)op_call_elems_out(call, r) * sizeof(double));
    }
    op_call_kernel(call);
    for (size_t r = 0; r < results; r++)
        for (int64_t i = 0; i < op_call_elems_out(call, r); i++) {
            double a = call->a.out[r][i], b = by_reference[r][i];
            assert_true(a == b || (isnan(a) && isnan(b)));
        }
}

static void set(double *to, size_t n, const double *values)
{
    memcpy(to, values, n * sizeof *values);
}

static void codes__are_rounded_half_to_even_and_saturate(void **state)
{
    (void)state;
    static const double x[] = {0,     0.5,  1.5,   2.5,    -0.5, -1.5,     -2.5,      0.49,
                               127.5, 1e30, -1e30, -128.5, -129, INFINITY, -INFINITY, NAN};
    static const double i8[] = {0, 0, 2, 2, 0, -2, -2, 0, 127, 127, -128, -128, -128, 127, -128, -128};
    static const double u8[] = {10, 10, 12, 12, 10, 8, 8, 10, 138, 255, 0, 0, 0, 255, 0, 0}; /* zero point 10 */
    op_call call;
    op_call_open(&call, "quantize_linear", "(f32[16], f32[] 1..1) -> i8[16]");
    set(call.a.in[0], 16, x);
    run_both(&call, 1);
    for (int i = 0; i < 16; i++) assert_true(call.a.out[0][i] == i8[i]);
    op_call_close(&call);
    op_call_open(&call, "quantize_linear", "(f32[16], f32[] 1..1, i32[] 10..10) -> u8[16]");
    set(call.a.in[0], 16, x);
    run_both(&call, 1);
    for (int i = 0; i < 16; i++) assert_true(call.a.out[0][i] == u8[i]);
    op_call_close(&call);
}

/* A zero point that is no code counts as the nearest one. */
static void zero_points__stay_within_the_codes(void **state)
{
    (void)state;
    op_call call;
    op_call_open(&call, "quantize_linear", "(f32[2], f32[] 1..1, i32[] 1000..1000) -> u8[2]");
    set(call.a.in[0], 2, (const double[]){0, -5});
    run_both(&call, 1);
    assert_true(call.a.out[0][0] == 255 && call.a.out[0][1] == 250);
    op_call_close(&call);
}

static void scales__are_those_of_the_axes_that_do_not_share_one(void **state)
{
    (void)state;
    op_call call;
    op_call_open(&call, "quantize_linear", "(f32[2,3], f32[3]) -> i8[2,3] axes=[0]");
    set(call.a.in[0], 6, (const double[]){1, 2, 3, 4, 5, 6});
    set(call.a.in[1], 3, (const double[]){1, 0.5, 0.25});
    run_both(&call, 1);
    op_call_near("by columns", call.a.out[0], (const double[]){1, 4, 12, 4, 10, 24}, 6, 0);
    op_call_close(&call);
    op_call_open(&call, "dequantize_linear", "(u8[2,3], f32[2], i32[2]) axes=[1]");
    set(call.a.in[0], 6, (const double[]){0, 128, 255, 0, 128, 255});
    set(call.a.in[1], 2, (const double[]){1, 0.5});
    set(call.a.in[2], 2, (const double[]){128, 0});
    run_both(&call, 1);
    op_call_near("by rows", call.a.out[0], (const double[]){-128, 0, 127, 0, 64, 127.5}, 6, 0);
    op_call_close(&call);
}

/* Every code of both types comes back. */
static void every_code__survives_the_way_there_and_back(void **state)
{
    (void)state;
    for (int is_signed = 0; is_signed < 2; is_signed++)
        for (int code = 0; code < 256; code++) {
            op_call back, there;
            double value = is_signed ? code - 128 : code;
            op_call_open(&back, "dequantize_linear", "(%s[1], f32[] 0.037..0.037, i32[] 3..3)",
                         is_signed ? "i8" : "u8");
            back.a.in[0][0] = value;
            run_both(&back, 1);
            op_call_open(&there, "quantize_linear", "(f32[1], f32[] 0.037..0.037, i32[] 3..3) -> %s[1]",
                         is_signed ? "i8" : "u8");
            there.a.in[0][0] = back.a.out[0][0];
            run_both(&there, 1);
            assert_true(there.a.out[0][0] == value);
            op_call_close(&back);
            op_call_close(&there);
        }
}

/* ---- ranges ---- */

static void dynamic_codes__span_the_range_of_each_row(void **state)
{
    (void)state;
    op_call call;
    op_call_open(&call, "quantize_dynamic", "(f32[3,4]) -> u8[3,4], f32[3], i32[3] axes=[1]");
    set(call.a.in[0], 12, (const double[]){-1, 0, 1.55, 0.5, 2, 3, 5.1, 4, -1, -2, -5.1, -3});
    run_both(&call, 3);
    /* -1..1.55; 0..5.1, since 0 is always a code; -5.1..0 */
    assert_true(call.a.out[1][0] == (double)(1.55f / 255 + 1.0f / 255) && call.a.out[1][1] == (double)(5.1f / 255));
    assert_true(call.a.out[2][0] == 100 && call.a.out[2][1] == 0 && call.a.out[2][2] == 255);
    assert_true(call.a.out[0][1] == 100 && call.a.out[0][6] == 255 && call.a.out[0][10] == 0);
    op_call_close(&call);
    op_call_open(&call, "quantize_dynamic", "(f32[1,4]) -> i8[1,4], f32[1], i32[1] axes=[1]");
    set(call.a.in[0], 4, (const double[]){-2.54, 0, 1.27, 2});
    run_both(&call, 3);
    assert_true(call.a.out[2][0] == 0);
    op_call_near("symmetric", call.a.out[0], (const double[]){-127, 0, 64, 100}, 4, 0);
    op_call_close(&call);
}

static void rows_of_zeros__have_the_smallest_scale(void **state)
{
    (void)state;
    op_call call;
    op_call_open(&call, "quantize_dynamic", "(f32[2,40] 0..0) -> u8[2,40], f32[2], i32[2] axes=[1]");
    run_both(&call, 3);
    assert_true(call.a.out[1][0] == (double)FLT_MIN && call.a.out[2][0] == 0);
    op_call_all("codes", call.a.out[0], 80, 0);
    op_call_close(&call);
}

/* The scale says so, and the product of such a row is NaN. */
static void rows_that_are_not_finite__have_no_scale(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (int at = 0; at < 40; at += 13)
        for (int b = 0; b < 3; b++) {
            op_call call;
            op_call_open(&call, "quantize_dynamic", "(f32[2,40]) -> u8[2,40], f32[2], i32[2] axes=[1]");
            call.a.in[0][at] = bad[b];
            run_both(&call, 3);
            assert_true(isnan(call.a.out[1][0]) && isfinite(call.a.out[1][1]));
            op_call_close(&call);
        }
}

static void bad_operands__are_refused_by_name(void **state)
{
    (void)state;
    op_call_refused("quantize_linear", "(f64[4], f32[]) -> i8[4]", "x is f64");
    op_call_refused("quantize_linear", "(f32[4], f32[]) -> i32[4]", "the codes are i32");
    op_call_refused("quantize_linear", "(f32[4], f32[]) -> i8[5]", "the result is i8[5]");
    op_call_refused("quantize_linear", "(f32[4,5], f32[4]) -> i8[4,5] axes=[0]", "the scales: f32[4], not f32[5]");
    op_call_refused("quantize_linear", "(f32[4], f32[], f32[]) -> i8[4]", "the zero points: f32[], not i32[]");
    op_call_refused("quantize_linear", "(f32[4], f32[]) -> i8[4] axes=[1]", "axis 1 is outside");
    op_call_refused("dequantize_linear", "(f32[4], f32[])", "the codes are f32");
    op_call_refused("quantize_dynamic", "(f32[4,5]) -> u8[4,5], f32[5], i32[4] axes=[1]", "the scales: f32[5]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes__are_rounded_half_to_even_and_saturate),
        cmocka_unit_test(zero_points__stay_within_the_codes),
        cmocka_unit_test(scales__are_those_of_the_axes_that_do_not_share_one),
        cmocka_unit_test(every_code__survives_the_way_there_and_back),
        cmocka_unit_test(dynamic_codes__span_the_range_of_each_row),
        cmocka_unit_test(rows_of_zeros__have_the_smallest_scale),
        cmocka_unit_test(rows_that_are_not_finite__have_no_scale),
        cmocka_unit_test(bad_operands__are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
