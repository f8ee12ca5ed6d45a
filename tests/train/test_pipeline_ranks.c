/* Ranks that share the layers make the steps of one process: each has a stage of them, in any number of micro-batches and
 * beside the other axes. Snapshots do not know stages. */
#include <math.h>

#include "rank_runs.h"
#include "tiny_data.h"

enum { STEPS = RANK_STEPS, MOST_STEPS = RANK_MOST_STEPS };

#define BYTES  "\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"byte\", \"length\": 8"
#define PAIRS  "\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"minimum_count\": 2, \"buckets\": 3"
#define IMAGES "\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0"

/* The first one has its token table twice: on the first stage, and as the head of the last one. */
static const rank_case cases[] = {
    {"gpt2", "\"type\": \"gpt2\", \"n_layer\": 4, \"n_head\": 4, \"n_embd\": 16, \"dropout\": 0.1", BYTES, ""},
    {"gpt2, untied",
     "\"type\": \"gpt2\", \"n_layer\": 3, \"n_head\": 4, \"n_embd\": 16, \"dropout\": 0.1, \"tie_word_embeddings\": "
     "false",
     BYTES, ""},
    {"llama",
     "\"type\": \"llama\", \"num_hidden_layers\": 4, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
     "\"hidden_size\": 32, \"dropout\": 0.1",
     BYTES, ""},
    {"llama, tied",
     "\"type\": \"llama\", \"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"hidden_size\": 16, "
     "\"tie_word_embeddings\": true",
     BYTES, ""},
    {"bert", "\"type\": \"bert\", \"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"hidden_size\": 16", BYTES,
     ", \"task\": \"masked_lm\""},
    {"resnet", "\"type\": \"resnet\", \"depth\": 18", IMAGES, ""},
    {"lenet", "\"type\": \"lenet\"", IMAGES, ""},
    {"seq2seq", "\"type\": \"seq2seq\", \"hidden\": 12, \"layers\": 2, \"dropout\": 0.1", PAIRS, ""},
    {"lstm", "\"type\": \"lstm_lm\", \"hidden\": 12, \"layers\": 2", RANK_TEXT ", \"order\": \"stream\"", ""},
    {"mlp", "\"type\": \"mlp\", \"hidden\": [16, 16, 8], \"dropout\": 0.2",
     "\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0", ", \"task\": \"regression\""},
};
enum { CASES = sizeof cases / sizeof cases[0] };

#define PIPELINE(n) " --set halftone.parallel.pipeline=" #n
#define TENSOR(n)   " --set halftone.parallel.tensor=" #n
#define MICROS(n)   " --set train.accumulate=" #n
#define STAGE(n)    RANK_STAGE(n)

static void write_all(data_case *c)
{
    tiny_text(c);
    tiny_pairs(c);
    tiny_images(c);
    rank_write_table(c, false);
}

static void train_alone(data_case *c, const rank_case *t, int steps, const char *options, double *loss)
{
    rank_write_job(c, t, steps);
    rank_train_alone(c, steps, options, loss);
}

/* ---- steps ---- */

static void pipeline__makes_the_steps_of_one_process(void **state)
{
    static const char *const modes[] = {"--force" PIPELINE(2) MICROS(4), "--force" PIPELINE(2) MICROS(1)};
    data_case *c = *state;
    int steps = rank_wanted_steps();
    write_all(c);
    for (int i = 0; i < CASES; i++) {
        double alone[MOST_STEPS];
        for (size_t k = 0; k < sizeof modes / sizeof modes[0]; k++) {
            /* Batches of norms, and what is carried from row to row, are those of a micro-batch. */
            if (k == 0 || strcmp(cases[i].name, "resnet") == 0)
                train_alone(c, &cases[i], steps, modes[k] + strlen("--force" PIPELINE(2)), alone);
            rank_train(c, "several", 2, modes[k]);
            rank_expect_same_steps(c, cases[i].name, "several", 2, alone, steps);
        }
    }
}

/* More stages than micro-batches, and as many, and fewer. */
static void pipeline__has_stages_and_micro_batches_of_any_number(void **state)
{
    static const char *const modes[] = {PIPELINE(3) MICROS(1), PIPELINE(3) MICROS(2), PIPELINE(3) MICROS(3),
                                        PIPELINE(4) MICROS(2), PIPELINE(4) MICROS(6), PIPELINE(4) MICROS(12)};
    static const int ranks[] = {3, 3, 3, 4, 4, 4};
    data_case *c = *state;
    int steps = rank_wanted_steps();
    double alone[MOST_STEPS];
    tiny_text(c);
    train_alone(c, &cases[0], steps, "", alone);
    for (size_t k = 0; k < sizeof modes / sizeof modes[0]; k++) {
        char options[256];
        snprintf(options, sizeof options, "--force%s", modes[k]);
        rank_train(c, "several", ranks[k], options);
        rank_expect_same_steps(c, modes[k], "several", ranks[k], alone, steps);
    }
}

/* Two ranks of each axis, and ZeRO on that of data. */
static void pipeline__goes_with_the_other_axes(void **state)
{
    static const char *const modes[] = {PIPELINE(2) MICROS(3), PIPELINE(2) MICROS(2) STAGE(1),
                                        PIPELINE(2) TENSOR(2) MICROS(2), PIPELINE(2) TENSOR(2) MICROS(3),
                                        PIPELINE(2) TENSOR(2) MICROS(2) STAGE(1)};
    static const int ranks[] = {4, 4, 4, 8, 8};
    data_case *c = *state;
    int steps = rank_wanted_steps();
    tiny_text(c);
    for (int i = 0; i < 4; i += 2) {
        double alone[MOST_STEPS];
        train_alone(c, &cases[i], steps, "", alone);
        for (size_t k = 0; k < sizeof modes / sizeof modes[0]; k++) {
            char options[256];
            snprintf(options, sizeof options, "--force%s", modes[k]);
            rank_train(c, "several", ranks[k], options);
            rank_expect_same_steps(c, modes[k], "several", ranks[k], alone, steps);
        }
    }
}

static void pipeline__learns_as_one_in_half_precision(void **state)
{
    static const char *const modes[] = {"--set train.precision=bf16", "--set train.precision=fp16",
                                        "--set train.precision=bf16 --set halftone.residual=f32",
                                        "--set train.precision=bf16 --set train.masters=false",
                                        "--set train.precision=bf16 --set engine.data_types.grad_accum_dtype=bf16"};
    data_case *c = *state;
    tiny_text(c);
    for (size_t mode = 0; mode < sizeof modes / sizeof modes[0]; mode++) {
        double alone[STEPS], several[STEPS];
        char options[512];
        train_alone(c, &cases[0], STEPS, modes[mode], alone);
        snprintf(options, sizeof options, "--force %s" PIPELINE(2) MICROS(2) STAGE(1), modes[mode]);
        rank_train(c, "several", 4, options);
        rank_read_numbers(c, "several", "loss", STEPS, several);
        for (int i = 0; i < STEPS; i++) rank_expect_near(modes[mode], 4, i + 1, several[i], alone[i], 2e-3);
    }
}

/* What else a job may ask for: rules for whole tensors, chosen parameters, layers that are computed again. */
static void pipeline__goes_with(void **state)
{
    static const char *const modes[] = {"--set train.optimizer=lamb", "--set train.optimizer=muon",
                                        "--set halftone.recompute.policy=all", "--set 'train.freeze=[\"wte\"]'",
                                        "--set 'train.groups=[{\"match\": \"h\\\\.0\\\\.\", \"lr_scale\": 0.5}]'"};
    data_case *c = *state;
    tiny_text(c);
    for (size_t mode = 0; mode < sizeof modes / sizeof modes[0]; mode++) {
        double alone[STEPS];
        char options[512];
        train_alone(c, &cases[0], STEPS, modes[mode], alone);
        snprintf(options, sizeof options, "--force %s" PIPELINE(2) MICROS(3), modes[mode]);
        rank_train(c, "several", 2, options);
        rank_expect_same_steps(c, modes[mode], "several", 2, alone, STEPS);
    }
}

/* ---- what stages agree on ---- */

/* The last stage overflows first; the step is skipped on all, and the loss scale is one. */
static void pipeline__skips_together(void **state)
{
    static const rank_case table = {"mlp", "\"type\": \"mlp\", \"hidden\": [16, 6]",
                                    "\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0",
                                    ", \"task\": \"regression\""};
    data_case *c = *state;
    rank_write_table(c, true);
    rank_write_job(c, &table, STEPS);
    for (int ranks = 2; ranks <= 4; ranks += 2)
        rank_expect_same_skips(c, ranks, PIPELINE(2) MICROS(2) STAGE(1), "gradients are not finite on rank ");
}

/* What two stages have counts once. */
static void pipeline__clips_by_the_norm_of_all_stages(void **state)
{
    data_case *c = *state;
    double unused[STEPS];
    tiny_text(c);
    train_alone(c, &cases[0], STEPS, "", unused);
    rank_expect_same_norms(c, 4, PIPELINE(4) MICROS(3));
}

/* Messages block; delays in all of them change the order of nothing. */
static void pipeline__repeats_its_bits(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 6);
    rank_expect_same_bits(c, 4, PIPELINE(4) MICROS(6));
}

/* ---- snapshots and evaluation ---- */

static void pipeline__resumes_on_any_world(void **state)
{
    data_case *c = *state;
    double alone[30];
    tiny_text(c);
    for (int i = 0; i < 4; i += 2) {
        train_alone(c, &cases[i], 30, "", alone);
        rank_train(c, "moved", 2, "--force --set train.steps=5" PIPELINE(2) MICROS(3));
        rank_train(c, "moved", 1, "--resume --set train.steps=10");
        rank_train(c, "moved", 4, "--resume --set train.steps=15" PIPELINE(4) MICROS(2));
        rank_train(c, "moved", 2, "--resume --set train.steps=20" TENSOR(2));
        rank_train(c, "moved", 8, "--resume --set train.steps=25" PIPELINE(2) TENSOR(2) STAGE(1) MICROS(2));
        rank_train(c, "moved", 2, "--resume --set train.steps=30" STAGE(3));
        rank_expect_moved(c, 30, alone);
    }
}

/* A snapshot of stages has the tensors of one process, each once. */
static void pipeline__writes_the_snapshot_of_one_process(void **state)
{
    data_case *c = *state;
    double unused[1];
    tiny_text(c);
    train_alone(c, &cases[0], 1, "", unused);
    rank_train(c, "several", 4, PIPELINE(4) MICROS(2));
    expect(
        c,
        "for f in weights optimizer; do for r in alone several; do strings -n 3 $r/snapshots/step-*1/$f.safetensors | "
        "grep -o '\"[a-z][a-z_0-9.]*\":{\"dtype' | sort > $r.$f; done; test -s alone.$f && cmp alone.$f several.$f "
        "|| exit 1; done",
        0, "");
}

static void pipeline__starts_from_whole_weights(void **state)
{
    data_case *c = *state;
    double unused[3];
    tiny_text(c);
    train_alone(c, &cases[0], 3, "", unused);
    rank_expect_same_start(c, 2, PIPELINE(2));
}

static void pipeline__evaluates_as_one_process(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 3);
    rank_expect_same_evaluation(c, 4, PIPELINE(2) MICROS(2));
}

/* ---- plans and refusals ---- */

/* What each stage has is told without the ranks, to the byte. */
static void pipeline__holds_what_is_planned_without_them(void **state)
{
    data_case *c = *state;
    double held;
    int status;
    tiny_text(c);
    rank_write_job(c, &cases[0], 2);
    rank_train(c, "run", 4, "--set train.precision=bf16" PIPELINE(2) MICROS(2) STAGE(1));
    rank_read_numbers(c, "run", "plan_bytes", 1, &held);
    const char *text =
        run(c, "\"$H\" explain job.json --json --ranks 4 --set train.precision=bf16" PIPELINE(2) MICROS(2) STAGE(1),
            &status);
    assert_true(rank_number_after(text, "\"plan_bytes\": ") == held);
    const char *stages = strstr(text, "\"pipeline\": {");
    assert_non_null(stages);
    assert_true(rank_number_after(stages, "\"plan_bytes\": ") == held);
    assert_true(rank_number_after(stages, "\"bubble\": ") == 1.0 / 3.0);
    expect(c, "\"$H\" explain job.json --ranks 4" PIPELINE(2) MICROS(2), 0, "4 ranks: data 2 × pipeline 2 × tensor 1");
    expect(c, "\"$H\" check job.json --ranks 4" PIPELINE(2) MICROS(2), 0,
           "bubble: of 2 stages with 2 micro-batches each waits for others in 33.3 % of a step");
    expect(c, "\"$H\" train job.json --ranks 2 --set train.output=told" PIPELINE(2) MICROS(3), 0,
           "2 stages, 3 micro-batches: each stage waits for others in 25.0 % of a step (bubble)");
}

static void pipeline__is_refused_by_name(void **state)
{
    static const char *const others[][2] = {
        {"--set engine.zero_optimization.stage=2", "zero_optimization.stage 2"},
        {"--set train.precision=bf16 --set halftone.fp8.recipe=current", "fp8"},
        {"--set halftone.head_chunks=2", "halftone.head_chunks"},
        {"--set engine.zero_optimization.offload_optimizer.device=cpu", "an offload"},
        {"--set halftone.recompute.budget=50%", "a budget of halftone.recompute"},
        {"--numerics", "--numerics"},
    };
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 2);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        char line[512];
        snprintf(line, sizeof line, "\"$H\" train job.json --force --ranks 4" PIPELINE(2) " %s 2>&1; true",
                 others[i][0]);
        expect(c, line, 0, others[i][1]);
        expect(c, line, 0, "with halftone.parallel.pipeline above 1 is not there yet");
    }
    expect(c, "\"$H\" train job.json --ranks 3" PIPELINE(2), 2, "3 ranks");
    expect(c, "\"$H\" train job.json --force --ranks 64" PIPELINE(64), 2, "cannot be cut into 64 stages");
    expect(c, "\"$H\" train job.json --ranks 2 --set engine.pipeline.stages=2" PIPELINE(3), 2, "leave out one of them");
}

/* The search for what went wrong is not there, and that is said. */
static void pipeline__ends_when_values_are_not_finite(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &cases[0], 60);
    expect(c,
           "\"$H\" train job.json --ranks 2 --set train.lr=1e30" PIPELINE(2) " > log 2>&1 || { tail -1 log; exit 1; }",
           1, "with halftone.parallel.pipeline above 1 the first value");
}

static void pipeline__is_asked_for_by_deepspeed_too(void **state)
{
    data_case *c = *state;
    double alone[2];
    tiny_text(c);
    train_alone(c, &cases[0], 2, "", alone);
    rank_train(c, "several", 2, "--set engine.pipeline.stages=2");
    rank_expect_same_steps(c, "stages", "several", 2, alone, 2);
}

static void pipeline__ranks_may_be_processes(void **state)
{
    data_case *c = *state;
    double alone[STEPS];
    tiny_text(c);
    train_alone(c, &cases[0], STEPS, "", alone);
    rank_expect_processes(c, 2, PIPELINE(2) MICROS(3), alone, STEPS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(pipeline__makes_the_steps_of_one_process),
        CASE(pipeline__has_stages_and_micro_batches_of_any_number),
        CASE(pipeline__goes_with_the_other_axes),
        CASE(pipeline__learns_as_one_in_half_precision),
        CASE(pipeline__goes_with),
        CASE(pipeline__skips_together),
        CASE(pipeline__clips_by_the_norm_of_all_stages),
        CASE(pipeline__repeats_its_bits),
        CASE(pipeline__resumes_on_any_world),
        CASE(pipeline__writes_the_snapshot_of_one_process),
        CASE(pipeline__starts_from_whole_weights),
        CASE(pipeline__evaluates_as_one_process),
        CASE(pipeline__holds_what_is_planned_without_them),
        CASE(pipeline__is_refused_by_name),
        CASE(pipeline__ends_when_values_are_not_finite),
        CASE(pipeline__is_asked_for_by_deepspeed_too),
        CASE(pipeline__ranks_may_be_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
