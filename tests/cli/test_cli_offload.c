/* halftone train with the optimiser's state elsewhere: the bits of a run that keeps it, also across kills, with and
 * without an offload from one life to the next. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "run_process.h"

/* The last snapshot and every loss of "run" are those of "whole". */
static void expect_the_same(const data_case *c)
{
    expect(c,
           "for f in weights optimizer; do cmp whole/snapshots/step-00000060/$f.safetensors "
           "run/snapshots/step-00000060/$f.safetensors || exit 1; done; "
           "for d in whole run; do grep -o '\"loss\":[^,]*' $d/metrics.jsonl > $d.losses; done; "
           "cmp whole.losses run.losses && grep -c . run.losses",
           0, "\n");
}

/* Half precision with overflows: a scale that begins too high. */
#define JOB                                                                                                            \
    "train job.json --set halftone.device=fake --set engine.fp16.enabled=true --set "                                  \
    "engine.fp16.initial_scale_power=24 "                                                                              \
    "--set engine.gradient_clipping=1 "
#define HOST                                                                                                           \
    "--set engine.zero_optimization.offload_optimizer.device=cpu --set engine.zero_optimization.sub_group_size=512 "

static void train_whole(data_case *c)
{
    run_write_job(c);
    expect(c, "sed -i 's/\"clip\": 1.0,//' job.json; \"$H\" " JOB "--set train.output=whole", 0, "skipped 1");
}

/* Lives that end by a signal, each with the state in another place than the one before. */
static void take_turns(data_case *c, const char *const *places, int count)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGKILL, SIGUSR1};
    char line[1024];
    for (int turn = 0; turn < 4; turn++) {
        snprintf(line, sizeof line, JOB "--resume %s", places[turn % count]);
        run_process l = run_begin(c, 1 + turn % 3, line);
        if (run_wait_for_step(&l, 11 * turn + 6)) kill(l.process, signals[turn]);
        int status = run_end(&l);
        if (status != 0 && status != (signals[turn] == SIGKILL ? -SIGKILL : 3))
            fail_msg("life %d ended with %d", turn, status);
    }
    snprintf(line, sizeof line, "\"$H\" " JOB "--resume %s", places[0]);
    expect(c, line, 0, "goes on after step ");
    expect_the_same(c);
}

static void state_in_host_memory__has_the_bits_of_a_run_that_keeps_it(void **state)
{
    data_case *c = *state;
    train_whole(c);
    expect(c, "\"$H\" " JOB HOST, 0,
           "offload: moments and masters lie in host memory, and their update is computed by the processor\n");
    expect_the_same(c);
    expect(c, "rm -rf run", 0, "");
    take_turns(c, (const char *const[]){HOST, "", HOST "--set engine.zero_optimization.offload_optimizer.ratio=0.5"},
               3);
}

#define DISK                                                                                                           \
    "--set engine.zero_optimization.offload_optimizer.device=nvme "                                                    \
    "--set engine.zero_optimization.offload_optimizer.nvme_path=disk --set "                                           \
    "engine.zero_optimization.sub_group_size=512 "

/* On a processor and beside an accelerator. Files have no names, so a life that is killed leaves none. */
static void state_on_a_disk__has_the_bits_of_a_run_that_keeps_it(void **state)
{
    data_case *c = *state;
    train_whole(c);
    expect(c, "mkdir disk; \"$H\" " JOB DISK, 0,
           "offload: moments and masters lie on the disk, in disk, and their update is computed by the processor\n");
    expect_the_same(c);
    expect(c, "rm -rf run; \"$H\" " JOB DISK "--set halftone.device=cpu", 0,
           "offload: moments and masters lie on the disk, in disk\n");
    expect_the_same(c);
    expect(c, "rm -rf run", 0, "");
    take_turns(c, (const char *const[]){DISK, HOST, DISK "--set halftone.device=cpu", ""}, 4);
    expect(c, "ls -A disk | wc -l", 0, "0\n");
}

#define PARAMS                                                                                                         \
    "--set engine.zero_optimization.offload_param.device=%s --set "                                                    \
    "engine.zero_optimization.stage3_param_persistence_threshold=64 "

/* Fetched before each use, in training and evaluation. */
static void parameters_elsewhere__have_the_bits_of_a_run_that_keeps_them(void **state)
{
    data_case *c = *state;
    char host[1024], disk[1024];
    snprintf(host, sizeof host, HOST PARAMS, "cpu");
    snprintf(disk, sizeof disk, DISK PARAMS "--set engine.zero_optimization.offload_param.nvme_path=disk", "nvme");
    train_whole(c);
    expect(c, "mkdir disk", 0, "");
    take_turns(c, (const char *const[]){disk, host, "", host}, 4);
    char line[2048];
    snprintf(line, sizeof line,
             "for o in '' '%s'; do \"$H\" " JOB "--force --set train.steps=3 --numerics=2 $o; mv run/numerics.jsonl "
             "numerics.$((n += 1)); done; cmp numerics.1 numerics.2 && echo the same",
             host);
    expect(c, line, 0, "the same\n");
    snprintf(line, sizeof line, "\"$H\" check job.json --set halftone.device=fake %s", host);
    expect(c, line, 0,
           "offload: parameters of 64 elements and more lie in host memory; they are fetched before each use");
}

/* Of a processor whose state, parameters, gradients and activations lie on a disk: while it starts, in an update whose tail runs in the
 * next step, in a snapshot. */
static void kills_at_random_moments__leave_the_bits_and_no_files(void **state)
{
    data_case *c = *state;
    enum { KILLS = 3, LONG_KILLS = 30 };
    int wanted = getenv("HALFTONE_LONG") ? LONG_KILLS : KILLS, kills = 0;
    ht_stream rng = {.seed = (uint64_t)getpid(), .step = (uint64_t)time(NULL)};
    char line[2048];
    print_message("random numbers of %d, %lld\n", (int)getpid(), (long long)rng.step);
    train_whole(c);
    snprintf(line, sizeof line,
             JOB "--resume --set halftone.device=cpu " DISK PARAMS
                 "--set engine.zero_optimization.offload_param.nvme_path=disk --set halftone.offload_activations=disk "
                 "--set halftone.offload_gradients=disk "
                 "--set halftone.offload_activation_bytes=64 --set train.snapshot_every=2 --set train.keep=3",
             "nvme");
    expect(c, "mkdir disk", 0, "");
    for (uint64_t turn = 0; kills < wanted; turn++) {
        run_process l = run_begin(c, 1 + (int)(turn % 2), line);
        run_sleep(ht_stream_uniform(&rng, turn) * 0.6);
        kill(l.process, SIGKILL);
        int status = run_end(&l);
        if (status != 0 && status != -SIGKILL) expect(c, "tail -n 3 notes", 0, "no such life should end by itself");
        kills += status == -SIGKILL;
        if (status != 0) continue;
        expect_the_same(c);
        expect(c, "rm -rf run", 0, "");
    }
    char last[2100];
    snprintf(last, sizeof last, "\"$H\" %s", line);
    expect(c, last, 0, "");
    expect_the_same(c);
    expect(c, "ls -A disk | wc -l", 0, "0\n");
}

static void a_folder__that_is_not_there_is_named(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c, "\"$H\" train job.json --set halftone.device=cpu " DISK, 2, "disk");
    expect(c, "\"$H\" check job.json --set engine.zero_optimization.offload_optimizer.device=nvme", 2,
           "offload_optimizer.device: \"nvme\" needs a folder");
    expect(c, "\"$H\" check job.json --set halftone.offload_gradients=disk", 2,
           "halftone.offload_gradients: \"disk\" needs a folder");
}

static void a_processor__is_told_that_nothing_moves(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c, "\"$H\" check job.json --set halftone.device=cpu " HOST, 0,
           "offload: the processor computes, so moments and masters lie in host memory already");
    expect(c, "\"$H\" explain job.json --set halftone.device=fake --set train.precision=bf16 " HOST, 0,
           "optimizer@host ");
    expect(c, "\"$H\" check job.json --set halftone.device=cpu --set halftone.offload_gradients=host", 0,
           "gradients lie in host memory already: halftone.offload_gradients changes nothing");
    expect(c, "\"$H\" explain job.json --set halftone.device=fake --set halftone.offload_gradients=host", 0,
           "gradients@host ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(state_in_host_memory__has_the_bits_of_a_run_that_keeps_it, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(state_on_a_disk__has_the_bits_of_a_run_that_keeps_it, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(parameters_elsewhere__have_the_bits_of_a_run_that_keeps_them, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(kills_at_random_moments__leave_the_bits_and_no_files, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(a_folder__that_is_not_there_is_named, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(a_processor__is_told_that_nothing_moves, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
