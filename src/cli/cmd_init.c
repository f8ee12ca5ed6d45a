/* halftone init: a job file to start from, by the kind of data. */
#include "cli/option_table.h"
#include "data/data.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What to begin with for a format. Keys that are commented out show the defaults worth knowing. */
typedef struct start {
    const char *format;
    const char *model; /* lines of the model block */
    const char *data;  /* further lines of the data block */
    const char *train; /* lines of the train block */
} start;

#define MODEL_GPT2                                                                                                     \
    "        // gpt2, llama and lstm_lm are language models; docs/models.md has all types\n"                           \
    "        \"type\": \"gpt2\",\n"                                                                                    \
    "        \"n_layer\": 4,\n"                                                                                        \
    "        \"n_head\": 4,\n"                                                                                         \
    "        \"n_embd\": 128,\n"                                                                                       \
    "        \"dropout\": 0.0\n"
#define TRAIN_TEXT                                                                                                     \
    "        \"steps\": 2000,\n"                                                                                       \
    "        \"batch\": 16,            // rows per optimiser step\n"                                                   \
    "        // \"accumulate\": 4,     // the same batch in 4 smaller pieces, for less memory\n"                       \
    "        \"lr\": 1e-3,\n"                                                                                          \
    "        \"weight_decay\": 0.1,\n"                                                                                 \
    "        \"betas\": [0.9, 0.99],\n"                                                                                \
    "        \"clip\": 1.0,\n"                                                                                         \
    "        \"eval_every\": 200,\n"                                                                                   \
    "        \"snapshot_every\": 500,\n"
#define MODEL_LENET                                                                                                    \
    "        // lenet is for small images; resnet, mobilenet_v2 and mlp take others; docs/models.md has all types\n"   \
    "        \"type\": \"lenet\"\n"
#define MODEL_RESNET                                                                                                   \
    "        // resnet, mobilenet_v2, lenet and mlp take images; docs/models.md has all types\n"                       \
    "        \"type\": \"resnet\",\n"                                                                                  \
    "        \"depth\": 18,\n"                                                                                         \
    "        \"stem\": \"cifar\"         // imagenet for large images\n"
#define MODEL_MLP                                                                                                      \
    "        \"type\": \"mlp\",\n"                                                                                     \
    "        \"hidden\": [128, 128]\n"
#define TRAIN_EPOCHS                                                                                                   \
    "        \"epochs\": 5,\n"                                                                                         \
    "        \"batch\": 64,\n"                                                                                         \
    "        \"lr\": 1e-3,\n"                                                                                          \
    "        \"eval_every\": 500,\n"                                                                                   \
    "        \"snapshot_every\": 500,\n"

static const start starts[] = {
    {"text", MODEL_GPT2,
     "        \"tokenizer\": \"byte\",    // or char\n"
     "        \"length\": 128,          // tokens of a row\n"
     "        \"validation_share\": 0.1 // the end of the text is held out; \"validation\" names files instead\n",
     TRAIN_TEXT},
    {"jsonl", MODEL_GPT2,
     "        \"field\": \"text\",\n"
     "        \"tokenizer\": \"byte\",    // or char\n"
     "        \"length\": 128,          // tokens of a row\n"
     "        \"validation_share\": 0.1 // the last documents are held out\n",
     TRAIN_TEXT},
    {"shards", MODEL_GPT2,
     "        \"length\": 128,          // tokens of a row\n"
     "        \"validation_share\": 0.1 // the end is held out; \"validation\" names files instead\n",
     TRAIN_TEXT},
    {"pairs",
     "        \"type\": \"seq2seq\",      // LSTM encoder and decoder with attention\n"
     "        \"hidden\": 256,\n"
     "        \"layers\": 2,\n"
     "        \"dropout\": 0.2\n",
     "        \"max_length\": 32,       // longer pairs are left out\n"
     "        \"minimum_count\": 2,     // rarer words are unknown\n"
     "        \"validation_share\": 0.05\n",
     "        \"epochs\": 5,\n"
     "        \"batch\": 64,\n"
     "        \"lr\": 1e-3,\n"
     "        \"clip\": 5.0,\n"
     "        \"label_smoothing\": 0.1,\n"
     "        \"eval_every\": 500,\n"
     "        \"snapshot_every\": 500,\n"},
    {"sentences",
     "        \"type\": \"bert\",         // an encoder with a head for classes\n"
     "        \"num_hidden_layers\": 2,\n"
     "        \"num_attention_heads\": 4,\n"
     "        \"hidden_size\": 128,\n"
     "        \"intermediate_size\": 512\n",
     "        \"length\": 64,           // longer sentences are cut\n"
     "        \"validation_share\": 0.1\n",
     TRAIN_EPOCHS},
    {"idx", MODEL_LENET, "        \"validation_share\": 0.1 // \"validation\" names the test images instead\n",
     TRAIN_EPOCHS},
    {"images", MODEL_RESNET,
     "        \"size\": [32, 32],       // images are resized to it\n"
     "        \"validation_share\": 0.1 // \"validation\" names a folder instead\n",
     TRAIN_EPOCHS},
    {"table", MODEL_MLP,
     "        // \"label\": \"kind\",     // the last column unless given\n"
     "        \"validation_share\": 0.1\n",
     TRAIN_EPOCHS},
    {"arrays", MODEL_MLP, "        \"validation_share\": 0.1\n", TRAIN_EPOCHS},
};

static const start *find_start(const char *format)
{
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strcmp(starts[i].format, format) == 0) return &starts[i];
    return NULL;
}

static void add_job(ht_text *text, const start *s, const char *path)
{
    ht_text_add(text,
                "// A job for halftone train. Comments and a comma after the last element are fine; docs/config.md "
                "lists all keys.\n{\n    \"model\": {\n%s    },\n",
                s->model);
    ht_text_add(text, "    \"data\": {\n        \"format\": \"%s\",\n        \"train\": ", s->format);
    ht_json_put_text(&(ht_json_writer){.text = text}, NULL, path);
    ht_text_add(text, ",\n%s    },\n", s->data);
    ht_text_add(text,
                "    \"train\": {\n%s        \"seed\": 1,\n        \"output\": \"run\"         // the folder of the "
                "run\n    }\n    // \"engine\": \"ds_config.json\"   a DeepSpeed config, as it is\n}\n",
                s->train);
}

static int write_file(const char *path, ht_text *text, bool force)
{
    if (!force && access(path, F_OK) == 0)
        return cli_fail(CLI_WRONG, "init: %s is there already; --force writes over it", path);
    FILE *file = fopen(path, "wbe");
    bool wrote = file && fwrite(text->data, 1, text->length, file) == text->length;
    if (file && fclose(file) != 0) wrote = false;
    if (!wrote) return cli_fail(CLI_FAILED, "init: %s: %s", path, strerror(errno));
    ht_text said = {0};
    ht_text_add(&said, "%s is written. Next: halftone check %s, then halftone train %s\n", path, path, path);
    return cli_show(&said);
}

static int make_job(const char *data, const char *format, const char *path, bool force)
{
    if (!cli_is_there(data)) return cli_fail(CLI_WRONG, "init: %s: there is no such file or folder", data);
    const ht_data_format *guess = format ? ht_data_format_find(format) : ht_data_format_guess(data);
    if (!guess && !format)
        return cli_fail(CLI_WRONG, "init: the name '%s' does not tell what it holds; --format does", data);
    const start *s = guess ? find_start(guess->name) : NULL;
    if (!s)
        return cli_fail(CLI_WRONG,
                        "init: --format %s: text, jsonl, shards, pairs, sentences, idx, images, table or arrays",
                        format ? format : guess->name);
    ht_text text = {0};
    add_job(&text, s, data);
    if (text.failed || strcmp(path, "-") == 0) return cli_put(&text);
    int end = write_file(path, &text, force);
    ht_text_free(&text);
    return end;
}

typedef struct init_options {
    const char *data, *path, *format;
    bool force;
} init_options;

static int run_init(void *arg)
{
    const init_options *o = arg;
    return make_job(o->data, o->format, o->path, o->force);
}

static const cli_option options[] = {
    {"DATA", "data", CLI_ARGUMENT, offsetof(init_options, data), .help = "a file, a pattern or a folder"},
    {"JOB.json", "job file", CLI_ARGUMENT, offsetof(init_options, path),
     .help = "where the job file is written; - is standard output", .flags = CLI_OPTIONAL | CLI_STDIN,
     .standard = "job.json"},
    {"--format", "NAME", CLI_TEXT, offsetof(init_options, format),
     .help = "what kind of data it is, when the name does not tell", .takes = "a name"},
    {"--force", NULL, CLI_FLAG, offsetof(init_options, force), .help = "write over a file that is there"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone init shakespeare.txt", "a language model on a text, into job.json"},
    {"halftone init photos/ - --format images", "a job for a folder of images, to standard output"},
    {0},
};

const cli_command cmd_init = {
    .name = "init",
    .summary = "write a commented job file to start from",
    .description =
        "Writes a commented job file for the data at DATA (a file, a pattern or a folder) to JOB.json, or to job.json; "
        "to standard output when JOB.json is -. The model and its sizes suit a first look on a CPU: change what you "
        "like, and let halftone check tell you what it comes to.",
    .options = options,
    .size = sizeof(init_options),
    .run = run_init,
    .examples = examples,
    .see_also = "check data train",
};
