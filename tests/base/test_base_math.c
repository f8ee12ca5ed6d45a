/* The float functions against libm in double: error in units of the last place over a stride of all bit patterns, and
 * the values at the edges. */
#include "base/mathfn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* A prime, so that low and high bits of the samples vary alike; about 200,000 floats. HT_MATH_STRIDE=1 takes all. */
#define STRIDE 21019

/* How far `got` is from the truth, in steps of floats at the truth. */
static double error_in_ulp(float got, double want)
{
    const double wrong = 1e30;
    if (isnan(want)) return isnan(got) ? 0 : wrong;
    if (isinf(got) || isinf(want)) return (float)want == got ? 0 : wrong;
    if (want == 0) return got == 0 && !signbit(got) == !signbit(want) ? 0 : wrong;
    int exponent;
    frexp(want, &exponent);
    if (exponent < -125) exponent = -125; /* subnormals are evenly spaced */
    return fabs((double)got - want) / ldexp(1, exponent - 24);
}

static uint64_t stride(void)
{
    const char *text = getenv("HT_MATH_STRIDE");
    unsigned long asked = text != NULL ? strtoul(text, NULL, 10) : 0;
    return asked > 0 ? asked : STRIDE;
}

static void expect_error_within(const char *name, float (*fn)(float), double (*truth)(double), float range,
                                double allowed)
{
    double worst = 0;
    float at = 0;
    uint64_t step = stride();
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
        float x = ht_f32_from_bits((uint32_t)bits);
        if (fabsf(x) > range) continue;
        double error = error_in_ulp(fn(x), truth((double)x));
        if (error > worst) {
            worst = error;
            at = x;
        }
    }
    print_message("           %-9s %.3f ulp at %a\n", name, worst, (double)at);
    if (worst > allowed) fail_msg("%s: %g ulp at %a, more than %g", name, worst, (double)at, allowed);
}

static void math__errors_are_as_stated(void **state)
{
    (void)state;
    expect_error_within("exp", fn_exp_f32, exp, INFINITY, 1.0);
    expect_error_within("log", fn_log_f32, log, INFINITY, 1.0);
    expect_error_within("log1p", fn_log1p_f32, log1p, INFINITY, 1.5);
    expect_error_within("tanh", fn_tanh_f32, tanh, INFINITY, 1.5);
    expect_error_within("sigmoid", fn_sigmoid_f32, fn_sigmoid_f64, INFINITY, 2.0);
    expect_error_within("softplus", fn_softplus_f32, fn_softplus_f64, INFINITY, 2.0);
    expect_error_within("erf", fn_erf_f32, erf, INFINITY, 1.5);
    expect_error_within("sin", fn_sin_f32, sin, 1.6e6f, 1.6);
    expect_error_within("cos", fn_cos_f32, cos, 1.6e6f, 1.6);
    expect_error_within("rsqrt", fn_rsqrt_f32, fn_rsqrt_f64, INFINITY, 1.5);
    expect_error_within("floor", fn_floor_f32, floor, INFINITY, 0);
    expect_error_within("sign", fn_sign_f32, fn_sign_f64, INFINITY, 0);
}

/* Same bits, but for NaN, which only has to be one. */
static void expect_same(const char *what, float got, float want)
{
    bool same = isnan(want) ? isnan(got) : ht_f32_bits(got) == ht_f32_bits(want);
    if (!same) fail_msg("%s is %a, not %a", what, (double)got, (double)want);
}
#define EXPECT(expression, want) expect_same(#expression, expression, want)

static void math__edges_of_exp_and_log(void **state)
{
    (void)state;
    EXPECT(fn_exp(0.0f), 1.0f);
    EXPECT(fn_exp(-0.0f), 1.0f);
    EXPECT(fn_exp(INFINITY), INFINITY);
    EXPECT(fn_exp(-INFINITY), 0.0f);
    EXPECT(fn_exp(NAN), NAN);
    EXPECT(fn_exp(88.8f), INFINITY);
    EXPECT(fn_exp(3e38f), INFINITY);
    EXPECT(fn_exp(-3e38f), 0.0f);
    EXPECT(fn_exp(-103.9f), 0x1p-149f); /* the smallest subnormal is not flushed */
    EXPECT(fn_exp(-104.0f), 0.0f);
    EXPECT(fn_log(0.0f), -INFINITY);
    EXPECT(fn_log(-0.0f), -INFINITY);
    EXPECT(fn_log(1.0f), 0.0f);
    EXPECT(fn_log(-1.0f), NAN);
    EXPECT(fn_log(-INFINITY), NAN);
    EXPECT(fn_log(INFINITY), INFINITY);
    EXPECT(fn_log(NAN), NAN);
    EXPECT(fn_log(0x1p-149f), (float)log(0x1p-149));
    EXPECT(fn_log1p(-0.0f), -0.0f);
    EXPECT(fn_log1p(0.0f), 0.0f);
    EXPECT(fn_log1p(0x1p-140f), 0x1p-140f);
    EXPECT(fn_log1p(-1.0f), -INFINITY);
    EXPECT(fn_log1p(-1.5f), NAN);
    EXPECT(fn_log1p(-INFINITY), NAN);
    EXPECT(fn_log1p(INFINITY), INFINITY);
    EXPECT(fn_log1p(NAN), NAN);
}

static void math__edges_of_the_rest(void **state)
{
    (void)state;
    EXPECT(fn_tanh(-0.0f), -0.0f);
    EXPECT(fn_tanh(INFINITY), 1.0f);
    EXPECT(fn_tanh(-INFINITY), -1.0f);
    EXPECT(fn_tanh(-3e38f), -1.0f);
    EXPECT(fn_tanh(NAN), NAN);
    EXPECT(fn_tanh(0x1p-149f), 0x1p-149f);
    EXPECT(fn_sigmoid(0.0f), 0.5f);
    EXPECT(fn_sigmoid(INFINITY), 1.0f);
    EXPECT(fn_sigmoid(-INFINITY), 0.0f);
    EXPECT(fn_sigmoid(NAN), NAN);
    EXPECT(fn_sigmoid(-100.0f), (float)exp(-100.0));
    EXPECT(fn_softplus(INFINITY), INFINITY);
    EXPECT(fn_softplus(-INFINITY), 0.0f);
    EXPECT(fn_softplus(NAN), NAN);
    EXPECT(fn_softplus(50.0f), 50.0f);
    EXPECT(fn_erf(-0.0f), -0.0f);
    EXPECT(fn_erf(INFINITY), 1.0f);
    EXPECT(fn_erf(-INFINITY), -1.0f);
    EXPECT(fn_erf(-3e38f), -1.0f);
    EXPECT(fn_erf(NAN), NAN);
    EXPECT(fn_sin(-0.0f), -0.0f);
    EXPECT(fn_sin(INFINITY), NAN);
    EXPECT(fn_sin(NAN), NAN);
    EXPECT(fn_cos(-0.0f), 1.0f);
    EXPECT(fn_cos(-INFINITY), NAN);
    EXPECT(fn_cos(NAN), NAN);
    EXPECT(fn_floor(-0.0f), -0.0f);
    EXPECT(fn_floor(-0.5f), -1.0f);
    EXPECT(fn_floor(INFINITY), INFINITY);
    EXPECT(fn_floor(NAN), NAN);
    EXPECT(fn_rsqrt(0.0f), INFINITY);
    EXPECT(fn_rsqrt(INFINITY), 0.0f);
    EXPECT(fn_rsqrt(-1.0f), NAN);
    EXPECT(fn_sqrt(-0.0f), -0.0f);
    EXPECT(fn_sqrt(2.0f), 0x1.6a09e6p0f);
    EXPECT(fn_abs(-0.0f), 0.0f);
    EXPECT(fn_pow(2.0f, 0.5f), 0x1.6a09e6p0f);
    EXPECT(fn_pow(-8.0f, 3.0f), -512.0f);
    EXPECT(fn_pow(0.0f, 0.0f), 1.0f);
    EXPECT(fn_pow(-8.0f, 0.5f), NAN);
    EXPECT(fn_sign(-0.0f), -0.0f);
    EXPECT(fn_sign(-3.0f), -1.0f);
    EXPECT(fn_sign(INFINITY), 1.0f);
    EXPECT(fn_sign(NAN), NAN);
}

static void math__sin_and_cos_stay_within_one_for_any_float(void **state)
{
    (void)state;
    for (uint64_t bits = 0x49000000; bits < 0x7f800000; bits += 4099) {
        float x = ht_f32_from_bits((uint32_t)bits);
        if (!(fabsf(fn_sin(x)) <= 1.0f) || !(fabsf(fn_cos(x)) <= 1.0f)) fail_msg("at %a", (double)x);
        if (x < 1e9f && fabs((double)fn_sin(x) - sin((double)x)) > 1e-6) fail_msg("sin(%a) is far off", (double)x);
    }
}

static void math__min_and_max_pass_nan_on(void **state)
{
    (void)state;
    EXPECT(fn_min(1.0f, 2.0f), 1.0f);
    EXPECT(fn_max(1.0f, 2.0f), 2.0f);
    EXPECT(fn_min(NAN, 2.0f), NAN);
    EXPECT(fn_min(2.0f, NAN), NAN);
    EXPECT(fn_max(NAN, 2.0f), NAN);
    EXPECT(fn_max(2.0f, NAN), NAN);
    EXPECT(fn_max(-INFINITY, INFINITY), INFINITY);
    assert_true(isnan(fn_min(NAN + 0.0, 1.0)) && isnan(fn_max(1.0, NAN + 0.0)));
    assert_true(fn_min(3.0, -1.0) == -1.0 && fn_max(3.0, -1.0) == 3.0);
}

static void math__the_type_of_the_argument_chooses(void **state)
{
    (void)state;
    assert_int_equal(sizeof fn_exp(1.0f), sizeof(float));
    assert_int_equal(sizeof fn_exp(1.0), sizeof(double));
    assert_int_equal(sizeof fn_max(1.0f, 1.0), sizeof(double));
    assert_true(fn_exp(0.3) == exp(0.3) && fn_erf(0.3) == erf(0.3) && fn_pow(0.3, 2.5) == pow(0.3, 2.5));
    assert_true(fn_sigmoid(-800.0) == 0 && fn_softplus(800.0) == 800);
    assert_true(fn_sign(-2.0) == -1 && fn_floor(-0.5) == -1 && fn_abs(-2.0) == 2);
    assert_true(fn_sqrt(2) == sqrt(2.0)); /* an integer counts as a double */
}

/* What the compiler makes of a loop must be what it makes of one call. */
#define SAME_IN_A_LOOP(fn)                                                                                             \
    do {                                                                                                               \
        for (int i = 0; i < COUNT; i++) y[i] = fn(x[i]);                                                               \
        for (int i = 0; i < COUNT; i++) {                                                                              \
            volatile float alone = x[i];                                                                               \
            expect_same(#fn " in a loop", y[i], fn(alone));                                                            \
        }                                                                                                              \
    } while (0)

static void math__vectorised_loops_give_the_same_bits(void **state)
{
    (void)state;
    enum { COUNT = 20011 };
    static float x[COUNT], y[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) x[i] = ht_f32_from_bits(i * 214631u);
    SAME_IN_A_LOOP(fn_exp);
    SAME_IN_A_LOOP(fn_log);
    SAME_IN_A_LOOP(fn_log1p);
    SAME_IN_A_LOOP(fn_tanh);
    SAME_IN_A_LOOP(fn_sigmoid);
    SAME_IN_A_LOOP(fn_softplus);
    SAME_IN_A_LOOP(fn_erf);
    SAME_IN_A_LOOP(fn_sin);
    SAME_IN_A_LOOP(fn_cos);
    SAME_IN_A_LOOP(fn_floor);
    SAME_IN_A_LOOP(fn_rsqrt);
    SAME_IN_A_LOOP(fn_sign);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(math__errors_are_as_stated),
        cmocka_unit_test(math__edges_of_exp_and_log),
        cmocka_unit_test(math__edges_of_the_rest),
        cmocka_unit_test(math__sin_and_cos_stay_within_one_for_any_float),
        cmocka_unit_test(math__min_and_max_pass_nan_on),
        cmocka_unit_test(math__the_type_of_the_argument_chooses),
        cmocka_unit_test(math__vectorised_loops_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
