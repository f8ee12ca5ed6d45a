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

#define BERT                                                                                                           \
    "\"type\": \"bert\", \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                  \
    "\"hidden_dropout_prob\": 0"
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
    expect(c, "\"$H\" compress run ds.json -o no", 2, "snip_momentum is not there yet");
}

#define GPT2(name)  "deepspeedai__DeepSpeedExamples__compression__gpt2__config__ds_config_" name ".json"
#define QUANT(name) "deepspeedai__DeepSpeedExamples__compression__bert__config__" name ".json"

static void quantization__follows_the_tuning(void **state)
{
    data_case *c = *state;
    train(c, "\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16", TEXT, "");
    config(c, GPT2("W4or8A8_Qgroup64_fp32"), "");
    expect(c, "\"$H\" compress run ds.json -o out", 0,
           "[{\"tune\": {\"steps\": 6}}, {\"quantize\": {\"layers\": \"mlp.c_fc|mlp.c_proj\", \"weights\": \"int4\", "
           "\"keep_slower\": true, \"symmetric\": true}}, {\"quantize\": {\"layers\": \"attn.c_attn|attn.c_proj\", "
           "\"weights\": \"int8\", "
           "\"keep_slower\": true, \"symmetric\": true}}]");
    expect(c, "\"$H\" eval out", 0, "loss");
    config(c, GPT2("W8A8_Qgroup64_fp16"), "");
    expect(c, "\"$H\" compress run ds.json -o again", 0, "parameters");
    train(c, BERT, TEXT, MASKED);
    config(c, QUANT("ZeroQuant__ds_config_W48A8_Qgroup48_lkd_fp32"), "");
    expect(c, "\"$H\" compress run ds.json -o out", 0,
           "\"layers\": \"intermediate|layer.\\\\w+.output.dense\", \"weights\": \"int4\"");
    config(c, QUANT("ds_config_W1A8_Qgroup64_fp32"), "");
    expect(c, "\"$H\" compress run ds.json -o no", 2, "weights of 1 bits are not there yet: 2 to 8 are");
    config(c, QUANT("XTC__ds_config_layer_reduction_fp16"), "");
    expect(c, "\"$H\" compress run ds.json -o no", 2,
           "compression_training.layer_reduction as a recipe is not there yet");
    expect(c, "! ls -d no no.partial 2>/dev/null", 0, "");
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
        CASE(quantization__follows_the_tuning),      CASE(training__says_that_it_leaves_the_block_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
