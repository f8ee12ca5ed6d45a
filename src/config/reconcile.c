/* How the job's train block and DeepSpeed's config are reconciled: what one of them gives fills the other; what both
 * give must agree. "auto", and an optimizer or a scheduler that is left out, are filled by the job. */
#include "config/internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- small tools ---- */

bool ht_is_given(const ht_fields *fields, const char *name)
{
    const ht_field *field = ht_fields_find(fields, name);
    return field != NULL && field->origin.source != HT_SOURCE_DEFAULT;
}

void ht_name_field(ht_text *text, const ht_config *c, block_id block, const ht_field *field)
{
    const char *prefix = block == BLOCK_ENGINE ? c->engine_block : ht_block_names[block];
    ht_text_add(text, "%s%s%s (", prefix, prefix[0] != '\0' ? "." : "", field->name);
    ht_origin place = field->origin;
    place.why = NULL;
    ht_origin_print(text, &place);
    ht_text_add(text, ")");
}

ht_status ht_derive(ht_config *c, block_id block, const char *name, const char *json, const char *why, ...)
{
    char sentence[400];
    va_list args;
    va_start(args, why);
    vsnprintf(sentence, sizeof sentence, why, args);
    va_end(args);
    ht_origin origin = {.source = HT_SOURCE_DERIVED, .why = sentence};
    return ht_fields_set(c->blocks[block], name, json, &origin);
}

static bool same_value(const ht_json *a, const ht_json *b)
{
    double x, y;
    if (ht_json_as_number(a, &x) && ht_json_as_number(b, &y)) return x == y;
    if (a->kind != b->kind) return false;
    ht_text left = {0}, right = {0};
    ht_json_print(&left, a);
    ht_json_print(&right, b);
    bool same = !left.failed && !right.failed && strcmp(left.data, right.data) == 0;
    ht_text_free(&left);
    ht_text_free(&right);
    return same;
}

/* "train.lr is 0.1 (job.json:3), but optimizer.params.lr is 0.2 (ds.json:7)…" */
void ht_clash(ht_config *c, const ht_field *t, const ht_field *e)
{
    ht_text text = {0};
    ht_name_field(&text, c, BLOCK_TRAIN, t);
    ht_text_add(&text, " is ");
    ht_json_print(&text, t->value);
    ht_text_add(&text, ", but ");
    ht_name_field(&text, c, BLOCK_ENGINE, e);
    ht_text_add(&text, " is ");
    ht_json_print(&text, e->value);
    if (!text.failed && c->lenient)
        ht_problems_warn(&c->problems, NULL, "%.600s: the job's holds", text.data);
    else if (!text.failed)
        ht_problems_error(&c->problems, NULL, "%.600s: leave out one of them, or write \"auto\" in the engine config",
                          text.data);
    c->problems.failed |= text.failed;
    ht_text_free(&text);
}

ht_status ht_derive_from(ht_config *c, block_id to, const char *name, block_id from, const ht_field *field)
{
    ht_text value = {0}, why = {0};
    ht_json_print(&value, field->value);
    ht_name_field(&why, c, from, field);
    ht_status status = value.failed || why.failed ? HT_ENOMEM : ht_derive(c, to, name, value.data, "%s", why.data);
    ht_text_free(&value);
    ht_text_free(&why);
    return status;
}

/* ---- pairs of keys that mean the same ---- */

ht_status ht_reconcile_pair(ht_config *c, const char *train_name, const char *engine_name, pair_rule rule)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *t = ht_fields_find(train, train_name), *e = ht_fields_find(engine, engine_name);
    if (!c->has_engine || e == NULL) return HT_OK;
    bool t_given = ht_is_given(train, train_name), e_given = ht_is_given(engine, engine_name);
    if (t_given && e_given) {
        if (rule != PAIR_AGREE || same_value(t->value, e->value)) return HT_OK;
        ht_clash(c, t, e);
        return c->lenient ? ht_derive_from(c, BLOCK_ENGINE, engine_name, BLOCK_TRAIN, t) : HT_OK;
    }
    if (e_given) return rule != PAIR_FILL ? ht_derive_from(c, BLOCK_TRAIN, train_name, BLOCK_ENGINE, e) : HT_OK;
    bool fill = t_given || c->bare || e->is_auto || e->value->kind == HT_JSON_NULL;
    if (fill && t->value->kind != HT_JSON_NULL) return ht_derive_from(c, BLOCK_ENGINE, engine_name, BLOCK_TRAIN, t);
    if (rule != PAIR_FILL && e->value->kind != HT_JSON_NULL)
        return ht_derive_from(c, BLOCK_TRAIN, train_name, BLOCK_ENGINE, e);
    return HT_OK;
}

/* ---- clipping ---- */

static ht_status reconcile_clip(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *e = ht_fields_find(engine, "gradient_clipping");
    if (!c->has_engine) return HT_OK;
    if (c->bare || ht_is_given(train, "clip") || ht_is_given(engine, "gradient_clipping"))
        return ht_reconcile_pair(c, "clip", "gradient_clipping", PAIR_AGREE);
    ht_problems_warn(&c->problems, NULL,
                     "gradient_clipping: %s, so gradients are clipped to a global norm of 1.0, as DeepSpeed's current "
                     "release does (older ones did not clip); 0 turns it off",
                     e->is_auto ? "\"auto\", and train.clip is not given" : "not given");
    return ht_derive_from(c, BLOCK_TRAIN, "clip", BLOCK_ENGINE, e);
}

/* ---- blocks that need more than their own rows say ---- */

static void check_disk(ht_config *c, const char *block)
{
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    char device[80], path[80];
    snprintf(device, sizeof device, "zero_optimization.%s.device", block);
    snprintf(path, sizeof path, "zero_optimization.%s.nvme_path", block);
    bool folder =
        ht_field_text(engine, path) != NULL || ht_field_text(c->blocks[BLOCK_HALFTONE], "disk_folder") != NULL;
    if (strcmp(ht_field_text(engine, device), "nvme") == 0 && !folder)
        ht_problems_error(&c->problems, &ht_fields_find(engine, device)->origin, "%s: \"nvme\" needs a folder: give %s",
                          device, path);
}

/* Both are given, and a session has one folder. */
static void check_one_folder(ht_config *c)
{
    static const char name[] = "zero_optimization.offload_param.nvme_path";
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    const char *first = ht_field_text(engine, "zero_optimization.offload_optimizer.nvme_path");
    const char *second = ht_field_text(engine, name);
    if (first == NULL || second == NULL || strcmp(first, second) == 0) return;
    ht_problems_warn(&c->problems, &ht_fields_find(engine, name)->origin,
                     "%s: all that lies on a disk is in one folder: that of offload_optimizer is taken", name);
}

static void check_nesterov(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    if (!ht_field_bool(train, "nesterov") || ht_field_number(train, "momentum") > 0) return;
    ht_problems_error(&c->problems, &ht_fields_find(train, "nesterov")->origin,
                      "train.nesterov: needs train.momentum above 0");
}

/* A model that learns so many positions reads rows of that length, unless the data block says otherwise. */
static ht_status reconcile_row_length(ht_config *c)
{
    const ht_fields *model = c->blocks[BLOCK_MODEL], *data = c->blocks[BLOCK_DATA];
    const ht_field *positions = ht_fields_find(model, "n_positions"), *length = ht_fields_find(data, "length");
    bool both = positions != NULL && length != NULL && positions->key->kind == HT_KEY_INT;
    if (!both || length->key->kind != HT_KEY_INT || positions->value == NULL) return HT_OK;
    if (positions->value->kind == HT_JSON_NULL || ht_is_given(data, "length")) return HT_OK;
    double wanted = (double)ht_field_int(model, "n_positions");
    if (wanted < length->key->low || wanted > length->key->high) return HT_OK; /* the model tells what does not fit */
    return ht_derive_from(c, BLOCK_DATA, "length", BLOCK_MODEL, positions);
}

ht_status ht_config_rules(ht_config *c)
{
    HT_TRY(reconcile_row_length(c));
    ht_rank_rules(c);
    HT_TRY(ht_batch_rules(c));
    HT_TRY(reconcile_clip(c));
    HT_TRY(ht_reconcile_pair(c, "log_every", "steps_per_print", PAIR_JOB));
    HT_TRY(ht_precision_rules(c));
    HT_TRY(ht_optimizer_rules(c));
    HT_TRY(ht_schedule_rules(c));
    HT_TRY(ht_reconcile_pair(c, "steps", "scheduler.params.total_num_steps", PAIR_FILL));
    check_disk(c, "offload_param");
    check_disk(c, "offload_optimizer");
    check_one_folder(c);
    check_nesterov(c);
    ht_fine_tuning_rules(c);
    ht_quantize_rules(c);
    ht_memory_rules(c);
    return HT_OK;
}
