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

/* The loss that the run "q" told at its end is that of eval. */
static void expect_told(data_case *c, const char *what)
{
    double told = number_of(c, "grep '\"eval\"' q/metrics.jsonl | tail -1", "loss");
    double is = number_of(c, "\"$H\" eval q --json", "loss");
    if (!(fabs(told - is) < 1e-4 * is)) fail_msg("%s: told %.7g, is %.7g", what, told, is);
}

static void validation__of_training_is_that_of_the_run(void **state)
{
    data_case *c = *state;
    static const char *const groups[] = {
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"bits\": 4}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"bits\": 3, \"granularity\": \"tensor\"}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"bits\": 4}, \"activations\": {\"range\": \"static\"}}]",
        "[{\"weights\": {\"bits\": 8}, \"activations\": {\"range\": \"static\", \"symmetric\": true}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"format\": \"ternary\"}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"format\": \"binary\", \"granularity\": \"tensor\"}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"format\": \"fp8\"}}]",
        "[{\"weights\": {\"format\": \"fp8\", \"granularity\": \"tensor\"}, \"activations\": {\"range\": \"static\"}}]",
        "[{\"layers\": \"h\\\\.\", \"weights\": {\"bits\": 4}, \"activations\": {\"range\": \"learned\"}}]",
        "[{\"activations\": {\"range\": \"learned\", \"symmetric\": true}}]",
    };
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf q && \"$H\" train job.json --set train.steps=8 --set train.output=q --set 'train.quantize=%s'",
                 groups[i]);
        expect(c, line, 0, "");
        expect_told(c, groups[i]);
        snprintf(line, sizeof line,
                 "\"$H\" train job.json --resume --set train.steps=10 --set train.output=q "
                 "--set 'train.quantize=%s'",
                 groups[i]);
        expect(c, line, 0, "");
    }
}

#define FEW(format, more)                                                                                              \
    "{\"quantize\": {\"keep_slower\": true, \"weights\": \"" format "\", \"layers\": \"h\\\\.\"" more "}}"

/* Steps with roundings bring back most of what one or two bits cost, and fp8 costs next to nothing. */
static void formats__are_trained_with(void **state)
{
    data_case *c = *state;
    double was = number_of(c, "\"$H\" eval run --json", "loss");
    double binary = loss_after(c, FEW("binary", "")), ternary = loss_after(c, FEW("ternary", ""));
    double fp8 = loss_after(c, FEW("fp8", "")), scaled = loss_after(c, W2);
    if (!(ternary < scaled && ternary < binary && fabs(fp8 - was) < 0.01 * was))
        fail_msg("f32 %g, binary %g, ternary %g, int2 %g, fp8 %g", was, binary, ternary, scaled, fp8);
    double trained = loss_after(c, FEW("binary", "") ", " TUNE);
    if (!(trained < was + 0.3 * (binary - was))) fail_msg("binary %g, trained %g", binary, trained);
    trained = loss_after(c, FEW("ternary", "") ", " TUNE);
    if (!(trained < was + 0.3 * (ternary - was))) fail_msg("ternary %g, trained %g", ternary, trained);
}

static ht_safetensors *open_weights(data_case *c, const char *run, int step)
{
    char name[256];
    ht_safetensors *file;
    snprintf(name, sizeof name, "%s/snapshots/step-%08d/weights.safetensors", run, step);
    if (ht_safetensors_open(&file, &c->ctx, data_case_path(c, name)) != HT_OK) fail_msg("%s", c->ctx.message);
    return file;
}

static void codes__are_signs_and_their_mean_magnitude(void **state)
{
    data_case *c = *state;
    static const char name[] = "transformer.h.1.mlp.c_fc.weight";
    static const char *const formats[] = {"binary", "ternary"};
    for (int f = 0; f < 2; f++) {
        char recipe[256], other[128];
        snprintf(recipe, sizeof recipe,
                 "{\"quantize\": {\"keep_slower\": true, \"weights\": \"%s\", \"granularity\": \"tensor\"}}",
                 formats[f]);
        loss_after(c, recipe);
        ht_safetensors *before = open_weights(c, "run", 400), *after = open_weights(c, "out", 0);
        const ht_named_array *w = ht_safetensors_find(before, name);
        snprintf(other, sizeof other, "%s.%s", name, formats[f]);
        const ht_named_array *codes = ht_safetensors_find(after, other);
        snprintf(other, sizeof other, "%s.%s_scale", name, formats[f]);
        const ht_named_array *scale = ht_safetensors_find(after, other);
        assert_true(w && codes && scale && scale->array.count == 1);
        double mean = 0, sum = 0, count = 0;
        for (int64_t i = 0; i < w->array.count; i++)
            mean += fabs(ht_array_number(&w->array, i)) / (double)w->array.count;
        for (int64_t i = 0; i < w->array.count; i++) {
            double x = ht_array_number(&w->array, i), least = f ? 0.7 * mean : -1;
            double wanted = fabs(x) > least ? (x >= 0 ? 1 : -1) : 0;
            if (fabs(fabs(x) - least) > 1e-6 * mean) assert_float_equal(ht_array_number(&codes->array, i), wanted, 0);
            sum += wanted != 0 ? fabs(x) : 0;
            count += wanted != 0;
        }
        assert_float_equal(ht_array_number(&scale->array, 0), sum / count, 1e-5 * mean);
        ht_safetensors_free(before);
        ht_safetensors_free(after);
    }
}

static void what__does_not_go_together_is_refused(void **state)
{
    data_case *c = *state;
    static const struct {
        const char *steps, *message;
    } rows[] = {
        {FEW("fp8", ", \"activations\": \"int8\""), "fp8 goes with fp8"},
        {FEW("int8", ", \"activations\": \"fp8\""), "fp8 goes with fp8"},
        {FEW("binary", ", \"activations\": \"none\""), "weights"},
        {FEW("int8", ", \"ranges\": \"learned\""), "\"learned\", and calibration.batches is not given"},
        {FEW("fp8", ", \"ranges\": \"learned\", \"calibration\": {\"batches\": 2}"), "ranges of fp8 are not"},
        {"{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}, " FEW("binary", ""), "no code for the zeros"},
        {FEW("int8", "") ", {\"tune\": {\"steps\": 1, \"train\": {\"precision\": \"fp64\"}}}",
         "train.precision is fp64"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ht_text text = {0};
        ht_text_add(&text, "{\"steps\": [%s]}", rows[i].steps);
        data_case_text(c, "recipe.json", text.data);
        ht_text_free(&text);
        expect(c, "\"$H\" compress run recipe.json -o no", 2, rows[i].message);
        expect(c, "! ls -d no no.partial 2>/dev/null", 0, "");
    }
    expect(c, "\"$H\" check job.json --set 'train.quantize=[{\"weights\": {\"format\": \"fp8\", \"bits\": 8}}]'", 2,
           "only the format \"int\" has bits");
}

static void teachers__compute_in_full(void **state)
{
    data_case *c = *state;
    double tuned = loss_after(c, W2 ", " TUNE);
    double taught = loss_after(c, W2 ", {\"distill\": {\"steps\": 40, \"lr\": 0.001, \"alpha\": 0.3}}");
    double quantized = loss_after(c, W2);
    if (!(taught < quantized)) fail_msg("%g, without training %g, by data alone %g", taught, quantized, tuned);
}

/* Each rank observes its own rows, and all go on with the mean of the ranges, which is the same everywhere. */
static void ranges__are_those_of_all_ranks(void **state)
{
    data_case *c = *state;
    static const char *const ranges[] = {"static", "learned"};
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf q && \"$H\" train job.json --ranks 2 --set train.steps=8 --set train.output=q "
                 "--set halftone.check_replicas=1 --set 'train.quantize=[{\"layers\": \"h\\\\.\", "
                 "\"activations\": {\"range\": \"%s\"}}]'",
                 ranges[i]);
        expect(c, line, 0, "");
        expect_told(c, ranges[i]);
    }
}

enum { IMAGES = 240, SIDE = 12 };

static void write_images(data_case *c)
{
    static unsigned char images[16 + IMAGES * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, IMAGES,
                                                              0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    for (int i = 0; i < IMAGES; i++) labels[8 + i] = (unsigned char)(i % 4);
    for (int p = 0; p < IMAGES * SIDE * SIDE; p++) {
        int x = p % SIDE, y = p / SIDE % SIDE;
        bool bright = (x / 3 + y / 3 * 2) % 4 == p / (SIDE * SIDE) % 4;
        images[16 + p] = (unsigned char)((bright ? 200 : 20) + p * 7 % 41);
    }
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"},\n"
        " \"data\": {\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.3},\n"
        " \"train\": {\"steps\": 40, \"batch\": 16, \"lr\": 0.005, \"eval_every\": 0, \"output\": \"q\"}}");
}

/* What evaluation reads has batchnorm in its scales; training rounds before it, which gives the same codes. With static ranges
 * residuals are added as codes, which training adds as floats. */
static void batchnorm__goes_into_scales_without_a_change(void **state)
{
    data_case *c = *state;
    static const struct {
        const char *group;
        double apart;
    } rows[] = {{"{\"weights\": {\"bits\": 4}}", 0.005},
                {"{\"weights\": {\"bits\": 4}, \"activations\": {\"range\": \"static\"}}", 0.05},
                {"{\"weights\": {\"format\": \"ternary\"}, \"activations\": {\"range\": \"learned\"}}", 0.05}};
    write_images(c);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[512];
        snprintf(line, sizeof line, "rm -rf q && \"$H\" train job.json --set 'train.quantize=[%s]'", rows[i].group);
        expect(c, line, 0, "");
        double told = number_of(c, "grep '\"eval\"' q/metrics.jsonl | tail -1", "loss");
        double is = number_of(c, "\"$H\" eval q --json", "loss");
        double floats = number_of(c, "\"$H\" eval q --json --set train.quantize=null", "loss");
        if (!(fabs(told - is) < rows[i].apart * is && fabs(told - is) < fabs(floats - is)))
            fail_msg("%s: told %.7g, is %.7g, in floats %.7g", rows[i].group, told, is, floats);
    }
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
        CASE(formats__are_trained_with),
        CASE(codes__are_signs_and_their_mean_magnitude),
        CASE(what__does_not_go_together_is_refused),
        CASE(teachers__compute_in_full),
        CASE(ranges__are_those_of_all_ranks),
        CASE(batchnorm__goes_into_scales_without_a_change),
        CASE(roundings__go_with_precisions_and_micro_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
