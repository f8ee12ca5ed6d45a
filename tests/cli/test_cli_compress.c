/* halftone compress: what a recipe does to weights and model, that zeros stay zero whatever trains them, that the result is
 * a run like any other, and recipes and runs that are refused. */
#include <math.h>
#include <sys/stat.h>

#include "cli_case.h"
#include "format/format.h"

enum { LAYERS = 2, WIDTH = 32, HEADS = 4, INNER = 128, LENGTH = 16 };

/* "run": a small language model, trained for a few steps. */
static const char job[] =
    "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 4, \"n_embd\": 32},\n"
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

static int64_t count_zeros(const ht_array *array)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < array->count; i++) zeros += ht_array_number(array, i) == 0;
    return zeros;
}

static const ht_array *tensor(const ht_safetensors *file, const char *name)
{
    const ht_named_array *found = ht_safetensors_find(file, name);
    if (!found) fail_msg("there is no %s", name);
    return &found->array;
}

static double loss_of(data_case *c, const char *folder)
{
    char line[256];
    int status;
    snprintf(line, sizeof line, "\"$H\" eval %s --json", folder);
    const char *text = run(c, line, &status), *at = strstr(text, "\"loss\": ");
    if (status != 0 || !at) fail_msg("%s", text);
    return strtod(at + 8, NULL);
}

static double number_of(data_case *c, const char *line, const char *key)
{
    int status;
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    const char *text = run(c, line, &status), *at = strstr(text, wanted);
    if (status != 0 || !at) fail_msg("%s: %.2000s", line, text);
    return strtod(at + strlen(wanted), NULL);
}

/* ---- what becomes zero ---- */

static void magnitude__clears_the_smallest_weights_of_each_tensor(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.25, \"layers\": \"h\\\\..*weight\"}}");
    expect(c, COMPRESS, 0, "not zero");
    ht_safetensors *before = open_weights(c, "run", 6), *after = open_weights(c, "out", 0);
    const ht_array *was = tensor(before, "transformer.h.1.mlp.c_fc.weight");
    const ht_array *is = tensor(after, "transformer.h.1.mlp.c_fc.weight");
    double largest = 0, smallest = INFINITY;
    assert_int_equal(count_zeros(is), WIDTH * INNER / 4);
    for (int64_t i = 0; i < is->count; i++) {
        double x = fabs(ht_array_number(was, i));
        if (ht_array_number(is, i) == 0)
            largest = fmax(largest, x);
        else
            smallest = fmin(smallest, x);
    }
    assert_true(largest <= smallest);
    assert_int_equal(count_zeros(tensor(after, "transformer.wte.weight")), 0);
    assert_memory_equal(tensor(before, "transformer.h.0.ln_1.weight")->data,
                        tensor(after, "transformer.h.0.ln_1.weight")->data, WIDTH * sizeof(float));
    ht_safetensors_free(before);
    ht_safetensors_free(after);
}

static void global__takes_more_where_weights_are_smaller(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"scope\": \"global\", \"layers\": \"mlp\\\\.c_\"}}");
    expect(c, COMPRESS, 0, "");
    ht_safetensors *after = open_weights(c, "out", 0);
    int64_t all = 0;
    for (int layer = 0; layer < LAYERS; layer++) {
        char name[64];
        snprintf(name, sizeof name, "transformer.h.%d.mlp.c_fc.weight", layer);
        all += count_zeros(tensor(after, name));
        snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj.weight", layer);
        all += count_zeros(tensor(after, name));
    }
    assert_int_equal(all, LAYERS * WIDTH * INNER);
    /* The ends of branches begin with smaller weights. */
    assert_true(count_zeros(tensor(after, "transformer.h.0.mlp.c_proj.weight")) > WIDTH * INNER / 2);
    ht_safetensors_free(after);
}

static void two_of_four__leaves_two_of_every_four_inputs(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"method\": \"2:4\", \"layers\": \"mlp\\\\.c_fc\"}}");
    expect(c, COMPRESS, 0, "");
    ht_safetensors *before = open_weights(c, "run", 6), *after = open_weights(c, "out", 0);
    const ht_array *was = tensor(before, "transformer.h.0.mlp.c_fc.weight");
    const ht_array *is = tensor(after, "transformer.h.0.mlp.c_fc.weight"); /* [in, out] */
    for (int64_t column = 0; column < INNER; column++)
        for (int64_t row = 0; row < WIDTH; row += 4) {
            int zeros = 0;
            double largest = 0, smallest = INFINITY;
            for (int64_t k = row; k < row + 4; k++) {
                bool cleared = ht_array_number(is, k * INNER + column) == 0;
                double x = fabs(ht_array_number(was, k * INNER + column));
                zeros += cleared;
                if (cleared) largest = fmax(largest, x);
                if (!cleared) smallest = fmin(smallest, x);
            }
            assert_int_equal(zeros, 2);
            assert_true(largest <= smallest);
        }
    ht_safetensors_free(before);
    ht_safetensors_free(after);
}

static void blocks__are_zero_or_whole(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"method\": \"blocks\", \"block\": [8, 16], \"ratio\": 0.5, \"layers\": \"c_fc\"}}");
    expect(c, COMPRESS, 0, "");
    ht_safetensors *after = open_weights(c, "out", 0);
    const ht_array *is = tensor(after, "transformer.h.0.mlp.c_fc.weight");
    int cleared = 0;
    for (int64_t block = 0; block < WIDTH / 8 * (INNER / 16); block++) {
        int64_t zeros = 0, first = block / (INNER / 16) * 8 * INNER + block % (INNER / 16) * 16;
        for (int64_t i = 0; i < 8 * 16; i++) zeros += ht_array_number(is, first + i / 16 * INNER + i % 16) == 0;
        assert_true(zeros == 0 || zeros == 8 * 16);
        cleared += zeros != 0;
    }
    assert_int_equal(cleared, WIDTH / 8 * (INNER / 16) / 2);
    ht_safetensors_free(after);
}

/* ---- zeros stay ---- */

/* All zeros of the one are zeros of the other, and nothing else is; some weight moved. */
static void expect_same_zeros(data_case *c, const char *what, int step)
{
    ht_safetensors *before = open_weights(c, "out", 0), *after = open_weights(c, "out", step);
    const ht_array *was = tensor(before, "transformer.h.0.mlp.c_fc.weight");
    const ht_array *is = tensor(after, "transformer.h.0.mlp.c_fc.weight");
    int64_t moved = 0;
    for (int64_t i = 0; i < is->count; i++) {
        double x = ht_array_number(was, i), y = ht_array_number(is, i);
        if ((x == 0) != (y == 0)) fail_msg("%s: element %d was %g and is %g", what, (int)i, x, y);
        moved += x != y;
    }
    if (moved == 0) fail_msg("%s: nothing was trained", what);
    assert_int_equal(count_zeros(is), WIDTH * INNER / 2);
    assert_true(count_zeros(tensor(after, "transformer.h.0.mlp.c_fc.bias")) == 0);
    ht_safetensors_free(before);
    ht_safetensors_free(after);
}

static void zeros__stay_zero_whatever_trains_them(void **state)
{
    static const char *const settings[] = {
        "--set train.precision=fp32",
        "--set train.precision=bf16",
        "--set train.precision=fp16 --set train.loss_scale='\"dynamic\"'",
        "--set train.optimizer=sgd --set train.momentum=0.9 --set train.weight_decay=0.1",
        "--set train.optimizer=lion --set train.lr=0.001",
        "--set train.optimizer=lamb",
        "--set train.optimizer=muon",
        "--set train.micro_batch=2 --set train.clip=0.5",
        "--set train.groups='[{\"match\": \"mlp\", \"lr_scale\": 0.5}]'",
        "--ranks 2 --set train.micro_batch=4",
        "--ranks 2 --set train.micro_batch=4 --set engine.zero_optimization.stage=2 --set train.precision=bf16",
        "--ranks 2 --set train.micro_batch=4 --set engine.zero_optimization.stage=3",
        "--ranks 2 --set halftone.parallel.tensor=2",
        "--ranks 2 --set halftone.parallel.pipeline=2",
        "--set engine.zero_optimization.stage=2 --set engine.zero_optimization.offload_optimizer.device=cpu",
    };
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"h\\\\..*weight\"}}");
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf out && \"$H\" compress run recipe.json -o out >/dev/null 2>&1 && sed -i "
                 "'s/\"output\": \"out\"/\"output\": \"more\"/; s/\"init_from\": \"run\"/\"init_from\": \"out\"/' "
                 "out/job.json && rm -rf more && \"$H\" train out/job.json --set train.steps=5 %s && "
                 "mkdir -p out/snapshots && cp -r more/snapshots/step-00000005 out/snapshots/",
                 settings[i]);
        expect(c, line, 0, "");
        expect_same_zeros(c, settings[i], 5);
    }
}

static void zeros__stay_zero_in_tuning_and_after_a_resume(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"h\\\\..*weight\"}}, {\"tune\": {\"steps\": 4}}");
    expect(c, COMPRESS, 0, "ratio");
    expect(c, "\"$H\" train out/job.json --resume --set train.steps=9", 0, "");
    ht_safetensors *tuned = open_weights(c, "out", 4), *resumed = open_weights(c, "out", 9);
    const ht_array *was = tensor(tuned, "transformer.h.1.attn.c_attn.weight");
    const ht_array *is = tensor(resumed, "transformer.h.1.attn.c_attn.weight");
    assert_int_equal(count_zeros(was), 3 * WIDTH * WIDTH / 2);
    for (int64_t i = 0; i < is->count; i++) assert_int_equal(ht_array_number(was, i) == 0, ht_array_number(is, i) == 0);
    assert_memory_not_equal(was->data, is->data, was->bytes);
    ht_safetensors_free(tuned);
    ht_safetensors_free(resumed);
}

static void cubic__reaches_the_ratio_in_stages(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"h\\\\..*weight\", \"schedule\": \"cubic\", \"stages\": 3, "
              "\"steps\": 6}}");
    expect(c, COMPRESS, 0, "tune 2/2");
    ht_safetensors *after = open_weights(c, "out", 0);
    assert_int_equal(count_zeros(tensor(after, "transformer.h.0.mlp.c_fc.weight")), WIDTH * INNER / 2);
    ht_safetensors_free(after);
}

/* ---- units ---- */

static void shrink__removes_rows_and_heads_and_changes_no_answer(void **state)
{
    static const char prune[] = "{\"prune\": {\"method\": \"rows\", \"ratio\": 0.25, \"layers\": \"mlp\"}}, "
                                "{\"prune\": {\"method\": \"heads\", \"ratio\": 0.25, \"layers\": \"attn\"}}";
    char steps[512];
    data_case *c = *state;
    recipe(c, prune);
    expect(c, COMPRESS " && rm -rf zeros && mv out zeros", 0, "");
    snprintf(steps, sizeof steps, "%s, {\"shrink\": {}}", prune);
    recipe(c, steps);
    expect(c, COMPRESS, 0, "");
    double zeros = loss_of(c, "zeros"), small = loss_of(c, "out");
    if (fabs(zeros - small) > 1e-5 * zeros) fail_msg("loss %.9g with zeros, %.9g without", zeros, small);
    /* By the formula: embeddings, and for each layer norms, attention and the feed-forward part. */
    int64_t inner = INNER * 3 / 4, heads = HEADS * 3 / 4 * (WIDTH / HEADS);
    ht_safetensors *file = open_weights(c, "out", 0);
    int64_t vocabulary = tensor(file, "transformer.wte.weight")->shape[0];
    int64_t layer =
        4 * WIDTH + (WIDTH + 1) * 3 * heads + heads * WIDTH + WIDTH + (WIDTH + 1) * inner + inner * WIDTH + WIDTH;
    int64_t parameters = (vocabulary + LENGTH) * WIDTH + LAYERS * layer + 2 * WIDTH, found = 0;
    for (size_t i = 0; i < ht_safetensors_count(file); i++) found += ht_safetensors_at(file, i)->array.count;
    assert_int_equal(found, parameters);
    ht_safetensors_free(file);
    /* What is gone of the FLOPs of a row: products, attention over the pairs of a causal row, biases and gelu. */
    enum { GELU = 20, SOFTMAX = 5, PAIRS = LENGTH * (LENGTH + 1) / 2 };
    int64_t rows = INNER - inner, width = WIDTH - heads, head = WIDTH / HEADS;
    int64_t gone = LAYERS * (2 * LENGTH * WIDTH * (2 * rows + 4 * width) + width / head * PAIRS * (4 * head + SOFTMAX) +
                             LENGTH * (3 * width + rows * (1 + GELU)));
    double before = number_of(c, "grep '^ *\"before\": {' out/compress.json", "flops");
    double after = number_of(c, "grep '^ *\"after\": {' out/compress.json", "flops");
    if (before - after != (double)gone) fail_msg("%g FLOPs, then %g: not %g less", before, after, (double)gone);
    expect(c, "\"$H\" train out/job.json --resume --set train.steps=3 && \"$H\" eval out", 0, "step        3");
}

static void shrink__gives_a_layer_a_width_of_its_own(void **state)
{
    data_case *c = *state;
    recipe(c,
           "{\"prune\": {\"method\": \"rows\", \"ratio\": 0.25, \"layers\": \"h\\\\.0\\\\.mlp\"}}, {\"shrink\": {}}");
    expect(c, COMPRESS " && cat out/job.json", 0, "\"widths\": {\"transformer.h.0.mlp.c_fc\": 96}");
    expect(c, "\"$H\" eval out", 0, "loss");
}

/* ---- the result ---- */

static void result__opens_like_any_run(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}, {\"tune\": {\"steps\": 3, \"lr\": 0.001, "
              "\"train\": {\"weight_decay\": 0}}}");
    expect(c, COMPRESS, 0, "zeros that were pruned are computed like other weights");
    expect(c, "cat out/compress.json", 0, "\"last_loss\"");
    expect(c, "\"$H\" eval out", 0, "step        3");
    expect(c, "\"$H\" profile out/job.json --infer --batch 1,2", 0, "ms");
    expect(c, "\"$H\" opt --pass dce out/model.ht", 0, "segment logits");
    expect(c, "\"$H\" check out/job.json", 0, "");
    expect(c, "mkdir -p elsewhere && cd elsewhere && \"$H\" eval ../out", 0, "loss");
}

static void tuning__that_diverges_is_told(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"tune\": {\"steps\": 2, \"lr\": 1e9}}");
    expect(c, COMPRESS, 0, "warning: the loss of the result is ");
    recipe(c, "{\"tune\": {\"steps\": 2}}");
    expect(c, COMPRESS " 2> told; ! grep 'loss of the result' told", 0, "");
}

static void output__is_replaced_only_where_compress_wrote_it(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}");
    expect(c, COMPRESS, 0, "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2, "out is there already: --force replaces it");
    expect(c, "\"$H\" compress run recipe.json -o out --force --json", 0, "\"after\": {\"quality\": {\"loss\": ");
    expect(c, "\"$H\" compress run recipe.json -o run --force", 2, "run is the run that is compressed");
    expect(c, "mkdir other; \"$H\" compress run recipe.json -o other", 2,
           "other is there already, and has no compress.json");
    expect(c, "\"$H\" compress run recipe.json -o other --force", 2, "--force replaces only what compress wrote");
    expect(c, "\"$H\" compress out recipe.json -o out --force", 2, "out is the run that is compressed");
    expect(c, "\"$H\" compress out recipe.json -o again && \"$H\" eval again", 0, "loss");
    expect(c, "! ls -d *.partial 2>/dev/null", 0, "");
}

/* A folder that compress did not make is not its to remove; one that it made is, but for an output that it had put aside. */
static void folders__of_others_and_outputs_put_aside_are_kept(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": {\"try\": [0.5]}, \"layers\": \"c_fc\"}}");
    expect(c, "mkdir out.search && echo x > out.search/mine", 0, "");
    expect(c, "\"$H\" compress run recipe.json -o out --search drop=900%", 2, "out.search is there already");
    expect(c, "cat out.search/mine && rm -r out.search", 0, "x");
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}");
    expect(c, "mkdir out.partial && echo x > out.partial/mine", 0, "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2, "out.partial is there already, and no compression left it");
    expect(c, "cat out.partial/mine && rm out.partial/mine", 0, "x");
    expect(c, COMPRESS, 0, ""); /* an empty one is taken */
    expect(c, "mkdir out.partial && touch out.partial/made-by-compress && mv out out.partial/replaced", 0, "");
    expect(c, "\"$H\" compress run recipe.json -o out", 2, "out is there already");
    expect(c, "\"$H\" compress run recipe.json -o out --force && \"$H\" eval out", 0, "loss");
    expect(c, "! ls -d *.partial *.search 2>/dev/null", 0, "");
}

/* ---- what it stores, and tells ---- */

/* A mask of a bit for each weight, and the weights that are not zero; training goes on with dense snapshots. */
static void zeros__take_a_bit_on_disk(void **state)
{
    enum { MATRICES = LAYERS * (3 * WIDTH * WIDTH + WIDTH * WIDTH + 2 * WIDTH * INNER) };
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.9, \"layers\": \"h\\\\..*weight\"}}");
    expect(c, COMPRESS, 0, "");
    double before = number_of(c, "grep '\"before\"' out/compress.json", "disk_bytes");
    double after = number_of(c, "grep '\"after\"' out/compress.json", "disk_bytes");
    double saved = MATRICES * (0.9 * sizeof(float) - 1.0 / 8);
    if (!(fabs(before - after - saved) < 4096))
        fail_msg("%g bytes, then %g; %g were to be saved", before, after, saved);
    expect(c, "grep -c 'transformer.h.0.mlp.c_fc.weight.sparse_mask' out/snapshots/step-00000000/weights.safetensors",
           0, "1");
    double loss = loss_of(c, "out");
    recipe(c, "{\"tune\": {\"steps\": 1, \"lr\": 0, \"train\": {\"weight_decay\": 0}}}");
    expect(c, "\"$H\" compress out recipe.json -o again", 0, "");
    assert_true(loss_of(c, "again") == loss);
    expect(c, "\"$H\" train out/job.json --resume --set train.steps=2", 0, "");
    expect(c, "! grep -q sparse out/snapshots/step-00000002/weights.safetensors", 0, "");
    /* Codes are made of sparse weights as of others. */
    expect(c, "\"$H\" eval again --set 'train.quantize=[{}]'", 0, "loss");
}

/* Layers that are faster without their runs of zeros are in the result's job, and the loss is that of the dense ones. */
static void runs_of_zeros__are_left_out_where_that_is_faster(void **state)
{
    data_case *c = *state;
    char line[512];
    recipe(c, "{\"prune\": {\"method\": \"blocks\", \"block\": [1, 16], \"ratio\": 0.8, \"layers\": "
              "\"h\\\\..*(c_fc|c_attn).weight\"}}");
    expect(c, COMPRESS " 2>&1", 0, "layers with runs of zeros are faster without them here");
    expect(c, "grep -c matmul_sparse out/compress.json", 0, "");
    double loss = loss_of(c, "out");
    snprintf(line, sizeof line, "\"$H\" eval out --json --set 'train.sparse=%s'", "[\"c_fc.weight$\"]");
    assert_true(fabs(number_of(c, line, "loss") - loss) < 1e-6);
    assert_true(fabs(number_of(c, "\"$H\" eval out --json --set train.sparse=null", "loss") - loss) < 1e-6);
    expect(c, "\"$H\" eval out --set 'train.sparse=[\"c_fx\"]'", 2, "'c_fx' matches no weight of a product, such as '");
    expect(c, COMPRESS " --set train.precision=bf16", 0, "4 layers have runs of zeros, and none is computed without");
    /* Single zeros make no runs. */
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}");
    expect(c, COMPRESS " --force 2>&1", 0, "make nothing faster");
    expect(c, "! grep -q matmul_sparse out/compress.json", 0, "");
}

static void steps__have_figures_of_their_own(void **state)
{
    data_case *c = *state;
    static const char prune[] = "{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}";
    char steps[256];
    recipe(c, prune);
    expect(c, "\"$H\" compress run recipe.json -o pruned", 0, "");
    double pruned = loss_of(c, "pruned"), bytes = number_of(c, "grep '\"after\"' pruned/compress.json", "disk_bytes");
    snprintf(steps, sizeof steps, "%s, {\"tune\": {\"steps\": 3}}", prune);
    recipe(c, steps);
    expect(c, COMPRESS, 0, "behind step");
    expect(c, "rm -r out && \"$H\" compress run recipe.json -o out --json", 0, "\"steps\": [{\"step\": \"prune\", ");
    static const char first[] = "grep '^ *\"quality\"' out/compress.json | head -1";
    static const char last[] = "grep '^ *\"quality\"' out/compress.json | tail -1";
    if (!(fabs(number_of(c, first, "loss") - pruned) < 1e-6 * pruned)) fail_msg("not %.9g", pruned);
    assert_true(number_of(c, first, "disk_bytes") == bytes);
    assert_true(number_of(c, first, "nonzero") < number_of(c, first, "parameters"));
    double tuned = loss_of(c, "out");
    if (!(fabs(number_of(c, last, "loss") - tuned) < 1e-6 * tuned)) fail_msg("not %.9g", tuned);
    expect(c, "grep -c '\"p99_ms\": [0-9]' out/compress.json", 0, "2");
}

/* ---- what is refused ---- */

static void recipes__are_refused_with_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "recipe.json"},
        {"[]", "a recipe is an object with a list \"steps\""},
        {"{\"steps\": []}", "a recipe is an object with a list \"steps\""},
        {"{\"steps\": 3}", "a recipe is an object"},
        {"{\"stops\": []}", "there is no key \"stops\""},
        {"{\"steps\": [{}]}", "a step is an object with one member"},
        {"{\"steps\": [7]}", "a step is an object with one member"},
        {"{\"steps\": [{\"prone\": {}}]}", "there is no step \"prone\"; there are "},
        {"{\"compression_training\": {}}", "nothing of compression_training is enabled"},
        {"{\"steps\": [{\"prune\": 1}]}", "prune: expected an object"},
        {"{\"steps\": [{\"prune\": {\"ratio\": 0.5}}]}", "steps[0].prune.layers"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\"}}]}", "ratio must be given"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"ratio\": 1}}]}", "ratio 1 is not above 0 and below 1"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"ratio\": 0}}]}", "ratio 0 is not above 0"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"ratio\": -2}}]}", "steps[0].prune.ratio"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"ratio\": 0.5, \"ratoi\": 1}}]}", "ratoi"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"nothing\", \"ratio\": 0.5}}]}",
         "prune.layers: 'nothing' matches no tensor of at least 2 axes, such as 'transformer."},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc.bias\", \"ratio\": 0.5}}]}", "matches no tensor of at least 2"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"(\", \"ratio\": 0.5}}]}", "'(' is no regular expression"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"method\": \"2:4\", \"ratio\": 0.4}}]}",
         "2:4 has the ratio"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"method\": \"blocks\", \"ratio\": 0.5, \"block\": [5, "
         "4]}}]}",
         "is 32 x 128, which blocks of 5 x 4 do not tile"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"method\": \"channels\", \"ratio\": 0.5}}]}",
         "has no channels that could be removed"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"wte\", \"method\": \"rows\", \"ratio\": 0.5}}]}",
         "no tensor that matches makes rows, as 'transformer.h.0.mlp.c_fc.weight' does"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"attn\", \"method\": \"heads\", \"ratio\": 0.01}}]}", "none of them"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"attn\", \"method\": \"heads\", \"ratio\": 0.99}}]}", "all of them"},
        {"{\"steps\": [{\"prune\": {\"layers\": \"c_fc\", \"ratio\": 0.5, \"schedule\": \"cubic\"}}]}", "needs steps"},
        {"{\"steps\": [{\"tune\": {}}]}", "steps[0].tune.steps"},
        {"{\"steps\": [{\"tune\": {\"steps\": 0}}]}", "steps[0].tune.steps"},
        {"{\"steps\": [{\"tune\": {\"steps\": 2, \"train\": [1]}}]}", "tune.train: expected an object"},
        {"{\"steps\": [{\"tune\": {\"steps\": 2, \"train\": {\"no_such_key\": 1}}}]}", "no_such_key"},
        {"{\"steps\": [{\"tune\": {\"steps\": 2, \"lr\": \"fast\"}}]}", "steps[0].tune.lr"},
    };
    data_case *c = *state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        data_case_text(c, "recipe.json", rows[i].text);
        expect(c, COMPRESS, 2, rows[i].message);
        expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
    }
}

static void runs__are_refused_with_what_is_wrong(void **state)
{
    data_case *c = *state;
    recipe(c, "{\"prune\": {\"ratio\": 0.5, \"layers\": \"c_fc\"}}");
    expect(c, "\"$H\" compress nowhere recipe.json -o out", 2, "nowhere holds no run");
    expect(c, "\"$H\" compress w.safetensors recipe.json -o out", 2,
           "w.safetensors: --job names the job whose model the weights are");
    expect(c, "\"$H\" compress run recipe.json", 2, "--output");
    expect(c,
           "cp -r run bad && printf x >> bad/snapshots/step-00000006/weights.safetensors && "
           "\"$H\" compress bad recipe.json -o out",
           1, "139273 bytes, the manifest says 139272");
    expect(c,
           "\"$H\" train job.json --set train.output=inf --set train.lr=3e38 --set train.weight_decay=100 "
           "--set train.steps=1 >/dev/null 2>&1; \"$H\" compress inf recipe.json -o out",
           2, "weights.safetensors: element 0 of '");
    expect(c, "mv sums.txt gone.txt; \"$H\" compress run recipe.json -o out", 1, "sums.txt");
    expect(c, "mv gone.txt sums.txt; ! ls -d out out.partial 2>/dev/null", 0, "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(magnitude__clears_the_smallest_weights_of_each_tensor),
        CASE(global__takes_more_where_weights_are_smaller),
        CASE(two_of_four__leaves_two_of_every_four_inputs),
        CASE(blocks__are_zero_or_whole),
        CASE(zeros__stay_zero_whatever_trains_them),
        CASE(zeros__stay_zero_in_tuning_and_after_a_resume),
        CASE(cubic__reaches_the_ratio_in_stages),
        CASE(shrink__removes_rows_and_heads_and_changes_no_answer),
        CASE(shrink__gives_a_layer_a_width_of_its_own),
        CASE(result__opens_like_any_run),
        CASE(tuning__that_diverges_is_told),
        CASE(output__is_replaced_only_where_compress_wrote_it),
        CASE(folders__of_others_and_outputs_put_aside_are_kept),
        CASE(zeros__take_a_bit_on_disk),
        CASE(runs_of_zeros__are_left_out_where_that_is_faster),
        CASE(steps__have_figures_of_their_own),
        CASE(recipes__are_refused_with_what_is_wrong),
        CASE(runs__are_refused_with_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
