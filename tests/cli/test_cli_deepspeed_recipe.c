/* halftone compress with DeepSpeed's configs as they are: what their block compression_training becomes, for the models whose
 * names its patterns are. */
#include "cli_case.h"

enum { IMAGES = 60, SIDE = 8 };

static int begin(void **state)
{
    static unsigned char images[16 + IMAGES * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, IMAGES,
                                                              0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + IMAGES] = {0, 0, 8, 1, 0, 0, 0, IMAGES};
    if (data_case_begin(state) != 0) return -1;
    data_case *c = *state;
    for (int i = 0; i < IMAGES; i++) labels[8 + i] = (unsigned char)(i % 4);
    for (int p = 0; p < IMAGES * SIDE * SIDE; p++) images[16 + p] = (unsigned char)(p * p * 13 % 251);
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
    ht_text sums = {0};
    for (int i = 0; i < 200; i++) ht_text_add(&sums, "%d+%d=%d\n", i % 17, i % 11, i % 17 + i % 11);
    data_case_text(c, "sums.txt", sums.data);
    ht_text_free(&sums);
    return 0;
}

static void train(data_case *c, const char *model, const char *data, const char *more)
{
    ht_text text = {0};
    ht_text_add(&text,
                "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"steps\": 6, \"batch\": 4, \"output\": \"run\"%s}}",
                model, data, more);
    data_case_text(c, "job.json", text.data);
    ht_text_free(&text);
    expect(c, "rm -rf run out && \"$H\" train job.json", 0, "");
}

#define BERT_OF(layers)                                                                                                \
    "\"type\": \"bert\", \"hidden_size\": 16, \"num_hidden_layers\": " layers ", \"num_attention_heads\": 4, "         \
    "\"hidden_dropout_prob\": 0"
#define BERT BERT_OF("2")
#define TEXT                                                                                                           \
    "\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"byte\", \"length\": 8, \"validation_share\": 0.1"
#define MASKED ", \"task\": \"masked_lm\""
#define DIGITS "\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.3"

/* A copy of a real config with a part switched on, as its authors do by hand. */
static void config(data_case *c, const char *name, const char *edit)
{
    char line[1024];
    const char *real = data_case_real("deepspeed-configs");
    if (!real) skip();
    snprintf(line, sizeof line, "sed '%s' '%s/%s' > ds.json", edit, real, name);
    expect(c, line, 0, "");
}

#define CIFAR       "deepspeedai__DeepSpeedExamples__compression__cifar__config__ds_config_channel_prune.json"
#define BERT_CONFIG "deepspeedai__DeepSpeedExamples__compression__bert__config__ds_config.json"

static void channel_pruning__shrinks_a_resnet(void **state)
{
    data_case *c = *state;
    config(c, CIFAR, "");
    train(c, "\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"", DIGITS, "");
    expect(c, "\"$H\" compress run ds.json -o out && cat out/job.json", 0,
           "\"widths\": {\"layer1.0.conv1\": 2, \"layer1.1.conv1\": 2, \"layer2.0.conv1\": 4");
    expect(c, "\"$H\" eval out", 0, "loss");
}

/* All parts of the file are switched on by enabling what follows a line with its name. */
#define ENABLE(block)                                                                                                  \
    "/\"" block                                                                                                        \
    "\"/,/enabled/ s/\"enabled\": false/\"enabled\": true/; s/\"schedule_offset\": 2000/\"schedule_offset\": 2/"

static void row_and_head_pruning__shrink_a_bert(void **state)
{
    data_case *c = *state;
    train(c, BERT, TEXT, MASKED);
    config(c, BERT_CONFIG, ENABLE("row_pruning") "; " ENABLE("head_pruning"));
    expect(c, "\"$H\" compress run ds.json -o out", 0,
           "{\"steps\": [{\"tune\": {\"steps\": 2}}, {\"prune\": {\"method\": \"rows\", \"layers\": "
           "\"intermediate.dense\", "
           "\"ratio\": 0.5}}, {\"prune\": {\"method\": \"heads\", \"layers\": \"self.query|self.key|self.value\", "
           "\"ratio\": "
           "0.5}}, {\"tune\": {\"steps\": 4}}, {\"shrink\": {}}]}");
    expect(c, "cat out/job.json", 0, "\"bert.encoder.layer.1.attention.self.query\": 8");
    expect(c, "cat out/job.json", 0, "\"bert.encoder.layer.0.intermediate.dense\": 32");
}

static void sparse_pruning__clears_single_weights(void **state)
{
    data_case *c = *state;
    train(c, BERT, TEXT, MASKED);
    config(c, BERT_CONFIG, ENABLE("sparse_pruning"));
    expect(c, "\"$H\" compress run ds.json -o out", 0,
           "{\"prune\": {\"method\": \"magnitude\", \"layers\": \"attention.self\", \"ratio\": 0.5}}");
    config(c, BERT_CONFIG, ENABLE("sparse_pruning") "; s/\"l1\"/\"topk\"/");
    expect(c, "\"$H\" compress run ds.json -o learned", 0,
           "{\"prune\": {\"method\": \"movement\", \"steps\": 2, \"layers\": \"attention.self\", \"ratio\": 0.5}}, "
           "{\"tune\": "
           "{\"steps\": 2}}]");
    config(c, BERT_CONFIG, ENABLE("sparse_pruning") "; s/\"l1\"/\"snip_momentum\"/");
    expect(c, "\"$H\" compress run ds.json -o blocks", 0,
           "{\"prune\": {\"method\": \"movement\", \"steps\": 4, \"schedule\": \"cubic\", \"block\": [4, 1], "
           "\"layers\": \"\\\\.weight$\", \"except\": \"embed|wte|wpe\", \"ratio\": 0.9}}]");
    expect(c, "grep -c bert.embeddings.word_embeddings.weight blocks/compress.json", 1, "0");
}

#define GPT2(name)  "deepspeedai__DeepSpeedExamples__compression__gpt2__config__ds_config_" name ".json"
#define QUANT(name) "deepspeedai__DeepSpeedExamples__compression__bert__config__" name ".json"

static void quantization__is_trained_with(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    config(c, GPT2("W4or8A8_Qgroup64_fp32"), "");
    expect(c, "\"$H\" compress run ds.json -o out", 0,
           "[{\"quantize\": {\"layers\": \"mlp.c_fc|mlp.c_proj\", \"weights\": \"int4\", "
           "\"keep_slower\": true, \"symmetric\": true}}, {\"quantize\": {\"layers\": \"attn.c_attn|attn.c_proj\", "
           "\"weights\": \"int8\", \"keep_slower\": true, \"symmetric\": true}}, {\"tune\": {\"steps\": 6}}]");
    expect(c, "\"$H\" eval out", 0, "loss");
    config(c, GPT2("W8A8_Qgroup64_fp16"), "s/\"dynamic\"/\"static\"/");
    expect(c, "\"$H\" compress run ds.json -o again", 0, "\"calibration\": {\"batches\": 32}");
    config(c, GPT2("W8A8_Qgroup64_fp16"), "/\"activation_quantization\"/,/enabled/ s/true/false/");
    expect(c, "\"$H\" compress run ds.json -o alone", 0, "\"weights\": \"int8\", \"activations\": \"none\"");
    config(c, GPT2("W4or8A8_Qgroup64_fp32"), "/\"weight_quantization\"/,/enabled/ s/true/false/");
    expect(c, "\"$H\" compress run ds.json -o no", 2, "activation_quantization without weight_quantization");
    config(c, GPT2("W8A8_Qgroup64_fp16"), "s/\"bits\": 8/\"bits\": 4/");
    expect(c, "\"$H\" compress run ds.json -o no", 2, "activations have 8 bits");
    train(c, BERT, TEXT, MASKED);
    config(c, QUANT("ZeroQuant__ds_config_W48A8_Qgroup48_lkd_fp32"), "");
    expect(c, "\"$H\" compress run ds.json -o out", 0,
           "\"layers\": \"intermediate|layer.\\\\w+.output.dense\", \"weights\": \"int4\"");
}

/* A bit goes after one period, and the next ones after twice as many steps each; above 8 bits weights are floats. */
static void bits__go_down_by_the_period(void **state)
{
    data_case *c = *state;
    static const char edit[] = "s/\"start_bits\": 8/\"start_bits\": 9/; s/\"target_bits\": 8/\"target_bits\": 6/; "
                               "s/\"quantization_period\": 0/\"quantization_period\": 1/";
    train(c, "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    config(c, GPT2("W8A8_Qgroup64_fp16"), edit);
    expect(
        c,
        "\"$H\" compress run ds.json -o out 2>&1 | sed 's/\"layers\": [^,]*, //g; s/, \"keep_slower\": true, "
        "\"symmetric\": [a-z]*//g'",
        0,
        "{\"steps\": [{\"tune\": {\"steps\": 1}}, {\"quantize\": {\"weights\": \"int8\"}}, {\"tune\": {\"steps\": 1}}, "
        "{\"quantize\": {\"weights\": \"int7\"}}, {\"tune\": {\"steps\": 2}}, {\"quantize\": {\"weights\": "
        "\"int6\"}}, {\"tune\": {\"steps\": 2}}]}");
    expect(c, "cat out/compress.json", 0, "\"codes\": \"int6\"");
    expect(
        c,
        "sed -i 's/\"quantization_period\": 1/\"quantization_period\": 2/' ds.json; \"$H\" compress run ds.json -o no",
        2, "params.quantization_period: weights have 6 bits behind the run's 6 steps");
    /* In the forward pass they have target_bits at once. */
    config(c, GPT2("W8A8_Qgroup64_fp32"), edit);
    expect(c, "\"$H\" compress run ds.json -o forward", 0, "{\"steps\": [{\"quantize\": ");
}

static void weights_of_1_and_2_bits__are_binary_and_ternary(void **state)
{
    data_case *c = *state;
    train(c, BERT, TEXT, MASKED);
    config(c, QUANT("ds_config_W1A8_Qgroup64_fp32"), "");
    expect(c, "\"$H\" compress run ds.json -o out", 0, "\"weights\": \"binary\"");
    expect(c, "grep -ac 'intermediate.dense.weight.binary' out/snapshots/*/weights.safetensors", 0, "1");
    expect(c, "\"$H\" eval out", 0, "loss");
    config(c, QUANT("ds_config_W1or2A8_Qgroup64_fp16"), "");
    expect(c, "rm -rf out && \"$H\" compress run ds.json -o out", 0, "\"weights\": \"ternary\"");
    expect(c, "\"$H\" eval out", 0, "loss");
    config(c, QUANT("ds_config_W1or2A8_Qgroup64_fp16"), "s/\"symmetric\"/\"asymmetric\"/");
    expect(c, "rm -rf out && \"$H\" compress run ds.json -o out", 0, "\"weights\": \"int2\"");
}

static void layer_reduction__makes_a_student(void **state)
{
    data_case *c = *state;
    train(c, BERT_OF("12"), TEXT, MASKED);
    config(c, QUANT("XTC__ds_config_layer_reduction_W1Q8_fp32"), "");
    expect(c, "\"$H\" compress run ds.json -o out", 0,
           "{\"distill\": {\"steps\": 6, \"student\": {\"layers\": [1, 3, 5, 7, 9, 11]}}}]}");
    expect(c, "cat out/job.json", 0, "\"num_hidden_layers\": 6");
    expect(c, "\"$H\" eval out", 0, "loss");
    config(c, QUANT("XTC__ds_config_layer_reduction_fp16"), "");
    expect(c, "\"$H\" compress run ds.json -o again", 0, "{\"steps\": [{\"distill\": {\"steps\": 6");
    config(c, QUANT("XTC__ds_config_layer_reduction_fp16"), "s/bert.encoder.layer/encoder/");
    expect(c, "\"$H\" compress run ds.json -o no", 2,
           "module_name_prefix is \"encoder\", and the layers of bert are \"bert.encoder.layer.0\" and on");
    config(c, QUANT("XTC__ds_config_layer_reduction_fp16"), "s/\"keep_number_layer\": 6/\"keep_number_layer\": 5/");
    expect(c, "\"$H\" compress run ds.json -o no", 2, "keep_number_layer is 5, and teacher_layer names 6 layers");
    train(c, BERT, TEXT, MASKED);
    config(c, QUANT("XTC__ds_config_layer_reduction_fp16"), "");
    expect(c, "\"$H\" compress run ds.json -o no", 2, "the model's layers are 0 to 1");
    train(c, "\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"", DIGITS, "");
    expect(c, "\"$H\" compress run ds.json -o no", 2, "model.type resnet has no list of equal layers");
    expect(c, "! ls -d no no.partial 2>/dev/null", 0, "");
}

/* Those that need no edit. */
static void configs__are_recipes_as_they_are(void **state)
{
    data_case *c = *state;
    static const char *const berts[] = {
        QUANT("XTC__ds_config_W1A8_Qgroup1_fp32"),
        QUANT("XTC__ds_config_layer_reduction_W1Q8_fp32"),
        QUANT("XTC__ds_config_layer_reduction_fp16"),
        QUANT("ZeroQuant__ds_config_W48A8_Qgroup48_lkd_fp32"),
        QUANT("ZeroQuant__ds_config_W8A8_Qgroup48_fp32"),
        QUANT("ds_config_W1A8_Qgroup64_fp16"),
        QUANT("ds_config_W1A8_Qgroup64_fp32"),
        QUANT("ds_config_W1or2A8_Qgroup64_fp16"),
    };
    static const char *const gpt2s[] = {
        GPT2("W4or8A8_Qgroup64_fp16"),
        GPT2("W4or8A8_Qgroup64_fp32"),
        GPT2("W8A8_Qgroup64_fp16"),
        GPT2("W8A8_Qgroup64_fp32"),
    };
    enum { BERTS = sizeof berts / sizeof berts[0], GPT2S = sizeof gpt2s / sizeof gpt2s[0] };
    for (size_t i = 0; i < BERTS + GPT2S; i++) {
        if (i == 0) train(c, BERT_OF("12"), TEXT, MASKED);
        if (i == BERTS) train(c, "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
        config(c, i < BERTS ? berts[i] : gpt2s[i - BERTS], "");
        expect(c, "rm -rf out && \"$H\" compress run ds.json -o out", 0, "compression_training as a recipe");
        expect(c, "\"$H\" eval out", 0, "loss");
    }
}

/* Its authors' scripts put values in the places of these words. */
static void template__of_all_methods_at_once(void **state)
{
    data_case *c = *state;
    train(c, BERT_OF("12"), TEXT, MASKED);
    config(
        c, QUANT("ds_config_structural_pruning_TEMPLATE"),
        "s/BATCH_SIZE_PER_GPU/32/; s/FP16_ENABLE/false/; s/LAYER_REDUCTION_ENABLE/true/; s/WEIGHT_QUANT_ENABLE/true/; "
        "s/Q_GROUP/1/; s/QuantW_FORWARD/true/; s/W_BIT1/8/g; s/W_BIT2/4/g; s/ACTIVATION_QUANT_ENABLE/true/; "
        "s/A_BIT./8/; s/SPARSE_PRUNING_ENABLE/true/; s/SPARSE_PRUNING_OFFSET_END/4/; "
        "s/SPARSE_PRUNING_OFFSET_STRIDE/1/; "
        "s/SPARSE_PRUNING_OFFSET/0/; s/SPARSE_PRUNING_BLOCK_PATTERN/\"2x2\"/; s/S_DENSE_RATIO/0.5/; "
        "s/SPARSE_PRUNING_EXCLUDED_MODULES/[\"cls\"]/; s/ROW_PRUNING_ENABLE/true/; s/R_DENSE_RATIO/0.5/; "
        "s/HEAD_PRUNING_ENABLE/false/; s/H_DENSE_RATIO/0.5/; s/\"schedule_offset\": 2000/\"schedule_offset\": 5/");
    expect(c, "\"$H\" compress run ds.json -o out", 0, "\"block\": [2, 2]");
    expect(c, "cat out/job.json", 0, "\"bert.encoder.layer.4.intermediate.dense\": 32");
    expect(c, "\"$H\" eval out", 0, "loss");
}

static void blocks__that_cannot_be_done_are_refused(void **state)
{
    data_case *c = *state;
    train(c, BERT, TEXT, MASKED);
    config(c, BERT_CONFIG, "");
    expect(c, "\"$H\" compress run ds.json -o out", 2, "nothing of compression_training is enabled");
    config(c, BERT_CONFIG, "/\"row_pruning\"/,/enabled/ s/\"enabled\": false/\"enabled\": true/");
    expect(c, "\"$H\" compress run ds.json -o out", 2,
           "compression_training.row_pruning begins at step 2000, behind the run's 6 steps");
    config(c, BERT_CONFIG, ENABLE("row_pruning") "; s/\"dense_ratio\": 0.5/\"dense_ratio\": \"half\"/");
    expect(c, "\"$H\" compress run ds.json -o out", 2, "dense_ratio");
    config(c, BERT_CONFIG, ENABLE("head_pruning") "; s/\"related_modules\"/\"related_moduls\"/");
    expect(c, "\"$H\" compress run ds.json -o out", 2, "related_moduls");
    expect(c, "! ls -d out out.partial 2>/dev/null", 0, "");
}

static void training__says_that_it_leaves_the_block_alone(void **state)
{
    data_case *c = *state;
    config(c, CIFAR, "");
    train(c, "\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"", DIGITS, ", \"precision\": \"fp32\"");
    expect(c, "\"$H\" train job.json --force --deepspeed ds.json --lenient", 0,
           "compression_training.channel_pruning.shared_parameters.enabled is true: training leaves it as it is: "
           "`halftone "
           "compress` applies it to a run");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(channel_pruning__shrinks_a_resnet),     CASE(row_and_head_pruning__shrink_a_bert),
        CASE(sparse_pruning__clears_single_weights), CASE(blocks__that_cannot_be_done_are_refused),
        CASE(quantization__is_trained_with),         CASE(training__says_that_it_leaves_the_block_alone),
        CASE(layer_reduction__makes_a_student),      CASE(weights_of_1_and_2_bits__are_binary_and_ternary),
        CASE(bits__go_down_by_the_period),           CASE(template__of_all_methods_at_once),
        CASE(configs__are_recipes_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
