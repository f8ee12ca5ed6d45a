/* Layers that compute with codes: train.quantize, a list of groups. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/internal.h"

/* A group while it is read; problems are told of train.quantize[index]. */
typedef struct reader {
    ht_config *c;
    const ht_field *field;
    size_t index;
    bool wrong;
} reader;

static void problem(reader *r, const char *member, const char *what)
{
    r->wrong = true;
    ht_problems_error(&r->c->problems, &r->field->origin, "train.quantize[%zu]%s%s: %s", r->index, member[0] ? "." : "",
                      member, what);
}

static bool check_members(reader *r, const char *member, const ht_json *object, const char *const *known)
{
    char what[256];
    if (object->kind != HT_JSON_OBJECT) {
        snprintf(what, sizeof what, "expected an object, found %s", ht_json_kind_name(object->kind));
        problem(r, member, what);
        return false;
    }
    for (const ht_json *at = object->child; at; at = at->next) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], at->key) != 0) i++;
        if (known[i] || ht_key_is_comment(at->key)) continue;
        snprintf(what, sizeof what, "there is no key \"%.100s\"", at->key);
        problem(r, member, what);
    }
    return !r->wrong;
}

static void read_int(reader *r, const char *member, const ht_json *value, int64_t low, int64_t high, int64_t *to)
{
    char what[160];
    if (!value || (ht_json_as_int(value, to) && *to >= low && *to <= high)) return;
    snprintf(what, sizeof what, "expected a whole number from %" PRId64 " to %" PRId64, low, high);
    problem(r, member, what);
}

static void read_bool(reader *r, const char *member, const ht_json *value, bool *to)
{
    if (value && value->kind != HT_JSON_BOOL)
        problem(r, member, "expected true or false");
    else if (value)
        *to = value->boolean;
}

/* The place of a word in a list that ends with NULL. */
static int read_word(reader *r, const char *member, const ht_json *value, const char *const *words, int standard)
{
    char what[160] = "expected";
    for (int i = 0; words[i]; i++) {
        if (!value) return standard;
        if (value->kind == HT_JSON_STRING && strcmp(value->text, words[i]) == 0) return i;
        size_t length = strlen(what);
        snprintf(what + length, sizeof what - length, "%s \"%s\"", i ? " or" : "", words[i]);
    }
    problem(r, member, what);
    return standard;
}

/* null: the layers compute with floats. */
static void read_weights(reader *r, const ht_json *object, ht_quantize_group *to)
{
    static const char *const known[] = {"format", "bits", "granularity", "group", "symmetric", NULL};
    static const char *const granularities[] = {"tensor", "channel", "group", NULL}; /* as ht_granularity */
    static const char *const formats[] = {"int", "ternary", "binary", "fp8", NULL};  /* as ht_code_kind */
    int64_t bits = to->weights.bits;
    if (object && object->kind == HT_JSON_NULL) to->weights.bits = 0;
    if (!object || object->kind == HT_JSON_NULL || !check_members(r, "weights", object, known)) return;
    read_int(r, "weights.bits", ht_json_get(object, "bits"), 2, 8, &bits);
    read_int(r, "weights.group", ht_json_get(object, "group"), 1, INT64_C(1) << 30, &to->weights.group);
    read_bool(r, "weights.symmetric", ht_json_get(object, "symmetric"), &to->weights.symmetric);
    to->weights.kind = (ht_code_kind)read_word(r, "weights.format", ht_json_get(object, "format"), formats, 0);
    if (to->weights.kind != HT_CODES_INT && ht_json_get(object, "bits"))
        problem(r, "weights.bits", "only the format \"int\" has bits");
    const ht_code_format *format = ht_code_format_of(to->weights.kind, (int)bits);
    if (format) to->weights.bits = format->bits;
    to->weights.granularity = (ht_granularity)read_word(r, "weights.granularity", ht_json_get(object, "granularity"),
                                                        granularities, (int)to->weights.granularity);
}

/* null: they stay floats. */
static void read_activations(reader *r, const ht_json *object, ht_quantize_group *to)
{
    static const char *const known[] = {"bits", "range", "symmetric", NULL};
    static const char *const ranges[] = {"dynamic", "static", "learned", NULL}; /* as ht_quantize_range */
    int64_t bits = to->activations.bits;
    if (object && object->kind == HT_JSON_NULL) to->activations.bits = 0;
    if (!object || object->kind == HT_JSON_NULL || !check_members(r, "activations", object, known)) return;
    read_int(r, "activations.bits", ht_json_get(object, "bits"), 8, 8, &bits);
    read_bool(r, "activations.symmetric", ht_json_get(object, "symmetric"), &to->activations.symmetric);
    to->activations.bits = (int)bits;
    to->activations.range = (ht_quantize_range)read_word(r, "activations.range", ht_json_get(object, "range"), ranges,
                                                         (int)to->activations.range);
}

/* What weights and activations cannot be together. */
static void check_formats(reader *r, ht_quantize_group *group)
{
    bool f8 = group->weights.kind == HT_CODES_FP8, codes = group->weights.kind != HT_CODES_INT;
    if (f8) group->activations.symmetric = true; /* floats have no zero point */
    if (codes && group->activations.bits == 0)
        problem(r, "activations", "weights alone are codes of the format \"int\"");
    if (codes && (!group->weights.symmetric || group->weights.granularity == HT_PER_GROUP))
        problem(r, "weights", "only the format \"int\" has zero points, and scales for groups");
    if (f8 && group->activations.range == HT_RANGE_LEARNED)
        problem(r, "activations.range", "ranges of f8 are not learned");
}

static ht_quantize_group read_group(reader *r, const ht_json *object)
{
    static const char *const known[] = {"layers", "weights", "activations", NULL};
    ht_quantize_group group = ht_quantize_group_standard();
    if (!check_members(r, "", object, known)) return group;
    const ht_json *layers = ht_json_get(object, "layers");
    bool text = layers && layers->kind == HT_JSON_STRING && strlen(layers->text) == layers->length;
    if (layers && !text)
        problem(r, "layers", "expected a regular expression");
    else if (layers && ht_check_expression(r->c, r->field, "train.quantize", layers->text, NULL))
        group.layers = layers->text;
    read_weights(r, ht_json_get(object, "weights"), &group);
    read_activations(r, ht_json_get(object, "activations"), &group);
    check_formats(r, &group);
    return group;
}

void ht_quantize_rules(ht_config *c)
{
    reader r = {.c = c, .field = ht_fields_find(c->blocks[BLOCK_TRAIN], "quantize")};
    const ht_json *list = r.field->value;
    ht_quantize_options *to = &c->train_config.quantize;
    *to = (ht_quantize_options){.weights = HT_QUANTIZE_STORED};
    if (list->kind == HT_JSON_NULL) return;
    if (list->kind != HT_JSON_ARRAY || list->count > HT_MOST_PARAM_PATTERNS) {
        ht_problems_error(&c->problems, &r.field->origin, "train.quantize: expected a list of at most %d groups",
                          HT_MOST_PARAM_PATTERNS);
        return;
    }
    if (list->child && strcmp(ht_field_text(c->blocks[BLOCK_TRAIN], "precision"), "fp64") == 0)
        ht_problems_error(&c->problems, &r.field->origin,
                          "train.quantize: codes stand for numbers of f32 or half, and train.precision is fp64");
    for (const ht_json *group = list->child; group; group = group->next, r.index++)
        to->groups[to->group_count++] = read_group(&r, group);
}
