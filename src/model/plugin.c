/* Models as shared objects: loads a plugin (include/halftone/plugin.h). */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <halftone/plugin.h>

#include "model/import.h"

static const ht_key plugin_keys[] = {
    {"file", HT_KEY_TEXT, NULL, 0, 0, NULL, "the shared object; halftone/plugin.h says what is in it"},
    {"options", HT_KEY_JSON, "null", 0, 0, NULL, "handed to the plugin as it is"},
    {0},
};

typedef const ht_plugin *(*entry_point)(void);

/* The loader takes a name without a slash for one of the system's libraries; a job file means a file. */
static void *open_file(const char *path)
{
    ht_text full = {0};
    ht_text_add(&full, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *library = full.data ? dlopen(full.data, RTLD_NOW | RTLD_LOCAL) : NULL;
    ht_text_free(&full);
    return library;
}

static ht_status find_plugin(ht_context *ctx, void *library, const char *path, const ht_plugin **plugin)
{
    entry_point entry = NULL;
    void *symbol = dlsym(library, "halftone_plugin");
    if (!symbol) HT_FAIL(ctx, HT_EINVAL, "plugin %s: it has no function halftone_plugin", path);
    memcpy(&entry, &symbol, sizeof entry);
    *plugin = entry();
    if (!*plugin || (*plugin)->size < sizeof(ht_plugin) || (*plugin)->abi != HT_PLUGIN_ABI || !(*plugin)->build)
        HT_FAIL(ctx, HT_EINVAL, "plugin %s: made for version %u of the plugin interface, this is %u: compile it again",
                path, *plugin ? (unsigned)(*plugin)->abi : 0, HT_PLUGIN_ABI);
    return HT_OK;
}

static ht_status build(ht_graph *g, const ht_model_request *r, const ht_plugin *plugin, const char *path,
                       const char *options)
{
    ht_plugin_request request = {
        .size = sizeof request,
        .task = ht_task_names[r->task],
        .batch = r->batch,
        .length = r->length,
        .source_length = r->source_length,
        .vocabulary = r->vocabulary,
        .source_vocabulary = r->source_vocabulary,
        .classes = r->classes,
        .feature_rank = r->feature_rank,
        .feature = r->feature,
        .documents = r->documents,
        .options = options,
    };
    ht_status status = plugin->build(g, &request);
    HT_TRY(ht_graph_status(g));
    if (status != HT_OK) HT_FAIL(g->ctx, status, "plugin %s: its build gave %s", path, ht_status_name(status));
    return ht_model_import(g, r, path);
}

static ht_status load(ht_graph *g, const ht_model_request *r, const char *path, const char *options)
{
    const ht_plugin *plugin = NULL;
    void *library = open_file(path);
    if (!library) {
        const char *reason = dlerror();
        HT_FAIL(g->ctx, HT_EIO, "plugin %s: %s", path, reason ? reason : "it cannot be loaded");
    }
    ht_status status = find_plugin(g->ctx, library, path, &plugin);
    if (status == HT_OK) status = build(g, r, plugin, path, options);
    dlclose(library);
    return status;
}

static ht_status plugin_make(ht_graph **out, ht_context *ctx, const ht_model_request *r)
{
    ht_text options = {0};
    const ht_json *given = ht_field_json(r->fields, "options");
    if (given)
        ht_json_print(&options, given);
    else
        ht_text_add(&options, "{}");
    ht_graph *g = NULL;
    ht_status status = options.data && !options.failed ? ht_graph_create(&g, ctx)
                                                       : ht_fail(ctx, HT_ENOMEM, "out of memory for options");
    if (status == HT_OK) status = load(g, r, ht_field_text(r->fields, "file"), options.data);
    ht_text_free(&options);
    if (status != HT_OK) {
        ht_graph_free(g);
        return status;
    }
    *out = g;
    return HT_OK;
}

const ht_model ht_model_plugin = {
    .name = "plugin",
    .help = "a model of one's own in C, as a shared object",
    .keys = plugin_keys,
    .tasks = (1u << HT_TASK_COUNT) - 1,
    .packs = true,
    .make = plugin_make,
};
