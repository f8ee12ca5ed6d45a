/* Students: models of the run's type with fewer layers or other sizes, which begin with the weights of the run. Its layers are
 * found by their names. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

enum { MOST_LAYERS = 1000 };

/* A model of equal layers: its key for their number, and what stands before the number in names of tensors and modules. */
static const struct stack {
    const char *model, *key, *prefix;
} stacks[] = {
    {"gpt2", "n_layer", "transformer.h."},
    {"llama", "num_hidden_layers", "model.layers."},
    {"bert", "num_hidden_layers", "bert.encoder.layer."},
};

static const struct stack *find_stack(const ht_compression *c)
{
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        if (strcmp(stacks[i].model, c->model) == 0) return &stacks[i];
    return NULL;
}

static ht_status fail_stack(const ht_compression *c, const char *key)
{
    HT_FAIL(c->ctx, HT_ENOTSUP,
            "distill.%s: model.type %s has no list of equal layers; those of gpt2, llama and bert have numbers", key,
            c->model);
}

/* ---- which layers ---- */

typedef struct choice {
    const struct stack *stack;
    int64_t layers[MOST_LAYERS]; /* by layer of the student: which one of the model it was; ascending */
    int64_t count, of;
} choice;

static ht_status read_layers(const ht_compression *c, const ht_json *list, choice *out)
{
    if (list->kind != HT_JSON_ARRAY || list->count == 0 || list->count > MOST_LAYERS)
        HT_FAIL(c->ctx, HT_EINVAL, "distill.student.layers: expected a list of layers, such as [0, 2, 4], found %s",
                ht_json_kind_name(list->kind));
    for (const ht_json *entry = list->child; entry; entry = entry->next) {
        int64_t layer;
        if (!ht_json_as_int(entry, &layer) || layer < 0 || layer >= out->of)
            HT_FAIL(c->ctx, HT_EINVAL, "distill.student.layers: the model's layers are 0 to %" PRId64, out->of - 1);
        if (out->count > 0 && layer <= out->layers[out->count - 1])
            HT_FAIL(c->ctx, HT_EINVAL, "distill.student.layers: %" PRId64 " stands behind %" PRId64 ": they ascend",
                    layer, out->layers[out->count - 1]);
        out->layers[out->count++] = layer;
    }
    return HT_OK;
}

/* At equal distances, the first one among them. */
static ht_status spread_layers(const ht_compression *c, const ht_json *number, choice *out)
{
    if (!ht_json_as_int(number, &out->count) || out->count < 1 || out->count > out->of)
        HT_FAIL(c->ctx, HT_EINVAL, "distill.student.%s: expected 1 to %" PRId64 ", the layers of the model",
                out->stack->key, out->of);
    for (int64_t i = 0; i < out->count; i++) out->layers[i] = i * out->of / out->count;
    return HT_OK;
}

static ht_status choose_layers(ht_compression *c, const ht_json *wanted, choice *out)
{
    const ht_json *list = ht_json_get(wanted, "layers");
    const ht_json *number = out->stack ? ht_json_get(wanted, out->stack->key) : NULL;
    if (list && !out->stack) return fail_stack(c, "student.layers");
    if (!list && !number) return HT_OK;
    if (list && number)
        HT_FAIL(c->ctx, HT_EINVAL, "distill.student: \"layers\" and \"%s\" both say which layers stay",
                out->stack->key);
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    out->of = ht_field_int(ht_config_block(config, "model"), out->stack->key);
    bool narrowed = ht_field_json(ht_config_block(config, "model"), "widths") != NULL;
    ht_config_free(config);
    if (narrowed)
        HT_FAIL(c->ctx, HT_ENOTSUP,
                "distill.student: model.widths names layers of the run: choose layers before shrink");
    HT_TRY(list ? read_layers(c, list, out) : spread_layers(c, number, out));
    return ht_compression_set(c, "model.%s=%" PRId64, out->stack->key, out->count);
}

/* ---- weights ---- */

/* The layer that a tensor is one of, and what its name has behind the number; -1: none. */
static int64_t layer_of(const choice *chosen, const char *name, const char **rest)
{
    size_t prefix = strlen(chosen->stack->prefix);
    char *end;
    if (strncmp(name, chosen->stack->prefix, prefix) != 0) return -1;
    long layer = strtol(name + prefix, &end, 10);
    *rest = end;
    return end == name + prefix || *end != '.' ? -1 : layer;
}

static int64_t place_of(const choice *chosen, int64_t layer)
{
    for (int64_t i = 0; i < chosen->count; i++)
        if (chosen->layers[i] == layer) return i;
    return -1;
}

static ht_status rename_layers(ht_compression *c, const choice *chosen)
{
    ht_weights *weights = &c->weights;
    size_t kept = 0;
    for (size_t i = 0; i < weights->count; i++) {
        ht_weight *w = &weights->items[i];
        const char *rest = "";
        char name[512];
        int64_t layer = layer_of(chosen, w->name, &rest), place = place_of(chosen, layer);
        if (layer >= 0 && place < 0) {
            ht_weight_free(w);
            continue;
        }
        if (layer >= 0) {
            snprintf(name, sizeof name, "%s%" PRId64 "%s", chosen->stack->prefix, place, rest);
            free(w->name);
            w->name = strdup(name);
        }
        if (!w->name) HT_FAIL(c->ctx, HT_ENOMEM, "distill: out of memory");
        ht_weight moved = *w;
        *w = (ht_weight){0};
        weights->items[kept++] = moved;
    }
    weights->count = kept;
    return HT_OK;
}

/* ---- the student ---- */

static ht_status set_keys(ht_compression *c, const ht_json *wanted, const struct stack *stack, bool *fits)
{
    for (const ht_json *key = wanted->child; key; key = key->next) {
        ht_text text = {0};
        if (strcmp(key->key, "layers") == 0 || (stack && strcmp(key->key, stack->key) == 0)) continue;
        ht_json_print(&text, key);
        ht_status status = text.failed ? ht_fail(c->ctx, HT_ENOMEM, "distill: out of memory")
                                       : ht_compression_set(c, "model.%s=%s", key->key, text.data);
        ht_text_free(&text);
        HT_TRY(status);
        *fits = false;
    }
    return HT_OK;
}

ht_status ht_student_make(ht_compression *c, const ht_json *wanted, ht_json_writer *json, bool *fits)
{
    choice chosen = {.stack = find_stack(c)};
    *fits = true;
    if (!wanted) return HT_OK;
    if (c->pruned_count)
        HT_FAIL(c->ctx, HT_EINVAL,
                "distill.student: zeros of the run's tensors are held, and the student has others: prune behind it");
    HT_TRY(choose_layers(c, wanted, &chosen));
    HT_TRY(set_keys(c, wanted, chosen.stack, fits));
    if (!chosen.count) return HT_OK;
    ht_json_begin_array(json, "layers");
    for (int64_t i = 0; i < chosen.count; i++) ht_json_put_int(json, NULL, chosen.layers[i]);
    ht_json_end_array(json);
    return rename_layers(c, &chosen);
}

ht_status ht_student_module(ht_compression *c, const char *key, const ht_json *wanted, const char **name)
{
    const struct stack *stack = find_stack(c);
    char text[512];
    int64_t layer;
    if (wanted->kind == HT_JSON_STRING) {
        snprintf(text, sizeof text, "%s", wanted->text);
    } else {
        if (!ht_json_as_int(wanted, &layer) || layer < 0)
            HT_FAIL(c->ctx, HT_EINVAL, "distill.%s: expected the number of a layer, or a module's name, found %s", key,
                    ht_json_kind_name(wanted->kind));
        if (!stack) return fail_stack(c, key);
        snprintf(text, sizeof text, "%s%" PRId64, stack->prefix, layer);
    }
    *name = ht_arena_text(c->arena, text, strlen(text));
    if (!*name) HT_FAIL(c->ctx, HT_ENOMEM, "distill: out of memory");
    return HT_OK;
}
