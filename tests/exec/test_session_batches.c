/* Steps of several micro-batches through the public API. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_fixture.h"

enum { T = 3, ROWS = 8, F = 4, STEPS = 4 };

/* A recurrent sketch on x [T, B, F]: dropout along the second axis, and a state that goes from batch to batch. */
static void build(ht_graph *g, int64_t batch)
{
    ht_val x = ht_input(g, "x", HT_F32, 3, (int64_t[]){T, batch, F});
    ht_val w = ht_param(g, "w", HT_F32, 2, (int64_t[]){F, F}, HT_NORMAL(0, 0.5));
    ht_val carry = ht_state_add(g, "carry.h", HT_F32, 2, (int64_t[]){batch, F}, HT_ZERO);
    ht_val kept = ht_batch_axis(g, ht_dropout(g, x, 0.5, ht_rng_state(g), "x"), 1);
    ht_val h = ht_tanh(g, ht_add(g, ht_matmul(g, kept, w, NULL), carry));
    ht_val noise = ht_random_normal(g, HT_F32, 2, (int64_t[]){batch, F}, 0, 0.1, ht_rng_state(g), "noise");
    ht_val last = ht_reshape(g, ht_slice_axis(g, h, 0, T - 1, 1), 2, (int64_t[]){batch, F});
    ht_output(g, "loss", ht_mean(g, ht_mul(g, h, ht_add(g, h, noise)), 0, NULL, false));
    ht_store(g, carry, last);
}

typedef struct filling {
    int64_t step, batch, calls;
    ht_status status; /* of its last call */
} filling;

/* The rows of micro-batch `index`. */
static ht_status fill(void *arg, ht_session *session, int64_t index)
{
    filling *f = arg;
    double x[T * ROWS * F];
    for (int64_t t = 0; t < T; t++)
        for (int64_t b = 0; b < f->batch; b++)
            for (int64_t i = 0; i < F; i++)
                x[(t * f->batch + b) * F + i] = sin((double)(f->step * 7 + t * 5 + (index * f->batch + b) * 3 + i));
    f->calls++;
    HT_TRY(ht_session_write_f64(session, "x", x, (size_t)(T * f->batch * F)));
    return f->status;
}

static session_fixture start(int64_t micros, const char *precision, const char *device)
{
    session_fixture w = session_begin(2);
    ht_train_opts opts = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    opts.optimizer = "sgd";
    opts.lr = 0.5;
    opts.accumulate = (int)micros;
    planning.precision = precision;
    planning.device = device;
    build(w.g, ROWS / micros);
    must(&w, ht_graph_train(w.g, &opts));
    session_plan(&w, &planning, 5);
    return w;
}

static void run_steps(int64_t micros, const char *precision, const char *device, double *w_after, double *carry_after)
{
    session_fixture w = start(micros, precision, device);
    filling f = {.batch = ROWS / micros};
    for (f.step = 0; f.step < STEPS; f.step++) must(&w, ht_session_run_batches(w.s, "train", fill, &f));
    assert_int_equal(f.calls, STEPS * micros);
    must(&w, ht_session_read_f64(w.s, "w", w_after, F * F));
    must(&w, ht_session_read_f64(w.s, "carry.h", carry_after, ROWS * F));
    session_end(&w);
}

static void expect_near(const double *a, const double *b, int count, double bound)
{
    for (int i = 0; i < count; i++)
        if (!(fabs(a[i] - b[i]) <= bound)) fail_msg("element %d: %.9g and %.9g", i, a[i], b[i]);
}

static void batches__make_one_step_however_it_is_cut(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "fp64", "bf16"};
    static const double bounds[] = {1e-6, 1e-13, 2e-2};
    for (int p = 0; p < 3; p++) {
        double w[2][F * F], carry[2][ROWS * F];
        run_steps(1, precisions[p], NULL, w[0], carry[0]);
        for (int64_t micros = 2; micros <= ROWS; micros *= 2) {
            run_steps(micros, precisions[p], NULL, w[1], carry[1]);
            expect_near(w[0], w[1], F * F, bounds[p]);
            expect_near(carry[0], carry[1], ROWS * F, bounds[p]);
            double w_there[F * F], carry_there[ROWS * F];
            run_steps(micros, precisions[p], "fake", w_there, carry_there);
            assert_memory_equal(w_there, w[1], sizeof w_there);
            assert_memory_equal(carry_there, carry[1], sizeof carry_there);
        }
        assert_true(carry[0][0] != carry[0][F]);
    }
}

static void batches__a_program_of_several_is_not_run_on_one(void **state)
{
    (void)state;
    session_fixture w = start(4, NULL, NULL);
    float before[F * F], after[F * F];
    must(&w, ht_session_read(w.s, "w", before, sizeof before));
    assert_int_equal(ht_session_run(w.s, "train"), HT_EINVAL);
    message_has(&w, "takes 4 batches");
    message_has(&w, "ht_session_run_batches");
    must(&w, ht_session_read(w.s, "w", after, sizeof after));
    assert_memory_equal(before, after, sizeof before);
    session_end(&w);
    w = start(1, NULL, NULL);
    must(&w, ht_session_run(w.s, "train"));
    session_end(&w);
}

static void batches__the_callers_failure_ends_the_run(void **state)
{
    (void)state;
    session_fixture w = start(2, NULL, NULL);
    filling f = {.batch = ROWS / 2, .status = HT_EIO};
    int64_t applied;
    assert_int_equal(ht_session_run_batches(w.s, "train", fill, &f), HT_EIO);
    assert_int_equal(f.calls, 1);
    must(&w, ht_session_read(w.s, "applied", &applied, sizeof applied));
    assert_int_equal(applied, 0);
    assert_int_equal(ht_session_run_batches(w.s, "train", NULL, NULL), HT_EINVAL);
    assert_int_equal(ht_session_run_batches(w.s, "trian", fill, &f), HT_EINVAL);
    message_has(&w, "there is no program 'trian'");
    session_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches__make_one_step_however_it_is_cut),
        cmocka_unit_test(batches__a_program_of_several_is_not_run_on_one),
        cmocka_unit_test(batches__the_callers_failure_ends_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
