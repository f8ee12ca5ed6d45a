/* Snapshots: a session's state on the disk, whole or not at all. docs/snapshots.md describes the files.
 *
 * One snapshot is the folder step-NNNNNNNN with weights.safetensors, optimizer.safetensors and manifest.json. It is
 * written under another name, synced and renamed, so that what carries the name is complete; whatever fails, the
 * snapshots before it and the session stay as they were. */
#ifndef HT_TRAIN_SNAPSHOT_H
#define HT_TRAIN_SNAPSHOT_H

#include <halftone/session.h>

/* What resuming needs beside the state. */
typedef struct ht_snapshot_meta {
    int64_t step;      /* updates that the state has seen, skipped ones too */
    uint64_t position; /* of the loader */
    uint64_t seed;
    uint64_t model_hash;     /* the plan's; what a writer puts here is not looked at */
    const char *config_json; /* an object as text, or NULL; reading gives the same values, not the same spaces */
    const char *extra;       /* the same, for anything else */
} ht_snapshot_meta;

/* Writes the state that is neither derived nor a gradient to folder/step-NNNNNNNN, straight from the session's memory;
 * `folder` is made when it is not there, its parent must be. A snapshot of the same step is replaced. Then all but the
 * newest `keep` (at least 1) are removed, which can fail with no more than a line in the log. */
ht_status ht_snapshot_write(ht_session *session, const char *folder, const ht_snapshot_meta *meta, int keep);
/* The same by the first of several ranks, which gathers what the others have: each of them calls ht_snapshot_serve meanwhile. */
struct ht_ranks;
ht_status ht_snapshot_write_ranks(ht_session *session, const struct ht_ranks *ranks, const char *folder,
                                  const ht_snapshot_meta *meta, int keep);
ht_status ht_snapshot_serve(ht_session *session, const struct ht_ranks *ranks);

/* The newest complete one: *path is heap memory for free(), NULL when there is none, or no such folder. Others are
 * passed over with a line in the log that says why. */
ht_status ht_snapshot_find(ht_context *ctx, const char *folder, char **path);

/* The manifest alone, before there is a session. */
ht_status ht_snapshot_look(ht_context *ctx, const char *path, ht_snapshot_meta **meta);
/* All of it. Checksums, names, shapes, types and model are compared first, and nothing changes when one of them is
 * wrong; then the state is copied and the segment "derive" runs. meta may be NULL. */
ht_status ht_snapshot_read(ht_session *session, const char *path, ht_snapshot_meta **meta);
/* The same for a snapshot of the model under another hash: that of other micro-batches. */
ht_status ht_snapshot_read_as(ht_session *session, const char *path, uint64_t model_hash);
/* Parameters and statistics only, for a session that evaluates: it may be another plan of the same model. */
ht_status ht_snapshot_read_weights(ht_session *session, const char *path, ht_snapshot_meta **meta);

/* The texts go with it. */
void ht_snapshot_meta_free(ht_snapshot_meta *meta);

#endif
