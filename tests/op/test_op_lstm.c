/* What samples cannot show of lstm: equalities between differently written calls, for the reference and for the kernel
 * that this machine chooses. */
#include "op_call.h"

#include <math.h>
#include <string.h>

enum { RUNNERS = 2, T = 6, B = 3, I = 4, H = 5 };
static const op_runner runners[RUNNERS] = {op_call_reference, op_call_kernel};
static const double tolerances[RUNNERS] = {1e-12, 2e-6};

#define FORWARD_LINE "(f32[%d,%d,4], f32[%d,5], f32[%d,5], f32[20,4], f32[20,5], f32[20]"
#define BACKWARD_LINE                                                                                                  \
    "(f32[%d,%d,4], f32[%d,5], f32[%d,5], f32[20,4], f32[20,5], f32[%d,%d,25], _, f32[%d,%d,5], f32[%d,5], f32[%d,5])"

static void copy(double *to, const double *from, int64_t n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
}

static void open_forward(op_call *call, int steps, int batch)
{
    op_call_open(call, "lstm", FORWARD_LINE ")", steps, batch, batch, batch);
}

static void open_backward(op_call *call, int steps, int batch)
{
    op_call_open(call, "lstm_grad", BACKWARD_LINE, steps, batch, batch, batch, steps, batch, steps, batch, batch,
                 batch);
}

/* x, h0, c0, the weights and the reserve of a forward call. */
static void give_forward(op_call *back, const op_call *forward)
{
    for (size_t i = 0; i < 5; i++) copy(back->a.in[i], forward->a.in[i], op_call_elems_in(forward, i));
    copy(back->a.in[5], forward->a.out[3], op_call_elems_out(forward, 3));
}

/* Sequence b of a batch [T,B,width], its first steps. */
static void take_sequence(double *to, const double *from, int64_t b, int64_t steps, int64_t width)
{
    for (int64_t t = 0; t < steps; t++) copy(to + t * width, from + (t * B + b) * width, width);
}

static void near_sequence(const char *what, const double *batch, const double *alone, int64_t b, int64_t steps,
                          int64_t width, double tolerance)
{
    for (int64_t t = 0; t < steps; t++)
        op_call_near(what, batch + (t * B + b) * width, alone + t * width, width, tolerance);
}

/* Runs sequence b of the padded calls alone, compares it, and adds its weight gradients to `sum`. */
static void check_alone(op_runner run, double tolerance, const op_call *padded, const op_call *padded_back, int64_t b,
                        int steps, double *const *sum)
{
    op_call alone, back;
    open_forward(&alone, steps, 1);
    open_backward(&back, steps, 1);
    take_sequence(alone.a.in[0], padded->a.in[0], b, steps, I);
    for (size_t i = 1; i < 3; i++) copy(alone.a.in[i], padded->a.in[i] + b * H, H);
    for (size_t i = 3; i < 6; i++) copy(alone.a.in[i], padded->a.in[i], op_call_elems_in(padded, i));
    run(&alone);
    near_sequence("y", padded->a.out[0], alone.a.out[0], b, steps, H, tolerance);
    op_call_near("h", padded->a.out[1] + b * H, alone.a.out[1], H, tolerance);
    op_call_near("c", padded->a.out[2] + b * H, alone.a.out[2], H, tolerance);
    for (int64_t t = steps; t < T; t++) op_call_all("y beyond the length", padded->a.out[0] + (t * B + b) * H, H, 0);

    give_forward(&back, &alone);
    take_sequence(back.a.in[7], padded_back->a.in[7], b, steps, H);
    for (size_t i = 8; i < 10; i++) copy(back.a.in[i], padded_back->a.in[i] + b * H, H);
    run(&back);
    near_sequence("dx", padded_back->a.out[0], back.a.out[0], b, steps, I, tolerance);
    for (int64_t t = steps; t < T; t++)
        op_call_all("dx beyond the length", padded_back->a.out[0] + (t * B + b) * I, I, 0);
    op_call_near("dh0", padded_back->a.out[1] + b * H, back.a.out[1], H, tolerance);
    op_call_near("dc0", padded_back->a.out[2] + b * H, back.a.out[2], H, tolerance);
    for (size_t i = 3; i < 6; i++)
        for (int64_t e = 0; e < op_call_elems_out(&back, i); e++) sum[i - 3][e] += back.a.out[i][e];
    op_call_close(&alone);
    op_call_close(&back);
}

static void lengths__equal_shorter_sequences(void **state)
{
    (void)state;
    static const int lengths[B] = {3, 0, T};
    for (int r = 0; r < RUNNERS; r++) {
        op_call padded, back;
        op_call_open(&padded, "lstm", FORWARD_LINE ", i32[3])", T, B, B, B);
        op_call_open(&back, "lstm_grad",
                     "(f32[6,3,4], f32[3,5], f32[3,5], f32[20,4], f32[20,5], f32[6,3,25], i32[3], f32[6,3,5], f32[3,5],"
                     " f32[3,5])");
        for (int b = 0; b < B; b++) {
            padded.a.in[6][b] = back.a.in[6][b] = lengths[b];
            /* Nobody may look at what pads a sequence. */
            for (int t = lengths[b]; t < T; t++)
                for (int k = 0; k < I; k++) padded.a.in[0][(t * B + b) * I + k] = NAN;
        }
        runners[r](&padded);
        give_forward(&back, &padded);
        runners[r](&back);
        double dw_input[4 * H * I] = {0}, dw_hidden[4 * H * H] = {0}, dbias[4 * H] = {0};
        double *sum[3] = {dw_input, dw_hidden, dbias};
        for (int b = 0; b < B; b++) check_alone(runners[r], tolerances[r], &padded, &back, b, lengths[b], sum);
        for (size_t i = 3; i < 6; i++)
            op_call_near("weights", back.a.out[i], sum[i - 3], op_call_elems_out(&back, i), tolerances[r]);
        op_call_close(&padded);
        op_call_close(&back);
    }
}

static void state__carries_a_sequence_cut_in_two(void **state)
{
    (void)state;
    enum { CUT = 2 };
    for (int r = 0; r < RUNNERS; r++) {
        op_call whole, first, second;
        open_forward(&whole, T, B);
        open_forward(&first, CUT, B);
        open_forward(&second, T - CUT, B);
        for (size_t i = 1; i < 6; i++) {
            copy(first.a.in[i], whole.a.in[i], op_call_elems_in(&whole, i));
            copy(second.a.in[i], whole.a.in[i], op_call_elems_in(&whole, i));
        }
        copy(first.a.in[0], whole.a.in[0], (int64_t)CUT * B * I);
        copy(second.a.in[0], whole.a.in[0] + CUT * B * I, (int64_t)(T - CUT) * B * I);
        runners[r](&whole);
        runners[r](&first);
        copy(second.a.in[1], first.a.out[1], B * H);
        copy(second.a.in[2], first.a.out[2], B * H);
        runners[r](&second);
        op_call_near("y", second.a.out[0], whole.a.out[0] + CUT * B * H, (int64_t)(T - CUT) * B * H, 0);
        op_call_near("h", second.a.out[1], whole.a.out[1], B * H, 0);
        op_call_near("c", second.a.out[2], whole.a.out[2], B * H, 0);
        op_call_close(&whole);
        op_call_close(&first);
        op_call_close(&second);
    }
}

static void left_out__counts_as_zero(void **state)
{
    (void)state;
    for (int r = 0; r < RUNNERS; r++) {
        op_call with, without, back, back_without;
        open_forward(&with, T, B);
        op_call_open(&without, "lstm", "(f32[6,3,4], f32[3,5], f32[3,5], f32[20,4], f32[20,5])");
        for (size_t i = 0; i < 5; i++) copy(without.a.in[i], with.a.in[i], op_call_elems_in(&with, i));
        memset(with.a.in[5], 0, 4 * H * sizeof(double));
        runners[r](&with);
        runners[r](&without);
        for (size_t i = 0; i < 4; i++)
            op_call_near("without bias", without.a.out[i], with.a.out[i], op_call_elems_out(&with, i), 0);
        open_backward(&back, T, B);
        op_call_open(&back_without, "lstm_grad",
                     "(f32[6,3,4], f32[3,5], f32[3,5], f32[20,4], f32[20,5], f32[6,3,25], _, _, f32[3,5])");
        give_forward(&back, &with);
        give_forward(&back_without, &with);
        memset(back.a.in[7], 0, T * B * H * sizeof(double));
        memset(back.a.in[9], 0, B * H * sizeof(double));
        copy(back_without.a.in[8], back.a.in[8], B * H);
        runners[r](&back);
        runners[r](&back_without);
        for (size_t i = 0; i < 6; i++)
            op_call_near("without dy and dc", back_without.a.out[i], back.a.out[i], op_call_elems_out(&back, i), 0);
        op_call_close(&with);
        op_call_close(&without);
        op_call_close(&back);
        op_call_close(&back_without);
    }
}

/* Sizes that cross every tile of the kernel, in both directions. */
static void kernel__agrees_across_tiles(void **state)
{
    (void)state;
    static const char *const lines[2] = {
        "(f32[3,20,70], f32[20,70], f32[20,70], f32[280,70] -0.2..0.2, f32[280,70] -0.2..0.2, f32[280], i32[20] 0..3)",
        "(f32[3,20,70], f32[20,70], f32[20,70], f32[280,70] -0.2..0.2, f32[280,70] -0.2..0.2, f32[3,20,350] 0.1..0.9,"
        " i32[20] 0..3, f32[3,20,70], f32[20,70], f32[20,70])",
    };
    static const char *const ops[2] = {"lstm", "lstm_grad"};
    for (size_t p = 0; p < 2; p++) {
        op_call call, expected;
        op_call_open(&call, ops[p], "%s", lines[p]);
        op_call_open(&expected, ops[p], "%s", lines[p]);
        op_call_kernel(&call);
        op_call_reference(&expected);
        for (size_t i = 0; i < call.c.call->n_out; i++)
            op_call_near("result", call.a.out[i], expected.a.out[i], op_call_elems_out(&call, i), 5e-6);
        op_call_close(&call);
        op_call_close(&expected);
    }
}

static void lstm__refuses_what_does_not_fit(void **state)
{
    (void)state;
    op_call_refused("lstm", "(f32[3,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3])", "rank");
    op_call_refused("lstm", "(f32[3,2,4], f32[3,3], f32[2,3], f32[12,4], f32[12,3])", "input 1");
    op_call_refused("lstm", "(f32[3,2,4], f32[2,3], f32[2,4], f32[12,4], f32[12,3])", "input 2");
    op_call_refused("lstm", "(f32[3,2,4], f32[2,3], f32[2,3], f32[9,4], f32[12,3])", "input 3");
    op_call_refused("lstm", "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,4])", "input 4");
    op_call_refused("lstm", "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], f32[3])", "input 5");
    op_call_refused("lstm", "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], i32[12])", "floating");
    op_call_refused("lstm", "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], _, f32[2])", "i32");
    op_call_refused("lstm", "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], _, i32[3])", "input 6");
    op_call_refused("lstm", "(f32[3,2,4], _, f32[2,3], f32[12,4], f32[12,3])", "input 1");
    op_call_refused("lstm_grad", "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], f32[3,2,12])", "input 5");
    op_call_refused("lstm_grad", "(f32[3,2,4], f32[2,3], f32[2,3], f32[12,4], f32[12,3], f32[3,2,15], _, f32[2,3])",
                    "input 7");
}

static void builder__gives_three_results_and_their_gradients(void **state)
{
    (void)state;
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    ht_val x = ht_input(g, "x", HT_F32, HT_DIMS(T, B, I)), h0 = ht_input(g, "h0", HT_F32, HT_DIMS(B, H));
    ht_val w_input = ht_param(g, "w_input", HT_F32, HT_DIMS(4 * H, I), HT_NORMAL(0, 1));
    ht_val w_hidden = ht_param(g, "w_hidden", HT_F32, HT_DIMS(4 * H, H), HT_NORMAL(0, 1));
    ht_lstm_out out = ht_lstm(g, x, h0, h0, w_input, w_hidden, HT_NONE, HT_NONE);
    assert_int_equal(ht_graph_status(g), HT_OK);
    assert_int_equal(ht_val_dims(g, out.y)[0], T);
    assert_int_equal(ht_val_rank(g, out.h), 2);
    assert_int_equal(out.c.id, out.h.id + 1);
    /* Only c flows on; h0 is used twice, so both of its gradients add up. */
    ht_val wrt[3] = {x, h0, w_hidden}, grads[3];
    assert_int_equal(ht_gradients(g, ht_sum(g, out.c, 0, NULL, false), 3, wrt, grads), HT_OK);
    for (size_t i = 0; i < 3; i++) assert_true(ht_type_same(ht_type_of(g, grads[i]), ht_type_of(g, wrt[i])));
    ht_graph_free(g);
}

/* Gates and cells that were kept in half give gradients with half's digits: relative to their root mean square, the
 * error is below the step from 1 to the next number of that type, and it is there. */
static void reserve__in_half_leaves_gradients_right_to_its_digits(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        double step;
    } halves[] = {{"f16", 0x1p-10}, {"bf16", 0x1p-7}};
    for (int h = 0; h < 2; h++) {
        op_call forward, exact, rounded;
        open_forward(&forward, T, B);
        op_call_reference(&forward);
        open_backward(&exact, T, B);
        op_call_open(&rounded, "lstm_grad",
                     "(f32[6,3,4], f32[3,5], f32[3,5], f32[20,4], f32[20,5], %s[6,3,25], _, f32[6,3,5], f32[3,5],"
                     " f32[3,5])",
                     halves[h].type);
        give_forward(&exact, &forward);
        give_forward(&rounded, &forward);
        for (size_t i = 7; i < 10; i++) copy(rounded.a.in[i], exact.a.in[i], op_call_elems_in(&exact, i));
        op_call_reference(&exact);
        op_call_kernel(&rounded);
        for (size_t i = 0; i < 6; i++) {
            double error = 0, size = 0;
            for (int64_t e = 0; e < op_call_elems_out(&exact, i); e++) {
                error += pow(rounded.a.out[i][e] - exact.a.out[i][e], 2);
                size += pow(exact.a.out[i][e], 2);
            }
            error = sqrt(error / size);
            if (error > halves[h].step || error < 1e-6)
                fail_msg("reserve in %s: gradient %zu is off by %g", halves[h].type, i, error);
        }
        op_call_close(&forward);
        op_call_close(&exact);
        op_call_close(&rounded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths__equal_shorter_sequences),
        cmocka_unit_test(state__carries_a_sequence_cut_in_two),
        cmocka_unit_test(left_out__counts_as_zero),
        cmocka_unit_test(kernel__agrees_across_tiles),
        cmocka_unit_test(reserve__in_half_leaves_gradients_right_to_its_digits),
        cmocka_unit_test(lstm__refuses_what_does_not_fit),
        cmocka_unit_test(builder__gives_three_results_and_their_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
