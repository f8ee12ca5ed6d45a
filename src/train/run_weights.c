/* The weights of a run, wherever its newest snapshot is. */
#include <stdio.h>

#include "train/snapshot_folder.h"
#include "train/train.h"

typedef struct taking {
    ht_context *ctx;
    ht_safetensors **file;
    char *path;
} taking;

static ht_status take(void *arg, const char *path)
{
    const taking *t = arg;
    return ht_snapshot_open_weights(t->file, t->ctx, path, t->path);
}

ht_status ht_run_open_weights(ht_safetensors **out, ht_context *ctx, const char *run, char path[HT_RUN_PATH_BYTES])
{
    _Static_assert((int)HT_RUN_PATH_BYTES == (int)HT_PATH_BYTES, "paths of runs and of snapshots");
    char folder[HT_PATH_BYTES];
    taking t = {ctx, out, path};
    bool taken;
    int length = snprintf(folder, sizeof folder, "%s/snapshots", run);
    if (length < 0 || length >= HT_PATH_BYTES) HT_FAIL(ctx, HT_EINVAL, "%s: the path is too long", run);
    HT_TRY(ht_snapshot_newest(ctx, folder, take, &t, &taken));
    if (!taken) HT_FAIL(ctx, HT_EINVAL, "%s: there is no complete snapshot", folder);
    return HT_OK;
}
