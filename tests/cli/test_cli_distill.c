/* The step distill of halftone compress: students that begin with layers of the run, results without a teacher, and recipes
 * that are refused. */
#include <math.h>
#include <sys/stat.h>

#include "cli_case.h"
#include "format/format.h"

enum { STEPS = 6 };

static const char gpt2[] =
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 4, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
    " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"byte\", \"length\": 16,\n"
    "            \"validation_share\": 0.1},\n"
    " \"train\": {\"steps\": 6, \"batch\": 8, \"lr\": 0.01, \"eval_every\": 0, \"output\": \"run\"}}";

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return -1;
    data_case *c = *state;
    ht_text sums = {0};
    for (int i = 0; i < 400; i++) ht_text_add(&sums, "%d+%d=%d\n", i % 17, i % 11, i % 17 + i % 11);
    data_case_text(c, "sums.txt", sums.data);
    ht_text_free(&sums);
    data_case_text(c, "job.json", gpt2);
    expect(c, "\"$H\" train job.json", 0, "");
    return 0;
}

static void recipe(data_case *c, const char *steps)
{
    ht_text text = {0};
    ht_text_add(&text, "{\"steps\": [%s]}", steps);
    data_case_text(c, "recipe.json", text.data);
    ht_text_free(&text);
}

#define COMPRESS "rm -rf out && \"$H\" compress run recipe.json -o out"

static ht_safetensors *open_weights(data_case *c, const char *run, int step)
{
    char name[128];
    ht_safetensors *file;
    snprintf(name, sizeof name, "%s/snapshots/step-%08d/weights.safetensors", run, step);
    if (ht_safetensors_open(&file, &c->ctx, data_case_path(c, name)) != HT_OK) fail_msg("%s", c->ctx.message);
    return file;
}

static const ht_array *tensor(const ht_safetensors *file, const char *name)
{
    const ht_named_array *found = ht_safetensors_find(file, name);
    if (!found) fail_msg("there is no %s", name);
    return &found->array;
}

static void expect_same(const ht_safetensors *a, const char *name, const ht_safetensors *b, const char *other)
{
    const ht_array *left = tensor(a, name), *right = tensor(b, other);
    assert_int_equal(left->bytes, right->bytes);
    assert_memory_equal(left->data, right->data, left->bytes);
}

/* A rate of 0 leaves the student as it began. */
static void student__begins_with_the_layers_that_were_chosen(void **state)
{
    data_case *c = *state;
    static const struct {
        const char *student;
        int layers[2];
    } cases[] = {{"{\"layers\": [1, 3]}", {1, 3}}, {"{\"n_layer\": 2}", {0, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char steps[256], name[64];
        snprintf(steps, sizeof steps,
                 "{\"distill\": {\"steps\": 1, \"lr\": 0, \"train\": {\"weight_decay\": 0}, \"student\": %s}}",
                 cases[i].student);
        recipe(c, steps);
        expect(c, COMPRESS, 0, "");
        ht_safetensors *before = open_weights(c, "run", STEPS), *after = open_weights(c, "out", 0);
        for (int layer = 0; layer < 2; layer++) {
            char was[64];
            snprintf(name, sizeof name, "transformer.h.%d.mlp.c_fc.weight", layer);
            snprintf(was, sizeof was, "transformer.h.%d.mlp.c_fc.weight", cases[i].layers[layer]);
            expect_same(after, name, before, was);
        }
        expect_same(after, "transformer.wte.weight", before, "transformer.wte.weight");
        assert_null(ht_safetensors_find(after, "transformer.h.2.mlp.c_fc.weight"));
        ht_safetensors_free(before);
        ht_safetensors_free(after);
    }
}

static void result__is_a_run_without_a_teacher(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"distill\": {\"steps\": 3, \"student\": {\"layers\": [0, 2]}, \"hidden\": [[0, 0], [2, 1]],"
              " \"attention\": [[2, 1]]}}");
    expect(c, COMPRESS, 0, "");
    ht_safetensors *after = open_weights(c, "out", 0);
    for (size_t i = 0; i < ht_safetensors_count(after); i++) {
        const char *name = ht_safetensors_at(after, i)->name;
        if (strstr(name, "teacher") || strstr(name, "distill")) fail_msg("%s is in the result", name);
    }
    ht_safetensors_free(after);
    expect(c, "\"$H\" eval out", 0, "loss");
    expect(c, "grep -c teacher out/job.json out/model.ht | sort", 0, "model.ht:0");
    expect(c, "\"$H\" train out/job.json --resume --set train.steps=2", 0, "");
    expect(c, "grep layers out/compress.json", 0, "\"layers\": [0, 2]");
    expect(c, "! ls -d out.partial 2>/dev/null", 0, "");
}

/* What the student has seen shows: without the teacher's share it is another model. */
static void teacher__changes_what_is_learned(void **state)
{
    data_case *c = *state;
    static const char *const shares[] = {"0", "1"};
    for (int i = 0; i < 2; i++) {
        char steps[128], copy[64];
        snprintf(steps, sizeof steps, "{\"distill\": {\"steps\": 3, \"alpha\": %s, \"student\": {\"n_layer\": 2}}}",
                 shares[i]);
        recipe(c, steps);
        expect(c, COMPRESS, 0, "");
        snprintf(copy, sizeof copy, "rm -rf share%d && mv out share%d", i, i);
        expect(c, copy, 0, "");
    }
    expect(c,
           "cmp -s share0/snapshots/step-00000000/weights.safetensors"
           " share1/snapshots/step-00000000/weights.safetensors",
           1, "");
}

static void narrower_students__have_projections(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"distill\": {\"steps\": 2, \"student\": {\"n_layer\": 2, \"n_embd\": 8}, \"hidden\": [[3, 1]]}},"
              "{\"tune\": {\"steps\": 2}}");
    expect(c, COMPRESS, 0, "distill.projection.0.weight");
    expect(c, "\"$H\" eval out", 0, "loss");
}

static void pruned_models__learn_from_what_they_were(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"mlp\"}}, {\"distill\": {\"steps\": 2}}");
    expect(c, COMPRESS, 0, "not zero");
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"mlp\"}},"
              "{\"distill\": {\"steps\": 2, \"student\": {\"n_layer\": 1}}}");
    expect(c, COMPRESS, 2, "prune behind it");
}

/* Precisions and batches of several micro-batches have the teacher, too. */
static void training__is_the_jobs(void **state)
{
    data_case *c = *state;
    static const char *const settings[] = {"\"precision\": \"bf16\"", "\"precision\": \"fp16\"",
                                           "\"micro_batch\": 4, \"optimizer\": \"lion\""};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        char steps[256];
        snprintf(steps, sizeof steps,
                 "{\"distill\": {\"steps\": 2, \"student\": {\"n_layer\": 2}, \"hidden\": [[3, 1]], \"train\": {%s}}}",
                 settings[i]);
        recipe(c, steps);
        expect(c, COMPRESS, 0, "");
    }
}

static void recipes__are_refused_with_what_is_wrong(void **state)
{
    data_case *c = *state;
    static const struct {
        const char *step, *says;
    } cases[] = {
        {"{}", "steps"},
        {"{\"steps\": 1, \"alpha\": 2}", "alpha"},
        {"{\"steps\": 1, \"temperature\": 0}", "temperature"},
        {"{\"steps\": 1, \"student\": 2}", "distill.student: expected an object"},
        {"{\"steps\": 1, \"student\": {\"layers\": [0, 4]}}", "the model's layers are 0 to 3"},
        {"{\"steps\": 1, \"student\": {\"layers\": [2, 1]}}", "they ascend"},
        {"{\"steps\": 1, \"student\": {\"layers\": []}}", "expected a list of layers"},
        {"{\"steps\": 1, \"student\": {\"layers\": [0], \"n_layer\": 1}}", "both say"},
        {"{\"steps\": 1, \"student\": {\"n_layer\": 5}}", "expected 1 to 4"},
        {"{\"steps\": 1, \"student\": {\"n_layers\": 2}}", "n_layers"},
        {"{\"steps\": 1, \"hidden\": [[0]]}", "expected pairs"},
        {"{\"steps\": 1, \"hidden\": [[0, \"transformer.nowhere\"]]}", "no module 'transformer.nowhere'"},
        {"{\"steps\": 1, \"hidden\": [[7, 0]]}", "no module 'transformer.h.7'"},
        {"{\"steps\": 1, \"hidden\": [[-1, 0]]}", "expected the number of a layer"},
        {"{\"steps\": 1, \"student\": {\"n_head\": 4}, \"attention\": [[0, 0]]}", "differs in heads"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char steps[256];
        snprintf(steps, sizeof steps, "{\"distill\": %s}", cases[i].step);
        recipe(c, steps);
        expect(c, COMPRESS, 2, cases[i].says);
        expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
    }
}

/* Models without numbered layers learn from their teacher as they are, or with other sizes. */
static void classifiers__have_teachers(void **state)
{
    data_case *c = *state;
    ht_text table = {0};
    ht_text_add(&table, "a,b,kind\n");
    for (int i = 0; i < 120; i++) ht_text_add(&table, "%d,%d,%s\n", i % 7, i % 5, i % 7 > i % 5 ? "more" : "less");
    data_case_text(c, "table.csv", table.data);
    ht_text_free(&table);
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"mlp\", \"hidden\": [16, 8]},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"table.csv\", \"label\": \"kind\","
                   " \"validation_share\": 0.2},\n"
                   " \"train\": {\"steps\": 5, \"batch\": 8, \"output\": \"run\"}}");
    expect(c, "rm -rf run && \"$H\" train job.json", 0, "");
    recipe(c, "{\"distill\": {\"steps\": 3, \"student\": {\"hidden\": [4]}}}");
    expect(c, COMPRESS, 0, "accuracy");
    recipe(c, "{\"distill\": {\"steps\": 3, \"student\": {\"layers\": [0]}}}");
    expect(c, COMPRESS, 2, "model.type mlp has no list of equal layers");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(student__begins_with_the_layers_that_were_chosen),
        CASE(result__is_a_run_without_a_teacher),
        CASE(teacher__changes_what_is_learned),
        CASE(narrower_students__have_projections),
        CASE(pruned_models__learn_from_what_they_were),
        CASE(training__is_the_jobs),
        CASE(recipes__are_refused_with_what_is_wrong),
        CASE(classifiers__have_teachers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
