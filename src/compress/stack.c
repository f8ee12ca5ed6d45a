#include "compress/stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ht_stack stacks[] = {
    {"gpt2", "n_layer", "transformer.h.", {"attn.c_proj", "mlp.c_proj"}},
    {"llama", "num_hidden_layers", "model.layers.", {"self_attn.o_proj", "mlp.down_proj"}},
    {"bert", "num_hidden_layers", "bert.encoder.layer.", {NULL}},
};

const ht_stack *ht_stack_of(const ht_compression *c)
{
    for (size_t i = 0; i < sizeof stacks / sizeof stacks[0]; i++)
        if (strcmp(stacks[i].model, c->model) == 0) return &stacks[i];
    return NULL;
}

ht_status ht_stack_count(ht_compression *c, const ht_stack *stack, int64_t *count)
{
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    *count = ht_field_int(ht_config_block(config, "model"), stack->key);
    ht_config_free(config);
    return HT_OK;
}

int64_t ht_stack_layer(const ht_stack *stack, const char *name, const char **rest)
{
    size_t prefix = strlen(stack->prefix);
    char *end;
    if (strncmp(name, stack->prefix, prefix) != 0) return -1;
    long layer = strtol(name + prefix, &end, 10);
    *rest = end;
    return end == name + prefix || *end != '.' ? -1 : layer;
}

/* ---- names ---- */

/* The name in the model that is left; false: it is one of a layer that goes. */
static bool rename_to(const ht_stack_choice *chosen, const char *name, char out[512])
{
    const char *rest = "";
    int64_t layer = ht_stack_layer(chosen->stack, name, &rest), place = 0;
    while (layer >= 0 && place < chosen->count && chosen->layers[place] != layer) place++;
    if (layer < 0)
        snprintf(out, 512, "%s", name);
    else
        snprintf(out, 512, "%s%" PRId64 "%s", chosen->stack->prefix, place, rest);
    return layer < 0 || place < chosen->count;
}

static ht_status rename_weights(ht_compression *c, const ht_stack_choice *chosen)
{
    ht_weights *weights = &c->weights;
    size_t kept = 0;
    for (size_t i = 0; i < weights->count; i++) {
        ht_weight *w = &weights->items[i];
        char name[512];
        if (!rename_to(chosen, w->name, name)) {
            ht_weight_free(w);
            continue;
        }
        if (strcmp(w->name, name) != 0) {
            free(w->name);
            w->name = strdup(name);
        }
        if (!w->name) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for layers");
        ht_weight moved = *w;
        *w = (ht_weight){0};
        weights->items[kept++] = moved;
    }
    weights->count = kept;
    return HT_OK;
}

/* Of layers that have widths of their own. */
static ht_status rename_widths(ht_compression *c, const ht_stack_choice *chosen)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    const ht_json *widths = ht_field_json(ht_config_block(config, "model"), "widths");
    ht_json_begin_object(&json, NULL);
    for (const ht_json *width = widths ? widths->child : NULL; width; width = width->next) {
        char name[512];
        if (rename_to(chosen, width->key, name)) ht_json_put_value(&json, name, width);
    }
    ht_json_end_object(&json);
    ht_status status = HT_OK;
    if (widths) status = ht_compression_set(c, "model.widths=%s", text.failed ? "null" : text.data);
    ht_text_free(&text);
    ht_config_free(config);
    return status;
}

ht_status ht_stack_cut(ht_compression *c, const ht_stack_choice *chosen)
{
    HT_TRY(rename_widths(c, chosen));
    HT_TRY(ht_compression_set(c, "model.%s=%" PRId64, chosen->stack->key, chosen->count));
    return rename_weights(c, chosen);
}
