/* What Halftone makes of a key: a remark beside its value, and a warning (an error for training) where it asks for what is
 * not there yet. */
#include "config/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool ht_field_is_default_value(const ht_field *field)
{
    ht_text value = {0};
    double number, standard;
    ht_json_print(&value, field->value);
    const char *wanted = field->key->standard != NULL ? field->key->standard : "";
    bool same = !value.failed && strcmp(value.data, wanted) == 0;
    if (!same && ht_json_as_number(field->value, &number) && ht_number_read(wanted, &standard))
        same = number == standard;
    ht_text_free(&value);
    return same;
}

static bool was_given(const ht_field *field)
{
    return field->origin.source != HT_SOURCE_DEFAULT;
}

/* Why a key of the engine config has no effect, or not yet. */
static const char *reason_of(const ht_field *field)
{
    const char *reason = ht_engine_block_reason(field->key->name);
    return reason != NULL ? reason : field->key->help;
}

const char *ht_field_remark(const ht_config *c, block_id block, const ht_field *field)
{
    if (!was_given(field)) return NULL;
    switch (ht_support_of(field->key)) {
    case HT_SUPPORT_ONE_RANK: return c->ranks == 1 ? "nothing to do on one rank" : NULL;
    case HT_SUPPORT_UNNEEDED: return block == BLOCK_ENGINE ? reason_of(field) : NULL;
    case HT_SUPPORT_LATER: return ht_field_is_default_value(field) ? NULL : "not there yet";
    case HT_SUPPORT_OTHER: return field->key->help;
    default: return NULL;
    }
}

static void report(ht_config *c, const ht_field *field, const char *path, const char *reason)
{
    if (c->training)
        ht_problems_error(&c->problems, &field->origin, "%s: not there yet: %s", path, reason);
    else
        ht_problems_warn(&c->problems, &field->origin, "%s: not there yet: %s", path, reason);
}

/* One report per reason: a block of ten keys is one feature. */
static void report_later(ht_config *c, block_id block, const ht_field *field, const char **last)
{
    if (ht_support_of(field->key) != HT_SUPPORT_LATER || !was_given(field)) return;
    if (field->origin.source == HT_SOURCE_DERIVED || ht_field_is_default_value(field)) return;
    bool engine = block == BLOCK_ENGINE;
    const char *reason = engine ? reason_of(field) : field->key->help;
    if (engine && *last != NULL && strcmp(*last, reason) == 0) return;
    *last = reason;
    ht_text path = {0};
    const char *prefix = engine ? c->engine_block : ht_block_names[block];
    ht_text_add(&path, "%s%s%s is ", prefix, prefix[0] != '\0' ? "." : "", field->name);
    ht_json_print(&path, field->value);
    c->problems.failed |= path.failed;
    if (!path.failed) report(c, field, path.data, reason);
    ht_text_free(&path);
}

/* "the optimisers are Adam, AdamW and SGD" */
static void list_optimizers(ht_text *text)
{
    const char *before = "the optimisers are ", *last = NULL;
    for (size_t i = 0; i < ht_engine_type_count(); i++) {
        ht_engine_type type = ht_engine_type_at(i);
        if (strcmp(type.block, "optimizer") != 0 || type.support != HT_SUPPORT_USED) continue;
        if (last != NULL) ht_text_add(text, "%s%s", before, last);
        if (last != NULL) before = ", ";
        last = type.type;
    }
    if (last != NULL) ht_text_add(text, " and %s", last);
}

static void report_optimizer(ht_config *c)
{
    ht_engine_type type;
    const ht_field *field = ht_fields_find(c->blocks[BLOCK_ENGINE], "optimizer.type");
    if (field->value->kind != HT_JSON_STRING || field->origin.source == HT_SOURCE_DERIVED) return;
    if (!ht_engine_type_find("optimizer", field->value->text, &type) || type.support != HT_SUPPORT_LATER) return;
    ht_text path = {0}, known = {0};
    ht_text_add(&path, "optimizer.type is %s", type.type);
    list_optimizers(&known);
    if (!path.failed && !known.failed) report(c, field, path.data, known.data);
    ht_text_free(&path);
    ht_text_free(&known);
}

void ht_config_check_support(ht_config *c)
{
    static const block_id ours[] = {BLOCK_TRAIN, BLOCK_HALFTONE, BLOCK_ENGINE};
    for (size_t b = 0; b < sizeof ours / sizeof ours[0]; b++) {
        const char *last = NULL;
        const ht_fields *fields = c->blocks[ours[b]];
        for (size_t i = 0; i < ht_fields_count(fields); i++) report_later(c, ours[b], ht_fields_at(fields, i), &last);
    }
    report_optimizer(c);
    if (c->training && c->ranks > 1)
        ht_problems_error(&c->problems, NULL, "%" PRId64 " ranks: not there yet: training runs on one rank", c->ranks);
}
