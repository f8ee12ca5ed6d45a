/* The format `sentences`: text, tab, label per line. A row begins with bos, whose output classifies the sentence. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/inputs.h"
#include "data/order.h"
#include "data/vocabulary.h"

typedef struct sentence {
    const char *text, *label; /* the text is not zero-terminated and lives while files are open */
    size_t text_length;
    const char *path; /* where it stands, for messages */
    int64_t line;
    int64_t first; /* of its ids */
    int32_t length, class, unknown;
} sentence;

typedef struct sentence_set {
    ht_ids ids;
    sentence *list[HT_DATA_PARTS];
    size_t counts[HT_DATA_PARTS], capacities[HT_DATA_PARTS];
    int64_t length; /* of a row */
    ht_content *contents;
    size_t content_count, content_capacity;
} sentence_set;

static const ht_key sentence_keys[] = {
    HT_DATA_PATH_KEYS("false"),
    {"tokenizer", HT_KEY_CHOICE, "\"word\"", 0, 0, "word|char", "tokens are words and punctuation, or characters"},
    {"lowercase", HT_KEY_BOOL, "false", 0, 0, NULL, "fold the letters A to Z"},
    {"minimum_count", HT_KEY_INT, "2", 1, 1 << 30, NULL, "rarer tokens are unknown"},
    {"vocabulary_size", HT_KEY_INT, "null", 5, 1 << 24, NULL, "at most so many tokens"},
    {"length", HT_KEY_INT, "64", 2, 1 << 20, NULL, "tokens of a row; longer sentences are cut"},
    {"label_first", HT_KEY_BOOL, "false", 0, 0, NULL, "the label stands before the tab"},
    HT_DATA_CLASSES_KEY,
    {"validation_share", HT_KEY_NUMBER, "0.1", 0, 0.9, NULL, "sentences that are held out when there are no others"},
    {.name = NULL},
};

/* ---- reading ---- */

typedef struct sentence_reading {
    ht_data *data;
    ht_context *ctx;
    sentence_set *set;
    double share;
    bool label_first;
} sentence_reading;

static ht_status read_line(const sentence_reading *r, ht_data_part part, const char *path, int64_t number,
                           const char *line, size_t length)
{
    const char *tab = memchr(line, '\t', length);
    if (!tab) HT_FAIL(r->ctx, HT_EPARSE, "%s:%" PRId64 ": no tab between text and label", path, number);
    const char *sides[2] = {line, tab + 1};
    size_t bytes[2] = {(size_t)(tab - line), length - (size_t)(tab + 1 - line)};
    int text = r->label_first, label = !r->label_first;
    if (bytes[text] == 0 || bytes[label] == 0) {
        r->data->info.dropped++;
        return HT_OK;
    }
    sentence s = {.text = sides[text], .text_length = bytes[text], .path = path, .line = number};
    s.label = ht_arena_text(r->data->arena, sides[label], bytes[label]);
    if (part == HT_DATA_TRAIN && ht_order_share(s.text, s.text_length) < r->share) part = HT_DATA_VALIDATION;
    sentence_set *set = r->set;
    if (!s.label || !ht_grow((void **)&set->list[part], &set->capacities[part], set->counts[part] + 1, sizeof s))
        return ht_data_no_memory(r->ctx, "sentences");
    set->list[part][set->counts[part]++] = s;
    return HT_OK;
}

static ht_status read_file(const sentence_reading *r, ht_data_part part, const char *path)
{
    sentence_set *set = r->set;
    if (!ht_grow((void **)&set->contents, &set->content_capacity, set->content_count + 1, sizeof *set->contents))
        return ht_data_no_memory(r->ctx, "files");
    ht_content *content = &set->contents[set->content_count];
    const char *name = ht_arena_text(r->data->arena, path, strlen(path));
    if (!name) return ht_data_no_memory(r->ctx, "files");
    HT_TRY(ht_data_content(content, r->data, r->ctx, path));
    set->content_count++;
    const char *text = (const char *)content->data, *line;
    ht_lines lines = {.at = text, .end = text + content->length};
    size_t length;
    while (ht_line_next(&lines, &line, &length))
        if (length > 0) HT_TRY(read_line(r, part, name, lines.number, line, length));
    return HT_OK;
}

static ht_status read_files(const sentence_reading *r)
{
    static const char *const keys[HT_DATA_PARTS] = {"train", "validation"};
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        ht_paths paths;
        HT_TRY(ht_paths_find(&paths, r->data, r->ctx, r->data->request.fields, keys[part]));
        ht_status status = HT_OK;
        for (size_t i = 0; i < paths.count && status == HT_OK; i++)
            status = read_file(r, (ht_data_part)part, paths.list[i]);
        ht_paths_free(&paths);
        HT_TRY(status);
    }
    return HT_OK;
}

/* ---- classes and tokens ---- */

static int by_text(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static ht_status name_classes(const sentence_reading *r)
{
    const sentence_set *set = r->set;
    size_t count = set->counts[HT_DATA_TRAIN], classes = 0;
    if (r->data->class_names) return HT_OK; /* as facts have them */
    const char **names = HT_NEW(r->data->arena, const char *, count);
    if (!names) return ht_data_no_memory(r->ctx, "classes");
    for (size_t i = 0; i < count; i++) names[i] = set->list[HT_DATA_TRAIN][i].label;
    qsort(names, count, sizeof *names, by_text);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || strcmp(names[i], names[classes - 1]) != 0) names[classes++] = names[i];
    return ht_data_name_classes(r->data, r->ctx, names, (int64_t)classes);
}

static ht_status make_vocabulary(const sentence_reading *r)
{
    ht_data *data = r->data;
    const ht_fields *fields = data->request.fields;
    const sentence_set *set = r->set;
    if (!data->request.vocabulary) {
        bool word = strcmp(ht_field_text(fields, "tokenizer"), "word") == 0;
        int64_t most = ht_field_null(fields, "vocabulary_size") ? 0 : ht_field_int(fields, "vocabulary_size");
        HT_TRY(ht_vocabulary_create(&data->vocabulary, r->ctx, word ? HT_VOCABULARY_WORD : HT_VOCABULARY_CHAR, true));
        ht_vocabulary_fold(data->vocabulary, ht_field_bool(fields, "lowercase"));
        for (size_t i = 0; i < set->counts[HT_DATA_TRAIN]; i++) {
            const sentence *s = &set->list[HT_DATA_TRAIN][i];
            char place[4200];
            snprintf(place, sizeof place, "%s:%" PRId64, s->path, s->line);
            HT_TRY(ht_vocabulary_count(data->vocabulary, r->ctx, place, s->text, s->text_length));
        }
        HT_TRY(ht_vocabulary_finish(data->vocabulary, r->ctx, ht_field_int(fields, "minimum_count"), most));
    }
    data->info.vocabulary = ht_vocabulary_size(ht_data_vocabulary(data));
    return HT_OK;
}

static ht_status encode(const sentence_reading *r, sentence *s)
{
    sentence_set *set = r->set;
    s->first = (int64_t)set->ids.count;
    char place[4200];
    snprintf(place, sizeof place, "%s:%" PRId64, s->path, s->line);
    HT_TRY(ht_vocabulary_append(ht_data_vocabulary(r->data), r->ctx, place, s->text, s->text_length, &set->ids));
    int64_t length = (int64_t)set->ids.count - s->first;
    if (length > set->length - 1) length = set->length - 1; /* one place is for bos */
    s->length = (int32_t)length;
    set->ids.count = (size_t)(s->first + length);
    for (int64_t i = 0; i < length; i++) s->unknown += set->ids.list[s->first + i] == HT_TOKEN_UNK;
    const char *const *found =
        bsearch(&s->label, r->data->class_names, (size_t)r->data->named_classes, sizeof s->label, by_text);
    if (!found)
        HT_FAIL(r->ctx, HT_EINVAL, "%s: class '%.60s' does not occur among the sentences to train on", place, s->label);
    s->class = (int32_t)(found - r->data->class_names);
    return HT_OK;
}

static ht_status encode_part(const sentence_reading *r, ht_data_part part)
{
    sentence_set *set = r->set;
    ht_data_part_info *info = &r->data->info.parts[part];
    for (size_t i = 0; i < set->counts[part]; i++) {
        HT_TRY(encode(r, &set->list[part][i]));
        info->tokens += set->list[part][i].length + 1;
        info->unknown += set->list[part][i].unknown;
    }
    info->items = (int64_t)set->counts[part];
    info->batches = ht_data_batches(r->data, part, info->items);
    if (info->items) info->padding = 1 - (double)info->tokens / (double)(info->items * set->length);
    return HT_OK;
}

/* ---- batches ---- */

static const sentence *sentence_at(const ht_data *data, ht_data_part part, uint64_t index, int64_t row)
{
    const sentence_set *set = data->own;
    uint64_t count = set->counts[part], batches = (uint64_t)data->info.parts[part].batches;
    uint64_t place = index % batches * (uint64_t)data->request.batch + (uint64_t)row;
    if (part == HT_DATA_TRAIN)
        place = ht_order_at(data->request.seed, index / batches, "sentences", count, place % count);
    return place < count ? &set->list[part][place] : NULL;
}

static ht_status fill(const ht_data *data, ht_context *ctx, ht_data_part part, uint64_t index, ht_batch *batch)
{
    (void)ctx;
    const sentence_set *set = data->own;
    for (int64_t row = 0; row < data->request.batch; row++) {
        const sentence *s = sentence_at(data, part, index, row);
        int32_t *tokens = (int32_t *)batch->arrays[0].data + row * set->length;
        int64_t length = s ? s->length : 0;
        tokens[0] = HT_TOKEN_BOS;
        if (length) memcpy(tokens + 1, set->ids.list + s->first, (size_t)length * sizeof *tokens);
        for (int64_t i = length + 1; i < set->length; i++) tokens[i] = HT_TOKEN_PAD;
        ((int32_t *)batch->arrays[1].data)[row] = (int32_t)length + 1;
        ((int32_t *)batch->arrays[2].data)[row] = s ? s->class : -1;
        batch->rows += s != NULL;
        batch->counted += s != NULL;
    }
    return HT_OK;
}

static int64_t counted(const ht_data *data, ht_data_part part, uint64_t index)
{
    int64_t sum = 0;
    for (int64_t row = 0; row < data->request.batch; row++) sum += sentence_at(data, part, index, row) != NULL;
    return sum;
}

static void layout(const ht_data *data, int bucket, ht_batch *batch)
{
    (void)bucket;
    int64_t shape[2] = {data->request.batch, ((const sentence_set *)data->own)->length};
    ht_batch_add(batch, "tokens", HT_I32, 2, shape);
    ht_batch_add(batch, "length", HT_I32, 1, shape);
    ht_batch_add(batch, "label", HT_I32, 1, shape);
}

static void show_row(const ht_data *data, const ht_batch *batch, int64_t row, ht_text *text)
{
    const sentence_set *set = data->own;
    int32_t label = ((const int32_t *)batch->arrays[2].data)[row];
    const char *name = ht_data_class_name(data, label);
    ht_vocabulary_decode(ht_data_vocabulary(data), (const int32_t *)batch->arrays[0].data + row * set->length,
                         set->length, text);
    ht_text_add(text, " -> %" PRId32 " (%s)", label, name ? name : "none");
}

static void close_files(sentence_set *set)
{
    for (size_t i = 0; i < set->content_count; i++) ht_content_close(&set->contents[i]);
    free(set->contents);
    set->contents = NULL;
    set->content_count = 0;
}

static void close_set(ht_data *data)
{
    sentence_set *set = data->own;
    close_files(set);
    free(set->ids.list);
    for (int part = 0; part < HT_DATA_PARTS; part++) free(set->list[part]);
    free(set);
}

static const ht_data_kind sentence_kind = {layout, fill, counted, NULL, show_row, close_set, NULL};

static ht_status open_sentences(ht_data *data, ht_context *ctx)
{
    const ht_fields *fields = data->request.fields;
    sentence_set *set = calloc(1, sizeof *set);
    if (!set) return ht_data_no_memory(ctx, "sentences");
    data->own = set;
    data->kind = &sentence_kind;
    set->length = data->request.length > 0 ? data->request.length : ht_field_int(fields, "length");
    if (set->length < 2) HT_FAIL(ctx, HT_EINVAL, "data.length: a row has at least 2 tokens");
    data->info.buckets[0].length = set->length;
    sentence_reading r = {.data = data, .ctx = ctx, .set = set, .label_first = ht_field_bool(fields, "label_first")};
    r.share = ht_field_null(fields, "validation") ? ht_field_number(fields, "validation_share") : 0;
    HT_TRY(read_files(&r));
    if (set->counts[HT_DATA_TRAIN] == 0 && !data->request.facts)
        HT_FAIL(ctx, HT_EINVAL, "data: no sentences to train on");
    HT_TRY(name_classes(&r));
    HT_TRY(make_vocabulary(&r));
    for (int part = 0; part < HT_DATA_PARTS; part++) HT_TRY(encode_part(&r, (ht_data_part)part));
    close_files(set);
    return HT_OK;
}

/* Texts, with or without their labels. */
static ht_status read_inputs(ht_inputs *inputs, const char *file, const ht_content *content)
{
    ht_line_rule rule = {.vocabulary = ht_data_vocabulary(inputs->data), .begins = true, .cut = true};
    if (!rule.vocabulary) HT_FAIL(inputs->ctx, HT_EINVAL, "the run has no vocabulary");
    rule.second = ht_field_bool(inputs->data->request.fields, "label_first");
    rule.most = inputs->data->info.buckets[0].length;
    return ht_inputs_add_lines(inputs, file, content, &rule);
}

const ht_data_format ht_data_format_sentences = {
    "sentences", "text, tab, label per line", sentence_keys, 1u << HT_TASK_CLASS, open_sentences, read_inputs};
