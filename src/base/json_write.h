/* The one JSON writer. Values are added one after the other; commas, spaces, quotes and escapes come by themselves:
 *
 *     ht_json_writer json = {.text = &text};
 *     ht_json_begin_object(&json, NULL);
 *     ht_json_put_int(&json, "step", 3);
 *     ht_json_begin_array(&json, "shape");
 *     ht_json_put_int(&json, NULL, 4);
 *     ht_json_end_array(&json);
 *     ht_json_end_object(&json);             {"step": 3, "shape": [4]}
 *
 * The key is NULL in an array and at the top. Everything stands on one line but for what ht_json_line asks for. */
#ifndef HT_BASE_JSON_WRITE_H
#define HT_BASE_JSON_WRITE_H

#include "base/json.h"

enum { HT_JSON_MOST_DEPTH = 80 }; /* deeper than anything that ht_json_parse reads, with some levels around it */

typedef struct ht_json_writer {
    ht_text *text;
    bool compact;      /* no space behind commas and colons */
    bool long_escapes; /* \u000a and \u0009 instead of \n and \t */
    int depth;
    int line;                      /* spaces before the next element, which begins a line, plus one; 0: the same line */
    bool some[HT_JSON_MOST_DEPTH]; /* the object or array at this depth has an element */
} ht_json_writer;

void ht_json_begin_object(ht_json_writer *json, const char *key);
void ht_json_end_object(ht_json_writer *json);
void ht_json_begin_array(ht_json_writer *json, const char *key);
void ht_json_end_array(ht_json_writer *json);
/* The next element, or the bracket that closes, begins a new line behind so many spaces. */
void ht_json_line(ht_json_writer *json, int indent);

void ht_json_put_text(ht_json_writer *json, const char *key, const char *text); /* NULL: null */
void ht_json_put_bytes(ht_json_writer *json, const char *key, const char *bytes, size_t length);
/* The shortest number that reads back the same; null for what is not finite. */
void ht_json_put_number(ht_json_writer *json, const char *key, double number);
void ht_json_put_int(ht_json_writer *json, const char *key, int64_t integer);
void ht_json_put_uint(ht_json_writer *json, const char *key, uint64_t integer);
void ht_json_put_bool(ht_json_writer *json, const char *key, bool boolean);
void ht_json_put_null(ht_json_writer *json, const char *key);
/* 16 hexadecimal digits as a string: a number in JSON keeps only 53 bits in many programs. */
void ht_json_put_hash(ht_json_writer *json, const char *key, uint64_t hash);
/* A value that was parsed. */
void ht_json_put_value(ht_json_writer *json, const char *key, const ht_json *value);
/* Text that is JSON already. */
void ht_json_put_json(ht_json_writer *json, const char *key, const char *text);

#endif
