/* The model `graph`: a text graph, a .ht file (docs/ir.md) with the segment `forward`. Its `loss` is a sum with the
 * output `count`; without `count` it is used as it is. */
#include <stdlib.h>

#include "model/import.h"

static const ht_key graph_keys[] = {
    {"file", HT_KEY_TEXT, NULL, 0, 0, NULL, "the .ht file; docs/ir.md is its grammar"},
    {0},
};

static ht_status graph_make(ht_graph **out, ht_context *ctx, const ht_model_request *r)
{
    const char *path = ht_field_text(r->fields, "file");
    char *text;
    size_t length;
    ht_graph *g;
    HT_TRY(ht_read_file(ctx, &text, &length, path));
    ht_status status = ht_graph_parse(&g, ctx, path, text, length);
    free(text);
    HT_TRY(status);
    status = ht_model_import(g, r, path);
    if (status != HT_OK) {
        ht_graph_free(g);
        return status;
    }
    *out = g;
    return HT_OK;
}

const ht_model ht_model_graph = {
    .name = "graph",
    .help = "a model of one's own as text",
    .keys = graph_keys,
    .tasks = (1u << HT_TASK_COUNT) - 1,
    .packs = true,
    .make = graph_make,
};
