/* halftone compress, step quantize with codes of weights alone: GPTQ and AWQ against round to nearest in every layer of a
 * trained model, files that are really smaller, a result that is a run like any other, and recipes that are refused. */
#include <math.h>

#include "cli_case.h"
#include "format/format.h"

/* "run": a small language model, trained until it has learned something. */
static const char job[] =
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 64},\n"
    " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"byte\", \"length\": 32,\n"
    "            \"validation_share\": 0.1},\n"
    " \"train\": {\"steps\": 120, \"batch\": 8, \"lr\": 0.001, \"eval_every\": 0, \"output\": \"run\"}}";
enum { LAYERS = 8 }; /* the head is the table of embeddings, which stays */

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return -1;
    data_case *c = *state;
    ht_text sums = {0};
    for (int i = 0; i < 1500; i++) ht_text_add(&sums, "%d+%d=%d\n", i * 7 % 97, i * 3 % 89, i * 7 % 97 + i * 3 % 89);
    data_case_text(c, "sums.txt", sums.data);
    ht_text_free(&sums);
    data_case_text(c, "job.json", job);
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

#define COMPRESS         "rm -rf out && \"$H\" compress run recipe.json -o out"
#define STEP(bits, more) "{\"quantize\": {\"weights\": \"" bits "\", \"activations\": \"none\"" more "}}"

static double loss_of(data_case *c, const char *folder)
{
    int status;
    char line[256];
    snprintf(line, sizeof line, "\"$H\" eval %s --json", folder);
    const char *text = run(c, line, &status), *at = strstr(text, "\"loss\": ");
    if (status != 0 || !at) fail_msg("%s: %s", line, text);
    return strtod(at + strlen("\"loss\": "), NULL);
}

static const ht_json *read_report(data_case *c, ht_arena *arena)
{
    int status;
    const ht_json *root;
    const char *text = run(c, "cat out/compress.json", &status);
    assert_int_equal(status, 0);
    assert_int_equal(ht_json_parse(&c->ctx, arena, "compress.json", text, strlen(text), &root), HT_OK);
    return root;
}

static double number(const ht_json *object, const char *key)
{
    const ht_json *value = object ? ht_json_get(object, key) : NULL;
    double is;
    if (!value || !ht_json_as_number(value, &is)) fail_msg("there is no number %s", key);
    return is;
}

static ht_safetensors *open_weights(data_case *c, const char *folder, int step)
{
    char name[128];
    ht_safetensors *file;
    snprintf(name, sizeof name, "%s/snapshots/step-%08d/weights.safetensors", folder, step);
    if (ht_safetensors_open(&file, &c->ctx, data_case_path(c, name)) != HT_OK) fail_msg("%s", c->ctx.message);
    return file;
}

/* ---- quality ---- */

static void gptq_and_awq__are_better_than_rounding_in_every_layer(void **state)
{
    data_case *c = *state;
    static const char *const steps[] = {
        STEP("int4", ", \"group\": 64, \"method\": \"gptq\", \"calibration\": {\"batches\": 16}"),
        STEP("int4", ", \"group\": 64, \"method\": \"awq\", \"calibration\": {\"batches\": 16}"),
    };
    double was = loss_of(c, "run");
    for (size_t i = 0; i < 2; i++) {
        ht_arena *arena = ht_arena_create();
        size_t layers = 0;
        assert_non_null(arena);
        recipe(c, steps[i]);
        expect(c, COMPRESS, 0, "8 of 8 layers");
        const ht_json *list = ht_json_get(read_report(c, arena), "weight_only");
        assert_true(list && list->kind == HT_JSON_ARRAY);
        for (const ht_json *layer = list->child; layer; layer = layer->next, layers++) {
            double error = number(layer, "error"), nearest = number(layer, "rtn_error");
            print_message("%s: %s %.4f, rtn %.4f\n", ht_json_get(layer, "name")->text,
                          ht_json_get(layer, "method")->text, error, nearest);
            assert_true(error > 0 && error < nearest && nearest < 0.3);
        }
        assert_int_equal(layers, LAYERS);
        double is = loss_of(c, "out");
        print_message("loss %.5f, was %.5f\n", is, was);
        assert_true(is != was && is < 1.015 * was);
        ht_arena_free(arena);
    }
}

/* 8 bits lose next to nothing, by any method, with and without zero points, by channel and by group. */
static void eight_bits__are_as_good_as_floats(void **state)
{
    data_case *c = *state;
    static const char *const steps[] = {
        STEP("int8", ""),
        STEP("int8", ", \"symmetric\": true"),
        STEP("int8", ", \"group\": 32"),
        STEP("int8", ", \"group\": 32, \"method\": \"gptq\", \"symmetric\": true, \"calibration\": {\"batches\": 2}"),
    };
    double was = loss_of(c, "run");
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        recipe(c, steps[i]);
        expect(c, COMPRESS, 0, "8 layers read codes");
        double is = loss_of(c, "out");
        if (!(is != was && fabs(is - was) < 0.002 * was)) fail_msg("%s: %g, not %g", steps[i], is, was);
    }
}

/* ---- what is stored ---- */

static void four_bits__make_a_file_of_an_eighth(void **state)
{
    data_case *c = *state;
    ht_arena *arena = ht_arena_create();
    assert_non_null(arena);
    recipe(c, STEP("int4", ", \"group\": 64"));
    expect(c, COMPRESS, 0, "");
    ht_safetensors *after = open_weights(c, "out", 0);
    static const char fc[] = "transformer.h.1.mlp.c_fc.weight";
    char name[96];
    assert_null(ht_safetensors_find(after, fc));
    static const struct {
        const char *part;
        size_t bytes;
    } parts[] = {{".q4", 64 * 256 / 2}, {".q4_scale", 256 * 4}, {".q4_zero", 256}, {".q4_a_scale", 64 * 4}};
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s%s", fc, parts[i].part);
        const ht_named_array *found = ht_safetensors_find(after, name);
        if (!found) fail_msg("there is no %s", name);
        assert_int_equal(found->array.bytes, parts[i].bytes);
    }
    ht_safetensors_free(after);
    const ht_json *root = read_report(c, arena);
    double before = number(ht_json_get(root, "before"), "disk_bytes"),
           is = number(ht_json_get(root, "after"), "disk_bytes");
    double memory = number(ht_json_get(root, "before"), "memory_bytes"),
           less = number(ht_json_get(root, "after"), "memory_bytes");
    /* Layers are 98,304 weights: 393,216 bytes become 63,232, words and scales. */
    assert_true(before - is > 320000 && memory - less > 300000);
    ht_arena_free(arena);
}

/* ---- a run like any other ---- */

static void result__opens_like_any_run(void **state)
{
    data_case *c = *state;
    recipe(c, STEP("int4", ", \"group\": 64, \"method\": \"awq\", \"calibration\": {\"batches\": 4}"));
    expect(c, COMPRESS, 0, "");
    expect(c, "grep -c matmul_nbits out/model.ht", 0, "");
    expect(c, "\"$H\" profile out/job.json --infer --batch 1,2", 0, "");
    expect(c, "\"$H\" explain out/job.json", 0, "");
    double once = loss_of(c, "out");
    /* Again: floats that its codes stand for, which GPTQ gives other codes. */
    recipe(c, STEP("int8", ", \"method\": \"gptq\", \"calibration\": {\"batches\": 4}"));
    expect(c, "\"$H\" compress out recipe.json -o twice", 0, "");
    double twice = loss_of(c, "twice");
    assert_true(fabs(twice - once) < 0.01 * once);
    /* Training goes on from codes, and leaves floats, which evaluation rounds. */
    expect(c, "\"$H\" train out/job.json --resume --set train.output=out --set train.steps=3 --set train.eval_every=0",
           0, "");
    ht_safetensors *after = open_weights(c, "out", 3);
    assert_non_null(ht_safetensors_find(after, "transformer.h.0.mlp.c_fc.weight"));
    ht_safetensors_free(after);
    assert_true(loss_of(c, "out") < 1.2 * once);
}

/* Weights that a model stores as [outputs, inputs]. */
static void transposed_weights__have_codes_too(void **state)
{
    data_case *c = *state;
    expect(c,
           "sed 's/\"gpt2\".*64}/\"llama\", \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"hidden_size\": 64, "
           "\"intermediate_size\": 128}/' job.json > llama.json && \"$H\" train llama.json --set train.output=llama",
           0, "");
    recipe(c, STEP("int4", ", \"group\": 64, \"method\": \"gptq\", \"calibration\": {\"batches\": 4}"));
    expect(c, "\"$H\" compress llama recipe.json -o small", 0, "");
    ht_safetensors *after = open_weights(c, "small", 0);
    bool found = false;
    for (size_t i = 0; i < ht_safetensors_count(after); i++)
        found |= strstr(ht_safetensors_at(after, i)->name, ".q4t") != NULL;
    assert_true(found);
    ht_safetensors_free(after);
    double was = loss_of(c, "llama");
    assert_true(fabs(loss_of(c, "small") - was) < 0.03 * was);
}

/* ---- what is refused ---- */

static void recipes__are_refused_with_what_is_wrong(void **state)
{
    static const struct {
        const char *step, *message;
    } rows[] = {
        {STEP("int3", ""), "quantize.weights is int3; without codes of activations it is int4 or int8"},
        {STEP("int4", ", \"group\": 48"), "its inputs are not whole groups"},
        {STEP("int4", ", \"group\": 0"), "steps[0].quantize.group"},
        {STEP("int4", ", \"method\": \"guess\""), "steps[0].quantize.method"},
        {STEP("int4", ", \"granularity\": \"tensor\""), "quantize.granularity is given, and activations are none"},
        {STEP("int4", ", \"layers\": \"wte\""), "something else reads its weight"},
        {STEP("int4", ", \"layers\": \"encoder\""), "\"encoder\" matches no weight of a layer"},
        {"{\"quantize\": {\"group\": 64}}", "quantize.group is given, and activations are not none"},
        {"{\"quantize\": {\"method\": \"gptq\"}}", "quantize.method is given, and activations are not none"},
        {STEP("int4", ", \"method\": \"gptq\", \"calibration\": {\"batches\": 2, \"data\": \"none.txt\"}"), "none.txt"},
    };
    data_case *c = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int status;
        recipe(c, rows[i].step);
        const char *text = run(c, COMPRESS, &status);
        if (status == 0 || !strstr(text, rows[i].message)) fail_msg("%s: %d: %s", rows[i].step, status, text);
        expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(gptq_and_awq__are_better_than_rounding_in_every_layer),
        CASE(eight_bits__are_as_good_as_floats),
        CASE(four_bits__make_a_file_of_an_eighth),
        CASE(result__opens_like_any_run),
        CASE(transposed_weights__have_codes_too),
        CASE(recipes__are_refused_with_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
