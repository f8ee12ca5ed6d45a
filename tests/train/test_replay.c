/* Looking into steps: ht_executor_trace, replays of a run's steps, and the first value that is not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "data_case.h"
#include "exec/exec.h"
#include "tiny_model.h"
#include "train/train.h"

/* ---- a machine ---- */

typedef struct traced {
    ht_context *ctx;
    ht_plan *plan;
    ht_session *session;
    ht_executor *executor; /* the session's */
} traced;

static traced start(bool fusion, bool canaries)
{
    traced w = {0};
    ht_graph *g;
    w.ctx = context_create(0, NULL);
    context_must(w.ctx, ht_graph_create(&g, w.ctx));
    tiny_build(g, 0.1);
    context_must(w.ctx, ht_graph_train(g, NULL));
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.no_fusion = !fusion;
    opts.canaries = canaries;
    context_must(w.ctx, ht_plan_create(&w.plan, g, &opts));
    ht_graph_free(g);
    context_must(w.ctx, ht_session_create(&w.session, w.plan, NULL));
    w.executor = w.session->executor;
    int32_t token[TINY_BATCH * TINY_TIME], label[TINY_BATCH * TINY_TIME];
    tiny_tokens(0, token, label);
    context_must(w.ctx, ht_session_write(w.session, "token", token, sizeof token));
    context_must(w.ctx, ht_session_write(w.session, "label", label, sizeof label));
    context_must(w.ctx, ht_session_write_f64(w.session, "loss_grad", (double[]){1}, 1));
    return w;
}

static void stop(traced *w)
{
    ht_session_free(w->session);
    ht_plan_free(w->plan);
    ht_context_free(w->ctx);
}

typedef struct seen {
    const traced *w;
    size_t count, most; /* results shown; when to stop, 0: never */
    size_t named_grads, with_origin, backward;
    bool loss;
} seen;

static bool see(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    seen *s = arg;
    assert_ptr_equal(type, instr->call->out[result]);
    assert_ptr_equal(data, ht_executor_host(s->w->executor, instr->out[result]));
    s->count++;
    s->backward += instr->role == HT_ROLE_BWD_ACT || instr->role == HT_ROLE_BWD_WEIGHT;
    s->with_origin += instr->origin != NULL;
    for (size_t i = 0; i < s->w->plan->slot_count; i++) {
        const ht_slot *slot = &s->w->plan->slots[i];
        if (result == 0 && instr->value && strcmp(slot->name, instr->value) == 0 && slot->owner != i) s->named_grads++;
    }
    s->loss = s->loss || (instr->value && strcmp(instr->value, "loss") == 0);
    return s->count != s->most;
}

static void replay__gives_the_bits_of_a_fused_run(void **state)
{
    (void)state;
    static const char *const segments[] = {"micro_first", "update"};
    traced plain = start(true, false), traced_run = start(false, true);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 2; i++) {
            seen s = {.w = &traced_run};
            context_must(plain.ctx,
                         ht_executor_run(plain.executor, (size_t)ht_plan_segment_find(plain.plan, segments[i]), 0));
            context_must(traced_run.ctx,
                         ht_executor_trace(traced_run.executor,
                                           (size_t)ht_plan_segment_find(traced_run.plan, segments[i]), 0, see, &s));
        }
    }
    size_t compared = 0;
    for (size_t i = 0; i < plain.plan->slot_count; i++) {
        const ht_slot *a = &plain.plan->slots[i], *b = ht_plan_slot(traced_run.plan, a->name);
        assert_non_null(b);
        if (memcmp(ht_executor_host(plain.executor, a->place), ht_executor_host(traced_run.executor, b->place),
                   (size_t)ht_type_bytes(&a->type)) != 0)
            fail_msg("%s differs", a->name);
        compared += a->kind == HT_SLOT_STATE;
    }
    assert_true(compared > 10);
    stop(&plain);
    stop(&traced_run);
}

static void replay__shows_every_result_with_its_names(void **state)
{
    (void)state;
    traced w = start(false, false);
    size_t segment = (size_t)ht_plan_segment_find(w.plan, "micro_first"), results = 0;
    for (size_t i = 0; i < w.plan->segments[segment].instr_count; i++)
        results += w.plan->segments[segment].instrs[i].call->n_out;
    seen s = {.w = &w};
    context_must(w.ctx, ht_executor_trace(w.executor, segment, 0, see, &s));
    assert_int_equal(s.count, results);
    assert_true(s.named_grads > 5); /* made where they are stored, and called as the state is */
    assert_true(s.loss);
    assert_true(s.backward > 20);
    assert_true(s.with_origin > s.backward / 2);
    stop(&w);
}

static void replay__stops_when_it_has_seen_enough(void **state)
{
    (void)state;
    traced w = start(false, false);
    seen s = {.w = &w, .most = 7};
    context_must(w.ctx, ht_executor_trace(w.executor, (size_t)ht_plan_segment_find(w.plan, "micro_first"), 0, see, &s));
    assert_int_equal(s.count, 7);
    stop(&w);
}

static void replay__refuses_a_plan_that_fuses(void **state)
{
    (void)state;
    traced w = start(true, false);
    seen s = {.w = &w};
    assert_int_equal(ht_executor_trace(w.executor, (size_t)ht_plan_segment_find(w.plan, "micro_first"), 0, see, &s),
                     HT_EINVAL);
    assert_non_null(strstr(ht_context_message(w.ctx), "without fusion"));
    assert_int_equal(s.count, 0);
    stop(&w);
}

/* ---- runs ---- */

typedef struct run_fixture {
    ht_context *ctx;
    ht_config *config;
    ht_run *run;
} run_fixture;

static run_fixture open_run_with(const data_case *c, const char *job, int64_t numerics)
{
    static ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    run_fixture w = {0};
    w.ctx = context_create(0, NULL);
    ht_config_request request = {.path = "job.json",
                                 .text = job,
                                 .length = strlen(job),
                                 .training = true,
                                 .blocks = blocks,
                                 .block_count = ht_job_blocks(blocks)};
    ht_status status = ht_config_read(&w.config, w.ctx, &request);
    if (status != HT_OK && w.config) print_error("%s\n", ht_config_problems(w.config)->list[0].text);
    context_must(w.ctx, status);
    ht_run_request wanted = {
        .config = w.config, .mode = HT_RUN_FORCE, .folder = data_case_path(c, "run"), .numerics = numerics};
    context_must(w.ctx, ht_run_open(&w.run, w.ctx, &wanted));
    return w;
}

static run_fixture open_run(const data_case *c, const char *job)
{
    return open_run_with(c, job, 0);
}

static void close_run(run_fixture *w)
{
    context_must(w->ctx, ht_run_close(w->run));
    ht_config_free(w->config);
    ht_context_free(w->ctx);
}

static char job_text[4096];

/* An LSTM carries state from batch to batch, and drops out. */
static const char *lstm_job(data_case *c, double lr)
{
    static char text[6000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)sprintf(text + length, "%d and %d makes %d.\n", i % 13, i % 7, i % 13 + i % 7);
    data_case_text(c, "sums.txt", text);
    snprintf(job_text, sizeof job_text,
             "{\"model\": {\"type\": \"lstm_lm\", \"hidden\": 16, \"layers\": 1, \"dropout\": 0.5},\n"
             " \"data\": {\"format\": \"text\", \"train\": \"%s\", \"tokenizer\": \"char\", \"length\": 8,\n"
             "           \"order\": \"stream\"},\n"
             " \"train\": {\"steps\": 6, \"batch\": 4, \"accumulate\": 2, \"lr\": %g}}",
             data_case_path(c, "sums.txt"), lr);
    return job_text;
}

/* Regression on the rows 0 .. 7, the last of which is `last`. */
static const char *table_job(data_case *c, const char *last)
{
    char text[512];
    snprintf(text, sizeof text, "a,b,y\n1,2,3\n2,3,5\n3,1,4\n0,1,1\n2,2,4\n4,1,5\n1,1,2\n%s\n", last);
    data_case_text(c, "t.csv", text);
    snprintf(job_text, sizeof job_text,
             "{\"model\": {\"type\": \"mlp\", \"hidden\": [8]},\n"
             " \"data\": {\"format\": \"table\", \"train\": \"%s\", \"validation_share\": 0,\n"
             "           \"normalize\": false},\n"
             " \"train\": {\"task\": \"regression\", \"steps\": 4, \"batch\": 8, \"accumulate\": 2, \"lr\": 0.01}}",
             data_case_path(c, "t.csv"));
    return job_text;
}

typedef struct loss_of {
    const ht_replay *replay;
    double sum[2];
} loss_of;

static bool add_loss(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    loss_of *l = arg;
    if (result == 0 && instr->value && strcmp(instr->value, "loss_sum") == 0)
        ht_trace_load(type, data, 0, 1, &l->sum[ht_replay_micro(l->replay)]);
    return true;
}

/* The mean loss of a replayed step, as a step reports it. */
static double replayed_loss(run_fixture *w, ht_replay *replay, int64_t step, double counted)
{
    loss_of l = {.replay = replay};
    context_must(w->ctx, ht_replay_take(replay, step));
    context_must(w->ctx, ht_replay_step(replay, step, -1, true, add_loss, &l));
    return (l.sum[0] + l.sum[1]) / counted;
}

static void replay__of_the_next_step_has_its_bits(void **state)
{
    data_case *c = *state;
    run_fixture w = open_run(c, lstm_job(c, 0.01));
    ht_replay *replay;
    context_must(w.ctx, ht_replay_of_run(&replay, w.run));
    for (int64_t step = 1; step <= 4; step++) {
        ht_step_report report;
        bool dropped;
        double expected = replayed_loss(&w, replay, step, 4 * 8);
        context_must(w.ctx, ht_run_step(w.run, &report, &dropped));
        assert_true(expected == report.loss);
    }
    ht_replay_free(replay);
    close_run(&w);
}

/* With a rate of zero and nothing carried, a step that was made can be had again. */
static void replay__of_a_step_that_was_made_has_its_batch_and_its_random_numbers(void **state)
{
    data_case *c = *state;
    char *job = strdup(lstm_job(c, 0)), *at = strstr(job, "\"dropout\": 0.5");
    assert_non_null(at);
    char own[4096];
    snprintf(own, sizeof own, "%.*s\"carry\": false, %s", (int)(at - job), job, at);
    free(job);
    run_fixture w = open_run(c, own);
    ht_replay *replay;
    ht_step_report reports[4];
    bool dropped;
    for (int i = 0; i < 4; i++) context_must(w.ctx, ht_run_step(w.run, &reports[i], &dropped));
    context_must(w.ctx, ht_replay_of_run(&replay, w.run));
    for (int i = 3; i >= 0; i--) assert_true(replayed_loss(&w, replay, i + 1, 4 * 8) == reports[i].loss);
    assert_true(reports[0].loss != reports[1].loss);
    ht_replay_free(replay);
    close_run(&w);
}

static void expect_line(ht_text *line, const char *const *parts)
{
    assert_false(line->failed);
    assert_null(strchr(line->data, '\n'));
    for (; *parts; parts++)
        if (!strstr(line->data, *parts)) fail_msg("'%s' is not in: %s", *parts, line->data);
    ht_text_free(line);
}

static void nonfinite__a_broken_parameter_is_named(void **state)
{
    data_case *c = *state;
    run_fixture w = open_run(c, table_job(c, "3,3,6"));
    ht_session *session = ht_run_session(w.run);
    ht_step_report report;
    bool dropped;
    ht_text line = {0};
    context_must(w.ctx, ht_run_step(w.run, &report, &dropped));
    assert_false(report.skipped);
    context_must(w.ctx, ht_first_nonfinite(w.run, 1, &line, NULL));
    expect_line(&line, (const char *const[]){"step 1 was replayed, and every value in it was finite", NULL});
    double values[16];
    context_must(w.ctx, ht_session_read_f64(session, "layers.0.weight", values, 16));
    values[5] = INFINITY;
    context_must(w.ctx, ht_session_write_f64(session, "layers.0.weight", values, 16));
    context_must(w.ctx, ht_run_step(w.run, &report, &dropped));
    assert_true(report.skipped);
    context_must(w.ctx, ht_first_nonfinite(w.run, 2, &line, NULL));
    expect_line(&line, (const char *const[]){"the result of matmul at layers.0", "(fwd)", "in micro-batch 1 of 2",
                                             "4 inf and 0 NaN of 32 elements", "layers.0.weight, 1 inf and 0 NaN of 16",
                                             NULL});
    close_run(&w);
}

static void nonfinite__a_batch_that_overflows_is_found_in_its_micro_batch(void **state)
{
    data_case *c = *state;
    run_fixture w = open_run(c, table_job(c, "1e20,3,6"));
    ht_step_report report;
    bool dropped;
    ht_text line = {0};
    context_must(w.ctx, ht_run_step(w.run, &report, &dropped));
    assert_true(report.skipped);
    context_must(w.ctx, ht_first_nonfinite(w.run, 1, &line, NULL));
    expect_line(&line, (const char *const[]){"in micro-batch 2 of 2", "1 inf and 0 NaN", NULL});
    close_run(&w);
}

/* ---- numerics ---- */

/* The record of one gradient in the last line of numerics.jsonl. */
static const ht_json *find_record(run_fixture *w, ht_arena *arena, const char *path, const char *name)
{
    char *text, *line;
    size_t length;
    const ht_json *root;
    context_must(w->ctx, ht_read_file(w->ctx, &text, &length, path));
    assert_int_equal(text[length - 1], '\n');
    text[length - 1] = '\0';
    line = strrchr(text, '\n');
    assert_non_null(line);
    context_must(w->ctx, ht_json_parse(w->ctx, arena, path, line + 1, strlen(line + 1), &root));
    free(text);
    for (const ht_json *t = ht_json_get(root, "tensors")->child; t; t = t->next) {
        const ht_json *is = ht_json_get(t, "name");
        if (is->kind == HT_JSON_STRING && strcmp(is->text, name) == 0) return t;
    }
    fail_msg("%s is not in %s", name, path);
    return NULL;
}

static double share(const ht_json *record, const char *name)
{
    double value;
    assert_true(ht_json_as_number(ht_json_get(record, name), &value));
    return value;
}

static void numerics__count_the_exponents_of_the_gradient(void **state)
{
    data_case *c = *state;
    char job[4096];
    snprintf(job, sizeof job, "%s", table_job(c, "1e-9,3e4,6e4"));
    char *steps = strstr(job, "\"steps\": 4"), *accumulate = strstr(job, "\"accumulate\": 2");
    assert_true(steps && accumulate);
    steps[9] = '1';
    accumulate[14] = '1';
    run_fixture w = open_run_with(c, job, 100);
    bool stopped;
    context_must(w.ctx, ht_run_train(w.run, &stopped));
    static const char *const names[] = {"layers.0.weight", "layers.1.weight", "layers.0.bias"};
    static const size_t sizes[] = {16, 8, 8};
    ht_arena *arena = ht_arena_create();
    for (int k = 0; k < 3; k++) {
        char name[64];
        double grad[16], max = 0;
        snprintf(name, sizeof name, "%s.grad", names[k]);
        context_must(w.ctx, ht_session_read_f64(ht_run_session(w.run), name, grad, sizes[k]));
        const ht_json *record = find_record(&w, arena, data_case_path(c, "run/numerics.jsonl"), name);
        const ht_json *view = ht_json_get(record, "unscaled");
        size_t kinds[5] = {0}; /* as f16 would have them */
        int64_t bins[64] = {0}, lowest = (int64_t)share(view, "lowest"), counted = 0;
        for (size_t i = 0; i < sizes[k]; i++) {
            double x = fabs(grad[i]), half = fabs((double)ht_f16_to_f32(ht_f16_from_f64(x)));
            kinds[x == 0 ? 0 : half == 0 ? 1 : x < 0x1p-14 ? 2 : x <= 65504 ? 3 : 4]++;
            max = fmax(max, x);
            if (x > 0) bins[ilogb(x) - lowest]++;
        }
        static const char *const shares[] = {"zero", "flushed", "subnormal", "normal", "above"};
        for (int i = 0; i < 5; i++)
            assert_true(share(i ? view : record, shares[i]) == (double)kinds[i] / (double)sizes[k]);
        assert_true(share(view, "max") == max);
        assert_true(share(record, "elements") == (double)sizes[k]);
        size_t at = 0;
        for (const ht_json *count = ht_json_get(view, "counts")->child; count; count = count->next, at++) {
            assert_int_equal(count->integer, bins[at]);
            counted += count->integer;
        }
        assert_int_equal(counted, sizes[k] - kinds[0]);
        assert_null(ht_json_get(record, "scaled")); /* the loss is not scaled */
    }
    ht_arena_free(arena);
    close_run(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replay__gives_the_bits_of_a_fused_run),
        cmocka_unit_test(replay__shows_every_result_with_its_names),
        cmocka_unit_test(replay__stops_when_it_has_seen_enough),
        cmocka_unit_test(replay__refuses_a_plan_that_fuses),
        cmocka_unit_test_setup_teardown(replay__of_the_next_step_has_its_bits, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(replay__of_a_step_that_was_made_has_its_batch_and_its_random_numbers,
                                        data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(nonfinite__a_broken_parameter_is_named, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(numerics__count_the_exponents_of_the_gradient, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(nonfinite__a_batch_that_overflows_is_found_in_its_micro_batch, data_case_begin,
                                        data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
