/* halftone compress, step quantize: codes that are stored, what they cost, what static activations need, that the result is
 * a run like any other, and recipes that are refused. */
#include <math.h>
#include <sys/resource.h>

#include "cli_case.h"
#include "format/format.h"
#include "train/manifest.h"

/* "run": a small language model, trained for a few steps. */
static const char job[] =
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32},\n"
    " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"byte\", \"length\": 16,\n"
    "            \"validation_share\": 0.1},\n"
    " \"train\": {\"steps\": 12, \"batch\": 8, \"lr\": 0.01, \"eval_every\": 0, \"output\": \"run\"}}";

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return -1;
    data_case *c = *state;
    ht_text sums = {0};
    for (int i = 0; i < 400; i++) ht_text_add(&sums, "%d+%d=%d\n", i % 17, i % 11, i % 17 + i % 11);
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

/* A number that a command prints with --json. */
static double number_of(data_case *c, const char *line, const char *key)
{
    int status;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    const char *text = run(c, line, &status), *at = strstr(text, wanted);
    if (status != 0 || !at) fail_msg("%s: %s", line, text);
    return strtod(at + strlen(wanted), NULL);
}

static double loss_of(data_case *c, const char *folder)
{
    char line[256];
    snprintf(line, sizeof line, "\"$H\" eval %s --json", folder);
    return number_of(c, line, "loss");
}

/* ---- weights ---- */

static void codes__are_the_nearest_steps_of_each_channel(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"layers\": \"h\\\\.\"}}");
    expect(c, COMPRESS, 0, "");
    ht_safetensors *before = open_weights(c, "run", 12), *after = open_weights(c, "out", 0);
    const ht_array *w = tensor(before, "transformer.h.1.mlp.c_fc.weight");
    const ht_array *codes = tensor(after, "transformer.h.1.mlp.c_fc.weight.int8");
    const ht_array *scale = tensor(after, "transformer.h.1.mlp.c_fc.weight.int8_scale"); /* [1, out] */
    assert_int_equal(codes->element, HT_ELEMENT_I8);
    assert_int_equal(scale->count, w->shape[1]);
    assert_null(ht_safetensors_find(after, "transformer.h.1.mlp.c_fc.weight"));
    assert_non_null(ht_safetensors_find(after, "transformer.wte.weight"));
    for (int64_t column = 0; column < w->shape[1]; column++) {
        double step = ht_array_number(scale, column), largest = 0;
        for (int64_t i = column; i < w->count; i += w->shape[1]) {
            double x = ht_array_number(w, i), code = ht_array_number(codes, i);
            assert_true(fabs(x - code * step) <= 0.5001 * step);
            largest = fmax(largest, fabs(code));
        }
        assert_true(largest == 127);
    }
    ht_safetensors_free(before);
    ht_safetensors_free(after);
}

static void result__is_smaller_and_nearly_as_good(void **state)
{
    data_case *c = *state;
    static const char *const steps[] = {
        "{\"quantize\": {\"keep_slower\": true}}",
        "{\"quantize\": {\"keep_slower\": true, \"granularity\": \"tensor\"}}",
        "{\"quantize\": {\"keep_slower\": true, \"symmetric\": true}}",
        "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 4}}}",
        "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 4}, \"symmetric\": true}}",
        "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 4, \"method\": \"percentile\"}}}",
        "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 4, \"method\": \"entropy\"}}}",
        "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 4, \"method\": \"mse\"}}}",
    };
    double was = loss_of(c, "run");
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        recipe(c, steps[i]);
        expect(c, COMPRESS, 0, "");
        double is = loss_of(c, "out");
        if (!(fabs(is - was) < 0.01 * was && is != was)) fail_msg("%s: %g, not %g", steps[i], is, was);
        ht_safetensors *after = open_weights(c, "out", 0);
        bool fixed = strstr(steps[i], "calibration"), symmetric = strstr(steps[i], "symmetric");
        assert_true((ht_safetensors_find(after, "transformer.h.0.attn.c_attn.weight.in_scale") != NULL) == fixed);
        assert_true((ht_safetensors_find(after, "transformer.h.0.attn.c_attn.weight.in_zero") != NULL) ==
                    (fixed && !symmetric));
        ht_safetensors_free(after);
        expect(c, "grep -o '\"parameters\": [0-9]*' out/compress.json | sort -u | wc -l", 0, "1\n"); /* no ranges */
    }
    /* The layers are 24,576 of 33,000 weights. */
    double before = number_of(c, "cd out && tr -d '\\n' < compress.json | sed 's/.*\"before\"//'", "disk_bytes");
    double after = number_of(c, "cd out && tr -d '\\n' < compress.json | sed 's/.*\"after\"//'", "disk_bytes");
    assert_true(after < 0.55 * before);
}

static void fewer_bits__are_worse(void **state)
{
    data_case *c = *state;
    double was = loss_of(c, "run"), error[3];
    static const char *const bits[] = {"int8", "int4", "int2"};
    for (int i = 0; i < 3; i++) {
        char step[96];
        snprintf(step, sizeof step,
                 "{\"quantize\": {\"keep_slower\": true, \"weights\": \"%s\", \"layers\": \"h\\\\.\"}}", bits[i]);
        recipe(c, step);
        expect(c, COMPRESS, 0, "");
        error[i] = fabs(loss_of(c, "out") - was);
    }
    assert_true(error[0] < error[1] && error[1] < error[2]);
}

static void first_match__decides_and_later_steps_come_first(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"weights\": \"int8\", \"layers\": \"h\\\\.\"}}, "
              "{\"quantize\": {\"keep_slower\": true, \"weights\": \"int4\", \"layers\": \"c_fc\"}}");
    expect(c, COMPRESS, 0, "");
    ht_safetensors *after = open_weights(c, "out", 0);
    assert_non_null(ht_safetensors_find(after, "transformer.h.0.mlp.c_fc.weight.int4"));
    assert_null(ht_safetensors_find(after, "transformer.h.0.mlp.c_fc.weight.int8"));
    assert_non_null(ht_safetensors_find(after, "transformer.h.0.mlp.c_proj.weight.int8"));
    ht_safetensors_free(after);
}

/* ---- a run like any other ---- */

static void result__opens_like_any_run(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 2}}}");
    expect(c, COMPRESS, 0, "layers read codes");
    expect(c, "grep -c matmul_q out/model.ht", 0, "");
    expect(c, "\"$H\" eval out", 0, "");
    expect(c, "\"$H\" profile out/job.json --infer --batch 1,2", 0, "");
    expect(c, "\"$H\" explain out/job.json", 0, "");
    expect(c, "\"$H\" train out/job.json --resume --set train.output=out --set train.steps=3 --set train.eval_every=0",
           0, "");
    double trained = loss_of(c, "out");
    assert_true(isfinite(trained));
    /* Its snapshot has floats again, and codes are made of them. */
    ht_safetensors *after = open_weights(c, "out", 3);
    assert_non_null(ht_safetensors_find(after, "transformer.h.0.mlp.c_fc.weight"));
    assert_non_null(ht_safetensors_find(after, "transformer.h.0.mlp.c_fc.weight.in_scale"));
    ht_safetensors_free(after);
}

static void result__can_be_compressed_again(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"quantize\": {\"keep_slower\": true}}");
    expect(c, COMPRESS, 0, "");
    double once = loss_of(c, "out");
    recipe(c, "{\"prune\": {\"ratio\": 0.1, \"layers\": \"c_fc\"}}, {\"tune\": {\"steps\": 2}}");
    expect(c, "\"$H\" compress out recipe.json -o twice", 0, "");
    ht_safetensors *after = open_weights(c, "twice", 2);
    assert_non_null(ht_safetensors_find(after, "transformer.h.0.mlp.c_fc.weight.int8"));
    ht_safetensors_free(after);
    assert_true(fabs(loss_of(c, "twice") - once) < 0.2 * once);
}

static void eval__has_the_same_bits_with_any_threads(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 2}}}");
    expect(c, COMPRESS, 0, "");
    double one = number_of(c, "OMP_NUM_THREADS=1 \"$H\" eval out --json", "loss");
    assert_true(number_of(c, "OMP_NUM_THREADS=3 \"$H\" eval out --json", "loss") == one);
}

/* ---- layers ---- */

static void layers__are_timed_and_told(void **state)
{
    data_case *c = *state;
    int status;
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"sensitivity\": true}}");
    expect(c, COMPRESS " --page page.html && tr -d '\\n' < page.html", 0, "Layers that were timed");
    const char *text = run(c, COMPRESS " --json", &status);
    size_t layers = 0;
    for (const char *at = text; (at = strstr(at, "\"replaced_ms\": ")) != NULL; at++) layers++;
    if (status != 0 || layers != 9) fail_msg("%zu layers: %s", layers, text);
    assert_non_null(strstr(text, "hurts most: loss"));
    assert_non_null(strstr(text, "\"name\": \"transformer.h.0.attn.c_attn.weight\", \"kernel\": \"matmul_q"));
    assert_non_null(strstr(text, "\"loss\": "));
    expect(c, "\"$H\" explain out/job.json", 0, "in place of");
}

/* Their products read half copies of the weights. */
static void layers__are_compared_with_half_precision(void **state)
{
    data_case *c = *state;
    static const char *const precisions[] = {"bf16", "fp16"};
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"sensitivity\": true}}");
    for (int i = 0; i < 2; i++) {
        char line[160];
        int status;
        snprintf(line, sizeof line, COMPRESS " --set train.precision=%s 2>&1 && cat out/compress.json", precisions[i]);
        const char *text = run(c, line, &status);
        size_t layers = 0;
        for (const char *at = text; (at = strstr(at, "\"replaced_ms\": ")) != NULL; at++) layers++;
        if (status != 0 || layers != 9) fail_msg("%s: %zu layers: %s", precisions[i], layers, text);
        assert_non_null(strstr(text, "hurts most: loss"));
        assert_null(strstr(text, "no times with floats"));
    }
    recipe(c, "{\"quantize\": {}}");
    expect(c, COMPRESS " --set train.precision=bf16", 0, "layer, ms");
    expect(c, "\"$H\" explain out/job.json", 0, "layers of an evaluation, as halftone compress measured them");
}

static void slower_layers__keep_their_floats(void **state)
{
    data_case *c = *state;
    int status;
    recipe(c, "{\"quantize\": {}}");
    expect(c, COMPRESS, 0, "layer, ms");
    const char *text = run(c, "cat out/compress.json", &status), *at = text;
    ht_safetensors *after = open_weights(c, "out", 0);
    size_t seen = 0;
    while ((at = strstr(at, "\"name\": \"")) != NULL) {
        char name[256], codes[300];
        sscanf(at, "\"name\": \"%255[^\"]", name);
        const char *end = strchr(at, '}'), *refused = strstr(at, "\"refused_ms\"");
        at = end;
        if (!strstr(text, "\"ms\"") || strstr(name, "wte")) continue; /* its codes are derived */
        snprintf(codes, sizeof codes, "%s.int8", name);
        bool timed = strstr(end - 60, "_ms\"") && strstr(end - 60, "_ms\"") < end;
        if (!timed) continue;
        seen++;
        assert_true((ht_safetensors_find(after, codes) == NULL) == (refused && refused < end));
    }
    ht_safetensors_free(after);
    assert_int_equal(seen, 8);
}

/* Two steps, of which the first may keep floats and the second keeps none. */
static void refusals__are_of_the_step_that_decides(void **state)
{
    data_case *c = *state;
    static const char *const names[] = {"attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"};
    int status;
    recipe(c, "{\"quantize\": {\"layers\": \"attn\"}}, {\"quantize\": {\"layers\": \"mlp\", \"weights\": \"int4\", "
              "\"keep_slower\": true}}");
    expect(c, COMPRESS, 0, "");
    const char *layers =
        run(c, "tr -d '\\n' < out/compress.json | sed 's/.*\"layers\": \\[ *{\"name\"/{\"name\"/'", &status);
    ht_safetensors *after = open_weights(c, "out", 0);
    for (int i = 0; i < 8; i++) {
        char name[128], wanted[160];
        snprintf(name, sizeof name, "transformer.h.%d.%s.weight", i / 4, names[i % 4]);
        snprintf(wanted, sizeof wanted, "\"name\": \"%s\", \"kernel\"", name);
        const char *at = strstr(layers, wanted), *end = at ? strchr(at, '}') : NULL;
        if (!end) fail_msg("there is no %s in %s", name, layers);
        const char *refused = strstr(at, "refused_ms");
        bool codes = !(refused && refused < end);
        snprintf(wanted, sizeof wanted, "%s.%s", name, i % 4 < 2 ? "int8" : "int4");
        if (codes != (ht_safetensors_find(after, wanted) != NULL)) fail_msg("%s has %s codes", name, codes ? "no" : "");
        assert_true(codes || i % 4 < 2);
    }
    ht_safetensors_free(after);
}

/* What one layer's codes add to the loss, with the codes that the result has. */
static void sensitivity__is_that_of_the_codes_of_the_result(void **state)
{
    data_case *c = *state;
    static const char *const how[] = {
        "\"keep_slower\": true, \"weights\": \"int4\"",
        "\"weights\": \"int4\", \"activations\": \"none\", \"method\": \"gptq\", \"calibration\": {\"batches\": 4}",
        "\"weights\": \"int4\", \"activations\": \"none\", \"method\": \"awq\", \"calibration\": {\"batches\": 4}",
        "\"weights\": \"fp8\"", /* a simulation, which stays although it is slower */
    };
    double was = loss_of(c, "run");
    for (size_t i = 0; i < sizeof how / sizeof how[0]; i++) {
        char step[256];
        snprintf(step, sizeof step,
                 "{\"quantize\": {\"layers\": \"h\\\\.1\\\\.mlp\\\\.c_fc\", \"sensitivity\": true, %s}}", how[i]);
        recipe(c, step);
        expect(c, COMPRESS, 0, "hurts most");
        double rise = number_of(c, "tr -d '\\n' < out/compress.json | sed 's/.*\"layers\": \\[//'", "loss");
        double is = loss_of(c, "out");
        if (!(fabs(is - was - rise) < 1e-7 * was) || rise == 0) fail_msg("%s: %.9g, not %.9g", how[i], rise, is - was);
    }
}

static void sensitivity__of_an_earlier_step_stays(void **state)
{
    data_case *c = *state;
    int status;
    recipe(c, "{\"quantize\": {\"layers\": \"attn\", \"keep_slower\": true, \"sensitivity\": true}}, {\"quantize\": "
              "{\"layers\": \"mlp\", \"keep_slower\": true}}");
    expect(c, COMPRESS, 0, "");
    const char *text = run(c, "grep -c '\"margin_ms\": .*\"loss\": ' out/compress.json", &status);
    assert_int_equal(strtol(text, NULL, 10), 4);
}

/* The zeros of rounded weights were not pruned. */
static void table__tells_of_pruned_zeros_alone(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"weights\": \"ternary\"}}");
    expect(c, COMPRESS " > told; ! grep zeros told", 0, "");
}

static void weights_null__keeps_floats(void **state)
{
    data_case *c = *state;
    double was = loss_of(c, "run");
    assert_true(number_of(c, "\"$H\" eval run --json --set 'train.quantize=[{\"weights\": null}]'", "loss") == was);
    assert_true(number_of(c, "\"$H\" eval run --json --set 'train.quantize=[{\"layers\": \"c_fc\"}]'", "loss") != was);
}

/* ---- calibration ---- */

static long most_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return usage.ru_maxrss * 1024;
}

static void calibration__takes_the_same_memory_for_many_batches(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 2, \"method\": \"entropy\"}}}");
    expect(c, COMPRESS, 0, "");
    long few = most_bytes();
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 512, \"method\": \"entropy\"}}}");
    expect(c, COMPRESS, 0, "");
    assert_true(most_bytes() - few < 2 << 20);
}

/* "huge.safetensors": the weights of the run, but those of one layer are so large that what it makes is infinite. */
static void write_huge(data_case *c, const char *layer)
{
    ht_safetensors *file = open_weights(c, "run", 12);
    size_t count = ht_safetensors_count(file);
    ht_named_array *arrays = calloc(count, sizeof *arrays);
    ht_safetensors_writer *writer;
    assert_non_null(arrays);
    for (size_t i = 0; i < count; i++) arrays[i] = *ht_safetensors_at(file, i);
    assert_int_equal(
        ht_safetensors_create(&writer, &c->ctx, data_case_path(c, "huge.safetensors"), arrays, count, NULL), HT_OK);
    for (size_t i = 0; i < count; i++) {
        const ht_array *from = &arrays[i].array;
        float *x = malloc(from->bytes + 1);
        assert_non_null(x);
        memcpy(x, from->data, from->bytes);
        for (int64_t k = 0; k < from->count && strcmp(arrays[i].name, layer) == 0; k++) x[k] = 3e38f;
        assert_int_equal(ht_safetensors_append(writer, x, from->bytes), HT_OK);
        free(x);
    }
    assert_int_equal(ht_safetensors_finish(writer, NULL, NULL), HT_OK);
    free(arrays);
    ht_safetensors_free(file);
}

static void calibration__names_who_reads_what_is_not_finite(void **state)
{
    data_case *c = *state;
    write_huge(c, "transformer.h.1.mlp.c_fc.weight");
    recipe(c, "{\"quantize\": {\"keep_slower\": true, \"calibration\": {\"batches\": 2}}}");
    expect(c, "rm -rf out; \"$H\" compress huge.safetensors recipe.json --job job.json -o out", 2,
           "calibration: what 'transformer.h.1.mlp.c_proj.weight' reads is not finite");
    expect(c, "test ! -e out", 0, "");
}

/* A scale of the run "out" becomes NaN, under a manifest that has the checksum of the file. */
static void break_scale(data_case *c, const char *name)
{
    static const char folder[] = "out/snapshots/step-00000000";
    char path[128];
    ht_safetensors *file = open_weights(c, "out", 0);
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    ht_text text = {0};
    size_t length, size;
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    char *old = file_read(data_case_path(c, path), &length);
    assert_int_equal(ht_manifest_parse(&manifest, &c->ctx, arena, "manifest", old, length), HT_OK);
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    char *bytes = file_read(data_case_path(c, path), &size);
    const ht_array *scale = tensor(file, name);
    char *at = NULL;
    for (size_t i = 0; i + scale->bytes <= size && !at; i++)
        if (memcmp(bytes + i, scale->data, scale->bytes) == 0) at = bytes + i;
    assert_non_null(at);
    memcpy(at, &(float){NAN}, sizeof(float));
    data_case_file(c, path, bytes, size);
    manifest.files[HT_SNAPSHOT_WEIGHTS].checksum = ht_checksum_bytes(bytes, size);
    assert_int_equal(ht_manifest_print(&text, &c->ctx, &manifest), HT_OK);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    data_case_text(c, path, text.data);
    ht_text_free(&text);
    free(bytes);
    free(old);
    ht_arena_free(arena);
    ht_safetensors_free(file);
}

static void scales__that_are_not_finite_are_refused(void **state)
{
    data_case *c = *state;
    static const char *const steps[] = {
        "{\"quantize\": {\"keep_slower\": true, \"layers\": \"h\\\\.\"}}",
        "{\"quantize\": {\"activations\": \"none\", \"weights\": \"int4\", \"group\": 32, \"layers\": \"h\\\\.\"}}",
    };
    static const char *const scales[] = {"transformer.h.0.mlp.c_fc.weight.int8_scale",
                                         "transformer.h.0.mlp.c_fc.weight.q4_scale"};
    for (int i = 0; i < 2; i++) {
        recipe(c, steps[i]);
        expect(c, COMPRESS, 0, "");
        break_scale(c, scales[i]);
        recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}");
        expect(c, "\"$H\" compress out recipe.json -o again", 2, "of 'transformer.h.0.mlp.c_fc.weight' is ");
        expect(c, "! ls -d again again.partial 2>/dev/null", 0, "");
    }
}

/* ---- SmoothQuant ---- */

/* "outliers": the same model, but a few channels of a norm are large, and the rows of weights that read them are small. */
static void make_outliers(data_case *c)
{
    enum { EVERY = 11 };
    const float factor = 64;
    ht_safetensors *file = open_weights(c, "run", 12);
    size_t count = ht_safetensors_count(file);
    ht_named_array *arrays = calloc(count, sizeof *arrays);
    ht_safetensors_writer *writer;
    for (size_t i = 0; i < count; i++) arrays[i] = *ht_safetensors_at(file, i);
    assert_int_equal(
        ht_safetensors_create(&writer, &c->ctx, data_case_path(c, "outliers.safetensors"), arrays, count, NULL), HT_OK);
    for (size_t i = 0; i < count; i++) {
        const ht_array *from = &arrays[i].array;
        float *x = malloc(from->bytes + 1);
        memcpy(x, from->data, from->bytes);
        bool norm = strstr(arrays[i].name, ".ln_2."), weight = strstr(arrays[i].name, ".mlp.c_fc.weight");
        int64_t row = weight ? from->shape[1] : 1;
        for (int64_t k = 0; k < from->count && (norm || weight); k++)
            if (k / row % EVERY == 0) x[k] = norm ? x[k] * factor : x[k] / factor;
        assert_int_equal(ht_safetensors_append(writer, x, from->bytes), HT_OK);
        free(x);
    }
    assert_int_equal(ht_safetensors_finish(writer, NULL, NULL), HT_OK);
    free(arrays);
    ht_safetensors_free(file);
    expect(c,
           "\"$H\" train job.json --set train.output=outliers --set train.init_from=outliers.safetensors --set "
           "train.steps=1 --set train.lr=0 --set train.lr_min=0",
           0, "");
}

static double loss_with(data_case *c, const char *step)
{
    recipe(c, step);
    expect(c, "rm -rf out && \"$H\" compress outliers recipe.json -o out", 0, "");
    return loss_of(c, "out");
}

static void smooth__moves_outliers_into_weights(void **state)
{
    data_case *c = *state;
    make_outliers(c);
    double was = loss_of(c, "outliers");
    /* The head, whose norm nobody smooths, stays as it is. */
#define BLOCKS "{\"quantize\": {\"layers\": \"h\\\\.\", \"keep_slower\": true, \"calibration\": {\"batches\": 4}"
    double rough = loss_with(c, BLOCKS "}}");
    double smooth = loss_with(c, BLOCKS ", \"smooth\": 0.5}}");
    if (!(fabs(smooth - was) < 0.25 * fabs(rough - was))) fail_msg("%g: %g, smooth %g", was, rough, smooth);
    /* Two norms of each of the two layers; the last one is read by the table of embeddings, which others read, too. */
    expect(c, "cat out/compress.json", 0, "\"smoothed_norms\": 4");
}

/* ---- what is refused ---- */

static void recipes__are_refused_with_what_is_wrong(void **state)
{
    static const struct {
        const char *step, *message;
        int status;
    } rows[] = {
        {"{\"quantize\": {\"layers\": \"encoder\"}}", "quantize: \"encoder\" matches no weight of a layer, such as 'tr",
         2},
        {"{\"quantize\": {\"layers\": \"ln_1\"}}", "quantize: \"ln_1\" matches no weight of a layer", 2},
        {"{\"quantize\": {\"layers\": \"(\"}}", "\"(\" is no regular expression", 2},
        {"{\"quantize\": {\"weights\": \"int9\"}}", "steps[0].quantize.weights", 2},
        {"{\"quantize\": {\"activations\": \"int16\"}}", "steps[0].quantize.activations", 2},
        {"{\"quantize\": {\"granularity\": \"row\"}}", "steps[0].quantize.granularity", 2},
        {"{\"quantize\": {\"bits\": 8}}", "bits", 2},
        {"{\"quantize\": {\"calibration\": {\"batches\": 0}}}", "steps[0].quantize.calibration.batches", 2},
        {"{\"quantize\": {\"calibration\": {\"batches\": 2, \"method\": \"guess\"}}}", "calibration.method", 2},
        {"{\"quantize\": {\"calibration\": {\"method\": \"mse\"}}}", "and calibration.batches is not", 2},
        {"{\"quantize\": {\"smooth\": 0.5}}", "quantize.smooth is given, and calibration.batches is not", 2},
        {"{\"quantize\": {\"calibration\": {\"batches\": 2, \"data\": \"none.txt\"}}}", "none.txt", 1},
        {"{\"quantize\": {\"calibration\": {\"batches\": 2, \"data\": \"bad.bin\"}}}",
         "quantize.calibration.data \"bad.bin\": data: ", 2},
        {"{\"quantize\": {\"calibration\": {\"batches\": 2, \"data\": \"images.idx\"}}}",
         "quantize.calibration.data \"images.idx\": byte 0 is 0: it is no text", 2},
    };
    data_case *c = *state;
    data_case_text(c, "bad.bin", "");
    static const unsigned char images[600] = {0, 0, 8, 3, 0, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 8, 1, 2, 3};
    data_case_file(c, "images.idx", images, sizeof images);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        recipe(c, rows[i].step);
        expect(c, COMPRESS, rows[i].status, rows[i].message);
        expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
    }
    /* Files are looked at before the first step. */
    recipe(c,
           "{\"tune\": {\"steps\": 1}}, {\"quantize\": {\"calibration\": {\"batches\": 2, \"data\": \"none.txt\"}}}");
    expect(c, COMPRESS " 2> told; grep none.txt told && ! grep 'step 1 of' told", 0, "none.txt");
}

static void jobs__are_refused_with_what_is_wrong(void **state)
{
    static const struct {
        const char *set, *message;
    } rows[] = {
        {"3", "train.quantize: expected a list"},
        {"[1]", "train.quantize[0]: expected an object"},
        {"[{\"layer\": \"a\"}]", "train.quantize[0]: there is no key \"layer\""},
        {"[{\"layers\": \"(\"}]", "\"(\" is no regular expression"},
        {"[{}, {\"weights\": {\"bits\": 9}}]", "train.quantize[1].weights.bits: expected a whole number from 2 to 8"},
        {"[{\"weights\": {\"granularity\": \"row\"}}]",
         "train.quantize[0].weights.granularity: expected \"tensor\" or \"channel\" or \"group\""},
        {"[{\"activations\": {\"bits\": 4}}]", "train.quantize[0].activations.bits"},
        {"[{\"activations\": {\"range\": \"wide\"}}]", "train.quantize[0].activations.range: expected \"dynamic\""},
        {"[{\"activations\": {\"symmetric\": 1}}]", "expected true or false"},
    };
    data_case *c = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[512];
        snprintf(line, sizeof line, "\"$H\" check job.json --set 'train.quantize=%s'", rows[i].set);
        expect(c, line, 2, rows[i].message);
    }
    expect(c, "\"$H\" train job.json --set train.output=other --set 'train.quantize=[{\"layers\": \"encoder\"}]'", 2,
           "\"encoder\" matches no weight of a layer");
    expect(c, "\"$H\" eval run --set 'train.quantize=[{\"activations\": {\"range\": \"static\"}}]'", 2, "in_scale");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(codes__are_the_nearest_steps_of_each_channel),
        CASE(result__is_smaller_and_nearly_as_good),
        CASE(fewer_bits__are_worse),
        CASE(first_match__decides_and_later_steps_come_first),
        CASE(result__opens_like_any_run),
        CASE(result__can_be_compressed_again),
        CASE(eval__has_the_same_bits_with_any_threads),
        CASE(layers__are_timed_and_told),
        CASE(layers__are_compared_with_half_precision),
        CASE(slower_layers__keep_their_floats),
        CASE(refusals__are_of_the_step_that_decides),
        CASE(sensitivity__is_that_of_the_codes_of_the_result),
        CASE(sensitivity__of_an_earlier_step_stays),
        CASE(table__tells_of_pruned_zeros_alone),
        CASE(weights_null__keeps_floats),
        CASE(calibration__takes_the_same_memory_for_many_batches),
        CASE(calibration__names_who_reads_what_is_not_finite),
        CASE(scales__that_are_not_finite_are_refused),
        CASE(smooth__moves_outliers_into_weights),
        CASE(recipes__are_refused_with_what_is_wrong),
        CASE(jobs__are_refused_with_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
