/* Fine-tuning against PyTorch's curves, which tests/reference/make_fine_tuning.py stored: from a run, and from a file of
 * PyTorch's, with frozen layers and groups. What is frozen keeps its bytes and takes no memory but its own. */
#include <math.h>

#include "cli_case.h"
#include "format/format.h"

#define REFERENCE HT_TEST_DIR "/reference/fine_tuning"
#define COPY      "cp -r '" REFERENCE "/.' . && chmod -R u+w ."

/* ---- curves ---- */

/* The losses of the run "tuned", one after the other; the number of them. */
static size_t read_losses(const data_case *c, double *losses, size_t most)
{
    size_t count = 0, length;
    char *text = file_read(data_case_path(c, "tuned/metrics.jsonl"), &length);
    assert_non_null(text);
    for (const char *at = text; (at = strstr(at, "\"kind\": \"step\"")) && count < most; count++) {
        at = strstr(at, "\"loss\": ");
        assert_non_null(at);
        losses[count] = strtod(at + strlen("\"loss\": "), NULL);
    }
    free(text);
    return count;
}

/* A thousandth, a tenth of what a person would call the same curve. */
static void expect_the_curve(const data_case *c, const char *name)
{
    enum { STEPS = 100 };
    double losses[STEPS + 1];
    char path[512];
    size_t length;
    snprintf(path, sizeof path, REFERENCE "/%s.txt", name);
    char *text = file_read(path, &length), *at = text;
    assert_non_null(text);
    assert_int_equal(read_losses(c, losses, STEPS + 1), STEPS);
    for (int i = 0; i < STEPS; i++) {
        double wanted = strtod(at, &at);
        if (!(fabs(losses[i] - wanted) <= 1e-3 * wanted))
            fail_msg("%s: step %d has the loss %g, PyTorch's is %g", name, i + 1, losses[i], wanted);
    }
    free(text);
}

static void fine_tuning__from_a_run_has_the_curve_of_pytorch(void **state)
{
    data_case *c = *state;
    expect(c, COPY " && \"$H\" train from_run.json", 0,
           "28 of the model's 28 tensors come from run/snapshots/step-00000060/weights.safetensors");
    expect_the_curve(c, "from_run");
    expect(c, "cmp run/vocabulary.json tuned/vocabulary.json && echo same", 0, "same"); /* that of the sums */
}

static void fine_tuning__from_a_file_of_pytorch_has_its_curve(void **state)
{
    data_case *c = *state;
    expect(c, COPY " && \"$H\" train from_torch.json", 0, "21 of the model's 21 tensors come from torch.safetensors");
    expect_the_curve(c, "from_torch");
}

/* ---- what is frozen ---- */

static bool is_frozen(const char *name)
{
    return strncmp(name, "transformer.w", 13) == 0 || strncmp(name, "transformer.h.0.", 16) == 0;
}

/* Opens the weights of the only snapshot of a run. */
static ht_safetensors *open_weights(data_case *c, const char *run, int step)
{
    char name[128];
    ht_safetensors *file;
    snprintf(name, sizeof name, "%s/snapshots/step-%08d/weights.safetensors", run, step);
    assert_int_equal(ht_safetensors_open(&file, &c->ctx, data_case_path(c, name)), HT_OK);
    return file;
}

static void expect_frozen_bytes(data_case *c, int before_step, const char *after_run, int after_step)
{
    ht_safetensors *before = open_weights(c, "run", before_step), *after = open_weights(c, after_run, after_step);
    size_t frozen = 0;
    assert_int_equal(ht_safetensors_count(before), ht_safetensors_count(after));
    for (size_t i = 0; i < ht_safetensors_count(before); i++) {
        const ht_named_array *a = ht_safetensors_at(before, i), *b = ht_safetensors_find(after, a->name);
        assert_non_null(b);
        assert_int_equal(a->array.bytes, b->array.bytes);
        bool same = memcmp(a->array.data, b->array.data, a->array.bytes) == 0;
        if (same != is_frozen(a->name)) fail_msg("%s: %s", a->name, same ? "stayed" : "changed");
        frozen += same;
    }
    assert_int_equal(frozen, 14);
    ht_safetensors_free(before);
    ht_safetensors_free(after);
}

static void freeze__leaves_the_bytes_of_frozen_parameters(void **state)
{
    static const char *const precisions[] = {"fp32", "bf16", "fp16"};
    data_case *c = *state;
    expect(c, COPY, 0, "");
    for (int i = 0; i < 3; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "\"$H\" train from_run.json --force --set train.steps=5 --set train.precision=%s --set "
                 "train.accumulate=%d",
                 precisions[i], i + 1 == 3 ? 4 : i + 1);
        expect(c, line, 0, "3856 of them frozen");
        expect_frozen_bytes(c, 60, "tuned", 5);
    }
}

/* Without masters the parameters are half themselves, frozen ones too: a run of them can be evaluated and resumed. */
static void freeze__without_masters_has_half_parameters_that_stay(void **state)
{
    data_case *c = *state;
    expect(c,
           COPY " && sed -i 's/\"batch\"/\"precision\": \"bf16\", \"masters\": false, \"batch\"/' *.json && "
                "rm -r run && \"$H\" train pretrain.json --set train.steps=6 && "
                "\"$H\" train from_run.json --set train.steps=4 && "
                "\"$H\" train from_run.json --set train.steps=8 --resume --set data.validation=sums.txt "
                "--allow-data-change && \"$H\" eval tuned",
           0, "3856 of them frozen");
    expect_frozen_bytes(c, 6, "tuned", 8);
    ht_safetensors *file = open_weights(c, "tuned", 8);
    assert_int_equal(ht_safetensors_find(file, "transformer.wte.weight")->array.element, HT_ELEMENT_BF16);
    ht_safetensors_free(file);
}

/* ---- memory ---- */

static int64_t bytes_of(const data_case *c, const char *line, const char *heading)
{
    int status;
    char key[64];
    const char *text = run(c, line, &status);
    snprintf(key, sizeof key, "\"%s\": ", heading);
    const char *at = strstr(text, key);
    if (status != 0 || !at) fail_msg("%s: exit status %d, no %s in: %.1000s", line, status, heading, text);
    return strtoll(at + strlen(key), NULL, 10);
}

/* Gradients take 4 bytes and Adam's moments 8 of every trained element; tensors begin at multiples of 16 elements. */
static void freeze__saves_gradients_moments_and_activations_by_the_formula(void **state)
{
    static const char frozen[] = "\"$H\" explain from_run.json --json",
                      whole[] = "\"$H\" explain from_run.json --json --set train.freeze=null";
    data_case *c = *state;
    int64_t elems[2] = {0}; /* trained, frozen */
    expect(c, COPY, 0, "");
    ht_safetensors *file = open_weights(c, "run", 60);
    for (size_t i = 0; i < ht_safetensors_count(file); i++) {
        const ht_named_array *tensor = ht_safetensors_at(file, i);
        elems[is_frozen(tensor->name)] += (tensor->array.count + 15) / 16 * 16;
    }
    ht_safetensors_free(file);
    assert_int_equal(bytes_of(c, frozen, "gradients"), 4 * elems[0]);
    assert_int_equal(bytes_of(c, frozen, "optimizer"), 8 * elems[0]);
    assert_int_equal(bytes_of(c, whole, "gradients"), 4 * (elems[0] + elems[1]));
    assert_int_equal(bytes_of(c, whole, "optimizer"), 8 * (elems[0] + elems[1]));
    assert_int_equal(bytes_of(c, frozen, "parameters"), bytes_of(c, whole, "parameters"));
    assert_true(2 * bytes_of(c, frozen, "activations") < bytes_of(c, whole, "activations"));
}

/* Of frozen blocks only forward is left. */
static void freeze__ends_backward_where_nothing_is_trained(void **state)
{
    data_case *c = *state;
    expect(c,
           COPY
           " && \"$H\" explain from_run.json --json --set 'train.freeze=\\.h\\.|w.e' --set train.groups=null > shown; "
           "grep '\"layer\": \"transformer.h' shown | grep '\"block\"' > blocks; grep -c '\"block\": \"FWD\"' blocks",
           0, "");
    expect(c, "grep -vc '\"block\": \"FWD\"' blocks", 1, "0\n");
    expect(c, "grep -c '\"layer\": \"transformer.ln_f\", \"block\": \"weight update\"' shown", 0, "");
}

/* ---- groups ---- */

/* A group of the common numbers changes no bit, whatever the rule; one with a rate of 0 keeps its members. */
static void groups__leave_all_rules_as_they_are(void **state)
{
    static const char *const rules[] = {"sgd", "adam", "adamw", "adamw_hf", "adagrad", "lion", "lamb", "muon"};
    data_case *c = *state;
    expect(c, COPY, 0, "");
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        char line[1024];
        snprintf(line, sizeof line,
                 "t() { \"$H\" train from_run.json --force --set train.optimizer=%s --set train.steps=3 --set "
                 "train.freeze=null --set train.output=$1 --set \"train.groups=$2\" > log 2>&1; }; "
                 "t plain null && t grouped '[{\"match\": \"mlp|ln_\"}, {\"match\": \"attn\", \"lr_scale\": 1}]' && "
                 "t stopped '[{\"match\": \"h.0|wte|wpe\", \"lr_scale\": 0}]' && "
                 "cmp plain/snapshots/*3/weights.safetensors grouped/snapshots/*3/weights.safetensors && echo same",
                 rules[i]);
        expect(c, line, 0, "same\n");
        expect_frozen_bytes(c, 60, "stopped", 3);
    }
}

/* ---- going on ---- */

static void fine_tuning__resumes_without_what_it_started_from(void **state)
{
    data_case *c = *state;
    expect(c,
           COPY " && \"$H\" train from_run.json --set train.steps=12 --set train.output=whole && "
                "\"$H\" train from_run.json --set train.steps=5 && mv run elsewhere && "
                "\"$H\" train from_run.json --set train.steps=12 --resume && "
                "for f in weights optimizer; do cmp whole/snapshots/step-00000012/$f.safetensors "
                "tuned/snapshots/step-00000012/$f.safetensors || exit 9; done",
           0, "goes on after step 5");
    expect(c, "\"$H\" eval tuned --set data.validation=sums.txt", 0, "loss");
}

/* A run that was stopped before its first snapshot begins again, from the same weights. */
static void fine_tuning__begins_again_where_there_is_no_snapshot(void **state)
{
    data_case *c = *state;
    expect(c,
           COPY " && \"$H\" train from_run.json --set train.steps=3 && mv tuned whole && cp -r whole tuned && "
                "rm -r tuned/snapshots && \"$H\" train from_run.json --set train.steps=3 --resume && "
                "cmp whole/snapshots/step-00000003/weights.safetensors "
                "tuned/snapshots/step-00000003/weights.safetensors",
           0, "28 of the model's 28 tensors come from run");
}

static void freeze__cannot_change_at_a_resume(void **state)
{
    data_case *c = *state;
    expect(c,
           COPY " && \"$H\" train from_run.json --set train.steps=3 && "
                "\"$H\" train from_run.json --set train.steps=6 --resume --set train.freeze=wte",
           2,
           "changed: train.freeze: [\"^transformer\\\\.w[tp]e\", \"^transformer\\\\.h\\\\.0\\\\.\"] -> \"wte\": "
           "the run cannot go on with it");
    expect(c, "\"$H\" train from_run.json --set train.steps=6 --resume --set train.groups=null", 0,
           "changed: train.groups");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(fine_tuning__from_a_run_has_the_curve_of_pytorch),
        CASE(fine_tuning__from_a_file_of_pytorch_has_its_curve),
        CASE(freeze__leaves_the_bytes_of_frozen_parameters),
        CASE(freeze__without_masters_has_half_parameters_that_stay),
        CASE(freeze__saves_gradients_moments_and_activations_by_the_formula),
        CASE(freeze__ends_backward_where_nothing_is_trained),
        CASE(groups__leave_all_rules_as_they_are),
        CASE(fine_tuning__resumes_without_what_it_started_from),
        CASE(fine_tuning__begins_again_where_there_is_no_snapshot),
        CASE(freeze__cannot_change_at_a_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
