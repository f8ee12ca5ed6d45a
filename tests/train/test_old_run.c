/* Runs of an older program go on in this one: tests/reference/old_run holds run folders that were killed after step 6,
 * and what the program that wrote them (make_old_run.sh says which) made of the other six steps. */
#include <math.h>

#include "cli_case.h"

/* The loss that the last line of a summary holds. */
static double evaluated_loss(const data_case *c, const char *line)
{
    int status;
    const char *text = run(c, line, &status), *at = strstr(text, "{\"run\": ");
    at = at ? strstr(at, "\"loss\": ") : NULL;
    if (status != 0 || !at) fail_msg("%s: exit status %d, no loss in: %.3000s", line, status, text);
    return strtod(at + strlen("\"loss\": "), NULL);
}

/* What the rest of a run has to share with the older program's: its bits; or, where batches are cut another way since,
 * only that it learns the same. */
typedef enum likeness { SAME_BITS, SAME_LOSS } likeness;

static void expect_the_old_end(const data_case *c, const char *name, likeness like)
{
    char line[256];
    expect(c, "cp -r '" HT_TEST_DIR "/reference/old_run/.' . && chmod -R u+w .", 0, "");
    snprintf(line, sizeof line, "HALFTONE_ISA=portable \"$H\" train %s.json --resume", name);
    expect(c, line, 0, "goes on after step 6");
    snprintf(line, sizeof line, "HALFTONE_ISA=portable ./summary.sh \"$H\" %s > summary", name);
    expect(c, line, 0, "");
#ifdef __x86_64__
    snprintf(line, sizeof line, "diff summary %s.expected && echo same", name);
    if (like == SAME_BITS) expect(c, line, 0, "same\n");
#endif
    /* Where another C library rounds its own way. */
    double now = evaluated_loss(c, "cat summary");
    snprintf(line, sizeof line, "cat %s.expected", name);
    assert_true(fabs(now - evaluated_loss(c, line)) < (like == SAME_BITS ? 1e-3 : 5e-2));
}

/* bf16 with a static loss scale, dropout, clipping, micro-batches, a schedule. The older program left in rng.sample where
 * its last micro-batch began; the checksum of that file in gpt2.expected is the one with a 0 there. */
static void old_run__of_a_transformer_in_bf16_goes_on(void **state)
{
    expect_the_old_end(*state, "gpt2", SAME_BITS);
}

/* fp16 with a dynamic loss scale that has skipped steps and skips more; a state that goes from batch to batch. */
static void old_run__of_a_carried_lstm_in_fp16_goes_on(void **state)
{
    expect_the_old_end(*state, "lstm_lm", SAME_BITS);
}

/* Batches of several shapes in two micro-batches, which had buckets and dropout masks of their own; two vocabularies. */
static void old_run__of_a_translator_goes_on(void **state)
{
    expect_the_old_end(*state, "seq2seq", SAME_LOSS);
}

/* It did not record what its data taught: the files that it was trained on say it again. */
static void old_run__of_a_translator_translates(void **state)
{
    data_case *c = *state;
    expect(c, "cp -r '" HT_TEST_DIR "/reference/old_run/.' . && chmod -R u+w . && test ! -e seq2seq/data.json", 0, "");
    expect(c, "set -e; head -n 20 pairs.tsv > some; \"$H\" predict seq2seq some --json | grep -c '\"text\": '", 0,
           "20\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(old_run__of_a_transformer_in_bf16_goes_on),
        CASE(old_run__of_a_carried_lstm_in_fp16_goes_on),
        CASE(old_run__of_a_translator_goes_on),
        CASE(old_run__of_a_translator_translates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
