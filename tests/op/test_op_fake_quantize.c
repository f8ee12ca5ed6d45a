/* fake_quantize: what codes stand for, by tables and as quantize_linear and dequantize_linear give it; the straight-through
 * gradient and that of a learned scale, by their formulas. */
#include <math.h>
#include <string.h>

#include "context_fixture.h"
#include "op/op.h"
#include "op_call.h"

/* By both definitions, which have the same bits. */
static void expect(const char *sample, size_t n, const double *x, const double *y)
{
    op_call call;
    op_call_open(&call, "fake_quantize", sample);
    memcpy(call.a.in[0], x, n * sizeof *x);
    op_call_reference(&call);
    for (size_t i = 0; i < n; i++) assert_true(call.a.out[0][i] == y[i]);
    op_call_kernel(&call);
    for (size_t i = 0; i < n; i++) assert_true(call.a.out[0][i] == y[i]);
    op_call_close(&call);
}

static void numbers__are_rounded_half_to_even_and_saturate(void **state)
{
    (void)state;
    static const double x[] = {0, 0.25, 0.75, 1.25, -0.25, -0.75, 3.4, 3.6, 1e30, -1e30, INFINITY, -INFINITY};
    static const double four_bits[] = {0, 0, 1, 1, 0, -1, 3.5, 3.5, 3.5, -3.5, 3.5, -3.5};
    static const double unsigned_bits[] = {0, 0, 1, 1, 0, -1, 3.5, 3.5, 6, -1.5, 6, -1.5}; /* zero point 3 */
    static const double ternary[] = {0, 0, 0.5, 0.5, 0, -0.5, 0.5, 0.5, 0.5, -0.5, 0.5, -0.5};
    expect("(f32[12], f32[] 0.5..0.5) low=-7 high=7", 12, x, four_bits);
    expect("(f32[12], f32[] 0.5..0.5, i32[] 3..3) low=0 high=15", 12, x, unsigned_bits);
    expect("(f32[12], f32[] 0.5..0.5) low=-1 high=1", 12, x, ternary);
}

static void numbers__are_those_of_quantize_and_dequantize(void **state)
{
    (void)state;
    static const char *const samples[][3] = {
        {"(f32[7,33] -2..2, f32[7] 0.01..0.02) axes=[1] low=-128 high=127",
         "(f32[7,33] -2..2, f32[7] 0.01..0.02) -> i8[7,33] axes=[1]",
         "(i8[7,33] -128..127, f32[7] 0.01..0.02) axes=[1]"},
        {"(f32[33,7] -2..2, f32[7] 0.01..0.02, i32[7] 0..255) axes=[0] low=0 high=255",
         "(f32[33,7] -2..2, f32[7] 0.01..0.02, i32[7] 0..255) -> u8[33,7] axes=[0]",
         "(u8[33,7] 0..255, f32[7] 0.01..0.02, i32[7] 0..255) axes=[0]"},
    };
    for (size_t s = 0; s < sizeof samples / sizeof samples[0]; s++) {
        op_call fake, codes, back;
        op_call_open(&fake, "fake_quantize", samples[s][0]);
        op_call_open(&codes, "quantize_linear", samples[s][1]);
        op_call_open(&back, "dequantize_linear", samples[s][2]);
        size_t inputs = s == 0 ? 2 : 3;
        for (size_t i = 0; i < inputs; i++) memcpy(codes.a.in[i], fake.a.in[i], (i ? 7 : 231) * sizeof(double));
        op_call_kernel(&fake);
        op_call_kernel(&codes);
        memcpy(back.a.in[0], codes.a.out[0], 231 * sizeof(double));
        for (size_t i = 1; i < inputs; i++) memcpy(back.a.in[i], fake.a.in[i], 7 * sizeof(double));
        op_call_kernel(&back);
        for (int i = 0; i < 231; i++) assert_true(fake.a.out[0][i] == back.a.out[0][i]);
        op_call_close(&fake);
        op_call_close(&codes);
        op_call_close(&back);
    }
}

/* Σ w · fake_quantize(x, s): the gradients of x and of s. */
enum { N = 6 };
static const double xs[N] = {0.1, -0.6, 3.4, 3.8, -9, 1.3}, weights[N] = {1, -2, 3, 4, 5, -6};

static void differentiate(bool learned, double *dx, double *ds)
{
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
    double scale = 0.5;
    int64_t dims[] = {N};
    ht_val grads[2];
    context_must(test_ctx, ht_graph_create(&g, test_ctx));
    ht_segment_begin(g, "main");
    ht_val x = ht_param(g, "x", HT_F32, 1, dims, HT_ZERO), step = ht_param(g, "scale", HT_F32, 0, NULL, HT_ZERO);
    const ht_attr attrs[] = {HT_INT("low", -7), HT_INT("high", 7), HT_INT("learned", learned)};
    ht_val y = ht_emit1(g, "fake_quantize", NULL, HT_VALS(x, step), 3, attrs);
    ht_val loss = ht_sum(g, ht_mul(g, y, ht_constant(g, HT_F32, 1, dims, weights)), 0, NULL, false);
    context_must(test_ctx, ht_gradients(g, loss, 2, (const ht_val[]){x, step}, grads));
    ht_output(g, "dx", grads[0]);
    ht_output(g, "ds", grads[1]);
    context_must(test_ctx, ht_plan_create(&plan, g, NULL));
    context_must(test_ctx, ht_session_create(&s, plan, NULL));
    context_must(test_ctx, ht_session_write_f64(s, "x", xs, N));
    context_must(test_ctx, ht_session_write_f64(s, "scale", &scale, 1));
    context_must(test_ctx, ht_session_run(s, "main"));
    context_must(test_ctx, ht_session_read_f64(s, "dx", dx, N));
    context_must(test_ctx, ht_session_read_f64(s, "ds", ds, 1));
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
}

static void gradients__go_straight_through_and_stop_beyond_the_codes(void **state)
{
    (void)state;
    double dx[N], ds, sum = 0;
    differentiate(false, dx, &ds);
    for (int i = 0; i < N; i++) {
        bool inside = fabs(xs[i]) < 3.75; /* half a step beyond the last code, 7 · 0.5 */
        assert_float_equal(dx[i], inside ? weights[i] : 0, 0);
        double y = fmax(-7, fmin(7, nearbyint(xs[i] / 0.5))) * 0.5;
        sum += weights[i] * (y - (inside ? xs[i] : 0)) / 0.5;
    }
    assert_float_equal(ds, 0, 0);
    differentiate(true, dx, &ds);
    assert_float_equal(ds, sum / sqrt(N * 7.0), 1e-5);
}

/* Σ w · straight_through(q, x): x learns what q is read for. */
static void straight_through__gives_gradients_to_what_was_rounded(void **state)
{
    (void)state;
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
    double got[N];
    int64_t dims[] = {N};
    ht_val grads[2];
    context_must(test_ctx, ht_graph_create(&g, test_ctx));
    ht_segment_begin(g, "main");
    ht_val x = ht_param(g, "x", HT_F32, 1, dims, HT_ZERO), q = ht_mul(g, x, ht_scale(g, x, 3));
    ht_val y = ht_emit1(g, "straight_through", NULL, HT_VALS(q, x), HT_NO_ATTRS);
    ht_val loss = ht_sum(g, ht_mul(g, y, ht_constant(g, HT_F32, 1, dims, weights)), 0, NULL, false);
    context_must(test_ctx, ht_gradients(g, loss, 1, &x, grads));
    ht_output(g, "dx", grads[0]);
    ht_output(g, "y", y);
    context_must(test_ctx, ht_plan_create(&plan, g, NULL));
    context_must(test_ctx, ht_session_create(&s, plan, NULL));
    context_must(test_ctx, ht_session_write_f64(s, "x", xs, N));
    context_must(test_ctx, ht_session_run(s, "main"));
    context_must(test_ctx, ht_session_read_f64(s, "dx", got, N));
    for (int i = 0; i < N; i++) assert_float_equal(got[i], weights[i], 0); /* not 6 x of it */
    context_must(test_ctx, ht_session_read_f64(s, "y", got, N));
    for (int i = 0; i < N; i++) assert_float_equal(got[i], 3 * xs[i] * xs[i], 1e-4);
    ht_session_free(s);
    ht_plan_free(plan);
    ht_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers__are_rounded_half_to_even_and_saturate),
        cmocka_unit_test(numbers__are_those_of_quantize_and_dequantize),
        cmocka_unit_test(gradients__go_straight_through_and_stop_beyond_the_codes),
        cmocka_unit_test(straight_through__gives_gradients_to_what_was_rounded),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
