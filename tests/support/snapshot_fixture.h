/* A small model in training, for tests of snapshots. */
#ifndef HT_TESTS_SNAPSHOT_FIXTURE_H
#define HT_TESTS_SNAPSHOT_FIXTURE_H

#include "folder_fixture.h"
#include "session_fixture.h"
#include "train/snapshot.h"

/* The model of tiny_model.h with dropout and AdamW. One thread, so that a test may fork. */
session_fixture snapshot_tiny(uint64_t seed);
/* The same with another update. */
session_fixture snapshot_trained(const ht_train_opts *opts, uint64_t seed);
/* A graph of its own: states and an empty segment. */
session_fixture snapshot_text(const char *text);

/* One training step on the batch of that number, then the step is counted. */
void snapshot_step(session_fixture *w);
/* A snapshot of where it stands. */
ht_status snapshot_save(session_fixture *w, const char *folder, int keep);
/* Reads the snapshot and takes over its step. */
ht_status snapshot_load(session_fixture *w, const char *path);
/* Of all bytes of all state but gradients, which the next step makes anew. */
uint64_t snapshot_hash(const session_fixture *w);

/* The path of a name in test_folder, in static memory. */
const char *snapshot_at(const char *name);
/* The name of the newest snapshot in test_folder, in static memory; "" when there is none. */
const char *snapshot_newest(const session_fixture *w);

#endif
