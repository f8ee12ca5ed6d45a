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

/* Why a key of the engine config has no effect, or not yet. That of the block of ZeRO is that there is one rank. */
static const char *reason_of(const ht_config *c, const ht_field *field)
{
    bool ranks = c->ranks > 1 && strncmp(field->key->name, "zero_optimization.", 18) == 0;
    const char *reason = ranks ? NULL : ht_engine_block_reason(field->key->name);
    return reason != NULL ? reason : field->key->help;
}

const char *ht_field_remark(const ht_config *c, block_id block, const ht_field *field)
{
    if (!was_given(field)) return NULL;
    switch (ht_support_of(field->key)) {
    case HT_SUPPORT_RANKS: return c->ranks == 1 ? "nothing to do on one rank" : NULL;
    case HT_SUPPORT_ONE_RANK: return c->ranks == 1 ? "nothing to do on one rank" : "without effect";
    case HT_SUPPORT_UNNEEDED: return block == BLOCK_ENGINE ? reason_of(c, field) : NULL;
    case HT_SUPPORT_COMPRESS: return ht_field_is_default_value(field) ? NULL : "left to halftone compress";
    case HT_SUPPORT_LATER: return ht_field_is_default_value(field) ? NULL : "not there yet";
    case HT_SUPPORT_OTHER: return field->key->help;
    default: return NULL;
    }
}

/* An error of training, unless it may do without: then it is told what was left out, and what that means. */
static void report(ht_config *c, const ht_field *field, const char *path, const char *reason, bool changes)
{
    if (ht_support_of(field->key) == HT_SUPPORT_COMPRESS)
        ht_problems_warn(&c->problems, &field->origin, "%s: training leaves it as it is: %s", path, reason);
    else if (c->lenient)
        ht_problems_warn(&c->problems, &field->origin, "left out%s: %s: %s",
                         changes ? ", which changes the mathematics" : "", path, reason);
    else if (c->training)
        ht_problems_error(&c->problems, &field->origin, "%s: not there yet: %s", path, reason);
    else
        ht_problems_warn(&c->problems, &field->origin, "%s: not there yet: %s", path, reason);
}

/* Keys of several ranks without which something else is learnt. */
static bool changes_on_ranks(const ht_config *c, const ht_field *field)
{
    static const char *const keys[] = {"gradient_allreduce_op", "zero_optimization.zero_quantized_weights",
                                       "zero_optimization.zero_quantized_nontrainable_weights",
                                       "zero_optimization.zero_quantized_gradients"};
    const char *name = field->key->name;
    if (c->ranks == 1) return false;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(name, keys[i]) == 0) return true;
    return strcmp(name, "seq_parallel_communication_data_type") == 0 &&
           ht_field_bool(c->blocks[BLOCK_HALFTONE], "parallel.sequence");
}

static bool asks_for_more(const ht_config *c, const ht_field *field)
{
    ht_support support = ht_support_of(field->key);
    bool later = support == HT_SUPPORT_LATER || support == HT_SUPPORT_COMPRESS || changes_on_ranks(c, field);
    if (!later || !was_given(field)) return false;
    return field->origin.source != HT_SOURCE_DERIVED && !ht_field_is_default_value(field);
}

/* Keys with one reason, which are reported together: "a is 1, b is true: not there yet: …". */
typedef struct later_keys {
    const ht_field *first;
    const char *reason;
    ht_text keys;
} later_keys;

static void report_keys(ht_config *c, later_keys *later)
{
    c->problems.failed |= later->keys.failed;
    bool changes =
        later->first != NULL && (ht_engine_block_changes(later->first->key->name) || changes_on_ranks(c, later->first));
    if (later->first != NULL && !later->keys.failed) report(c, later->first, later->keys.data, later->reason, changes);
    ht_text_free(&later->keys);
    *later = (later_keys){0};
}

static void add_later(ht_config *c, block_id block, const ht_field *field, later_keys *later)
{
    bool engine = block == BLOCK_ENGINE;
    const char *reason = engine ? reason_of(c, field) : field->key->help;
    if (later->first != NULL && strcmp(later->reason, reason) != 0) report_keys(c, later);
    const char *prefix = engine ? c->engine_block : ht_block_names[block];
    ht_text_add(&later->keys, "%s%s%s%s is ", later->first != NULL ? ", " : "", prefix, prefix[0] != '\0' ? "." : "",
                field->name);
    ht_json_print(&later->keys, field->value);
    if (later->first == NULL) *later = (later_keys){field, reason, later->keys};
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
    if (c->lenient)
        ht_text_add(&known, "%s stands in for it", ht_field_text(c->blocks[BLOCK_TRAIN], "optimizer"));
    else
        list_optimizers(&known);
    if (!path.failed && !known.failed) report(c, field, path.data, known.data, true);
    ht_text_free(&path);
    ht_text_free(&known);
}

void ht_config_check_support(ht_config *c)
{
    static const block_id ours[] = {BLOCK_TRAIN, BLOCK_HALFTONE, BLOCK_ENGINE};
    for (size_t b = 0; b < sizeof ours / sizeof ours[0]; b++) {
        later_keys later = {0};
        const ht_fields *fields = c->blocks[ours[b]];
        for (size_t i = 0; i < ht_fields_count(fields); i++)
            if (asks_for_more(c, ht_fields_at(fields, i))) add_later(c, ours[b], ht_fields_at(fields, i), &later);
        report_keys(c, &later);
    }
    report_optimizer(c);
}
