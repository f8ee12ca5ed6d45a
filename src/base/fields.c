/* Config fields: reads a JSON object by a table of keys. The traversal visits object and table together: the path in
 * the object is a stack of names, and a row's name is a pattern for it. Every row has its field from the start, so a
 * value is stored without a search. */
#include "base/key.h"

#include "base/arena.h"
#include "base/fail.h"
#include "base/key_rows.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 72 /* the JSON reader's, and some */

struct ht_fields {
    ht_arena *arena;
    const char *block;
    ht_field *list; /* one per row */
    size_t count, capacity;
    ht_field *named; /* of rows with "*", while reading: one per name that was given */
    size_t named_count, named_capacity;
};

typedef struct walk {
    ht_fields *fields;
    const ht_origin *where;
    ht_problems *problems;
    const char *names[MOST_DEPTH];
    size_t depth;
    bool out_of_memory;
} walk;

/* ---- patterns ---- */

static bool is_pattern(const ht_key *key)
{
    return strchr(key->name, '*') != NULL || strchr(key->name, '[') != NULL;
}

typedef enum match { MATCH_NONE, MATCH_PART, MATCH_WHOLE } match;

/* Whether the walk's place is the row's, or on the way to it. */
static match match_row(const walk *w, const char *pattern)
{
    for (size_t i = 0; i < w->depth; i++) {
        const char *name = w->names[i];
        if (*pattern != *name && *pattern != '*') return MATCH_NONE; /* most rows end here */
        size_t length = strcspn(pattern, ".");
        bool any = length == 1 && *pattern == '*';
        bool element = length == 2 && memcmp(pattern, "[]", 2) == 0;
        if (element ? *name != '[' : !any && (strlen(name) != length || memcmp(name, pattern, length) != 0))
            return MATCH_NONE;
        pattern += length;
        if (*pattern == '\0') return i + 1 == w->depth ? MATCH_WHOLE : MATCH_NONE;
        pattern++;
    }
    return MATCH_PART;
}

/* The place as a name: "a.b[0].c". */
static void print_place(ht_text *text, const walk *w)
{
    for (size_t i = 0; i < w->depth; i++)
        ht_text_add(text, "%s%.100s", i == 0 || w->names[i][0] == '[' ? "" : ".", w->names[i]);
}

static void print_path(ht_text *text, const walk *w)
{
    if (w->fields->block[0] != '\0') ht_text_add(text, w->depth > 0 ? "%s." : "%s", w->fields->block);
    print_place(text, w);
}

/* ---- problems ---- */

static ht_origin origin_at(const walk *w, const ht_json *value)
{
    ht_origin origin = *w->where;
    if (origin.source == HT_SOURCE_FILE) origin.line = value->line;
    return origin;
}

static const char *text_or_empty(const ht_text *text)
{
    return text->data != NULL ? text->data : "";
}

static void refuse_value(walk *w, const ht_key *key, const ht_json *value)
{
    ht_origin origin = origin_at(w, value);
    ht_text path = {0}, wanted = {0}, found = {0};
    print_path(&path, w);
    ht_key_describe(&wanted, key);
    ht_json_print(&found, value);
    ht_problems_error(w->problems, &origin, "%s: expected %s, found %.60s%s", text_or_empty(&path),
                      text_or_empty(&wanted), text_or_empty(&found), found.length > 60 ? "…" : "");
    ht_text_free(&path);
    ht_text_free(&wanted);
    ht_text_free(&found);
}

/* The part of the row's name that stands where the walk's last name stands; 0 when the row is elsewhere. */
static size_t sibling(walk *w, const char *pattern, const char **name)
{
    w->depth--;
    match above = match_row(w, pattern);
    w->depth++;
    if (above != MATCH_PART) return 0;
    for (size_t i = 1; i < w->depth; i++) pattern = strchr(pattern, '.') + 1;
    *name = pattern;
    return strcspn(pattern, ".");
}

/* Another place in the block that has a key or an object of this name: the usual reason for "unknown" is the wrong level.
 * Returns the length of that place's name, 0 when there is none. */
static size_t elsewhere(const walk *w, const char *name, const char **place)
{
    size_t name_length = strlen(name);
    for (size_t i = 0; i < w->fields->count; i++) {
        *place = w->fields->list[i].key->name;
        for (const char *part = *place; *part != '\0'; part += *part == '.') {
            size_t length = strcspn(part, ".");
            if (length == name_length && memcmp(part, name, length) == 0) return (size_t)(part - *place) + length;
            part += length;
        }
    }
    return 0;
}

static void refuse_key(walk *w, const ht_json *value)
{
    if (ht_problems_full(w->problems)) {
        w->problems->errors++;
        return;
    }
    char best[64] = "";
    const char *name = w->names[w->depth - 1];
    size_t name_length = strlen(name);
    int least = (int)(name_length < 63 ? name_length : 63) / 3 + 2;
    for (size_t i = 0; i < w->fields->count; i++) {
        char candidate[64];
        const char *start;
        size_t length = sibling(w, w->fields->list[i].key->name, &start);
        if (length == 0 || length >= sizeof candidate || *start == '*' || *start == '[') continue;
        memcpy(candidate, start, length);
        candidate[length] = '\0';
        int edits = ht_edit_distance(candidate, name);
        if (edits >= least) continue;
        least = edits;
        memcpy(best, candidate, length + 1);
    }
    ht_origin origin = origin_at(w, value);
    ht_text path = {0};
    print_path(&path, w);
    const char *other;
    size_t other_length = best[0] == '\0' || least > 1 ? elsewhere(w, name, &other) : 0;
    if (other_length > 0)
        ht_problems_error(w->problems, &origin, "%s: unknown key; it belongs to %s%s%.*s", text_or_empty(&path),
                          w->fields->block, w->fields->block[0] != '\0' ? "." : "", (int)other_length, other);
    else if (best[0] != '\0')
        ht_problems_error(w->problems, &origin, "%s: unknown key; did you mean \"%s\"?", text_or_empty(&path), best);
    else
        ht_problems_error(w->problems, &origin, "%s: unknown key", text_or_empty(&path));
    ht_text_free(&path);
}

/* ---- taking values ---- */

static const ht_json *new_value(ht_fields *fields, const ht_json *like)
{
    ht_json *value = HT_NEW(fields->arena, ht_json, 1);
    if (value != NULL) *value = *like;
    return value;
}

/* The value as it is read back: 5e8 as an integer, a choice as the table spells it. */
static const ht_json *normal(ht_fields *fields, const ht_key *key, const ht_json *value)
{
    ht_json plain = *value;
    const char *spelling;
    size_t length;
    if (key->kind == HT_KEY_INT && value->kind == HT_JSON_NUMBER) {
        plain.kind = HT_JSON_INT;
        ht_json_as_int(value, &plain.integer);
    } else if (key->kind == HT_KEY_CHOICE && value->kind == HT_JSON_STRING) {
        ht_key_choice(key, value->text, &spelling, &length);
        plain.text = ht_arena_text(fields->arena, spelling, length);
        plain.length = length;
        if (plain.text == NULL) return NULL;
    } else {
        return value;
    }
    return new_value(fields, &plain);
}

static bool means_auto(const ht_key *key, const ht_json *value)
{
    const char *spelling;
    size_t length;
    if (value->kind != HT_JSON_STRING || value->length != 4 || memcmp(value->text, "auto", 4) != 0) return false;
    if (key->kind == HT_KEY_JSON) return false;
    return key->kind != HT_KEY_CHOICE || !ht_key_choice(key, "auto", &spelling, &length);
}

/* The field of a row with "*": a new one for a name that was not there before. */
static ht_field *named_field(walk *w, const ht_key *key)
{
    ht_fields *fields = w->fields;
    ht_text place = {0};
    print_place(&place, w);
    ht_field *field = NULL;
    /* An object holds no name twice, so only what comes later can meet an old one. */
    if (w->where->source != HT_SOURCE_FILE)
        for (size_t i = 0; i < fields->named_count && field == NULL; i++)
            if (fields->named[i].key == key && strcmp(fields->named[i].name, text_or_empty(&place)) == 0)
                field = &fields->named[i];
    if (field == NULL && !place.failed) {
        const char *name = ht_arena_text(fields->arena, place.data, place.length);
        bool grown =
            ht_grow((void **)&fields->named, &fields->named_capacity, fields->named_count + 1, sizeof(ht_field));
        if (name != NULL && grown) {
            field = &fields->named[fields->named_count++];
            *field = (ht_field){.name = name, .key = key};
        }
    }
    ht_text_free(&place);
    return field;
}

static void take_value(walk *w, size_t row, const ht_json *value)
{
    const ht_key *key = w->fields->list[row].key;
    bool is_auto = means_auto(key, value);
    if (!is_auto && !ht_key_fits(key, value)) {
        refuse_value(w, key, value);
        /* A wrong value was given all the same: it must not be called missing too. */
        if (!is_pattern(key)) w->fields->list[row].origin = origin_at(w, value);
        return;
    }
    ht_field *field = is_pattern(key) ? named_field(w, key) : &w->fields->list[row];
    if (field == NULL) {
        w->out_of_memory = true;
        return;
    }
    field->is_auto = is_auto;
    field->origin = origin_at(w, value);
    field->value = is_auto ? NULL : normal(w->fields, key, value);
    w->out_of_memory |= !is_auto && field->value == NULL;
}

static void take(walk *w, const ht_json *value);

static void take_members(walk *w, const ht_json *value)
{
    char index[24];
    size_t i = 0;
    if (w->depth == MOST_DEPTH) return;
    for (const ht_json *member = value->child; member != NULL && !w->out_of_memory; member = member->next) {
        if (value->kind == HT_JSON_OBJECT && ht_key_is_comment(member->key)) continue;
        snprintf(index, sizeof index, "[%zu]", i++);
        w->names[w->depth++] = value->kind == HT_JSON_OBJECT ? member->key : index;
        take(w, member);
        w->depth--;
    }
}

static void refuse_container(walk *w, const ht_json *value, bool list)
{
    ht_origin origin = origin_at(w, value);
    ht_text path = {0};
    print_path(&path, w);
    ht_problems_error(w->problems, &origin, "%s: expected %s, found %s", text_or_empty(&path),
                      list ? "a list" : "an object", ht_json_kind_name(value->kind));
    ht_text_free(&path);
}

static void take(walk *w, const ht_json *value)
{
    bool on_the_way = false, list = false;
    for (size_t i = 0; i < w->fields->count; i++) {
        const char *pattern = w->fields->list[i].key->name;
        match found = match_row(w, pattern);
        if (found == MATCH_WHOLE) {
            take_value(w, i, value);
            return;
        }
        if (found != MATCH_PART) continue;
        on_the_way = true;
        for (size_t skip = 0; skip < w->depth; skip++) pattern = strchr(pattern, '.') + 1;
        list |= *pattern == '[';
    }
    if (!on_the_way)
        refuse_key(w, value);
    else if (value->kind == (list ? HT_JSON_ARRAY : HT_JSON_OBJECT))
        take_members(w, value);
    else if (value->kind != HT_JSON_NULL) /* null: the block is left out */
        refuse_container(w, value, list);
}

ht_status ht_fields_take(ht_fields *fields, const ht_json *object, const ht_origin *where, ht_problems *problems)
{
    if (object == NULL) return HT_OK;
    walk w = {.fields = fields, .where = where, .problems = problems};
    if (object->kind != HT_JSON_OBJECT)
        refuse_container(&w, object, false);
    else
        take_members(&w, object);
    return w.out_of_memory || problems->failed ? HT_ENOMEM : HT_OK;
}

/* ---- from the start to the end ---- */

ht_status ht_fields_create(ht_fields **out, const char *block)
{
    *out = NULL;
    ht_fields *fields = calloc(1, sizeof *fields);
    if (fields == NULL) return HT_ENOMEM;
    fields->arena = ht_arena_create();
    fields->block = fields->arena != NULL ? ht_arena_text(fields->arena, block, strlen(block)) : NULL;
    if (fields->block == NULL) {
        ht_fields_free(fields);
        return HT_ENOMEM;
    }
    *out = fields;
    return HT_OK;
}

void ht_fields_free(ht_fields *fields)
{
    if (fields == NULL) return;
    ht_arena_free(fields->arena);
    free(fields->list);
    free(fields->named);
    free(fields);
}

ht_status ht_fields_declare(ht_fields *fields, const ht_key *keys)
{
    size_t count = 0;
    while (keys[count].name != NULL) count++;
    if (!ht_grow((void **)&fields->list, &fields->capacity, fields->count + count, sizeof(ht_field))) return HT_ENOMEM;
    for (size_t i = 0; i < count; i++)
        fields->list[fields->count++] = (ht_field){.name = keys[i].name, .key = &keys[i]};
    return HT_OK;
}

static const ht_json *parse_text(ht_fields *fields, const char *json)
{
    ht_context quiet = {0};
    const ht_json *value;
    ht_status status = ht_json_parse(&quiet, fields->arena, "key", json, strlen(json), &value);
    assert(status == HT_OK || status == HT_ENOMEM); /* else a default in a table is invalid JSON */
    return value;
}

static ht_field *find(const ht_fields *fields, const char *name)
{
    for (size_t i = 0; i < fields->count; i++)
        if (strcmp(fields->list[i].name, name) == 0) return &fields->list[i];
    return NULL;
}

ht_status ht_fields_set(ht_fields *fields, const char *name, const char *json, const ht_origin *origin)
{
    ht_field *field = find(fields, name);
    assert(field != NULL);
    const ht_json *value = parse_text(fields, json);
    if (value == NULL) return HT_ENOMEM;
    assert(ht_key_fits(field->key, value));
    field->value = normal(fields, field->key, value);
    field->origin = *origin;
    if (origin->why != NULL) field->origin.why = ht_arena_text(fields->arena, origin->why, strlen(origin->why));
    bool no_memory = field->value == NULL || (origin->why != NULL && field->origin.why == NULL);
    return no_memory ? HT_ENOMEM : HT_OK;
}

static ht_status finish_field(ht_fields *fields, ht_field *field, ht_problems *problems)
{
    bool refused = field->origin.source != HT_SOURCE_DEFAULT && !field->is_auto;
    const char *dot = fields->block[0] != '\0' ? "." : "";
    if (field->key->standard == NULL && !refused) {
        ht_text wanted = {0};
        ht_key_describe(&wanted, field->key);
        if (field->is_auto)
            ht_problems_error(problems, &field->origin,
                              "%s%s%s: nothing is known that \"auto\" could mean here; give %s", fields->block, dot,
                              field->name, text_or_empty(&wanted));
        else
            ht_problems_error(problems, NULL, "%s%s%s: must be given: %s", fields->block, dot, field->name,
                              text_or_empty(&wanted));
        ht_text_free(&wanted);
    }
    field->value = parse_text(fields, field->key->standard != NULL ? field->key->standard : "null");
    field->origin = (ht_origin){.source = HT_SOURCE_DEFAULT, .why = field->is_auto ? "\"auto\"" : NULL};
    return field->value != NULL ? HT_OK : HT_ENOMEM;
}

/* Fills the new list: each row, or in its place the names that were given for it. */
static ht_status finish_into(ht_fields *fields, ht_field *list, size_t *count, ht_problems *problems)
{
    for (size_t i = 0; i < fields->count; i++) {
        ht_field *row = &fields->list[i];
        if (!is_pattern(row->key)) list[(*count)++] = *row;
        for (size_t k = 0; is_pattern(row->key) && k < fields->named_count; k++)
            if (fields->named[k].key == row->key) list[(*count)++] = fields->named[k];
    }
    for (size_t i = 0; i < *count; i++)
        if (list[i].value == NULL) HT_TRY(finish_field(fields, &list[i], problems));
    return problems->failed ? HT_ENOMEM : HT_OK;
}

ht_status ht_fields_finish(ht_fields *fields, ht_problems *problems)
{
    ht_field *list = NULL;
    size_t count = 0, capacity = 0;
    if (!ht_grow((void **)&list, &capacity, fields->count + fields->named_count + 1, sizeof(ht_field)))
        return HT_ENOMEM;
    ht_status status = finish_into(fields, list, &count, problems);
    free(fields->list);
    fields->list = list;
    fields->count = count;
    fields->capacity = capacity;
    return status;
}

static ht_status read_all(ht_fields **out, const ht_key *keys, const char *block, const ht_json *object,
                          ht_problems *problems)
{
    ht_origin where = {.source = HT_SOURCE_FILE};
    HT_TRY(ht_fields_create(out, block));
    HT_TRY(ht_fields_declare(*out, keys));
    HT_TRY(ht_fields_take(*out, object, &where, problems));
    return ht_fields_finish(*out, problems);
}

ht_status ht_fields_read(ht_fields **out, ht_context *ctx, const ht_key *keys, const char *block, const ht_json *object)
{
    ht_problems problems = {0};
    *out = NULL;
    ht_status status = read_all(out, keys, block, object, &problems);
    if (status != HT_OK)
        ht_fail(ctx, status, "%s: out of memory", block);
    else
        status = ht_problems_status(&problems, ctx);
    ht_problems_free(&problems);
    if (status != HT_OK) {
        ht_fields_free(*out);
        *out = NULL;
    }
    return status;
}

/* ---- looking at values ---- */

size_t ht_fields_count(const ht_fields *fields)
{
    return fields->count;
}

const ht_field *ht_fields_at(const ht_fields *fields, size_t index)
{
    return index < fields->count ? &fields->list[index] : NULL;
}

const ht_field *ht_fields_find(const ht_fields *fields, const char *name)
{
    return find(fields, name);
}

static const ht_field *known(const ht_fields *fields, const char *name)
{
    const ht_field *field = find(fields, name);
    assert(field != NULL && field->value != NULL);
    return field;
}

int64_t ht_field_int(const ht_fields *fields, const char *name)
{
    int64_t integer = 0;
    bool is_integer = ht_json_as_int(known(fields, name)->value, &integer);
    assert(is_integer);
    return integer;
}

double ht_field_number(const ht_fields *fields, const char *name)
{
    double number = 0;
    bool is_number = ht_json_as_number(known(fields, name)->value, &number);
    assert(is_number);
    return number;
}

bool ht_field_bool(const ht_fields *fields, const char *name)
{
    const ht_json *value = known(fields, name)->value;
    assert(value->kind == HT_JSON_BOOL);
    return value->boolean;
}

const char *ht_field_text(const ht_fields *fields, const char *name)
{
    const ht_json *value = known(fields, name)->value;
    assert(value->kind == HT_JSON_STRING || value->kind == HT_JSON_NULL);
    return value->kind == HT_JSON_STRING ? value->text : NULL;
}

const ht_json *ht_field_json(const ht_fields *fields, const char *name)
{
    const ht_json *value = known(fields, name)->value;
    return value->kind != HT_JSON_NULL ? value : NULL;
}

bool ht_field_given(const ht_fields *fields, const char *name)
{
    return known(fields, name)->origin.source != HT_SOURCE_DEFAULT;
}

bool ht_field_null(const ht_fields *fields, const char *name)
{
    return known(fields, name)->value->kind == HT_JSON_NULL;
}

size_t ht_field_count(const ht_fields *fields, const char *name)
{
    const ht_json *value = known(fields, name)->value;
    return value->kind == HT_JSON_ARRAY ? value->count : value->kind != HT_JSON_NULL;
}

static const ht_json *element_at(const ht_fields *fields, const char *name, size_t index)
{
    const ht_json *value = known(fields, name)->value;
    assert(index < ht_field_count(fields, name));
    if (value->kind != HT_JSON_ARRAY) return value;
    for (value = value->child; index > 0; index--) value = value->next;
    return value;
}

int64_t ht_field_int_at(const ht_fields *fields, const char *name, size_t index)
{
    int64_t integer = 0;
    bool is_integer = ht_json_as_int(element_at(fields, name, index), &integer);
    assert(is_integer);
    return integer;
}

double ht_field_number_at(const ht_fields *fields, const char *name, size_t index)
{
    double number = 0;
    bool is_number = ht_json_as_number(element_at(fields, name, index), &number);
    assert(is_number);
    return number;
}

const char *ht_field_text_at(const ht_fields *fields, const char *name, size_t index)
{
    const ht_json *value = element_at(fields, name, index);
    assert(value->kind == HT_JSON_STRING);
    return value->text;
}
