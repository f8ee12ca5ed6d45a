/* examples/graphs/mlp_bf16.ht, the bf16 training step written by hand: the reference interpreter trains with it, the
 * half copies follow the masters, an overflow changes nothing but the scale, the model is the f32 model, and a plan
 * computes the same within the rounding of bf16. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <halftone/session.h>

#include "context_fixture.h"
#include "hashes.h"
#include "pass/pass.h"

enum { ROWS = 32, FEATURES = 8, STEPS = 20 };

static const char *const params[] = {"w1", "b1", "w2", "b2"};

static ht_graph *read_graph(void)
{
    static const char path[] = HT_TEST_DIR "/../examples/graphs/mlp_bf16.ht";
    char *text;
    size_t length;
    ht_graph *g;
    if (ht_read_file(test_ctx, &text, &length, path) != HT_OK ||
        ht_graph_parse(&g, test_ctx, path, text, length) != HT_OK)
        fail_msg("%s", ht_context_message(test_ctx));
    free(text);
    return g;
}

/* Four classes by the signs of two features. */
static void make_batch(int64_t step, double *x, double *label)
{
    ht_stream stream = {.seed = 5, .step = (uint64_t)step, .site = ht_hash_text("batch")};
    for (int64_t i = 0; i < ROWS * FEATURES; i++) x[i] = ht_round_to(HT_F32, ht_stream_normal(&stream, (uint64_t)i));
    for (int64_t r = 0; r < ROWS; r++) label[r] = (x[r * FEATURES] > 0) + 2 * (x[r * FEATURES + 1] > 0);
}

/* ---- the reference ---- */

typedef struct oracle {
    ht_graph *g;
    ht_reference *ref;
    uint32_t micro, update;
} oracle;

static oracle make_oracle(ht_graph *g)
{
    oracle o = {.g = g};
    assert_int_equal(ht_reference_create(&o.ref, g, true, 3), HT_OK);
    o.micro = (uint32_t)ht_segment_find(g, "micro_first");
    o.update = (uint32_t)ht_segment_find(g, "update");
    assert_int_equal(ht_reference_run(o.ref, (uint32_t)ht_segment_find(g, "derive")), HT_OK);
    return o;
}

static double *state_of(oracle *o, const char *name)
{
    ht_val v = ht_find(o->g, name);
    assert_non_null(ht_state_of(o->g, v));
    return ht_reference_value(o->ref, v);
}

static int64_t elems_of(const oracle *o, const char *name)
{
    return ht_type_elems(ht_type_of(o->g, ht_find(o->g, name)));
}

static double run_step(oracle *o, int64_t step)
{
    const ht_segment *s = &o->g->segments[o->micro];
    make_batch(step, ht_reference_value(o->ref, s->inputs[0]), ht_reference_value(o->ref, s->inputs[1]));
    assert_int_equal(ht_reference_run(o->ref, o->micro), HT_OK);
    double loss = *ht_reference_output(o->ref, "loss");
    assert_int_equal(ht_reference_run(o->ref, o->update), HT_OK);
    return loss;
}

static void check_half_copy(oracle *o, const char *master, const char *half)
{
    const double *from = state_of(o, master), *copy = state_of(o, half);
    for (int64_t i = 0; i < elems_of(o, master); i++) assert_true(copy[i] == ht_round_to(HT_BF16, from[i]));
}

static void training__lowers_the_loss_and_keeps_the_half_copies(void **state)
{
    (void)state;
    ht_graph *g = read_graph();
    oracle o = make_oracle(g);
    double first = 0, last = 0;
    for (int64_t step = 0; step < STEPS; step++) {
        double loss = run_step(&o, step);
        assert_true(isfinite(loss));
        if (step < 3) first += loss / 3;
        if (step >= STEPS - 3) last += loss / 3;
        check_half_copy(&o, "w1", "w1.half");
        check_half_copy(&o, "w2", "w2.half");
        assert_true(*state_of(&o, "applied") == (double)(step + 1));
        assert_true(*ht_reference_output(o.ref, "applied_now") == 1);
    }
    if (!(last < 0.6 * first)) fail_msg("the loss went from %g to %g", first, last);
    assert_true(*state_of(&o, "scale") == 1024);
    ht_reference_free(o.ref);
    ht_graph_free(g);
}

static void an_overflow__changes_only_the_scale(void **state)
{
    (void)state;
    ht_graph *g = read_graph();
    oracle o = make_oracle(g);
    run_step(&o, 0);
    double before[4], moment = *state_of(&o, "w1.m");
    for (int i = 0; i < 4; i++) before[i] = *state_of(&o, params[i]);
    /* A scale that pushes the gradients over the end of their type. */
    *state_of(&o, "scale") = 0x1p127;
    *ht_reference_value(o.ref, g->segments[o.micro].inputs[2]) = 64;
    run_step(&o, 1);
    assert_true(*ht_reference_output(o.ref, "applied_now") == 0);
    for (int i = 0; i < 4; i++) assert_true(*state_of(&o, params[i]) == before[i]);
    assert_true(*state_of(&o, "w1.m") == moment);
    assert_true(*state_of(&o, "applied") == 1);
    assert_true(*state_of(&o, "scale") == 0x1p126);
    check_half_copy(&o, "w1", "w1.half");
    ht_reference_free(o.ref);
    ht_graph_free(g);
}

static void the_scale__cancels(void **state)
{
    (void)state;
    ht_graph *g = read_graph();
    oracle a = make_oracle(g), b = make_oracle(g);
    *state_of(&b, "scale") = 1;
    for (int64_t step = 0; step < 3; step++) assert_true(run_step(&a, step) == run_step(&b, step));
    /* A power of two moves no bit of the gradients unless they leave the range. */
    for (int i = 0; i < 4; i++)
        assert_memory_equal(state_of(&a, params[i]), state_of(&b, params[i]),
                            (size_t)elems_of(&a, params[i]) * sizeof(double));
    ht_reference_free(a.ref);
    ht_reference_free(b.ref);
    ht_graph_free(g);
}

/* ---- the model ---- */

static void the_model__is_the_one_in_f32(void **state)
{
    (void)state;
    static const char text[] = "state %w1 f32[8,16] heading=parameters trained\n"
                               "state %b1 f32[16] heading=parameters trained\n"
                               "state %w2 f32[16,4] heading=parameters trained\n"
                               "state %b2 f32[4] heading=parameters trained\n"
                               "segment forward (%x f32[32,8], %label i32[32]) -> (loss=%loss) {\n"
                               "  %0 = matmul f32[32,16] (%x, %w1)\n"
                               "  %1 = expand f32[32,16] (%b1)\n"
                               "  %2 = add f32[32,16] (%0, %1)\n"
                               "  %3 = relu f32[32,16] (%2)\n"
                               "  %4 = matmul f32[32,4] (%3, %w2)\n"
                               "  %5 = expand f32[32,4] (%b2)\n"
                               "  %6 = add f32[32,4] (%4, %5)\n"
                               "  %loss, %lse = cross_entropy f32[], f32[32] (%6, %label)\n"
                               "}\n";
    ht_graph *g = read_graph(), *plain;
    assert_int_equal(ht_graph_parse(&plain, test_ctx, "plain", text, strlen(text)), HT_OK);
    assert_true(model_hash(g) == model_hash(plain));
    ht_graph_free(plain);
    ht_graph_free(g);
}

static void passes__leave_every_value_as_it_is(void **state)
{
    (void)state;
    static const char *const names[] = {"fold", "cse", "dce", "regions"};
    ht_graph *g = read_graph(), *plain = read_graph();
    for (size_t i = 0; i < 4; i++)
        if (ht_pass_run(g, ht_pass_find(names[i]), NULL) != HT_OK) fail_msg("%s", ht_context_message(test_ctx));
    oracle a = make_oracle(plain), b = make_oracle(g);
    for (int64_t step = 0; step < 3; step++) assert_true(run_step(&a, step) == run_step(&b, step));
    for (int i = 0; i < 4; i++)
        assert_memory_equal(state_of(&a, params[i]), state_of(&b, params[i]),
                            (size_t)elems_of(&a, params[i]) * sizeof(double));
    ht_reference_free(a.ref);
    ht_reference_free(b.ref);
    ht_graph_free(plain);
    ht_graph_free(g);
}

/* ---- the plan ---- */

static void copy_states(oracle *o, ht_session *session)
{
    for (size_t i = 0; i < o->g->state_count; i++) {
        const char *name = ht_value_of(o->g, o->g->states[i].value)->name;
        assert_int_equal(ht_session_write_f64(session, name, state_of(o, name), (size_t)elems_of(o, name)), HT_OK);
    }
}

/* |a-b| against the largest |b|; sums of bf16 products round differently by a few units. */
static void compare_state(oracle *o, const ht_session *session, const char *name, double tolerance)
{
    int64_t n = elems_of(o, name);
    const double *want = state_of(o, name);
    double *have = malloc((size_t)n * sizeof *have), largest = 0;
    assert_non_null(have);
    assert_int_equal(ht_session_read_f64(session, name, have, (size_t)n), HT_OK);
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(have[i] - want[i]) <= tolerance * largest + 1e-7))
            fail_msg("%s[%lld] is %g, the reference says %g", name, (long long)i, have[i], want[i]);
    free(have);
}

static void run_planned(ht_session *session, int64_t step, double *loss)
{
    double x[ROWS * FEATURES], label[ROWS];
    make_batch(step, x, label);
    assert_int_equal(ht_session_write_f64(session, "x", x, ROWS * FEATURES), HT_OK);
    assert_int_equal(ht_session_write_f64(session, "label", label, ROWS), HT_OK);
    assert_int_equal(ht_session_run(session, "train"), HT_OK);
    assert_int_equal(ht_session_read_f64(session, "loss", loss, 1), HT_OK);
}

static void a_plan__computes_what_the_reference_computes(void **state)
{
    (void)state;
    ht_graph *g = read_graph();
    oracle o = make_oracle(g);
    ht_plan *plan;
    ht_session *session;
    if (ht_plan_create(&plan, g, NULL) != HT_OK || ht_session_create(&session, plan, NULL) != HT_OK)
        fail_msg("%s", ht_context_message(test_ctx));
    for (int64_t step = 0; step < STEPS; step++) {
        double loss, want;
        copy_states(&o, session); /* each step from the same start: adam amplifies the last bit of a small gradient */
        run_planned(session, step, &loss);
        want = run_step(&o, step);
        if (!(fabs(loss - want) <= 0x1p-8 * (1 + fabs(want)))) fail_msg("loss %g, the reference says %g", loss, want);
        for (int i = 0; i < 4; i++) {
            char name[16];
            snprintf(name, sizeof name, "%s.grad", params[i]);
            compare_state(&o, session, name, 0x1p-6);
            snprintf(name, sizeof name, "%s.v", params[i]);
            compare_state(&o, session, name, 0x1p-5);
        }
        compare_state(&o, session, "applied", 0);
        compare_state(&o, session, "scale", 0);
    }
    ht_session_free(session);
    ht_plan_free(plan);
    ht_reference_free(o.ref);
    ht_graph_free(g);
}

static void a_plan__trains_by_itself(void **state)
{
    (void)state;
    ht_graph *g = read_graph();
    oracle o = make_oracle(g);
    ht_plan *plan;
    ht_session *session;
    if (ht_plan_create(&plan, g, NULL) != HT_OK || ht_session_create(&session, plan, NULL) != HT_OK)
        fail_msg("%s", ht_context_message(test_ctx));
    copy_states(&o, session);
    for (int64_t step = 0; step < STEPS; step++) {
        double loss, want = run_step(&o, step);
        run_planned(session, step, &loss);
        if (!(fabs(loss - want) <= 0.05 * (0.2 + fabs(want))))
            fail_msg("step %lld: loss %g, the reference says %g", (long long)step, loss, want);
    }
    double master[8 * 16], half[8 * 16];
    assert_int_equal(ht_session_read_f64(session, "w1", master, 8 * 16), HT_OK);
    assert_int_equal(ht_session_read_f64(session, "w1.half", half, 8 * 16), HT_OK);
    for (int i = 0; i < 8 * 16; i++) assert_true(half[i] == ht_round_to(HT_BF16, master[i]));
    ht_session_free(session);
    ht_plan_free(plan);
    ht_reference_free(o.ref);
    ht_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training__lowers_the_loss_and_keeps_the_half_copies),
        cmocka_unit_test(an_overflow__changes_only_the_scale),
        cmocka_unit_test(the_scale__cancels),
        cmocka_unit_test(the_model__is_the_one_in_f32),
        cmocka_unit_test(passes__leave_every_value_as_it_is),
        cmocka_unit_test(a_plan__computes_what_the_reference_computes),
        cmocka_unit_test(a_plan__trains_by_itself),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
