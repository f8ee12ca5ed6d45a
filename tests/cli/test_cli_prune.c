/* halftone compress: units of every architecture, which shrink removes without a change of answers, layers with widths of
 * their own, weights with a job, searches and pages, and movement pruning. */
#include <inttypes.h>
#include <math.h>

#include "cli_case.h"
#include "format/format.h"

enum { IMAGES = 60, SIDE = 12 };

static void write_data(data_case *c)
{
    static unsigned char images[16 + IMAGES * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, IMAGES,
                                                              0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    ht_text sums = {0};
    for (int i = 0; i < IMAGES; i++) labels[8 + i] = (unsigned char)(i % 4);
    for (int p = 0; p < IMAGES * SIDE * SIDE; p++) images[16 + p] = (unsigned char)(p * p * 13 % 251);
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
    for (int i = 0; i < 200; i++) ht_text_add(&sums, "%d+%d=%d\n", i % 17, i % 11, i % 17 + i % 11);
    data_case_text(c, "sums.txt", sums.data);
    ht_text_free(&sums);
}

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return -1;
    write_data(*state);
    return 0;
}

#define DIGITS "\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.3"
#define TEXT                                                                                                           \
    "\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"byte\", \"length\": 8, \"validation_share\": 0.1"

/* Trains "run" for a few steps. */
static void train(data_case *c, const char *model, const char *data, const char *more)
{
    ht_text text = {0};
    ht_text_add(
        &text,
        "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"steps\": 4, \"batch\": 4, \"lr\": 0.01, \"eval_every\": 0, "
        "\"output\": \"run\"%s}}",
        model, data, more);
    data_case_text(c, "job.json", text.data);
    ht_text_free(&text);
    expect(c, "rm -rf run && \"$H\" train job.json", 0, "");
}

static void recipe(data_case *c, const char *steps, const char *more)
{
    ht_text text = {0};
    ht_text_add(&text, "{\"steps\": [%s%s]}", steps, more);
    data_case_text(c, "recipe.json", text.data);
    ht_text_free(&text);
}

static double number(data_case *c, const char *line, const char *key)
{
    int status;
    char word[64];
    snprintf(word, sizeof word, "\"%s\": ", key);
    const char *text = run(c, line, &status), *at = strstr(text, word);
    if (status != 0 || !at) fail_msg("%s: %.2000s", line, text);
    return strtod(at + strlen(word), NULL);
}

/* Elements that are not zero; statistics are left out, since shrink cuts them, too. */
static int64_t count_nonzero(data_case *c, const char *run_folder)
{
    char name[128];
    ht_safetensors *file;
    int64_t count = 0;
    snprintf(name, sizeof name, "%s/snapshots/step-00000000/weights.safetensors", run_folder);
    if (ht_safetensors_open(&file, &c->ctx, data_case_path(c, name)) != HT_OK) fail_msg("%s", c->ctx.message);
    for (size_t i = 0; i < ht_safetensors_count(file); i++) {
        const ht_named_array *t = ht_safetensors_at(file, i);
        for (int64_t k = 0; k < t->array.count && !strstr(t->name, "running"); k++)
            count += ht_array_number(&t->array, k) != 0;
    }
    ht_safetensors_free(file);
    return count;
}

typedef struct shrink_case {
    const char *model, *data, *more;
    const char *steps; /* that prune */
} shrink_case;

#define PRUNE(method, layers, ratio)                                                                                   \
    "{\"prune\": {\"method\": \"" method "\", \"layers\": \"" layers "\", \"ratio\": " ratio "}}"

static const shrink_case shrink_cases[] = {
    {"\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"", DIGITS, "", PRUNE("channels", "conv", "0.5")},
    {"\"type\": \"resnet\", \"depth\": 50, \"width\": 4, \"stem\": \"cifar\"", DIGITS, "",
     PRUNE("channels", "layer[12].*(conv1|downsample)", "0.25")},
    {"\"type\": \"mobilenet_v2\", \"width_mult\": 0.1, \"stem\": \"cifar\"", DIGITS, "", PRUNE("channels", ".", "0.5")},
    {"\"type\": \"lenet\"", "\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.3",
     "", PRUNE("channels", "conv", "0.3") ", " PRUNE("rows", "fc", "0.3")},
    {"\"type\": \"sequential\", \"layers\": [{\"type\": \"conv2d\", \"out\": 8, \"padding\": 1}, \"batchnorm\", "
     "\"relu\", "
     "{\"type\": \"residual\", \"layers\": [{\"type\": \"conv2d\", \"out\": 8, \"groups\": 4, \"padding\": 1}]}, "
     "{\"type\": \"max_pool\", \"window\": 2}, \"flatten\", {\"type\": \"linear\", \"out\": 12}, \"relu\", {\"type\": "
     "\"linear\"}]",
     DIGITS, "", PRUNE("channels", ".", "0.5") ", " PRUNE("rows", ".", "0.5")},
    {"\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "",
     "{\"prune\": {\"method\": \"rows\", \"layers\": \".\", \"ratio\": 0.5, \"scope\": \"global\"}}"},
    {"\"type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
     "\"num_key_value_heads\": 2",
     TEXT, "", PRUNE("heads", "layers.1", "0.5") ", " PRUNE("rows", "mlp", "0.25")},
    {"\"type\": \"bert\", \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
     "\"hidden_dropout_prob\": 0",
     TEXT, ", \"task\": \"masked_lm\"", PRUNE("heads", "query", "0.5") ", " PRUNE("rows", "intermediate", "0.25")},
    {"\"type\": \"sequential\", \"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"attention\", "
     "\"heads\": 4}, "
     "{\"type\": \"linear\"}]",
     TEXT, "", PRUNE("heads", ".", "0.5")},
};

static void shrink__changes_no_answer_of_any_model(void **state)
{
    data_case *c = *state;
    for (size_t i = 0; i < sizeof shrink_cases / sizeof shrink_cases[0]; i++) {
        const shrink_case *is = &shrink_cases[i];
        train(c, is->model, is->data, is->more);
        recipe(c, is->steps, "");
        expect(c, "rm -rf zeros && \"$H\" compress run recipe.json -o zeros", 0, "");
        recipe(c, is->steps, ", {\"shrink\": {}}");
        expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out", 0, "parameters");
        double zeros = number(c, "\"$H\" eval zeros --json", "loss"),
               small = number(c, "\"$H\" eval out --json", "loss");
        if (!(fabs(zeros - small) <= 2e-5 * zeros)) fail_msg("%s: loss %.9g, shrunk %.9g", is->model, zeros, small);
        if (count_nonzero(c, "zeros") != count_nonzero(c, "out")) fail_msg("%s: shrink lost weights", is->model);
        double before = number(c, "grep after zeros/compress.json", "parameters");
        double after = number(c, "grep after out/compress.json", "parameters");
        if (!(after < before)) fail_msg("%s: %g parameters of %g", is->model, after, before);
        expect(c, "grep -c widths out/job.json && ! grep -q '\"pruned\": \\[\"' out/job.json", 0, "1");
        expect(c, "\"$H\" train out/job.json --resume --set train.steps=2 && \"$H\" eval out", 0, "step        2");
    }
}

static void shrink__goes_on_where_an_earlier_one_ended(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "");
    recipe(c, PRUNE("rows", "layers.0", "0.5"),
           ", {\"shrink\": {}}, " PRUNE("rows", "layers.1", "0.5") ", {\"shrink\": {}}");
    expect(c, "\"$H\" compress run recipe.json -o out && cat out/job.json", 0,
           "\"widths\": {\"layers.0\": 8, \"layers.1\": 4}");
    recipe(c, PRUNE("rows", "layers.0", "0.5"), ", {\"shrink\": {}}");
    expect(c, "\"$H\" compress out recipe.json -o again && cat again/job.json", 0,
           "\"widths\": {\"layers.1\": 4, \"layers.0\": 4}");
    expect(c, "\"$H\" eval again", 0, "loss");
}

static void widths__that_no_layer_has_are_refused(void **state)
{
    static const struct {
        const char *value, *message;
    } rows[] = {
        {"{\"layers.7\": 4}", "model.widths: the model has no linear layer or convolution 'layers.7'"},
        {"{\"layers.0\": 0}", "the width of 'layers.0' is not a number from 1"},
        {"{\"layers.0\": \"4\"}", "the width of 'layers.0' is not a number from 1"},
        {"[4]", "model.widths: expected an object"},
    };
    data_case *c = *state;
    train(c, "\"type\": \"mlp\"", DIGITS, "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "\"$H\" check job.json --set model.widths='%s'", rows[i].value);
        expect(c, line, 2, rows[i].message);
    }
    expect(c, "\"$H\" train job.json --set train.output=wide --set model.widths='{\"layers.0\": 3}'", 0, "");
    expect(c, "\"$H\" train job.json --set train.output=cut --set model.type=lenet --set 'model.widths={\"fc3\": 3}'",
           2, "");
}

static void units__that_a_model_does_not_have_are_refused(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\"", DIGITS, "");
    recipe(c, PRUNE("channels", ".", "0.5"), "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2,
           "the model, of type mlp, has no channels that could be removed");
    recipe(c, PRUNE("rows", "layers.1", "0.5"), "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2,
           "no tensor that matches makes rows, as 'layers.0.weight' does");
    recipe(c, "{\"shrink\": {}}", "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2, "shrink: no layers, rows, heads or channels are zero");
    recipe(c, "{\"prune\": {\"method\": \"movement\", \"layers\": \".\", \"ratio\": 0.5}}", "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2, "the method movement needs steps");
    expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
}

/* A layer that adds nothing to the stream is removed, and no answer changes; what is left trains on. */
static void layers__that_add_nothing_are_removed(void **state)
{
    data_case *c = *state;
    static const struct {
        const char *model, *some, *left;
    } cases[] = {
        {"\"type\": \"gpt2\", \"n_layer\": 4, \"n_head\": 2, \"n_embd\": 16", "h[.][123][.]", "\"n_layer\": 2"},
        {"\"type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 4, \"num_attention_heads\": 2",
         "layers[.][123][.]", "\"num_hidden_layers\": 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char steps[256];
        train(c, cases[i].model, TEXT, "");
        snprintf(steps, sizeof steps, PRUNE("layers", "%s", "0.67"), cases[i].some);
        recipe(c, steps, "");
        expect(c, "rm -rf zeros && \"$H\" compress run recipe.json -o zeros", 0, "goes; without it alone the loss is");
        recipe(c, steps, ", {\"shrink\": {}}");
        expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out && cat out/job.json", 0, cases[i].left);
        expect(c, "cat out/compress.json", 0, "\"kept\": [0, ");
        double zeros = number(c, "\"$H\" eval zeros --json", "loss"),
               shrunk = number(c, "\"$H\" eval out --json", "loss");
        if (!(fabs(zeros - shrunk) < 1e-6 * zeros)) fail_msg("%s: %.9g, %.9g", cases[i].model, zeros, shrunk);
        expect(c, "\"$H\" train out/job.json --resume", 0, "");
    }
}

/* Of layers the one goes without which the loss is smallest: here one that does nothing. */
static void layers__go_by_what_the_model_loses(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"gpt2\", \"n_layer\": 3, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    double best = INFINITY;
    int chosen = -1;
    for (int layer = 0; layer < 3; layer++) {
        char steps[128];
        snprintf(steps, sizeof steps, PRUNE("layers", "h[.]%d[.]", "0.9"), layer);
        recipe(c, steps, "");
        expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out", 0, "");
        double loss = number(c, "\"$H\" eval out --json", "loss");
        if (loss < best) chosen = layer;
        best = fmin(best, loss);
    }
    recipe(c, PRUNE("layers", ".", "0.34"), "");
    expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out", 0, "");
    char wanted[128];
    snprintf(wanted, sizeof wanted, "\"transformer.h.%d.mlp.c_proj.weight\", \"elements\": 1024, \"zeros\": 1024",
             chosen);
    expect(c, "cat out/compress.json", 0, wanted);
}

static void layers__that_cannot_go_are_refused(void **state)
{
    data_case *c = *state;
    static const struct {
        const char *steps, *message;
    } rows[] = {
        {PRUNE("layers", "h[.]", "0.1"), "prune: 0.1 of 2 layers is none"},
        {PRUNE("layers", "wte", "0.5"), "no tensor that matches is one of \"transformer.h.0\" and on"},
        {PRUNE("magnitude", "c_fc", "0.5") ", " PRUNE("layers", "h[.]", "0.5") ", {\"shrink\": {}}",
         "single weights are held zero, by the numbers of layers"},
        {"{\"quantize\": {\"keep_slower\": true}}, " PRUNE("layers", "h[.]", "0.5") ", {\"shrink\": {}}",
         "quantize behind it"},
        {"{\"prune\": {\"layers\": \"c_fc\", \"except\": \"mlp\", \"ratio\": 0.5}}", "it leaves none of the tensors"},
    };
    train(c, "\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        recipe(c, rows[i].steps, "");
        expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out", 2, rows[i].message);
        expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
    }
    recipe(c, PRUNE("layers", ".", "0.5"), "");
    train(c, "\"type\": \"bert\", \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4", TEXT,
          ", \"task\": \"masked_lm\"");
    expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out", 2, "ends with a norm of the stream");
    train(c, "\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "");
    expect(c, "rm -rf out && \"$H\" compress run recipe.json -o out", 2, "has no list of equal layers");
}

/* Layers that are narrower than others, of which some stay: their widths move with them. */
static void students__begin_with_layers_of_a_shrunk_run(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"gpt2\", \"n_layer\": 3, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    recipe(c, PRUNE("rows", "h.2.mlp", "0.5"), ", {\"shrink\": {}}");
    expect(c, "\"$H\" compress run recipe.json -o narrow", 0, "");
    recipe(
        c,
        "{\"distill\": {\"steps\": 2, \"lr\": 0, \"train\": {\"weight_decay\": 0}, \"student\": {\"layers\": [0, 2]}}}",
        "");
    expect(c, "\"$H\" compress narrow recipe.json -o out && cat out/job.json", 0,
           "\"widths\": {\"transformer.h.1.mlp.c_fc\": 32}, \"n_layer\": 2");
    expect(c, "\"$H\" eval out", 0, "loss");
}

static void weights__are_compressed_with_their_job(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "");
    recipe(c, PRUNE("rows", "layers.0", "0.5"), ", {\"shrink\": {}}, {\"tune\": {\"steps\": 2}}");
    expect(c,
           "cp run/snapshots/step-00000004/weights.safetensors w.safetensors && \"$H\" compress run recipe.json -o out",
           0, "");
    expect(c, "\"$H\" compress w.safetensors recipe.json --job job.json -o same", 0, "parameters");
    double from_run = number(c, "\"$H\" eval out --json", "loss"),
           from_file = number(c, "\"$H\" eval same --json", "loss");
    assert_true(from_run == from_file);
    expect(c, "cat same/job.json", 0, "\"init_from\": \"same\"");
    expect(c, "\"$H\" compress w.safetensors recipe.json -o no", 2, "--job names the job");
    expect(c, "\"$H\" compress run recipe.json --job job.json -o no", 2, "run is no .safetensors file");
    expect(
        c,
        "\"$H\" compress w.safetensors recipe.json --job job.json --set model.type=lenet --set model.hidden=null -o no",
        2, "");
    expect(c, "\"$H\" compress none.safetensors recipe.json --job job.json -o no", 1, "none.safetensors");
    expect(c, "! ls -d no no.partial same.partial 2>/dev/null", 0, "");
}

/* ---- search ---- */

static void search__tries_every_combination_and_writes_the_smallest_that_fits(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "");
    recipe(c, "{\"prune\": {\"method\": \"rows\", \"layers\": \"layers.0\", \"ratio\": {\"try\": [0.25, 0.5]}}}",
           ", {\"shrink\": {}}, {\"tune\": {\"steps\": {\"try\": [1, 2]}}}");
    expect(c, "\"$H\" compress run recipe.json -o out --search drop=900%,size=99% --page page.html", 0,
           "the output has: ratio 0.5, steps ");
    expect(c, "cat out/job.json", 0, "\"output\": \"out\"");
    expect(c, "\"$H\" eval out", 0, "loss");
    expect(c, "grep -c 'ratio 0.25, steps 2' page.html", 0, "1");
    expect(c, "rm -r out && \"$H\" compress run recipe.json -o out --search size=99% --json", 0,
           "\"chosen\": \"ratio 0.5, steps ");
    expect(c, "cat out/compress.json", 0, "\"after\"");
    expect(c, "rm -r out && \"$H\" compress run recipe.json -o out --search size=1% --json", 1, "\"chosen\": null");
    expect(c, "\"$H\" compress run recipe.json -o out --search size=0% --json", 1, "\"chosen\": null");
    expect(c, "! ls -d out out.search out.partial 2>/dev/null", 0, "");
}

/* The front is the set of trials that no other one beats in loss, bytes and latency. */
static void search__marks_the_front(void **state)
{
    enum { TRIALS = 4 };
    struct {
        double loss, bytes, ms;
        bool front;
    } trials[TRIALS];
    data_case *c = *state;
    int status;
    train(c, "\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "");
    recipe(c, "{\"prune\": {\"method\": \"rows\", \"layers\": \"layers.0\", \"ratio\": {\"try\": [0.25, 0.5]}}}",
           ", {\"shrink\": {}}, {\"tune\": {\"steps\": {\"try\": [1, 5]}}}");
    const char *at = run(c, "\"$H\" compress run recipe.json -o out --search drop=900% --json 2>/dev/null", &status);
    at = strstr(at, "\"trials\"");
    assert_true(status == 0 && at);
    for (int i = 0; i < TRIALS; i++) {
        at = strstr(at, "\"front\": ");
        assert_non_null(at);
        trials[i].front = strncmp(at, "\"front\": true", 13) == 0;
        trials[i].loss = strtod(strstr(at, "\"loss\": ") + 8, NULL);
        trials[i].bytes = strtod(strstr(at, "\"disk_bytes\": ") + 14, NULL);
        trials[i].ms = strtod(strstr(at, "\"p50_ms\": ") + 10, NULL);
        assert_true(strtod(strstr(at, "\"p99_ms\": ") + 10, NULL) >= trials[i].ms);
        at++;
    }
    for (int i = 0; i < TRIALS; i++) {
        bool beaten = false;
        for (int k = 0; k < TRIALS; k++) {
            bool worse =
                trials[k].loss > trials[i].loss || trials[k].bytes > trials[i].bytes || trials[k].ms > trials[i].ms;
            bool better =
                trials[k].loss < trials[i].loss || trials[k].bytes < trials[i].bytes || trials[k].ms < trials[i].ms;
            beaten |= better && !worse;
        }
        assert_true(trials[i].front == !beaten);
    }
}

/* It tells why in its row, and the others are tried. */
static void search__goes_on_where_a_combination_fails(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "");
    recipe(c,
           "{\"prune\": {\"layers\": \"layers.0\", \"method\": {\"try\": [\"channels\", \"rows\"]}, \"ratio\": "
           "0.5}}, {\"shrink\": {}}",
           "");
    expect(c, "\"$H\" compress run recipe.json -o out --search drop=900% --page page.html", 0,
           "the output has: method rows");
    expect(c, "rm -r out && \"$H\" compress run recipe.json -o out --search drop=900% --json", 0,
           "\"failure\": \"prune: the model, of type mlp, has no channels");
    recipe(c, "{\"prune\": {\"layers\": \".\", \"method\": \"channels\", \"ratio\": {\"try\": [0.5, 0.6]}}}", "");
    expect(c, "rm -r out && \"$H\" compress run recipe.json -o out --search drop=900%", 2,
           "no combination could be compressed: prune: the model, of type mlp, has no channels");
    expect(c, "! ls -d out out.search out.partial 2>/dev/null", 0, "");
}

/* At the best batch, which may be a single item: no fewer than one after the other. */
static void throughput__is_that_of_the_best_batch(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\", \"hidden\": [16, 8]", DIGITS, "");
    recipe(c, "{\"prune\": {\"layers\": \".\", \"ratio\": 0.5}}", "");
    expect(c, "\"$H\" compress run recipe.json -o out", 0, "items per second");
    static const char *const runs[] = {"before", "after"};
    for (int i = 0; i < 2; i++) {
        char line[64];
        snprintf(line, sizeof line, "grep '\"%s\"' out/compress.json", runs[i]);
        double rate = number(c, line, "items_per_s"), batch = number(c, line, "best_batch");
        assert_true(rate >= 0.999 * 1e3 / number(c, line, "p50_ms"));
        if (batch != 1 && batch != 4 && batch != 16 && batch != 64) fail_msg("a batch of %g", batch);
    }
}

static void search__without_goals_or_alternatives_is_refused(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\"", DIGITS, "");
    recipe(c, PRUNE("rows", "layers.0", "0.5"), "");
    expect(c, "\"$H\" compress run recipe.json -o out --search drop=1%", 2, "a search needs alternatives");
    expect(c, "\"$H\" compress run recipe.json -o out --search drop=1", 2, "'drop=1' is none of drop=P%");
    expect(c, "\"$H\" compress run recipe.json -o out --search size=5%,fast=2%", 2, "'fast=2%' is none of");
    recipe(c, "{\"prune\": {\"layers\": \".\", \"ratio\": {\"try\": [0.5, 7]}}}", "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2, "steps[0].prune.ratio");
    expect(c, "! ls -d out out.search out.partial 2>/dev/null", 0, "");
}

static void page__has_figures_and_layers(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\"", DIGITS, "");
    recipe(c, PRUNE("magnitude", "layers", "0.5"), "");
    expect(c, "\"$H\" compress run recipe.json -o out --page page.html > /dev/null && cat page.html", 0,
           "layers.0.weight");
    expect(c, "cat page.html", 0, "bytes in memory");
}

/* ---- movement ---- */

static const ht_array *weight(data_case *c, const char *run_folder, int step, const char *name, ht_safetensors **file)
{
    char path[128];
    snprintf(path, sizeof path, "%s/snapshots/step-%08d/weights.safetensors", run_folder, step);
    if (ht_safetensors_open(file, &c->ctx, data_case_path(c, path)) != HT_OK) fail_msg("%s", c->ctx.message);
    const ht_named_array *found = ht_safetensors_find(*file, name);
    if (!found) fail_msg("there is no %s", name);
    return &found->array;
}

/* With plain SGD a step moves a weight by -lr × gradient: its score after one step is weight × movement / lr. */
static void movement__clears_what_training_moves_towards_zero(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\"", DIGITS, ", \"optimizer\": \"sgd\", \"momentum\": 0, \"weight_decay\": 0");
    recipe(
        c,
        "{\"prune\": {\"method\": \"movement\", \"layers\": \"layers.0\", \"ratio\": 0.5, \"steps\": 1, \"lr\": 0.1}}",
        "");
    expect(c, "\"$H\" compress run recipe.json -o out", 0, "");
    recipe(c, "{\"tune\": {\"steps\": 1, \"lr\": 0.1}}", "");
    expect(c, "\"$H\" compress run recipe.json -o moved", 0, "");
    ht_safetensors *files[3];
    const ht_array *was = weight(c, "run", 4, "layers.0.weight", &files[0]);
    const ht_array *is = weight(c, "out", 0, "layers.0.weight", &files[1]);
    const ht_array *moved = weight(c, "moved", 1, "layers.0.weight", &files[2]);
    double most_cleared = -INFINITY, least_kept = INFINITY;
    int64_t zeros = 0;
    for (int64_t i = 0; i < is->count; i++) {
        double x = ht_array_number(was, i), score = x * (ht_array_number(moved, i) - x);
        bool cleared = ht_array_number(is, i) == 0;
        zeros += cleared;
        if (cleared) most_cleared = fmax(most_cleared, score);
        if (!cleared) {
            least_kept = fmin(least_kept, score);
            assert_true(ht_array_number(is, i) == ht_array_number(moved, i));
        }
    }
    assert_int_equal(zeros, is->count / 2);
    if (most_cleared > least_kept + 1e-8) fail_msg("%g went, %g stayed", most_cleared, least_kept);
    for (int i = 0; i < 3; i++) ht_safetensors_free(files[i]);
}

static void movement__in_stages_holds_what_it_cleared(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"mlp\"", DIGITS, "");
    recipe(
        c,
        "{\"prune\": {\"method\": \"movement\", \"layers\": \"layers.0\", \"ratio\": 0.5, \"steps\": 6, \"schedule\": "
        "\"cubic\", \"stages\": 3}}",
        ", {\"tune\": {\"steps\": 2}}");
    expect(c, "\"$H\" compress run recipe.json -o out", 0, "");
    ht_safetensors *file;
    const ht_array *is = weight(c, "out", 2, "layers.0.weight", &file);
    int64_t zeros = 0;
    for (int64_t i = 0; i < is->count; i++) zeros += ht_array_number(is, i) == 0;
    assert_int_equal(zeros, is->count / 2);
    ht_safetensors_free(file);
}

/* ---- stages ---- */

/* Of weights of two axes those whose name holds `part` are half zero, and the others have no zero. */
static void expect_half(data_case *c, const char *run_folder, int step, const char *part)
{
    char path[128];
    ht_safetensors *file;
    int64_t half = 0;
    snprintf(path, sizeof path, "%s/snapshots/step-%08d/weights.safetensors", run_folder, step);
    if (ht_safetensors_open(&file, &c->ctx, data_case_path(c, path)) != HT_OK) fail_msg("%s", c->ctx.message);
    for (size_t i = 0; i < ht_safetensors_count(file); i++) {
        const ht_named_array *t = ht_safetensors_at(file, i);
        int64_t zeros = 0;
        if (t->array.rank < 2 || strstr(t->name, "_scale")) continue;
        for (int64_t k = 0; k < t->array.count; k++) zeros += ht_array_number(&t->array, k) == 0;
        bool pruned = strstr(t->name, part);
        half += pruned;
        /* Codes round some of the smallest weights to zero as well. */
        if (pruned ? zeros < t->array.count / 2 : zeros > t->array.count / 8)
            fail_msg("%s: %" PRId64 " zeros of %" PRId64, t->name, zeros, t->array.count);
    }
    assert_int_equal(half, 2);
    ht_safetensors_free(file);
}

#define STAGES "\"ratio\": 0.5, \"schedule\": \"cubic\", \"stages\": 3, \"steps\": 3}}"

/* Training leaves tensors in the order of its snapshots, which is not that of codes, and may add some. */
static void stages__prune_what_was_chosen_whatever_the_order_of_tensors(void **state)
{
    static const struct {
        const char *first, *then;
    } rows[] = {
        {"{\"quantize\": {\"keep_slower\": true, \"layers\": \"attn\"}}", "{\"prune\": {\"layers\": \"c_fc\", " STAGES},
        {"{\"quantize\": {\"keep_slower\": true, \"layers\": \"attn\"}}",
         "{\"prune\": {\"method\": \"movement\", \"layers\": \"c_fc\", " STAGES},
        {"{\"tune\": {\"steps\": 1}}",
         "{\"quantize\": {\"keep_slower\": true, \"layers\": \"attn\", \"ranges\": \"learned\", \"calibration\": "
         "{\"batches\": 1}}}, {\"prune\": {\"layers\": \"c_fc\", " STAGES},
        {"{\"tune\": {\"steps\": 1}}",
         "{\"quantize\": {\"keep_slower\": true, \"layers\": \"attn\", \"calibration\": {\"batches\": 1}}}, "
         "{\"prune\": {\"method\": \"movement\", \"layers\": \"c_fc\", " STAGES},
    };
    data_case *c = *state;
    train(c, "\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        recipe(c, rows[i].first, "");
        expect(c, "rm -rf first out && \"$H\" compress run recipe.json -o first", 0, "");
        recipe(c, rows[i].then, "");
        expect(c, "\"$H\" compress first recipe.json -o out", 0, "");
        expect_half(c, "out", 0, "c_fc.weight");
    }
}

/* The second layer goes in the second stage: what the first one held does not name it. */
static void stages__hold_what_later_ones_cleared(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"gpt2\", \"n_layer\": 4, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    recipe(c,
           "{\"prune\": {\"method\": \"layers\", \"layers\": \".\", \"ratio\": 0.5, \"schedule\": \"cubic\", "
           "\"stages\": 4, \"steps\": 4}}, {\"tune\": {\"steps\": 2}}",
           "");
    expect(c, "\"$H\" compress run recipe.json -o out && grep -o '\"name\": \"[^\"]*c_proj.weight\"' out/compress.json",
           0, "");
    ht_safetensors *file;
    int zero = 0;
    char name[128];
    for (int layer = 0; layer < 4; layer++) {
        snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj.weight", layer);
        const ht_array *is = weight(c, "out", 2, name, &file);
        int64_t zeros = 0;
        for (int64_t i = 0; i < is->count; i++) zeros += ht_array_number(is, i) == 0;
        zero += zeros == is->count;
        ht_safetensors_free(file);
    }
    assert_int_equal(zero, 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(shrink__changes_no_answer_of_any_model),
        CASE(shrink__goes_on_where_an_earlier_one_ended),
        CASE(widths__that_no_layer_has_are_refused),
        CASE(units__that_a_model_does_not_have_are_refused),
        CASE(layers__that_add_nothing_are_removed),
        CASE(layers__go_by_what_the_model_loses),
        CASE(layers__that_cannot_go_are_refused),
        CASE(students__begin_with_layers_of_a_shrunk_run),
        CASE(weights__are_compressed_with_their_job),
        CASE(search__tries_every_combination_and_writes_the_smallest_that_fits),
        CASE(search__marks_the_front),
        CASE(search__goes_on_where_a_combination_fails),
        CASE(throughput__is_that_of_the_best_batch),
        CASE(search__without_goals_or_alternatives_is_refused),
        CASE(page__has_figures_and_layers),
        CASE(movement__clears_what_training_moves_towards_zero),
        CASE(movement__in_stages_holds_what_it_cleared),
        CASE(stages__prune_what_was_chosen_whatever_the_order_of_tensors),
        CASE(stages__hold_what_later_ones_cleared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
