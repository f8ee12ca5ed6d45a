/* Support for tests of snapshots: a small model in training, and folders. */
#ifndef HT_TESTS_SNAPSHOT_FIXTURE_H
#define HT_TESTS_SNAPSHOT_FIXTURE_H

#include "train/snapshot.h"
#include "train/train.h"

typedef struct snapshot_fixture {
    ht_context *ctx;
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
    int64_t step;
} snapshot_fixture;

/* The model of tiny_model.h with dropout and AdamW; aborts when it cannot be had. One thread, so that a test may fork. */
snapshot_fixture snapshot_fixture_tiny(uint64_t seed);
/* The same with another update. */
snapshot_fixture snapshot_fixture_trained(const ht_train_opts *opts, uint64_t seed);
/* A graph of its own: states and an empty segment. */
snapshot_fixture snapshot_fixture_text(const char *text);
void snapshot_fixture_end(snapshot_fixture *w);

/* One training step on the batch of that number, then the step is counted. */
void snapshot_fixture_step(snapshot_fixture *w);
/* A snapshot of where it stands. */
ht_status snapshot_fixture_save(snapshot_fixture *w, const char *folder, int keep);
/* Reads the snapshot and takes over its step. */
ht_status snapshot_fixture_load(snapshot_fixture *w, const char *path);
/* Of all bytes of all state but gradients, which the next step makes anew. */
uint64_t snapshot_fixture_hash(const snapshot_fixture *w);

/* A new folder of TMPDIR; and away with one, whatever it holds. */
void snapshot_folder_make(char folder[64]);
void snapshot_folder_remove(const char *path);
/* folder/name in static memory. */
const char *snapshot_folder_at(const char *folder, const char *name);
/* How many names it holds. */
int snapshot_folder_count(const char *folder);

#endif
