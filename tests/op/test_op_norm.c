/* Norms where samples do not reach: running statistics, the evaluation chain, means far from zero, refusals. */
#include "op_tests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const ht_op ht_op_layernorm, ht_op_layernorm_grad, ht_op_rmsnorm, ht_op_batchnorm, ht_op_batchnorm_grad;

typedef struct model {
    ht_graph *g;
    ht_val x, scale, shift, mean, var;
} model;

static model model_of(int64_t n, int64_t channels, int64_t size)
{
    model m;
    assert_int_equal(ht_graph_create(&m.g, context_shared()), HT_OK);
    m.x = ht_input(m.g, "x", HT_F64, HT_DIMS(n, channels, size));
    m.scale = ht_param(m.g, "scale", HT_F64, HT_DIMS(channels), HT_CONSTANT(2));
    m.shift = ht_param(m.g, "shift", HT_F64, HT_DIMS(channels), HT_CONSTANT(-1));
    m.mean = ht_state_add(m.g, "mean", HT_F64, HT_DIMS(channels), HT_CONSTANT(0.5));
    m.var = ht_state_add(m.g, "var", HT_F64, HT_DIMS(channels), HT_CONSTANT(3));
    return m;
}

static ht_reference *run(ht_graph *g, ht_val x, const double *values, int64_t n)
{
    ht_reference *ref;
    assert_int_equal(ht_reference_create(&ref, g, false, 1), HT_OK);
    memcpy(ht_reference_value(ref, x), values, (size_t)n * sizeof *values);
    assert_int_equal(ht_reference_run(ref, (uint32_t)ht_segment_find(g, "forward")), HT_OK);
    return ref;
}

/* Two samples, two channels, two places: channel 0 is 1, 2, 5, 6, channel 1 is 3, 4, 7, 8. */
static const double eight[] = {1, 2, 3, 4, 5, 6, 7, 8};

static void batchnorm_train__stores_running_statistics(void **state)
{
    (void)state;
    model m = model_of(2, 2, 2);
    ht_val y = ht_batchnorm_train(m.g, m.x, m.scale, m.shift, m.mean, m.var, 0.1, 0);
    ht_output(m.g, "y", y);
    assert_int_equal(ht_graph_status(m.g), HT_OK);
    ht_reference *ref = run(m.g, m.x, eight, 8);
    /* Means 3.5 and 5.5; squares about them sum to 17, so the variance is 17/4, and 17/3 for the running one. */
    const double *mean = ht_reference_value(ref, m.mean), *var = ht_reference_value(ref, m.var);
    assert_true(fabs(mean[0] - (0.9 * 0.5 + 0.1 * 3.5)) < 1e-12 && fabs(mean[1] - (0.9 * 0.5 + 0.1 * 5.5)) < 1e-12);
    assert_true(fabs(var[0] - (0.9 * 3 + 0.1 * 17 / 3)) < 1e-12 && fabs(var[1] - var[0]) < 1e-12);
    const double *out = ht_reference_output(ref, "y");
    assert_true(fabs(out[0] - ((1 - 3.5) / sqrt(4.25) * 2 - 1)) < 1e-12);
    assert_true(fabs(out[7] - ((8 - 5.5) / sqrt(4.25) * 2 - 1)) < 1e-12);
    ht_reference_free(ref);
    ht_graph_free(m.g);
}

static void batchnorm_eval__uses_the_running_statistics(void **state)
{
    (void)state;
    model m = model_of(2, 2, 2);
    ht_output(m.g, "y", ht_batchnorm_eval(m.g, m.x, m.scale, m.shift, m.mean, m.var, 1));
    ht_output(m.g, "plain", ht_batchnorm_eval(m.g, m.x, HT_NONE, HT_NONE, m.mean, m.var, 1));
    assert_int_equal(ht_graph_status(m.g), HT_OK);
    ht_reference *ref = run(m.g, m.x, eight, 8);
    for (int i = 0; i < 8; i++) {
        double plain = (eight[i] - 0.5) / 2;
        assert_true(fabs(ht_reference_output(ref, "plain")[i] - plain) < 1e-12);
        assert_true(fabs(ht_reference_output(ref, "y")[i] - (2 * plain - 1)) < 1e-12);
    }
    ht_reference_free(ref);
    ht_graph_free(m.g);
}

static void batchnorm_eval__keeps_the_number_type_of_x(void **state)
{
    (void)state;
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    ht_val x = ht_input(g, "x", HT_BF16, HT_DIMS(2, 3)), y;
    ht_val mean = ht_state_add(g, "mean", HT_F32, HT_DIMS(3), HT_ZERO);
    ht_val var = ht_state_add(g, "var", HT_F32, HT_DIMS(3), HT_CONSTANT(1));
    y = ht_batchnorm_eval(g, x, HT_NONE, HT_NONE, mean, var, 1e-5);
    assert_int_equal(ht_val_dtype(g, y), HT_BF16);
    y = ht_batchnorm_train(g, x, HT_NONE, HT_NONE, mean, var, 0.1, 1e-5);
    assert_int_equal(ht_val_dtype(g, y), HT_BF16);
    assert_int_equal(ht_graph_status(g), HT_OK);
    ht_graph_free(g);
}

/* One value per channel has no variance: PyTorch refuses it too. */
static void batchnorm_train__refuses_one_value_per_channel(void **state)
{
    (void)state;
    model m = model_of(1, 2, 1);
    assert_int_equal(ht_batchnorm_train(m.g, m.x, m.scale, m.shift, m.mean, m.var, 0.1, 1e-5).id, 0);
    assert_int_equal(ht_graph_status(m.g), HT_ESHAPE);
    assert_non_null(strstr(ht_context_message(context_shared()), "more than one value per channel"));
    ht_graph_free(m.g);
}

/* A large mean does not swallow a small variance: squares are summed about the mean. */
static void layernorm__holds_its_precision_far_from_zero(void **state)
{
    (void)state;
    enum { COLUMNS = 3000 };
    static float x[COLUMNS], y[COLUMNS];
    float mean, rstd;
    double sum = 0, square = 0;
    for (int i = 0; i < COLUMNS; i++) x[i] = 4096 + (float)(i % 7) * 0.25f;
    for (int i = 0; i < COLUMNS; i++) sum += x[i];
    for (int i = 0; i < COLUMNS; i++) square += (x[i] - sum / COLUMNS) * (x[i] - sum / COLUMNS);
    ht_context *ctx = context_shared();
    ht_type row = ht_type_make(HT_F32, HT_DIMS(1, COLUMNS)), one = ht_type_make(HT_F32, HT_DIMS(1));
    ht_attr eps = HT_FLOAT("eps", 0);
    eps.key = ht_op_layernorm.attrs[0].key;
    ht_call call = {.op = &ht_op_layernorm, .n_in = 1, .n_out = 3, .n_attr = 1, .attr = &eps};
    call.in = (const ht_type *[]){&row};
    call.out = (const ht_type *[]){&row, &one, &one};
    ht_target target = {.isa = ht_cpu_isa()};
    const ht_kernel *kernel = ht_kernel_choose(ctx, &call, &target, NULL);
    assert_non_null(kernel);
    kernel->run(&(ht_launch){.call = &call, .in = (const void *[]){x}, .out = (void *[]){y, &mean, &rstd}});
    assert_true(fabs(rstd * sqrt(square / COLUMNS) - 1) < 1e-3);
    assert_true(fabs(mean - sum / COLUMNS) < 1e-3);
}

static void shape_rules__refuse_hostile_calls(void **state)
{
    (void)state;
    static const struct {
        const ht_op *op;
        const char *line;
    } bad[] = {
        {&ht_op_layernorm, "(f32[])"},
        {&ht_op_layernorm, "(i32[3])"},
        {&ht_op_layernorm, "(f32[2,3], f32[2])"},
        {&ht_op_layernorm, "(f32[2,3], f32[3], f32[1,3])"},
        {&ht_op_layernorm, "(f32[2,3]) eps=-1"},
        {&ht_op_layernorm, "(f32[2,3]) eps=nan"},
        {&ht_op_rmsnorm, "(f32[2,3], i32[3])"},
        {&ht_op_layernorm_grad, "(f32[2,3], f32[2,4], f32[2], f32[2])"},
        {&ht_op_layernorm_grad, "(f32[2,3], f32[2,3], f32[3], f32[2])"},
        {&ht_op_batchnorm, "(f32[3])"},
        {&ht_op_batchnorm, "(f32[1,3])"},
        {&ht_op_batchnorm, "(f32[0,3])"},
        {&ht_op_batchnorm, "(f32[4,3], f32[4])"},
        {&ht_op_batchnorm_grad, "(f32[4,3], f32[4,3], f32[4], f32[3])"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        op_case c;
        op_case_parse(&c, bad[i].op, bad[i].line);
        if (op_case_build(&c)) op_case_fail(&c, "is accepted");
        op_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batchnorm_train__stores_running_statistics),
        cmocka_unit_test(batchnorm_eval__uses_the_running_statistics),
        cmocka_unit_test(batchnorm_eval__keeps_the_number_type_of_x),
        cmocka_unit_test(batchnorm_train__refuses_one_value_per_channel),
        cmocka_unit_test(layernorm__holds_its_precision_far_from_zero),
        cmocka_unit_test(shape_rules__refuse_hostile_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
