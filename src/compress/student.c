/* Students: models of the run's type with fewer layers or other sizes, which begin with the weights of the run. Its layers are
 * found by their names. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compress/stack.h"

const char *ht_student_prefix(const ht_compression *c)
{
    const ht_stack *stack = ht_stack_of(c);
    return stack ? stack->prefix : NULL;
}

static ht_status fail_stack(const ht_compression *c, const char *key)
{
    HT_FAIL(c->ctx, HT_ENOTSUP,
            "distill.%s: model.type %s has no list of equal layers; those of gpt2, llama and bert have numbers", key,
            c->model);
}

/* ---- which layers ---- */

static ht_status read_layers(const ht_compression *c, const ht_json *list, ht_stack_choice *out)
{
    if (list->kind != HT_JSON_ARRAY || list->count == 0 || list->count > HT_STACK_MOST_LAYERS)
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
static ht_status spread_layers(const ht_compression *c, const ht_json *number, ht_stack_choice *out)
{
    if (!ht_json_as_int(number, &out->count) || out->count < 1 || out->count > out->of)
        HT_FAIL(c->ctx, HT_EINVAL, "distill.student.%s: expected 1 to %" PRId64 ", the layers of the model",
                out->stack->key, out->of);
    for (int64_t i = 0; i < out->count; i++) out->layers[i] = i * out->of / out->count;
    return HT_OK;
}

static ht_status choose_layers(ht_compression *c, const ht_json *wanted, ht_stack_choice *out)
{
    const ht_json *list = ht_json_get(wanted, "layers");
    const ht_json *number = out->stack ? ht_json_get(wanted, out->stack->key) : NULL;
    if (list && !out->stack) return fail_stack(c, "student.layers");
    if (!list && !number) return HT_OK;
    if (list && number)
        HT_FAIL(c->ctx, HT_EINVAL, "distill.student: \"layers\" and \"%s\" both say which layers stay",
                out->stack->key);
    HT_TRY(ht_stack_count(c, out->stack, &out->of));
    return list ? read_layers(c, list, out) : spread_layers(c, number, out);
}

/* ---- the student ---- */

static ht_status set_keys(ht_compression *c, const ht_json *wanted, const ht_stack *stack, bool *fits)
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
    ht_stack_choice chosen = {.stack = ht_stack_of(c)};
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
    return ht_stack_cut(c, &chosen);
}

ht_status ht_student_module(ht_compression *c, const char *key, const ht_json *wanted, const char **name)
{
    const ht_stack *stack = ht_stack_of(c);
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
