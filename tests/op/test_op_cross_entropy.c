/* The loss where samples do not reach: rows that do not count, labels that are none, large logits, refusals. */
#include "op_call.h"

#include <math.h>
#include <string.h>

static const op_runner both[] = {op_call_reference, op_call_kernel};
#define EACH(run) for (const op_runner *run = both; run < both + 2; run++)

static void give(op_call *c, size_t input, const double *values)
{
    memcpy(c->a.in[input], values, (size_t)op_call_elems_in(c, input) * sizeof *values);
}

static void loss__of_ignored_rows_is_zero_for_every_reduction(void **state)
{
    (void)state;
    static const char *const reductions[] = {"mean", "sum", "none"};
    EACH(run)
    {
        for (size_t i = 0; i < 3; i++) {
            op_call c;
            op_call_open(&c, "cross_entropy", "(f32[3,4], i64[3]) reduction=\"%s\"", reductions[i]);
            give(&c, 1, (double[]){-100, -100, -100});
            (*run)(&c);
            op_call_all("loss", c.a.out[0], op_call_elems_out(&c, 0), 0);
            op_call_close(&c);
        }
    }
}

static void gradient__of_ignored_rows_is_zero_even_where_logits_are_nan(void **state)
{
    (void)state;
    EACH(run)
    {
        op_call c;
        op_call_open(&c, "cross_entropy_grad", "(f32[2,3], i32[2], f32[2], f32[])");
        give(&c, 0, (double[]){NAN, INFINITY, 1, 1, 2, 3});
        give(&c, 1, (double[]){-100, -100});
        (*run)(&c);
        op_call_all("dlogits", c.a.out[0], 6, 0);
        op_call_close(&c);
    }
}

static void mean__is_over_the_rows_that_count(void **state)
{
    (void)state;
    EACH(run)
    {
        op_call c;
        op_call_open(&c, "cross_entropy", "(f32[4,2], i32[4]) ignore_index=7");
        give(&c, 0, (double[]){0, 0, 9, 9, NAN, NAN, 5, 5});
        give(&c, 1, (double[]){1, 0, 7, 7});
        (*run)(&c);
        op_call_near("loss", c.a.out[0], (double[]){log(2)}, 1, 1e-7);
        op_call_close(&c);
    }
}

static void label__outside_the_classes_makes_its_row_nan_and_no_other(void **state)
{
    (void)state;
    EACH(run)
    {
        op_call c;
        op_call_open(&c, "cross_entropy", "(f32[3,2], i32[3]) reduction=\"none\"");
        give(&c, 0, (double[]){0, 0, 0, 0, 0, 0});
        give(&c, 1, (double[]){2, 1, -1});
        (*run)(&c);
        assert_true(isnan(c.a.out[0][0]) && isnan(c.a.out[0][2]));
        op_call_near("row 1", c.a.out[0] + 1, (double[]){log(2)}, 1, 1e-7);
        op_call_close(&c);
        op_call_open(&c, "cross_entropy_grad", "(f32[2,2], i32[2], f32[2], f32[2]) reduction=\"none\"");
        give(&c, 0, (double[]){0, 0, 0, 0});
        give(&c, 1, (double[]){2, 1});
        give(&c, 2, (double[]){log(2), log(2)});
        give(&c, 3, (double[]){1, 1});
        (*run)(&c);
        assert_true(isnan(c.a.out[0][0]) && isnan(c.a.out[0][1]));
        op_call_near("row 1", c.a.out[0] + 2, (double[]){0.5, -0.5}, 2, 1e-6);
        op_call_close(&c);
    }
}

static void loss__keeps_its_digits_far_from_zero(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "cross_entropy", "(f32[2,2], i32[2]) reduction=\"none\"");
    give(&c, 0, (double[]){10004, 10000, -10000, -10004});
    give(&c, 1, (double[]){0, 0});
    op_call_kernel(&c);
    double expected = log1p(exp(-4));
    op_call_near("loss", c.a.out[0], (double[]){expected, expected}, 2, 1e-7);
    op_call_close(&c);
}

static void smoothing__of_one_is_the_mean_over_all_classes(void **state)
{
    (void)state;
    EACH(run)
    {
        op_call c;
        op_call_open(&c, "cross_entropy", "(f32[1,3], i32[1]) label_smoothing=1");
        give(&c, 0, (double[]){1, 2, 6});
        give(&c, 1, (double[]){2});
        (*run)(&c);
        op_call_near("loss", c.a.out[0], (double[]){log(exp(1) + exp(2) + exp(6)) - 3}, 1, 1e-6);
        op_call_close(&c);
    }
}

static void loss__is_f32_whatever_half_the_logits_are(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "cross_entropy", "(bf16[3,2], i32[3])");
    assert_int_equal(c.c.call->out[0]->dtype, HT_F32);
    assert_int_equal(c.c.call->out[1]->dtype, HT_F32);
    op_call_close(&c);
}

static void shape_rules__refuse_hostile_calls(void **state)
{
    (void)state;
    op_call_refused("cross_entropy", "(f32[3,0], i32[3])", "no classes");
    op_call_refused("cross_entropy", "(f32[], i32[])", "no classes");
    op_call_refused("cross_entropy", "(f32[3,4], i32[4])", "input 1 is i32[4]");
    op_call_refused("cross_entropy", "(f32[3,4], i32[3,4])", "input 1 is i32[3,4]");
    op_call_refused("cross_entropy", "(f32[3,4], f32[3])", "not i32 or i64");
    op_call_refused("cross_entropy", "(f32[3,4], i32[3]) label_smoothing=1.5", "0 to 1, not 1.5");
    op_call_refused("cross_entropy", "(f32[3,4], i32[3]) label_smoothing=nan", "0 to 1");
    op_call_refused("cross_entropy", "(f32[3,4], i32[3]) reduction=\"average\"", "not 'average'");
    op_call_refused("cross_entropy", "(f32[3,4], i64[3]) ignore_index=4294967296", "does not fit");
    op_call_refused("cross_entropy_grad", "(f32[3,4], i32[3], f32[3], f32[3])", "input 3 is f32[3]");
    op_call_refused("cross_entropy_grad", "(f32[3,4], i32[3], f32[4], f32[])", "input 2 is f32[4]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss__of_ignored_rows_is_zero_for_every_reduction),
        cmocka_unit_test(gradient__of_ignored_rows_is_zero_even_where_logits_are_nan),
        cmocka_unit_test(mean__is_over_the_rows_that_count),
        cmocka_unit_test(label__outside_the_classes_makes_its_row_nan_and_no_other),
        cmocka_unit_test(loss__keeps_its_digits_far_from_zero),
        cmocka_unit_test(smoothing__of_one_is_the_mean_over_all_classes),
        cmocka_unit_test(loss__is_f32_whatever_half_the_logits_are),
        cmocka_unit_test(shape_rules__refuse_hostile_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
