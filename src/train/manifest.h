/* The manifest of a snapshot: what it is of, and what its files must be. */
#ifndef HT_TRAIN_MANIFEST_H
#define HT_TRAIN_MANIFEST_H

#include "base/base.h"
#include "train/snapshot.h"

enum { HT_SNAPSHOT_WEIGHTS, HT_SNAPSHOT_OPTIMIZER, HT_SNAPSHOT_FILES };
/* In the order of the list. */
extern const char *const ht_snapshot_file_names[HT_SNAPSHOT_FILES];
#define HT_MANIFEST_NAME "manifest.json"

typedef struct ht_stored_file {
    int64_t bytes;
    uint64_t checksum;
} ht_stored_file;

typedef struct ht_manifest {
    ht_snapshot_meta meta; /* texts live in the arena that was given */
    ht_stored_file files[HT_SNAPSHOT_FILES];
} ht_manifest;

/* Fails for texts that are not JSON objects, and for numbers that a manifest cannot hold. */
ht_status ht_manifest_print(ht_text *out, ht_context *ctx, const ht_manifest *manifest);
/* Bytes from any source; `name` stands in messages. */
ht_status ht_manifest_parse(ht_manifest *out, ht_context *ctx, ht_arena *arena, const char *name, const char *text,
                            size_t length);
/* The last member of a manifest is the checksum of everything before it. */
ht_status ht_manifest_check(ht_context *ctx, const char *name, const char *text, size_t length);

#endif
