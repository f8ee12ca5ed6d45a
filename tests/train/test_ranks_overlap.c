/* Exchanges beside computation: with overlap_comm on and off runs have the same bits. What ranks say of their exchanges, in
 * metrics.jsonl and in lines of their own. */
#include "rank_runs.h"
#include "tiny_data.h"

enum { STEPS = 6, STAGES = RANK_STAGES };

static const rank_case table = {"regression", "\"type\": \"mlp\", \"hidden\": [24, 24], \"dropout\": 0.1",
                                "\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0",
                                ", \"task\": \"regression\""};

/* The same snapshots, with messages that take their time in the one that does not wait for them. */
static void expect_same_bits(const data_case *c, const char *options)
{
    char line[1024];
    snprintf(line, sizeof line,
             "HALFTONE_COMM_DELAY_US=0..300 \"$H\" train job.json --set train.output=beside --ranks 2 --force %s",
             options);
    expect(c, line, 0, "step 6 of 6");
    snprintf(line, sizeof line,
             "\"$H\" train job.json --set train.output=waits --ranks 2 --force --set "
             "engine.zero_optimization.overlap_comm=false %s",
             options);
    expect(c, line, 0, "step 6 of 6");
    expect(c,
           "cmp beside/snapshots/step-*6/weights.safetensors waits/snapshots/step-*6/weights.safetensors && "
           "cmp beside/snapshots/step-*6/optimizer.safetensors waits/snapshots/step-*6/optimizer.safetensors",
           0, "");
}

static void check_modes(const data_case *c, const char *precision)
{
    for (int stage = 0; stage <= STAGES; stage++)
        for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
            char options[512];
            snprintf(options, sizeof options,
                     "--set train.precision=%s --set engine.zero_optimization.stage=%d --set train.accumulate=%d "
                     "--set engine.zero_optimization.reduce_bucket_size=700 " RANK_ALL_CUT,
                     precision, stage, accumulate);
            expect_same_bits(c, options);
        }
}

static void overlap__keeps_the_bits(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, STEPS);
    check_modes(c, "fp32");
    check_modes(c, "bf16");
}

static void overlap__keeps_the_bits_of_steps_that_are_skipped(void **state)
{
    data_case *c = *state;
    double skipped[STEPS], sum = 0;
    rank_write_table(c, true);
    rank_write_job(c, &table, STEPS);
    check_modes(c, "fp16");
    rank_read_numbers(c, "beside", "skipped", STEPS, skipped);
    for (int i = 0; i < STEPS; i++) sum += skipped[i];
    assert_true(sum > 0 && sum < STEPS);
}

/* With layers that ranks share, exchanges of two groups are on the way at once. */
static void overlap__keeps_the_bits_with_tensor_parallel(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, STEPS);
    for (int stage = 0; stage <= STAGES; stage++) {
        char line[512];
        for (int on = 0; on < 2; on++) {
            snprintf(line, sizeof line,
                     "--force --set halftone.parallel.tensor=2 --set engine.zero_optimization.stage=%d --set "
                     "engine.zero_optimization.reduce_bucket_size=700 --set "
                     "engine.zero_optimization.overlap_comm=%s " RANK_ALL_CUT,
                     stage, on ? "true" : "false");
            rank_train(c, on ? "beside" : "waits", 4, line);
        }
        expect(c, "cmp beside/snapshots/step-*6/weights.safetensors waits/snapshots/step-*6/weights.safetensors", 0,
               "");
    }
}

/* ---- what is told ---- */

static void overlap__is_told_of_every_step(void **state)
{
    data_case *c = *state;
    double ms[STEPS], bytes[STEPS], share[STEPS];
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, STEPS);
    for (int stage = 0; stage <= STAGES; stage++) {
        char line[512];
        snprintf(line, sizeof line,
                 "HALFTONE_COMM_DELAY_US=200 \"$H\" train job.json --force --ranks 2 --set "
                 "engine.zero_optimization.stage=%d " RANK_ALL_CUT,
                 stage);
        expect(c, line, 0, "halftone: ranks exchanged for ");
        rank_read_numbers(c, "run", "exchange_ms", STEPS, ms);
        rank_read_numbers(c, "run", "exchange_bytes", STEPS, bytes);
        rank_read_numbers(c, "run", "hidden_share", STEPS, share);
        for (int i = 0; i < STEPS; i++) {
            assert_true(ms[i] >= 0.2); /* of one message at least */
            assert_true(share[i] >= 0 && share[i] <= 1);
            assert_true(bytes[i] > 0);
            if (stage == 0) assert_true(bytes[i] == bytes[0]); /* later ones leave gathers to the next step */
        }
    }
    expect(c, "\"$H\" train job.json --force && ! grep exchange run/metrics.jsonl && echo alone", 0, "alone");
}

static void ranks__speak_when_they_are_asked_to(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, 2);
    expect(c, "\"$H\" train job.json --force --ranks 3 --log-ranks 2 > log 2>&1; grep -c '^rank 2: step' log", 0,
           "2\n");
    expect(c, "grep -c '^rank 1: ' log", 1, "0\n");
    expect(c, "grep -c '^step ' log", 0, "2\n");
    expect(c, "\"$H\" train job.json --force --ranks 3 --log-ranks all > log 2>&1; grep -c '^rank [12]: step' log", 0,
           "4\n");
    expect(c, "grep 'halftone: rank 1: ' log", 0, "ranks exchanged");
    expect(c, "\"$H\" train job.json --force --ranks 2 --log-ranks 2", 2, "there is no rank 2 of 2");
    expect(c, "\"$H\" train job.json --force --ranks 2 --log-ranks 1,x", 2, "neither all nor numbers of ranks");
}

/* ---- ranks that differ ---- */

static void ranks__compute_with_what_all_of_them_have(void **state)
{
    static const char *const flavours[] = {"openmpi", "mpich"};
    data_case *c = *state;
    int tried = 0;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, 4);
    expect(c, "HALFTONE_ISA=portable \"$H\" train job.json --force --ranks 2 --set train.output=least", 0, "step 4");
    for (int i = 0; i < 2; i++) {
        char line[1024];
        if (!rank_has_mpi(c, flavours[i])) continue;
        tried++;
        /* The second process alone is limited. */
        snprintf(
            line, sizeof line,
            "rm -rf run; %s sh -c 'test \"${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\" = 0 || export HALFTONE_ISA=portable; "
            "exec \"$0\" train job.json' \"$H\"",
            rank_mpirun(flavours[i], 2));
        expect(c, line, 0, "ranks have different instruction sets: all compute with those of rank 1, portable");
        expect(c, "cmp run/snapshots/step-*4/weights.safetensors least/snapshots/step-*4/weights.safetensors", 0, "");
        expect(c, "grep '\"isa\"' run/target.json", 0, "portable");
    }
    if (!tried) skip();
}

/* ---- keys ---- */

static void ranks__say_what_changes_nothing(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, 1);
    expect(c, "\"$H\" check job.json --set halftone.parallel.sequence=true", 0, "so it changes nothing");
    expect(c, "\"$H\" check job.json --set halftone.device=cpu --set halftone.tf32=true", 0,
           "halftone.tf32: this is for GPUs: on a processor it changes nothing");
    expect(c, "\"$H\" check job.json --set halftone.device=cpu --set halftone.tf32_parts=true", 0,
           "halftone.tf32_parts: this is for GPUs");
    expect(c, "\"$H\" check job.json --set halftone.device=cpu --set halftone.deterministic=false", 0,
           "halftone.deterministic: this is for GPUs");
    expect(c,
           "\"$H\" check job.json --set halftone.device=cpu --set halftone.deterministic=true > log 2>&1; "
           "grep -c 'for GPUs' log",
           1, "0\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(overlap__keeps_the_bits),
        CASE(overlap__keeps_the_bits_of_steps_that_are_skipped),
        CASE(overlap__keeps_the_bits_with_tensor_parallel),
        CASE(overlap__is_told_of_every_step),
        CASE(ranks__speak_when_they_are_asked_to),
        CASE(ranks__compute_with_what_all_of_them_have),
        CASE(ranks__say_what_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
