/* Whole runs on the fake device: the CPU's bits, whatever the delays, in every precision, over stops, resumes and
 * evaluations; at most one synchronisation per step; and a failure of the device ends a run with its reason. */
#include <unistd.h>

#include "train/train.h"

#include "run_case.h"

enum { SEEDS = 2, LONG_SEEDS = 20 };

static void compare_seeds(data_case *c, const char *mode)
{
    char options[256], environment[64];
    run_train(c, "cpu", "", mode);
    for (int seed = 1; seed <= (run_is_long() ? LONG_SEEDS : SEEDS); seed++) {
        snprintf(options, sizeof options, "%s --device fake", mode);
        snprintf(environment, sizeof environment, "HALFTONE_FAKE_SEED=%d OMP_NUM_THREADS=%d", seed, 1 + seed % 3);
        run_train(c, "fake", environment, options);
        run_expect_same(c, "cpu", "fake");
    }
}

static void fake__makes_the_steps_snapshots_and_evaluations_of_the_cpu(void **state)
{
    data_case *c = *state;
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        for (int m = 0; m < RUN_MODES; m++) {
            compare_seeds(c, run_modes[m]);
            if (!strstr(run_modes[m], "dynamic")) continue;
            expect(c, "n=$(grep -c '\"skipped\": true' fake/metrics.jsonl); test $n -ge 1 && echo skips", 0, "skips");
            expect(c, "grep -c '\"skipped\": false' fake/metrics.jsonl", 0, "");
        }
    }
}

static void fake__goes_on_from_the_cpus_snapshot_and_the_cpu_from_its(void **state)
{
    static const char *const devices[] = {"cpu", "fake"};
    data_case *c = *state;
    char line[1024];
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        run_train(c, "whole", "", run_modes[j % RUN_MODES]);
        for (int d = 0; d < 2; d++) {
            /* The same run, cut back to its snapshot of step 2. */
            snprintf(line, sizeof line,
                     "rm -rf half; timeout 600 \"$H\" train job.json --set train.output=half --device %s %s && "
                     "for s in half/snapshots/step-*; do test ${s##*-} -le 2 || rm -r $s; done; "
                     "\"$H\" train job.json --set train.output=half --resume --device %s %s",
                     devices[d], run_modes[j % RUN_MODES], devices[1 - d], run_modes[j % RUN_MODES]);
            expect(c, line, 0, "goes on after step 2,");
            run_expect_same(c, "whole", "half");
        }
    }
}

static void fake__evaluates_and_compares_as_the_cpu_does(void **state)
{
    data_case *c = *state;
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        run_train(c, "run", "", run_modes[j % RUN_MODES]);
        expect(c,
               "for d in cpu fake; do \"$H\" eval run --json --device $d > $d.eval || exit 1; "
               "sed -i -E 's/\"[a-z_]*seconds\": [-+0-9.e]+,? ?//' $d.eval; done; cmp cpu.eval fake.eval && "
               "grep -c loss cpu.eval",
               0, "1\n");
        expect(c, "\"$H\" diff job.json --axis halftone.device=cpu,fake --json | grep -o '\"first_difference\": null'",
               0, "null");
        expect(c,
               "for d in cpu fake; do \"$H\" diff job.json --precision fp32,bf16 --device $d > $d.diff || exit 1; "
               "done; cmp cpu.diff fake.diff && wc -l < cpu.diff",
               0, "");
    }
}

static void fake__translates_as_the_cpu_does(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[1]);
    run_train(c, "run", "", "");
    expect(c,
           "for d in cpu fake; do \"$H\" eval run --bleu 13a --device $d > $d.eval || exit 1; done; "
           "cmp cpu.eval fake.eval && cat cpu.eval",
           0, "bleu ");
}

static void fake__shows_the_numerics_of_the_cpu(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "cpu", "", "--deepspeed dynamic.json --numerics=2");
    run_train(c, "fake", "", "--deepspeed dynamic.json --numerics=2 --device fake");
    run_expect_same(c, "cpu", "fake");
    expect(c, "cmp cpu/numerics.jsonl fake/numerics.jsonl && test -s fake/numerics.jsonl && echo equal", 0, "equal\n");
}

/* The host learns of the last straw one step late, and replays the right step all the same. */
static void fake__tells_of_a_run_that_cannot_go_on_as_the_cpu_does(void **state)
{
    data_case *c = *state;
    for (int j = 0; j < (run_is_long() ? RUN_JOBS : 1); j++) {
        run_case_write(c, &run_jobs[j]);
        expect(c,
               "for d in cpu fake; do rm -rf $d; \"$H\" train job.json --device $d --set train.output=$d "
               "--set train.lr=1e30 --set train.clip=0 --set train.optimizer=sgd --set train.steps=30 "
               "--set train.schedule=constant --set train.eval_every=0 > $d.out 2> $d.notes; test $? = 1 || exit 2; "
               "done; sed -i 's/the CPU\\|cpu\\|fake/device/g' cpu.notes fake.notes; cmp cpu.notes fake.notes && cat "
               "fake.notes",
               0, "the first value that is not finite is");
        expect(c, "for d in cpu fake; do grep -c '\"kind\": \"step\"' $d/metrics.jsonl; done | uniq | wc -l", 0, "1\n");
    }
}

/* ---- synchronisations ---- */

static void fake__synchronises_once_per_step_at_most(void **state)
{
    data_case *c = *state;
    char options[256], line[256];
    for (int accumulate = 1; accumulate <= 4; accumulate *= 4) {
        for (int j = 0; j < RUN_JOBS; j++) {
            run_case_write(c, &run_jobs[j]);
            snprintf(options, sizeof options, "--device fake --set train.accumulate=%d", accumulate);
            run_train(c, "run", "", options);
            snprintf(line, sizeof line,
                     "test $(grep -c '\"syncs\": [01],' run/metrics.jsonl) = %d && "
                     "! grep '\"syncs\": [^01]' run/metrics.jsonl && echo few",
                     run_is_long() ? RUN_LONG_STEPS : RUN_STEPS);
            expect(c, line, 0, "few\n");
        }
    }
}

/* ---- stops ---- */

typedef struct opened_run {
    ht_context *ctx;
    ht_config *config;
    ht_run *run;
} opened_run;

static opened_run open_run(const char *device, const char *output, const atomic_int *stop)
{
    opened_run w = {0};
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    char device_set[64], output_set[64];
    const char *sets[] = {device_set, output_set, "train.accumulate=4"};
    snprintf(device_set, sizeof device_set, "halftone.device=%s", device);
    snprintf(output_set, sizeof output_set, "train.output=%s", output);
    ht_config_request request = {.path = "job.json",
                                 .blocks = blocks,
                                 .block_count = ht_job_blocks(blocks),
                                 .training = true,
                                 .sets = sets,
                                 .set_count = 3};
    assert_int_equal(ht_context_create(&w.ctx, NULL), HT_OK);
    if (ht_config_read(&w.config, w.ctx, &request) != HT_OK) fail_msg("%s", ht_context_message(w.ctx));
    ht_run_request wanted = {.config = w.config, .mode = HT_RUN_NEW, .stop = stop};
    if (ht_run_open(&w.run, w.ctx, &wanted) != HT_OK) fail_msg("%s", ht_context_message(w.ctx));
    return w;
}

static void close_run(opened_run *w)
{
    assert_int_equal(ht_run_close(w->run), HT_OK);
    ht_config_free(w->config);
    ht_context_free(w->ctx);
}

/* The flag is up when the step begins: it is seen behind the first of its micro-batches. */
static void stop_in_third_step(const data_case *c, const char *device)
{
    atomic_int stop = 0;
    bool dropped;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(c->folder), 0);
    opened_run w = open_run(device, device, &stop);
    for (int step = 0; step < 2; step++) {
        assert_int_equal(ht_run_step(w.run, NULL, &dropped), HT_OK);
        assert_false(dropped);
    }
    stop = 1;
    assert_int_equal(ht_run_step(w.run, NULL, &dropped), HT_OK);
    assert_true(dropped);
    assert_int_equal(ht_run_snapshot(w.run), HT_OK);
    close_run(&w);
    assert_int_equal(chdir(before), 0);
}

static void fake__stopped_between_micro_batches_saves_the_cpus_snapshot(void **state)
{
    data_case *c = *state;
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        expect(c, "rm -rf cpu fake whole", 0, "");
        stop_in_third_step(c, "cpu");
        stop_in_third_step(c, "fake");
        run_expect_same(c, "cpu", "fake");
        /* And what was dropped is made as if it never had begun. */
        run_train(c, "whole", "", "--set train.accumulate=4");
        expect(c, "\"$H\" train job.json --set train.output=fake --set train.accumulate=4 --resume --device fake", 0,
               "goes on after step 2,");
        run_expect_same(c, "fake", "whole");
    }
}

static void fake__stops_by_a_signal_with_a_snapshot_to_go_on_from(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c,
           "\"$H\" train job.json --device fake --set train.accumulate=4 --set train.steps=1000000 "
           "--set train.eval_every=0 --set train.snapshot_every=0 --set train.schedule=constant > out 2>&1 & p=$!; "
           "until grep -q 'step 3 of' out; do sleep 0.02; done; kill -TERM $p; wait $p; cat out",
           0, "with a snapshot");
    expect(c,
           "n=$(ls run/snapshots | sed s/step-0*//); \"$H\" train job.json --set train.output=cpu "
           "--set train.accumulate=4 --set train.steps=$n --set train.eval_every=0 --set train.snapshot_every=0 "
           "--set train.schedule=constant > out && for f in run/snapshots/*/*.safetensors; do "
           "cmp $f cpu/${f#run/} || exit 1; done; echo equal",
           0, "equal\n");
}

/* ---- failures ---- */

static const char *failing_run =
    "rm -rf run; HALFTONE_FAKE_SEED=%d HALFTONE_FAKE_FAIL=%s:%d timeout 120 \"$H\" train job.json --device fake "
    "--set train.steps=2 --set train.eval_every=0 --set train.eval_batches=2 --set train.snapshot_every=1";

/* False: the run has no such command, and came to its end. */
static bool fails(const data_case *c, const char *kind, int number)
{
    char line[512], reason[64];
    int status;
    snprintf(line, sizeof line, failing_run, number, kind, number);
    snprintf(reason, sizeof reason, "device fake: %s %d fails", kind, number);
    const char *said = run(c, line, &status);
    if (status == 0 && !strstr(said, reason)) return false;
    if (status != 1 || !strstr(said, reason)) fail_msg("%s: exit status %d: %.2000s", line, status, said);
    return true;
}

/* Every allocation; of launches and copies some, all over the run. */
static void expect_failures(const data_case *c, const char *kind, int stride)
{
    int number = 1;
    while (fails(c, kind, number)) number += stride;
    if (number == 1) fail_msg("a run has no %s", kind);
    /* The last ones, where the next command does not tell of the failure any more. */
    int first = number - stride, last = number;
    while (last - first > 1) {
        int middle = (first + last) / 2;
        *(fails(c, kind, middle) ? &first : &last) = middle;
    }
    for (int i = 1; i <= (run_is_long() ? 60 : 6) && first - i > 0; i++) assert_true(fails(c, kind, first - i));
}

static void fake__ends_a_run_with_the_reason_when_an_allocation_fails(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect_failures(c, "alloc", 1);
}

static void fake__ends_a_run_with_the_reason_when_a_launch_fails(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect_failures(c, "launch", run_is_long() ? 13 : 101);
}

static void fake__ends_a_run_with_the_reason_when_a_copy_fails(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect_failures(c, "copy", run_is_long() ? 1 : 19);
}

/* What was saved before is whole. */
static void fake__leaves_a_run_to_go_on_from_when_it_fails(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "whole", "", "");
    expect(c,
           "for n in 700 800 900 1000 1100 1200; do rm -rf run; HALFTONE_FAKE_FAIL=launch:$n \"$H\" train job.json "
           "--device "
           "fake > out 2>&1; s=$?; test -d run/snapshots && break; done; echo status $s",
           0, "status 1\n");
    expect(c, "\"$H\" train job.json --device fake --resume", 0, "goes on after step ");
    run_expect_same(c, "run", "whole");
}

static void fake__evaluation_with_a_failing_device_has_no_result(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    run_train(c, "run", "", "");
    static const char *const failures[] = {"alloc:2", "launch:3", "copy:3", "copy:30"};
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "HALFTONE_FAKE_FAIL=%s timeout 120 \"$H\" eval run --device fake", failures[i]);
        expect(c, line, 1, "device fake: ");
    }
    expect(c, "HALFTONE_FAKE_FAIL=launch:40 timeout 120 \"$H\" diff job.json --precision fp32,bf16 --device fake", 1,
           "device fake: launch 40 fails");
    expect(c, "HALFTONE_FAKE_FAIL=launch:x \"$H\" eval run --device fake", 2, "HALFTONE_FAKE_FAIL=launch:x: it takes");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(fake__makes_the_steps_snapshots_and_evaluations_of_the_cpu),
        CASE(fake__goes_on_from_the_cpus_snapshot_and_the_cpu_from_its),
        CASE(fake__evaluates_and_compares_as_the_cpu_does),
        CASE(fake__translates_as_the_cpu_does),
        CASE(fake__shows_the_numerics_of_the_cpu),
        CASE(fake__tells_of_a_run_that_cannot_go_on_as_the_cpu_does),
        CASE(fake__synchronises_once_per_step_at_most),
        CASE(fake__stopped_between_micro_batches_saves_the_cpus_snapshot),
        CASE(fake__stops_by_a_signal_with_a_snapshot_to_go_on_from),
        CASE(fake__ends_a_run_with_the_reason_when_an_allocation_fails),
        CASE(fake__ends_a_run_with_the_reason_when_a_launch_fails),
        CASE(fake__ends_a_run_with_the_reason_when_a_copy_fails),
        CASE(fake__leaves_a_run_to_go_on_from_when_it_fails),
        CASE(fake__evaluation_with_a_failing_device_has_no_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
