/* halftone train and the signals that stop it: a snapshot, exit status 3, and after a resume the same bits. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "run_process.h"

enum { STOPPED = 3, MOMENTS = 5, LONG_MOMENTS = 50 };
static const int numbers[] = {SIGHUP, SIGTERM, SIGINT, SIGUSR1, SIGPIPE};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static void train_whole(data_case *c)
{
    run_write_job(c);
    expect(c, "\"$H\" train job.json --set train.output=whole", 0, "step 60 of 60");
}

/* Long enough that a signal does not come too late where many share the machine. */
#define LONG_RUN "train long.json"

static void train_long(data_case *c)
{
    run_write_job(c);
    expect(c, "sed 's/\"steps\": 60/\"steps\": 600/; s/\"eval_every\": 7, /\"eval_every\": 99, /' job.json > long.json",
           0, "");
    expect(c, "\"$H\" " LONG_RUN " --set train.output=whole --set train.snapshot_every=0", 0, "step 600 of 600");
}

static void signals__each_stops_with_a_snapshot_and_status_3(void **state)
{
    data_case *c = *state;
    train_long(c);
    for (int i = 0; i < NUMBERS; i++) {
        run_process p = run_begin(c, 1, LONG_RUN " --resume --set train.snapshot_every=0");
        assert_true(run_wait_for_step(&p, 5 * i + 3));
        kill(p.process, numbers[i]);
        assert_int_equal(run_end(&p), STOPPED);
        expect(c, "tail -n 4 notes", 0, "with a snapshot");
    }
    expect(c, "\"$H\" " LONG_RUN " --resume", 0, "step 600 of 600");
    run_expect_the_same(c);
}

static void signals__a_reader_that_leaves_stops_the_run(void **state)
{
    data_case *c = *state;
    train_long(c);
    expect(c, "(\"$H\" " LONG_RUN "; echo $? > status) | head -n 1", 0, "step 1 of 600");
    expect(c, "cat status; ls run/snapshots", 0, "3\nstep-");
    expect(c, "\"$H\" " LONG_RUN " --resume", 0, "step 600 of 600");
    run_expect_the_same(c);
    /* All steps are made: there is nothing that was stopped. */
    expect(c, "(\"$H\" " LONG_RUN " --resume; echo $? > status) | head -c 0; cat status", 0, "0\n");
}

static void signals__nohup_keeps_its_promise(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c,
           "mkfifo lines; (trap '' HUP; exec \"$H\" train job.json) > lines & p=$!; exec 3< lines; "
           "for i in 1 2 3 4 5; do read line <&3; done; kill -HUP $p; cat <&3; wait $p; echo ended $?",
           0, "ended 0\n");
}

/* Also while it starts, evaluates or writes a snapshot. Before its handlers are there a process ends by the signal. */
static void signals__resume_gives_the_same_bits_at_random_moments(void **state)
{
    data_case *c = *state;
    int wanted = getenv("HALFTONE_LONG") ? LONG_MOMENTS : MOMENTS, stops = 0;
    ht_stream rng = {.seed = (uint64_t)getpid(), .step = (uint64_t)time(NULL)};
    struct timespec start, now;
    print_message("random numbers of %d, %lld\n", (int)getpid(), (long long)rng.step);
    clock_gettime(CLOCK_MONOTONIC, &start);
    train_whole(c);
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
    for (uint64_t turn = 0; stops < wanted; turn++) {
        int number = numbers[turn % NUMBERS];
        run_process p = run_begin(c, 1 + (int)(turn % 2), "train job.json --resume");
        run_sleep(ht_stream_uniform(&rng, turn) * seconds / 2);
        if (number == SIGPIPE && turn % 2) {
            fclose(p.lines); /* the next line finds no reader */
            p.lines = NULL;
        } else {
            kill(p.process, number);
        }
        int status = run_end(&p);
        if (status != 0 && status != STOPPED && status != -number) fail_msg("signal %d: ended with %d", number, status);
        stops += status != 0;
        if (status != 0) continue;
        run_expect_the_same(c);
        expect(c, "rm -rf run", 0, "");
    }
    expect(c, "\"$H\" train job.json --resume", 0, "");
    run_expect_the_same(c);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(signals__each_stops_with_a_snapshot_and_status_3),
        CASE(signals__a_reader_that_leaves_stops_the_run),
        CASE(signals__nohup_keeps_its_promise),
        CASE(signals__resume_gives_the_same_bits_at_random_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
