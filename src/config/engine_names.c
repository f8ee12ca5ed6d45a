#include "config/internal.h"

#include <stdio.h>
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

bool ht_is_engine_name(const char *name)
{
    size_t length = strlen(name);
    for (const ht_key *key = ht_engine_keys; key->name != NULL; key++)
        if (strncmp(key->name, name, length) == 0 && (key->name[length] == '.' || key->name[length] == '\0'))
            return true;
    return strcmp(name, "bfloat16") == 0;
}

/* The length of the place inside a block that a key of this name has: "zero_optimization.offload_optimizer"; 0: none. */
static size_t place_inside(const char *key, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = strchr(key, '.'); at != NULL; at = strchr(at + 1, '.'))
        if (strncmp(at + 1, name, length) == 0 && (at[1 + length] == '.' || at[1 + length] == '\0'))
            return (size_t)(at - key) + 1 + length;
    return 0;
}

/* What a name at the top could have meant: one that resembles it, or a key of a block. */
static void add_hint(ht_text *text, const char *name)
{
    const char *near = NULL;
    int least = (int)(strlen(name) < 63 ? strlen(name) : 63) / 3 + 2;
    for (const ht_key *key = ht_engine_keys; key->name != NULL && strlen(name) < 64; key++) {
        char top[64];
        snprintf(top, sizeof top, "%.*s", (int)strcspn(key->name, "."), key->name);
        int edits = ht_edit_distance(top, name);
        if (edits < least) near = key->name;
        if (edits < least) least = edits;
    }
    for (const ht_key *key = ht_engine_keys; key->name != NULL && (near == NULL || least > 1); key++) {
        size_t length = place_inside(key->name, name);
        if (length == 0) continue;
        ht_text_add(text, "; it belongs to %.*s", (int)length, key->name);
        return;
    }
    if (near != NULL) ht_text_add(text, "; did you mean \"%.*s\"?", (int)strcspn(near, "."), near);
}

/* ---- what DeepSpeed does not know ---- */

/* Is the path a row's, or on the way to it? "*" in a row stands for any name, and what is inside a row is its own. */
static bool leads_to(const char *row, const char *path)
{
    for (;;) {
        size_t wanted = strcspn(row, "."), given = strcspn(path, ".");
        bool any = wanted == 1 && *row == '*';
        if (!any && (wanted != given || memcmp(row, path, given) != 0)) return false;
        if (row[wanted] == '\0' || path[given] == '\0') return true;
        row += wanted + 1;
        path += given + 1;
    }
}

static bool is_known(const char *path)
{
    for (const ht_key *key = ht_engine_keys; key->name != NULL; key++)
        if (leads_to(key->name, path)) return true;
    return false;
}

/* The members of an object that are known, one level after the other. Parameters of optimisers and schedules are not
 * DeepSpeed's to know: they are checked by their types. */
static const ht_json *known_members(ht_config *c, const ht_json *object, const char *path, const ht_origin *where)
{
    ht_json *copy = HT_NEW(c->arena, ht_json, 1);
    if (copy == NULL) return NULL;
    *copy = *object;
    if (object->kind != HT_JSON_OBJECT) return copy;
    copy->keys = NULL;
    copy->child = NULL;
    const ht_json **tail = &copy->child;
    for (const ht_json *member = object->child; member != NULL; member = member->next) {
        char inside[256];
        int length = snprintf(inside, sizeof inside, "%s%s%s", path, *path != '\0' ? "." : "", member->key);
        bool params = strcmp(inside, "optimizer.params") == 0 || strcmp(inside, "scheduler.params") == 0;
        bool known =
            length < 0 || (size_t)length >= sizeof inside || ht_key_is_comment(member->key) || is_known(inside);
        ht_origin at = *where;
        at.line = member->line;
        if (!known && !params) {
            ht_problems_warn(&c->problems, &at, "left out: %s%s%.200s is unknown", c->engine_block,
                             c->engine_block[0] != '\0' ? "." : "", inside);
            continue;
        }
        const ht_json *kept = params ? member : known_members(c, member, inside, where);
        ht_json *now = kept != NULL ? HT_NEW(c->arena, ht_json, 1) : NULL;
        if (now == NULL) return NULL;
        *now = *kept;
        now->next = NULL;
        *tail = now;
        tail = &now->next;
    }
    return copy;
}

const ht_json *ht_engine_known(ht_config *c, const ht_json *tree, const ht_origin *where)
{
    return where->source == HT_SOURCE_FILE && tree->kind == HT_JSON_OBJECT ? known_members(c, tree, "", where) : tree;
}

/* A name at the top that DeepSpeed does not know: it ignores these, and many files hold keys of other programs. On the
 * command line such a name stays an error. */
static bool is_ignored(ht_config *c, const ht_json *member, const ht_origin *where)
{
    if (where->source != HT_SOURCE_FILE || ht_key_is_comment(member->key) || ht_is_engine_name(member->key))
        return false;
    if (ht_problems_full(&c->problems)) return true;
    ht_text hint = {0};
    add_hint(&hint, member->key);
    ht_origin at = *where;
    at.line = member->line;
    ht_problems_warn(&c->problems, &at, "%s%s%.100s: unknown key, ignored as in DeepSpeed%s", c->engine_block,
                     c->engine_block[0] != '\0' ? "." : "", member->key, hint.length > 0 ? hint.data : "");
    c->problems.failed |= hint.failed;
    ht_text_free(&hint);
    return true;
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
    copy->child = NULL;
    const ht_json **tail = &copy->child;
    for (const ht_json *member = tree->child; member != NULL; member = member->next) {
        if (is_ignored(c, member, where)) continue;
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
