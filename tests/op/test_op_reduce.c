/* Reductions where samples do not reach: long sums, ties, NaN, empty axes, refusals. */
#include "op_call.h"

#include <math.h>
#include <string.h>

static const op_runner both[] = {op_call_reference, op_call_kernel};
#define EACH(run) for (const op_runner *run = both; run < both + 2; run++)

static void fill(op_call *c, double value)
{
    for (int64_t i = 0; i < op_call_elems_in(c, 0); i++) c->a.in[0][i] = value;
}

/* Opens a call on the given numbers and runs it; results are in c->a.out. */
static void run_on(op_call *c, op_runner run, const char *op, const char *line, const double *x)
{
    op_call_open(c, op, "%s", line);
    memcpy(c->a.in[0], x, (size_t)op_call_elems_in(c, 0) * sizeof *x);
    run(c);
}

/* ---- accuracy ---- */

static void sum__of_ten_million_tenths_is_as_good_as_f32(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "sum", "(f32[10000000])");
    fill(&c, (double)0.1f);
    op_call_kernel(&c);
    op_call_near("sum", c.a.out[0], (double[]){1e7 * (double)0.1f}, 1, 6e-8);
    op_call_close(&c);
}

static void sum__down_a_million_rows_is_as_good_as_f32(void **state)
{
    (void)state;
    const double tenths = 1e6 * (double)0.1f;
    op_call c;
    op_call_open(&c, "sum", "(f32[1000000,3]) axes=[0]");
    fill(&c, (double)0.1f);
    op_call_kernel(&c);
    op_call_near("sum", c.a.out[0], (double[]){tenths, tenths, tenths}, 3, 6e-8);
    op_call_close(&c);
}

static void cumsum__of_a_million_tenths_is_as_good_as_f32(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "cumsum", "(f32[1000000]) reverse=1");
    fill(&c, (double)0.1f);
    op_call_kernel(&c);
    op_call_near("first", c.a.out[0], (double[]){1e6 * (double)0.1f}, 1, 6e-8);
    op_call_close(&c);
}

static void norm__of_large_numbers_does_not_overflow(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "norm", "(f32[10000])");
    fill(&c, 1e30);
    op_call_kernel(&c);
    op_call_near("norm", c.a.out[0], (double[]){1e32}, 1, 1e-6);
    op_call_close(&c);
}

static void sum__of_integers_is_exact_and_wraps(void **state)
{
    (void)state;
    const double large[] = {16777217, 1, 16777219, 2147483647, 1, 0};
    op_call c;
    run_on(&c, op_call_kernel, "sum", "(i32[2,3]) axes=[1]", large);
    op_call_near("i32", c.a.out[0], (double[]){33554437, -2147483648.0}, 2, 0);
    op_call_close(&c);
    run_on(&c, op_call_kernel, "sum", "(i64[2,3]) axes=[0]", large);
    op_call_near("i64", c.a.out[0], (double[]){2164260864.0, 2, 16777219}, 3, 0);
    op_call_close(&c);
}

/* ---- nothing, NaN, equals ---- */

static void reductions__of_nothing(void **state)
{
    (void)state;
    EACH(run)
    {
        op_call c;
        op_call_open(&c, "sum", "(f32[2,0]) axes=[1]");
        (*run)(&c);
        op_call_all("sum", c.a.out[0], 2, 0);
        op_call_close(&c);
        op_call_open(&c, "mean", "(f32[2,0]) axes=[1]");
        (*run)(&c);
        assert_true(isnan(c.a.out[0][0]) && isnan(c.a.out[0][1]));
        op_call_close(&c);
        op_call_open(&c, "all_finite", "(f32[0])");
        (*run)(&c);
        op_call_all("all_finite", c.a.out[0], 1, 1);
        op_call_close(&c);
    }
}

static void reduce_max__nan_wins_and_minus_infinity_is_a_number(void **state)
{
    (void)state;
    const double x[] = {1, NAN, 7, -INFINITY, -INFINITY, -INFINITY};
    EACH(run)
    {
        op_call c;
        run_on(&c, *run, "reduce_max", "(f32[2,3]) axes=[1]", x);
        assert_true(isnan(c.a.out[0][0]) && c.a.out[0][1] == -INFINITY);
        op_call_close(&c);
        run_on(&c, *run, "reduce_max", "(f32[3,2]) axes=[0]", x);
        assert_true(c.a.out[0][0] == 7 && isnan(c.a.out[0][1]));
        op_call_close(&c);
    }
}

static void argmax__takes_the_first_of_equals_and_nan_above_all(void **state)
{
    (void)state;
    const double rows[] = {1, 3, 3, 0, 9, NAN, 8, NAN}, columns[] = {1, 9, 3, NAN, 3, 8, 0, NAN};
    EACH(run)
    {
        op_call c;
        run_on(&c, *run, "argmax", "(f32[2,4])", rows);
        op_call_near("rows", c.a.out[0], (double[]){1, 1}, 2, 0);
        op_call_close(&c);
        run_on(&c, *run, "argmax", "(f32[4,2]) axis=0", columns);
        op_call_near("columns", c.a.out[0], (double[]){1, 1}, 2, 0);
        op_call_close(&c);
        run_on(&c, *run, "argmax", "(f32[3])", (double[]){-INFINITY, -INFINITY, -INFINITY});
        op_call_all("all least", c.a.out[0], 1, 0);
        op_call_close(&c);
    }
}

static void topk__orders_equals_by_index_and_nan_first(void **state)
{
    (void)state;
    const double x[] = {2, 5, 5, NAN, 1, 5, NAN, -INFINITY};
    EACH(run)
    {
        op_call c;
        run_on(&c, *run, "topk", "(f32[8]) k=6", x);
        op_call_near("indices", c.a.out[1], (double[]){3, 6, 1, 2, 5, 0}, 6, 0);
        assert_true(isnan(c.a.out[0][0]) && isnan(c.a.out[0][1]));
        op_call_near("values", c.a.out[0] + 2, (double[]){5, 5, 5, 2}, 4, 0);
        op_call_close(&c);
    }
}

static void topk__of_equal_elements_keeps_their_order(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "topk", "(f32[2000]) k=1500");
    fill(&c, 0.5);
    op_call_kernel(&c);
    for (int64_t i = 0; i < 1500; i++) assert_true(c.a.out[1][i] == (double)i);
    op_call_close(&c);
}

static void all_finite__finds_one_among_many(void **state)
{
    (void)state;
    const int64_t places[] = {0, 16383, 16384, 49999};
    const double bad[] = {INFINITY, -INFINITY, NAN};
    op_call c;
    op_call_open(&c, "all_finite", "(f16[50000])");
    fill(&c, 65504);
    op_call_kernel(&c);
    op_call_all("the largest f16", c.a.out[0], 1, 1);
    for (size_t i = 0; i < 4; i++) {
        for (size_t b = 0; b < 3; b++) {
            c.a.in[0][places[i]] = bad[b];
            op_call_kernel(&c);
            op_call_all("one bad", c.a.out[0], 1, 0);
        }
        c.a.in[0][places[i]] = 1;
    }
    op_call_close(&c);
}

/* ---- gradients at kinks ---- */

static void expect_gradient(ht_val (*reduce)(ht_graph *, ht_val, int, const int64_t *, bool), const double *x,
                            const double *dx)
{
    ht_graph *g;
    ht_reference *ref;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    ht_val in = ht_input(g, "x", HT_F64, HT_DIMS(2, 3)), grad;
    ht_val loss = ht_sum(g, reduce(g, in, 1, (const int64_t[]){1}, false), 0, NULL, false);
    assert_int_equal(ht_gradients(g, loss, 1, &in, &grad), HT_OK);
    ht_output(g, "dx", grad);
    assert_int_equal(ht_reference_create(&ref, g, false, 1), HT_OK);
    memcpy(ht_reference_value(ref, in), x, 6 * sizeof *x);
    assert_int_equal(ht_reference_run(ref, 0), HT_OK);
    op_call_near("dx", ht_reference_output(ref, "dx"), dx, 6, 1e-15);
    ht_reference_free(ref);
    ht_graph_free(g);
}

static void reduce_max__equals_share_its_gradient(void **state)
{
    (void)state;
    expect_gradient(ht_reduce_max, (double[]){1, 3, 3, 2, 2, 2}, (double[]){0, 0.5, 0.5, 1 / 3.0, 1 / 3.0, 1 / 3.0});
}

static void norm__has_no_slope_at_zero(void **state)
{
    (void)state;
    expect_gradient(ht_norm, (double[]){0, 0, 0, 3, 0, -4}, (double[]){0, 0, 0, 0.6, 0, -0.8});
}

static void shape_rules__refuse_hostile_calls(void **state)
{
    (void)state;
    op_call_refused("sum", "(f32[2,3]) axes=[2]", "axis 2 is outside a tensor of rank 2");
    op_call_refused("sum", "(f32[2,3]) axes=[-3]", "axis -3 is outside");
    op_call_refused("sum", "(f32[2,3]) axes=[-9223372036854775807]", "is outside");
    op_call_refused("sum", "(f32[2,3]) axes=[1,-1]", "axis -1 is there twice");
    op_call_refused("sum", "(f32[2,3]) keep=2", "keep is 0 or 1, not 2");
    op_call_refused("sum", "(bool[2,3])", "input 0 is bool");
    op_call_refused("mean", "(i32[2,3])", "not floating point");
    op_call_refused("reduce_max", "(f32[2,0]) axes=[1]", "axis 1 is empty");
    op_call_refused("reduce_max", "(f32[0,0]) axes=[1]", "axis 1 is empty");
    op_call_refused("argmax", "(f32[2,0])", "axis 1 is empty");
    op_call_refused("argmax", "(f32[])", "outside a tensor of rank 0");
    op_call_refused("cumsum", "(f32[2]) axis=1", "axis 1 is outside");
    op_call_refused("topk", "(f32[2,3]) k=4", "k is 0 to 3, not 4");
    op_call_refused("topk", "(f32[2,3]) k=-1", "k is 0 to 3, not -1");
    op_call_refused("topk", "(f32[]) k=0", "scalar");
    op_call_refused("softmax", "(f32[2,3]) axis=2", "axis 2 is outside");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sum__of_ten_million_tenths_is_as_good_as_f32),
        cmocka_unit_test(sum__down_a_million_rows_is_as_good_as_f32),
        cmocka_unit_test(cumsum__of_a_million_tenths_is_as_good_as_f32),
        cmocka_unit_test(norm__of_large_numbers_does_not_overflow),
        cmocka_unit_test(sum__of_integers_is_exact_and_wraps),
        cmocka_unit_test(reductions__of_nothing),
        cmocka_unit_test(reduce_max__nan_wins_and_minus_infinity_is_a_number),
        cmocka_unit_test(argmax__takes_the_first_of_equals_and_nan_above_all),
        cmocka_unit_test(topk__orders_equals_by_index_and_nan_first),
        cmocka_unit_test(topk__of_equal_elements_keeps_their_order),
        cmocka_unit_test(all_finite__finds_one_among_many),
        cmocka_unit_test(reduce_max__equals_share_its_gradient),
        cmocka_unit_test(norm__has_no_slope_at_zero),
        cmocka_unit_test(shape_rules__refuse_hostile_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
