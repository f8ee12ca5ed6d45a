#include "base/json_write.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- between values ---- */

static void start_line(ht_json_writer *json)
{
    ht_text_add(json->text, "\n%*s", json->line - 1, "");
    json->line = 0;
}

static void add_string(ht_json_writer *json, const char *bytes, size_t length)
{
    ht_text_add(json->text, "\"");
    size_t plain = 0; /* bytes that need no escape, up to here */
    for (size_t i = 0; i <= length; i++) {
        unsigned char c = i < length ? (unsigned char)bytes[i] : 0;
        if (i < length && c >= 0x20 && c != '"' && c != '\\') continue;
        ht_text_add(json->text, "%.*s", (int)(i - plain), bytes + plain);
        plain = i + 1;
        if (i == length) break;
        if (c == '"' || c == '\\')
            ht_text_add(json->text, "\\%c", c);
        else if ((c == '\n' || c == '\t') && !json->long_escapes)
            ht_text_add(json->text, c == '\n' ? "\\n" : "\\t");
        else
            ht_text_add(json->text, "\\u%04x", c);
    }
    ht_text_add(json->text, "\"");
}

/* What stands before a value: comma, space or line, key. */
static void start_value(ht_json_writer *json, const char *key, size_t length)
{
    if (json->depth > 0 && json->some[json->depth - 1])
        ht_text_add(json->text, json->compact || json->line > 0 ? "," : ", ");
    if (json->depth > 0) json->some[json->depth - 1] = true;
    if (json->line > 0) start_line(json);
    if (!key) return;
    add_string(json, key, length);
    ht_text_add(json->text, json->compact ? ":" : ": ");
}

static void start_member(ht_json_writer *json, const char *key)
{
    start_value(json, key, key ? strlen(key) : 0);
}

static void begin(ht_json_writer *json, const char *bracket)
{
    assert(json->depth < HT_JSON_MOST_DEPTH);
    ht_text_add(json->text, "%s", bracket);
    json->some[json->depth++] = false;
}

static void end(ht_json_writer *json, const char *bracket)
{
    assert(json->depth > 0);
    json->depth--;
    if (json->line > 0) start_line(json);
    ht_text_add(json->text, "%s", bracket);
}

void ht_json_line(ht_json_writer *json, int indent)
{
    json->line = indent + 1;
}

/* ---- values ---- */

void ht_json_begin_object(ht_json_writer *json, const char *key)
{
    start_member(json, key);
    begin(json, "{");
}

void ht_json_end_object(ht_json_writer *json)
{
    end(json, "}");
}

void ht_json_begin_array(ht_json_writer *json, const char *key)
{
    start_member(json, key);
    begin(json, "[");
}

void ht_json_end_array(ht_json_writer *json)
{
    end(json, "]");
}

void ht_json_put_bytes(ht_json_writer *json, const char *key, const char *bytes, size_t length)
{
    start_member(json, key);
    add_string(json, bytes, length);
}

void ht_json_put_text(ht_json_writer *json, const char *key, const char *text)
{
    if (text)
        ht_json_put_bytes(json, key, text, strlen(text));
    else
        ht_json_put_null(json, key);
}

void ht_json_put_number(ht_json_writer *json, const char *key, double number)
{
    if (!isfinite(number)) {
        ht_json_put_null(json, key);
        return;
    }
    start_member(json, key);
    ht_text_number(json->text, number);
}

void ht_json_put_int(ht_json_writer *json, const char *key, int64_t integer)
{
    start_member(json, key);
    ht_text_add(json->text, "%" PRId64, integer);
}

void ht_json_put_uint(ht_json_writer *json, const char *key, uint64_t integer)
{
    start_member(json, key);
    ht_text_add(json->text, "%" PRIu64, integer);
}

void ht_json_put_bool(ht_json_writer *json, const char *key, bool boolean)
{
    ht_json_put_json(json, key, boolean ? "true" : "false");
}

void ht_json_put_null(ht_json_writer *json, const char *key)
{
    ht_json_put_json(json, key, "null");
}

void ht_json_put_hash(ht_json_writer *json, const char *key, uint64_t hash)
{
    start_member(json, key);
    ht_text_add(json->text, "\"%016" PRIx64 "\"", hash);
}

void ht_json_put_json(ht_json_writer *json, const char *key, const char *text)
{
    start_member(json, key);
    ht_text_add(json->text, "%s", text);
}

/* ---- parsed values ---- */

static void put_parsed(ht_json_writer *json, const char *key, size_t length, const ht_json *value)
{
    ht_text *text = json->text;
    start_value(json, key, length);
    switch (value->kind) {
    case HT_JSON_NULL: ht_text_add(text, "null"); return;
    case HT_JSON_BOOL: ht_text_add(text, value->boolean ? "true" : "false"); return;
    case HT_JSON_INT: ht_text_add(text, "%" PRId64, value->integer); return;
    case HT_JSON_NUMBER: ht_text_number(text, value->number); return;
    case HT_JSON_STRING: add_string(json, value->text, value->length); return;
    case HT_JSON_ARRAY:
    case HT_JSON_OBJECT: break;
    }
    bool is_object = value->kind == HT_JSON_OBJECT;
    begin(json, is_object ? "{" : "[");
    for (const ht_json *element = value->child; element; element = element->next)
        put_parsed(json, is_object ? element->key : NULL, element->key_length, element);
    end(json, is_object ? "}" : "]");
}

void ht_json_put_value(ht_json_writer *json, const char *key, const ht_json *value)
{
    put_parsed(json, key, key ? strlen(key) : 0, value);
}

void ht_json_print(ht_text *text, const ht_json *value)
{
    ht_json_put_value(&(ht_json_writer){.text = text}, NULL, value);
}
