/* round_stochastic: one of two neighbours, right on average, a function of seed, step, site and index alone. */
#include "op_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40000 };

static void open_round(op_call *c, const char *type, double x, double seed, double step)
{
    op_call_open(c, "round_stochastic", "(f32[%d], i64[], i64[]) -> %s[%d] site=\"w\"", N, type, N);
    for (int64_t i = 0; i < N; i++) c->a.in[0][i] = x;
    c->a.in[1][0] = seed;
    c->a.in[2][0] = step;
}

/* All results are `below` or `above` in size, and their mean is x within five standard errors. */
static void check_mean(const char *type, double x, double below, double above)
{
    for (int sign = -1; sign <= 1; sign += 2) {
        op_call c;
        double sum = 0, share = (x - below) / (above - below);
        open_round(&c, type, sign * x, 3, 17);
        op_call_kernel(&c);
        for (int64_t i = 0; i < N; i++) {
            double y = sign * c.a.out[0][i];
            if (y != below && y != above) fail_msg("%s: %.9g became %.9g", type, x, y);
            sum += y;
        }
        double deviation = (above - below) * sqrt(share * (1 - share) / N);
        if (!(fabs(sum / N - x) <= 5 * deviation))
            fail_msg("%s: %.9g is %.9g on average, with a deviation of %g", type, x, sum / N, deviation);
        op_call_close(&c);
    }
}

static void round__is_right_on_average(void **state)
{
    (void)state;
    check_mean("bf16", 1 + 0.25 * 0x1p-7, 1, 1 + 0x1p-7);
    check_mean("bf16", 1 + 0x1p-10, 1, 1 + 0x1p-7);
    check_mean("bf16", 2 - 0.1 * 0x1p-7, 2 - 0x1p-7, 2);
    check_mean("bf16", (float)3e-39, floor((double)(float)3e-39 * 0x1p133) * 0x1p-133,
               ceil((double)(float)3e-39 * 0x1p133) * 0x1p-133);
    check_mean("f16", 0.3f, floor((double)0.3f * 0x1p12) * 0x1p-12, ceil((double)0.3f * 0x1p12) * 0x1p-12);
    check_mean("f16", 5.25 * 0x1p-24, 5 * 0x1p-24, 6 * 0x1p-24);
    check_mean("f16", 0x1p-26, 0, 0x1p-24); /* what the nearest would always flush */
    check_mean("f16", 65504 - 8, 65472, 65504);
}

static void round__leaves_what_the_type_holds(void **state)
{
    (void)state;
    static const double exact[] = {0, -0.0, 1, -1.5, 0x1p-24, 65504, 0.333251953125, INFINITY, -INFINITY};
    for (int half = 0; half < 2; half++) {
        op_call c;
        open_round(&c, half ? "f16" : "bf16", 0, 1, 2);
        for (int64_t i = 0; i < N; i++) {
            double x = exact[i % 9];
            c.a.in[0][i] = half ? x : ht_round_to(HT_BF16, x);
        }
        op_call_kernel(&c);
        for (int64_t i = 0; i < N; i++) {
            assert_true(c.a.out[0][i] == c.a.in[0][i]);
            assert_int_equal(signbit(c.a.out[0][i]) != 0, signbit(c.a.in[0][i]) != 0);
        }
        op_call_close(&c);
    }
}

static void round__of_what_is_beyond_the_type_is_as_ever(void **state)
{
    (void)state;
    op_call c;
    open_round(&c, "f16", 65510, 1, 2);
    c.a.in[0][1] = 65530;
    c.a.in[0][2] = -1e9;
    c.a.in[0][3] = NAN;
    op_call_kernel(&c);
    assert_true(c.a.out[0][0] == 65504 && c.a.out[0][1] == INFINITY && c.a.out[0][2] == -INFINITY);
    assert_true(isnan(c.a.out[0][3]));
    op_call_close(&c);
}

static void round__draws_by_seed_step_and_place(void **state)
{
    (void)state;
    static const double keys[][2] = {{3, 17}, {3, 17}, {3, 18}, {4, 17}};
    double *first = malloc(N * sizeof *first);
    assert_non_null(first);
    for (int k = 0; k < 4; k++) {
        op_call c;
        int64_t same = 0;
        open_round(&c, "bf16", 1 + 0x1p-8, keys[k][0], keys[k][1]);
        op_call_kernel(&c);
        if (k == 0) memcpy(first, c.a.out[0], N * sizeof *first);
        for (int64_t i = 0; i < N; i++) same += c.a.out[0][i] == first[i];
        /* Halves of them agree by chance. */
        assert_true(k < 2 ? same == N : labs((long)same - N / 2) < 5 * 100);
        op_call_reference(&c);
        for (int64_t i = 0; k == 0 && i < N; i++) assert_true(c.a.out[0][i] == first[i]);
        op_call_close(&c);
    }
    free(first);
}

static void round__refuses_what_it_cannot_do(void **state)
{
    (void)state;
    op_call_refused("round_stochastic", "(f32[4], i64[], i64[]) -> f32[4] site=\"a\"", "the result is f32");
    op_call_refused("round_stochastic", "(f32[4], i64[], i64[]) -> f16[5] site=\"a\"", "the result is f16[5]");
    op_call_refused("round_stochastic", "(f32[4], i32[], i64[]) -> f16[4] site=\"a\"", "seed is i32[], not i64[]");
    op_call_refused("round_stochastic", "(f32[4], i64[], i64[2]) -> f16[4] site=\"a\"", "step is i64[2], not i64[]");
    op_call_refused("round_stochastic", "(i32[4], i64[], i64[]) -> f16[4] site=\"a\"", "");
    op_call_refused("round_stochastic", "(f32[4], i64[], i64[]) -> f16[4] site=\"\"", "the site has no name");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round__is_right_on_average),
        cmocka_unit_test(round__leaves_what_the_type_holds),
        cmocka_unit_test(round__of_what_is_beyond_the_type_is_as_ever),
        cmocka_unit_test(round__draws_by_seed_step_and_place),
        cmocka_unit_test(round__refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
