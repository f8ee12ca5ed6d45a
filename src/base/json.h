/* A JSON parser for hand-written files: strict about values, tolerant of comments (// and # to the end of the line,
 * slash-star pairs), a comma after the last element and a byte-order mark. Refused are duplicate keys, numbers beyond
 * the range of a double, text that is not UTF-8 and nesting beyond 64. Every value has its line and column. */
#ifndef HT_BASE_JSON_H
#define HT_BASE_JSON_H

#include <halftone/types.h>

#include "base/arena.h"
#include "base/text.h"

typedef enum ht_json_kind {
    HT_JSON_NULL,
    HT_JSON_BOOL,
    HT_JSON_INT,    /* written without fraction and exponent, and fits */
    HT_JSON_NUMBER, /* any other number */
    HT_JSON_STRING,
    HT_JSON_ARRAY,
    HT_JSON_OBJECT
} ht_json_kind;

typedef struct ht_json ht_json;
struct ht_json {
    ht_json_kind kind;
    uint32_t line, column; /* from 1; the column counts bytes */
    uint32_t key_length;
    const char *key;     /* of a member of an object, else NULL */
    const ht_json *next; /* in the same array or object, in the order of the text */
    union {
        bool boolean;
        int64_t integer;
        double number;
        struct { /* string: zero-terminated UTF-8; may hold zeros inside, which length counts */
            const char *text;
            size_t length;
        };
        struct { /* array, object */
            const ht_json *child;
            size_t count;
            const struct ht_json_key *keys; /* of an object: see json.c */
        };
    };
};

/* The nodes live in the arena; the text may be freed. `name` precedes line and column in messages. */
ht_status ht_json_parse(ht_context *ctx, ht_arena *arena, const char *name, const char *text, size_t length,
                        const ht_json **out);

/* The member of that name; NULL when it does not exist, or when `object` is NULL or of another kind. */
const ht_json *ht_json_get(const ht_json *object, const char *key);
/* An integer in any notation: 500000000, 5e8, 5.0. False when the value is not an integer, or does not fit. */
bool ht_json_as_int(const ht_json *value, int64_t *out);
/* Any number as a double (an integer beyond 2^53 rounds). */
bool ht_json_as_number(const ht_json *value, double *out);
/* "an integer", "an object" …, for messages. */
const char *ht_json_kind_name(ht_json_kind kind);

/* The value on one line, as JSON: ht_json_parse reads the same back. See json_write.h for writing in parts. */
void ht_json_print(ht_text *text, const ht_json *value);

/* Fails with HT_EPARSE and "name:line:column: message", for a value that is valid JSON of the wrong kind. */
ht_status ht_json_fail(ht_context *ctx, const char *name, const ht_json *value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
