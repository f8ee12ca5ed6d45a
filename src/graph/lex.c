/* The lexer of the text form: names, numbers, strings, types and attributes, with places for messages. */
#include "graph/lex.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail_at(ht_lex *lex, ht_lex_place place, const char *format, va_list args)
{
    if (lex->status != HT_OK) return;
    char message[512];
    vsnprintf(message, sizeof message, format, args);
    lex->status = ht_fail(lex->ctx, HT_EPARSE, "%s:%d:%d: %s", lex->file, place.line,
                          (int)(place.at - place.line_start) + 1, message);
}

void ht_lex_fail(ht_lex *lex, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(lex, (ht_lex_place){lex->at, lex->line_start, lex->line}, format, args);
    va_end(args);
}

void ht_lex_fail_word(ht_lex *lex, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(lex, lex->word, format, args);
    va_end(args);
}

void ht_lex_fail_at(ht_lex *lex, ht_lex_place place, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail_at(lex, place, format, args);
    va_end(args);
}

ht_lex_place ht_lex_here(ht_lex *lex)
{
    ht_lex_more(lex);
    return (ht_lex_place){lex->at, lex->line_start, lex->line};
}

bool ht_lex_more(ht_lex *lex)
{
    while (lex->status == HT_OK && lex->at < lex->end) {
        if (*lex->at == '\n') {
            lex->line++;
            lex->line_start = lex->at + 1;
        } else if (*lex->at == '#') {
            const char *newline = memchr(lex->at, '\n', (size_t)(lex->end - lex->at));
            lex->at = newline ? newline : lex->end;
            continue;
        } else if (*lex->at != ' ' && *lex->at != '\t' && *lex->at != '\r') {
            return true;
        }
        lex->at++;
    }
    return false;
}

bool ht_lex_peek(ht_lex *lex, char c)
{
    return ht_lex_more(lex) && *lex->at == c;
}

bool ht_lex_take(ht_lex *lex, char c)
{
    if (!ht_lex_peek(lex, c)) return false;
    lex->at++;
    return true;
}

/* A character for a message, printable or not. */
static const char *shown(const ht_lex *lex, char buffer[8])
{
    if (lex->at >= lex->end) return "the end";
    unsigned char c = (unsigned char)*lex->at;
    snprintf(buffer, 8, isprint(c) ? "'%c'" : "\\x%02x", c);
    return buffer;
}

bool ht_lex_need(ht_lex *lex, char c)
{
    if (ht_lex_take(lex, c)) return true;
    char buffer[8];
    ht_lex_fail(lex, "'%c' expected, found %s", c, shown(lex, buffer));
    return false;
}

static bool name_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("_.-/:", c));
}

bool ht_lex_peek_word(ht_lex *lex)
{
    return ht_lex_more(lex) && (isalpha((unsigned char)*lex->at) || *lex->at == '_');
}

ht_slice ht_lex_name(ht_lex *lex, const char *what)
{
    lex->word = ht_lex_here(lex);
    ht_slice s = {lex->at, 0};
    if (lex->status == HT_OK) {
        while (lex->at < lex->end && name_char(*lex->at)) lex->at++;
        s.length = (size_t)(lex->at - s.text);
    }
    if (s.length == 0) {
        char buffer[8];
        ht_lex_fail(lex, "%s expected, found %s", what, shown(lex, buffer));
    }
    return s;
}

int ht_slice_shown(ht_slice s)
{
    return s.length > 60 ? 60 : (int)s.length;
}

bool ht_slice_is(ht_slice s, const char *text)
{
    return s.length == strlen(text) && memcmp(s.text, text, s.length) == 0;
}

/* The characters of a number, as a zero-terminated word for strtoll and strtod. */
static void number_word(ht_lex *lex, char word[64])
{
    size_t n = 0;
    word[0] = 0;
    lex->word = ht_lex_here(lex);
    if (lex->status != HT_OK) return;
    while (lex->at + n < lex->end && n < 63) {
        char c = lex->at[n];
        /* ".." separates a range and ends a number. */
        if (c == '.' && lex->at + n + 1 < lex->end && lex->at[n + 1] == '.') break;
        if (!isalnum((unsigned char)c) && c != '.' && c != '+' && c != '-') break;
        word[n++] = c;
    }
    word[n] = 0;
}

int64_t ht_lex_int(ht_lex *lex)
{
    char word[64], *rest;
    number_word(lex, word);
    errno = 0;
    long long value = strtoll(word, &rest, 10);
    if (rest == word || *rest || errno) {
        ht_lex_fail(lex, "'%s' is no integer", word);
        return 0;
    }
    lex->at += strlen(word);
    return value;
}

double ht_lex_float(ht_lex *lex)
{
    char word[64];
    double value = 0;
    number_word(lex, word);
    if (!ht_number_read(word, &value)) {
        ht_lex_fail(lex, "'%s' is no number", word);
        return 0;
    }
    lex->at += strlen(word);
    return value;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

const char *ht_lex_string(ht_lex *lex)
{
    if (!ht_lex_need(lex, '"')) return "";
    const char *close = lex->at;
    while (close < lex->end && *close != '"' && *close != '\n') close += *close == '\\' && close + 1 < lex->end ? 2 : 1;
    if (close >= lex->end || *close != '"') {
        ht_lex_fail(lex, "the string does not end on its line");
        return "";
    }
    char *out = HT_NEW(lex->arena, char, close - lex->at + 1), *to = out;
    if (!out) {
        lex->status = ht_fail(lex->ctx, HT_ENOMEM, "%s: out of memory", lex->file);
        return "";
    }
    for (; lex->at < close; lex->at++) {
        char c = *lex->at;
        if (c == '\\') {
            c = *++lex->at;
            if (c == 'x' && close - lex->at > 2 && hex_digit(lex->at[1]) >= 0 && hex_digit(lex->at[2]) >= 0) {
                c = (char)(hex_digit(lex->at[1]) * 16 + hex_digit(lex->at[2]));
                lex->at += 2;
            } else if (c != '"' && c != '\\') {
                ht_lex_fail(lex, "unknown escape in a string");
                return "";
            }
        }
        if (!c) {
            ht_lex_fail(lex, "a string cannot hold a zero byte");
            return "";
        }
        *to++ = c;
    }
    lex->at = close + 1;
    return out;
}

ht_type ht_lex_type(ht_lex *lex)
{
    ht_type type = {0};
    if (!ht_lex_more(lex)) {
        ht_lex_fail(lex, "a type is missing");
        return type;
    }
    ht_lex_place start = ht_lex_here(lex);
    while (lex->at < lex->end && isalnum((unsigned char)*lex->at)) lex->at++;
    size_t length = (size_t)(lex->at - start.at);
    int dtype = ht_dtype_from_name(start.at, length);
    if (dtype < 0) {
        ht_lex_fail_at(lex, start, "'%.*s' is no number type", length > 20 ? 20 : (int)length, start.at);
        return type;
    }
    type.dtype = (ht_dtype)dtype;
    if (!ht_lex_need(lex, '[')) return type;
    while (lex->status == HT_OK && !ht_lex_take(lex, ']')) {
        if (type.rank == HT_MAX_RANK) {
            ht_lex_fail(lex, "more than %d axes", HT_MAX_RANK);
            return type;
        }
        if (type.rank) ht_lex_need(lex, ',');
        type.dim[type.rank++] = ht_lex_int(lex);
    }
    if (lex->at < lex->end && *lex->at == '@') {
        lex->at++;
        ht_slice name = ht_lex_name(lex, "a memory");
        int space = ht_space_from_name(name.text, name.length);
        if (space < 0)
            ht_lex_fail_word(lex, "'%.*s' is no memory: main, host or disk", ht_slice_shown(name), name.text);
        else
            type.space = (ht_space)space;
    }
    if (lex->status == HT_OK && ht_type_check(lex->ctx, &type, "type") != HT_OK) {
        char message[sizeof lex->ctx->message];
        memcpy(message, lex->ctx->message, sizeof message);
        ht_lex_fail_at(lex, start, "%s", message);
    }
    if (lex->status == HT_OK) ht_type_row_major(&type);
    return type;
}

static ht_attr lex_list(ht_lex *lex, ht_attr attr)
{
    double *floats = NULL;
    int64_t *ints = NULL;
    size_t count = 0, float_capacity = 0, int_capacity = 0;
    if (!ht_lex_need(lex, '[')) return attr;
    while (lex->status == HT_OK && !ht_lex_take(lex, ']')) {
        if (count && !ht_lex_need(lex, ',')) break;
        bool grown = attr.kind == HT_ATTR_INTS ? ht_grow((void **)&ints, &int_capacity, count + 1, sizeof *ints)
                                               : ht_grow((void **)&floats, &float_capacity, count + 1, sizeof *floats);
        if (!grown) {
            lex->status = ht_fail(lex->ctx, HT_ENOMEM, "%s: out of memory", lex->file);
            break;
        }
        if (attr.kind == HT_ATTR_INTS)
            ints[count++] = ht_lex_int(lex);
        else
            floats[count++] = ht_lex_float(lex);
    }
    attr.count = count;
    attr.ints = ints;
    attr.floats = floats;
    ht_attr kept = attr;
    if (lex->status == HT_OK && !ht_attr_copy(lex->arena, &kept, &attr))
        lex->status = ht_fail(lex->ctx, HT_ENOMEM, "%s: out of memory", lex->file);
    free(ints);
    free(floats);
    return lex->status == HT_OK ? kept : (ht_attr){.key = attr.key, .kind = attr.kind};
}

ht_attr ht_lex_attr(ht_lex *lex, const ht_op *op, ht_slice key)
{
    ht_attr attr = {0};
    const ht_attr_def *def = op->attrs;
    while (def && def->key && !ht_slice_is(key, def->key)) def++;
    if (!def || !def->key) {
        ht_lex_fail_word(lex, "%s has no attribute '%.*s'", op->name, ht_slice_shown(key), key.text);
        return attr;
    }
    attr.key = def->key;
    attr.kind = def->kind;
    switch (def->kind) {
    case HT_ATTR_INT: attr.i = ht_lex_int(lex); break;
    case HT_ATTR_FLOAT: attr.f = ht_lex_float(lex); break;
    case HT_ATTR_TEXT: attr.text = ht_lex_string(lex); break;
    case HT_ATTR_INTS:
    case HT_ATTR_FLOATS: attr = lex_list(lex, attr); break;
    }
    return attr;
}
