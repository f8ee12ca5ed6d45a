/* halftone check from outside: what it prints, where, and how it ends. */
#include "cli_case.h"

static void check__prints_values_with_their_origin(void **state)
{
    (void)state;
    expect(NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check - 2>/dev/null | tr -s ' '", 0,
           " train_batch_size 8 standard input:1\n");
    expect(NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check - --set fp16.hysteresis=3 | tr -s ' '", 0,
           " fp16.hysteresis 3 --set\n");
    expect(NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check - --ranks 4 2>/dev/null", 0,
           "derived: 8 / (1 × 4 ranks)");
    expect(NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check --all -", 0,
           "zero_optimization.stage3_max_live_parameters");
}

static void check__warnings_go_to_stderr_and_are_no_failure(void **state)
{
    (void)state;
    expect(NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check - >/dev/null", 0,
           "warning: gradient_clipping: not given, so gradients are clipped to a global norm of 1.0");
}

static void check__warns_of_a_scale_that_may_fall_to_zero(void **state)
{
    (void)state;
    expect(NULL,
           "echo '{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true, \"min_loss_scale\": 0}}' | \"$H\" check - "
           "2>&1 >/dev/null",
           0, "fp16.min_loss_scale: 0 would let the scale fall to 0");
}

static void check__errors_end_with_2_and_print_all(void **state)
{
    (void)state;
    expect(NULL, "echo '{\"train_batch_size\": -1, \"fp16\": {\"enable\": 1}}' | \"$H\" check - >/dev/null", 2,
           "error: standard input:1: train_batch_size: expected an integer from 1 up, found -1\n"
           "error: standard input:1: fp16.enable: unknown key; did you mean \"enabled\"?\n");
    expect(NULL, "test -z \"$(echo '{\"fp16\": {\"enable\": 1}}' | \"$H\" check - 2>/dev/null)\"", 0, "");
    expect(NULL, "\"$H\" check /nowhere/job.json", 2, "error: /nowhere/job.json: No such file or directory\n");
    expect(NULL, "echo '{\"halftone\": {\"fp32_ops\": [\"matmul\", \"sofmax\"]}}' | \"$H\" check - >/dev/null", 2,
           "halftone.fp32_ops: there is no op \"sofmax\"; did you mean \"softmax\"?\n");
    expect(NULL, "echo '{\"halftone\": {\"half_ops\": \"qwertyuiop\"}}' | \"$H\" check - >/dev/null", 2,
           "halftone.half_ops: there is no op \"qwertyuiop\"\n");
    expect(NULL, "\"$H\" check", 2, "halftone: check: which file?");
    expect(NULL, "\"$H\" check a b", 2, "one file at a time");
    expect(NULL, "\"$H\" check --ranks 0 a", 2, "--ranks takes a whole number from 1 to 1000000, not '0'");
    expect(NULL, "\"$H\" check --ranks 1.5 a", 2, "not '1.5'");
    expect(NULL, "\"$H\" check a --set", 2, "--set takes KEY=VALUE");
    expect(NULL, "\"$H\" check --jsn a", 2, "'--jsn' is not understood");
}

static void check__json_holds_everything_on_stdout(void **state)
{
    (void)state;
    expect(
        NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check - --json 2>/dev/null", 0,
        "\"engine.train_batch_size\": {\"value\": 8, \"origin\": \"file\", \"file\": \"standard input\", \"line\": 1, "
        "\"standing\": \"used\"}");
    expect(NULL, "echo '{\"fp16\": 3}' | \"$H\" check - --json 2>/dev/null", 2,
           "\"errors\": [\n    \"standard input:1: fp16: expected an object, found an integer\"\n  ]");
}

static void check__has_help_and_keys(void **state)
{
    (void)state;
    expect(NULL, "\"$H\" check --help 2>/dev/null", 0, "usage: halftone check FILE");
    expect(NULL, "\"$H\" check --keys 2>/dev/null", 0, "# Config keys");
}

#define GPT2(width, rest)                                                                                              \
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": " width "},\n"                        \
    " \"data\": {\"format\": \"text\", \"train\": \"a.txt\"" rest "}, \"train\": {\"epochs\": 2, \"batch\": 2}}\n"

/* What would stop training at its start stops check. */
static void check__opens_the_data_and_builds_the_model(void **state)
{
    data_case *c = *state;
    data_case_text(c, "job.json", GPT2("16", ", \"length\": 8"));
    expect(c, "\"$H\" check job.json", 2, "error: data.train: there is no file \"a.txt\"\n");
    expect(c, "\"$H\" check job.json --json", 2, "\"errors\": [\n    \"data.train: there is no file");
    expect(c, "\"$H\" check job.json --json", 2, "\"train.epochs\": {\"value\": 2,");
    expect(c, "\"$H\" check job.json --config-only", 0, "epochs");
    data_case_text(c, "a.txt", "0123456789012345678901234567890123456789");
    expect(c, "\"$H\" check job.json", 0, "epochs");
    expect(c, "CUDA_VISIBLE_DEVICES= \"$H\" check job.json --device cuda", 0,
           "the job is checked all the same, and cannot run here\n");
    expect(c, "CUDA_VISIBLE_DEVICES= \"$H\" check job.json 2>&1 | grep -c 'cannot run here'", 1, "0\n");
    expect(c, "\"$H\" check job.json --set model.n_embd=15", 2, "error: model gpt2: ");
    expect(
        c, "\"$H\" check job.json --set data.length=64", 2,
        "error: data.length: rows of 64 tokens, and the target of the last, but the longest text to train on has 36");
    expect(c, "\"$H\" train job.json --set data.length=64", 2, "data.length: rows of 64 tokens");
}

static void check__rows_are_as_long_as_the_positions(void **state)
{
    data_case *c = *state;
    data_case_text(c, "job.json", GPT2("16", ""));
    data_case_text(c, "a.txt", "0123456789012345678901234567890123456789");
    expect(c, "\"$H\" check job.json --set model.n_positions=12", 0, "derived: model.n_positions (--set)");
    expect(c, "\"$H\" check job.json --set model.n_positions=12 --set data.length=16", 2,
           "sequences of 16 do not fit n_positions 12");
}

static void set__steps_and_epochs_replace_each_other(void **state)
{
    data_case *c = *state;
    data_case_text(c, "job.json", GPT2("16", ", \"length\": 8"));
    expect(c, "\"$H\" check job.json --config-only --set train.steps=7", 0, "derived: train.steps is given by --set");
    expect(c, "sed s/epochs/steps/ job.json > steps.json; \"$H\" check steps.json --config-only --set train.epochs=7",
           0, "derived: train.epochs is given by --set");
    expect(c, "\"$H\" check job.json --config-only --set train.steps=7 --set train.epochs=1", 2,
           "train.steps is given too");
}

static void program__says_what_the_environment_gets_wrong(void **state)
{
    data_case *c = *state;
    data_case_text(c, "job.json", GPT2("16", ", \"length\": 8"));
    data_case_text(c, "a.txt", "0123456789012345678901234567890123456789");
    expect(c, "OMP_NUM_THREADS=abc \"$H\" check job.json 2>&1 >/dev/null", 0,
           "halftone: OMP_NUM_THREADS is 'abc', which is no number above 0: ");
    expect(c, "OMP_NUM_THREADS=2 \"$H\" check job.json 2>&1 >/dev/null | grep -c OMP", 1, "0\n");
    expect(NULL, "\"$H\" -h", 0, "usage: halftone COMMAND");
    expect(NULL, "\"$H\" check -h", 0, "usage: halftone check FILE");
    if (system("command -v script >/dev/null") != 0) return; /* it lends a terminal */
    expect(c,
           "TERM=xterm script -qec \"'$H' train job.json\" /dev/null | grep -c \"$(printf '\\033')\" > n; [ $(cat n) "
           "-gt 0 ]",
           0, "");
    expect(c, "TERM=dumb script -qec \"'$H' train job.json --force\" /dev/null | grep -c \"$(printf '\\033')\"", 1,
           "0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__prints_values_with_their_origin),
        cmocka_unit_test(check__warnings_go_to_stderr_and_are_no_failure),
        cmocka_unit_test(check__warns_of_a_scale_that_may_fall_to_zero),
        cmocka_unit_test(check__errors_end_with_2_and_print_all),
        cmocka_unit_test(check__json_holds_everything_on_stdout),
        cmocka_unit_test(check__has_help_and_keys),
        cmocka_unit_test_setup_teardown(check__opens_the_data_and_builds_the_model, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(check__rows_are_as_long_as_the_positions, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(set__steps_and_epochs_replace_each_other, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(program__says_what_the_environment_gets_wrong, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
