/* Training with roundings: steps of a recipe behind quantize, jobs with train.quantize, and that what training evaluates is what
 * its run is worth. */
#include <math.h>

#include "cli_case.h"
#include "format/format.h"

static const char job[] =
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32},\n"
    " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"byte\", \"length\": 16,\n"
    "            \"validation_share\": 0.1},\n"
    " \"train\": {\"steps\": 400, \"batch\": 8, \"lr\": 0.001, \"eval_every\": 0, \"output\": \"run\"}}";

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return -1;
    data_case *c = *state;
    ht_text sums = {0};
    for (int i = 0; i < 600; i++) ht_text_add(&sums, "%d+%d=%d\n", i % 5, i % 3, i % 5 + i % 3);
    data_case_text(c, "sums.txt", sums.data);
    ht_text_free(&sums);
    data_case_text(c, "job.json", job);
    expect(c, "\"$H\" train job.json", 0, "");
    return 0;
}

static double number_of(data_case *c, const char *line, const char *key)
{
    int status;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    const char *text = run(c, line, &status), *at = strstr(text, wanted);
    if (status != 0 || !at) fail_msg("%s: %s", line, text);
    return strtod(at + strlen(wanted), NULL);
}

/* The loss of a recipe's result. */
static double loss_after(data_case *c, const char *steps)
{
    ht_text text = {0};
    ht_text_add(&text, "{\"steps\": [%s]}", steps);
    data_case_text(c, "recipe.json", text.data);
    ht_text_free(&text);
    expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out", 0, "");
    return number_of(c, "\"$H\" eval out --json", "loss");
}

#define W2   "{\"quantize\": {\"keep_slower\": true, \"weights\": \"int2\", \"layers\": \"h\\\\.\"}}"
#define TUNE "{\"tune\": {\"steps\": 40, \"lr\": 0.001}}"

static void tune__behind_quantize_trains_with_the_roundings(void **state)
{
    data_case *c = *state;
    double quantized = loss_after(c, W2), trained = loss_after(c, W2 ", " TUNE), before = loss_after(c, TUNE ", " W2);
    if (!(trained < quantized && trained < before))
        fail_msg("%g, quantised without training %g, behind it %g", trained, quantized, before);
}

static void validation__of_training_is_that_of_the_run(void **state)
{
    data_case *c = *state;
    static const char *const groups[] = {
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"bits\": 4}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"bits\": 3, \"granularity\": \"tensor\"}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"bits\": 4}, \"activations\": {\"range\": \"static\"}}]",
        "[{\"weights\": {\"bits\": 8}, \"activations\": {\"range\": \"static\", \"symmetric\": true}}]",
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf q && \"$H\" train job.json --set train.steps=8 --set train.output=q --set 'train.quantize=%s'",
                 groups[i]);
        expect(c, line, 0, "");
        double told = number_of(c, "grep '\"eval\"' q/metrics.jsonl | tail -1", "loss");
        double is = number_of(c, "\"$H\" eval q --json", "loss");
        if (!(fabs(told - is) < 1e-4 * is)) fail_msg("%s: told %.7g, is %.7g", groups[i], told, is);
        snprintf(line, sizeof line,
                 "\"$H\" train job.json --resume --set train.steps=10 --set train.output=q "
                 "--set 'train.quantize=%s'",
                 groups[i]);
        expect(c, line, 0, "");
    }
}

static void teachers__compute_in_full(void **state)
{
    data_case *c = *state;
    double tuned = loss_after(c, W2 ", " TUNE);
    double taught = loss_after(c, W2 ", {\"distill\": {\"steps\": 40, \"lr\": 0.001, \"alpha\": 0.3}}");
    double quantized = loss_after(c, W2);
    if (!(taught < quantized)) fail_msg("%g, without training %g, by data alone %g", taught, quantized, tuned);
}

static void roundings__go_with_precisions_and_micro_batches(void **state)
{
    data_case *c = *state;
    static const char *const settings[] = {"\"precision\": \"bf16\"", "\"precision\": \"fp16\"", "\"micro_batch\": 4"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        char steps[256];
        snprintf(steps, sizeof steps, W2 ", {\"tune\": {\"steps\": 3, \"train\": {%s}}}", settings[i]);
        assert_true(isfinite(loss_after(c, steps)));
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(tune__behind_quantize_trains_with_the_roundings),
        CASE(validation__of_training_is_that_of_the_run),
        CASE(teachers__compute_in_full),
        CASE(roundings__go_with_precisions_and_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
