/* What changed in a job since a snapshot of it was written. */
#ifndef HT_TRAIN_CONFIG_CHANGES_H
#define HT_TRAIN_CONFIG_CHANGES_H

#include "config/config.h"

typedef struct ht_config_change {
    const char *key;            /* "train.lr" */
    const char *before, *after; /* as JSON; "not set" where one of them lacks the key */
} ht_config_change;

typedef struct ht_config_changes {
    ht_arena *arena; /* holds everything */
    ht_config_change *list;
    size_t count;
} ht_config_changes;

/* `before` is what ht_config_print_json said; NULL: nothing is known, so nothing has changed. Keys that only one of
 * them has count where they were given. ht_config_changes_free in any case. */
ht_status ht_config_changes_find(ht_config_changes *out, ht_context *ctx, const char *before, const ht_config *now);
void ht_config_changes_free(ht_config_changes *changes);
/* NULL: it is as before. */
const ht_config_change *ht_config_changes_of(const ht_config_changes *changes, const char *key);
/* "model.n_embd: 16 -> 32, data.length: 8 -> 16": those that decide what state a run has, at most a few; "" without. */
void ht_config_changes_name_state(const ht_config_changes *changes, ht_text *text);

#endif
