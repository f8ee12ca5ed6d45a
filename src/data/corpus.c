/* Text files to token pieces: documents, held-out parts, tokenization. */
#include "data/corpus.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/vocabulary.h"

typedef struct reading {
    ht_corpus *corpus;
    ht_data_part part;
    ht_context *ctx;
    const char *name;
} reading;

static ht_status add_span(const reading *r, const char *text, size_t length)
{
    ht_corpus *c = r->corpus;
    if (!ht_grow((void **)&c->spans[r->part], &c->capacities[r->part], c->counts[r->part] + 1, sizeof **c->spans))
        return ht_data_no_memory(r->ctx, "documents");
    c->spans[r->part][c->counts[r->part]++] = (ht_text_span){text, length, r->name};
    return HT_OK;
}

static ht_status add_lines(const reading *r, ht_lines lines)
{
    const char *line;
    size_t length;
    while (ht_line_next(&lines, &line, &length))
        if (length > 0) HT_TRY(add_span(r, line, length));
    return HT_OK;
}

/* Paragraphs as documents: consecutive lines up to an empty one. */
static ht_status add_paragraphs(const reading *r, ht_lines lines)
{
    const char *line, *start = NULL, *end = NULL;
    size_t length;
    while (ht_line_next(&lines, &line, &length)) {
        if (length == 0 && start) HT_TRY(add_span(r, start, (size_t)(end - start)));
        if (length == 0) {
            start = NULL;
            continue;
        }
        if (!start) start = line;
        end = line + length;
    }
    return start ? add_span(r, start, (size_t)(end - start)) : HT_OK;
}

static ht_status add_json_line(const reading *r, const char *line, size_t length, int64_t number, const char *field,
                               ht_arena *scratch)
{
    const ht_json *root;
    ht_status status = ht_json_parse(r->ctx, scratch, r->name, line, length, &root);
    if (status != HT_OK) HT_FAIL(r->ctx, status, "line %" PRId64 " of %s", number, r->ctx->message);
    const ht_json *text = ht_json_get(root, field);
    if (!text || text->kind != HT_JSON_STRING)
        HT_FAIL(r->ctx, HT_EPARSE, "%s:%" PRId64 ": %s \"%s\"", r->name, number,
                text ? "no text in the field" : "there is no field", field);
    if (text->length == 0) return HT_OK;
    char *copy = ht_arena_text(r->corpus->arena, text->text, text->length);
    return copy ? add_span(r, copy, text->length) : ht_data_no_memory(r->ctx, "documents");
}

static bool is_blank(const char *line, size_t length)
{
    size_t at = 0;
    while (at < length && (line[at] == ' ' || line[at] == '\t')) at++;
    return at == length;
}

/* The arena of parsed lines is reset periodically. */
static ht_status add_json_lines(const reading *r, ht_lines lines, const char *field)
{
    ht_arena *scratch = NULL;
    ht_status status = HT_OK;
    const char *line;
    size_t length;
    while (status == HT_OK && ht_line_next(&lines, &line, &length)) {
        if (is_blank(line, length)) continue;
        if (scratch && ht_arena_used(scratch) > 1u << 20) {
            ht_arena_free(scratch);
            scratch = NULL;
        }
        if (!scratch && !(scratch = ht_arena_create()))
            status = ht_data_no_memory(r->ctx, "documents");
        else
            status = add_json_line(r, line, length, lines.number, field, scratch);
    }
    ht_arena_free(scratch);
    return status;
}

static ht_status add_file(const reading *r, const ht_content *content, const ht_data_format *format,
                          const ht_fields *fields)
{
    const char *text = (const char *)content->data;
    ht_lines lines = {.at = text, .end = text + content->length};
    if (strcmp(format->name, "jsonl") == 0) return add_json_lines(r, lines, ht_field_text(fields, "field"));
    const char *documents = ht_field_text(fields, "documents");
    if (strcmp(documents, "line") == 0) return add_lines(r, lines);
    if (strcmp(documents, "paragraph") == 0) return add_paragraphs(r, lines);
    return content->length ? add_span(r, text, content->length) : HT_OK;
}

static ht_status add_files(ht_corpus *corpus, ht_token_set *set, ht_data *data, ht_context *ctx, ht_data_part part,
                           const ht_data_format *format, const ht_fields *fields, const ht_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++) {
        ht_content content;
        reading r = {corpus, part, ctx, ht_arena_text(data->arena, paths->list[i], strlen(paths->list[i]))};
        if (!r.name) return ht_data_no_memory(ctx, "paths");
        HT_TRY(ht_data_content(&content, data, ctx, paths->list[i]));
        HT_TRY(ht_tokens_keep_content(set, ctx, content));
        HT_TRY(add_file(&r, &content, format, fields));
    }
    return HT_OK;
}

ht_status ht_corpus_read(ht_corpus *out, ht_token_set *set, ht_data *data, ht_context *ctx,
                         const ht_data_format *format, const ht_fields *fields)
{
    *out = (ht_corpus){.share = ht_field_number(fields, "validation_share"), .arena = ht_arena_create()};
    if (!out->arena) return ht_data_no_memory(ctx, "texts");
    out->documents = strcmp(format->name, "jsonl") == 0 || strcmp(ht_field_text(fields, "documents"), "none") != 0;
    out->held_out = !ht_field_null(fields, "validation");
    static const char *const keys[HT_DATA_PARTS] = {"train", "validation"};
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        ht_paths paths;
        HT_TRY(ht_paths_find(&paths, data, ctx, fields, keys[part]));
        ht_status status = add_files(out, set, data, ctx, (ht_data_part)part, format, fields, &paths);
        ht_paths_free(&paths);
        HT_TRY(status);
    }
    return HT_OK;
}

void ht_corpus_free(ht_corpus *corpus)
{
    for (int part = 0; part < HT_DATA_PARTS; part++) free(corpus->spans[part]);
    ht_arena_free(corpus->arena);
    *corpus = (ht_corpus){0};
}

ht_status ht_corpus_count(const ht_corpus *corpus, ht_context *ctx, ht_vocabulary *vocabulary)
{
    for (int part = 0; part < HT_DATA_PARTS; part++)
        for (size_t i = 0; i < corpus->counts[part]; i++) {
            const ht_text_span *span = &corpus->spans[part][i];
            HT_TRY(ht_vocabulary_count(vocabulary, ctx, span->name, span->text, span->length));
        }
    return HT_OK;
}

/* ---- tokens ---- */

typedef struct encoding {
    ht_context *ctx;
    const ht_vocabulary *vocabulary; /* NULL: bytes */
    int32_t separator;
    ht_piece piece;
    uint8_t *out;
} encoding;

static void put(encoding *e, int64_t id)
{
    uint8_t *at = e->out + e->piece.count++ * e->piece.width;
    if (e->piece.width == 1)
        *at = (uint8_t)id;
    else if (e->piece.width == 2)
        memcpy(at, &(uint16_t){(uint16_t)id}, 2);
    else
        memcpy(at, &(uint32_t){(uint32_t)id}, 4);
}

static ht_status put_span(encoding *e, const ht_text_span *span)
{
    const char *end = span->text + span->length;
    uint32_t code;
    for (const char *at = span->text; at < end;) {
        int step = e->vocabulary ? ht_utf8_next(at, end, &code) : 1;
        if (step == 0)
            HT_FAIL(e->ctx, HT_EPARSE, "%s: byte %zu: not UTF-8; \"byte\" takes any bytes as tokens", span->name,
                    (size_t)(at - span->text));
        int64_t id = e->vocabulary ? ht_vocabulary_find(e->vocabulary, at, (size_t)step) : (unsigned char)*at;
        if (id < 0)
            HT_FAIL(e->ctx, HT_EINVAL, "%s: byte %zu: '%.*s' is not in the vocabulary", span->name,
                    (size_t)(at - span->text), step, at);
        put(e, id);
        at += step;
    }
    return HT_OK;
}

/* How many tokens at most: characters are counted by their first bytes. */
static size_t most_tokens(const ht_corpus *corpus, ht_data_part part, bool bytes)
{
    size_t count = 1;
    for (size_t i = 0; i < corpus->counts[part]; i++) {
        const ht_text_span *span = &corpus->spans[part][i];
        count += 1;
        if (bytes) count += span->length;
        for (size_t k = 0; k < span->length && !bytes; k++) count += ((unsigned char)span->text[k] & 0xc0) != 0x80;
    }
    return count;
}

/* The first document that is held out, or the first token where there are none. */
static int64_t cut_at(int64_t count, double share)
{
    return (int64_t)((double)count * (1 - share));
}

/* What follows the first `cut` tokens. */
static ht_piece behind(ht_piece piece, int64_t cut)
{
    piece.tokens += cut * piece.width;
    piece.offset += cut * piece.width;
    piece.count -= cut;
    return piece;
}

static ht_status encode_part(const ht_corpus *corpus, ht_token_set *set, ht_context *ctx, size_t group,
                             ht_data_part part, encoding *e)
{
    size_t count = corpus->counts[part];
    bool split = part == HT_DATA_TRAIN && !corpus->held_out && corpus->share > 0;
    int64_t cut = -1, first_held = split && corpus->documents ? cut_at((int64_t)count, corpus->share) : -1;
    bool as_it_is = e->piece.width == 1 && !e->vocabulary && count == 1 && !corpus->documents;
    if (as_it_is) {
        e->piece.tokens = (const uint8_t *)corpus->spans[part][0].text;
        e->piece.count = (int64_t)corpus->spans[part][0].length;
    } else {
        e->out = calloc(most_tokens(corpus, part, !e->vocabulary), (size_t)e->piece.width);
        if (!e->out) return ht_data_no_memory(ctx, "tokens");
        HT_TRY(ht_tokens_keep_block(set, ctx, e->out));
        e->piece.tokens = e->out;
    }
    for (size_t i = 0; i < count && !as_it_is; i++) {
        if ((int64_t)i == first_held) cut = e->piece.count;
        if (corpus->documents) put(e, e->separator);
        HT_TRY(put_span(e, &corpus->spans[part][i]));
    }
    if (split && !corpus->documents) cut = cut_at(e->piece.count, corpus->share);
    ht_piece piece = e->piece;
    if (cut >= 0) {
        HT_TRY(ht_tokens_add(set, ctx, group, HT_DATA_VALIDATION, behind(piece, cut)));
        piece.count = cut;
    }
    return ht_tokens_add(set, ctx, group, part, piece);
}

ht_status ht_corpus_encode(const ht_corpus *corpus, ht_token_set *set, ht_context *ctx, size_t group,
                           const ht_vocabulary *vocabulary, bool bytes)
{
    int64_t tokens = (bytes ? 256 : ht_vocabulary_size(vocabulary)) + (set->separator >= 0);
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        encoding e = {.ctx = ctx, .vocabulary = bytes ? NULL : vocabulary, .separator = set->separator};
        e.piece.width = tokens <= 256 ? 1 : tokens <= 65536 ? 2 : 4;
        if (corpus->counts[part]) HT_TRY(encode_part(corpus, set, ctx, group, (ht_data_part)part, &e));
    }
    return HT_OK;
}

/* ---- shards ---- */

static uint32_t shard_token(const ht_piece *piece, int64_t index)
{
    const uint8_t *at = piece->tokens + index * piece->width;
    uint16_t narrow;
    uint32_t wide;
    if (piece->width != 2) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

/* The largest token of a shard, which must be one that an i32 holds. */
static ht_status find_largest(ht_context *ctx, const ht_piece *piece, int64_t *out)
{
    uint32_t largest = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < piece->count; i++) {
        uint32_t token = shard_token(piece, i);
        if (token > largest) largest = token;
    }
    if (largest >= INT32_MAX) {
        while (shard_token(piece, at) < INT32_MAX) at++;
        HT_FAIL(ctx, HT_EINVAL,
                "%s: byte %" PRId64 ": token %" PRIu32 " is beyond what a token may be; is \"dtype\" right?",
                piece->path, piece->offset + at * piece->width, shard_token(piece, at));
    }
    if (largest > *out) *out = largest;
    return HT_OK;
}

static ht_status add_shard(ht_token_set *set, ht_data *data, ht_context *ctx, size_t group, ht_data_part part,
                           const char *path, const ht_fields *fields, int64_t *largest)
{
    ht_content content;
    ht_shard shard;
    int width = strcmp(ht_field_text(fields, "dtype"), "uint32") == 0 ? 4 : 2;
    HT_TRY(ht_content_map(&content, ctx, path));
    HT_TRY(ht_tokens_keep_content(set, ctx, content));
    HT_TRY(ht_shard_parse(&shard, ctx, path, content.data, content.length, width));
    ht_piece piece = {shard.tokens, shard.width, (int64_t)shard.count, .offset = shard.tokens - content.data};
    piece.path = ht_arena_text(data->arena, path, strlen(path));
    if (!piece.path) return ht_data_no_memory(ctx, "files");
    if (ht_field_null(fields, "vocabulary_size")) HT_TRY(find_largest(ctx, &piece, largest));
    double share = ht_field_number(fields, "validation_share");
    if (part == HT_DATA_VALIDATION || !ht_field_null(fields, "validation") || share == 0)
        return ht_tokens_add(set, ctx, group, part, piece);
    int64_t cut = cut_at(piece.count, share);
    HT_TRY(ht_tokens_add(set, ctx, group, HT_DATA_VALIDATION, behind(piece, cut)));
    piece.count = cut;
    return ht_tokens_add(set, ctx, group, part, piece);
}

ht_status ht_shards_read(ht_token_set *set, ht_data *data, ht_context *ctx, size_t group, const ht_fields *fields,
                         int64_t *largest)
{
    static const char *const keys[HT_DATA_PARTS] = {"train", "validation"};
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        ht_paths paths;
        HT_TRY(ht_paths_find(&paths, data, ctx, fields, keys[part]));
        ht_status status = HT_OK;
        for (size_t i = 0; i < paths.count && status == HT_OK; i++)
            status = add_shard(set, data, ctx, group, (ht_data_part)part, paths.list[i], fields, largest);
        ht_paths_free(&paths);
        HT_TRY(status);
    }
    if (ht_data_validates_only(data, fields)) {
        int64_t size = ht_facts_vocabulary(data) - (data->request.task == HT_TASK_MASKED_LM);
        if (size - 1 > *largest) *largest = size - 1;
    }
    if (!ht_field_null(fields, "vocabulary_size")) {
        int64_t size = ht_field_int(fields, "vocabulary_size");
        if (size - 1 > *largest) *largest = size - 1;
    }
    return HT_OK;
}
