/* DeepSpeed's block `compression_training` as the steps of a recipe. What it does while a model trains becomes: tuning up to
 * the step at which a method begins, the method, and tuning for the rest of the run's steps; then units that were pruned are
 * removed, as DeepSpeed's redundancy_clean does. Layers that are quantized train with their roundings from then on. With
 * layer_reduction the model that trains is a student with fewer layers. The keys were checked by config's rows for DeepSpeed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

enum { MOST_EVENTS = HT_COMPRESS_MOST_STEPS };

typedef struct translation {
    ht_compression *c;
    ht_context *ctx;
    const char *path;
    const ht_json *block;
    int64_t steps;          /* of training */
    const ht_json *student; /* layers of the run that it begins with; NULL: it is the run's model */
    struct event {
        int64_t offset, steps; /* before this step of training, and how many it makes itself */
        ht_text step;          /* an object of the recipe */
    } events[MOST_EVENTS];
    size_t count;
    bool units; /* some are pruned */
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

static ht_status add_event(translation *t, const ht_json *at, const char *block, int64_t standard, struct event **out)
{
    int64_t offset = int_or(shared(t, block, "schedule_offset"), standard);
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

/* Of what prunes. A student is there from the first step of training on. */
static ht_status add_pruning(translation *t, const ht_json *at, const char *block, struct event **out)
{
    enum { STANDARD = 1000 };
    HT_TRY(add_event(t, at, block, STANDARD, out));
    if (t->student && (*out)->offset == 0) (*out)->offset = 1;
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
    HT_TRY(add_pruning(t, group, m->name, &event));
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

/* "4x1" */
static ht_status put_block(const translation *t, const ht_json *block, ht_json_writer *json)
{
    const ht_json *pattern = shared(t, methods[0].name, "block_pattern");
    int rows = 4, columns = 1, end = 0;
    if (pattern && (pattern->kind != HT_JSON_STRING || sscanf(pattern->text, "%4dx%4d%n", &rows, &columns, &end) != 2 ||
                    pattern->text[end] || rows < 1 || columns < 1))
        return ht_json_fail(t->ctx, t->path, block,
                            "sparse_pruning.block_pattern: expected rows and columns, such as 4x1");
    ht_json_begin_array(json, "block");
    ht_json_put_int(json, NULL, rows);
    ht_json_put_int(json, NULL, columns);
    ht_json_end_array(json);
    return HT_OK;
}

/* DeepSpeed's snip_momentum: blocks by products of weights and gradients, between two steps, of all modules but some. */
static ht_status add_snip(translation *t, const ht_json *block)
{
    const char *name = methods[0].name;
    const ht_json *excluded = shared(t, name, "excluded_modules"), *ratio = shared(t, name, "dense_ratio");
    double dense = 0.1;
    struct event *event = NULL;
    ht_text text = {0};
    if (ratio && (!ht_json_as_number(ratio, &dense) || !(dense > 0 && dense < 1)))
        return ht_json_fail(t->ctx, t->path, block, "sparse_pruning.dense_ratio must be above 0 and below 1");
    HT_TRY(add_pruning(t, block, name, &event));
    int64_t end = int_or(shared(t, name, "schedule_offset_end"), t->steps);
    if (end > t->steps) end = t->steps;
    if (end <= event->offset)
        return ht_json_fail(t->ctx, t->path, block, "sparse_pruning.schedule_offset_end is not behind schedule_offset");
    event->steps = end - event->offset;
    ht_json_writer json = {.text = &event->step};
    ht_json_begin_object(&json, NULL);
    ht_json_begin_object(&json, "prune");
    ht_json_put_text(&json, "method", "movement");
    ht_json_put_int(&json, "steps", event->steps);
    if (event->steps >= 4) ht_json_put_text(&json, "schedule", "cubic");
    HT_TRY(put_block(t, block, &json));
    ht_text_add(&text, "embed|wte|wpe"); /* it prunes linear layers and convolutions */
    if (excluded && excluded->kind == HT_JSON_ARRAY) add_modules(&text, excluded);
    ht_json_put_text(&json, "layers", "\\.weight$");
    ht_json_put_text(&json, "except", text.failed ? "" : text.data);
    ht_text_free(&text);
    ht_json_put_number(&json, "ratio", 1 - dense);
    ht_json_end_object(&json);
    ht_json_end_object(&json);
    return HT_OK;
}

static ht_status add_method(translation *t, const method *m)
{
    const ht_json *block = ht_json_get(t->block, m->name), *groups = ht_json_get(block, "different_groups");
    if (!is_true(shared(t, m->name, "enabled"))) return HT_OK;
    if (is_text(shared(t, m->name, "method"), "snip_momentum")) return add_snip(t, block);
    if (!groups || groups->kind != HT_JSON_OBJECT || !groups->child)
        return ht_json_fail(t->ctx, t->path, block, "%s is enabled, and has no different_groups", m->name);
    for (const ht_json *group = groups->child; group; group = group->next) HT_TRY(add_group(t, m, group));
    return HT_OK;
}

/* DeepSpeed's student has keep_number_layer layers, and begins with those that teacher_layer names. */
static ht_status read_reduction(translation *t)
{
    const ht_json *reduction = ht_json_get(t->block, "layer_reduction"), *layers, *prefix;
    if (!is_true(ht_json_get(reduction, "enabled"))) return HT_OK;
    const char *own = ht_student_prefix(t->c);
    layers = ht_json_get(reduction, "teacher_layer");
    prefix = ht_json_get(reduction, "module_name_prefix");
    int64_t keep = int_or(ht_json_get(reduction, "keep_number_layer"), -1);
    if (!layers || layers->kind != HT_JSON_ARRAY || layers->count == 0)
        return ht_json_fail(t->ctx, t->path, reduction,
                            "layer_reduction.teacher_layer must name the layers that the student begins with");
    if (keep >= 0 && (size_t)keep != layers->count)
        return ht_json_fail(t->ctx, t->path, reduction,
                            "layer_reduction.keep_number_layer is %" PRId64 ", and teacher_layer names %zu layers",
                            keep, (size_t)layers->count);
    if (!own)
        return ht_json_fail(t->ctx, t->path, reduction,
                            "layer_reduction: model.type %s has no list of equal layers; gpt2, llama and bert have",
                            t->c->model);
    if (prefix && (prefix->kind != HT_JSON_STRING || strncmp(own, prefix->text, prefix->length) != 0 ||
                   strcmp(own + prefix->length, ".") != 0))
        return ht_json_fail(t->ctx, t->path, reduction,
                            "layer_reduction.module_name_prefix is \"%.100s\", and the layers of %s are \"%s0\" and on",
                            prefix->kind == HT_JSON_STRING ? prefix->text : "", t->c->model, own);
    t->student = layers;
    return HT_OK;
}

/* ---- quantisation ---- */

/* Weights of 1 and 2 bits are binary and ternary there, as here; asymmetric ones of 2 bits are not. */
static const char *codes_of(const translation *t, int64_t bits, char text[16])
{
    bool symmetric = !is_text(shared(t, weights, "quantization_type"), "asymmetric");
    if (bits == 1) return "binary";
    if (bits == 2 && symmetric) return "ternary";
    snprintf(text, 16, "int%d", (int)bits);
    return text;
}

/* The step that quantizes a group's weights to so many bits. */
static ht_status put_codes(const translation *t, const ht_json *group, int64_t bits, bool both, struct event *event)
{
    enum { BATCHES = 32 };
    char text[16];
    ht_json_writer json = {.text = &event->step};
    ht_json_begin_object(&json, NULL);
    ht_json_begin_object(&json, "quantize");
    HT_TRY(put_layers(t, &json, group, false));
    ht_json_put_text(&json, "weights", codes_of(t, bits, text));
    if (!both) ht_json_put_text(&json, "activations", "none");
    if (is_text(shared(t, activations, "range_calibration"), "static") && both) {
        ht_json_begin_object(&json, "calibration");
        ht_json_put_int(&json, "batches", BATCHES);
        ht_json_end_object(&json);
    }
    ht_json_put_bool(&json, "keep_slower", true); /* it does not measure */
    ht_json_put_bool(&json, "symmetric",
                     !is_text(shared(t, both ? activations : weights, "quantization_type"), "asymmetric"));
    ht_json_end_object(&json);
    ht_json_end_object(&json);
    return HT_OK;
}

/* Steps of training behind the first at which weights have so many bits: DeepSpeed takes one away after a period, and waits twice as
 * long for each one that follows. Negative: longer than any run. */
static int64_t reached_after(int64_t period, int64_t taken)
{
    enum { MOST = 32 };
    if (taken == 0) return 0;
    return period < INT64_C(1) << MOST && taken <= MOST - 1 ? period << (taken - 1) : -1;
}

/* Bits above MOST are floats here. Weights that are quantized in the forward pass have target_bits from the first step on. */
static ht_status add_codes(translation *t, const ht_json *group)
{
    enum { STANDARD = 0, MOST = 8 };
    const ht_json *params = ht_json_get(group, "params");
    int64_t wanted = int_or(ht_json_get(params, "target_bits"), 0), period, start;
    bool both = is_true(shared(t, activations, "enabled"));
    if (wanted < 1 || wanted > MOST)
        return ht_json_fail(t->ctx, t->path, group, "params.target_bits must be given, from 1 to 8");
    if (!both && wanted != 4 && wanted != 8) {
        ht_json_fail(t->ctx, t->path, group,
                     "weights of %" PRId64 " bits need activation_quantization: weights alone have 4 or 8", wanted);
        return HT_ENOTSUP;
    }
    start = int_or(ht_json_get(params, "start_bits"), wanted);
    period = int_or(ht_json_get(params, "quantization_period"), 1);
    if (!both || period == 0 || start < wanted || is_true(shared(t, weights, "quantize_weight_in_forward")))
        start = wanted;
    for (int64_t bits = start < MOST ? start : MOST; bits >= wanted; bits--) {
        struct event *event = NULL;
        int64_t after = reached_after(period, start - bits);
        HT_TRY(add_event(t, group, weights, STANDARD, &event));
        if (after < 0 || after >= t->steps - event->offset)
            return ht_json_fail(t->ctx, t->path, group,
                                "params.quantization_period: weights have %" PRId64 " bits behind the run's %" PRId64
                                " steps: --set train.steps=N gives it more",
                                bits, t->steps);
        event->offset += after;
        HT_TRY(put_codes(t, group, bits, both, event));
    }
    return HT_OK;
}

static ht_status add_quantisation(translation *t)
{
    const ht_json *block = ht_json_get(t->block, weights), *groups = ht_json_get(block, "different_groups");
    const ht_json *used = ht_json_get(ht_json_get(t->block, activations), "different_groups");
    bool enabled = is_true(shared(t, weights, "enabled")), both = is_true(shared(t, activations, "enabled"));
    if (both && !enabled) {
        ht_json_fail(
            t->ctx, t->path, ht_json_get(t->block, activations),
            "activation_quantization without weight_quantization: layers that read codes have codes of weights");
        return HT_ENOTSUP;
    }
    for (const ht_json *other = both && used ? used->child : NULL; other; other = other->next)
        if (int_or(ht_json_get(ht_json_get(other, "params"), "bits"), 8) != 8) {
            ht_json_fail(t->ctx, t->path, other, "activations have 8 bits, and params.bits says otherwise");
            return HT_ENOTSUP;
        }
    for (const ht_json *group = enabled && groups ? groups->child : NULL; group; group = group->next)
        HT_TRY(add_codes(t, group));
    return HT_OK;
}

/* ---- the recipe ---- */

/* A student learns from the run beside its data, and the first such step makes it. */
static void put_training(const translation *t, ht_json_writer *json, int64_t steps, bool *made)
{
    if (steps <= 0) return;
    ht_json_begin_object(json, NULL);
    ht_json_begin_object(json, t->student ? "distill" : "tune");
    ht_json_put_int(json, "steps", steps);
    if (t->student && !*made) {
        ht_json_begin_object(json, "student");
        ht_json_put_value(json, "layers", t->student);
        ht_json_end_object(json);
    }
    ht_json_end_object(json);
    ht_json_end_object(json);
    *made = true;
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
    bool made = false;
    sort_events(t);
    ht_json_begin_object(&json, NULL);
    ht_json_begin_array(&json, "steps");
    for (size_t i = 0; i < t->count; i++) {
        put_training(t, &json, t->events[i].offset - at, &made);
        if (t->events[i].offset > at) at = t->events[i].offset;
        at += t->events[i].steps;
        ht_json_put_json(&json, NULL, t->events[i].step.data ? t->events[i].step.data : "{}");
    }
    put_training(t, &json, t->steps - at, &made);
    if (t->units) ht_json_put_json(&json, NULL, "{\"shrink\": {}}");
    ht_json_end_array(&json);
    ht_json_end_object(&json);
}

ht_status ht_deepspeed_recipe(ht_text *out, ht_compression *c, const char *path, const ht_json *block)
{
    translation *t = calloc(1, sizeof *t);
    if (!t) HT_FAIL(c->ctx, HT_ENOMEM, "%s: out of memory", path);
    *t = (translation){.c = c, .ctx = c->ctx, .path = path, .block = block, .steps = c->steps};
    ht_status status = read_reduction(t);
    for (size_t i = 0; i < sizeof methods / sizeof methods[0] && status == HT_OK; i++)
        status = add_method(t, &methods[i]);
    if (status == HT_OK) status = add_quantisation(t);
    if (status == HT_OK && t->count == 0 && !t->student)
        status = ht_json_fail(c->ctx, path, block, "nothing of compression_training is enabled");
    if (status == HT_OK) print_recipe(t, out);
    for (size_t i = 0; i < t->count; i++) ht_text_free(&t->events[i].step);
    free(t);
    return status;
}
