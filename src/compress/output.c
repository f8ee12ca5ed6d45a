/* The folder of the result: made beside the output under another name, and renamed once it is whole. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compress/compression.h"

static bool exists(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

static ht_status join(ht_compression *c, char out[HT_COMPRESS_PATH], const char *folder, const char *name)
{
    int length = snprintf(out, HT_COMPRESS_PATH, "%s%s", folder, name);
    if (length < 0 || length >= HT_COMPRESS_PATH) HT_FAIL(c->ctx, HT_EINVAL, "%s: the path is too long", folder);
    return HT_OK;
}

/* Only what compress wrote is ever replaced, and never the run that is read. */
static ht_status check_output(ht_compression *c)
{
    const char *output = c->request->output;
    char run[PATH_MAX], there[PATH_MAX], mark[HT_COMPRESS_PATH];
    if (!exists(output)) return HT_OK;
    if (realpath(c->request->run, run) && realpath(output, there) && strcmp(run, there) == 0)
        HT_FAIL(c->ctx, HT_EINVAL, "%s is the run that is compressed: it needs another output", output);
    HT_TRY(join(c, mark, output, "/compress.json"));
    if (!exists(mark))
        HT_FAIL(c->ctx, HT_EINVAL,
                "%s is there already, and has no compress.json: --force replaces only what compress wrote", output);
    if (!c->request->force) HT_FAIL(c->ctx, HT_EINVAL, "%s is there already: --force replaces it", output);
    return HT_OK;
}

/* The mark comes first into such a folder, and goes with it. */
ht_status ht_compression_make_work(ht_context *ctx, const char *path)
{
    char mark[HT_COMPRESS_PATH + 32];
    snprintf(mark, sizeof mark, "%s/made-by-compress", path);
    if (exists(path) && !exists(mark) && rmdir(path) != 0)
        HT_FAIL(ctx, HT_EINVAL, "%s is there already, and no compression left it: it needs another name", path);
    if (exists(path)) HT_TRY(ht_folder_remove(ctx, path));
    HT_TRY(ht_folder_make(ctx, path));
    FILE *file = fopen(mark, "wbe");
    if (!file || fclose(file) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", mark, strerror(errno));
    return HT_OK;
}

/* An output that one that was killed had put aside, and not replaced yet. */
static ht_status bring_back(ht_compression *c)
{
    char aside[HT_COMPRESS_PATH];
    HT_TRY(join(c, aside, c->work, "/replaced"));
    if (!exists(aside) || exists(c->request->output)) return HT_OK;
    if (rename(aside, c->request->output) != 0) HT_FAIL(c->ctx, HT_EIO, "%s: %s", c->request->output, strerror(errno));
    return HT_OK;
}

ht_status ht_compression_open_folders(ht_compression *c)
{
    char trimmed[HT_COMPRESS_PATH];
    HT_TRY(join(c, trimmed, c->request->output, ""));
    for (size_t length = strlen(trimmed); length > 1 && trimmed[length - 1] == '/';) trimmed[--length] = '\0';
    HT_TRY(join(c, c->work, trimmed, ".partial"));
    HT_TRY(join(c, c->result, c->work, "/run"));
    HT_TRY(join(c, c->initial, c->work, "/initial.safetensors"));
    ht_status status = bring_back(c);
    if (status == HT_OK) status = check_output(c);
    if (status == HT_OK) status = ht_compression_make_work(c->ctx, c->work);
    if (status != HT_OK) c->work[0] = '\0'; /* it is not ours to remove */
    return status;
}

void ht_compression_remove_folders(ht_compression *c)
{
    ht_context aside = {0}; /* the message is of what failed before */
    if (c->work[0] && exists(c->work)) ht_folder_remove(&aside, c->work);
}

ht_status ht_compression_write_text(ht_compression *c, const char *name, const ht_text *text)
{
    char path[HT_COMPRESS_PATH];
    int length = snprintf(path, sizeof path, "%s/%s", c->result, name);
    if (length < 0 || length >= HT_COMPRESS_PATH) HT_FAIL(c->ctx, HT_EINVAL, "%s: the path is too long", c->result);
    FILE *file = text->failed ? NULL : fopen(path, "wbe");
    if (!file) HT_FAIL(c->ctx, HT_EIO, "%s: %s", path, text->failed ? "out of memory" : strerror(errno));
    bool wrote = fwrite(text->data, 1, text->length, file) == text->length;
    wrote = fflush(file) == 0 && fsync(fileno(file)) == 0 && wrote;
    if (fclose(file) != 0 || !wrote) HT_FAIL(c->ctx, HT_EIO, "%s: %s", path, strerror(errno));
    return HT_OK;
}

/* The graph of the result, for people and for `halftone opt`: every segment, at the sizes of the job's micro-batch. */
ht_status ht_compression_write_model(ht_compression *c)
{
    ht_config *config;
    ht_graph *graph = NULL;
    char *text = NULL;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    ht_run_request request = {.config = config, .mode = HT_RUN_NEW, .folder = c->result, .data_folder = c->data_folder};
    ht_status status = ht_run_model(&graph, c->ctx, &request);
    if (status == HT_OK) status = ht_compression_quantize_graph(config, graph);
    if (status == HT_OK) status = ht_graph_print(&text, graph);
    if (status == HT_OK) {
        ht_text whole = {.data = text, .length = strlen(text)};
        status = ht_compression_write_text(c, "model.ht", &whole);
    }
    free(text);
    ht_graph_free(graph);
    ht_config_free(config);
    return status;
}

/* What was there goes aside first, and comes back if the rename fails. */
ht_status ht_compression_publish(ht_compression *c)
{
    const char *output = c->request->output;
    char aside[HT_COMPRESS_PATH];
    HT_TRY(join(c, aside, c->work, "/replaced"));
    bool replaces = exists(output);
    HT_TRY(check_output(c));
    if (replaces && rename(output, aside) != 0) HT_FAIL(c->ctx, HT_EIO, "%s: %s", output, strerror(errno));
    if (rename(c->result, output) != 0) {
        int error = errno;
        if (replaces && rename(aside, output) != 0) c->work[0] = '\0'; /* it stays there, rather than be removed */
        HT_FAIL(c->ctx, HT_EIO, "%s: %s", output, strerror(error));
    }
    return HT_OK;
}
