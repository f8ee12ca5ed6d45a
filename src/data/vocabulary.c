/* The vocabulary: tokens in an arena, with an open-addressed hash table. A byte vocabulary needs neither. */
#include "data/vocabulary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"

typedef struct token {
    const char *text;
    uint32_t length;
    int64_t count;
} token;

struct ht_vocabulary {
    ht_vocabulary_kind kind;
    bool specials, lowercase;
    ht_arena *arena;
    token *tokens;
    size_t count, capacity;
    uint32_t *table; /* of size table_room (a power of two): 0 is empty, else position + 1 */
    size_t table_capacity;
    uint32_t ascii[128]; /* the same for tokens of one such character, which are most of a text */
};

static const char *const special_names[HT_TOKEN_SPECIALS] = {"<pad>", "<bos>", "<eos>", "<unk>"};

/* ---- the table ---- */

/* The character of a token that is a single one of ASCII, else -1. */
static int ascii_of(const char *text, size_t length)
{
    return length == 1 && (unsigned char)text[0] < 128 ? text[0] : -1;
}

static size_t place_of(const ht_vocabulary *v, const char *text, size_t length)
{
    size_t at = ht_hash_bytes(0, text, length) & (v->table_capacity - 1);
    for (; v->table[at]; at = (at + 1) & (v->table_capacity - 1)) {
        const token *t = &v->tokens[v->table[at] - 1];
        if (t->length == length && memcmp(t->text, text, length) == 0) break;
    }
    return at;
}

static bool index_again(ht_vocabulary *v, size_t capacity)
{
    uint32_t *table = calloc(capacity, sizeof *table);
    if (!table) return false;
    free(v->table);
    v->table = table;
    v->table_capacity = capacity;
    memset(v->ascii, 0, sizeof v->ascii);
    for (size_t i = 0; i < v->count; i++) {
        int ascii = ascii_of(v->tokens[i].text, v->tokens[i].length);
        if (ascii >= 0) v->ascii[ascii] = (uint32_t)i + 1;
        v->table[place_of(v, v->tokens[i].text, v->tokens[i].length)] = (uint32_t)i + 1;
    }
    return true;
}

/* The token, new when it has to be; NULL when memory is out. */
static token *intern(ht_vocabulary *v, const char *text, size_t length)
{
    int ascii = ascii_of(text, length);
    if (ascii >= 0 && v->ascii[ascii]) return &v->tokens[v->ascii[ascii] - 1];
    if (v->count * 2 >= v->table_capacity && !index_again(v, v->table_capacity ? v->table_capacity * 2 : 1024))
        return NULL;
    size_t at = place_of(v, text, length);
    if (v->table[at]) return &v->tokens[v->table[at] - 1];
    if (v->count >= INT32_MAX || !ht_grow((void **)&v->tokens, &v->capacity, v->count + 1, sizeof *v->tokens))
        return NULL;
    char *copy = ht_arena_text(v->arena, text, length);
    if (!copy) return NULL;
    v->tokens[v->count] = (token){copy, (uint32_t)length, 0};
    v->table[at] = (uint32_t)++v->count;
    if (ascii >= 0) v->ascii[ascii] = (uint32_t)v->count;
    return &v->tokens[v->count - 1];
}

static ht_status no_memory(ht_context *ctx)
{
    HT_FAIL(ctx, HT_ENOMEM, "data: out of memory for a vocabulary");
}

ht_status ht_vocabulary_create(ht_vocabulary **out, ht_context *ctx, ht_vocabulary_kind kind, bool specials)
{
    ht_vocabulary *v = calloc(1, sizeof *v);
    if (v) v->arena = ht_arena_create();
    bool made = v && v->arena;
    if (v) v->kind = kind;
    if (v) v->specials = specials;
    for (int i = 0; made && specials && i < HT_TOKEN_SPECIALS; i++)
        made = intern(v, special_names[i], strlen(special_names[i])) != NULL;
    *out = made ? v : NULL;
    if (made) return HT_OK;
    ht_vocabulary_free(v);
    return no_memory(ctx);
}

void ht_vocabulary_fold(ht_vocabulary *vocabulary, bool lowercase)
{
    vocabulary->lowercase = lowercase && vocabulary->kind == HT_VOCABULARY_WORD;
}

void ht_vocabulary_free(ht_vocabulary *vocabulary)
{
    if (!vocabulary) return;
    ht_arena_free(vocabulary->arena);
    free(vocabulary->tokens);
    free(vocabulary->table);
    free(vocabulary);
}

int64_t ht_vocabulary_size(const ht_vocabulary *vocabulary)
{
    return vocabulary->kind == HT_VOCABULARY_BYTE ? 256 : (int64_t)vocabulary->count;
}

int64_t ht_vocabulary_find(const ht_vocabulary *vocabulary, const char *text, size_t length)
{
    if (vocabulary->kind == HT_VOCABULARY_BYTE) return length == 1 ? (unsigned char)text[0] : -1;
    if (!vocabulary->table_capacity) return -1;
    int ascii = ascii_of(text, length);
    if (ascii >= 0) return (int64_t)vocabulary->ascii[ascii] - 1;
    size_t at = place_of(vocabulary, text, length);
    return (int64_t)vocabulary->table[at] - 1;
}

/* ---- texts to tokens ---- */

enum { MOST_WORD_BYTES = 256 }; /* longer ones are cut: no language has them, and a hostile file is one word */

/* The next token of a text, by the kind; *length 0 at the end. A word may come folded in `buffer`. */
static ht_status next_token(const ht_vocabulary *v, ht_context *ctx, const char *name, const char *start,
                            const char **at, const char *end, const char **text, size_t *length, char *buffer)
{
    *length = 0;
    *text = *at;
    if (v->kind == HT_VOCABULARY_WORD) {
        if (!ht_word_next(at, end, text, length)) return HT_OK;
        if (*length > MOST_WORD_BYTES) *length = MOST_WORD_BYTES;
        if (!v->lowercase) return HT_OK;
        for (size_t i = 0; i < *length; i++)
            buffer[i] = (*text)[i] >= 'A' && (*text)[i] <= 'Z' ? (char)((*text)[i] + 32) : (*text)[i];
        *text = buffer;
        return HT_OK;
    }
    if (*at == end) return HT_OK;
    uint32_t code;
    *length = (size_t)ht_utf8_next(*at, end, &code);
    if (*length == 0)
        HT_FAIL(ctx, HT_EPARSE, "%s: byte %zu: not UTF-8; \"byte\" takes any bytes as tokens", name,
                (size_t)(*at - start));
    *at += *length;
    return HT_OK;
}

/* Sentences are UTF-8 without NUL: their tokens are texts. (Characters are checked as they are taken.) */
static ht_status check_sentence(const ht_vocabulary *v, ht_context *ctx, const char *name, const char *text,
                                size_t length)
{
    const char *end = text + length, *nul = v->specials ? memchr(text, '\0', length) : NULL;
    uint32_t code;
    if (nul) HT_FAIL(ctx, HT_EPARSE, "%s: byte %zu: a NUL character", name, (size_t)(nul - text));
    for (const char *at = text; v->kind == HT_VOCABULARY_WORD && at < end;) {
        int step = ht_utf8_next(at, end, &code);
        if (step == 0) HT_FAIL(ctx, HT_EPARSE, "%s: byte %zu: not UTF-8", name, (size_t)(at - text));
        at += step;
    }
    return HT_OK;
}

ht_status ht_vocabulary_count(ht_vocabulary *vocabulary, ht_context *ctx, const char *name, const char *text,
                              size_t length)
{
    if (vocabulary->kind == HT_VOCABULARY_BYTE) return HT_OK;
    HT_TRY(check_sentence(vocabulary, ctx, name, text, length));
    char buffer[MOST_WORD_BYTES];
    const char *at = text, *end = text + length, *piece;
    for (;;) {
        size_t bytes;
        HT_TRY(next_token(vocabulary, ctx, name, text, &at, end, &piece, &bytes, buffer));
        if (bytes == 0) return HT_OK;
        token *t = intern(vocabulary, piece, bytes);
        if (!t) return no_memory(ctx);
        t->count++;
    }
}

/* By text: characters in UTF-8 sort like their code points. */
static int by_text(const void *left, const void *right)
{
    const token *a = left, *b = right;
    uint32_t shorter = a->length < b->length ? a->length : b->length;
    int order = memcmp(a->text, b->text, shorter);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int by_frequency(const void *left, const void *right)
{
    const token *a = left, *b = right;
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    return by_text(left, right);
}

ht_status ht_vocabulary_finish(ht_vocabulary *vocabulary, ht_context *ctx, int64_t least, int64_t most)
{
    ht_vocabulary *v = vocabulary;
    if (v->kind == HT_VOCABULARY_BYTE) return HT_OK;
    size_t first = v->specials ? HT_TOKEN_SPECIALS : 0, kept = first;
    if (v->count > first) qsort(v->tokens + first, v->count - first, sizeof *v->tokens, by_frequency);
    while (kept < v->count && v->tokens[kept].count >= least && (most == 0 || kept < (size_t)most)) kept++;
    v->count = kept;
    if (v->kind == HT_VOCABULARY_CHAR && kept > first)
        qsort(v->tokens + first, kept - first, sizeof *v->tokens, by_text);
    return index_again(v, v->table_capacity ? v->table_capacity : 1024) ? HT_OK : no_memory(ctx);
}

ht_status ht_vocabulary_append(const ht_vocabulary *vocabulary, ht_context *ctx, const char *name, const char *text,
                               size_t length, ht_ids *ids)
{
    const char *at = text, *end = text + length, *piece;
    char buffer[MOST_WORD_BYTES];
    HT_TRY(check_sentence(vocabulary, ctx, name, text, length));
    for (;;) {
        size_t bytes;
        if (vocabulary->kind == HT_VOCABULARY_BYTE) {
            piece = at;
            bytes = at < end;
            at += bytes;
        } else {
            HT_TRY(next_token(vocabulary, ctx, name, text, &at, end, &piece, &bytes, buffer));
        }
        if (bytes == 0) return HT_OK;
        int64_t id = ht_vocabulary_find(vocabulary, piece, bytes);
        if (id < 0 && vocabulary->specials) id = HT_TOKEN_UNK;
        if (id < 0)
            HT_FAIL(ctx, HT_EINVAL, "%s: byte %zu: '%.*s' is not in the vocabulary", name, (size_t)(at - text) - bytes,
                    (int)bytes, piece);
        if (!ht_grow((void **)&ids->list, &ids->capacity, ids->count + 1, sizeof *ids->list)) return no_memory(ctx);
        ids->list[ids->count++] = (int32_t)id;
    }
}

ht_status ht_vocabulary_encode(const ht_vocabulary *vocabulary, ht_context *ctx, const char *name, const char *text,
                               size_t length, int32_t **ids, int64_t *count)
{
    ht_ids list = {0};
    ht_status status = ht_vocabulary_append(vocabulary, ctx, name, text, length, &list);
    if (status != HT_OK) {
        free(list.list);
        list = (ht_ids){0};
    }
    *ids = list.list;
    *count = (int64_t)list.count;
    return status;
}

/* ---- and back ---- */

/* Without a space before it, as prose has it: behind an apostrophe, before points and brackets, around a hyphen. */
static bool stands_close(const token *t, const token *before)
{
    if (before && before->length && strchr("'-", before->text[before->length - 1])) return true;
    return t->length == 1 && strchr(".,)]}-", t->text[0]) != NULL;
}

void ht_vocabulary_decode(const ht_vocabulary *vocabulary, const int32_t *ids, int64_t count, ht_text *text)
{
    const token *before = NULL;
    for (int64_t i = 0; i < count; i++) {
        int64_t id = ids[i];
        if (id < 0 || id >= ht_vocabulary_size(vocabulary)) continue;
        if (vocabulary->kind == HT_VOCABULARY_BYTE) {
            ht_text_add(text, "%c", (int)id);
            continue;
        }
        const token *t = &vocabulary->tokens[id];
        if (vocabulary->specials && id < HT_TOKEN_SPECIALS && id != HT_TOKEN_UNK) continue;
        if (vocabulary->kind == HT_VOCABULARY_WORD && before && !stands_close(t, before)) ht_text_add(text, " ");
        ht_text_add(text, "%.*s", (int)t->length, t->text);
        before = t;
    }
}

/* ---- as a file: {"kind": "word", "specials": true, "lowercase": false, "tokens": ["<pad>", …]} ---- */

static const char *const kind_names[] = {"byte", "char", "word"};

void ht_vocabulary_print(const ht_vocabulary *vocabulary, ht_text *text)
{
    const ht_vocabulary *v = vocabulary;
    ht_json_writer json = {.text = text, .long_escapes = true};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "kind", kind_names[v->kind]);
    ht_json_put_bool(&json, "specials", v->specials);
    ht_json_put_bool(&json, "lowercase", v->lowercase);
    ht_json_begin_array(&json, "tokens");
    for (size_t i = 0; i < v->count; i++) {
        ht_json_line(&json, 0);
        ht_json_put_bytes(&json, NULL, v->tokens[i].text, v->tokens[i].length);
    }
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

static ht_status take_tokens(ht_vocabulary *v, ht_context *ctx, const char *path, const ht_json *tokens)
{
    size_t number = 0;
    for (const ht_json *item = tokens->child; item; item = item->next, number++) {
        if (item->kind != HT_JSON_STRING || item->length == 0 || item->length > INT32_MAX)
            return ht_json_fail(ctx, path, item, "a token is not a text");
        if (!intern(v, item->text, item->length)) return no_memory(ctx);
        /* The special ones are there already, in this order. */
        if (v->specials && number < HT_TOKEN_SPECIALS && v->count != HT_TOKEN_SPECIALS)
            return ht_json_fail(ctx, path, item, "the first tokens are not <pad>, <bos>, <eos>, <unk>");
    }
    if (v->count != number)
        return ht_json_fail(ctx, path, tokens, "a token stands there twice, or specials are missing");
    return HT_OK;
}

static ht_status read_vocabulary(ht_vocabulary **out, ht_context *ctx, const char *path, const ht_json *root)
{
    const ht_json *kind = ht_json_get(root, "kind"), *tokens = ht_json_get(root, "tokens");
    const ht_json *specials = ht_json_get(root, "specials"), *lowercase = ht_json_get(root, "lowercase");
    int number = 0;
    while (number < 3 && kind && kind->kind == HT_JSON_STRING && strcmp(kind->text, kind_names[number]) != 0) number++;
    if (!kind || kind->kind != HT_JSON_STRING || number == 3 || !tokens || tokens->kind != HT_JSON_ARRAY)
        return ht_json_fail(ctx, path, root, "not a vocabulary: \"kind\" and \"tokens\" are wanted");
    bool has_specials = specials && specials->kind == HT_JSON_BOOL && specials->boolean;
    HT_TRY(ht_vocabulary_create(out, ctx, (ht_vocabulary_kind)number, has_specials));
    ht_vocabulary_fold(*out, lowercase && lowercase->kind == HT_JSON_BOOL && lowercase->boolean);
    return take_tokens(*out, ctx, path, tokens);
}

ht_status ht_vocabulary_read(ht_vocabulary **out, ht_context *ctx, const char *path)
{
    *out = NULL;
    char *text = NULL;
    size_t length;
    const ht_json *root;
    HT_TRY(ht_read_file(ctx, &text, &length, path));
    ht_arena *arena = ht_arena_create();
    ht_status status = arena ? ht_json_parse(ctx, arena, path, text, length, &root) : no_memory(ctx);
    if (status == HT_OK) status = read_vocabulary(out, ctx, path, root);
    if (status != HT_OK) {
        ht_vocabulary_free(*out);
        *out = NULL;
    }
    ht_arena_free(arena);
    free(text);
    return status;
}
