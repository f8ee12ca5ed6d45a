/* What the walk over the samples does not see of convolution and pooling: refusals, NaN and infinity, bias, builders.
 */
#include "op_call.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ht_graph *new_graph(void)
{
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    return g;
}

static ht_val image(ht_graph *g, const char *name, int64_t n, int64_t c, int64_t h, int64_t w)
{
    return ht_input(g, name, HT_F32, 4, (const int64_t[]){n, c, h, w});
}

static void assert_latched(ht_graph *g, const char *message)
{
    assert_int_not_equal(ht_graph_status(g), HT_OK);
    assert_string_equal(ht_context_message(context_shared()), message);
    ht_graph_free(g);
}

static void assert_dims(ht_graph *g, ht_val v, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t want[4] = {a, b, c, d};
    assert_int_equal(ht_graph_status(g), HT_OK);
    assert_memory_equal(ht_val_dims(g, v), want, (size_t)ht_val_rank(g, v) * sizeof want[0]);
}

static void conv2d__a_window_that_does_not_fit_is_refused_with_its_sizes(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_conv2d(g, image(g, "x", 1, 2, 3, 8), image(g, "w", 4, 2, 5, 5), HT_NONE, NULL);
    assert_latched(g, "conv2d: window 5 does not fit into 3 + 2*0");

    ht_conv_opts opts = HT_CONV_OPTS;
    opts.dilation[1] = 4;
    opts.padding[1] = 1;
    g = new_graph();
    ht_conv2d(g, image(g, "x", 1, 2, 8, 6), image(g, "w", 4, 2, 3, 3), HT_NONE, &opts);
    assert_latched(g, "conv2d: window 3 with dilation 4 reaches 9 and does not fit into 6 + 2*1");
}

static void conv2d__channels_groups_and_bias_must_agree(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_conv2d(g, image(g, "x", 1, 3, 8, 8), image(g, "w", 4, 2, 3, 3), HT_NONE, NULL);
    assert_latched(g, "conv2d: weights see 2 channels; the input has 3 in 1 groups");

    ht_conv_opts opts = HT_CONV_OPTS;
    opts.groups = 2;
    g = new_graph();
    ht_conv2d(g, image(g, "x", 1, 3, 8, 8), image(g, "w", 4, 2, 3, 3), HT_NONE, &opts);
    assert_latched(g, "conv2d: 2 groups do not divide 3 input and 4 output channels");

    g = new_graph();
    ht_val bias = ht_input(g, "b", HT_F32, 1, (const int64_t[]){1});
    ht_conv2d(g, image(g, "x", 1, 3, 8, 8), image(g, "w", 4, 3, 3, 3), bias, NULL);
    assert_latched(g, "conv2d: bias is f32[1] for 4 output channels");
}

static void conv2d__hostile_attributes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        size_t count;
        int64_t value;
        const char *message;
    } cases[] = {
        {"stride", 2, 0, "conv2d: stride 0 is outside 1..2147483647"},
        {"stride", 2, INT64_MIN, "conv2d: stride -9223372036854775808 is outside 1..2147483647"},
        {"padding", 2, INT64_MAX, "conv2d: padding 9223372036854775807 is outside 0..2147483647"},
        {"dilation", 2, -1, "conv2d: dilation -1 is outside 1..2147483647"},
        {"dilation", 3, 1, "conv2d: dilation takes 2 numbers (height, width), not 3"},
        {"padding", 0, 1, "conv2d: padding takes 2 numbers (height, width), not 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_graph *g = new_graph();
        int64_t list[3] = {cases[i].value, cases[i].value, cases[i].value};
        ht_emit1(g, "conv2d", NULL, HT_VALS(image(g, "x", 1, 2, 8, 8), image(g, "w", 4, 2, 3, 3)),
                 HT_ATTRS(HT_INTS(cases[i].key, cases[i].count, list)));
        assert_latched(g, cases[i].message);
    }
}

static void conv2d__largest_padding_is_a_size_too_large_not_an_overflow(void **state)
{
    (void)state;
    ht_conv_opts opts = HT_CONV_OPTS;
    opts.padding[0] = opts.padding[1] = INT32_MAX;
    ht_graph *g = new_graph();
    ht_conv2d(g, image(g, "x", 1, 2, 8, 8), image(g, "w", 4, 2, 3, 3), HT_NONE, &opts);
    assert_latched(g, "conv2d: f32[1,4,4294967300,4294967300] is larger than any memory");
}

static void conv2d__half_weight_gradients_leave_in_f32(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val x = ht_input(g, "x", HT_BF16, 4, (const int64_t[]){2, 3, 5, 5});
    ht_val dy = ht_input(g, "dy", HT_BF16, 4, (const int64_t[]){2, 4, 3, 3});
    ht_val dw = ht_emit1(g, "conv2d_grad_weight", NULL, HT_VALS(x, dy),
                         HT_ATTRS(HT_INTS("window", 2, ((const int64_t[]){3, 3}))));
    assert_dims(g, dw, 4, 3, 3, 3);
    assert_int_equal(ht_val_dtype(g, dw), HT_F32);
    ht_graph_free(g);
}

static void pool__builders_give_pytorchs_sizes(void **state)
{
    (void)state;
    ht_graph *g = new_graph();
    ht_val x = image(g, "x", 2, 3, 11, 9);
    ht_pool_opts opts = {.size = sizeof opts, .window = {3, 2}};
    assert_dims(g, ht_max_pool2d(g, x, &opts), 2, 3, 3, 4);
    opts.stride[0] = 2, opts.stride[1] = 1, opts.padding[0] = 1, opts.padding[1] = 1;
    assert_dims(g, ht_avg_pool2d(g, x, &opts), 2, 3, 6, 10);
    assert_dims(g, ht_global_avg_pool2d(g, x), 2, 3, 0, 0);
    ht_graph_free(g);
}

static void pool__refuses_what_has_no_answer(void **state)
{
    (void)state;
    ht_pool_opts opts = {.size = sizeof opts, .window = {3, 3}, .padding = {2, 0}};
    ht_graph *g = new_graph();
    ht_max_pool2d(g, image(g, "x", 1, 1, 8, 8), &opts);
    assert_latched(g, "max_pool2d: padding 2 is more than half of window 3");
    opts.padding[0] = 1;
    g = new_graph();
    ht_max_pool2d(g, image(g, "x", 1, 1, 0, 8), &opts);
    assert_latched(g, "max_pool2d: a plane of 0 by 8 has nothing to pool");
    g = new_graph();
    ht_avg_pool2d(g, image(g, "x", 1, 1, 8, 2), &opts);
    assert_latched(g, "avg_pool2d: window 3 does not fit into 2 + 2*0");
    opts.window[0] = 0;
    g = new_graph();
    ht_avg_pool2d(g, image(g, "x", 1, 1, 8, 8), &opts);
    assert_latched(g, "avg_pool2d: window 0 is outside 1..2147483647");
}

/* Reference and every kernel give these maxima and taps for one 2 by 4 plane and a 2 by 2 window. */
static void check_max(const double x[8], const double want[2], const double want_tap[2])
{
    op_case c;
    op_arrays a;
    op_case_parse(&c, ht_op_find(context_shared(), "max_pool2d", strlen("max_pool2d")), "(f32[1,1,2,4]) window=[2,2]");
    assert_true(op_case_build(&c));
    op_arrays_make(&a, &c);
    memcpy(a.in[0], x, 8 * sizeof *x);
    ht_context *ctx = context_shared();
    for (size_t k = 0; k <= ctx->kernel_count; k++) {
        const ht_kernel *kernel = k < ctx->kernel_count ? ctx->kernels[k] : NULL;
        ht_target target = {.isa = ht_cpu_isa(), .threads = 1};
        if (!kernel)
            op_arrays_reference(&a, &c);
        else if (strcmp(kernel->op, "max_pool2d") == 0 && kernel->device == HT_DEVICE_CPU &&
                 kernel->isa <= target.isa && !kernel->can(c.call, &target))
            op_kernel_run(kernel, &target, c.call, &a);
        else
            continue;
        for (int i = 0; i < 2; i++) {
            assert_true(a.out[0][i] == want[i] || (isnan(a.out[0][i]) && isnan(want[i])));
            assert_true(a.out[1][i] == want_tap[i]);
        }
    }
    op_case_free(&c);
}

static void max_pool2d__first_of_equals_nan_wins_and_infinity_has_a_place(void **state)
{
    (void)state;
    check_max((const double[]){1, 3, 5, 5, 3, 2, 5, 4}, (const double[]){3, 5}, (const double[]){1, 0});
    check_max((const double[]){1, NAN, -INFINITY, -INFINITY, 9, 2, -INFINITY, -INFINITY},
              (const double[]){NAN, -INFINITY}, (const double[]){1, 0});
    check_max((const double[]){NAN, 1, 1, INFINITY, 2, NAN, 7, NAN}, (const double[]){NAN, NAN},
              (const double[]){3, 3});
}

/* A byte per window is what a pooling keeps for its gradient; windows that it cannot count keep an i32. */
static void max_pool2d__keeps_taps_of_one_byte_up_to_256(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        ht_dtype dtype;
    } calls[] = {{"(f32[1,2,20,18] -40..40) window=[16,16]", HT_U8},
                 {"(f32[1,2,20,18] -40..40) window=[17,16]", HT_I32}};
    for (int i = 0; i < 2; i++) {
        op_call call;
        op_call_open(&call, "max_pool2d", "%s", calls[i].line);
        assert_int_equal(call.c.call->out[1]->dtype, calls[i].dtype);
        int64_t n = op_call_elems_out(&call, 1);
        double *want = malloc((size_t)n * sizeof *want), largest = 0;
        assert_non_null(want);
        op_call_reference(&call);
        memcpy(want, call.a.out[1], (size_t)n * sizeof *want);
        for (int64_t k = 0; k < n; k++) largest = fmax(largest, want[k]);
        assert_true(largest > 127);
        op_call_kernel(&call);
        op_call_near(calls[i].line, call.a.out[1], want, n, 0);
        free(want);
        op_call_close(&call);
    }
}

/* Taps of padding and of no element at all: no kernel writes them anywhere. */
static void max_pool2d_grad__skips_taps_outside_the_plane(void **state)
{
    (void)state;
    static const double taps[] = {0, 2, 9, -1, -9223372036854775808.0, 4e9};
    op_call call;
    op_call_open(&call, "max_pool2d_grad", "(f32[1,1,1,6], i64[1,1,1,6]) window=[3,3] padding=[1,1] size=[2,17]");
    for (int i = 0; i < 6; i++) call.a.in[0][i] = 1, call.a.in[1][i] = taps[i];
    op_call_reference(&call);
    op_call_all("reference", call.a.out[0], op_call_elems_out(&call, 0), 0);
    op_call_kernel(&call);
    op_call_all("kernel", call.a.out[0], op_call_elems_out(&call, 0), 0);
    op_call_close(&call);
}

/* Sizes at which the kernels change their ways and that samples are too small for. */
static void conv2d__large_sizes_match_the_reference(void **state)
{
    (void)state;
    static const struct {
        const char *op, *line;
    } calls[] = {
        /* Lines too long for a strip: whole planes are kept. */
        {"conv2d", "(f32[2,2,4,3000], f32[3,2,3,3]) padding=[1,1]"},
        {"conv2d_grad_input", "(f32[2,3,4,3000], f32[3,2,3,3]) size=[4,3000] padding=[1,1]"},
        {"conv2d_grad_weight", "(f32[2,2,4,3000], f32[2,3,4,3000]) window=[3,3] padding=[1,1]"},
        /* A window deeper than a step. */
        {"conv2d", "(f32[1,2,14,15], f32[9,2,12,12]) padding=[1,2]"},
        {"conv2d_grad_input", "(f32[1,9,5,8], f32[9,2,12,12]) size=[14,15] padding=[1,2]"},
        {"conv2d_grad_weight", "(f32[1,2,14,15], f32[1,9,5,8]) window=[12,12] padding=[1,2]"},
        /* Places of a line, rows and steps that fill several blocks, parts and spans. */
        {"conv2d", "(f32[1,40,5,600], f32[90,20,3,3]) stride=[2,2] padding=[1,1] groups=2"},
        {"conv2d_grad_input", "(f32[1,90,3,300], f32[90,20,3,3]) size=[5,600] stride=[2,2] padding=[1,1] groups=2"},
        {"conv2d_grad_weight", "(f32[8,12,20,28], f32[8,40,20,28]) window=[3,3] padding=[1,1]"},
        {"conv2d_grad_weight", "(f32[1,40,5,300], f32[1,34,5,300]) window=[3,3] padding=[1,1] groups=2"},
        {"conv2d_grad_weight", "(f32[2,90,7,50], f32[2,9,7,50]) window=[1,1]"},
        /* Small planes of several images: tiles begin and end in the midst of planes and of lines. */
        {"conv2d", "(f32[7,40,5,9], f32[70,40,3,3]) padding=[1,1]"},
        {"conv2d_grad_input", "(f32[7,70,5,9], f32[70,40,3,3]) size=[5,9] padding=[1,1]"},
        {"conv2d_grad_weight", "(f32[7,40,5,9], f32[7,70,5,9]) window=[3,3] padding=[1,1]"},
        {"conv2d", "(f32[19,20,7,7], f32[30,20,3,3]) stride=[2,2] padding=[1,1]"},
        {"conv2d_grad_input", "(f32[19,30,4,4], f32[30,20,3,3]) size=[7,7] stride=[2,2] padding=[1,1]"},
        {"conv2d_grad_weight", "(f32[19,20,7,7], f32[19,30,4,4]) window=[3,3] stride=[2,2] padding=[1,1]"},
        {"conv2d", "(f32[5,64,3,11], f32[20,64,1,1])"},
        {"conv2d_grad_input", "(f32[5,20,3,11], f32[20,64,1,1]) size=[3,11]"},
        {"conv2d_grad_weight", "(f32[5,64,3,11], f32[5,20,3,11]) window=[1,1]"},
        /* Too many places for that. */
        {"conv2d", "(f32[2,2,25,24], f32[3,2,3,3]) stride=[2,2] padding=[1,1]"},
        {"conv2d_grad_input", "(f32[2,3,13,12], f32[3,2,3,3]) size=[25,24] stride=[2,2] padding=[1,1]"},
        {"conv2d_grad_weight", "(f32[2,2,25,24], f32[2,3,13,12]) window=[3,3] stride=[2,2] padding=[1,1]"},
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        op_call call;
        op_call_open(&call, calls[i].op, "%s", calls[i].line);
        int64_t n = op_call_elems_out(&call, 0);
        double *want = malloc((size_t)n * sizeof *want);
        assert_non_null(want);
        op_call_reference(&call);
        memcpy(want, call.a.out[0], (size_t)n * sizeof *want);
        op_call_kernel(&call);
        op_call_near(calls[i].line, call.a.out[0], want, n, 2e-4);
        free(want);
        op_call_close(&call);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv2d__a_window_that_does_not_fit_is_refused_with_its_sizes),
        cmocka_unit_test(conv2d__channels_groups_and_bias_must_agree),
        cmocka_unit_test(conv2d__hostile_attributes_are_refused),
        cmocka_unit_test(conv2d__largest_padding_is_a_size_too_large_not_an_overflow),
        cmocka_unit_test(conv2d__half_weight_gradients_leave_in_f32),
        cmocka_unit_test(conv2d__large_sizes_match_the_reference),
        cmocka_unit_test(pool__builders_give_pytorchs_sizes),
        cmocka_unit_test(pool__refuses_what_has_no_answer),
        cmocka_unit_test(max_pool2d__keeps_taps_of_one_byte_up_to_256),
        cmocka_unit_test(max_pool2d_grad__skips_taps_outside_the_plane),
        cmocka_unit_test(max_pool2d__first_of_equals_nan_wins_and_infinity_has_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
