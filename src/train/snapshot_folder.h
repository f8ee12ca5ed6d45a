/* The folder of a run's snapshots: names, what is in it, taking things away. */
#ifndef HT_TRAIN_SNAPSHOT_FOLDER_H
#define HT_TRAIN_SNAPSHOT_FOLDER_H

#include "format/format.h"
#include "train/manifest.h"

enum { HT_PATH_BYTES = 4096 };

typedef enum ht_snapshot_kind {
    HT_SNAPSHOT_WHOLE,    /* step-NNNNNNNN */
    HT_SNAPSHOT_REPLACED, /* step-NNNNNNNN.replaced: whole, and on its way out for another of the same step */
    HT_SNAPSHOT_PARTIAL   /* step-NNNNNNNN.partial: being written or removed, or left by a process that died */
} ht_snapshot_kind;

typedef struct ht_snapshot_entry {
    int64_t step;
    ht_snapshot_kind kind;
} ht_snapshot_entry;

/* Newest first, and of one step the whole one first; other names are ignored. *out is heap memory. */
ht_status ht_snapshot_list(ht_context *ctx, const char *folder, ht_snapshot_entry **out, size_t *count);
/* folder/step-NNNNNNNN…, and inside it `file` unless that is NULL. */
ht_status ht_snapshot_path(char path[HT_PATH_BYTES], ht_context *ctx, const char *folder, ht_snapshot_entry entry,
                           const char *file);

/* Reads and checks path/manifest.json; texts live in the arena. */
ht_status ht_snapshot_manifest(ht_manifest *out, ht_context *ctx, ht_arena *arena, const char *path);
/* The weights of a snapshot, once their checksum is the manifest's; `file` receives the path. */
ht_status ht_snapshot_open_weights(ht_safetensors **out, ht_context *ctx, const char *path, char file[HT_PATH_BYTES]);
/* A manifest, and files of the sizes that it says; otherwise the context says what is missing. */
ht_status ht_snapshot_complete(ht_context *ctx, const char *path);

/* Offers the snapshots of a folder, the newest first, until `take` takes one: *taken is false where there is none, and no
 * folder. One that is damaged (HT_EIO, HT_EPARSE) is passed over with a line in the log; HT_EIO where all are. A process
 * that trains may remove some meanwhile. */
typedef ht_status (*ht_snapshot_take_fn)(void *arg, const char *path);
ht_status ht_snapshot_newest(ht_context *ctx, const char *folder, ht_snapshot_take_fn take, void *arg, bool *taken);

/* Removes a snapshot's three files and the folder itself; 0, or errno. A file that we did not put there stays. */
int ht_snapshot_unlink(const char *path);
/* The same for a whole one: it loses its name first, so that no reader finds half of it. */
int ht_snapshot_remove(const char *folder, ht_snapshot_entry entry);

#endif
