/* Products of codes: every row that this machine can run has the bits of the op's integer reference, on random shapes and at the
 * ends of the codes, packed in the run or before it, for any number of threads. */
#include <stdio.h>

#include "code_rows.h"

enum { SHAPES = 2000, MOST_PRODUCTS = 200000 };

/* Mostly small, some near the sizes of tiles and blocks of K. */
static int64_t draw_size(draws *d, int64_t most)
{
    static const int64_t near[] = {14, 16, 28, 32, 64, 128, 256, 1024, 2048};
    int64_t size = draw(d, 0, 3) ? draw(d, 1, 80) : near[draw(d, 0, 8)] + draw(d, -1, 1);
    return size > most ? most : size;
}

static void open_random(draws *d, op_call *c)
{
    int64_t m = draw_size(d, 130), n = draw_size(d, 600), k = draw_size(d, 2100);
    while (m * n * k > MOST_PRODUCTS) *(m > n ? &m : n > k / 8 ? &n : &k) /= 2;
    bool is_signed = draw(d, 0, 1), tb = draw(d, 0, 1), rows = draw(d, 0, 1), zeros = draw(d, 0, 1),
         bias = draw(d, 0, 1);
    int result = (int)draw(d, 0, 2);
    static const char *const results[] = {"f32", "i8", "u8"};
    char scale[32] = "", zero[48] = "_", biases[32] = "_", codes[64] = "";
    if (rows) snprintf(scale, sizeof scale, "%lld", (long long)m);
    if (zeros)
        snprintf(zero, sizeof zero, "i32[%s] %s", draw(d, 0, 1) && rows ? scale : "",
                 is_signed ? "-128..127" : "0..255");
    if (bias) snprintf(biases, sizeof biases, "f32[%lld] -9..9", (long long)n);
    if (result) snprintf(codes, sizeof codes, ", f32[] 0.3..3, i32[] %s", result == 1 ? "-128..127" : "0..255");
    op_call_open(
        c, "matmul_q",
        "(%s[%lld,%lld], i8[%lld,%lld], f32[%s] 0.001..0.02, f32[%lld] 0.001..0.02, %s, %s%s) -> %s[%lld,%lld] tb=%d",
        is_signed ? "i8" : "u8", (long long)m, (long long)k, (long long)(tb ? n : k), (long long)(tb ? k : n), scale,
        (long long)n, zero, biases, codes, results[result], (long long)m, (long long)n, tb);
    draw_codes(d, c, 0, is_signed ? -128 : 0, is_signed ? 127 : 255);
    draw_codes(d, c, 1, -128, 127);
}

/* ---- the tests ---- */

static void every_row__has_the_bits_of_the_integer_reference(void **state)
{
    (void)state;
    draws d = {.stream = {.seed = 17, .site = ht_hash_text("matmul_q")}};
    code_rows rows = code_rows_open();
    for (int i = 0; i < SHAPES; i++) {
        op_call c;
        open_random(&d, &c);
        code_rows_check(&rows, &c, i % 8 == 0, false);
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
        op_call_open(&c, "matmul_q", "(u8[3,%d], i8[5,%d], f32[] 1..1, f32[] 1..1, i32[] %d..%d) -> f32[3,5] tb=1",
                     HT_MOST_CODE_PRODUCTS, HT_MOST_CODE_PRODUCTS, i == 2 ? 255 : 0, i == 2 ? 255 : 0);
        for (int64_t e = 0; e < op_call_elems_in(&c, 0); e++) c.a.in[0][e] = ends[i][0];
        for (int64_t e = 0; e < op_call_elems_in(&c, 1); e++) c.a.in[1][e] = ends[i][1];
        code_rows_check(&rows, &c, true, false);
        double sum = (i == 2 ? -255 : 255) * ends[i][1] * HT_MOST_CODE_PRODUCTS;
        assert_true(c.a.out[0][0] == (double)(float)sum);
        op_call_close(&c);
    }
    code_rows_close(&rows);
}

/* Half a step goes to the even code, on both sides of 0, before the zero point is added. */
static void codes__are_rounded_half_to_even(void **state)
{
    (void)state;
    static const double want[] = {-2, -2, -1, 0, 0, 0, 1, 2, 2}; /* of -2, -1.5, .. 2 */
    op_call c;
    op_call_open(&c, "matmul_q",
                 "(i8[9,1], i8[1,1], f32[] 0.5..0.5, f32[] 1..1, _, _, f32[] 1..1, i32[] 7..7) -> i8[9,1]");
    for (int i = 0; i < 9; i++) c.a.in[0][i] = i - 4;
    c.a.in[1][0] = 1;
    op_call_kernel(&c);
    for (int i = 0; i < 9; i++) assert_true(c.a.out[0][i] == want[i] + 7);
    op_call_close(&c);
}

static void bad_operands__are_refused_by_name(void **state)
{
    (void)state;
    op_call_refused("matmul_q", "(f32[3,4], i8[4,5], f32[], f32[]) -> f32[3,5]", "a is f32[3,4]");
    op_call_refused("matmul_q", "(u8[3,4], u8[4,5], f32[], f32[]) -> f32[3,5]", "w is u8[4,5]");
    op_call_refused("matmul_q", "(u8[3,4], i8[5,4], f32[], f32[]) -> f32[3,5]", "inner sizes differ: 4 vs 5");
    op_call_refused("matmul_q", "(u8[3,4], i8[4,5], f32[2], f32[]) -> f32[3,5]", "a_scale is f32[2], not f32[3]");
    op_call_refused("matmul_q", "(u8[3,4], i8[4,5], f32[], f32[3]) -> f32[3,5]", "w_scale is f32[3], not f32[5]");
    op_call_refused("matmul_q", "(u8[3,4], i8[4,5], f32[], f32[], f32[]) -> f32[3,5]", "a_zero is f32[]");
    op_call_refused("matmul_q", "(u8[3,4], i8[4,5], f32[], f32[], _, f32[4]) -> f32[3,5]", "bias is f32[4]");
    op_call_refused("matmul_q", "(u8[3,4], i8[4,5], f32[], f32[]) -> u8[3,5]", "y_scale is missing");
    op_call_refused("matmul_q", "(u8[3,4], i8[4,5], f32[], f32[], _, _, f32[]) -> f32[3,5]", "for results of i8 or u8");
    op_call_refused("matmul_q", "(u8[3,4], i8[4,5], f32[], f32[]) -> f32[3,4]", "the result is f32[3,4]");
    op_call_refused("matmul_q", "(u8[1,65537], i8[65537,1], f32[], f32[]) -> f32[1,1]", "65536 products");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row__has_the_bits_of_the_integer_reference),
        cmocka_unit_test(the_longest_sums__are_exact),
        cmocka_unit_test(codes__are_rounded_half_to_even),
        cmocka_unit_test(bad_operands__are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
