/* halftone check from outside: what it prints, where, and how it ends. */
#include "cli_case.h"

static void check__prints_values_with_their_origin(void **state)
{
    (void)state;
    expect(NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check - 2>/dev/null", 0,
           "  train_batch_size                8               standard input:1\n");
    expect(NULL, "echo '{\"train_batch_size\": 8}' | \"$H\" check - --set fp16.hysteresis=3", 0,
           "  fp16.hysteresis                 3               --set\n");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check__prints_values_with_their_origin),
        cmocka_unit_test(check__warnings_go_to_stderr_and_are_no_failure),
        cmocka_unit_test(check__warns_of_a_scale_that_may_fall_to_zero),
        cmocka_unit_test(check__errors_end_with_2_and_print_all),
        cmocka_unit_test(check__json_holds_everything_on_stdout),
        cmocka_unit_test(check__has_help_and_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
