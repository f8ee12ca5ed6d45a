/* What goes together with several ranks: rules for whole tensors, rounding by chance, offloads, fp8, carried state, a look at
 * gradients. Each against one process, in every stage, and with the bytes that were planned. */
#include "rank_runs.h"
#include "tiny_data.h"

enum { STEPS = RANK_STEPS, STAGES = RANK_STAGES };

typedef struct choice {
    const char *options;
    double first, bound; /* of the difference of the first loss, and of all */
} choice;

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s in: %.2000s", key, text);
    return strtod(at + strlen(key), NULL);
}

/* The plan that is made without the ranks is the one that they hold. */
static void expect_planned(const data_case *c, const char *folder, int ranks, const char *options)
{
    char line[2048];
    int status;
    double held;
    rank_read_numbers(c, folder, "plan_bytes", 1, &held);
    snprintf(line, sizeof line, "\"$H\" explain job.json --json --ranks %d %s 2>/dev/null", ranks, options);
    double planned = number_after(run(c, line, &status), "\"plan_bytes\": ");
    if (planned != held) fail_msg("%s: %.0f bytes are planned, %.0f held", options, planned, held);
}

/* The steps of one process in stages `from` to 3, on 2 to 4 ranks. */
static void expect_stages(data_case *c, const choice *t, int from, int to)
{
    double alone[STEPS], several[STEPS];
    char options[1024], line[1400];
    snprintf(line, sizeof line, "--force %s", t->options);
    rank_train(c, "alone", 1, line);
    rank_read_numbers(c, "alone", "loss", STEPS, alone);
    for (int stage = from; stage <= to; stage++)
        for (int ranks = 2; ranks <= 4; ranks++) {
            if (RANK_RACES && ranks != 3) continue;
            snprintf(options, sizeof options,
                     "%s --set engine.zero_optimization.stage=%d " RANK_ALL_CUT
                     " --set engine.zero_optimization.reduce_bucket_size=%d %s",
                     t->options, stage, ranks == 2 ? 700 : 500000000, ranks == 3 ? "--set train.accumulate=2" : "");
            snprintf(line, sizeof line, "--force %s", options);
            rank_train(c, "several", ranks, line);
            rank_read_numbers(c, "several", "loss", STEPS, several);
            rank_expect_near(options, ranks, 1, several[0], alone[0], t->first);
            for (int i = 0; i < STEPS; i++) rank_expect_near(options, ranks, i + 1, several[i], alone[i], t->bound);
            if (ranks == 3) expect_planned(c, "several", ranks, options);
        }
}

/* ---- the update ---- */

static void ranks__update_whole_tensors_in_every_stage(void **state)
{
    static const choice choices[] = {
        {"--set train.optimizer=lamb", 1e-6, 1e-4},
        {"--set train.optimizer=lamb --set train.weight_decay=0.1 --set train.precision=bf16", 2e-3, 2e-3},
        {"--set train.optimizer=muon --set train.lr=1e-3", 1e-6, 1e-4},
        {"--set train.optimizer=muon --set train.lr=1e-3 --set train.precision=bf16", 2e-3, 2e-3},
    };
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, STEPS);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) expect_stages(c, &choices[i], 1, STAGES);
}

/* A rank draws the numbers that one process would: only sums of gradients round in another order. */
static void ranks__round_by_chance_in_every_stage(void **state)
{
    static const choice choices[] = {
        {"--set train.precision=bf16 --set train.masters=false --set halftone.rounding=stochastic", 2e-3, 2e-3},
        {"--set train.precision=bf16 --set train.masters=false --set halftone.rounding=stochastic --set "
         "train.optimizer=lamb",
         2e-3, 2e-3},
    };
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, STEPS);
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) expect_stages(c, &choices[i], 0, STAGES);
}

/* With the sums of the same ranks even that is the same: whatever each holds, it draws for an element what all did that hold
 * everything. */
static void ranks__draw_the_same_in_every_stage(void **state)
{
    static const choice optimizers[] = {{"adamw", 1e-7, 1e-7}, {"lamb", 1e-7, 1e-4}}; /* norms of pieces round */
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, STEPS);
    for (int i = 0; i < 2; i++) {
        double whole[STEPS], parts[STEPS];
        for (int stage = 0; stage <= STAGES; stage++) {
            char options[512];
            snprintf(
                options, sizeof options,
                "--force --set train.precision=bf16 --set train.masters=false --set halftone.rounding=stochastic --set "
                "train.lr=1e-2 --set train.optimizer=%s --set engine.zero_optimization.stage=%d --set "
                "engine.zero_optimization.stage3_param_persistence_threshold=100 --set "
                "engine.zero_optimization.reduce_bucket_size=1000",
                optimizers[i].options, stage);
            rank_train(c, "run", 3, options);
            rank_read_numbers(c, "run", "loss", STEPS, stage ? parts : whole);
            for (int k = 0; k < STEPS && stage; k++)
                rank_expect_near(options, 3, k + 1, parts[k], whole[k], k ? optimizers[i].bound : optimizers[i].first);
        }
    }
}

/* ---- offloads ---- */

#define DISK                                                                                                           \
    "--set halftone.disk_folder=. --set engine.zero_optimization.sub_group_size=600 --set "                            \
    "engine.zero_optimization.offload_optimizer.device=nvme "

/* An offload changes nothing: the same ranks have the same bits with it and without. */
static void ranks__offload_with_the_same_bits(void **state)
{
    static const char *const modes[] = {
        DISK "--set train.precision=bf16",
        DISK "--set train.precision=fp32",
        DISK "--set train.precision=bf16 --set train.optimizer=lamb",
        DISK "--set train.precision=bf16 --set halftone.offload_gradients=disk",
        DISK "--set train.precision=bf16 --set engine.zero_optimization.offload_param.device=nvme",
    };
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, 6);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        for (int stage = RANK_RACES ? STAGES : 0; stage <= STAGES; stage++) {
            double here[6], there[6];
            char options[1024], line[1400];
            snprintf(options, sizeof options, "%s --set engine.zero_optimization.stage=%d " RANK_ALL_CUT, modes[i],
                     stage);
            snprintf(line, sizeof line, "--force %s", options);
            rank_train(c, "there", 3, line);
            expect_planned(c, "there", 3, options);
            snprintf(line, sizeof line,
                     "--force %s --set engine.zero_optimization.offload_optimizer.device=none --set "
                     "engine.zero_optimization.offload_param.device=none --set halftone.offload_gradients=none",
                     options);
            rank_train(c, "here", 3, line);
            rank_read_numbers(c, "here", "loss", 6, here);
            rank_read_numbers(c, "there", "loss", 6, there);
            for (int k = 0; k < 6; k++)
                if (here[k] != there[k]) fail_msg("%s: step %d: %.9g, not %.9g", options, k + 1, there[k], here[k]);
        }
}

/* ---- fp8, carried state ---- */

static void ranks__scale_f8_alike(void **state)
{
    static const char *const recipes[] = {"delayed", "current"};
    data_case *c = *state;
    tiny_sums(c, 6000);
    rank_write_job(c,
                   &(rank_case){"fp8", "\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 32",
                                "\"format\": \"text\", \"train\": \"sums.txt\", \"length\": 16",
                                ", \"precision\": \"bf16\""},
                   STEPS);
    for (int i = 0; i < 2; i++) {
        char options[256];
        snprintf(options, sizeof options, "--set halftone.fp8.recipe=%s --set halftone.fp8.history=4", recipes[i]);
        expect_stages(c, &(choice){options, 1e-6, 1e-3}, 0, STAGES);
    }
}

static void ranks__carry_their_rows(void **state)
{
    static const rank_case lstm = {"lstm", "\"type\": \"lstm_lm\", \"hidden\": 12, \"layers\": 2",
                                   RANK_TEXT ", \"order\": \"stream\"", ""};
    data_case *c = *state;
    double alone[20], moved[20];
    tiny_text(c);
    rank_write_job(c, &lstm, STEPS);
    expect_stages(c, &(choice){"--set train.precision=fp32", 1e-6, 1e-5}, 0, STAGES);
    /* A snapshot has the rows of all. */
    rank_write_job(c, &lstm, 20);
    rank_train(c, "alone", 1, "--force");
    rank_train(c, "moved", 4, "--force --set train.steps=5");
    rank_train(c, "moved", 2, "--resume --set train.steps=10 --set train.accumulate=3");
    rank_train(c, "moved", 3, "--resume --set train.steps=15" RANK_STAGE(2));
    rank_train(c, "moved", 1, "--resume --set train.steps=20");
    rank_read_numbers(c, "alone", "loss", 20, alone);
    rank_read_numbers(c, "moved", "loss", 20, moved);
    for (int i = 0; i < 20; i++) rank_expect_near("moved", 0, i + 1, moved[i], alone[i], 1e-5);
}

/* ---- a look at gradients ---- */

static void ranks__are_looked_into_without_a_difference(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, 6);
    for (int stage = 0; stage <= STAGES; stage++) {
        double plain[6], seen[6];
        char options[512];
        snprintf(options, sizeof options,
                 "--force --set train.precision=fp16 --set engine.zero_optimization.stage=%d " RANK_ALL_CUT, stage);
        rank_train(c, "plain", 2, options);
        strcat(options, " --numerics=2");
        rank_train(c, "seen", 2, options);
        rank_read_numbers(c, "plain", "loss", 6, plain);
        rank_read_numbers(c, "seen", "loss", 6, seen);
        assert_memory_equal(plain, seen, sizeof plain);
        expect(c, "grep -c '\"kind\": \"tensors\"' seen/numerics.jsonl; test -f seen/numerics.html", 0, "4\n");
        expect(c, "grep -c wte seen/numerics.jsonl", 0, "4\n");
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ranks__update_whole_tensors_in_every_stage),
        CASE(ranks__round_by_chance_in_every_stage),
        CASE(ranks__draw_the_same_in_every_stage),
        CASE(ranks__offload_with_the_same_bits),
        CASE(ranks__scale_f8_alike),
        CASE(ranks__carry_their_rows),
        CASE(ranks__are_looked_into_without_a_difference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
