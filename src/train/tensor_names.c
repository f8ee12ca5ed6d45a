#include "train/tensor_names.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

enum { MATCHES = 10 }; /* the whole, and \1 … \9 */

typedef struct rule {
    regex_t expression;
    const char *replace; /* NULL: what matches is left out */
} rule;

struct ht_tensor_names {
    ht_context *ctx;
    ht_arena *arena;
    const ht_json *table; /* or NULL */
    rule *rules;
    size_t rule_count;
};

static ht_status no_memory(ht_context *ctx)
{
    return ht_fail(ctx, HT_ENOMEM, "out of memory for the names of tensors");
}

/* ---- open and close ---- */

static ht_status add_rules(ht_tensor_names *names, const ht_json *list)
{
    names->rules = calloc(list->count + 1, sizeof *names->rules);
    if (!names->rules) return no_memory(names->ctx);
    for (const ht_json *given = list->child; given; given = given->next) {
        rule *to = &names->rules[names->rule_count];
        const ht_json *match = ht_json_get(given, "match"), *replace = ht_json_get(given, "replace");
        if (regcomp(&to->expression, match->text, REG_EXTENDED) != 0) return no_memory(names->ctx);
        to->replace = replace->kind == HT_JSON_STRING ? replace->text : NULL;
        names->rule_count++;
    }
    return HT_OK;
}

ht_status ht_tensor_names_create(ht_tensor_names **out, ht_context *ctx, const ht_json *map)
{
    ht_tensor_names *names = *out = calloc(1, sizeof *names);
    if (!names) return no_memory(ctx);
    names->ctx = ctx;
    names->arena = ht_arena_create();
    ht_status status = names->arena ? HT_OK : no_memory(ctx);
    if (map && map->kind == HT_JSON_OBJECT) names->table = map;
    if (map && map->kind == HT_JSON_ARRAY && status == HT_OK) status = add_rules(names, map);
    if (status == HT_OK) return HT_OK;
    ht_tensor_names_free(names);
    *out = NULL;
    return status;
}

void ht_tensor_names_free(ht_tensor_names *names)
{
    if (!names) return;
    for (size_t i = 0; i < names->rule_count; i++) regfree(&names->rules[i].expression);
    free(names->rules);
    ht_arena_free(names->arena);
    free(names);
}

/* ---- a name ---- */

static void add_part(ht_text *text, const char *name, regmatch_t part)
{
    if (part.rm_so >= 0) ht_text_add(text, "%.*s", (int)(part.rm_eo - part.rm_so), name + part.rm_so);
}

/* What stands instead of a match. */
static void add_replacement(ht_text *text, const char *replace, const char *name, const regmatch_t *parts)
{
    for (const char *at = replace; *at; at++) {
        if (*at != '\\')
            ht_text_add(text, "%c", *at);
        else if (*++at == '\\')
            ht_text_add(text, "\\");
        else
            add_part(text, name, parts[*at - '0']);
    }
}

static ht_status replace_match(ht_tensor_names *names, const rule *r, const char *name, const regmatch_t *parts,
                               const char **to)
{
    ht_text text = {0};
    ht_text_add(&text, "%.*s", (int)parts[0].rm_so, name);
    add_replacement(&text, r->replace, name, parts);
    ht_text_add(&text, "%s", name + parts[0].rm_eo);
    *to = text.failed ? NULL : ht_arena_text(names->arena, text.data, text.length);
    ht_text_free(&text);
    return *to ? HT_OK : no_memory(names->ctx);
}

ht_status ht_tensor_names_map(ht_tensor_names *names, const char *from, const char **to)
{
    const ht_json *entry = ht_json_get(names->table, from);
    *to = from;
    if (entry) *to = entry->kind == HT_JSON_STRING ? entry->text : NULL;
    for (size_t i = 0; i < names->rule_count && *to; i++) {
        const rule *r = &names->rules[i];
        regmatch_t parts[MATCHES];
        const char *name = *to;
        if (regexec(&r->expression, name, MATCHES, parts, 0) != 0) continue;
        *to = NULL;
        if (r->replace) HT_TRY(replace_match(names, r, name, parts, to));
    }
    return HT_OK;
}
