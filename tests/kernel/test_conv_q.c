/* Convolutions of codes: every row that this machine can run has the bits of the op's integer reference, on random shapes and at
 * the ends of the codes, row-major and channels-last, packed in the run or before it, for any number of threads. */
#include <stdio.h>

#include "code_rows.h"

enum { SHAPES = 2000, MOST_PRODUCTS = 200000 };

/* The sizes of a convolution. */
typedef struct sizes {
    long long batch, groups, in, out, plane[2], window[2], stride[2], padding[2], dilation[2], steps[2];
} sizes;

static bool slide(sizes *s)
{
    for (int axis = 0; axis < 2; axis++) {
        long long range = s->plane[axis] + 2 * s->padding[axis] - (s->window[axis] - 1) * s->dilation[axis] - 1;
        if (range < 0) return false;
        s->steps[axis] = range / s->stride[axis] + 1;
    }
    return s->batch * s->groups * s->in * s->out * s->window[0] * s->window[1] * s->steps[0] * s->steps[1] <=
           MOST_PRODUCTS;
}

/* Mostly small; channels near the sizes of tiles and registers, windows of one element, depthwise ones. */
static sizes draw_sizes(draws *d)
{
    static const long long near[] = {1, 3, 4, 8, 16, 32, 64, 130, 256, 300};
    sizes s;
    do {
        int kind = (int)draw(d, 0, 5); /* 0: depthwise, 1: groups, 2: 1×1, others: any */
        s = (sizes){.batch = draw(d, 1, 3), .groups = 1, .in = near[draw(d, 0, 9)], .out = near[draw(d, 0, 9)]};
        if (kind == 0)
            s = (sizes){.batch = s.batch, .groups = draw(d, 0, 1) ? s.in : draw(d, 2, 90), .in = 1, .out = 1};
        if (kind == 1) s = (sizes){.batch = 1, .groups = draw(d, 2, 4), .in = draw(d, 1, 9), .out = draw(d, 1, 40)};
        if (kind > 2) s.in += draw(d, 0, 2);
        if (kind > 2) s.out += draw(d, 0, 2);
        for (int axis = 0; axis < 2; axis++) {
            s.plane[axis] = draw(d, 1, 12);
            s.window[axis] = kind == 2 ? 1 : draw(d, 0, 1) ? 3 : draw(d, 1, 7);
            s.stride[axis] = draw(d, 0, 2) ? 1 : draw(d, 1, 3);
            s.padding[axis] = draw(d, 0, 1) ? s.window[axis] / 2 : draw(d, 0, 3);
            s.dilation[axis] = draw(d, 0, 3) ? 1 : draw(d, 1, 3);
        }
    } while (!slide(&s));
    return s;
}

static void open_random(draws *d, op_call *c)
{
    static const char *const results[] = {"f32", "i8", "u8"}, *const ranges[] = {"", "-128..127", "0..255"};
    sizes s = draw_sizes(d);
    long long channels = s.out * s.groups;
    int x = (int)draw(d, 1, 2), y = (int)draw(d, 0, 2), r = (int)draw(d, 0, 4);
    char y_type[64], zero[32] = "_", bias[32] = "_", codes[64] = "_, _", residual[96] = "_, _, _", clip[48] = "";
    snprintf(y_type, sizeof y_type, "[%lld,%lld,%lld,%lld]", s.batch, channels, s.steps[0], s.steps[1]);
    if (draw(d, 0, 2)) snprintf(zero, sizeof zero, "i32[] %s", draw(d, 0, 7) ? ranges[x] : "-900..900");
    if (draw(d, 0, 1)) snprintf(bias, sizeof bias, "f32[%lld] -9..9", channels);
    if (y) snprintf(codes, sizeof codes, "f32[] 0.3..3, i32[] %s", draw(d, 0, 1) ? ranges[y] : "0..0");
    if (r == 1 || r == 2)
        snprintf(residual, sizeof residual, "%s%s, f32[] 0.01..0.1, %s", results[r], y_type,
                 draw(d, 0, 1) ? "i32[] -9..300" : "_");
    if (r == 3) snprintf(residual, sizeof residual, "f32%s -9..9, _, _", y_type);
    if (y && draw(d, 0, 1)) snprintf(clip, sizeof clip, "low=0%s", draw(d, 0, 1) ? " high=6" : "");
    op_call_open(
        c, "conv_q",
        "(%s[%lld,%lld,%lld,%lld], i8[%lld,%lld,%lld,%lld], f32[] 0.001..0.02, f32[%lld] 0.001..0.02, %s, %s, %s, "
        "%s) -> %s%s stride=[%lld,%lld] padding=[%lld,%lld] dilation=[%lld,%lld] groups=%lld %s",
        results[x], s.batch, s.in * s.groups, s.plane[0], s.plane[1], channels, s.in, s.window[0], s.window[1],
        channels, zero, bias, codes, residual, results[y], y_type, s.stride[0], s.stride[1], s.padding[0], s.padding[1],
        s.dilation[0], s.dilation[1], s.groups, clip);
    draw_codes(d, c, 0, x == 1 ? -128 : 0, x == 1 ? 127 : 255);
    draw_codes(d, c, 1, -128, 127);
    if (r == 1 || r == 2) draw_codes(d, c, 8, r == 1 ? -128 : 0, r == 1 ? 127 : 255);
}

static void every_row__has_the_bits_of_the_integer_reference(void **state)
{
    (void)state;
    draws d = {.stream = {.seed = 17, .site = ht_hash_text("conv_q")}};
    code_rows rows = code_rows_open();
    for (int i = 0; i < SHAPES; i++) {
        op_call c;
        open_random(&d, &c);
        code_rows_check(&rows, &c, i % 4 == 0, false);
        code_rows_check(&rows, &c, i % 4 == 1, true);
        op_call_close(&c);
    }
    code_rows_close(&rows);
}

/* Sums of the most products that i32 holds, at both ends. */
static void the_longest_sums__are_exact(void **state)
{
    (void)state;
    static const double ends[][2] = {{255, 127}, {255, -128}, {0, -128}};
    code_rows rows = code_rows_open();
    for (size_t i = 0; i < 3; i++) {
        op_call c;
        int zero = i == 2 ? 255 : 0;
        op_call_open(&c, "conv_q",
                     "(u8[1,1024,8,8], i8[2,1024,8,8], f32[] 1..1, f32[] 1..1, i32[] %d..%d) -> f32[1,2,1,1]", zero,
                     zero);
        for (int64_t e = 0; e < op_call_elems_in(&c, 0); e++) c.a.in[0][e] = ends[i][0];
        for (int64_t e = 0; e < op_call_elems_in(&c, 1); e++) c.a.in[1][e] = ends[i][1];
        code_rows_check(&rows, &c, true, true);
        double sum = (i == 2 ? -255 : 255) * ends[i][1] * HT_MOST_CODE_PRODUCTS;
        assert_true(c.a.out[0][0] == (double)(float)sum);
        op_call_close(&c);
    }
    code_rows_close(&rows);
}

/* A window of one element and factor 1 is quantize_linear of what is clipped; half a step goes to the even code. */
static void codes__are_clipped_and_rounded_half_to_even(void **state)
{
    (void)state;
    static const double want[] = {0, 0, 0, 0, 0, 0, 1, 2, 2}; /* of -2, -1.5, .. 2, clipped to 0 and above */
    op_call c;
    op_call_open(&c, "conv_q",
                 "(i8[1,1,3,3], i8[1,1,1,1], f32[] 0.5..0.5, f32[] 1..1, _, _, f32[] 1..1, i32[] 7..7) -> i8[1,1,3,3] "
                 "low=0");
    for (int i = 0; i < 9; i++) c.a.in[0][i] = i - 4;
    c.a.in[1][0] = 1;
    op_call_kernel(&c);
    for (int i = 0; i < 9; i++) assert_true(c.a.out[0][i] == want[i] + 7);
    op_call_close(&c);
}

/* Padding stands for 0, whatever the zero point. */
static void padding__adds_nothing(void **state)
{
    (void)state;
    op_call c;
    op_call_open(
        &c, "conv_q",
        "(u8[1,2,1,1], i8[1,2,3,3] 1..1, f32[] 1..1, f32[] 1..1, i32[] 100..100) -> f32[1,1,1,1] padding=[1,1]");
    c.a.in[0][0] = 103;
    c.a.in[0][1] = 90;
    for (int i = 0; i < 18; i++) c.a.in[1][i] = 1;
    op_call_kernel(&c);
    assert_true(c.a.out[0][0] == 3 - 10);
    op_call_close(&c);
}

#define OPERANDS "(u8[1,3,4,4], i8[5,3,3,3], f32[], "
static void bad_operands__are_refused_by_name(void **state)
{
    (void)state;
    op_call_refused("conv_q", "(f32[1,3,4,4], i8[5,3,3,3], f32[], f32[]) -> f32[1,5,2,2]", "x is f32[1,3,4,4]");
    op_call_refused("conv_q", "(u8[1,3,4,4], u8[5,3,3,3], f32[], f32[]) -> f32[1,5,2,2]", "w is u8[5,3,3,3]");
    op_call_refused("conv_q", "(u8[1,3,4,4], i8[5,4,3,3], f32[], f32[]) -> f32[1,5,2,2]", "weights see 4 channels");
    op_call_refused("conv_q", "(u8[1,3,4,4], i8[5,3,3,3], f32[3], f32[]) -> f32[1,5,2,2]", "x_scale is f32[3]");
    op_call_refused("conv_q", OPERANDS "f32[3]) -> f32[1,5,2,2]", "w_scale is f32[3]");
    op_call_refused("conv_q", OPERANDS "f32[], f32[]) -> f32[1,5,2,2]", "x_zero is f32[]");
    op_call_refused("conv_q", OPERANDS "f32[], _, f32[]) -> f32[1,5,2,2]", "bias is f32[]");
    op_call_refused("conv_q", OPERANDS "f32[]) -> u8[1,5,2,2]", "y_scale is missing");
    op_call_refused("conv_q", OPERANDS "f32[]) -> f32[1,5,2,2] low=0", "for results of i8 or u8");
    op_call_refused("conv_q", OPERANDS "f32[], _, _, f32[]) -> u8[1,5,2,2] low=1 high=0", "low 1 is above high 0");
    op_call_refused("conv_q", OPERANDS "f32[]) -> f32[1,5,3,2]", "the result is f32[1,5,3,2]");
    op_call_refused("conv_q", OPERANDS "f32[], _, _, _, _, u8[1,5,2,2]) -> f32[1,5,2,2]", "r_scale is missing");
    op_call_refused("conv_q", OPERANDS "f32[], _, _, _, _, f32[1,5,2,2], f32[]) -> f32[1,5,2,2]",
                    "for residuals of i8");
    op_call_refused("conv_q", OPERANDS "f32[], _, _, _, _, u8[1,5,2,1], f32[]) -> f32[1,5,2,2]", "r is u8[1,5,2,1]");
    op_call_refused("conv_q", OPERANDS "f32[], _, _, _, _, _, f32[]) -> f32[1,5,2,2]", "r is missing");
    op_call_refused("conv_q", "(u8[1,7282,3,3], i8[1,7282,3,3], f32[], f32[]) -> f32[1,1,1,1]", "65536 products");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row__has_the_bits_of_the_integer_reference),
        cmocka_unit_test(the_longest_sums__are_exact),
        cmocka_unit_test(codes__are_clipped_and_rounded_half_to_even),
        cmocka_unit_test(padding__adds_nothing),
        cmocka_unit_test(bad_operands__are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
