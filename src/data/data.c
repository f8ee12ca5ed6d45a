/* Data sets: the table of formats, opening, paths and patterns, the validation split, batch layouts. */
#include "data/data.h"

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/order.h"

#define HT_DATA_FORMAT(id) extern const ht_data_format ht_data_format_##id;
#include "data/formats.def"
#undef HT_DATA_FORMAT

const ht_data_format *const ht_data_formats[] = {
#define HT_DATA_FORMAT(id) &ht_data_format_##id,
#include "data/formats.def"
#undef HT_DATA_FORMAT
    NULL};

const ht_data_format *ht_data_format_find(const char *name)
{
    for (const ht_data_format *const *format = ht_data_formats; *format; format++)
        if (strcmp((*format)->name, name) == 0) return *format;
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

const ht_data_format *ht_data_format_guess(const char *path)
{
    static const char *const endings[][2] = {
        {".txt", "text"},   {".raw", "text"},   {".tsv", "pairs"},          {".csv", "table"}, {".jsonl", "jsonl"},
        {".bin", "shards"}, {".npy", "arrays"}, {".safetensors", "arrays"}, {"-ubyte", "idx"}, {".idx", "idx"}};
    char plain[4096];
    if (snprintf(plain, sizeof plain, "%s", path) >= (int)sizeof plain) return NULL;
    if (ends_with(plain, ".gz")) plain[strlen(plain) - 3] = '\0';
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
        if (ends_with(plain, endings[i][0])) return ht_data_format_find(endings[i][1]);
    return NULL;
}

ht_task ht_data_standard_task(const ht_data_format *format)
{
    return (ht_task)__builtin_ctz(format->tasks);
}

/* ---- the block ---- */

static ht_status find_format(const ht_data_format **out, ht_context *ctx, const ht_json *object)
{
    const ht_json *name = ht_json_get(object, "format");
    ht_text names = {0};
    for (const ht_data_format *const *format = ht_data_formats; *format; format++)
        ht_text_add(&names, "%s%s", format == ht_data_formats ? "" : ", ", (*format)->name);
    *out = name && name->kind == HT_JSON_STRING ? ht_data_format_find(name->text) : NULL;
    ht_status status = HT_OK;
    if (!*out && name && name->kind == HT_JSON_STRING)
        status = ht_fail(ctx, HT_EINVAL, "data.format: there is no format \"%s\"; known are %s", name->text,
                         names.data ? names.data : "");
    else if (!*out)
        status = ht_fail(ctx, HT_EINVAL, "data.format: must be given, one of %s", names.data ? names.data : "");
    ht_text_free(&names);
    return status;
}

ht_status ht_data_read_block(const ht_data_format **format, ht_fields **fields, ht_context *ctx, const ht_json *object)
{
    static const ht_key format_key[] = {{"format", HT_KEY_TEXT, NULL, 0, 0, NULL, "what kind of data"}, {.name = NULL}};
    *fields = NULL;
    HT_TRY(find_format(format, ctx, object));
    ht_problems problems = {0};
    ht_origin where = {.source = HT_SOURCE_FILE};
    ht_status status = ht_fields_create(fields, "data");
    if (status == HT_OK) status = ht_fields_declare(*fields, format_key);
    if (status == HT_OK) status = ht_fields_declare(*fields, (*format)->keys);
    if (status == HT_OK) status = ht_fields_take(*fields, object, &where, &problems);
    if (status == HT_OK) status = ht_fields_finish(*fields, &problems);
    status = status == HT_OK ? ht_problems_status(&problems, ctx) : ht_data_no_memory(ctx, "the data block");
    ht_problems_free(&problems);
    if (status == HT_OK) return HT_OK;
    ht_fields_free(*fields);
    *fields = NULL;
    return status;
}

/* ---- opening ---- */

static ht_status check_request(ht_context *ctx, const ht_data_request *request)
{
    if (request->batch < 1 || request->batch > INT64_C(1) << 24)
        HT_FAIL(ctx, HT_EINVAL, "data: a batch of %" PRId64 " rows", request->batch);
    if (request->slices < 0 || request->slices > (INT64_C(1) << 40) / request->batch)
        HT_FAIL(ctx, HT_EINVAL, "data: a step of %" PRId64 " batches of %" PRId64 " rows", request->slices,
                request->batch);
    if (request->length < 0 || request->length > INT64_C(1) << 24)
        HT_FAIL(ctx, HT_EINVAL, "data: rows of %" PRId64 " tokens", request->length);
    const ht_field *classes = ht_fields_find(request->fields, "classes");
    if (classes && classes->value->kind != HT_JSON_NULL && request->task != HT_TASK_CLASS)
        HT_FAIL(ctx, HT_EINVAL, "data.classes: the task is %s, which has no classes", ht_task_names[request->task]);
    if (!(request->format->tasks >> request->task & 1))
        HT_FAIL(ctx, HT_EINVAL, "data: the format \"%s\" does not serve the task \"%s\"", request->format->name,
                ht_task_names[request->task]);
    return HT_OK;
}

/* Facts and vocabularies are all that there is. */
static ht_status open_facts(ht_data *data, ht_context *ctx)
{
    ht_data_info *info = &data->info;
    if (!data->request.facts) HT_FAIL(ctx, HT_EINVAL, "data: nothing is known of what was trained on");
    const ht_vocabulary *vocabulary = data->request.vocabulary, *source = data->request.source_vocabulary;
    info->vocabulary = vocabulary ? ht_vocabulary_size(vocabulary) : ht_facts_vocabulary(data);
    info->source_vocabulary = source ? ht_vocabulary_size(source) : 0;
    if (data->known_buckets > 0) info->bucket_count = data->known_buckets;
    return HT_OK;
}

ht_status ht_data_open(ht_data **out, ht_context *ctx, const ht_data_request *request)
{
    *out = NULL;
    HT_TRY(check_request(ctx, request));
    ht_data *data = calloc(1, sizeof *data);
    if (!data) return ht_data_no_memory(ctx, "the data set");
    *data = (ht_data){.ctx = ctx, .request = *request, .info.bucket_count = 1, .arena = ht_arena_create()};
    data->fingerprint = data->arena ? HT_NEW(data->arena, ht_data_fingerprint, 1) : NULL;
    ht_status status = data->fingerprint ? ht_facts_take(data, ctx) : ht_data_no_memory(ctx, "the data set");
    if (status == HT_OK) status = request->facts_only ? open_facts(data, ctx) : request->format->open(data, ctx);
    if (!request->facts_only) data->request.fields = NULL;
    data->request.facts = NULL;
    data->request.folder = NULL;
    if (status != HT_OK) {
        ht_data_free(data);
        return status;
    }
    *out = data;
    return HT_OK;
}

void ht_data_free(ht_data *data)
{
    if (!data) return;
    if (data->kind) data->kind->close(data);
    ht_vocabulary_free(data->vocabulary);
    ht_vocabulary_free(data->source_vocabulary);
    ht_arena_free(data->arena);
    free(data);
}

const ht_data_info *ht_data_info_of(const ht_data *data)
{
    return &data->info;
}

const ht_vocabulary *ht_data_vocabulary(const ht_data *data)
{
    return data->vocabulary ? data->vocabulary : data->request.vocabulary;
}

const ht_vocabulary *ht_data_source_vocabulary(const ht_data *data)
{
    return data->source_vocabulary ? data->source_vocabulary : data->request.source_vocabulary;
}

const char *ht_data_class_name(const ht_data *data, int64_t label)
{
    return data->class_names && label >= 0 && label < data->named_classes ? data->class_names[label] : NULL;
}

const char *ht_data_target_text(const ht_data *data, int64_t item)
{
    return data->kind->target_text ? data->kind->target_text(data, item) : NULL;
}

void ht_data_layout(const ht_data *data, int bucket, ht_batch *batch)
{
    *batch = (ht_batch){.bucket = bucket};
    data->kind->layout(data, bucket, batch);
}

void ht_data_show_row(const ht_data *data, const ht_batch *batch, int64_t row, ht_text *text)
{
    data->kind->show_row(data, batch, row, text);
}

/* ---- helpers for formats ---- */

ht_status ht_data_name_classes(ht_data *data, ht_context *ctx, const char *const *names, int64_t count)
{
    const ht_fields *fields = data->request.fields;
    data->class_names = names;
    data->named_classes = data->info.classes = count;
    if (ht_field_null(fields, "classes")) return HT_OK;
    data->info.classes = ht_field_int(fields, "classes");
    if (data->info.classes < count)
        HT_FAIL(ctx, HT_EINVAL, "data.classes: %" PRId64 ", but %" PRId64 " classes occur, such as '%.60s'",
                data->info.classes, count, names[count - 1]);
    return HT_OK;
}

int64_t ht_data_slices(const ht_data *data, ht_data_part part)
{
    return part == HT_DATA_TRAIN && data->request.slices > 1 ? data->request.slices : 1;
}

int64_t ht_data_batches(const ht_data *data, ht_data_part part, int64_t items)
{
    int64_t slices = ht_data_slices(data, part), batch = data->request.batch;
    if (part == HT_DATA_VALIDATION) return (items + batch - 1) / batch;
    int64_t steps = items / (batch * slices);
    if (items > 0 && steps == 0) steps = 1;
    return steps * slices;
}

ht_status ht_data_no_memory(ht_context *ctx, const char *what)
{
    HT_FAIL(ctx, HT_ENOMEM, "data: out of memory for %s", what);
}

void ht_batch_add(ht_batch *batch, const char *name, ht_dtype dtype, int rank, const int64_t *shape)
{
    ht_batch_array *array = &batch->arrays[batch->array_count++];
    *array = (ht_batch_array){.name = name, .dtype = dtype, .rank = rank, .bytes = ht_dtype_bytes(dtype)};
    for (int i = 0; i < rank; i++) {
        array->shape[i] = shape[i];
        array->bytes *= (size_t)shape[i];
    }
}

ht_batch_array *ht_batch_find(ht_batch *batch, const char *name)
{
    for (int i = 0; i < batch->array_count; i++)
        if (strcmp(batch->arrays[i].name, name) == 0) return &batch->arrays[i];
    return NULL;
}

ht_status ht_split_items(ht_split *out, ht_data *data, ht_context *ctx, int64_t count, double share)
{
    *out = (ht_split){0};
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        out->items[part] = HT_NEW(data->arena, int64_t, count);
        if (!out->items[part]) return ht_data_no_memory(ctx, "the split");
    }
    for (int64_t i = 0; i < count; i++) {
        ht_data_part part = ht_order_share(&i, sizeof i) < share ? HT_DATA_VALIDATION : HT_DATA_TRAIN;
        out->items[part][out->counts[part]++] = i;
    }
    return HT_OK;
}

static int by_bytes(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static bool add_path(ht_paths *paths, const char *path)
{
    if (!ht_grow((void **)&paths->list, &paths->capacity, paths->count + 1, sizeof *paths->list)) return false;
    paths->list[paths->count] = strdup(path);
    return paths->list[paths->count++] != NULL;
}

/* A path that stands for the request's memory. */
static const char memory_name[] = "memory";

ht_status ht_data_content(ht_content *out, const ht_data *data, ht_context *ctx, const char *path)
{
    if (!data->request.memory || strcmp(path, memory_name) != 0) return ht_content_open(out, ctx, path);
    *out = (ht_content){.data = (const uint8_t *)data->request.memory, .length = data->request.memory_length};
    return HT_OK;
}

/* A file of that very name goes before what its brackets could mean. */
static ht_status find_pattern(ht_paths *out, ht_context *ctx, const char *key, const char *pattern)
{
    if (access(pattern, F_OK) == 0) return add_path(out, pattern) ? HT_OK : ht_data_no_memory(ctx, "paths");
    glob_t found = {0};
    int result = glob(pattern, GLOB_NOSORT, NULL, &found);
    ht_status status = HT_OK;
    if (result == GLOB_NOMATCH)
        status = ht_fail(ctx, HT_EIO, "data.%s: there is no file \"%s\"", key, pattern);
    else if (result != 0)
        status = ht_fail(ctx, HT_EIO, "data.%s: \"%s\" could not be looked up", key, pattern);
    for (size_t i = 0; status == HT_OK && i < found.gl_pathc; i++)
        if (!add_path(out, found.gl_pathv[i])) status = ht_data_no_memory(ctx, "paths");
    globfree(&found);
    return status;
}

static bool has_match(const char *pattern)
{
    glob_t found = {0};
    bool some = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return some;
}

ht_status ht_data_path(const ht_data *data, ht_context *ctx, const ht_fields *fields, const char *key, const char *name,
                       char *out, size_t capacity)
{
    const char *folder = data->request.folder;
    const ht_field *field = ht_fields_find(fields, key);
    bool here = !folder || !*folder || name[0] == '/' || (field && field->origin.source == HT_SOURCE_COMMAND);
    int length = snprintf(out, capacity, "%s%s%s", here ? "" : folder, here ? "" : "/", name);
    /* A run may have moved together with its data. */
    if (!here && !has_match(out) && has_match(name)) length = snprintf(out, capacity, "%s", name);
    if (length < 0 || (size_t)length >= capacity) HT_FAIL(ctx, HT_EINVAL, "data.%s: the path is too long", key);
    return HT_OK;
}

static void add_to_fingerprint(const ht_data *data, const char *key, const ht_paths *paths)
{
    ht_data_part part = strncmp(key, "validation", 10) == 0 ? HT_DATA_VALIDATION : HT_DATA_TRAIN;
    for (size_t i = 0; i < paths->count; i++) ht_fingerprint_file(data, part, paths->list[i]);
}

ht_status ht_paths_find(ht_paths *out, const ht_data *data, ht_context *ctx, const ht_fields *fields, const char *key)
{
    *out = (ht_paths){0};
    ht_status status = HT_OK;
    if (strncmp(key, "train", 5) == 0 && ht_data_validates_only(data, fields)) return HT_OK;
    if (data->request.memory && strcmp(key, "train") == 0) {
        ht_fingerprint_bytes(data, HT_DATA_TRAIN, memory_name, data->request.memory, data->request.memory_length);
        return add_path(out, memory_name) ? HT_OK : ht_data_no_memory(ctx, "paths");
    }
    for (size_t i = 0; status == HT_OK && i < ht_field_count(fields, key); i++) {
        const char *name = ht_field_text_at(fields, key, i);
        char path[4096];
        size_t before = out->count;
        status = ht_data_path(data, ctx, fields, key, name, path, sizeof path);
        if (status == HT_OK) status = find_pattern(out, ctx, key, path);
        /* The order of directory entries is unspecified, and glob sorts by the locale: sort by bytes. */
        if (status == HT_OK) qsort(out->list + before, out->count - before, sizeof *out->list, by_bytes);
    }
    if (status == HT_OK)
        add_to_fingerprint(data, key, out);
    else
        ht_paths_free(out);
    return status;
}

void ht_paths_free(ht_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++) free(paths->list[i]);
    free(paths->list);
    *paths = (ht_paths){0};
}

ht_status ht_path_find(const ht_data *data, ht_context *ctx, const char *key, char *out, size_t capacity)
{
    ht_paths paths;
    HT_TRY(ht_paths_find(&paths, data, ctx, data->request.fields, key));
    ht_status status = HT_OK;
    if (paths.count > 1) status = ht_fail(ctx, HT_EINVAL, "data.%s: %zu files, one is wanted", key, paths.count);
    snprintf(out, capacity, "%s", paths.count ? paths.list[0] : "");
    ht_paths_free(&paths);
    return status;
}
