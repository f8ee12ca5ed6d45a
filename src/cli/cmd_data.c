/* halftone data: batches as the model will see them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/option_table.h"
#include "data/data.h"
#include "format/format.h"

enum { MOST_SETS = 64 };

typedef struct options {
    const char *path, *format, *task;
    const char *sets[MOST_SETS];
    size_t set_count;
    int64_t batch, length, batches, rows, seed;
    bool seeded, validation, json;
} options;

/* ---- options ---- */

static int take_set(const cli_given *given, char *value)
{
    options *o = given->at;
    if (o->set_count == MOST_SETS) return cli_fail(CLI_WRONG, "data: more than %d times --set", MOST_SETS);
    o->sets[o->set_count++] = value;
    return CLI_DONE;
}

/* A job may have a seed of its own, so it matters whether one was given. */
static int take_seed(const cli_given *given, char *value)
{
    options *o = given->at;
    double number;
    if (!ht_number_read(value, &number) || !(number >= 0 && number <= 1e9) || number != (double)(int64_t)number)
        return cli_bad_value(given, value);
    o->seed = (int64_t)number;
    o->seeded = true;
    return CLI_DONE;
}

static const cli_option option_rows[] = {
    {"FILE|FOLDER|JOB.json", "file", CLI_ARGUMENT, offsetof(options, path),
     .help = "a file, a folder of images, or a job with a \"data\" block"},
    {"--format", "NAME", CLI_TEXT, offsetof(options, format),
     .help = "what kind of data it is, when the name does not tell", .takes = "a name"},
    {"--task", "NAME", CLI_TEXT, offsetof(options, task), .help = "lm, masked_lm, class, regression or pairs",
     .takes = "a name"},
    {"--set", "KEY=VALUE", CLI_TAKEN, 0, .help = "a key of the data block, as in a job", .flags = CLI_REPEATED,
     .takes = "KEY=VALUE", .take = take_set},
    {"--batch", "N", CLI_WHOLE, offsetof(options, batch), .help = "rows of a batch (4, or what the job says)",
     .least = 1, .most = 1e9},
    {"--length", "N", CLI_WHOLE, offsetof(options, length), .help = "tokens of a row (what the job says)", .least = 1,
     .most = 1e9},
    {"--batches", "N", CLI_WHOLE, offsetof(options, batches), .help = "how many batches to show", .most = 1e9,
     .standard = "2"},
    {"--rows", "N", CLI_WHOLE, offsetof(options, rows), .help = "how many rows of each", .most = 1e9, .standard = "4"},
    {"--seed", "N", CLI_TAKEN, 0, .help = "of the order (1, or what the job says)", .least = 0, .most = 1e9,
     .takes = "a whole number from 0", .take = take_seed},
    {"--validation", NULL, CLI_FLAG, offsetof(options, validation), .help = "the held-out part"},
    {"--json", NULL, CLI_FLAG, offsetof(options, json), .help = "one JSON object"},
    {0},
};

/* ---- from options to an open data set ---- */

typedef struct preview {
    options o;
    ht_context *ctx;
    ht_arena *arena;
    const ht_json *block;
    ht_fields *fields;
    ht_data *data;
    ht_data_request request;
} preview;

static bool is_json_word(const char *value)
{
    return (value[0] && strchr("[{\"-0123456789", value[0])) || strcmp(value, "true") == 0 ||
           strcmp(value, "false") == 0 || strcmp(value, "null") == 0;
}

/* A value of the command line: JSON, or else text. */
static void put_value(ht_json_writer *json, const char *key, const char *value)
{
    if (is_json_word(value))
        ht_json_put_json(json, key, value);
    else
        ht_json_put_text(json, key, value);
}

static ht_status parse_block(preview *p, ht_text *text)
{
    ht_status status = text->failed
                           ? ht_fail(p->ctx, HT_ENOMEM, "out of memory")
                           : ht_json_parse(p->ctx, p->arena, "data block", text->data, text->length, &p->block);
    ht_text_free(text);
    return status;
}

/* A data block for a file, as a user would write it. */
static ht_status block_for_file(preview *p)
{
    struct stat about;
    const char *format = p->o.format;
    if (!cli_is_there(p->o.path)) HT_FAIL(p->ctx, HT_EINVAL, "%s: there is no such file or folder", p->o.path);
    if (!format && stat(p->o.path, &about) == 0 && S_ISDIR(about.st_mode)) format = "images";
    const ht_data_format *guess = format ? NULL : ht_data_format_guess(p->o.path);
    if (guess) format = guess->name;
    if (!format) HT_FAIL(p->ctx, HT_EINVAL, "%s: its name does not tell what it holds; say --format", p->o.path);
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "format", format);
    ht_json_put_text(&json, "train", p->o.path);
    for (size_t i = 0; i < p->o.set_count; i++) {
        char key[128];
        const char *equals = strchr(p->o.sets[i], '=');
        size_t length = equals ? (size_t)(equals - p->o.sets[i]) : 0;
        if (length == 0 || length >= sizeof key) {
            ht_text_free(&text);
            HT_FAIL(p->ctx, HT_EINVAL, "--set %s: not KEY=VALUE", p->o.sets[i]);
        }
        memcpy(key, p->o.sets[i], length);
        key[length] = '\0';
        put_value(&json, key, equals + 1);
    }
    ht_json_end_object(&json);
    return parse_block(p, &text);
}

static ht_status block_of_job(preview *p)
{
    char *text;
    size_t length;
    const ht_json *root;
    HT_TRY(ht_read_file(p->ctx, &text, &length, p->o.path));
    ht_status status = ht_json_parse(p->ctx, p->arena, p->o.path, text, length, &root);
    free(text);
    HT_TRY(status);
    p->block = ht_json_get(root, "data");
    if (!p->block) HT_FAIL(p->ctx, HT_EINVAL, "%s: the job has no \"data\" block", p->o.path);
    if (p->o.set_count) HT_FAIL(p->ctx, HT_EINVAL, "--set is for files; change the job's \"data\" block instead");
    const ht_json *train = ht_json_get(root, "train");
    const ht_json *batch = ht_json_get(train, "batch"), *seed = ht_json_get(train, "seed");
    if (batch && p->o.batch == 0) ht_json_as_int(batch, &p->o.batch);
    if (seed && !p->o.seeded) p->o.seeded = ht_json_as_int(seed, &p->o.seed);
    return HT_OK;
}

static ht_status choose_task(preview *p)
{
    p->request.task = ht_data_standard_task(p->request.format);
    if (!p->o.task) return HT_OK;
    for (int i = 0; i < HT_TASK_COUNT; i++)
        if (strcmp(ht_task_names[i], p->o.task) == 0) {
            p->request.task = (ht_task)i;
            return HT_OK;
        }
    HT_FAIL(p->ctx, HT_EINVAL, "--task %s: lm, masked_lm, class, regression or pairs", p->o.task);
}

static ht_status open_data(preview *p)
{
    size_t length = strlen(p->o.path);
    bool job = !p->o.format && length > 5 && strcmp(p->o.path + length - 5, ".json") == 0;
    HT_TRY(job ? block_of_job(p) : block_for_file(p));
    HT_TRY(ht_data_read_block(&p->request.format, &p->fields, p->ctx, p->block));
    HT_TRY(choose_task(p));
    p->request.fields = p->fields;
    p->request.batch = p->o.batch ? p->o.batch : 4;
    p->request.length = p->o.length;
    p->request.seed = p->o.seeded ? (uint64_t)p->o.seed : 1;
    return ht_data_open(&p->data, p->ctx, &p->request);
}

/* ---- output ---- */

static const char *const part_names[HT_DATA_PARTS] = {"train", "validation"};

/* Rows may hold any bytes: what is not UTF-8 becomes a question mark; on one line, what would break it a space. */
static void clean_row(ht_text *clean, const ht_data *data, const ht_batch *batch, int64_t row, bool one_line)
{
    ht_text raw = {0};
    ht_data_show_row(data, batch, row, &raw);
    const char *at = raw.data ? raw.data : "", *end = at + raw.length;
    for (uint32_t code; at < end;) {
        int length = ht_utf8_next(at, end, &code);
        if (length == 0 || code == 0)
            ht_text_add(clean, "?");
        else if (code == '\n' && one_line)
            ht_text_add(clean, "\\n");
        else if (code < 0x20 && one_line)
            ht_text_add(clean, " ");
        else
            ht_text_add(clean, "%.*s", length, at);
        at += length ? length : 1;
    }
    ht_text_free(&raw);
}

static void put_shape(ht_json_writer *json, const char *key, const int64_t *shape, int rank)
{
    ht_json_begin_array(json, key);
    for (int i = 0; i < rank; i++) ht_json_put_int(json, NULL, shape[i]);
    ht_json_end_array(json);
}

static void add_shape(ht_text *text, const int64_t *shape, int rank)
{
    put_shape(&(ht_json_writer){.text = text}, NULL, shape, rank);
}

static void add_info(ht_text *text, const preview *p)
{
    const ht_data_info *info = ht_data_info_of(p->data);
    ht_text_add(text, "format      %s, %s\n", p->request.format->name, p->request.format->help);
    ht_text_add(text, "task        %s\n", ht_task_names[p->request.task]);
    if (info->source_vocabulary)
        ht_text_add(text, "source      %" PRId64 " tokens in the vocabulary\n", info->source_vocabulary);
    if (info->vocabulary) ht_text_add(text, "vocabulary  %" PRId64 " tokens\n", info->vocabulary);
    if (info->classes)
        ht_text_add(text, "%s%" PRId64 "\n", p->request.task == HT_TASK_CLASS ? "classes     " : "values      ",
                    info->classes);
    if (info->feature_rank) {
        ht_text_add(text, "features    ");
        add_shape(text, info->feature, info->feature_rank);
        ht_text_add(text, "\n");
    }
    if (info->dropped) ht_text_add(text, "left out    %" PRId64 " records: empty or too long\n", info->dropped);
    for (int i = 0; i < info->bucket_count && info->bucket_count > 1; i++)
        ht_text_add(text, "bucket %d    source %" PRId64 ", target %" PRId64 "\n", i, info->buckets[i].source_length,
                    info->buckets[i].length);
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        const ht_data_part_info *about = &info->parts[part];
        if (!about->batches) continue;
        ht_text_add(text, "%-11s %" PRId64 " items, %" PRId64 " batches of %" PRId64, part_names[part], about->items,
                    about->batches, p->request.batch);
        if (about->tokens) ht_text_add(text, ", %" PRId64 " tokens", about->tokens);
        ht_text_add(text, ", %.1f %% padding\n", 100 * about->padding);
    }
}

static void put_parts(ht_json_writer *json, const ht_data_info *info)
{
    ht_json_begin_object(json, "parts");
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        const ht_data_part_info *about = &info->parts[part];
        ht_json_begin_object(json, part_names[part]);
        ht_json_put_int(json, "items", about->items);
        ht_json_put_int(json, "batches", about->batches);
        ht_json_put_int(json, "tokens", about->tokens);
        ht_json_put_number(json, "padding", about->padding);
        ht_json_end_object(json);
    }
    ht_json_end_object(json);
}

static void put_info(ht_json_writer *json, const preview *p)
{
    const ht_data_info *info = ht_data_info_of(p->data);
    ht_json_line(json, 2);
    ht_json_put_text(json, "format", p->request.format->name);
    ht_json_put_text(json, "task", ht_task_names[p->request.task]);
    ht_json_put_int(json, "batch", p->request.batch);
    ht_json_line(json, 2);
    ht_json_put_int(json, "vocabulary", info->vocabulary);
    ht_json_put_int(json, "source_vocabulary", info->source_vocabulary);
    ht_json_put_int(json, "classes", info->classes);
    put_shape(json, "feature", info->feature, info->feature_rank);
    ht_json_put_int(json, "left_out", info->dropped);
    ht_json_line(json, 2);
    ht_json_begin_array(json, "buckets");
    for (int i = 0; i < info->bucket_count; i++) {
        ht_json_begin_object(json, NULL);
        ht_json_put_int(json, "length", info->buckets[i].length);
        ht_json_put_int(json, "source_length", info->buckets[i].source_length);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
    ht_json_line(json, 2);
    put_parts(json, info);
}

static void add_batch(ht_text *text, const preview *p, const ht_batch *batch, int64_t number)
{
    ht_text_add(text, "\nbatch %" PRId64 ": %" PRId64 " rows, %" PRId64 " count", number, batch->rows, batch->counted);
    for (int i = 0; i < batch->array_count; i++) {
        ht_text_add(text, "%s%s %s", i ? ", " : "; ", batch->arrays[i].name, ht_dtype_name(batch->arrays[i].dtype));
        add_shape(text, batch->arrays[i].shape, batch->arrays[i].rank);
    }
    ht_text_add(text, "\n");
    for (int64_t row = 0; row < batch->rows && row < p->o.rows; row++) {
        ht_text_add(text, "    ");
        ht_text clean = {0};
        clean_row(&clean, p->data, batch, row, true);
        ht_text_add(text, "%s\n", clean.data ? clean.data : "");
        ht_text_free(&clean);
    }
}

static void put_batch(ht_json_writer *json, const preview *p, const ht_batch *batch)
{
    ht_json_line(json, 4);
    ht_json_begin_object(json, NULL);
    ht_json_put_int(json, "bucket", batch->bucket);
    ht_json_put_int(json, "rows", batch->rows);
    ht_json_put_int(json, "counted", batch->counted);
    ht_json_begin_array(json, "arrays");
    for (int i = 0; i < batch->array_count; i++) {
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "name", batch->arrays[i].name);
        ht_json_put_text(json, "dtype", ht_dtype_name(batch->arrays[i].dtype));
        put_shape(json, "shape", batch->arrays[i].shape, batch->arrays[i].rank);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
    ht_json_begin_array(json, "shown");
    for (int64_t row = 0; row < batch->rows && row < p->o.rows; row++) {
        ht_text clean = {0};
        clean_row(&clean, p->data, batch, row, false);
        ht_json_put_text(json, NULL, clean.data ? clean.data : "");
        ht_text_free(&clean);
    }
    ht_json_end_array(json);
    ht_json_end_object(json);
}

/* As text, or where there is a writer as JSON. */
static ht_status add_one_batch(ht_text *text, ht_json_writer *json, const preview *p, ht_loader *loader, int64_t number)
{
    ht_batch batch;
    ht_data_layout(p->data, ht_loader_bucket(loader), &batch);
    bool allocated = true;
    for (int i = 0; i < batch.array_count; i++)
        allocated &= (batch.arrays[i].data = calloc(1, batch.arrays[i].bytes + 1)) != NULL;
    ht_status status =
        allocated ? ht_loader_next(loader, &batch) : ht_fail(p->ctx, HT_ENOMEM, "out of memory for a batch");
    if (status == HT_OK && json)
        put_batch(json, p, &batch);
    else if (status == HT_OK)
        add_batch(text, p, &batch, number);
    for (int i = 0; i < batch.array_count; i++) free(batch.arrays[i].data);
    return status;
}

static ht_status add_batches(ht_text *text, ht_json_writer *json, const preview *p)
{
    ht_loader *loader;
    HT_TRY(ht_loader_open(&loader, p->data, p->o.validation ? HT_DATA_VALIDATION : HT_DATA_TRAIN, false));
    ht_status status = HT_OK;
    for (int64_t i = 0; i < p->o.batches && status == HT_OK; i++) status = add_one_batch(text, json, p, loader, i);
    ht_loader_free(loader);
    return status;
}

static ht_status add_json(ht_text *text, const preview *p)
{
    ht_json_writer json = {.text = text, .long_escapes = true};
    ht_json_begin_object(&json, NULL);
    put_info(&json, p);
    ht_json_line(&json, 2);
    ht_json_begin_array(&json, "batches");
    HT_TRY(add_batches(text, &json, p));
    ht_json_line(&json, 2);
    ht_json_end_array(&json);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
    return HT_OK;
}

static ht_status show(ht_text *text, preview *p)
{
    HT_TRY(open_data(p));
    if (p->o.json) return add_json(text, p);
    add_info(text, p);
    return add_batches(text, NULL, p);
}

static int run_data(void *arg)
{
    preview p = {.o = *(const options *)arg};
    int end = cli_context(&p.ctx);
    if (end != CLI_DONE) return end;
    ht_text text = {0};
    p.arena = ht_arena_create();
    ht_status status = p.arena ? show(&text, &p) : ht_fail(p.ctx, HT_ENOMEM, "out of memory");
    end = status == HT_OK
              ? cli_show(&text)
              : cli_fail(status == HT_EIO ? CLI_WRONG : cli_end_of(status), "data: %s", ht_context_message(p.ctx));
    ht_text_free(&text);
    ht_data_free(p.data);
    ht_fields_free(p.fields);
    ht_arena_free(p.arena);
    ht_context_free(p.ctx);
    return end;
}

static const cli_entry examples[] = {
    {"halftone data shakespeare.txt --set tokenizer=char --length 64", "a text, before there is a job"},
    {"halftone data job.json --validation --rows 10", "what the job holds out"},
    {0},
};

const cli_command cmd_data = {
    .name = "data",
    .summary = "preview batches as the model will see them",
    .description = "Shows what a file, a folder of images or the \"data\" block of a job gives: sizes, the share of "
                   "padding, and the first batches with their rows as text.",
    .options = option_rows,
    .size = sizeof(options),
    .run = run_data,
    .examples = examples,
    .see_also = "init train",
};
