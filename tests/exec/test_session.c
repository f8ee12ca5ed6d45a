/* Whole steps through the public API. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "session_fixture.h"
#include "tiny_model.h"
#include "train/train.h"

enum { TOKENS = TINY_BATCH * TINY_TIME, TABLE = TINY_VOCAB * TINY_WIDTH };

static session_fixture start(int threads, double dropout, const ht_train_opts *train, bool canaries)
{
    session_fixture w = session_begin(threads);
    tiny_build(w.g, dropout);
    must(&w, ht_graph_train(w.g, train));
    ht_plan_opts plan_opts = HT_PLAN_OPTS;
    plan_opts.canaries = canaries;
    session_plan(&w, &plan_opts, 42);
    return w;
}

static void write_inputs(const session_fixture *w, int which)
{
    int32_t token[TOKENS], label[TOKENS];
    tiny_tokens(which, token, label);
    must(w, ht_session_write(w->s, "token", token, sizeof token));
    must(w, ht_session_write(w->s, "label", label, sizeof label));
}

static float step(const session_fixture *w, int which)
{
    float loss;
    write_inputs(w, which);
    must(w, ht_session_run(w->s, "train"));
    must(w, ht_session_read(w->s, "loss", &loss, sizeof loss));
    return loss;
}

static void session__training_lowers_the_loss(void **state)
{
    (void)state;
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 1e-2;
    session_fixture w = start(2, 0, &opts, false);
    float first = step(&w, 0), last = 0;
    for (int i = 1; i < 60; i++) last = step(&w, 0);
    assert_true(first > 1.5f && last < 0.2f * first);
    session_end(&w);
}

/* One seed gives one result, whatever the number of threads and with guards on or off. */
static void session__same_bits_for_any_number_of_threads_and_on_a_rerun(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 4, 1, 2};
    float first_loss[6], first_table[TABLE];
    for (size_t run = 0; run < 5; run++) {
        float loss[6], table[TABLE];
        session_fixture w = start(threads[run], 0.2, NULL, run == 4);
        for (int i = 0; i < 6; i++) loss[i] = step(&w, i);
        must(&w, ht_session_read(w.s, "table", table, sizeof table));
        if (run == 0) {
            memcpy(first_loss, loss, sizeof loss);
            memcpy(first_table, table, sizeof table);
        }
        assert_memory_equal(loss, first_loss, sizeof loss);
        assert_memory_equal(table, first_table, sizeof table);
        session_end(&w);
    }
}

static void session__dropout_draws_anew_each_step(void **state)
{
    (void)state;
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 1e-12;
    session_fixture w = start(1, 0.5, &opts, false);
    float a = step(&w, 0), b = step(&w, 0);
    assert_true(fabsf(a - b) > 1e-4f);
    session_end(&w);
}

/* Two micro-batches of weight one half are the mean of their gradients. */
static void session__accumulated_gradients_are_the_mean_of_micro_batches(void **state)
{
    (void)state;
    float one[2][TABLE], both[TABLE];
    for (int i = 0; i < 2; i++) {
        session_fixture w = start(1, 0, NULL, false);
        write_inputs(&w, i);
        must(&w, ht_session_run(w.s, "micro_first"));
        must(&w, ht_session_read(w.s, "table.grad", one[i], sizeof one[i]));
        session_end(&w);
    }
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.accumulate = 2;
    session_fixture w = start(1, 0, &opts, false);
    write_inputs(&w, 0);
    must(&w, ht_session_run(w.s, "micro_first"));
    write_inputs(&w, 1);
    must(&w, ht_session_run(w.s, "micro"));
    must(&w, ht_session_read(w.s, "table.grad", both, sizeof both));
    for (int i = 0; i < TABLE; i++) assert_float_equal(both[i], (one[0][i] + one[1][i]) / 2, 1e-6f);
    session_end(&w);
}

static void session__a_step_with_infinite_gradients_changes_nothing(void **state)
{
    (void)state;
    session_fixture w = start(2, 0, NULL, false);
    step(&w, 0);
    float before[TABLE], after[TABLE], loss_grad = INFINITY;
    bool applied = true;
    int64_t count = 0;
    must(&w, ht_session_read(w.s, "table", before, sizeof before));
    must(&w, ht_session_write(w.s, "seed", &loss_grad, sizeof loss_grad)); /* the deprecated name of loss_grad */
    step(&w, 1);
    must(&w, ht_session_read(w.s, "table", after, sizeof after));
    must(&w, ht_session_read(w.s, "applied_now", &applied, sizeof applied));
    must(&w, ht_session_read(w.s, "applied", &count, sizeof count));
    assert_memory_equal(before, after, sizeof before);
    assert_false(applied);
    assert_int_equal(count, 1);
    session_end(&w);
}

static void session__clipping_bounds_the_update(void **state)
{
    (void)state;
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.optimizer = "sgd";
    opts.lr = 1;
    opts.clip = 0.01;
    session_fixture w = start(1, 0, &opts, false);
    float before[TABLE], after[TABLE], norm;
    must(&w, ht_session_read(w.s, "table", before, sizeof before));
    step(&w, 0);
    must(&w, ht_session_read(w.s, "table", after, sizeof after));
    must(&w, ht_session_read(w.s, "grad_norm", &norm, sizeof norm));
    double moved = 0;
    for (int i = 0; i < TABLE; i++) moved += pow((double)after[i] - before[i], 2);
    assert_true(norm > 0.1f);
    assert_true(sqrt(moved) <= 0.0101 && sqrt(moved) > 0.001);
    session_end(&w);
}

/* Against the interpreter, from the same graph: the executor computes what the ops say. */
static void session__steps_agree_with_the_interpreter(void **state)
{
    (void)state;
    session_fixture w = start(2, 0.1, NULL, true);
    ht_reference *ref;
    must(&w, ht_reference_create(&ref, w.g, true, 42));
    for (int i = 0; i < 3; i++) {
        int32_t token[TOKENS], label[TOKENS];
        tiny_tokens(i, token, label);
        w.g->segment = (uint32_t)ht_segment_find(w.g, "micro_first");
        double *ref_token = ht_reference_value(ref, ht_find(w.g, "token"));
        double *ref_label = ht_reference_value(ref, ht_find(w.g, "label"));
        for (int k = 0; k < TOKENS; k++) ref_token[k] = token[k], ref_label[k] = label[k];
        must(&w, ht_reference_run(ref, (uint32_t)ht_segment_find(w.g, "micro_first")));
        double loss = *ht_reference_output(ref, "loss");
        must(&w, ht_reference_run(ref, (uint32_t)ht_segment_find(w.g, "update")));
        assert_float_equal(step(&w, i), (float)loss, 2e-4f * fabsf((float)loss));
    }
    ht_reference_free(ref);
    session_end(&w);
}

/* A model that stores state which its own backward reads: the old value is the one that counts. */
static void session__backward_reads_state_before_forward_replaces_it(void **state)
{
    (void)state;
    session_fixture w = session_begin(0);
    float r = 3, x = 2, grad = 0, after = 0;
    ht_val in = ht_input(w.g, "x", HT_F32, 0, NULL), p = ht_param(w.g, "p", HT_F32, 0, NULL, HT_CONSTANT(1));
    ht_val old = ht_state_add(w.g, "r", HT_F32, 0, NULL, HT_ZERO);
    ht_val loss = ht_mul(w.g, ht_mul(w.g, p, old), in);
    ht_store(w.g, old, ht_add(w.g, old, in));
    ht_output(w.g, "loss", loss);
    must(&w, ht_graph_train(w.g, NULL));
    session_plan(&w, NULL, 0);
    must(&w, ht_session_write(w.s, "r", &r, sizeof r));
    must(&w, ht_session_write(w.s, "x", &x, sizeof x));
    must(&w, ht_session_run(w.s, "micro_first"));
    must(&w, ht_session_read(w.s, "p.grad", &grad, sizeof grad));
    must(&w, ht_session_read(w.s, "r", &after, sizeof after));
    assert_float_equal(grad, 6, 0);
    assert_float_equal(after, 5, 0);
    session_end(&w);
}

/* Parameters stored as bf16: gradients and moments are f32, the parameter rounds once per update. */
static void session__half_parameters_train_with_f32_moments(void **state)
{
    (void)state;
    session_fixture w = session_begin(0);
    ht_val p = ht_param(w.g, "p", HT_BF16, 1, (int64_t[]){3}, HT_CONSTANT(1));
    ht_output(w.g, "loss", ht_cast(w.g, ht_sum(w.g, ht_mul(w.g, p, p), 0, NULL, false), HT_F32));
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 0.125;
    must(&w, ht_graph_train(w.g, &opts));
    session_plan(&w, NULL, 0);
    must(&w, ht_session_run(w.s, "train"));
    double now[3], moment[16];
    must(&w, ht_session_read_f64(w.s, "p", now, 3));
    must(&w, ht_session_read_f64(w.s, "flat.m.bf16", moment, 16));
    for (int i = 0; i < 3; i++) {
        assert_float_equal(now[i], 0.875, 0);
        assert_float_equal(moment[i], 0.1 * 2, 1e-6);
    }
    session_end(&w);
}

static void session__bad_names_and_sizes_are_errors_that_name_them(void **state)
{
    (void)state;
    session_fixture w = start(1, 0, NULL, false);
    float x = 0;
    assert_int_equal(ht_session_read(w.s, "nothing", &x, sizeof x), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(w.ctx), "nothing"));
    assert_int_equal(ht_session_read(w.s, "table", &x, sizeof x), HT_ESHAPE);
    assert_non_null(strstr(ht_context_message(w.ctx), "table"));
    assert_int_equal(ht_session_run(w.s, "trian"), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(w.ctx), "trian"));
    session_end(&w);
}

/* ---- a kernel that writes past its result ---- */

static ht_status rogue_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)ctx;
    out[0] = *call->in[0];
    return HT_OK;
}

static ht_status rogue_run(const ht_launch *launch)
{
    memset(launch->out[0], 1, (size_t)ht_type_bytes(launch->call->out[0]) + 1);
    return HT_OK;
}

static const char *rogue_can(const ht_call *call, const ht_target *target)
{
    (void)call;
    (void)target;
    return NULL;
}

static const ht_op rogue_op = {.size = sizeof(ht_op),
                               .name = "rogue",
                               .min_in = 1,
                               .max_in = 1,
                               .n_out = 1,
                               .infer = rogue_infer,
                               .no_grad = "a test"};
static const ht_kernel rogue_kernel = {
    .size = sizeof(ht_kernel), .op = "rogue", .name = "rogue.test", .can = rogue_can, .run = rogue_run};

static void session__a_canary_catches_a_kernel_that_writes_too_far(void **state)
{
    (void)state;
    session_fixture w = session_begin(0);
    must(&w, ht_op_add(w.ctx, &rogue_op));
    must(&w, ht_kernel_add(w.ctx, &rogue_kernel));
    ht_scope_push(w.g, "deep.inside");
    ht_val x = ht_input(w.g, "x", HT_F32, 1, (int64_t[]){5});
    ht_output(w.g, "y", ht_neg(w.g, ht_emit1(w.g, "rogue", NULL, HT_VALS(x), HT_NO_ATTRS)));
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.canaries = true;
    session_plan(&w, &opts, 0);
    assert_int_equal(ht_session_run(w.s, "forward"), HT_EVERIFY);
    assert_non_null(strstr(ht_context_message(w.ctx), "rogue.test"));
    assert_non_null(strstr(ht_context_message(w.ctx), "deep.inside"));
    session_end(&w);
}

/* ---- what the plan promises ---- */

/* Copies of more than a counter. */
static size_t count_copies(const ht_plan *plan, const char *segment)
{
    const ht_plan_segment *s = &plan->segments[ht_plan_segment_find(plan, segment)];
    size_t count = 0;
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_call *call = s->instrs[i].call;
        count += strcmp(call->op->name, "copy") == 0 && ht_type_elems(call->out[0]) > 1;
    }
    return count;
}

static void plan__gradients_and_updates_are_stored_where_they_are_made(void **state)
{
    (void)state;
    session_fixture w = start(1, 0, NULL, false);
    assert_int_equal(count_copies(w.plan, "update"), 0);
    /* One instruction over the flat group: clipping, Adam and the choice to skip. */
    const ht_plan_segment *update = &w.plan->segments[ht_plan_segment_find(w.plan, "update")];
    size_t adam = 0;
    for (size_t i = 0; i < update->instr_count; i++)
        for (int k = 0; update->instrs[i].fused && k < update->instrs[i].fused->step_count; k++)
            adam += strcmp(update->instrs[i].fused->steps[k].call->op->name, "adam") == 0;
    assert_int_equal(adam, 1);
    session_end(&w);
}

/* A constant that only the end needs is not made at the start. */
static void plan__a_node_runs_where_its_first_reader_is(void **state)
{
    (void)state;
    session_fixture w = session_begin(0);
    ht_val x = ht_input(w.g, "x", HT_F32, 1, (int64_t[]){64}), late = ht_iota(w.g, HT_F32, 1, (int64_t[]){64}, 0);
    ht_val v = ht_exp(w.g, ht_tanh(w.g, ht_exp(w.g, x)));
    ht_output(w.g, "y", ht_add(w.g, v, late));
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.no_fusion = true;
    must(&w, ht_plan_create(&w.plan, w.g, &opts));
    const ht_plan_segment *s = &w.plan->segments[ht_plan_segment_find(w.plan, "forward")];
    assert_int_equal(s->instr_count, 5);
    assert_string_equal(s->instrs[3].call->op->name, "iota");
    /* The chain runs in place: one buffer for it, one for the constant. */
    assert_int_equal(s->live_bytes[HT_SPACE_MAIN], 2 * (256 + (ht_debug_build() ? HT_CANARY_BYTES : 0)));
    session_end(&w);
}

static void plan__empty_results_need_no_instruction(void **state)
{
    (void)state;
    session_fixture w = session_begin(0);
    ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){INT64_C(1) << 50, 0});
    ht_output(w.g, "y", ht_softmax(w.g, x, 1));
    ht_output(w.g, "total", ht_sum(w.g, x, 0, NULL, false));
    session_plan(&w, NULL, 0);
    must(&w, ht_session_run(w.s, "forward"));
    assert_int_equal(w.plan->segments[ht_plan_segment_find(w.plan, "forward")].instr_count, 1);
    float total = 1;
    must(&w, ht_session_read(w.s, "total", &total, sizeof total));
    assert_float_equal(total, 0, 0);
    session_end(&w);
}

static void plan__prints_a_ledger_whose_parts_add_up(void **state)
{
    (void)state;
    session_fixture w = start(1, 0, NULL, false);
    char *text;
    must(&w, ht_plan_print(&text, w.plan));
    assert_non_null(strstr(text, "\n  optimizer "));
    assert_non_null(strstr(text, "\n  workspace "));
    assert_non_null(strstr(text, "\n  plan_bytes "));
    assert_non_null(strstr(text, "segment update"));
    int64_t sum = 0;
    for (int a = 0; a < HT_AREA_COUNT; a++) sum += ht_plan_area_bytes(w.plan, (ht_area)a);
    assert_int_equal(ht_plan_bytes(w.plan), sum);
    /* AdamW keeps two moments of the size of the parameters. */
    assert_int_equal(w.plan->heading_bytes[HT_HEADING_OPTIMIZER], 2 * w.plan->heading_bytes[HT_HEADING_PARAMETERS]);
    free(text);
    session_end(&w);
}

static void plan__can_be_made_for_another_machine(void **state)
{
    (void)state;
    session_fixture w = start(1, 0, NULL, false);
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.target = "{\"name\": \"elsewhere\", \"arch\": \"x86_64\", \"isa\": \"portable\", \"threads\": 3}";
    ht_plan *plan;
    must(&w, ht_plan_create(&plan, w.g, &opts));
    for (size_t i = 0; i < plan->segment_count; i++)
        for (size_t k = 0; k < plan->segments[i].instr_count; k++)
            assert_int_equal(plan->segments[i].instrs[k].kernel->isa, HT_ISA_PORTABLE);
    assert_string_equal(plan->target.name, "elsewhere");
    ht_plan_free(plan);
    session_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session__training_lowers_the_loss),
        cmocka_unit_test(session__same_bits_for_any_number_of_threads_and_on_a_rerun),
        cmocka_unit_test(session__dropout_draws_anew_each_step),
        cmocka_unit_test(session__accumulated_gradients_are_the_mean_of_micro_batches),
        cmocka_unit_test(session__a_step_with_infinite_gradients_changes_nothing),
        cmocka_unit_test(session__clipping_bounds_the_update),
        cmocka_unit_test(session__steps_agree_with_the_interpreter),
        cmocka_unit_test(session__backward_reads_state_before_forward_replaces_it),
        cmocka_unit_test(session__half_parameters_train_with_f32_moments),
        cmocka_unit_test(session__bad_names_and_sizes_are_errors_that_name_them),
        cmocka_unit_test(session__a_canary_catches_a_kernel_that_writes_too_far),
        cmocka_unit_test(plan__gradients_and_updates_are_stored_where_they_are_made),
        cmocka_unit_test(plan__a_node_runs_where_its_first_reader_is),
        cmocka_unit_test(plan__empty_results_need_no_instruction),
        cmocka_unit_test(plan__prints_a_ledger_whose_parts_add_up),
        cmocka_unit_test(plan__can_be_made_for_another_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
