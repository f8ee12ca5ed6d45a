/* DeepSpeed's block `compression_training` as the steps of a recipe. What it does while a model trains becomes: tuning up to
 * the step at which a method begins, the method, and tuning for the rest of the run's steps; then units that were pruned are
 * removed, as DeepSpeed's redundancy_clean does, and layers are quantized. The keys were checked by config's rows for DeepSpeed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

enum { MOST_EVENTS = HT_COMPRESS_MOST_STEPS };

typedef struct translation {
    ht_context *ctx;
    const char *path;
    const ht_json *block;
    int64_t steps; /* of training */
    struct event {
        int64_t offset, steps; /* before this step of training, and how many it makes itself */
        ht_text step;          /* an object of the recipe */
    } events[MOST_EVENTS];
    size_t count;
    bool units;                 /* some are pruned */
    ht_text codes[MOST_EVENTS]; /* steps that quantize */
    size_t code_count;
} translation;

static const char weights[] = "weight_quantization", activations[] = "activation_quantization";

/* A method of the block, and the recipe's. */
typedef struct method {
    const char *name, *prune;
    bool by_related; /* units are made by the related modules: heads by query, key and value */
} method;

static const method methods[] = {
    {"sparse_pruning", "magnitude", false},
    {"row_pruning", "rows", false},
    {"head_pruning", "heads", true},
    {"channel_pruning", "channels", false},
};

static const ht_json *shared(const translation *t, const char *name, const char *key)
{
    return ht_json_get(ht_json_get(ht_json_get(t->block, name), "shared_parameters"), key);
}

static bool is_true(const ht_json *value)
{
    return value && value->kind == HT_JSON_BOOL && value->boolean;
}

static int64_t int_or(const ht_json *value, int64_t otherwise)
{
    int64_t number;
    return value && ht_json_as_int(value, &number) ? number : otherwise;
}

static bool is_text(const ht_json *value, const char *text)
{
    return value && value->kind == HT_JSON_STRING && strcmp(value->text, text) == 0;
}

/* ---- names of modules ---- */

/* Python's expressions as POSIX has them: \d. "*" is everything. */
static void add_expression(ht_text *text, const char *module)
{
    if (strcmp(module, "*") == 0) module = ".";
    for (const char *at = module; *at; at++) {
        bool digit = at[0] == '\\' && at[1] == 'd';
        ht_text_add(text, digit ? "[0-9]" : "%c", *at);
        at += digit;
    }
}

/* Lists may hold lists. */
static void add_modules(ht_text *text, const ht_json *modules)
{
    for (const ht_json *entry = modules->child; entry; entry = entry->next) {
        if (entry->kind == HT_JSON_ARRAY) {
            add_modules(text, entry);
            continue;
        }
        if (entry->kind != HT_JSON_STRING) continue;
        if (text->length) ht_text_add(text, "|");
        add_expression(text, entry->text);
    }
}

static ht_status put_layers(const translation *t, ht_json_writer *json, const ht_json *group, bool by_related)
{
    const ht_json *modules = ht_json_get(group, by_related ? "related_modules" : "modules");
    ht_text text = {0};
    if (by_related && !modules)
        return ht_json_fail(t->ctx, t->path, group, "related_modules names query, key and value, which make the heads");
    if (modules && modules->kind == HT_JSON_ARRAY) add_modules(&text, modules);
    ht_json_put_text(json, "layers", text.length ? text.data : ".");
    ht_status status = text.failed ? ht_fail(t->ctx, HT_ENOMEM, "%s: out of memory", t->path) : HT_OK;
    ht_text_free(&text);
    return status;
}

/* ---- events ---- */

static ht_status add_event(translation *t, const ht_json *at, const char *block, struct event **out)
{
    int64_t offset = int_or(shared(t, block, "schedule_offset"), 1000);
    if (t->count == MOST_EVENTS) return ht_json_fail(t->ctx, t->path, at, "more than %d groups", MOST_EVENTS);
    if (offset >= t->steps)
        return ht_json_fail(t->ctx, t->path, at,
                            "compression_training.%s begins at step %" PRId64 ", behind the run's %" PRId64
                            " steps: --set train.steps=N gives it more",
                            block, offset, t->steps);
    *out = &t->events[t->count++];
    (*out)->offset = offset;
    return HT_OK;
}

/* DeepSpeed's topk learns which single weights go, while it trains. Half of the steps that are left do that here, in stages,
 * and in the other half those that stay recover. */
static void put_learned(const translation *t, struct event *event, ht_json_writer *json)
{
    event->steps = (t->steps - event->offset) / 2;
    ht_json_put_text(json, "method", "movement");
    ht_json_put_int(json, "steps", event->steps);
    if (event->steps >= 4) ht_json_put_text(json, "schedule", "cubic");
}

static ht_status add_group(translation *t, const method *m, const ht_json *group)
{
    const ht_json *ratio = ht_json_get(ht_json_get(group, "params"), "dense_ratio");
    bool single = strcmp(m->prune, "magnitude") == 0;
    double dense;
    struct event *event = NULL;
    if (!ratio || !ht_json_as_number(ratio, &dense) || !(dense > 0 && dense < 1))
        return ht_json_fail(t->ctx, t->path, group, "params.dense_ratio must be given, above 0 and below 1");
    HT_TRY(add_event(t, group, m->name, &event));
    ht_json_writer json = {.text = &event->step};
    ht_json_begin_object(&json, NULL);
    ht_json_begin_object(&json, "prune");
    if (single && is_text(shared(t, m->name, "method"), "topk") && t->steps - event->offset >= 2)
        put_learned(t, event, &json);
    else
        ht_json_put_text(&json, "method", m->prune);
    HT_TRY(put_layers(t, &json, group, m->by_related));
    ht_json_put_number(&json, "ratio", 1 - dense);
    ht_json_end_object(&json);
    ht_json_end_object(&json);
    t->units |= !single;
    return HT_OK;
}

static ht_status add_method(translation *t, const method *m)
{
    const ht_json *block = ht_json_get(t->block, m->name), *groups = ht_json_get(block, "different_groups");
    if (!is_true(shared(t, m->name, "enabled"))) return HT_OK;
    if (is_text(shared(t, m->name, "method"), "snip_momentum")) {
        ht_json_fail(t->ctx, t->path, block, "%s.method snip_momentum is not there yet; l1 and topk are", m->name);
        return HT_ENOTSUP;
    }
    if (!groups || groups->kind != HT_JSON_OBJECT || !groups->child)
        return ht_json_fail(t->ctx, t->path, block, "%s is enabled, and has no different_groups", m->name);
    for (const ht_json *group = groups->child; group; group = group->next) HT_TRY(add_group(t, m, group));
    return HT_OK;
}

static ht_status refuse_reduction(const translation *t)
{
    const ht_json *reduction = ht_json_get(t->block, "layer_reduction");
    if (!is_true(ht_json_get(reduction, "enabled"))) return HT_OK;
    ht_json_fail(t->ctx, t->path, reduction, "compression_training.layer_reduction as a recipe is not there yet");
    return HT_ENOTSUP;
}

/* ---- quantisation ---- */

static ht_status add_codes(translation *t, const ht_json *group)
{
    const ht_json *bits = ht_json_get(ht_json_get(group, "params"), "target_bits");
    int64_t wanted = int_or(bits, 0);
    char codes[16];
    if (wanted < 2 || wanted > 8) {
        ht_json_fail(t->ctx, t->path, group, "weights of %" PRId64 " bits are not there yet: 2 to 8 are", wanted);
        return HT_ENOTSUP;
    }
    if (t->code_count == MOST_EVENTS) return ht_json_fail(t->ctx, t->path, group, "more than %d groups", MOST_EVENTS);
    ht_json_writer json = {.text = &t->codes[t->code_count++]};
    snprintf(codes, sizeof codes, "int%d", (int)wanted);
    ht_json_begin_object(&json, NULL);
    ht_json_begin_object(&json, "quantize");
    HT_TRY(put_layers(t, &json, group, false));
    ht_json_put_text(&json, "weights", codes);
    ht_json_put_bool(&json, "keep_slower", true); /* it does not measure */
    ht_json_put_bool(&json, "symmetric", !is_text(shared(t, activations, "quantization_type"), "asymmetric"));
    ht_json_end_object(&json);
    ht_json_end_object(&json);
    return HT_OK;
}

/* Weights and activations together: layers that compute with integers need both. */
static ht_status add_quantisation(translation *t)
{
    const ht_json *block = ht_json_get(t->block, weights), *groups = ht_json_get(block, "different_groups");
    bool enabled = is_true(shared(t, weights, "enabled")), both = is_true(shared(t, activations, "enabled"));
    if (enabled != both || (both && is_text(shared(t, activations, "range_calibration"), "static"))) {
        ht_json_fail(t->ctx, t->path, enabled ? block : ht_json_get(t->block, activations), "%s is not there yet",
                     both && enabled ? "range_calibration static"
                     : enabled       ? "weight_quantization without activation_quantization"
                                     : "activation_quantization without weight_quantization");
        return HT_ENOTSUP;
    }
    for (const ht_json *group = enabled && groups ? groups->child : NULL; group; group = group->next) {
        const ht_json *used = ht_json_get(ht_json_get(t->block, activations), "different_groups");
        for (const ht_json *other = used ? used->child : NULL; other; other = other->next)
            if (int_or(ht_json_get(ht_json_get(other, "params"), "bits"), 8) != 8) {
                ht_json_fail(t->ctx, t->path, other, "activations of other than 8 bits are not there yet");
                return HT_ENOTSUP;
            }
        HT_TRY(add_codes(t, group));
    }
    return HT_OK;
}

/* ---- the recipe ---- */

static void put_tune(ht_json_writer *json, int64_t steps)
{
    if (steps <= 0) return;
    ht_json_begin_object(json, NULL);
    ht_json_begin_object(json, "tune");
    ht_json_put_int(json, "steps", steps);
    ht_json_end_object(json);
    ht_json_end_object(json);
}

/* Those of one step stay in the order of the file. */
static void sort_events(translation *t)
{
    for (size_t i = 1; i < t->count; i++)
        for (size_t k = i; k > 0 && t->events[k].offset < t->events[k - 1].offset; k--) {
            struct event moved = t->events[k];
            t->events[k] = t->events[k - 1];
            t->events[k - 1] = moved;
        }
}

static void print_recipe(translation *t, ht_text *text)
{
    ht_json_writer json = {.text = text};
    int64_t at = 0;
    sort_events(t);
    ht_json_begin_object(&json, NULL);
    ht_json_begin_array(&json, "steps");
    for (size_t i = 0; i < t->count; i++) {
        put_tune(&json, t->events[i].offset - at);
        if (t->events[i].offset > at) at = t->events[i].offset;
        at += t->events[i].steps;
        ht_json_put_json(&json, NULL, t->events[i].step.data ? t->events[i].step.data : "{}");
    }
    put_tune(&json, t->steps - at);
    if (t->units) ht_json_put_json(&json, NULL, "{\"shrink\": {}}");
    for (size_t i = 0; i < t->code_count; i++)
        ht_json_put_json(&json, NULL, t->codes[i].data ? t->codes[i].data : "{}");
    ht_json_end_array(&json);
    ht_json_end_object(&json);
}

ht_status ht_deepspeed_recipe(ht_text *out, ht_context *ctx, const char *path, const ht_json *block, int64_t steps)
{
    translation *t = calloc(1, sizeof *t);
    if (!t) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    *t = (translation){.ctx = ctx, .path = path, .block = block, .steps = steps};
    ht_status status = refuse_reduction(t);
    if (status == HT_OK) status = add_quantisation(t);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0] && status == HT_OK; i++)
        status = add_method(t, &methods[i]);
    if (status == HT_OK && t->count + t->code_count == 0)
        status = ht_json_fail(ctx, path, block, "nothing of compression_training is enabled");
    if (status == HT_OK) print_recipe(t, out);
    for (size_t i = 0; i < t->count; i++) ht_text_free(&t->events[i].step);
    for (size_t i = 0; i < t->code_count; i++) ht_text_free(&t->codes[i]);
    free(t);
    return status;
}
