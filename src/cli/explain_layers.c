/* Of a job that halftone compress wrote: what its layers took with codes and with floats, on the machine that chose. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/explain_view.h"

static double number_of(const ht_json *layer, const char *key)
{
    double number = 0;
    const ht_json *value = ht_json_get(layer, key);
    return value && ht_json_as_number(value, &number) ? number : 0;
}

static const char *text_of(const ht_json *layer, const char *key)
{
    const ht_json *value = ht_json_get(layer, key);
    return value && value->kind == HT_JSON_STRING ? value->text : "";
}

static void add_layer(ht_text *text, const ht_json *layer)
{
    bool codes = ht_json_get(layer, "replaced_ms");
    double ms = number_of(layer, "ms"), other = number_of(layer, codes ? "replaced_ms" : "refused_ms");
    ht_text_add(text, "  %-44s %-28s %10.4f ms, %s %.4f ms", text_of(layer, "name"), text_of(layer, "kernel"), ms,
                codes ? "in place of" : "with codes it would be", other);
    if (!codes && other <= ms)
        ht_text_add(text, ": less than the %.4f ms by which times scatter", number_of(layer, "margin_ms"));
    ht_text_add(text, "\n");
}

void cli_explain_layers(ht_text *text, const char *job)
{
    char path[4096], *file;
    size_t length;
    const ht_json *root;
    ht_context aside = {0}; /* a job without such a file is an ordinary one */
    const char *slash = strrchr(job, '/');
    snprintf(path, sizeof path, "%.*scompress.json", slash ? (int)(slash - job + 1) : 0, job);
    if (ht_read_file(&aside, &file, &length, path) != HT_OK) return;
    ht_arena *arena = ht_arena_create();
    if (arena && ht_json_parse(&aside, arena, path, file, length, &root) == HT_OK) {
        const ht_json *layers = ht_json_get(root, "layers");
        if (layers && layers->kind == HT_JSON_ARRAY && layers->child)
            ht_text_add(text, "\nlayers of an evaluation, as halftone compress measured them:\n");
        for (const ht_json *layer = layers && layers->kind == HT_JSON_ARRAY ? layers->child : NULL; layer;
             layer = layer->next)
            add_layer(text, layer);
    }
    ht_arena_free(arena);
    free(file);
}
