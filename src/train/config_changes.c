#include "train/config_changes.h"

#include <string.h>

/* The value of a key as text, in the arena. */
static const char *text_of(ht_arena *arena, const ht_json *entry)
{
    const ht_json *value = ht_json_get(entry, "value");
    ht_text text = {0};
    if (!value) return "not set";
    ht_json_print(&text, value);
    const char *own = text.failed ? NULL : ht_arena_text(arena, text.data, text.length);
    ht_text_free(&text);
    return own;
}

static bool is_default(const ht_json *entry)
{
    const ht_json *origin = ht_json_get(entry, "origin");
    return origin && origin->kind == HT_JSON_STRING && strcmp(origin->text, "default") == 0;
}

static const ht_json *values_of(const ht_json *root)
{
    const ht_json *values = ht_json_get(root, "values");
    return values && values->kind == HT_JSON_OBJECT ? values : NULL;
}

static bool add(ht_config_changes *c, const ht_json *before, const ht_json *after)
{
    if (!before ? is_default(after) : !after && is_default(before)) return true; /* a key of one version only */
    ht_config_change change = {(before ? before : after)->key, text_of(c->arena, before), text_of(c->arena, after)};
    if (!change.before || !change.after) return false;
    if (strcmp(change.before, change.after) != 0) c->list[c->count++] = change;
    return true;
}

static size_t count_of(const ht_json *values)
{
    size_t count = 0;
    for (const ht_json *entry = values ? values->child : NULL; entry; entry = entry->next) count++;
    return count;
}

static ht_status compare(ht_config_changes *c, ht_context *ctx, const ht_json *before, const ht_json *after)
{
    c->list = HT_NEW(c->arena, ht_config_change, count_of(before) + count_of(after) + 1);
    bool ok = c->list != NULL;
    for (const ht_json *entry = after->child; entry && ok; entry = entry->next)
        ok = add(c, ht_json_get(before, entry->key), entry);
    for (const ht_json *entry = before->child; entry && ok; entry = entry->next)
        if (!ht_json_get(after, entry->key)) ok = add(c, entry, NULL);
    if (!ok) HT_FAIL(ctx, HT_ENOMEM, "out of memory to compare configs");
    return HT_OK;
}

ht_status ht_config_changes_find(ht_config_changes *out, ht_context *ctx, const char *before, const ht_config *now)
{
    ht_text text = {0};
    const ht_json *old_root, *new_root;
    *out = (ht_config_changes){.arena = ht_arena_create()};
    if (!out->arena) HT_FAIL(ctx, HT_ENOMEM, "out of memory to compare configs");
    if (!before) return HT_OK;
    ht_config_print_json(&text, now);
    ht_status status = text.failed ? ht_fail(ctx, HT_ENOMEM, "out of memory to compare configs") : HT_OK;
    if (status == HT_OK) status = ht_json_parse(ctx, out->arena, "config", before, strlen(before), &old_root);
    if (status == HT_OK) status = ht_json_parse(ctx, out->arena, "config", text.data, text.length, &new_root);
    if (status == HT_OK && values_of(old_root) && values_of(new_root))
        status = compare(out, ctx, values_of(old_root), values_of(new_root));
    ht_text_free(&text);
    return status;
}

void ht_config_changes_free(ht_config_changes *changes)
{
    ht_arena_free(changes->arena);
    *changes = (ht_config_changes){0};
}

const ht_config_change *ht_config_changes_of(const ht_config_changes *changes, const char *key)
{
    for (size_t i = 0; i < changes->count; i++)
        if (strcmp(changes->list[i].key, key) == 0) return &changes->list[i];
    return NULL;
}

static bool decides_state(const char *key)
{
    static const char *const keys[] = {"train.task",    "train.optimizer", "train.precision",
                                       "train.masters", "train.freeze",    "train.groups"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return strncmp(key, "model.", 6) == 0 || strncmp(key, "data.", 5) == 0 || strncmp(key, "halftone.", 9) == 0;
}

void ht_config_changes_name_state(const ht_config_changes *changes, ht_text *text)
{
    enum { MOST = 6 };
    int named = 0;
    for (size_t i = 0; i < changes->count && named < MOST; i++) {
        const ht_config_change *c = &changes->list[i];
        if (decides_state(c->key))
            ht_text_add(text, "%s%s: %s -> %s", named++ ? ", " : "", c->key, c->before, c->after);
    }
}
