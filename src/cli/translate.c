#include "cli/translate.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"

/* A batch as the data gives it, the source as the decoder wants it (in the largest shape), and what comes out. */
typedef struct batch_buffers {
    ht_batch batch;
    int64_t rows, source_length, length;
    int32_t *source, *tokens;
    int64_t *lengths;
} batch_buffers;

void cli_translations_free(cli_translations *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->list[i].source);
        free(list->list[i].reference);
        free(list->list[i].translation);
    }
    free(list->list);
    *list = (cli_translations){0};
}

static void close_buffers(batch_buffers *r)
{
    for (int i = 0; i < r->batch.array_count; i++) free(r->batch.arrays[i].data);
    free(r->source);
    free(r->tokens);
    free(r->lengths);
}

static bool open_buffers(batch_buffers *r, ht_data *data)
{
    const ht_data_info *info = ht_data_info_of(data);
    const ht_data_bucket *largest = &info->buckets[info->bucket_count - 1];
    ht_data_layout(data, info->bucket_count - 1, &r->batch);
    r->rows = r->batch.arrays[0].shape[0];
    r->source_length = largest->source_length;
    r->length = largest->length;
    bool all = true;
    for (int i = 0; i < r->batch.array_count; i++)
        all &= (r->batch.arrays[i].data = calloc(1, r->batch.arrays[i].bytes + 1)) != NULL;
    r->source = calloc((size_t)(r->rows * r->source_length), sizeof *r->source);
    r->tokens = calloc((size_t)(r->rows * r->length), sizeof *r->tokens);
    r->lengths = calloc((size_t)r->rows, sizeof *r->lengths);
    return all && r->source && r->tokens && r->lengths;
}

/* The next batch; smaller shapes fit into the memory of the largest. */
static ht_status next_batch(batch_buffers *r, ht_data *data, ht_loader *loader)
{
    ht_batch batch;
    ht_data_layout(data, ht_loader_bucket(loader), &batch);
    for (int i = 0; i < batch.array_count; i++) batch.arrays[i].data = r->batch.arrays[i].data;
    HT_TRY(ht_loader_next(loader, &batch));
    r->batch = batch;
    int64_t length = batch.arrays[0].shape[1];
    const int32_t *from = batch.arrays[0].data;
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t i = 0; i < r->source_length; i++)
            r->source[row * r->source_length + i] = i < length ? from[row * length + i] : HT_TOKEN_PAD;
    return HT_OK;
}

static char *text_of(const ht_vocabulary *vocabulary, const int32_t *ids, int64_t count)
{
    ht_text text = {0};
    ht_text_add(&text, "%s", "");
    ht_vocabulary_decode(vocabulary, ids, count, &text);
    if (!text.failed) return text.data;
    ht_text_free(&text);
    return NULL;
}

int64_t cli_drop_unknown(int32_t *ids, int64_t count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] != HT_TOKEN_UNK) ids[kept++] = ids[i];
    return kept;
}

static ht_status keep_row(cli_translations *out, ht_context *ctx, batch_buffers *r, const ht_data *data, int64_t row)
{
    if (!ht_grow((void **)&out->list, &out->capacity, out->count + 1, sizeof *out->list))
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for translations");
    const ht_vocabulary *vocabulary = ht_data_vocabulary(data);
    int64_t length = r->batch.arrays[3].shape[1];
    const int32_t *targets = (const int32_t *)r->batch.arrays[3].data + row * length;
    cli_translation *t = &out->list[out->count++];
    t->source = text_of(ht_data_source_vocabulary(data), r->source + row * r->source_length, r->source_length);
    const char *reference = ht_data_target_text(data, (int64_t)out->count - 1);
    t->reference = strdup(reference ? reference : "");
    int32_t *tokens = r->tokens + row * r->length;
    t->translation = text_of(vocabulary, tokens, cli_drop_unknown(tokens, r->lengths[row]));
    for (int64_t i = 0; i < length; i++) out->tokens += targets[i] >= 0;
    if (!t->source || !t->reference || !t->translation) HT_FAIL(ctx, HT_ENOMEM, "out of memory for translations");
    return HT_OK;
}

ht_search_opts cli_search_opts(int64_t batch, int64_t beam, int64_t length)
{
    ht_search_opts opts = HT_SEARCH_OPTS;
    opts.batch = batch;
    opts.beam = beam;
    opts.length = length;
    opts.start = HT_TOKEN_BOS;
    opts.end = HT_TOKEN_EOS;
    opts.length_penalty = beam > 1 ? 1 : 0;
    return opts;
}

static ht_status translate_all(cli_translations *out, ht_context *ctx, ht_run *run, batch_buffers *r, ht_loader *loader,
                               int64_t beam, size_t most)
{
    ht_data *data = ht_run_data(run);
    ht_session *session = ht_run_session(run);
    ht_search_opts opts = cli_search_opts(r->rows, beam, r->length);
    for (bool more = true; more;) {
        HT_TRY(next_batch(r, data, loader));
        HT_TRY(
            ht_session_write(session, "source", r->source, (size_t)(r->rows * r->source_length) * sizeof *r->source));
        HT_TRY(ht_session_write(session, "source_length", r->batch.arrays[1].data, r->batch.arrays[1].bytes));
        HT_TRY(ht_search(session, ctx, &opts, r->tokens, r->lengths, NULL));
        for (int64_t row = 0; row < r->batch.rows && (most == 0 || out->count < most); row++)
            HT_TRY(keep_row(out, ctx, r, data, row));
        more = !r->batch.last && (most == 0 || out->count < most);
    }
    return HT_OK;
}

ht_status cli_translate(cli_translations *out, ht_context *ctx, ht_run *run, int64_t beam, size_t most)
{
    batch_buffers r = {0};
    ht_loader *loader;
    *out = (cli_translations){0};
    if (ht_run_info_of(run).task != HT_TASK_PAIRS)
        HT_FAIL(ctx, HT_EINVAL, "only models of sentence pairs translate; this one's task is %s",
                ht_task_names[ht_run_info_of(run).task]);
    HT_TRY(ht_loader_open(&loader, ht_run_data(run), HT_DATA_VALIDATION, false));
    ht_status status = open_buffers(&r, ht_run_data(run)) ? translate_all(out, ctx, run, &r, loader, beam, most)
                                                          : ht_fail(ctx, HT_ENOMEM, "out of memory for a batch");
    close_buffers(&r);
    ht_loader_free(loader);
    return status;
}

ht_status cli_translations_bleu(const cli_translations *list, ht_context *ctx, const char *tokenizer, double *score)
{
    ht_bleu bleu = {.tokenizer = HT_BLEU_13A};
    if (!ht_bleu_tokenizer_find(tokenizer, &bleu.tokenizer))
        HT_FAIL(ctx, HT_EINVAL, "BLEU's tokenizer is 13a or none, not '%s'", tokenizer);
    for (size_t i = 0; i < list->count; i++)
        HT_TRY(ht_bleu_add(&bleu, ctx, list->list[i].translation, list->list[i].reference));
    *score = ht_bleu_score(&bleu);
    return HT_OK;
}

const char *const cli_bleu_tokenizers[] = {"13a", "none", NULL};

ht_status cli_run_bleu(ht_context *ctx, ht_run *run, const char *tokenizer, int64_t beam, double *score)
{
    cli_translations all;
    ht_status status = cli_translate(&all, ctx, run, beam, 0);
    if (status == HT_OK) status = cli_translations_bleu(&all, ctx, tokenizer, score);
    cli_translations_free(&all);
    return status;
}

/* ---- files ---- */

/* A file of sentences, one on each line. */
typedef struct sentence_file {
    const char *path;
    ht_content content;
    ht_lines lines;
    ht_text line; /* the last one that was read */
} sentence_file;

static ht_status open_sentences(sentence_file *f, ht_context *ctx, const char *path)
{
    *f = (sentence_file){.path = path};
    HT_TRY(ht_content_open(&f->content, ctx, path));
    const char *text = (const char *)f->content.data;
    f->lines = (ht_lines){.at = text, .end = text + f->content.length};
    return HT_OK;
}

static ht_status next_sentence(sentence_file *f, ht_context *ctx, bool *more)
{
    const char *line;
    size_t length;
    *more = ht_line_next(&f->lines, &line, &length);
    if (!*more) return HT_OK;
    if (memchr(line, '\0', length))
        HT_FAIL(ctx, HT_EPARSE, "%s:%" PRId64 ": a NUL character", f->path, f->lines.number);
    if (length > INT_MAX)
        HT_FAIL(ctx, HT_EPARSE, "%s:%" PRId64 ": a line of %zu bytes", f->path, f->lines.number, length);
    f->line.length = 0;
    ht_text_add(&f->line, "%.*s", (int)length, line);
    if (f->line.failed) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a line of %zu bytes", length);
    return HT_OK;
}

static ht_status add_sentences(ht_bleu *bleu, ht_context *ctx, sentence_file *hypotheses, sentence_file *references,
                               int64_t *count)
{
    for (;; ++*count) {
        bool ours, theirs;
        HT_TRY(next_sentence(hypotheses, ctx, &ours));
        HT_TRY(next_sentence(references, ctx, &theirs));
        if (ours != theirs)
            HT_FAIL(ctx, HT_EINVAL, "%s has more lines than %s, which has %" PRId64,
                    ours ? hypotheses->path : references->path, ours ? references->path : hypotheses->path, *count);
        if (!ours) return HT_OK;
        HT_TRY(ht_bleu_add(bleu, ctx, hypotheses->line.data, references->line.data));
    }
}

ht_status cli_files_bleu(ht_bleu *bleu, ht_context *ctx, const char *hypotheses, const char *references, int64_t *count)
{
    sentence_file ours = {0}, theirs = {0};
    *count = 0;
    ht_status status = open_sentences(&ours, ctx, hypotheses);
    if (status == HT_OK) status = open_sentences(&theirs, ctx, references);
    if (status == HT_OK) status = add_sentences(bleu, ctx, &ours, &theirs, count);
    if (status == HT_OK && *count == 0) status = ht_fail(ctx, HT_EINVAL, "%s holds no sentences", hypotheses);
    ht_content_close(&ours.content);
    ht_content_close(&theirs.content);
    ht_text_free(&ours.line);
    ht_text_free(&theirs.line);
    return status;
}
