/* The JSON parser, by recursive descent; the depth limit bounds its stack. Each object sorts the hashes of its members:
 * equal neighbours are duplicates, lookup is a binary search, and no choice of keys makes either slow. */
#define _GNU_SOURCE /* strtod_l */
#include "base/json.h"

#include "base/fail.h"
#include "base/philox.h"

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 64

struct ht_json_key {
    uint64_t hash;
    const ht_json *member;
};

typedef struct reader {
    ht_context *ctx;
    ht_arena *arena;
    const char *name;
    const char *at, *end;
    const char *line_start;
    uint32_t line;
    int depth;
} reader;

/* ---- messages ---- */

static ht_status fail_at(ht_context *ctx, const char *name, uint32_t line, uint32_t column, const char *format,
                         va_list args)
{
    char what[512];
    vsnprintf(what, sizeof what, format, args);
    return ht_fail(ctx, HT_EPARSE, "%s:%" PRIu32 ":%" PRIu32 ": %s", name, line, column, what);
}

ht_status ht_json_fail(ht_context *ctx, const char *name, const ht_json *value, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ht_status status = fail_at(ctx, name, value->line, value->column, format, args);
    va_end(args);
    return status;
}

static uint32_t column_of(const reader *r, const char *place)
{
    return (uint32_t)(place - r->line_start) + 1;
}

/* `place` is on the current line. */
__attribute__((format(printf, 3, 4))) static ht_status refuse(reader *r, const char *place, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ht_status status = fail_at(r->ctx, r->name, r->line, column_of(r, place), format, args);
    va_end(args);
    return status;
}

static ht_status out_of_memory(reader *r)
{
    return ht_fail(r->ctx, HT_ENOMEM, "%s: out of memory at line %" PRIu32, r->name, r->line);
}

/* "expected ..., found ..." at the current place. */
static ht_status expected(reader *r, const char *what)
{
    if (r->at == r->end) return refuse(r, r->at, "expected %s, found the end of the text", what);
    unsigned char c = (unsigned char)*r->at;
    if (c < 0x20 || c >= 0x7f) return refuse(r, r->at, "expected %s, found the byte 0x%02X", what, c);
    return refuse(r, r->at, "expected %s, found '%c'", what, c);
}

/* ---- white space and comments ---- */

static ht_status skip_block_comment(reader *r)
{
    uint32_t line = r->line, column = column_of(r, r->at);
    for (r->at += 2; r->end - r->at >= 2; r->at++) {
        if (r->at[0] == '*' && r->at[1] == '/') {
            r->at += 2;
            return HT_OK;
        }
        if (*r->at == '\n') {
            r->line++;
            r->line_start = r->at + 1;
        }
    }
    HT_FAIL(r->ctx, HT_EPARSE, "%s:%" PRIu32 ":%" PRIu32 ": the comment is never closed", r->name, line, column);
}

static void skip_line_comment(reader *r)
{
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    r->at = newline != NULL ? newline : r->end;
}

static ht_status skip_space(reader *r)
{
    while (r->at < r->end) {
        char c = *r->at;
        if (c == '\n') {
            r->line++;
            r->line_start = ++r->at;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            r->at++;
        } else if (c == '#' || (c == '/' && r->end - r->at >= 2 && r->at[1] == '/')) {
            skip_line_comment(r);
        } else if (c == '/' && r->end - r->at >= 2 && r->at[1] == '*') {
            HT_TRY(skip_block_comment(r));
        } else {
            break;
        }
    }
    return HT_OK;
}

/* ---- strings ---- */

/* Bytes of the UTF-8 sequence at `at`, 0 when it is none: cut short, overlong, a surrogate, or beyond U+10FFFF. */
static size_t utf8_length(const unsigned char *at, size_t left)
{
    if (at[0] < 0x80) return 1;
    size_t length = at[0] >= 0xf0 ? 4 : at[0] >= 0xe0 ? 3 : 2;
    if (at[0] < 0xc2 || at[0] > 0xf4 || left < length) return 0;
    for (size_t i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    if (at[0] == 0xe0 && at[1] < 0xa0) return 0;
    if (at[0] == 0xed && at[1] > 0x9f) return 0;
    if (at[0] == 0xf0 && at[1] < 0x90) return 0;
    if (at[0] == 0xf4 && at[1] > 0x8f) return 0;
    return length;
}

/* Puts r->at on the closing quote. */
static ht_status find_quote(reader *r, const char *open, bool *escaped)
{
    *escaped = false;
    while (r->at < r->end && *r->at != '"') {
        unsigned char c = (unsigned char)*r->at;
        if (c == '\n') return refuse(r, open, "the string is not closed on its line");
        if (c < 0x20) return refuse(r, r->at, "a string holds the control character 0x%02X: write \\u%04X", c, c);
        if (c == '\\') {
            *escaped = true;
            r->at++;
            if (r->at == r->end) break;
            if (*r->at == '\n') continue; /* refused above */
        }
        size_t length = utf8_length((const unsigned char *)r->at, (size_t)(r->end - r->at));
        if (length == 0) return refuse(r, r->at, "a string is not UTF-8 at the byte 0x%02X", (unsigned char)*r->at);
        r->at += length;
    }
    return r->at < r->end ? HT_OK : refuse(r, open, "the string is never closed");
}

/* Four hex digits, or -1. */
static int32_t hex4(const char *at, const char *end)
{
    if (end - at < 4) return -1;
    int32_t code = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
        if (digit < 0) return -1;
        code = code * 16 + digit;
    }
    return code;
}

static char *put_utf8(char *to, uint32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* \uXXXX, or two of them for what lies beyond the first 65536. *from is on the backslash and moves on. */
static ht_status unescape_code(reader *r, const char **from, const char *end, char **to)
{
    const char *start = *from;
    int32_t code = hex4(start + 2, end);
    if (code < 0) return refuse(r, start, "\\u needs four hex digits");
    *from += 6;
    if (code >= 0xdc00 && code <= 0xdfff) return refuse(r, start, "the second half of a surrogate pair stands alone");
    if (code >= 0xd800 && code <= 0xdbff) {
        bool pair = end - *from >= 6 && (*from)[0] == '\\' && (*from)[1] == 'u';
        int32_t low = pair ? hex4(*from + 2, end) : -1;
        if (low < 0xdc00 || low > 0xdfff) return refuse(r, start, "the first half of a surrogate pair stands alone");
        *from += 6;
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    *to = put_utf8(*to, (uint32_t)code);
    return HT_OK;
}

/* Decodes [from, end) into `to`, which has space for as many bytes: no escape is shorter than what it stands for. */
static ht_status unescape(reader *r, const char *from, const char *end, char *to, size_t *length)
{
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char *start = to;
    while (from < end) {
        if (*from != '\\') {
            *to++ = *from++;
        } else if (from[1] == 'u') {
            HT_TRY(unescape_code(r, &from, end, &to));
        } else {
            const char *letter = memchr(letters, from[1], sizeof letters - 1);
            if (letter == NULL) return refuse(r, from, "there is no such escape");
            *to++ = means[letter - letters];
            from += 2;
        }
    }
    *length = (size_t)(to - start);
    return HT_OK;
}

/* r->at is on the opening quote. */
static ht_status read_string(reader *r, const char **text, size_t *length)
{
    const char *open = r->at++;
    bool escaped;
    HT_TRY(find_quote(r, open, &escaped));
    const char *body = open + 1, *close = r->at++;
    *length = (size_t)(close - body);
    char *copy = escaped ? HT_NEW(r->arena, char, *length + 1) : ht_arena_text(r->arena, body, *length);
    if (copy == NULL) return out_of_memory(r);
    if (escaped) HT_TRY(unescape(r, body, close, copy, length));
    *text = copy;
    return HT_OK;
}

/* ---- numbers ---- */

typedef struct number {
    bool is_integer; /* no fraction, no exponent */
    bool negative;
    uint64_t digits; /* the significant digits, if they fit */
    bool digits_overflow;
    int64_t exponent; /* of ten, to apply to digits */
} number;

static bool is_digit(const reader *r)
{
    return r->at < r->end && *r->at >= '0' && *r->at <= '9';
}

static void take_digits(reader *r, number *n, bool fraction)
{
    for (; is_digit(r); r->at++) {
        n->digits_overflow |= __builtin_mul_overflow(n->digits, UINT64_C(10), &n->digits);
        n->digits_overflow |= __builtin_add_overflow(n->digits, (uint64_t)(*r->at - '0'), &n->digits);
        n->exponent -= fraction;
    }
}

/* The grammar of JSON: no plus sign, no leading zeros, digits on both sides of the point. */
static ht_status scan_number(reader *r, number *n)
{
    *n = (number){.is_integer = true};
    if (*r->at == '-') {
        n->negative = true;
        r->at++;
    }
    if (!is_digit(r)) return expected(r, "a digit");
    const char *first = r->at;
    take_digits(r, n, false);
    if (*first == '0' && r->at - first > 1) return refuse(r, first, "a number starts with a zero too many");
    if (r->at < r->end && *r->at == '.') {
        n->is_integer = false;
        r->at++;
        if (!is_digit(r)) return expected(r, "a digit after the point");
        take_digits(r, n, true);
    }
    if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
        n->is_integer = false;
        r->at++;
        bool minus = r->at < r->end && *r->at == '-';
        if (minus || (r->at < r->end && *r->at == '+')) r->at++;
        if (!is_digit(r)) return expected(r, "a digit of the exponent");
        int64_t exponent = 0;
        for (; is_digit(r); r->at++)
            if (exponent < INT64_C(100000000000000000)) exponent = exponent * 10 + (*r->at - '0');
        n->exponent += minus ? -exponent : exponent;
    }
    return HT_OK;
}

/* Rounded as strtod does, whatever the locale of the program that we are part of. */
static ht_status to_double(reader *r, const char *start, const number *n, double *out)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    /* Both factors are exact, so the one operation rounds right. */
    if (!n->digits_overflow && n->digits <= UINT64_C(1) << 53 && n->exponent >= -22 && n->exponent <= 22) {
        double digits = (double)n->digits;
        double x = n->exponent < 0 ? digits / tens[-n->exponent] : digits * tens[n->exponent];
        *out = n->negative ? -x : x;
        return HT_OK;
    }
    const char *copy = ht_arena_text(r->arena, start, (size_t)(r->at - start));
    locale_t plain = copy != NULL ? newlocale(LC_ALL_MASK, "C", (locale_t)0) : (locale_t)0;
    if (plain == (locale_t)0) return out_of_memory(r);
    *out = strtod_l(copy, NULL, plain);
    freelocale(plain);
    return isinf(*out) ? refuse(r, start, "the number is beyond what a double holds") : HT_OK;
}

static ht_status read_number(reader *r, ht_json *value)
{
    const char *start = r->at;
    number n;
    HT_TRY(scan_number(r, &n));
    uint64_t most = (uint64_t)INT64_MAX + n.negative;
    bool negative_zero = n.negative && n.digits == 0;
    if (n.is_integer && !n.digits_overflow && n.digits <= most && !negative_zero) {
        value->kind = HT_JSON_INT;
        value->integer = n.negative ? -(int64_t)(n.digits - 1) - 1 : (int64_t)n.digits;
        return HT_OK;
    }
    value->kind = HT_JSON_NUMBER;
    return to_double(r, start, &n, &value->number);
}

/* ---- arrays and objects ---- */

static ht_status read_value(reader *r, ht_json **out);

static int compare_keys(const void *left, const void *right)
{
    const struct ht_json_key *a = left, *b = right;
    if (a->hash != b->hash) return a->hash < b->hash ? -1 : 1;
    if (a->member->key_length != b->member->key_length) return a->member->key_length < b->member->key_length ? -1 : 1;
    return memcmp(a->member->key, b->member->key, a->member->key_length);
}

static ht_status index_keys(reader *r, ht_json *object)
{
    struct ht_json_key *keys = HT_NEW(r->arena, struct ht_json_key, object->count);
    if (keys == NULL) return out_of_memory(r);
    size_t count = 0;
    for (const ht_json *member = object->child; member != NULL; member = member->next)
        keys[count++] = (struct ht_json_key){ht_hash_bytes(0, member->key, member->key_length), member};
    qsort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 1; i < count; i++) {
        if (compare_keys(&keys[i - 1], &keys[i]) != 0) continue;
        const ht_json *a = keys[i - 1].member, *b = keys[i].member;
        bool b_first = b->line < a->line || (b->line == a->line && b->column < a->column);
        const ht_json *first = b_first ? b : a, *again = b_first ? a : b;
        return ht_json_fail(r->ctx, r->name, again, "the key \"%.200s\" was given before, at line %" PRIu32, first->key,
                            first->line);
    }
    object->keys = keys;
    return HT_OK;
}

/* "key": value */
static ht_status read_member(reader *r, ht_json **out)
{
    if (r->at == r->end || *r->at != '"') return expected(r, "a key in quotes");
    const char *key;
    size_t length;
    HT_TRY(read_string(r, &key, &length));
    HT_TRY(skip_space(r));
    if (r->at == r->end || *r->at != ':') return expected(r, "':' after the key");
    r->at++;
    HT_TRY(skip_space(r));
    HT_TRY(read_value(r, out));
    (*out)->key = key;
    (*out)->key_length = (uint32_t)length;
    return HT_OK;
}

/* The elements up to the closing bracket, r->at being on the opening one. */
static ht_status read_elements(reader *r, ht_json *value)
{
    bool is_object = value->kind == HT_JSON_OBJECT;
    char close = is_object ? '}' : ']';
    const ht_json **tail = &value->child;
    r->at++;
    for (;;) {
        HT_TRY(skip_space(r));
        if (r->at < r->end && *r->at == close) break;
        ht_json *element;
        HT_TRY(is_object ? read_member(r, &element) : read_value(r, &element));
        *tail = element;
        tail = &element->next;
        value->count++;
        HT_TRY(skip_space(r));
        if (r->at < r->end && *r->at == close) break;
        if (r->at == r->end || *r->at != ',') return expected(r, is_object ? "',' or '}'" : "',' or ']'");
        r->at++;
    }
    r->at++;
    return is_object ? index_keys(r, value) : HT_OK;
}

static ht_status read_container(reader *r, ht_json *value, ht_json_kind kind)
{
    if (r->depth == MOST_DEPTH) return refuse(r, r->at, "nested more than %d deep", MOST_DEPTH);
    value->kind = kind;
    r->depth++;
    ht_status status = read_elements(r, value);
    r->depth--;
    return status;
}

static ht_status read_word(reader *r, ht_json *value)
{
    static const struct {
        const char *text;
        ht_json_kind kind;
        bool boolean;
    } words[] = {{"true", HT_JSON_BOOL, true}, {"false", HT_JSON_BOOL, false}, {"null", HT_JSON_NULL, false}};
    const char *start = r->at;
    while (r->at < r->end && ((*r->at >= 'a' && *r->at <= 'z') || (*r->at >= 'A' && *r->at <= 'Z'))) r->at++;
    size_t length = (size_t)(r->at - start);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (length != strlen(words[i].text) || memcmp(start, words[i].text, length) != 0) continue;
        value->kind = words[i].kind;
        value->boolean = words[i].boolean;
        return HT_OK;
    }
    if (length == 0) return expected(r, "a value");
    return refuse(r, start, "\"%.*s\" is no value; a string needs quotes", length < 40 ? (int)length : 40, start);
}

static ht_status read_value(reader *r, ht_json **out)
{
    if (r->at == r->end) return expected(r, "a value");
    ht_json *value = HT_NEW(r->arena, ht_json, 1);
    if (value == NULL) return out_of_memory(r);
    value->line = r->line;
    value->column = column_of(r, r->at);
    *out = value;
    char c = *r->at;
    if (c == '{') return read_container(r, value, HT_JSON_OBJECT);
    if (c == '[') return read_container(r, value, HT_JSON_ARRAY);
    if (c == '"') {
        value->kind = HT_JSON_STRING;
        return read_string(r, &value->text, &value->length);
    }
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(r, value);
    return read_word(r, value);
}

ht_status ht_json_parse(ht_context *ctx, ht_arena *arena, const char *name, const char *text, size_t length,
                        const ht_json **out)
{
    *out = NULL;
    if (length >= UINT32_MAX) HT_FAIL(ctx, HT_EPARSE, "%s: JSON of %zu bytes is too long", name, length);
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        length -= 3;
    }
    reader r = {.ctx = ctx, .arena = arena, .name = name, .at = text, .end = text + length, .line_start = text};
    r.line = 1;
    ht_json *value;
    HT_TRY(skip_space(&r));
    HT_TRY(read_value(&r, &value));
    HT_TRY(skip_space(&r));
    if (r.at != r.end) return expected(&r, "the end of the text");
    *out = value;
    return HT_OK;
}

/* ---- looking at values ---- */

const ht_json *ht_json_get(const ht_json *object, const char *key)
{
    if (object == NULL || object->kind != HT_JSON_OBJECT) return NULL;
    size_t length = strlen(key);
    if (length > UINT32_MAX) return NULL;
    ht_json wanted = {.key = key, .key_length = (uint32_t)length};
    struct ht_json_key probe = {ht_hash_bytes(0, key, length), &wanted};
    size_t low = 0, high = object->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_keys(&probe, &object->keys[middle]);
        if (order == 0) return object->keys[middle].member;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

bool ht_json_as_int(const ht_json *value, int64_t *out)
{
    if (value == NULL) return false;
    if (value->kind == HT_JSON_INT) {
        *out = value->integer;
        return true;
    }
    if (value->kind != HT_JSON_NUMBER || floor(value->number) != value->number) return false;
    if (value->number < -0x1p63 || value->number >= 0x1p63) return false;
    *out = (int64_t)value->number;
    return true;
}

bool ht_json_as_number(const ht_json *value, double *out)
{
    if (value == NULL || (value->kind != HT_JSON_INT && value->kind != HT_JSON_NUMBER)) return false;
    *out = value->kind == HT_JSON_INT ? (double)value->integer : value->number;
    return true;
}

const char *ht_json_kind_name(ht_json_kind kind)
{
    static const char *const names[] = {
        [HT_JSON_NULL] = "null",        [HT_JSON_BOOL] = "true or false", [HT_JSON_INT] = "an integer",
        [HT_JSON_NUMBER] = "a number",  [HT_JSON_STRING] = "a string",    [HT_JSON_ARRAY] = "an array",
        [HT_JSON_OBJECT] = "an object",
    };
    return (unsigned)kind <= HT_JSON_OBJECT ? names[kind] : "?";
}
