/* halftone train, stopped and resumed in every way: the last snapshot and the records are those of a run that nobody
 * disturbed, byte for byte. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "run_process.h"

enum { KILLS = 20, LONG_KILLS = 200 };

/* ---- jobs ---- */

static void write_files(data_case *c)
{
    enum { IMAGES = 90, SIDE = 8 };
    static const char *const words[][2] = {{"one", "un"}, {"two", "deux"}, {"cat", "chat"}, {"dog", "chien"}};
    static char text[9000], pairs[12000];
    static unsigned char images[16 + IMAGES * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, IMAGES,
                                                              0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)snprintf(text + length, 64, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
    length = 0;
    for (int i = 0; i < 120; i++) {
        for (int side = 0; side < 2; side++) {
            for (int k = 0; k <= i % 5; k++)
                length += (size_t)snprintf(pairs + length, 16, "%s ", words[(i / 5 + k * 3) % 4][side]);
            length += (size_t)snprintf(pairs + length, 16, "%d%c", i, side ? '\n' : '\t');
        }
    }
    data_case_text(c, "pairs.tsv", pairs);
    for (int i = 0; i < IMAGES; i++) {
        labels[8 + i] = (unsigned char)(i % 3);
        for (int p = 0; p < SIDE * SIDE; p++)
            images[16 + i * SIDE * SIDE + p] = (unsigned char)(i % 3 * 60 + i * p % 60);
    }
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
}

static const char *const jobs[] = {
    /* Windows anywhere, dropout, a schedule, micro-batches. */
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
    " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"length\": 16, \"prefetch\": true},\n"
    " \"train\": {\"steps\": 60, \"batch\": 8, \"accumulate\": 2, \"lr\": 3e-3, \"schedule\": \"cosine\", \"clip\": "
    "1.0,\n"
    "            \"eval_every\": 7, \"log_every\": 1, \"snapshot_every\": 4}}\n",
    /* A text that goes on from batch to batch, and a state that goes with it. */
    "{\"model\": {\"type\": \"lstm_lm\", \"hidden\": 16, \"layers\": 2, \"dropout\": 0.2},\n"
    " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"length\": 8, \"order\": \"stream\"},\n"
    " \"train\": {\"steps\": 60, \"batch\": 4, \"lr\": 3e-3, \"eval_every\": 9, \"log_every\": 1,\n"
    "            \"snapshot_every\": 6}}\n",
    /* Batches of several shapes, shuffled anew in each epoch. */
    "{\"model\": {\"type\": \"seq2seq\", \"hidden\": 16, \"layers\": 1, \"dropout\": 0.1},\n"
    " \"data\": {\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"minimum_count\": 2, \"buckets\": 3},\n"
    " \"train\": {\"epochs\": 9, \"batch\": 16, \"accumulate\": 2, \"lr\": 0.01, \"eval_every\": 10, \"log_every\": "
    "1,\n"
    "            \"snapshot_every\": 3}}\n",
    /* Running statistics, momentum. */
    "{\"model\": {\"type\": \"sequential\", \"layers\": [{\"type\": \"conv2d\", \"out\": 4, \"padding\": 1},\n"
    "            \"batchnorm\", \"relu\", \"max_pool\", \"flatten\", \"dropout\", \"linear\"]},\n"
    " \"data\": {\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.2},\n"
    " \"train\": {\"epochs\": 8, \"batch\": 9, \"lr\": 0.01, \"optimizer\": \"sgd\", \"eval_every\": 11, "
    "\"log_every\": 1,\n"
    "            \"snapshot_every\": 5}}\n",
};

static void train_whole(data_case *c, const char *job)
{
    write_files(c);
    data_case_text(c, "job.json", job);
    expect(c, "rm -rf whole run; \"$H\" train job.json --set train.output=whole", 0, "step ");
}

/* ---- the tests ---- */

static void resume__every_kind_of_job_goes_on_as_if_nothing_had_been(void **state)
{
    data_case *c = *state;
    static const int signals[] = {SIGKILL, SIGTERM, SIGHUP, SIGUSR1, SIGINT};
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
        train_whole(c, jobs[j]);
        for (int turn = 0; turn < 5; turn++) {
            run_process l = run_begin(c, 1 + turn % 3, "train job.json --resume");
            if (run_wait_for_step(&l, 7 * turn + 5)) kill(l.process, signals[turn]);
            /* A signal may come too late, where many share the machine. */
            int status = run_end(&l);
            if (status != 0 && status != (signals[turn] == SIGKILL ? -SIGKILL : 3))
                fail_msg("job %zu: life %d ended with %d", j, turn, status);
        }
        expect(c, "OMP_NUM_THREADS=2 \"$H\" train job.json --resume 2>> notes; grep 'goes on' notes; rm notes", 0,
               "goes on after step ");
        run_expect_the_same(c);
    }
}

/* With many micro-batches a signal comes between two of them. The step is dropped, with what its micro-batches did to
 * running statistics or a carried state, and the next life makes it from its beginning. */
static void resume__a_stop_between_micro_batches_drops_the_step(void **state)
{
    data_case *c = *state;
    static const char *const sets[] = {
        "--set train.steps=6 --set train.batch=320 --set train.accumulate=80",
        "--set train.steps=6 --set train.batch=320 --set train.accumulate=80",
        "--set train.steps=6 --set train.epochs=null --set train.batch=640 --set train.accumulate=40",
        "--set train.steps=6 --set train.epochs=null --set train.batch=720 --set train.accumulate=80",
    };
    static const int signals[] = {SIGTERM, SIGUSR1, SIGINT, SIGPIPE};
    for (size_t j = 0; j < sizeof jobs / sizeof jobs[0]; j++) {
        char line[512];
        write_files(c);
        data_case_text(c, "short.json", jobs[j]);
        snprintf(line, sizeof line, "rm -rf whole run; \"$H\" train short.json %s --set train.output=whole", sets[j]);
        expect(c, line, 0, "step 6 of 6");
        for (int turn = 0; turn < 4; turn++) {
            snprintf(line, sizeof line, "train short.json --resume %s", sets[j]);
            run_process l = run_begin(c, 1 + turn % 2, line);
            bool lives = run_wait_for_step(&l, turn + 1);
            run_sleep(0.002); /* into the next step */
            if (lives) kill(l.process, signals[turn]);
            int status = run_end(&l);
            if (status != 0 && status != 3) fail_msg("job %zu: life %d ended with %d", j, turn, status);
        }
        expect(c, "cat notes", 0, "stopped in the middle of step ");
        snprintf(line, sizeof line, "\"$H\" train short.json --resume %s; rm notes", sets[j]);
        expect(c, line, 0, "goes on after step ");
        run_expect_the_same(c);
    }
}

/* At any moment: while it starts, in a step, in a snapshot, while it removes an old one. */
static void resume__survives_kills_at_random_moments(void **state)
{
    data_case *c = *state;
    int wanted = getenv("HALFTONE_LONG") ? LONG_KILLS : KILLS, kills = 0;
    ht_stream rng = {.seed = (uint64_t)getpid(), .step = (uint64_t)time(NULL)};
    struct timespec start, now;
    print_message("random numbers of %d, %lld\n", (int)getpid(), (long long)rng.step);
    train_whole(c, jobs[0]);
    clock_gettime(CLOCK_MONOTONIC, &start);
    expect(c,
           "sed 's/\"snapshot_every\": 4/\"snapshot_every\": 1/' job.json > j && mv j job.json; "
           "rm -rf whole; \"$H\" train job.json --set train.output=whole",
           0, "step 60 of 60");
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
    for (uint64_t turn = 0; kills < wanted; turn++) {
        run_process l = run_begin(c, 1 + (int)(turn % 2), "train job.json --resume");
        run_sleep(ht_stream_uniform(&rng, turn) * seconds / 3);
        kill(l.process, SIGKILL);
        int status = run_end(&l);
        if (status != 0 && status != -SIGKILL) expect(c, "tail -n 3 notes", 0, "no such life should end by itself");
        kills += status == -SIGKILL;
        if (status != 0) continue;
        /* It got to its end before we got to it: that is a run to compare, and the next one begins anew. */
        run_expect_the_same(c);
        expect(c, "rm -rf run", 0, "");
    }
    expect(c, "\"$H\" train job.json --resume", 0, "");
    run_expect_the_same(c);
    print_message("%d kills\n", kills);
}

/* A snapshot that cannot be written ends the run with an error; what was saved before is there to go on from. */
static void resume__after_a_snapshot_that_could_not_be_written(void **state)
{
    data_case *c = *state;
    train_whole(c, jobs[0]);
    expect(c, "mkdir -p run/snapshots; : > run/snapshots/step-00000012.partial; \"$H\" train job.json --resume", 1,
           "no snapshot of step 12: run/snapshots/step-00000012.partial/weights.safetensors: Not a directory");
    expect(c, "ls run/snapshots", 0, "step-00000004\nstep-00000008\nstep-00000012.partial\n");
    expect(c, "rm run/snapshots/step-00000012.partial; ulimit -f 24; \"$H\" train job.json --resume", 1,
           "weights.safetensors: File too large");
    expect(c, "ls run/snapshots", 0, "step-00000004\nstep-00000008\n");
    expect(c, "\"$H\" train job.json --resume", 0, "goes on after step 8");
    run_expect_the_same(c);
}

static void resume__passes_over_snapshots_that_are_incomplete_or_damaged(void **state)
{
    data_case *c = *state;
    train_whole(c, jobs[0]);
    expect(c, "cp -r whole run; rm run/snapshots/step-00000060/optimizer.safetensors; \"$H\" train job.json --resume",
           0, "goes on after step 56");
    run_expect_the_same(c);
    expect(c,
           "printf x | dd of=run/snapshots/step-00000060/weights.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null; "
           "cp -r run damaged; \"$H\" eval run",
           0, "step        56\n");
    expect(c, "\"$H\" eval run", 0, "step-00000060/weights.safetensors: checksum ");
    expect(c, "\"$H\" train job.json --resume", 0, "step-00000060/weights.safetensors: checksum ");
    run_expect_the_same(c);
    expect(c, "rm -rf run; mv damaged run; \"$H\" train job.json --resume", 0, "goes on after step 56");
}

static void resume__never_begins_again_over_snapshots_that_cannot_be_read(void **state)
{
    data_case *c = *state;
    train_whole(c, jobs[0]);
    expect(c,
           "cp -r whole run; for f in run/snapshots/*/weights.safetensors; do printf x | dd of=$f bs=1 seek=3000 "
           "conv=notrunc 2>/dev/null; done; \"$H\" train job.json --resume",
           1, "run/snapshots: no snapshot can be read, of ");
    expect(c, "\"$H\" eval run", 1, "run/snapshots: no snapshot can be read, of ");
    expect(c, "cmp run/metrics.jsonl whole/metrics.jsonl && echo same", 0, "same\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(resume__every_kind_of_job_goes_on_as_if_nothing_had_been),
        CASE(resume__a_stop_between_micro_batches_drops_the_step),
        CASE(resume__survives_kills_at_random_moments),
        CASE(resume__after_a_snapshot_that_could_not_be_written),
        CASE(resume__passes_over_snapshots_that_are_incomplete_or_damaged),
        CASE(resume__never_begins_again_over_snapshots_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
