/* Ranks that share layers make the steps of one process: heads, hidden units and the vocabulary are cut, whatever else a
 * rank holds. Snapshots do not know them. */
#include <math.h>

#include "rank_runs.h"
#include "tiny_data.h"

enum { STEPS = RANK_STEPS, MOST_STEPS = RANK_MOST_STEPS };

typedef struct model_case {
    const char *name, *model, *tokenizer;
    int most; /* ranks that its heads, hidden units and vocabulary are shared by */
} model_case;

/* The vocabulary of bytes is cut, that of characters, 19, is whole. */
static const model_case cases[] = {
    {"gpt2", "\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 16, \"dropout\": 0.1", "byte", 4},
    {"gpt2, untied",
     "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 4, \"n_embd\": 16, \"dropout\": 0.1, \"tie_word_embeddings\": "
     "false",
     "byte", 2},
    {"gpt2, characters", "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 4, \"n_embd\": 16, \"bias\": false", "char",
     2},
    {"llama",
     "\"type\": \"llama\", \"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "
     "\"hidden_size\": 32, \"dropout\": 0.1",
     "byte", 4},
    {"llama, one head of keys",
     "\"type\": \"llama\", \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 1, "
     "\"hidden_size\": 16",
     "byte", 2},
    {"llama, tied",
     "\"type\": \"llama\", \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"hidden_size\": 16, "
     "\"attention_bias\": true, \"tie_word_embeddings\": true",
     "byte", 2},
};
enum { CASES = sizeof cases / sizeof cases[0] };

#define TENSOR(n) " --set halftone.parallel.tensor=" #n
#define SEQUENCE  " --set halftone.parallel.sequence=true"
#define STAGE(n)  RANK_STAGE(n)
#define ALL_CUT   " " RANK_ALL_CUT

static void write_job(data_case *c, const model_case *t, int steps)
{
    char job[2048];
    snprintf(job, sizeof job,
             "{\"model\": {%s}, \"data\": {\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"%s\", "
             "\"length\": 8}, \"train\": {\"batch\": 12, \"steps\": %d, \"lr\": 1e-3, \"clip\": 1.0, "
             "\"schedule\": \"constant\", \"log_every\": 1}}",
             t->model, t->tokenizer, steps);
    data_case_text(c, "job.json", job);
}

static void train_alone(data_case *c, const model_case *t, int steps, const char *options, double *loss)
{
    write_job(c, t, steps);
    rank_train_alone(c, steps, options, loss);
}

/* ---- steps ---- */

static void tensor__has_the_parameters_of_the_whole_model(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    write_job(c, &cases[0], 1);
    expect(c, "\"$H\" train job.json 2>&1 | grep -o 'lm, [0-9]* parameters' > alone; cat alone", 0, "parameters");
    expect(
        c,
        "for options in '--ranks 4 --set halftone.parallel.tensor=4' '--ranks 2 --set halftone.parallel.pipeline=2'; "
        "do \"$H\" train job.json --force $options 2>&1 | grep -o 'lm, [0-9]* parameters' | cmp alone - && "
        "\"$H\" plan job.json $options | grep -o ', [0-9]* parameters' > planned && grep -F \"$(cat planned)\" alone "
        "|| "
        "exit 1; done",
        0, "");
}

static void tensor__makes_the_steps_of_one_process(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    tiny_text(c);
    for (int i = 0; i < CASES; i++) {
        double alone[MOST_STEPS];
        train_alone(c, &cases[i], steps, "", alone);
        for (int ranks = 2; ranks <= cases[i].most; ranks *= 2) {
            char options[256];
            snprintf(options, sizeof options, "--force --set halftone.parallel.tensor=%d", ranks);
            rank_train(c, "several", ranks, options);
            rank_expect_same_steps(c, cases[i].name, "several", ranks, alone, steps);
        }
    }
}

/* Ranks of both axes, micro-batches, and ZeRO on the data axis. */
static void tensor__shares_the_batch_with_the_data_axis(void **state)
{
    static const char *const modes[] = {"--force" TENSOR(2), "--force --set train.accumulate=3" TENSOR(2),
                                        "--force" TENSOR(2) STAGE(1), "--force" TENSOR(2) STAGE(2),
                                        "--force" TENSOR(2) STAGE(3) ALL_CUT};
    data_case *c = *state;
    int steps = rank_wanted_steps();
    tiny_text(c);
    for (int i = 0; i < CASES; i += 3) {
        double alone[MOST_STEPS];
        train_alone(c, &cases[i], steps, "", alone);
        for (size_t k = 0; k < sizeof modes / sizeof modes[0]; k++) {
            rank_train(c, "several", 4, modes[k]);
            rank_expect_same_steps(c, modes[k], "several", 4, alone, steps);
        }
    }
}

/* Rows between layers, too: with norms and dropout on pieces, and where the rows of a micro-batch do not divide. */
static void tensor__shares_the_sequence(void **state)
{
    static const char *const modes[] = {"--force" TENSOR(2) SEQUENCE,
                                        "--force --set train.accumulate=2" TENSOR(2) SEQUENCE STAGE(1),
                                        "--force --set train.batch=12 --set train.accumulate=6" TENSOR(4) SEQUENCE};
    static const int ranks[] = {2, 4, 4};
    data_case *c = *state;
    int steps = rank_wanted_steps();
    tiny_text(c);
    for (int i = 0; i < CASES; i++) {
        double alone[MOST_STEPS];
        train_alone(c, &cases[i], steps, "", alone);
        for (int k = 0; k < 3; k++) {
            if (ranks[k] == 4 && cases[i].most < 4) continue;
            rank_train(c, "several", ranks[k], modes[k]);
            rank_expect_same_steps(c, modes[k], "several", ranks[k], alone, steps);
        }
    }
}

static const rank_case table = {"mlp", "\"type\": \"mlp\", \"hidden\": [16, 6], \"dropout\": 0.3",
                                "\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0",
                                ", \"task\": \"regression\""};

/* A layer in a region that draws random numbers draws those of the whole. */
static void tensor__drops_the_same_hidden_units(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    double alone[MOST_STEPS];
    rank_write_table(c, false);
    rank_write_job(c, &table, steps);
    rank_train(c, "alone", 1, "");
    rank_read_numbers(c, "alone", "loss", steps, alone);
    rank_train(c, "several", 2, TENSOR(2));
    rank_expect_same_steps(c, "mlp", "several", 2, alone, steps);
    rank_train(c, "several", 4, "--force --set train.accumulate=2" TENSOR(2));
    rank_expect_same_steps(c, "mlp", "several", 4, alone, steps);
}

/* What overflows in the piece of one rank skips the step on all, and the loss scale is one. */
static void tensor__skips_together(void **state)
{
    data_case *c = *state;
    rank_write_table(c, true);
    rank_write_job(c, &table, STEPS);
    for (int ranks = 2; ranks <= 4; ranks += 2)
        rank_expect_same_skips(c, ranks, TENSOR(2) STAGE(1), "gradients are not finite on rank ");
}

static void tensor__smooths_labels_over_all_classes(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    double alone[MOST_STEPS];
    tiny_text(c);
    train_alone(c, &cases[0], steps, "--set train.label_smoothing=0.1", alone);
    rank_train(c, "several", 4, "--set train.label_smoothing=0.1" TENSOR(4));
    rank_expect_same_steps(c, "smoothing", "several", 4, alone, steps);
}

/* Weights of a run of one process, of which each rank takes its pieces. */
static void tensor__starts_from_whole_weights(void **state)
{
    data_case *c = *state;
    double unused[3];
    tiny_text(c);
    train_alone(c, &cases[0], 3, "", unused);
    rank_expect_same_start(c, 2, TENSOR(2));
}

static void tensor__learns_as_one_in_half_precision(void **state)
{
    static const char *const modes[] = {"--set train.precision=bf16", "--set train.precision=fp16",
                                        "--set train.precision=bf16 --set train.masters=false"};
    data_case *c = *state;
    tiny_text(c);
    for (size_t mode = 0; mode < sizeof modes / sizeof modes[0]; mode++) {
        double alone[STEPS], several[STEPS];
        char options[512];
        train_alone(c, &cases[0], STEPS, modes[mode], alone);
        snprintf(options, sizeof options, "--force %s" TENSOR(2) STAGE(1), modes[mode]);
        for (int sequence = 0; sequence < 2; sequence++) {
            if (sequence) strcat(options, SEQUENCE);
            rank_train(c, "several", 4, options);
            rank_read_numbers(c, "several", "loss", STEPS, several);
            for (int i = 0; i < STEPS; i++) rank_expect_near(modes[mode], 4, i + 1, several[i], alone[i], 2e-3);
        }
    }
}

/* What is computed again exchanges nothing twice. */
static void tensor__recomputes_layers(void **state)
{
    data_case *c = *state;
    double kept[STEPS], again[STEPS];
    tiny_text(c);
    write_job(c, &cases[0], STEPS);
    rank_train(c, "kept", 2, TENSOR(2));
    rank_train(c, "again", 2, "--set halftone.recompute.policy=all" TENSOR(2));
    rank_read_numbers(c, "kept", "loss", STEPS, kept);
    rank_read_numbers(c, "again", "loss", STEPS, again);
    assert_memory_equal(kept, again, sizeof kept);
}

/* Norms are of all ranks' gradients, those of pieces and those that every rank has. */
static void tensor__clips_by_the_norm_of_all_pieces(void **state)
{
    data_case *c = *state;
    double unused[STEPS];
    tiny_text(c);
    train_alone(c, &cases[0], STEPS, "", unused);
    rank_expect_same_norms(c, 4, TENSOR(4));
}

static void tensor__repeats_its_bits(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    write_job(c, &cases[3], 6);
    rank_expect_same_bits(c, 4, TENSOR(2) STAGE(1));
}

/* ---- snapshots and evaluation ---- */

static void tensor__resumes_on_any_world(void **state)
{
    data_case *c = *state;
    double alone[30];
    tiny_text(c);
    for (int i = 0; i < CASES; i += 3) {
        train_alone(c, &cases[i], 30, "", alone);
        rank_train(c, "moved", 2, "--force --set train.steps=5" TENSOR(2));
        rank_train(c, "moved", 1, "--resume --set train.steps=10");
        rank_train(c, "moved", 4, "--resume --set train.steps=15" TENSOR(2) STAGE(1));
        rank_train(c, "moved", 2, "--resume --set train.steps=20" STAGE(2));
        rank_train(c, "moved", 4, "--resume --set train.steps=25" TENSOR(2) STAGE(3) ALL_CUT);
        rank_train(c, "moved", 4, "--resume --set train.steps=30" TENSOR(4));
        rank_expect_moved(c, 30, alone);
    }
}

/* Each rank evaluates its share with its pieces; one process does with whole weights. */
static void tensor__evaluates_as_one_process(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    write_job(c, &cases[0], 3);
    rank_expect_same_evaluation(c, 4, TENSOR(2));
}

/* ---- plans and refusals ---- */

static void tensor__holds_what_is_planned_without_them(void **state)
{
    data_case *c = *state;
    double held;
    int status;
    tiny_text(c);
    write_job(c, &cases[0], 2);
    rank_train(c, "run", 4, "--set train.precision=bf16" TENSOR(2) STAGE(1));
    rank_read_numbers(c, "run", "plan_bytes", 1, &held);
    const char *text =
        run(c, "\"$H\" explain job.json --json --ranks 4 --set train.precision=bf16" TENSOR(2) STAGE(1), &status);
    assert_true(rank_number_after(text, "\"plan_bytes\": ") == held);
    expect(c, "\"$H\" explain job.json --ranks 4" TENSOR(2), 0, "4 ranks: data 2 × pipeline 1 × tensor 2");
    expect(c, "\"$H\" check job.json --ranks 4" TENSOR(2), 0, "all_reduce      tensor  f32       13  31296 ");
}

/* All ranks look for what went wrong, each in its pieces. */
static void tensor__names_the_first_value_that_is_not_finite(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    write_job(c, &cases[0], 60);
    expect(c,
           "\"$H\" train job.json --ranks 4 --set train.lr=1e30" TENSOR(2) SEQUENCE
           " > log 2>&1 || { tail -1 log; exit 1; }",
           1, "on rank 0 the first value that is not finite is");
}

static void tensor__ranks_may_be_processes(void **state)
{
    data_case *c = *state;
    double alone[STEPS];
    tiny_text(c);
    train_alone(c, &cases[0], STEPS, "", alone);
    rank_expect_processes(c, 4, TENSOR(2) STAGE(1), alone, STEPS);
}

static void tensor__is_refused_by_name(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    write_job(c, &cases[0], 2);
    expect(c, "\"$H\" train job.json --ranks 3" TENSOR(2), 2, "3 ranks");
    expect(c, "\"$H\" train job.json" TENSOR(2), 2, "1 rank (--ranks, or the launcher's) is no multiple of");
    expect(c, "\"$H\" train job.json --ranks 2" TENSOR(2) " --set train.optimizer=lamb", 1, "looks at whole tensors");
    write_job(c, &cases[0], 2);
    expect(c, "\"$H\" train job.json --ranks 3 --set model.n_inner=62 --set halftone.parallel.tensor=3", 2,
           "no layer of this model can be shared by 3 ranks");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(tensor__has_the_parameters_of_the_whole_model),
        CASE(tensor__makes_the_steps_of_one_process),
        CASE(tensor__shares_the_batch_with_the_data_axis),
        CASE(tensor__shares_the_sequence),
        CASE(tensor__drops_the_same_hidden_units),
        CASE(tensor__skips_together),
        CASE(tensor__smooths_labels_over_all_classes),
        CASE(tensor__starts_from_whole_weights),
        CASE(tensor__learns_as_one_in_half_precision),
        CASE(tensor__recomputes_layers),
        CASE(tensor__clips_by_the_norm_of_all_pieces),
        CASE(tensor__repeats_its_bits),
        CASE(tensor__resumes_on_any_world),
        CASE(tensor__evaluates_as_one_process),
        CASE(tensor__holds_what_is_planned_without_them),
        CASE(tensor__names_the_first_value_that_is_not_finite),
        CASE(tensor__ranks_may_be_processes),
        CASE(tensor__is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
