/* What people see on a terminal of 80 columns. */
#include "cli_case.h"

static void write_job(data_case *c)
{
    static char text[12000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)sprintf(text + length, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"char\", \"length\": 16},\n"
        " \"train\": {\"steps\": 200, \"batch\": 8, \"eval_every\": 50, \"precision\": \"fp16\"}}\n");
}

/* Commands to copy stay whole, and so do words. */
#define LONGEST                                                                                                        \
    " 2> /dev/null | grep -v -e '/halftone' -e '^step ' | LC_ALL=C.UTF-8 awk '{if (length($0) > 80) {print; bad = "    \
    "1}} END {print bad + 0, "                                                                                         \
    "(NR > 0)}'"

static void terminal__of_80_columns_is_never_exceeded(void **state)
{
    data_case *c = *state;
    write_job(c);
    static const char *const commands[] = {"formats",
                                           "ops",
                                           "opt --list",
                                           "help",
                                           "train --help",
                                           "compare --help",
                                           "data job.json",
                                           "explain job.json",
                                           "explain job.json --all",
                                           "diff job.json --precision fp32,bf16",
                                           "train job.json --force --numerics --set train.steps=3",
                                           "compare job.json --seeds 2 --set train.steps=3",
                                           "demo --steps 2"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        char line[512];
        /* Braille is several bytes a character for some awks. */
        snprintf(line, sizeof line, "COLUMNS=80 LC_ALL=C \"$H\" %s" LONGEST, commands[i]);
        expect(c, line, 0, "0 1\n");
    }
}

static void terminal__tables_lose_their_least_important_columns_first(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(
        c,
        "COLUMNS=75 \"$H\" compare job.json --precision fp32 --set train.steps=2 2> /dev/null > said; head -n 1 said",
        0, "run      loss  held out  perplexity  accuracy  skipped  step ms  tokens/s\n");
    expect(c, "cat said", 0, "(no space for: bits)\n");
    expect(c, "COLUMNS=60 \"$H\" compare job.json --precision fp32 --set train.steps=2 2> /dev/null | head -n 1", 0,
           "run      loss  perplexity  accuracy  skipped  step ms\n");
    /* Off a terminal nothing is left out. */
    expect(c, "\"$H\" compare job.json --precision fp32 --set train.steps=2 2> /dev/null | grep -c 'no space for'", 1,
           "0\n");
}

/* In a pseudo-terminal, where there is a program that makes one. */
#define TERMINAL(columns, line) "TERM=xterm script -qec \"stty cols " columns "; $H " line "\" /dev/null"

static void terminal__bar_keeps_the_time_that_is_left(void **state)
{
    data_case *c = *state;
    int status;
    write_job(c);
    run(c, "command -v script && script -qec true /dev/null", &status);
    if (status != 0) skip();
    expect(c, TERMINAL("80", "train job.json") " | tr '\\r' '\\n' | grep '200/200' > bars; cat bars", 0, " left");
    expect(c, "grep -c '#' bars", 0, "");
    expect(c, "sed 's/\\x1b.*//' bars | awk 'length($0) > 79 {bad = 1} END {print bad + 0}'", 0, "0\n");
    expect(c, TERMINAL("40", "train job.json --force") " | tr '\\r' '\\n' | grep '200/200' > bars; cat bars", 0,
           " left");
    expect(c, "sed 's/\\x1b.*//' bars | awk 'length($0) > 39 {bad = 1} END {print bad + 0}'", 0, "0\n");
    /* A terminal that knows no control sequences gets none. */
    expect(c, "TERM=dumb script -qec \"$H train job.json --force\" /dev/null | grep -c \"$(printf '\\033')\"", 1,
           "0\n");
}

/* Its launcher gathers what it says, by a pseudo-terminal if it is Open MPI. */
static void terminal__of_a_rank_is_none(void **state)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "PMI_RANK=0 PMI_SIZE=1"};
    data_case *c = *state;
    int status;
    write_job(c);
    run(c, "command -v script && script -qec true /dev/null", &status);
    if (status != 0) skip();
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "TERM=xterm script -qec \"stty cols 40; export %s; $H train job.json --force --set train.steps=2\" "
                 "/dev/null > said; grep -c \"$(printf '\\033')\" said; grep '^step .\\{60\\}' said",
                 variables[i]);
        expect(c, line, 0, "0\n");
    }
    /* A shell that Slurm has started for a person. */
    expect(c,
           "TERM=xterm script -qec \"stty cols 80; export SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1; $H train job.json "
           "--force --set train.steps=2\" /dev/null | grep -c \"$(printf '\\033')\" > said; test $(cat said) -gt 0",
           0, "");
}

static void terminal__errors_break_at_words(void **state)
{
    data_case *c = *state;
    int status;
    write_job(c);
    run(c, "command -v script && script -qec true /dev/null", &status);
    if (status != 0) skip();
    expect(
        c,
        TERMINAL(
            "60",
            "check job.json --set train.optimiser_of_mine=1 --set train.batch=many") " | awk "
                                                                                     "'{sub(/\\r$/, \"\"); if "
                                                                                     "(length($0) > 60) bad = 1} END "
                                                                                     "{print bad + 0, (NR > 2)}'",
        0, "0 1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(terminal__of_80_columns_is_never_exceeded, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(terminal__tables_lose_their_least_important_columns_first, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(terminal__bar_keeps_the_time_that_is_left, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(terminal__of_a_rank_is_none, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(terminal__errors_break_at_words, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
