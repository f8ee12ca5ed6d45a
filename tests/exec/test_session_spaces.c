/* Sessions of graphs with state in host memory: the bits of the same graph without copies, in every precision and with
 * every optimizer, on the CPU and beside an accelerator. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session_fixture.h"

enum { STEPS = 5, BATCH = 4, WIDTH = 6, CLASSES = 3 };

/* A small network whose weights lie in main. */
static const char in_main[] = "state %w f32[6,6] heading=parameters init=normal(0,0.5) trained\n"
                              "state %b f32[6] heading=parameters init=constant(0.1) trained\n"
                              "state %v f32[6,3] heading=parameters init=uniform(-1,1) trained\n"
                              "state %seen f32[] heading=statistics init=constant(1)\n"
                              "segment forward (%x f32[4,6], %label i32[4]) -> (loss=%loss) {\n"
                              "  %h = matmul f32[4,6] (%x, %w)\n"
                              "  %bb = expand f32[4,6] (%b)\n"
                              "  %p = add f32[4,6] (%h, %bb)\n"
                              "  %a = tanh f32[4,6] (%p)\n"
                              "  %y = matmul f32[4,3] (%a, %v)\n"
                              "  %loss, %lse = cross_entropy f32[], f32[4] (%y, %label)\n"
                              "  %n = add f32[] (%seen, %loss)\n"
                              "  store %seen = %n\n"
                              "}\n";

/* The same with weights and a statistic in host memory: a copy in two parts beside other work, and copies at once. */
static const char in_host[] = "state %w f32[6,6]@host heading=parameters init=normal(0,0.5) trained\n"
                              "state %b f32[6]@host heading=parameters init=constant(0.1) trained\n"
                              "state %v f32[6,3] heading=parameters init=uniform(-1,1) trained\n"
                              "state %seen f32[]@host heading=statistics init=constant(1)\n"
                              "segment forward (%x f32[4,6], %label i32[4]) -> (loss=%loss) {\n"
                              "  %b.start = copy_start f32[6] (%b)\n"
                              "  %w.main = copy f32[6,6] (%w)\n"
                              "  %h = matmul f32[4,6] (%x, %w.main)\n"
                              "  %b.main = copy_done f32[6] (%b.start, %b)\n"
                              "  %bb = expand f32[4,6] (%b.main)\n"
                              "  %p = add f32[4,6] (%h, %bb)\n"
                              "  %a = tanh f32[4,6] (%p)\n"
                              "  %y = matmul f32[4,3] (%a, %v)\n"
                              "  %loss, %lse = cross_entropy f32[], f32[4] (%y, %label)\n"
                              "  %loss.start = copy_start f32[]@host (%loss)\n"
                              "  %loss.host = copy_done f32[]@host (%loss.start, %loss)\n"
                              "  %n = add f32[]@host (%seen, %loss.host)\n"
                              "  store %seen = %n\n"
                              "}\n";

typedef struct outcome {
    float loss[STEPS];
    double w[WIDTH * WIDTH], b[WIDTH], v[WIDTH * CLASSES], seen;
} outcome;

static void fill_batch(session_fixture *f, int step)
{
    double x[BATCH * WIDTH], label[BATCH];
    for (int i = 0; i < BATCH * WIDTH; i++) x[i] = 0.25 * ((i * 7 + step * 3) % 11) - 1;
    for (int i = 0; i < BATCH; i++) label[i] = (i + step) % CLASSES;
    must(f, ht_session_write_f64(f->s, "x", x, BATCH * WIDTH));
    must(f, ht_session_write_f64(f->s, "label", label, BATCH));
}

static ht_status same_batch(void *arg, ht_session *session, int64_t index)
{
    (void)arg;
    (void)session;
    (void)index;
    return HT_OK;
}

static void train(const char *text, const ht_train_opts *training, const ht_plan_opts *planning, outcome *out)
{
    session_fixture f = {.ctx = context_create(2, NULL)};
    must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
    must(&f, ht_graph_train(f.g, training));
    session_plan(&f, planning, 7);
    memset(out, 0, sizeof *out);
    for (int step = 0; step < STEPS; step++) {
        double loss;
        fill_batch(&f, step);
        must(&f, ht_session_run_batches(f.s, "train", same_batch, NULL));
        must(&f, ht_session_read_f64(f.s, "loss", &loss, 1));
        out->loss[step] = (float)loss;
    }
    must(&f, ht_session_read_f64(f.s, "w", out->w, WIDTH * WIDTH));
    must(&f, ht_session_read_f64(f.s, "b", out->b, WIDTH));
    must(&f, ht_session_read_f64(f.s, "v", out->v, WIDTH * CLASSES));
    must(&f, ht_session_read_f64(f.s, "seen", &out->seen, 1));
    session_end(&f);
}

static void compare(const ht_train_opts *training, const ht_plan_opts *planning, const char *what)
{
    outcome main, host;
    train(in_main, training, planning, &main);
    train(in_host, training, planning, &host);
    if (memcmp(&main, &host, sizeof main) != 0)
        fail_msg("%s: loss %.9g with weights in main, %.9g in host", what, (double)main.loss[STEPS - 1],
                 (double)host.loss[STEPS - 1]);
    if (main.loss[0] == main.loss[STEPS - 1]) fail_msg("%s: nothing was learned", what);
}

static void training__of_weights_in_host_memory_has_the_bits_of_main(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16", "fp16", "fp64"};
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        ht_train_opts training = HT_TRAIN_OPTS;
        ht_plan_opts planning = HT_PLAN_OPTS;
        training.accumulate = 2;
        planning.precision = precisions[i];
        planning.canaries = i % 2;
        compare(&training, &planning, precisions[i]);
    }
}

/* The norm of all gradients is a sum over groups and may round otherwise with two: so nothing is clipped here. */
static void every_optimizer__computes_where_the_state_lies(void **state)
{
    (void)state;
    static const char *const names[] = {"sgd", "adam", "adamw", "adamw_hf", "adagrad", "lion", "lamb", "muon"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ht_train_opts training = HT_TRAIN_OPTS;
        ht_plan_opts planning = HT_PLAN_OPTS;
        training.optimizer = names[i];
        training.lr = 0.02;
        training.momentum = strcmp(names[i], "sgd") == 0 || strcmp(names[i], "muon") == 0 ? 0.9 : 0;
        compare(&training, &planning, names[i]);
    }
}

static void parameters_in_half__round_by_chance_where_they_lie(void **state)
{
    (void)state;
    static const ht_train_setting settings[] = {{"masters", "0"}, {"rounding", "stochastic"}};
    ht_train_opts training = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    training.lr = 0.05;
    planning.precision = "bf16";
    planning.settings = settings;
    planning.setting_count = 2;
    /* A draw belongs to an element of its flat group, and the groups are others: not the bits of main. */
    outcome host, again;
    train(in_host, &training, &planning, &host);
    train(in_host, &training, &planning, &again);
    assert_memory_equal(&host, &again, sizeof host);
    assert_true(host.loss[STEPS - 1] != host.loss[0]);
}

static void a_plan__counts_bytes_in_the_space_of_the_state(void **state)
{
    (void)state;
    session_fixture f = {.ctx = context_create(1, NULL)};
    must(&f, ht_graph_parse(&f.g, f.ctx, "text", in_host, strlen(in_host)));
    session_plan(&f, NULL, 1);
    assert_true(f.plan->area_bytes[HT_SPACE_HOST][HT_AREA_STATE] >= (int64_t)sizeof(float) * (36 + 6 + 1));
    assert_int_equal(ht_plan_slot(f.plan, "w")->place.space, HT_SPACE_HOST);
    assert_int_equal(ht_plan_slot(f.plan, "v")->place.space, HT_SPACE_MAIN);
    session_end(&f);
}

/* ---- beside an accelerator ---- */

/* Queues of the device, of the host and for copies, with delays of many kinds. */
static void an_accelerator__has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    int seeds = getenv("HALFTONE_LONG") ? 20 : 2;
    for (int i = 0; i < 3 * seeds; i++) {
        char seed[16];
        ht_train_opts training = HT_TRAIN_OPTS;
        ht_plan_opts planning = HT_PLAN_OPTS;
        outcome cpu, main, host;
        snprintf(seed, sizeof seed, "%d", i);
        setenv("HALFTONE_FAKE_SEED", seed, 1);
        planning.precision = precisions[i % 3];
        planning.canaries = i % 2;
        train(in_main, &training, &planning, &cpu);
        planning.device = "fake";
        train(in_main, &training, &planning, &main);
        train(in_host, &training, &planning, &host);
        assert_memory_equal(&cpu, &main, sizeof cpu);
        assert_memory_equal(&cpu, &host, sizeof cpu);
    }
}

static ht_status try_training(session_fixture *f)
{
    double loss;
    HT_TRY(ht_session_create(&f->s, f->plan, NULL));
    for (int step = 0; step < 2; step++) {
        double x[BATCH * WIDTH] = {1}, label[BATCH] = {0};
        HT_TRY(ht_session_write_f64(f->s, "x", x, BATCH * WIDTH));
        HT_TRY(ht_session_write_f64(f->s, "label", label, BATCH));
        HT_TRY(ht_session_run(f->s, "train"));
    }
    return ht_session_read_f64(f->s, "loss", &loss, 1);
}

/* False: the training has no such command. */
static bool fails(const char *kind, int number)
{
    char text[32];
    session_fixture f = {.ctx = context_create(1, NULL)};
    ht_plan_opts planning = HT_PLAN_OPTS;
    planning.device = "fake";
    snprintf(text, sizeof text, "%s:%d", kind, number);
    setenv("HALFTONE_FAKE_FAIL", text, 1);
    must(&f, ht_graph_parse(&f.g, f.ctx, "text", in_host, strlen(in_host)));
    must(&f, ht_graph_train(f.g, NULL));
    must(&f, ht_plan_create(&f.plan, f.g, &planning));
    ht_status status = try_training(&f);
    if (status != HT_OK) {
        assert_int_equal(status, HT_EDEVICE);
        message_has(&f, "device fake: ");
    }
    session_end(&f);
    unsetenv("HALFTONE_FAKE_FAIL");
    return status != HT_OK;
}

/* In the middle of any of its queues, with the others at work: the run tells, and its memory can go. */
static void an_accelerator__that_fails_is_told_of(void **state)
{
    (void)state;
    static const char *const kinds[] = {"alloc", "launch", "copy"};
    for (int i = 0; i < 3; i++) {
        int number = 1, stride = getenv("HALFTONE_LONG") ? 1 : 3;
        while (fails(kinds[i], number)) number += stride;
        if (number == 1) fail_msg("a training has no %s", kinds[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training__of_weights_in_host_memory_has_the_bits_of_main),
        cmocka_unit_test(every_optimizer__computes_where_the_state_lies),
        cmocka_unit_test(parameters_in_half__round_by_chance_where_they_lie),
        cmocka_unit_test(a_plan__counts_bytes_in_the_space_of_the_state),
        cmocka_unit_test(an_accelerator__has_the_bits_of_the_cpu),
        cmocka_unit_test(an_accelerator__that_fails_is_told_of),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
