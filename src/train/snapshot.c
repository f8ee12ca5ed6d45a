/* Writing a snapshot. In order, so that a machine may stop anywhere: the files under a name that no reader looks for,
 * each synced; their folder synced; the rename; the folder of all synced; only then old ones are removed. */
#include "train/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/snapshot_folder.h"
#include "train/snapshot_parts.h"
#include "train/snapshot_tensors.h"

typedef struct writing {
    ht_context *ctx;
    const ht_session *session;
    const ht_ranks *ranks; /* NULL: this one has everything */
    const char *folder;
    int64_t step;
    int keep;
    int lock; /* the open folder */
    char partial[HT_PATH_BYTES], whole[HT_PATH_BYTES];
} writing;

static ht_status failed(const writing *w, const char *path)
{
    return ht_fail(w->ctx, HT_EIO, "%s: %s", path, strerror(errno));
}

/* ---- files ---- */

static ht_status append_piece(void *writer, size_t offset, const void *data, size_t bytes)
{
    (void)offset;
    return ht_safetensors_append(writer, data, bytes);
}

static ht_status append_all(const writing *w, ht_safetensors_writer *writer, const ht_snapshot_tensor_list *list,
                            const bool *present, int file, ht_host_copy *stage)
{
    for (size_t i = 0; i < list->count; i++) {
        const ht_snapshot_tensor *tensor = &list->items[i];
        if (!present[i] || tensor->file != file) continue;
        if (tensor->part) {
            const void *whole;
            HT_TRY(ht_snapshot_gather(w->session, w->ranks, tensor, stage, &whole));
            HT_TRY(ht_safetensors_append(writer, whole, tensor->array.bytes));
            continue;
        }
        HT_TRY(ht_executor_view_pieces(w->session->executor, tensor->place, tensor->array.bytes, stage, append_piece,
                                       writer));
    }
    return HT_OK;
}

static ht_status write_tensors(const writing *w, const ht_snapshot_tensor_list *list, int file, ht_stored_file *stored)
{
    char path[HT_PATH_BYTES];
    ht_snapshot_entry partial = {w->step, HT_SNAPSHOT_PARTIAL};
    HT_TRY(ht_snapshot_path(path, w->ctx, w->folder, partial, ht_snapshot_file_names[file]));
    ht_named_array *arrays = calloc(list->count + 1, sizeof *arrays);
    bool *present = calloc(list->count + 1, sizeof *present);
    ht_host_copy stage = {0};
    size_t count = 0;
    ht_status status = arrays && present ? HT_OK : ht_fail(w->ctx, HT_ENOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < list->count && status == HT_OK; i++) {
        status = ht_snapshot_tensor_present(w->session, &list->items[i], &stage, &present[i]);
        if (present[i] && list->items[i].file == file)
            arrays[count++] = (ht_named_array){list->items[i].name, list->items[i].array};
    }
    ht_safetensors_writer *writer;
    if (status == HT_OK) status = ht_safetensors_create(&writer, w->ctx, path, arrays, count, NULL);
    if (status == HT_OK) {
        status = append_all(w, writer, list, present, file, &stage);
        if (status == HT_OK)
            status = ht_safetensors_finish(writer, &stored->checksum, &stored->bytes);
        else
            ht_safetensors_abandon(writer);
    }
    free(stage.data);
    free(arrays);
    free(present);
    return status;
}

static ht_status write_text(const writing *w, const char *path, const ht_text *text)
{
    FILE *file = fopen(path, "wbe");
    if (!file) return failed(w, path);
    bool ok =
        fwrite(text->data, 1, text->length, file) == text->length && fflush(file) == 0 && fsync(fileno(file)) == 0;
    ht_status status = ok ? HT_OK : failed(w, path);
    if (fclose(file) != 0 && ok) status = failed(w, path);
    return status;
}

static ht_status write_files(const writing *w, const ht_snapshot_meta *meta)
{
    char path[HT_PATH_BYTES];
    ht_manifest manifest = {.meta = *meta};
    ht_snapshot_tensor_list list;
    ht_text text = {0};
    ht_snapshot_entry partial = {w->step, HT_SNAPSHOT_PARTIAL};
    HT_TRY(ht_snapshot_path(path, w->ctx, w->folder, partial, HT_MANIFEST_NAME));
    HT_TRY(ht_snapshot_tensor_find(&list, w->session->plan));
    manifest.meta.model_hash = w->session->plan->model_hash;
    ht_status status = ht_snapshot_tensor_join(&list, w->ranks, w->ctx);
    for (int i = 0; i < HT_SNAPSHOT_FILES && status == HT_OK; i++)
        status = write_tensors(w, &list, i, &manifest.files[i]);
    if (status == HT_OK) status = ht_manifest_print(&text, w->ctx, &manifest);
    if (status == HT_OK) status = write_text(w, path, &text);
    ht_text_free(&text);
    ht_snapshot_tensor_free(&list);
    return status;
}

/* ---- the folder ---- */

/* Some file systems cannot sync a folder and say so; then there is nothing more to do. */
static ht_status sync_folder(const writing *w, int folder, const char *path)
{
    if (fsync(folder) == 0 || errno == EINVAL || errno == ENOTSUP) return HT_OK;
    return failed(w, path);
}

static ht_status sync_path(const writing *w, const char *path)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return failed(w, path);
    ht_status status = sync_folder(w, folder, path);
    close(folder);
    return status;
}

/* The name of a new folder lasts once its parent is synced. */
static ht_status sync_parent(const writing *w)
{
    char parent[HT_PATH_BYTES];
    int length = snprintf(parent, sizeof parent, "%s/..", w->folder);
    if (length < 0 || length >= HT_PATH_BYTES) HT_FAIL(w->ctx, HT_EINVAL, "%s: the path is too long", w->folder);
    return sync_path(w, parent);
}

/* Two processes must not clean up after each other; where there are no locks no process is stopped. */
static ht_status open_folder(writing *w)
{
    bool made = mkdir(w->folder, 0777) == 0;
    if (!made && errno != EEXIST) return failed(w, w->folder);
    w->lock = open(w->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w->lock < 0) return failed(w, w->folder);
    if (flock(w->lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        HT_FAIL(w->ctx, HT_EIO, "%s: another process is writing a snapshot here", w->folder);
    return made ? sync_parent(w) : HT_OK;
}

static void note_left(const writing *w, int64_t step, int error)
{
    if (error)
        ht_note(w->ctx, HT_LOG_WARN, "%s: an old snapshot of step %" PRId64 " stays: %s", w->folder, step,
                strerror(error));
}

/* A replaced snapshot without its successor gets its name back. */
static void restore(const writing *w, ht_snapshot_entry entry)
{
    char from[HT_PATH_BYTES], to[HT_PATH_BYTES];
    ht_snapshot_entry whole = {entry.step, HT_SNAPSHOT_WHOLE};
    if (ht_snapshot_path(from, w->ctx, w->folder, entry, NULL) == HT_OK &&
        ht_snapshot_path(to, w->ctx, w->folder, whole, NULL) == HT_OK)
        note_left(w, entry.step, rename(from, to) == 0 ? 0 : errno);
}

/* What a process left that was stopped in the middle. The list has a step's whole snapshot before its remains. */
static ht_status clean(const writing *w)
{
    ht_snapshot_entry *entries;
    size_t count;
    HT_TRY(ht_snapshot_list(w->ctx, w->folder, &entries, &count));
    for (size_t i = 0; i < count; i++) {
        bool succeeded = i > 0 && entries[i - 1].step == entries[i].step && entries[i - 1].kind == HT_SNAPSHOT_WHOLE;
        if (entries[i].kind == HT_SNAPSHOT_REPLACED && !succeeded)
            restore(w, entries[i]);
        else if (entries[i].kind != HT_SNAPSHOT_WHOLE)
            note_left(w, entries[i].step, ht_snapshot_remove(w->folder, entries[i]));
    }
    free(entries);
    return HT_OK;
}

static ht_status give_name(const writing *w)
{
    char replaced[HT_PATH_BYTES];
    if (rename(w->partial, w->whole) == 0) return sync_folder(w, w->lock, w->folder);
    if (errno != ENOTEMPTY && errno != EEXIST) return failed(w, w->whole);
    ht_snapshot_entry old = {w->step, HT_SNAPSHOT_REPLACED};
    HT_TRY(ht_snapshot_path(replaced, w->ctx, w->folder, old, NULL));
    if (rename(w->whole, replaced) != 0) return failed(w, w->whole);
    if (rename(w->partial, w->whole) != 0) {
        ht_status status = failed(w, w->whole);
        restore(w, old);
        return status;
    }
    HT_TRY(sync_folder(w, w->lock, w->folder));
    note_left(w, w->step, ht_snapshot_unlink(replaced));
    return HT_OK;
}

/* Keeps the newest complete ones up to this step. Later steps are another life of the run: they are not removed. */
static void remove_old(const writing *w)
{
    ht_context aside = {0};
    ht_snapshot_entry *entries;
    size_t count;
    int kept = 0;
    if (ht_snapshot_list(&aside, w->folder, &entries, &count) != HT_OK) {
        ht_note(w->ctx, HT_LOG_WARN, "old snapshots stay: %s", aside.message);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        char path[HT_PATH_BYTES];
        if (entries[i].kind != HT_SNAPSHOT_WHOLE || entries[i].step > w->step) continue;
        if (kept == w->keep)
            note_left(w, entries[i].step, ht_snapshot_remove(w->folder, entries[i]));
        else if (ht_snapshot_path(path, &aside, w->folder, entries[i], NULL) == HT_OK)
            kept += ht_snapshot_complete(&aside, path) == HT_OK;
    }
    free(entries);
}

static ht_status write_locked(const writing *w, const ht_snapshot_meta *meta)
{
    HT_TRY(clean(w));
    /* One that could not be cleaned away is written over. */
    if (mkdir(w->partial, 0777) != 0 && errno != EEXIST) return failed(w, w->partial);
    ht_status status = write_files(w, meta);
    if (status == HT_OK) status = sync_path(w, w->partial);
    if (status == HT_OK) status = give_name(w);
    if (status != HT_OK)
        ht_snapshot_unlink(w->partial);
    else
        remove_old(w);
    return status;
}

ht_status ht_snapshot_write(ht_session *session, const char *folder, const ht_snapshot_meta *meta, int keep)
{
    return ht_snapshot_write_ranks(session, NULL, folder, meta, keep);
}

ht_status ht_snapshot_write_ranks(ht_session *session, const ht_ranks *ranks, const char *folder,
                                  const ht_snapshot_meta *meta, int keep)
{
    ht_context *ctx = session->plan->ctx;
    writing w = {
        .ctx = ctx, .session = session, .ranks = ranks, .folder = folder, .step = meta->step, .keep = keep, .lock = -1};
    ht_snapshot_entry partial = {w.step, HT_SNAPSHOT_PARTIAL}, whole = {w.step, HT_SNAPSHOT_WHOLE};
    if (keep < 1) HT_FAIL(ctx, HT_EINVAL, "snapshot: at least 1 is kept, not %d", keep);
    if (w.step < 0) HT_FAIL(ctx, HT_EINVAL, "snapshot: step %" PRId64 " is negative", w.step);
    HT_TRY(ht_snapshot_path(w.partial, ctx, folder, partial, NULL));
    HT_TRY(ht_snapshot_path(w.whole, ctx, folder, whole, NULL));
    ht_status status = open_folder(&w);
    if (status == HT_OK) status = write_locked(&w, meta);
    if (w.lock >= 0) close(w.lock);
    if (status == HT_OK) return HT_OK;
    char why[sizeof ctx->message];
    snprintf(why, sizeof why, "%s", ctx->message);
    HT_FAIL(ctx, status, "no snapshot of step %" PRId64 ": %s", w.step, why);
}
