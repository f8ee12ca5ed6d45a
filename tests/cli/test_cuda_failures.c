/* GPUs that fail, or lack something: what is said, what goes on, and what of a run is left. On the emulator, which fails as it
 * is told (tests/emulator/emulated_driver.c). */
#include "device/device.h"

#include "cli_case.h"
#include "context_fixture.h"

enum { SKIPPED = 77, ECC_UNCORRECTABLE = 214, LAUNCH_FAILED = 719 };

static void write_job(data_case *c)
{
    ht_text text = {0};
    for (int i = 0; i < 400; i++) ht_text_add(&text, "the %d of %d; ", i * 7 % 31, i % 13);
    data_case_text(c, "text.txt", text.data);
    ht_text_free(&text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"byte\", \"length\": 12},\n"
        " \"train\": {\"steps\": 12, \"batch\": 2, \"lr\": 0.01, \"snapshot_every\": 2, \"eval_every\": 0, "
        "\"output\": \"run\"}}");
}

/* A run that fails behind its first snapshot, however many grids that takes; `said` has what it said. */
#define UNTIL_SNAPSHOT                                                                                                 \
    "failing() { for n in 100 200 400 800 1600; do rm -rf run; "                                                       \
    "HALFTONE_EMULATED_FAILURE=$1@$n \"$H\" train job.json --device cuda $2 > said 2>&1 && return 1; "                 \
    "ls run/snapshots/step-* > there 2>&1 && return; done; return 1; }; "

static void fail_and_resume(data_case *c, int error, const char *environment, const char *options, const char *message)
{
    char line[2048];
    write_job(c);
    snprintf(line, sizeof line,
             UNTIL_SNAPSHOT "set -e; \"$H\" train job.json --device cuda --set train.output=whole > log 2>&1; "
                            "%s failing %d '%s' || { echo no failure; cat said; exit 1; }; "
                            "grep -E '%s' said; exit 9",
             environment, error, options, message);
    expect(c, line, 9, "the newest snapshot is that of step ");
    expect(c,
           "set -e; \"$H\" train job.json --device cuda --resume > log 2>&1; "
           "for f in weights optimizer; do cmp run/snapshots/step-*12/$f.safetensors "
           "whole/snapshots/step-*12/$f.safetensors; done; echo same",
           0, "same\n");
}

/* As a driver says it: late. What the graph of a segment was, and the step. */
static void cuda__a_failure_in_a_graph_names_segment_and_step(void **state)
{
    fail_and_resume(*state, ECC_UNCORRECTABLE, "", "",
                    "step [0-9]+: segment [a-z_]+, replayed as one graph: .*\\(error 214\\).*CUDA_LAUNCH_BLOCKING=1");
}

static void cuda__a_failure_names_instruction_layer_and_step(void **state)
{
    fail_and_resume(*state, LAUNCH_FAILED, "export CUDA_LAUNCH_BLOCKING=1;", "--set halftone.cuda_graphs=false",
                    "step [0-9]+: segment [a-z_]+, instruction [0-9]+ \\([a-z0-9_.]+, (at|a gradient of) "
                    "[a-z0-9_.]+\\): device cuda: "
                    "launching kernel [a-z_]+: .*\\(error 719\\);");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(cuda__a_failure_in_a_graph_names_segment_and_step),
        CASE(cuda__a_failure_names_instruction_layer_and_step),
    };
    if (!getenv("HALFTONE_EMULATED")) {
        puts("skipped: the emulator was not asked for");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
