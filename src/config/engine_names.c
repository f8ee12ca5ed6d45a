#include "config/internal.h"

#include <string.h>

const ht_json *ht_member(const ht_json *object, const char *key)
{
    if (object == NULL || object->kind != HT_JSON_OBJECT) return NULL;
    for (const ht_json *member = object->child; member != NULL; member = member->next)
        if (strcmp(member->key, key) == 0) return member;
    return NULL;
}

static const ht_json *object_of(ht_arena *arena, const char *key, size_t length, const ht_json *value)
{
    ht_json *object = HT_NEW(arena, ht_json, 1), *member = HT_NEW(arena, ht_json, 1);
    char *name = ht_arena_text(arena, key, length);
    if (object == NULL || member == NULL || name == NULL) return NULL;
    *member = *value;
    member->key = name;
    member->key_length = (uint32_t)length;
    member->next = NULL;
    *object = (ht_json){.kind = HT_JSON_OBJECT, .line = value->line, .column = value->column};
    object->child = member;
    object->count = 1;
    return object;
}

const ht_json *ht_nested(ht_arena *arena, const char *path, const ht_json *value)
{
    const char *end = path + strlen(path);
    while (value != NULL) {
        const char *start = end;
        while (start > path && start[-1] != '.') start--;
        value = object_of(arena, start, (size_t)(end - start), value);
        if (start == path) break;
        end = start - 1;
    }
    return value;
}

/* Old forms of a whole block: the member that stands in its place, or the member itself. */
static ht_json *modern_member(ht_config *c, const ht_json *tree, const ht_json *member, const ht_origin *where)
{
    ht_json now = *member;
    if (strcmp(member->key, "zero_optimization") == 0 && member->kind == HT_JSON_BOOL) {
        ht_json stage = {.kind = HT_JSON_INT, .line = member->line, .column = member->column};
        stage.integer = member->boolean;
        const ht_json *object = object_of(c->arena, "stage", strlen("stage"), &stage);
        if (object == NULL) return NULL;
        now = *object;
        now.key = member->key;
        now.key_length = member->key_length;
    } else if (strcmp(member->key, "bfloat16") == 0) {
        ht_origin at = *where;
        if (at.source == HT_SOURCE_FILE) at.line = member->line;
        if (ht_member(tree, "bf16") != NULL)
            ht_problems_error(&c->problems, &at, "bfloat16: the same block is there as bf16; keep one of them");
        now.key = "bf16";
        now.key_length = 4;
    }
    ht_json *copy = HT_NEW(c->arena, ht_json, 1);
    if (copy != NULL) *copy = now;
    return copy;
}

const ht_json *ht_engine_modern(ht_config *c, const ht_json *tree, const ht_origin *where)
{
    if (tree->kind != HT_JSON_OBJECT) return tree;
    ht_json *copy = HT_NEW(c->arena, ht_json, 1);
    if (copy == NULL) return NULL;
    *copy = *tree;
    copy->keys = NULL; /* the copy is never searched */
    const ht_json **tail = &copy->child;
    for (const ht_json *member = tree->child; member != NULL; member = member->next) {
        ht_json *now = modern_member(c, tree, member, where);
        if (now == NULL) return NULL;
        now->next = NULL;
        *tail = now;
        tail = &now->next;
    }
    return copy;
}

/* Old: true and false; new: where the offloaded part goes. */
static void as_device(ht_json *value)
{
    value->text = value->boolean ? "cpu" : "none";
    value->length = strlen(value->text);
    value->kind = HT_JSON_STRING;
}

static ht_status move_value(ht_config *c, const ht_field *from, const char *to)
{
    ht_fields *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *target = ht_fields_find(engine, to);
    if (target->value != NULL) {
        ht_problems_error(&c->problems, &from->origin, "%s: %s is given too; keep the new name", from->name, to);
        return HT_OK;
    }
    ht_json value = *from->value;
    if (target->key->kind == HT_KEY_CHOICE && value.kind == HT_JSON_BOOL) as_device(&value);
    const ht_json *tree = ht_nested(c->arena, to, &value);
    return tree != NULL ? ht_fields_take(engine, tree, &from->origin, &c->problems) : HT_ENOMEM;
}

ht_status ht_engine_other_names(ht_config *c)
{
    ht_fields *engine = c->blocks[BLOCK_ENGINE];
    for (size_t i = 0; i < ht_fields_count(engine); i++) {
        const ht_field *field = ht_fields_at(engine, i);
        const char *other = ht_other_name_of(field->key);
        if (other == NULL || field->value == NULL || field->value->kind == HT_JSON_NULL) continue;
        HT_TRY(move_value(c, field, other));
    }
    return HT_OK;
}
