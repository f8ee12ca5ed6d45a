/* Starting from weights that are there: train.init_from, train.freeze, train.pruned, train.sparse and
 * train.groups. */
#include <math.h>
#include <regex.h>
#include <string.h>

#include "config/internal.h"

/* A value while it is checked, and what a message calls it. */
typedef struct place {
    ht_config *c;
    const ht_field *field;
    const char *key;
} place;

static place train_key(ht_config *c, const char *name, const char *key)
{
    return (place){c, ht_fields_find(c->blocks[BLOCK_TRAIN], name), key};
}

bool ht_check_expression(ht_config *c, const ht_field *field, const char *key, const char *expression, size_t *groups)
{
    regex_t compiled;
    int wrong = regcomp(&compiled, expression, REG_EXTENDED);
    if (wrong) {
        char why[128];
        regerror(wrong, &compiled, why, sizeof why);
        ht_problems_error(&c->problems, &field->origin, "%s: \"%.100s\" is no regular expression: %s", key, expression,
                          why);
        return false;
    }
    if (groups) *groups = compiled.re_nsub;
    regfree(&compiled);
    return true;
}

static void expected(const place *p, const char *what, const ht_json *found)
{
    ht_problems_error(&p->c->problems, &p->field->origin, "%s: expected %s, found %s", p->key, what,
                      found ? ht_json_kind_name(found->kind) : "nothing");
}

/* Only these members may stand in the object. */
static void check_members(const place *p, const ht_json *object, const char *const *known)
{
    for (const ht_json *member = object->child; member; member = member->next) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], member->key) != 0) i++;
        if (!known[i] && !ht_key_is_comment(member->key))
            ht_problems_error(&p->c->problems, &p->field->origin, "%s: there is no key \"%.100s\"", p->key,
                              member->key);
    }
}

/* A text without zero bytes. */
static bool is_text(const ht_json *value)
{
    return value && value->kind == HT_JSON_STRING && strlen(value->text) == value->length;
}

static bool is_text_or_null(const ht_json *value)
{
    return value && (value->kind == HT_JSON_NULL || is_text(value));
}

/* ---- init_from ---- */

/* \1 … \9 in a replacement stand for parts of the match, which must be there. */
static void check_replacement(const place *p, const char *match, const char *replace, size_t groups)
{
    for (const char *at = strchr(replace, '\\'); at; at = at[1] ? strchr(at + 2, '\\') : NULL) {
        if (at[1] == '\\' || (at[1] >= '0' && at[1] <= '9' && (size_t)(at[1] - '0') <= groups)) continue;
        ht_problems_error(&p->c->problems, &p->field->origin,
                          "%s: \"%.100s\": a backslash stands before another one or before the number of a pair of "
                          "parentheses of \"%.100s\", which has %zu",
                          p->key, replace, match, groups);
        return;
    }
}

static void check_rules(const place *p, const ht_json *list)
{
    static const char *const known[] = {"match", "replace", NULL};
    for (const ht_json *rule = list->child; rule; rule = rule->next) {
        const ht_json *match = ht_json_get(rule, "match"), *replace = ht_json_get(rule, "replace");
        size_t groups;
        if (rule->kind != HT_JSON_OBJECT || !is_text(match) || !is_text_or_null(replace)) {
            expected(p, "{\"match\": expression, \"replace\": text or null}", rule);
            continue;
        }
        check_members(p, rule, known);
        if (ht_check_expression(p->c, p->field, p->key, match->text, &groups) && replace->kind == HT_JSON_STRING)
            check_replacement(p, match->text, replace->text, groups);
    }
}

static void check_map(ht_config *c, const ht_json *map)
{
    place p = train_key(c, "init_from", "train.init_from.map");
    if (!map || map->kind == HT_JSON_NULL) return;
    if (map->kind == HT_JSON_ARRAY) {
        check_rules(&p, map);
    } else if (map->kind != HT_JSON_OBJECT) {
        expected(&p, "an object of names, or a list of {\"match\", \"replace\"}", map);
    } else {
        for (const ht_json *name = map->child; name; name = name->next)
            if (!is_text_or_null(name)) expected(&p, "names as text, or null for a tensor that is left out", name);
    }
}

static void check_init_from(ht_config *c)
{
    static const char *const known[] = {"path", "map", "strict", NULL};
    place p = train_key(c, "init_from", "train.init_from");
    const ht_json *value = p.field->value, *path = value;
    if (value->kind == HT_JSON_NULL) return;
    if (value->kind == HT_JSON_OBJECT) {
        const ht_json *strict = ht_json_get(value, "strict");
        path = ht_json_get(value, "path");
        check_members(&p, value, known);
        check_map(c, ht_json_get(value, "map"));
        if (strict && strict->kind != HT_JSON_BOOL) expected(&p, "true or false for \"strict\"", strict);
    }
    if (!is_text(path) || path->length == 0) expected(&p, "a path, or an object with a \"path\"", path);
}

/* ---- freeze, pruned, sparse and groups ---- */

static bool check_count(const place *p, size_t count)
{
    if (count <= HT_MOST_PARAM_PATTERNS) return true;
    ht_problems_error(&p->c->problems, &p->field->origin, "%s: more than %d", p->key, HT_MOST_PARAM_PATTERNS);
    return false;
}

static void check_expressions(ht_config *c, const char *name, const char *key)
{
    place p = train_key(c, name, key);
    size_t count = ht_field_count(c->blocks[BLOCK_TRAIN], name);
    if (!check_count(&p, count)) return;
    for (size_t i = 0; i < count; i++)
        ht_check_expression(c, p.field, p.key, ht_field_text_at(c->blocks[BLOCK_TRAIN], name, i), NULL);
}

static bool is_number(const ht_json *value)
{
    double number;
    return !value || (ht_json_as_number(value, &number) && number >= 0 && isfinite(number));
}

static void check_group(const place *p, const ht_json *group)
{
    static const char *const known[] = {"match", "lr_scale", "weight_decay", NULL};
    const ht_json *match = ht_json_get(group, "match"), *decay = ht_json_get(group, "weight_decay");
    if (!is_text(match)) {
        expected(p, "{\"match\": expression, \"lr_scale\": number, \"weight_decay\": number}", group);
        return;
    }
    check_members(p, group, known);
    ht_check_expression(p->c, p->field, p->key, match->text, NULL);
    if (!is_number(ht_json_get(group, "lr_scale")) ||
        !(is_number(decay) || decay->kind == HT_JSON_NULL)) /* null: as all others */
        ht_problems_error(&p->c->problems, &p->field->origin,
                          "%s: lr_scale and weight_decay of \"%.100s\" are numbers that are not negative", p->key,
                          match->text);
}

static void check_groups(ht_config *c)
{
    place p = train_key(c, "groups", "train.groups");
    const ht_json *list = p.field->value;
    if (list->kind == HT_JSON_NULL) return;
    if (list->kind != HT_JSON_ARRAY)
        expected(&p, "a list of groups", list);
    else if (check_count(&p, list->count))
        for (const ht_json *group = list->child; group; group = group->next) check_group(&p, group);
}

void ht_fine_tuning_rules(ht_config *c)
{
    check_init_from(c);
    check_expressions(c, "freeze", "train.freeze");
    check_expressions(c, "pruned", "train.pruned");
    check_expressions(c, "sparse", "train.sparse");
    check_groups(c);
}

/* ---- as plain values ---- */

void ht_fine_tuning_fill(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    ht_train_config *r = &c->train_config;
    const ht_json *init = ht_field_json(train, "init_from"), *groups = ht_field_json(train, "groups");
    bool object = init && init->kind == HT_JSON_OBJECT;
    const ht_json *path = object ? ht_json_get(init, "path") : init, *map = ht_json_get(init, "map");
    const ht_json *strict = ht_json_get(init, "strict");
    r->init_path = path ? path->text : NULL;
    r->init_map = map && map->kind != HT_JSON_NULL ? map : NULL;
    r->init_strict = !strict || strict->boolean;
    r->freeze_count = ht_field_count(train, "freeze");
    for (size_t i = 0; i < r->freeze_count; i++) r->freeze[i] = ht_field_text_at(train, "freeze", i);
    r->pruned_count = ht_field_count(train, "pruned");
    for (size_t i = 0; i < r->pruned_count; i++) r->pruned[i] = ht_field_text_at(train, "pruned", i);
    r->sparse.count = ht_field_count(train, "sparse");
    for (size_t i = 0; i < r->sparse.count; i++) r->sparse.weights[i] = ht_field_text_at(train, "sparse", i);
    for (const ht_json *group = groups ? groups->child : NULL; group; group = group->next) {
        const ht_json *scale = ht_json_get(group, "lr_scale"), *decay = ht_json_get(group, "weight_decay");
        ht_param_group *to = &r->groups[r->group_count++];
        *to = (ht_param_group){ht_json_get(group, "match")->text, 1, NAN};
        if (scale) ht_json_as_number(scale, &to->lr_scale);
        if (decay && decay->kind != HT_JSON_NULL) ht_json_as_number(decay, &to->weight_decay);
    }
}
