/* The folder of a run: config.resolved.json, target.json, data.json, memory.json, metrics.jsonl, vocabularies, events,
 * snapshots/. */
#ifndef HT_TRAIN_FOLDER_H
#define HT_TRAIN_FOLDER_H

#include "train/job.h"

/* folder/name in heap memory. */
ht_status ht_folder_path(ht_context *ctx, char **out, const char *folder, const char *name);

/* Before anything is opened: is the folder free for a run in this mode? HT_RUN_FORCE removes what a run left there. */
ht_status ht_folder_claim(ht_context *ctx, const char *folder, ht_run_mode mode);
/* The resolved config, the target, the plan's memory and the vocabularies, each sealed (train/seal.h). */
ht_status ht_folder_record(ht_context *ctx, const char *folder, const ht_job *job);
/* As an array: the names of those that snapshots of the job need. */
void ht_folder_list(ht_json_writer *json, const char *key, const ht_job *job);
/* *there: a file is there, and if it is sealed its checksum is right. Those of older versions have none. */
ht_status ht_folder_check(ht_context *ctx, const char *folder, const char *name, bool *there);
/* A whole file in heap memory, whose checksum is right if it is sealed. */
ht_status ht_folder_read_sealed(ht_context *ctx, const char *path, char **text, size_t *length, bool *sealed);
/* The file must be there, sealed, and whole. */
ht_status ht_folder_require(ht_context *ctx, const char *folder, const char *name);

#endif
