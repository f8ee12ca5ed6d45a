/* The formats of language models: `text`, `jsonl`, `shards`, and `mixture` of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/corpus.h"
#include "data/vocabulary.h"

enum { MOST_SOURCES = 64 };

#define TOKENIZER_KEY                                                                                                  \
    {                                                                                                                  \
        "tokenizer", HT_KEY_CHOICE, "\"byte\"", 0, 0, "byte|char", "tokens are bytes, or characters of UTF-8"          \
    }
#define WEIGHT_KEY                                                                                                     \
    {                                                                                                                  \
        "weight", HT_KEY_NUMBER, "1", 0.000001, 1000000, NULL, "how often this source is drawn in a mixture"           \
    }

static const ht_key text_keys[] = {
    HT_DATA_PATH_KEYS("false"),
    TOKENIZER_KEY,
    {"documents", HT_KEY_CHOICE, "\"none\"", 0, 0, "none|line|paragraph|file",
     "what is a document of its own, with a separator before it"},
    HT_TOKEN_KEYS,
    WEIGHT_KEY,
    {.name = NULL},
};

static const ht_key jsonl_keys[] = {
    HT_DATA_PATH_KEYS("false"),
    TOKENIZER_KEY,
    {"field", HT_KEY_TEXT, "\"text\"", 0, 0, NULL, "the member of each line that holds the document"},
    HT_TOKEN_KEYS,
    WEIGHT_KEY,
    {.name = NULL},
};

static const ht_key shard_keys[] = {
    HT_DATA_PATH_KEYS("true"),
    {"dtype", HT_KEY_CHOICE, "\"uint16\"", 0, 0, "uint16|uint32", "tokens of files without a header"},
    {"vocabulary_size", HT_KEY_INT, "null", 1, 1 << 30, NULL, "number of tokens; the largest one plus 1 unless given"},
    {"separator", HT_KEY_INT, "null", 0, 1 << 30, NULL, "the token that begins each document"},
    HT_TOKEN_KEYS,
    WEIGHT_KEY,
    {.name = NULL},
};

static const ht_key mixture_keys[] = {
    {"sources", HT_KEY_JSON, NULL, 0, 0, NULL, "list of data blocks (text, jsonl, shards), each with its weight"},
    HT_DATA_PREFETCH_KEY("true"),
    TOKENIZER_KEY,
    HT_TOKEN_KEYS,
    {.name = NULL},
};

static bool wants_bytes(const ht_fields *fields)
{
    return strcmp(ht_field_text(fields, "tokenizer"), "byte") == 0;
}

/* The vocabulary of all corpora together, or the caller's; the separator comes behind it. */
static ht_status make_vocabulary(ht_token_set *set, ht_data *data, ht_context *ctx, const ht_corpus *corpora,
                                 size_t count, bool bytes)
{
    bool documents = false;
    for (size_t i = 0; i < count; i++) documents |= corpora[i].documents;
    if (!data->request.vocabulary) {
        ht_vocabulary_kind kind = bytes ? HT_VOCABULARY_BYTE : HT_VOCABULARY_CHAR;
        HT_TRY(ht_vocabulary_create(&data->vocabulary, ctx, kind, false));
        for (size_t i = 0; i < count; i++) HT_TRY(ht_corpus_count(&corpora[i], ctx, data->vocabulary));
        HT_TRY(ht_vocabulary_finish(data->vocabulary, ctx, 1, 0));
    }
    data->info.vocabulary = ht_vocabulary_size(ht_data_vocabulary(data));
    if (documents) set->separator = (int32_t)data->info.vocabulary++;
    return HT_OK;
}

static ht_status open_corpus(ht_data *data, ht_context *ctx)
{
    const ht_fields *fields = data->request.fields;
    ht_token_set *set;
    ht_corpus corpus;
    HT_TRY(ht_tokens_create(&set, data, ctx, 1));
    ht_status status = ht_corpus_read(&corpus, set, data, ctx, data->request.format, fields);
    if (status == HT_OK) status = make_vocabulary(set, data, ctx, &corpus, 1, wants_bytes(fields));
    if (status == HT_OK) status = ht_corpus_encode(&corpus, set, ctx, 0, ht_data_vocabulary(data), wants_bytes(fields));
    ht_corpus_free(&corpus);
    return status == HT_OK ? ht_tokens_finish(set, data, ctx) : status;
}

static ht_status open_shards(ht_data *data, ht_context *ctx)
{
    const ht_fields *fields = data->request.fields;
    ht_token_set *set;
    int64_t largest = -1;
    HT_TRY(ht_tokens_create(&set, data, ctx, 1));
    HT_TRY(ht_shards_read(set, data, ctx, 0, fields, &largest));
    if (!ht_field_null(fields, "separator")) set->separator = (int32_t)ht_field_int(fields, "separator");
    data->info.vocabulary = largest + 1;
    return ht_tokens_finish(set, data, ctx);
}

/* ---- mixtures ---- */

typedef struct mixture {
    size_t count;
    const ht_data_format *formats[MOST_SOURCES];
    ht_fields *fields[MOST_SOURCES];
    ht_corpus corpora[MOST_SOURCES];
    bool shards; /* all of them, else none */
} mixture;

/* Keys that the mixture sets for all its sources. */
static ht_status check_source(ht_context *ctx, const mixture *m, size_t number)
{
    static const char *const common[] = {"tokenizer", "length", "order", "document_ids", "mask_share", "prefetch"};
    const char *format = m->formats[number]->name;
    bool shards = strcmp(format, "shards") == 0;
    if (!shards && strcmp(format, "text") != 0 && strcmp(format, "jsonl") != 0)
        HT_FAIL(ctx, HT_EINVAL, "data.sources[%zu].format: \"%s\" does not mix; text, jsonl and shards do", number,
                format);
    if (shards != m->shards)
        HT_FAIL(ctx, HT_EINVAL, "data.sources[%zu]: shards and texts do not mix, their tokens differ", number);
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        if (ht_fields_find(m->fields[number], common[i]) && ht_field_given(m->fields[number], common[i]))
            HT_FAIL(ctx, HT_EINVAL, "data.sources[%zu].%s: belongs to the mixture, not to a source", number, common[i]);
    return HT_OK;
}

static ht_status read_sources(mixture *m, ht_context *ctx, const ht_json *sources)
{
    if (sources->kind != HT_JSON_ARRAY || sources->count < 1 || sources->count > MOST_SOURCES)
        HT_FAIL(ctx, HT_EINVAL, "data.sources: must be a list of 1 to %d data blocks", MOST_SOURCES);
    for (const ht_json *source = sources->child; source; source = source->next) {
        size_t number = m->count;
        ht_status status = ht_data_read_block(&m->formats[number], &m->fields[number], ctx, source);
        if (status != HT_OK) HT_FAIL(ctx, status, "data.sources[%zu]: %s", number, ctx->message);
        m->count++;
        if (number == 0) m->shards = strcmp(m->formats[0]->name, "shards") == 0;
        HT_TRY(check_source(ctx, m, number));
    }
    return HT_OK;
}

static ht_status fill_mixture(mixture *m, ht_token_set *set, ht_data *data, ht_context *ctx)
{
    bool bytes = wants_bytes(data->request.fields);
    int64_t largest = -1;
    for (size_t i = 0; i < m->count; i++) {
        set->groups[i].weight = ht_field_number(m->fields[i], "weight");
        if (m->shards)
            HT_TRY(ht_shards_read(set, data, ctx, i, m->fields[i], &largest));
        else
            HT_TRY(ht_corpus_read(&m->corpora[i], set, data, ctx, m->formats[i], m->fields[i]));
    }
    if (m->shards) {
        if (!ht_field_null(m->fields[0], "separator"))
            set->separator = (int32_t)ht_field_int(m->fields[0], "separator");
        data->info.vocabulary = largest + 1;
        return HT_OK;
    }
    HT_TRY(make_vocabulary(set, data, ctx, m->corpora, m->count, bytes));
    for (size_t i = 0; i < m->count; i++)
        HT_TRY(ht_corpus_encode(&m->corpora[i], set, ctx, i, ht_data_vocabulary(data), bytes));
    return HT_OK;
}

static ht_status open_mixture(ht_data *data, ht_context *ctx)
{
    mixture *m = calloc(1, sizeof *m);
    if (!m) return ht_data_no_memory(ctx, "the mixture");
    ht_token_set *set = NULL;
    ht_status status = read_sources(m, ctx, ht_field_json(data->request.fields, "sources"));
    if (status == HT_OK) status = ht_tokens_create(&set, data, ctx, m->count);
    if (status == HT_OK) status = fill_mixture(m, set, data, ctx);
    for (size_t i = 0; i < MOST_SOURCES; i++) {
        ht_fields_free(m->fields[i]);
        ht_corpus_free(&m->corpora[i]);
    }
    free(m);
    return status == HT_OK ? ht_tokens_finish(set, data, ctx) : status;
}

#define LANGUAGE_TASKS (1u << HT_TASK_LM | 1u << HT_TASK_MASKED_LM)

const ht_data_format ht_data_format_text = {
    "text", "plain text, by bytes or characters", text_keys, LANGUAGE_TASKS, open_corpus, NULL};
const ht_data_format ht_data_format_jsonl = {
    "jsonl", "a JSON object per line, one member of it the document", jsonl_keys, LANGUAGE_TASKS, open_corpus, NULL};
const ht_data_format ht_data_format_shards = {
    "shards", "tokens as numbers: raw, or behind a 1024-byte header", shard_keys, LANGUAGE_TASKS, open_shards, NULL};
const ht_data_format ht_data_format_mixture = {
    "mixture", "rows drawn from several sources by weight", mixture_keys, LANGUAGE_TASKS, open_mixture, NULL};
