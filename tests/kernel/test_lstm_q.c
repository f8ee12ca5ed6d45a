/* Layers of codes that step: every row that this machine can run has the bits of the op's integer reference, on random shapes and at
 * the ends of the codes, packed in the run or before it, for any number of threads. And rows of tables. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "code_rows.h"

enum { LSTM_Q_X, LSTM_Q_H0 = 2, LSTM_Q_W_INPUT = 4, LSTM_Q_W_HIDDEN = 6, LSTM_Q_BIAS = 9 }; /* inputs */
enum { SHAPES = 2000, MOST_PRODUCTS = 400000 };

/* Mostly small, some near the sizes of vectors and tiles. */
static int64_t draw_size(draws *d, int64_t most)
{
    static const int64_t near[] = {8, 14, 16, 32, 64, 128};
    int64_t size = draw(d, 0, 3) ? draw(d, 1, 40) : near[draw(d, 0, 5)] + draw(d, -1, 1);
    return size > most ? most : size;
}

static void open_random(draws *d, op_call *c)
{
    int64_t steps = draw(d, 1, 6), batch = draw_size(d, 36), inputs = draw_size(d, 140), hidden = draw_size(d, 140);
    while (4 * steps * batch * hidden * (inputs + hidden) > MOST_PRODUCTS)
        *(hidden > 40 ? &hidden : inputs > 40 ? &inputs : batch > 1 ? &batch : &hidden) /= 2;
    bool is_signed = draw(d, 0, 1), rows = draw(d, 0, 1), zeros = draw(d, 0, 1), bias = draw(d, 0, 1),
         lengths = draw(d, 0, 1);
    static const char *const scales[] = {"", "%lld", "%lld,1"};
    char row[48] = "", zero[64] = "_", biases[48] = "_", ends[48] = "_", input_scale[48], hidden_scale[48];
    long long gates = 4 * hidden;
    if (rows) snprintf(row, sizeof row, "%lld,%lld", (long long)steps, (long long)batch);
    if (zeros) snprintf(zero, sizeof zero, "i32[%s] %s", draw(d, 0, 1) ? row : "", is_signed ? "-128..127" : "0..255");
    if (bias) snprintf(biases, sizeof biases, "f32[%lld] -2..2", gates);
    if (lengths) snprintf(ends, sizeof ends, "i32[%lld] 0..%lld", (long long)batch, (long long)steps + 1);
    snprintf(input_scale, sizeof input_scale, scales[draw(d, 0, 2)], gates);
    snprintf(hidden_scale, sizeof hidden_scale, scales[draw(d, 0, 2)], gates);
    op_call_open(c, "lstm_q",
                 "(%s[%lld,%lld,%lld], f32[%s] 0.001..0.02, f32[%lld,%lld] -2..2, f32[%lld,%lld] -2..2, i8[%lld,%lld], "
                 "f32[%s] 0.0005..0.01, i8[%lld,%lld], f32[%s] 0.0005..0.02, %s, %s, %s)",
                 is_signed ? "i8" : "u8", (long long)steps, (long long)batch, (long long)inputs, row, (long long)batch,
                 (long long)hidden, (long long)batch, (long long)hidden, gates, (long long)inputs, input_scale, gates,
                 (long long)hidden, hidden_scale, zero, biases, ends);
    draw_codes(d, c, LSTM_Q_X, is_signed ? -128 : 0, is_signed ? 127 : 255);
    draw_codes(d, c, LSTM_Q_W_INPUT, -128, 127);
    draw_codes(d, c, LSTM_Q_W_HIDDEN, -128, 127);
}

static void every_row__has_the_bits_of_the_integer_reference(void **state)
{
    (void)state;
    draws d = {.stream = {.seed = 17, .site = ht_hash_text("lstm_q")}};
    code_rows rows = code_rows_open();
    for (int i = 0; i < SHAPES; i++) {
        op_call c;
        open_random(&d, &c);
        code_rows_check(&rows, &c, i % 8 == 0, false);
        op_call_close(&c);
    }
    code_rows_close(&rows);
}

/* A layer that keeps its cell: gates i and o are open, f and g come from the input. */
#define WORKED                                                                                                         \
    "(i8[2,1,1], f32[] 1..1, f32[1,1] 0..0, f32[1,1] 0..0, i8[4,1], f32[] 1..1, i8[4,1], f32[] 1..1, _, f32[4])"

static void open_worked(op_call *c, double x0, double x1)
{
    static const double input[4] = {0, 0, 1, 0}, hidden[4] = {0, 0, 1, 0}, bias[4] = {50, 50, 0, 50};
    op_call_open(c, "lstm_q", WORKED);
    c->a.in[LSTM_Q_X][0] = x0;
    c->a.in[LSTM_Q_X][1] = x1;
    memcpy(c->a.in[LSTM_Q_W_INPUT], input, sizeof input);
    memcpy(c->a.in[LSTM_Q_W_HIDDEN], hidden, sizeof hidden);
    memcpy(c->a.in[LSTM_Q_BIAS], bias, sizeof bias);
}

/* c1 = tanh(x0), h1 = tanh(c1); h1 alone in its row is code 127 of its scale, so it is read back nearly as it was. */
static void steps__follow_the_formula(void **state)
{
    (void)state;
    op_call c;
    open_worked(&c, 1, -1);
    op_call_kernel(&c);
    double c1 = tanh(1), h1 = tanh(c1), c2 = c1 + tanh(-1 + h1);
    assert_true(fabs(c.a.out[0][0] - h1) < 1e-6);
    assert_true(fabs(c.a.out[0][1] - tanh(c2)) < 1e-6);
    assert_true(fabs(c.a.out[1][0] - tanh(c2)) < 1e-6 && fabs(c.a.out[2][0] - c2) < 1e-6);
    op_call_close(&c);
}

/* Codes of h are those of numbers that are not finite: the whole row of gates is NaN from then on. */
static void states_that_are_not_finite__stay_visible(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        op_call c;
        open_worked(&c, 1, 1);
        c.a.in[LSTM_Q_H0][0] = bad[i];
        op_call_kernel(&c);
        for (int t = 0; t < 2; t++) assert_true(isnan(c.a.out[0][t]));
        op_call_close(&c);
    }
}

static void rows_of_a_table__are_codes_times_their_scale(void **state)
{
    (void)state;
    static const double codes[] = {1, -128, 127, 5, 0, -3}, scales[] = {0.5, 0.25}, index[] = {1, 0, 2, -1};
    static const double want[] = {1.25, 0, -0.75, 0.5, -64, 63.5, 0, 0, 0, 0, 0, 0};
    op_call c;
    op_call_open(&c, "embedding_q", "(i8[2,3], f32[2,1], i32[4])");
    memcpy(c.a.in[0], codes, sizeof codes);
    memcpy(c.a.in[1], scales, sizeof scales);
    memcpy(c.a.in[2], index, sizeof index);
    op_call_kernel(&c);
    for (int i = 0; i < 12; i++) assert_true(c.a.out[0][i] == want[i]);
    op_call_close(&c);
}

static void every_row_of_tables__has_the_bits_of_the_reference(void **state)
{
    (void)state;
    draws d = {.stream = {.seed = 17, .site = ht_hash_text("embedding_q")}};
    code_rows rows = code_rows_open();
    for (int i = 0; i < SHAPES; i++) {
        op_call c;
        long long v = draw(&d, 1, 40), width = draw_size(&d, 140), n = draw(&d, 1, 50);
        op_call_open(&c, "embedding_q", "(i8[%lld,%lld], f32[%lld] 0.001..0.02, i64[%lld] -1..%lld)", v, width, v, n,
                     v);
        draw_codes(&d, &c, 0, -128, 127);
        code_rows_check(&rows, &c, i % 8 == 0, false);
        op_call_close(&c);
    }
    code_rows_close(&rows);
}

#define STATES "f32[3,5], f32[3,5]"
static void bad_operands__are_refused_by_name(void **state)
{
    (void)state;
    op_call_refused("lstm_q", "(f32[2,3,4], f32[], " STATES ", i8[20,4], f32[], i8[20,5], f32[])", "x is f32[2,3,4]");
    op_call_refused("lstm_q", "(u8[2,3,4], f32[3], " STATES ", i8[20,4], f32[], i8[20,5], f32[])",
                    "x_scale is f32[3], not f32[2,3]");
    op_call_refused("lstm_q", "(u8[2,3,4], f32[], f32[3,5], f32[3,4], i8[20,4], f32[], i8[20,5], f32[])",
                    "c0 is f32[3,4], not f32[3,5]");
    op_call_refused("lstm_q", "(u8[2,3,4], f32[], " STATES ", f32[20,4], f32[], i8[20,5], f32[])",
                    "w_input is f32[20,4], not i8[20,4]");
    op_call_refused("lstm_q", "(u8[2,3,4], f32[], " STATES ", i8[20,4], f32[20], i8[20,5], f32[5])",
                    "w_hidden_scale is f32[5], not f32[20]");
    op_call_refused("lstm_q", "(u8[2,3,4], f32[], " STATES ", i8[20,4], f32[], i8[20,5], f32[], f32[])",
                    "x_zero is f32[], not i32[2,3]");
    op_call_refused("lstm_q", "(u8[2,3,4], f32[], " STATES ", i8[20,4], f32[], i8[20,5], f32[], _, f32[5])",
                    "bias is f32[5], not f32[20]");
    op_call_refused("embedding_q", "(u8[2,3], f32[2], i32[4])", "the table is u8[2,3]");
    op_call_refused("embedding_q", "(i8[2,3], f32[3], i32[4])", "scale is f32[3]");
    op_call_refused("embedding_q", "(i8[2,3], i32[2], i32[4])", "scale is i32[2]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row__has_the_bits_of_the_integer_reference),
        cmocka_unit_test(steps__follow_the_formula),
        cmocka_unit_test(states_that_are_not_finite__stay_visible),
        cmocka_unit_test(rows_of_a_table__are_codes_times_their_scale),
        cmocka_unit_test(every_row_of_tables__has_the_bits_of_the_reference),
        cmocka_unit_test(bad_operands__are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
