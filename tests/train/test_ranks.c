/* Runs on several ranks make the steps of one process with the same batch, whatever each rank holds: with dropout and
 * with paddings, which do not count. They stop, resume and fail together. */
#include <math.h>

#include "rank_runs.h"
#include "tiny_data.h"

enum { STEPS = RANK_STEPS, MOST_STEPS = RANK_MOST_STEPS, STAGES = RANK_STAGES };

#define PAIRS "\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"minimum_count\": 2, \"buckets\": 3"
#define TABLE "\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0"

static const rank_case cases[] = {
    {"gpt2", RANK_GPT2, RANK_TEXT, ""},
    {"seq2seq", "\"type\": \"seq2seq\", \"hidden\": 12, \"layers\": 2, \"dropout\": 0.1", PAIRS, ""},
    {"regression", "\"type\": \"mlp\", \"hidden\": [8], \"dropout\": 0.1", TABLE, ", \"task\": \"regression\""},
};
#define ALL_CUT RANK_ALL_CUT
enum { CASES = sizeof cases / sizeof cases[0] };

/* ---- data ---- */

static void write_all(data_case *c)
{
    tiny_text(c);
    tiny_pairs(c);
    rank_write_table(c, false);
}

/* ---- steps ---- */

static void ranks__make_the_steps_of_one_process(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    write_all(c);
    for (int i = 0; i < CASES; i++) {
        double alone[MOST_STEPS];
        rank_write_job(c, &cases[i], steps);
        rank_train(c, "alone", 1, "--force");
        rank_read_numbers(c, "alone", "loss", steps, alone);
        for (int ranks = 2; ranks <= 4; ranks++) {
            rank_train(c, "several", ranks, "--force");
            rank_expect_same_steps(c, cases[i].name, "several", ranks, alone, steps);
        }
        /* Micro-batches of ranks, and exchanges in small buckets. */
        rank_train(c, "several", 3, "--force --set train.accumulate=2");
        rank_expect_same_steps(c, cases[i].name, "several", 3, alone, steps);
        rank_train(c, "several", 2, "--force --set engine.zero_optimization.reduce_bucket_size=100");
        rank_expect_same_steps(c, cases[i].name, "several", 2, alone, steps);
    }
}

static void ranks__make_them_in_every_stage(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    write_all(c);
    for (int i = 0; i < CASES; i++) {
        double alone[MOST_STEPS];
        rank_write_job(c, &cases[i], steps);
        rank_train(c, "alone", 1, "--force");
        rank_read_numbers(c, "alone", "loss", steps, alone);
        for (int stage = 1; stage <= STAGES; stage++)
            for (int ranks = 2; ranks <= 4; ranks++) {
                char options[256];
                snprintf(options, sizeof options,
                         "--force --set engine.zero_optimization.stage=%d " ALL_CUT " --set "
                         "engine.zero_optimization.reduce_bucket_size=%d %s",
                         stage, ranks == 3 ? 500000000 : 700, ranks == 3 ? "--set train.accumulate=2" : "");
                rank_train(c, "several", ranks, options);
                rank_expect_same_steps(c, cases[i].name, "several", ranks, alone, steps);
            }
    }
}

/* What is computed again has its parameters gathered again. */
static void ranks__recompute_in_every_stage(void **state)
{
    data_case *c = *state;
    double kept[STEPS], again[STEPS];
    tiny_text(c);
    rank_write_job(c, &cases[0], STEPS);
    for (int stage = 1; stage <= STAGES; stage++) {
        char options[512];
        snprintf(options, sizeof options, "--force --set engine.zero_optimization.stage=%d " ALL_CUT, stage);
        rank_train(c, "kept", 2, options);
        snprintf(options, sizeof options,
                 "--force --set halftone.recompute.policy=all --set engine.zero_optimization.stage=%d " ALL_CUT, stage);
        rank_train(c, "again", 2, options);
        rank_read_numbers(c, "kept", "loss", STEPS, kept);
        rank_read_numbers(c, "again", "loss", STEPS, again);
        assert_memory_equal(kept, again, sizeof kept);
    }
}

/* In half precision what ranks exchange is rounded, and masters are in parts: near, and not the same. */
static void ranks__learn_as_one_in_half_precision(void **state)
{
    static const char *const modes[] = {
        "--set train.precision=bf16", "--set train.precision=fp16",
        "--set train.precision=bf16 --set engine.data_types.grad_accum_dtype=bf16 --set train.accumulate=2",
        "--set train.precision=bf16 --set train.masters=false",
        "--set train.precision=bf16 --set halftone.fp32_params=wte"};
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], STEPS);
    for (size_t mode = 0; mode < sizeof modes / sizeof modes[0]; mode++) {
        double alone[STEPS], several[STEPS];
        char options[512];
        snprintf(options, sizeof options, "--force %s", modes[mode]);
        rank_train(c, "alone", 1, options);
        rank_read_numbers(c, "alone", "loss", STEPS, alone);
        for (int stage = 0; stage <= STAGES; stage++) {
            snprintf(options, sizeof options,
                     "--force %s --set engine.zero_optimization.stage=%d " ALL_CUT " --set "
                     "engine.zero_optimization.allgather_bucket_size=2000",
                     modes[mode], stage);
            rank_train(c, "several", 2, options);
            rank_read_numbers(c, "several", "loss", STEPS, several);
            for (int i = 0; i < STEPS; i++) rank_expect_near(modes[mode], 2, i + 1, several[i], alone[i], 2e-3);
        }
    }
}

/* The same ranks give the same bits, however long messages take. */
static void ranks__repeat_their_bits(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 6);
    for (int stage = 0; stage <= STAGES; stage++) {
        char options[256];
        snprintf(options, sizeof options,
                 "--set engine.zero_optimization.stage=%d " ALL_CUT
                 " --set engine.zero_optimization.reduce_bucket_size=2000",
                 stage);
        rank_expect_same_bits(c, 3, options);
    }
}

/* What overflows in the micro-batch of one rank skips the step on all, and the loss scale is one. */
static void ranks__skip_together(void **state)
{
    data_case *c = *state;
    rank_write_table(c, true);
    rank_write_job(c, &cases[2], STEPS);
    for (int stage = 0; stage <= STAGES; stage++) {
        char options[256];
        snprintf(options, sizeof options, "--set engine.zero_optimization.stage=%d " ALL_CUT, stage);
        rank_expect_same_skips(c, stage == 1 ? 4 : 2, options, "gradients are not finite on rank ");
    }
}

/* The micro-batches of two ranks, in turn, are the batches of one process that has half as many rows in each. */
static void ranks__name_the_one_that_overflowed(void **state)
{
    enum { NAMED = 12 };
    data_case *c = *state;
    double skipped[2 * NAMED];
    int told = 0;
    rank_write_table(c, true);
    rank_write_job(c, &cases[2], 2 * NAMED);
    rank_train(c, "alone", 1, "--set train.precision=fp16 --set train.batch=6");
    rank_read_numbers(c, "alone", "skipped", 2 * NAMED, skipped);
    for (int stage = 0; stage <= STAGES; stage++) {
        char line[512];
        snprintf(line, sizeof line,
                 "\"$H\" train job.json --ranks 2 --force --set train.steps=%d --set train.precision=fp16 --set "
                 "engine.zero_optimization.stage=%d " ALL_CUT " > log 2>&1",
                 NAMED, stage);
        expect(c, line, 0, "");
        for (int i = 0; i < NAMED; i++) {
            int rank = skipped[2 * i] != 0 ? 0 : 1;
            if (skipped[2 * i] == 0 && skipped[2 * i + 1] == 0) continue;
            snprintf(line, sizeof line,
                     "grep 'step %d is skipped: its gradients are not finite on rank %d ' log || "
                     "{ grep skipped log; exit 1; }",
                     i + 1, rank);
            expect(c, line, 0, "");
            told |= 1 << rank;
        }
    }
    assert_int_equal(told, 3); /* each of them */
}

/* The type in which gradients cross: half of the bytes, and rounded sums. */
static void ranks__exchange_gradients_in_another_type(void **state)
{
    static const char *const types[] = {"fp32", "bf16", "fp16"};
    data_case *c = *state;
    double plain[STEPS], other[STEPS], bytes[2][STEPS];
    tiny_text(c);
    rank_write_job(c, &cases[0], STEPS);
    for (int stage = 0; stage <= STAGES; stage++)
        for (int type = 0; type < 3; type++) {
            char options[512];
            double sums[2] = {0};
            snprintf(options, sizeof options, "--force --set engine.zero_optimization.stage=%d " ALL_CUT, stage);
            rank_train(c, "plain", 2, options);
            snprintf(options + strlen(options), sizeof options - strlen(options),
                     " --set engine.communication_data_type=%s", types[type]);
            rank_train(c, "other", 2, options);
            rank_read_numbers(c, "plain", "loss", STEPS, plain);
            rank_read_numbers(c, "other", "loss", STEPS, other);
            rank_read_numbers(c, "plain", "exchange_bytes", STEPS, bytes[0]);
            rank_read_numbers(c, "other", "exchange_bytes", STEPS, bytes[1]);
            for (int i = 0; i < STEPS; i++) {
                rank_expect_near(types[type], 2, i + 1, other[i], plain[i], 2e-3);
                for (int k = 0; k < 2; k++) sums[k] += bytes[k][i];
            }
            assert_true((memcmp(plain, other, sizeof plain) == 0) == (type == 0));
            assert_true((sums[1] < 0.85 * sums[0]) == (type > 0));
        }
}

/* ---- snapshots ---- */

static void ranks__resume_as_any_number(void **state)
{
    data_case *c = *state;
    double alone[40], several[40];
    tiny_text(c);
    rank_write_job(c, &cases[0], 40);
    rank_train(c, "alone", 1, "");
    rank_train(c, "moved", 4, "--set train.steps=5 " ALL_CUT RANK_STAGE(3));
    rank_train(c, "moved", 4, "--resume --set train.steps=10" RANK_STAGE(2));
    rank_train(c, "moved", 2, "--resume --set train.steps=20" RANK_STAGE(1));
    rank_train(c, "moved", 3, "--resume --set train.steps=30" RANK_STAGE(0));
    rank_train(c, "moved", 1, "--resume --set train.steps=33");
    rank_train(c, "moved", 2, "--resume --set train.steps=36 " ALL_CUT RANK_STAGE(3));
    rank_train(c, "moved", 3,
               "--resume --set train.steps=40" RANK_STAGE(2) " --set engine.zero_optimization.reduce_bucket_size=700");
    rank_read_numbers(c, "alone", "loss", 40, alone);
    rank_read_numbers(c, "moved", "loss", 40, several);
    for (int i = 0; i < 40; i++) rank_expect_near("moved", 0, i + 1, several[i], alone[i], 1e-5);
    expect(c, "\"$H\" eval moved", 0, "loss");
}

/* The next twenty losses are those of a run that stays as it is. */
static void ranks__go_on_as_if_nothing_had_changed(void **state)
{
    static const struct {
        int ranks, stage;
    } legs[] = {{4, 3}, {2, 1}, {3, 0}, {1, 0}, {2, 3}, {4, 2}};
    enum { LEG = 20, LEGS = sizeof legs / sizeof legs[0] };
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], LEG * LEGS);
    for (int leg = 0; leg + 1 < LEGS; leg++) {
        double kept[LEG * LEGS], moved[LEG * LEGS];
        for (int changed = 0; changed < 2; changed++) {
            char options[256];
            snprintf(options, sizeof options,
                     "--resume --set train.steps=%d --set engine.zero_optimization.stage=%d " ALL_CUT,
                     LEG * (leg + 1 + changed), legs[leg + changed].stage);
            rank_train(c, "moved", legs[leg + changed].ranks, options);
            if (changed) break;
            snprintf(options, sizeof options,
                     "--resume --set train.steps=%d --set engine.zero_optimization.stage=%d " ALL_CUT, LEG * (leg + 2),
                     legs[leg].stage);
            expect(c, "rm -rf kept; cp -r moved kept", 0, "");
            rank_train(c, "kept", legs[leg].ranks, options);
        }
        rank_read_numbers(c, "kept", "loss", LEG * (leg + 2), kept);
        rank_read_numbers(c, "moved", "loss", LEG * (leg + 2), moved);
        for (int i = LEG * (leg + 1); i < LEG * (leg + 2); i++)
            rank_expect_near("moved", legs[leg + 1].ranks, i + 1, moved[i], kept[i], 1e-5);
    }
}

/* ---- ends ---- */

static void ranks__name_the_one_that_died(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 200);
    expect(c,
           "HALFTONE_COMM_DEATH=1:400 \"$H\" train job.json --ranks 3 --set train.snapshot_every=5 > log 2>&1 || "
           "{ tail -1 log; exit 1; }",
           1, "rank 1");
    expect(c, "\"$H\" eval run", 0, "loss");
}

static void ranks__stop_before_the_same_step(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 100000);
    expect(c, "\"$H\" train job.json --ranks 3 > log 2>&1 & sleep 1; kill -TERM $!; wait $!", 3, "");
    expect(c, "grep stopped log", 0, "with a snapshot");
    expect(c,
           "S=$(ls run/snapshots | sed 's/step-0*//' | tail -1); \"$H\" train job.json --ranks 2 --resume "
           "--set train.steps=$((S + 2))",
           0, "goes on after step");
}

static void ranks__are_refused_by_name(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 2);
    expect(c, "\"$H\" train job.json --ranks 5", 2, "12 is not a multiple of accumulation: 1 × 5 ranks");
    expect(c, "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 \"$H\" train job.json --ranks 2", 2,
           "one of 2 ranks that Open MPI has started already");
    expect(c, "\"$H\" train job.json --ranks 2 --set engine.gradient_allreduce_op=sum", 2, "gradient_allreduce_op is");
    expect(c, "\"$H\" train job.json --ranks 2 --set engine.zero_optimization.zero_quantized_gradients=true", 2,
           "zero_quantized_gradients is true: not there yet: quantise exchanged gradients");
    expect(c, "\"$H\" check job.json --ranks 2 --set engine.zero_optimization.mics_shard_size=1", 0,
           "a shard is all ranks of the data axis");
    expect(c,
           "\"$H\" train job.json --ranks 2 --set train.precision=bf16 --set halftone.fp8.recipe=delayed --set "
           "engine.zero_optimization.offload_optimizer.device=nvme --set halftone.disk_folder=." RANK_STAGE(1),
           1, "stage 1 with fp8 and an offload is not there yet");
    expect(c,
           "\"$H\" train job.json --ranks 2 --set engine.zero_optimization.offload_optimizer.device=nvme --set "
           "halftone.disk_folder=. --set engine.zero_optimization.offload_optimizer.ratio=0.5" RANK_STAGE(1),
           1, "offload_optimizer.ratio 0.5 is not there yet");
}

/* What went wrong is looked for on every rank, in its own micro-batches, and the rank is named. */
static void ranks__name_the_first_value_that_is_not_finite(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 60);
    for (int stage = 0; stage <= STAGES; stage++) {
        char line[512];
        snprintf(line, sizeof line,
                 "\"$H\" train job.json --ranks 2 --force --set train.lr=1e30 --set "
                 "engine.zero_optimization.stage=%d " ALL_CUT " > "
                 "log 2>&1 || { tail -1 log; exit 1; }",
                 stage);
        expect(c, line, 1, "on rank 0 the first value that is not finite is");
    }
}

/* ---- plans ---- */

/* A plan for several ranks is made without them, and is the one that they hold. */
static void ranks__hold_what_is_planned_without_them(void **state)
{
    static const char *const modes[] = {"fp32", "bf16", "bf16 --set engine.data_types.grad_accum_dtype=bf16"};
    static const int numbers[] = {1, 2, 3, 4, 8};
    enum { MODES = sizeof modes / sizeof modes[0], NUMBERS = sizeof numbers / sizeof numbers[0] };
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 1);
    for (int k = 0; k < MODES * NUMBERS * (STAGES + 1); k++) {
        int ranks = numbers[k / (STAGES + 1) % NUMBERS], stage = k % (STAGES + 1), status;
        const char *mode = modes[k / (STAGES + 1) / NUMBERS];
        char options[512], line[768];
        double held;
        if (RANK_RACES && ranks != 3) continue;
        snprintf(options, sizeof options,
                 "--set train.batch=24 --set train.precision=%s --set engine.zero_optimization.stage=%d " ALL_CUT, mode,
                 stage);
        snprintf(line, sizeof line, "--force %s", options);
        rank_train(c, "run", ranks, line);
        rank_read_numbers(c, "run", "plan_bytes", 1, &held);
        snprintf(line, sizeof line, "\"$H\" explain job.json --json --ranks %d %s", ranks, options);
        double planned = rank_number_after(run(c, line, &status), "\"plan_bytes\": ");
        if (planned != held)
            fail_msg("%d ranks, %s, stage %d hold %.0f bytes, and %.0f were planned", ranks, mode, stage, held,
                     planned);
    }
    expect(c, "\"$H\" check job.json --ranks 3", 0, "reduce_scatter");
    expect(c, "\"$H\" check job.json --ranks 3", 0, "padding, of them");
    expect(c, "\"$H\" check job.json --ranks 3", 0, "packed weights, of them");
}

/* "sent" of the messages of a stage, over all of them. */
static double planned_bytes(const char *text, int stage)
{
    char key[32];
    double sum = 0;
    snprintf(key, sizeof key, "\"stage\": %d", stage);
    const char *at = strstr(text, key), *end;
    if (!at) fail_msg("no stage %d in: %.2000s", stage, text);
    end = strstr(at + 1, "\"stage\": ");
    while ((at = strstr(at, "\"sent\": ")) && (!end || at < end)) sum += rank_number_after(at++, "\"sent\": ");
    return sum;
}

/* What a step sends is what was planned, to the byte; but for messages that the next step finds under way, and for half copies
 * that are made at the start. */
static void ranks__send_what_is_planned(void **state)
{
    enum { FEW = 6 };
    static const char *const modes[] = {"", "--set train.batch=24 --set train.accumulate=2",
                                        "--set halftone.parallel.tensor=2",
                                        "--set train.precision=bf16 --set "
                                        "engine.zero_optimization.reduce_bucket_size=700"};
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], FEW);
    for (size_t mode = 0; mode < sizeof modes / sizeof modes[0]; mode++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int stage = 0; stage <= STAGES; stage++) {
                char line[512];
                int status;
                double sent[FEW], all = 0;
                bool met = false;
                if (mode > 0 && ranks == 3) continue;
                snprintf(line, sizeof line,
                         "--force --set engine.zero_optimization.stage=%d --set "
                         "engine.zero_optimization.overlap_comm=false %s " ALL_CUT,
                         stage, modes[mode]);
                rank_train(c, "run", ranks, line);
                rank_read_numbers(c, "run", "exchange_bytes", FEW, sent);
                snprintf(line, sizeof line,
                         "\"$H\" explain job.json --json --ranks %d --set "
                         "engine.zero_optimization.overlap_comm=false %s " ALL_CUT,
                         ranks, modes[mode]);
                double planned = planned_bytes(run(c, line, &status), stage);
                for (int i = 1; i < FEW; i++) {
                    met |= sent[i] == planned;
                    all += sent[i];
                }
                if (!met || all >= FEW * planned || all <= (FEW - 2) * planned)
                    fail_msg("%s, %d ranks, stage %d: steps sent %.0f, %.0f, %.0f bytes, and %.0f were planned",
                             modes[mode], ranks, stage, sent[0], sent[1], sent[2], planned);
            }
}

/* Nothing grows with the number of ranks. */
static void ranks__are_planned_by_thousands(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 2);
    for (int stage = 0; stage <= STAGES; stage++) {
        char line[512];
        snprintf(line, sizeof line,
                 "for command in explain check; do \"$H\" $command job.json --ranks 4096 --set train.batch=4096 --set "
                 "engine.zero_optimization.stage=%d " ALL_CUT " > log || exit 1; grep '^stage [0-9]: ' log && exit 1; "
                 "grep 'sent by a rank' log || exit 1; done",
                 stage);
        expect(c, line, 0, "sent by a rank");
    }
}

/* ---- processes ---- */

static void ranks__may_be_processes(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps(), models = steps > STEPS ? CASES : 1;
    double alone[MOST_STEPS];
    write_all(c);
    for (int k = 0; k < models; k++) {
        rank_write_job(c, &cases[k], steps);
        rank_train_alone(c, steps, "", alone);
        for (int ranks = 2; ranks <= 4; ranks += 2) rank_expect_processes(c, ranks, "", alone, steps);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ranks__make_the_steps_of_one_process),
        CASE(ranks__make_them_in_every_stage),
        CASE(ranks__recompute_in_every_stage),
        CASE(ranks__learn_as_one_in_half_precision),
        CASE(ranks__repeat_their_bits),
        CASE(ranks__skip_together),
        CASE(ranks__name_the_one_that_overflowed),
        CASE(ranks__exchange_gradients_in_another_type),
        CASE(ranks__resume_as_any_number),
        CASE(ranks__go_on_as_if_nothing_had_changed),
        CASE(ranks__name_the_one_that_died),
        CASE(ranks__stop_before_the_same_step),
        CASE(ranks__are_refused_by_name),
        CASE(ranks__name_the_first_value_that_is_not_finite),
        CASE(ranks__hold_what_is_planned_without_them),
        CASE(ranks__send_what_is_planned),
        CASE(ranks__are_planned_by_thousands),
        CASE(ranks__may_be_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
