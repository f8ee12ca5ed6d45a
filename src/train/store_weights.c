/* The weights of a snapshot as evaluation has them: codes in place of floats. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/run_state.h"
#include "train/snapshot_folder.h"
#include "train/snapshot_tensors.h"

typedef struct storing {
    ht_context *ctx;
    const ht_session *session;
    char file[HT_PATH_BYTES], manifest[HT_PATH_BYTES]; /* what is replaced */
    char partial[HT_PATH_BYTES];                       /* what is written */
} storing;

static ht_status path_in(const storing *s, const char *folder, const char *name, char path[HT_PATH_BYTES])
{
    int length = snprintf(path, HT_PATH_BYTES, "%s/%s", folder, name);
    if (length < 0 || length >= HT_PATH_BYTES) HT_FAIL(s->ctx, HT_EINVAL, "%s: the path is too long", folder);
    return HT_OK;
}

static ht_status replace_file(const storing *s, const char *path)
{
    if (rename(s->partial, path) != 0) HT_FAIL(s->ctx, HT_EIO, "%s: %s", path, strerror(errno));
    return HT_OK;
}

static ht_status append_piece(void *writer, size_t offset, const void *data, size_t bytes)
{
    (void)offset;
    return ht_safetensors_append(writer, data, bytes);
}

static ht_status append_all(const storing *s, ht_safetensors_writer *writer, const ht_snapshot_tensor_list *list)
{
    ht_host_copy stage = {0};
    ht_status status = HT_OK;
    for (size_t i = 0; i < list->count && status == HT_OK; i++)
        if (list->items[i].file == HT_SNAPSHOT_WEIGHTS)
            status = ht_executor_view_pieces(s->session->executor, list->items[i].place, list->items[i].array.bytes,
                                             &stage, append_piece, writer);
    free(stage.data);
    return status;
}

static ht_status write_weights(const storing *s, ht_stored_file *stored)
{
    ht_snapshot_tensor_list list;
    ht_safetensors_writer *writer;
    size_t count = 0;
    HT_TRY(ht_snapshot_tensor_find(&list, s->session->plan));
    ht_named_array *arrays = calloc(list.count + 1, sizeof *arrays);
    ht_status status = arrays ? HT_OK : ht_fail(s->ctx, HT_ENOMEM, "%s: out of memory", s->file);
    for (size_t i = 0; i < list.count && arrays; i++)
        if (list.items[i].file == HT_SNAPSHOT_WEIGHTS)
            arrays[count++] = (ht_named_array){list.items[i].name, list.items[i].array};
    if (status == HT_OK) status = ht_safetensors_create(&writer, s->ctx, s->partial, arrays, count, NULL);
    if (status == HT_OK) {
        status = append_all(s, writer, &list);
        if (status == HT_OK)
            status = ht_safetensors_finish(writer, &stored->checksum, &stored->bytes);
        else
            ht_safetensors_abandon(writer);
    }
    free(arrays);
    ht_snapshot_tensor_free(&list);
    return status == HT_OK ? replace_file(s, s->file) : status;
}

static ht_status write_manifest(const storing *s, const ht_manifest *manifest)
{
    ht_text text = {0};
    ht_status status = ht_manifest_print(&text, s->ctx, manifest);
    FILE *file = status == HT_OK ? fopen(s->partial, "wbe") : NULL;
    bool wrote =
        file && fwrite(text.data, 1, text.length, file) == text.length && fflush(file) == 0 && fsync(fileno(file)) == 0;
    if (file && fclose(file) != 0) wrote = false;
    if (status == HT_OK && !wrote) status = ht_fail(s->ctx, HT_EIO, "%s: %s", s->partial, strerror(errno));
    ht_text_free(&text);
    return status == HT_OK ? replace_file(s, s->manifest) : status;
}

static ht_status store(void *arg, const char *snapshot)
{
    storing *s = arg;
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(s->ctx, HT_ENOMEM, "%s: out of memory", snapshot);
    ht_status status = ht_snapshot_manifest(&manifest, s->ctx, arena, snapshot);
    if (status == HT_OK) status = path_in(s, snapshot, ht_snapshot_file_names[HT_SNAPSHOT_WEIGHTS], s->file);
    if (status == HT_OK) status = path_in(s, snapshot, HT_MANIFEST_NAME, s->manifest);
    if (status == HT_OK) status = path_in(s, snapshot, "partial", s->partial);
    if (status == HT_OK) status = write_weights(s, &manifest.files[HT_SNAPSHOT_WEIGHTS]);
    if (status == HT_OK) status = write_manifest(s, &manifest);
    ht_arena_free(arena);
    return status;
}

static ht_status replace_sparse(const storing *s, const ht_safetensors *file, ht_manifest *manifest)
{
    ht_stored_file *stored = &manifest->files[HT_SNAPSHOT_WEIGHTS];
    bool some;
    HT_TRY(ht_safetensors_write_sparse(s->ctx, file, s->partial, &some, &stored->checksum, &stored->bytes));
    if (!some) return HT_OK;
    HT_TRY(replace_file(s, s->file));
    return write_manifest(s, manifest);
}

static ht_status store_sparse(void *arg, const char *snapshot)
{
    storing *s = arg;
    ht_manifest manifest;
    ht_safetensors *file = NULL;
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(s->ctx, HT_ENOMEM, "%s: out of memory", snapshot);
    ht_status status = ht_snapshot_manifest(&manifest, s->ctx, arena, snapshot);
    if (status == HT_OK) status = ht_snapshot_open_weights(&file, s->ctx, snapshot, s->file);
    if (status == HT_OK) status = path_in(s, snapshot, HT_MANIFEST_NAME, s->manifest);
    if (status == HT_OK) status = path_in(s, snapshot, "partial", s->partial);
    if (status == HT_OK) status = replace_sparse(s, file, &manifest);
    ht_safetensors_free(file);
    ht_arena_free(arena);
    return status;
}

ht_status ht_run_store_sparse(ht_context *ctx, const char *run)
{
    storing s = {.ctx = ctx};
    char snapshots[HT_PATH_BYTES];
    bool taken;
    HT_TRY(path_in(&s, run, "snapshots", snapshots));
    HT_TRY(ht_snapshot_newest(ctx, snapshots, store_sparse, &s, &taken));
    if (!taken) HT_FAIL(ctx, HT_EINVAL, "%s: there is no complete snapshot", snapshots);
    return HT_OK;
}

ht_status ht_run_store_weights(ht_run *run)
{
    storing s = {.ctx = run->ctx, .session = run->job.session};
    bool taken;
    HT_TRY(ht_snapshot_newest(run->ctx, run->snapshots, store, &s, &taken));
    if (!taken) HT_FAIL(run->ctx, HT_EINVAL, "%s: there is no complete snapshot", run->snapshots);
    return HT_OK;
}
