/* Config keys as data. A folder declares a table of rows per block; parsing, defaults, ranges, help and docs come from
 * it. The resolved values of a block are an ht_fields: every row of the table has a value there, with its origin. */
#ifndef HT_BASE_KEY_H
#define HT_BASE_KEY_H

#include <halftone/context.h>

#include "base/json.h"
#include "base/text.h"

typedef enum ht_key_kind {
    HT_KEY_BOOL,
    HT_KEY_INT,
    HT_KEY_NUMBER,
    HT_KEY_TEXT,
    HT_KEY_CHOICE,  /* one word of `choices`, upper or lower case; read back as the table spells it. "cuda:N" in a table
                     * stands for all words with a number there */
    HT_KEY_INTS,    /* a list; one alone may stand without brackets */
    HT_KEY_NUMBERS, /* likewise */
    HT_KEY_TEXTS,   /* likewise */
    HT_KEY_JSON     /* any value; its user checks it */
} ht_key_kind;

typedef struct ht_key {
    const char *name;     /* inside its block: "n_layer"; of a nested object with dots: "fp16.loss_scale" */
    ht_key_kind kind;     /*     ("*" between dots stands for any name, "[]" for each element of a list) */
    const char *standard; /* as JSON text: "6", "true", "\"byte\""; NULL: must be given; "null": none unless given */
    double low, high;     /* of numbers, also in lists, inclusive; both 0: any */
    const char *choices;  /* "sgd|adam|adamw" */
    const char *help;     /* one line */
} ht_key;                 /* tables end with a row without a name */

/* ---- where a value comes from ---- */

typedef enum ht_source { HT_SOURCE_DEFAULT, HT_SOURCE_FILE, HT_SOURCE_COMMAND, HT_SOURCE_DERIVED } ht_source;

typedef struct ht_origin {
    ht_source source;
    const char *file; /* NULL: the text had no name */
    uint32_t line;    /* 0: no line */
    const char *why;  /* how a derived value was found; NULL: nothing to say */
} ht_origin;

/* "default", "job.json:3", "line 3", "--set", "derived: …". */
void ht_origin_print(ht_text *text, const ht_origin *origin);

/* ---- problems: everything that is wrong with an input, not only the first ---- */

typedef struct ht_problem {
    bool is_error; /* else a warning */
    char *text;    /* one line */
} ht_problem;

typedef struct ht_problems {
    ht_problem *list;
    size_t count, capacity;
    size_t errors; /* of them; keeps counting when the list is full */
    bool failed;   /* memory ran out */
} ht_problems;

/* The list holds at most 200 problems: a hostile file can cause millions. */
bool ht_problems_full(const ht_problems *problems);
/* `where` may be NULL; it precedes the message, as in compilers. */
void ht_problems_error(ht_problems *problems, const ht_origin *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ht_problems_warn(ht_problems *problems, const ht_origin *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void ht_problems_free(ht_problems *problems);
/* HT_OK without errors; else HT_EINVAL, and all errors in the context's message, a line each, as far as they fit. */
ht_status ht_problems_status(const ht_problems *problems, ht_context *ctx);

/* ---- the resolved values of one block ---- */

typedef struct ht_fields ht_fields;

typedef struct ht_field {
    const char *name; /* inside its block; a key with "*" stands here with the name that was given */
    const ht_key *key;
    const ht_json *value; /* right in kind and range; NULL while reading: nothing yet */
    ht_origin origin;
    bool is_auto; /* the file says "auto": reconciliation may set it before ht_fields_finish */
} ht_field;

/* Checks every member of the object against the table: kinds, ranges, choices, unknown keys (with the nearest known
 * one), what must be given. All errors are in one message. `object` may be NULL: nothing is given. `block` stands before
 * the names in messages: "model.n_layer". Table and object are borrowed and have to live as long as the fields. */
ht_status ht_fields_read(ht_fields **out, ht_context *ctx, const ht_key *keys, const char *block,
                         const ht_json *object);
void ht_fields_free(ht_fields *fields);

/* A name that is not in the table, or a kind that does not fit, is a bug of the caller and stops the program. */
int64_t ht_field_int(const ht_fields *fields, const char *name);
double ht_field_number(const ht_fields *fields, const char *name);
bool ht_field_bool(const ht_fields *fields, const char *name);
const char *ht_field_text(const ht_fields *fields, const char *name);    /* also of a choice; NULL when null */
const ht_json *ht_field_json(const ht_fields *fields, const char *name); /* of any kind; NULL when null */
/* Not by default: the value is in a file, on the command line, or derived from such a value. */
bool ht_field_given(const ht_fields *fields, const char *name);
bool ht_field_null(const ht_fields *fields, const char *name);
/* Lists: the number of elements (0 when null), and each. */
size_t ht_field_count(const ht_fields *fields, const char *name);
int64_t ht_field_int_at(const ht_fields *fields, const char *name, size_t index);
double ht_field_number_at(const ht_fields *fields, const char *name, size_t index);
const char *ht_field_text_at(const ht_fields *fields, const char *name, size_t index);

/* All of them, in the order of the table; rows with "*" once per name that was given. */
size_t ht_fields_count(const ht_fields *fields);
const ht_field *ht_fields_at(const ht_fields *fields, size_t index);
/* NULL when there is none of that name. */
const ht_field *ht_fields_find(const ht_fields *fields, const char *name);

/* ---- reading in parts: several tables, several sources. Only HT_ENOMEM fails; the rest are problems. ---- */

ht_status ht_fields_create(ht_fields **out, const char *block);
/* More rows for the block. */
ht_status ht_fields_declare(ht_fields *fields, const ht_key *keys);
/* Takes the members of the object; what was taken before is replaced. `where` gives source and file. */
ht_status ht_fields_take(ht_fields *fields, const ht_json *object, const ht_origin *where, ht_problems *problems);
/* Gives a field a value, as JSON text. */
ht_status ht_fields_set(ht_fields *fields, const char *name, const char *json, const ht_origin *origin);
/* Defaults for the rest; what must be given and was not is an error. */
ht_status ht_fields_finish(ht_fields *fields, ht_problems *problems);

/* A member that people write for want of comments: "_comment", "//". It is skipped. */
bool ht_key_is_comment(const char *name);
/* The name in the table that is the fewest edits away, NULL when all are far. */
const char *ht_key_nearest(const ht_key *keys, const char *name);
/* "an integer from 1 to 64", "one of sgd, adam": the expected values of a row, for messages and docs. */
void ht_key_describe(ht_text *text, const ht_key *key);

#endif
