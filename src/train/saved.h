/* Which bytes of a session a snapshot holds, and under which names. */
#ifndef HT_TRAIN_SAVED_H
#define HT_TRAIN_SAVED_H

#include "exec/exec.h"
#include "format/format.h"
#include "train/manifest.h"

typedef struct ht_saved {
    const char *name;
    ht_array array; /* data: in the session's memory */
    int file;       /* HT_SNAPSHOT_WEIGHTS, … */
    bool filler;    /* bytes between the views of a state: absent from the file while they are zero */
    bool newcomer;  /* older programs did not have it: may be absent, and keeps the value of the session then */
} ht_saved;

typedef struct ht_saved_list {
    ht_saved *items; /* heap memory, freed with the arena's names by ht_saved_free */
    size_t count, capacity;
    ht_arena *names;
} ht_saved_list;

/* Every state that is neither derived nor a gradient. What others view is saved as its views, so that a file holds
 * the tensors of the model and not how they were laid out; bytes that no view has follow as "name[begin:end]". Wide
 * types first. On failure *out is empty. */
ht_status ht_saved_find(ht_saved_list *out, const ht_session *session);
void ht_saved_free(ht_saved_list *list);

/* Is it in the file now? */
bool ht_saved_present(const ht_saved *saved);

#endif
