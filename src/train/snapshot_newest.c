/* The newest snapshot that can be read. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "train/snapshot_folder.h"

/* A walk over all snapshots of a folder. */
typedef struct walk {
    ht_context *ctx;
    const char *folder;
    ht_snapshot_take_fn take;
    void *arg;
    bool done;        /* one was taken */
    bool vanished;    /* one went while it was read */
    size_t damaged;   /* that could not be read */
    char reason[512]; /* why not the newest of them */
} walk;

/* A file that is missing, damaged or may not be read; an older snapshot may do. */
static bool is_damage(ht_status status)
{
    return status == HT_EIO || status == HT_EPARSE;
}

static ht_status try_entry(walk *w, ht_snapshot_entry entry)
{
    char path[HT_PATH_BYTES];
    struct stat about;
    if (entry.kind == HT_SNAPSHOT_PARTIAL) return HT_OK;
    HT_TRY(ht_snapshot_path(path, w->ctx, w->folder, entry, NULL));
    ht_status status = w->take(w->arg, path);
    w->done = status == HT_OK;
    if (!is_damage(status)) return status;
    if (stat(path, &about) != 0 && errno == ENOENT) {
        w->vanished = true;
        return HT_OK;
    }
    ht_note(w->ctx, HT_LOG_WARN, "%s is passed over: %s", path, ht_context_message(w->ctx));
    if (w->damaged++ == 0) snprintf(w->reason, sizeof w->reason, "%s", ht_context_message(w->ctx));
    return HT_OK;
}

static ht_status walk_once(walk *w)
{
    ht_snapshot_entry *entries;
    size_t count;
    struct stat about;
    w->vanished = false;
    w->damaged = 0;
    if (stat(w->folder, &about) != 0 && errno == ENOENT) return HT_OK;
    HT_TRY(ht_snapshot_list(w->ctx, w->folder, &entries, &count));
    ht_status status = HT_OK;
    for (size_t i = 0; i < count && status == HT_OK && !w->done; i++) status = try_entry(w, entries[i]);
    free(entries);
    return status;
}

ht_status ht_snapshot_newest(ht_context *ctx, const char *folder, ht_snapshot_take_fn take, void *arg, bool *taken)
{
    enum { MOST_WALKS = 100 };
    walk w = {.ctx = ctx, .folder = folder, .take = take, .arg = arg, .vanished = true};
    *taken = false;
    for (int i = 0; i < MOST_WALKS && !w.done && w.vanished; i++) HT_TRY(walk_once(&w));
    *taken = w.done;
    if (!w.done && w.damaged > 0)
        HT_FAIL(ctx, HT_EIO, "%s: no snapshot can be read, of %zu that are there; the newest: %s", folder, w.damaged,
                w.reason);
    return HT_OK;
}
