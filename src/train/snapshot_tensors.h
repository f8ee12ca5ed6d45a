/* Which bytes of a session a snapshot holds, and under which names: its plan knows. */
#ifndef HT_TRAIN_SNAPSHOT_TENSORS_H
#define HT_TRAIN_SNAPSHOT_TENSORS_H

#include "exec/exec.h"
#include "format/format.h"
#include "train/manifest.h"

typedef struct ht_snapshot_tensor {
    const char *name;
    ht_array array; /* without data */
    ht_place place; /* of the data in the session */
    /* The session has some of it, and other ranks have the others: so many bytes of its piece (of all, where it is not
     * cut), from this one on. */
    bool part;
    ht_cut cut;
    ht_type whole;
    bool divided; /* ranks of the data axis have different bytes of the piece */
    size_t part_first, part_bytes;
    bool elsewhere; /* another stage of a pipeline sends it */
    int file;       /* HT_SNAPSHOT_WEIGHTS, … */
    bool padding;   /* bytes between the views of a state: absent from the file while they are zero */
    bool optional;  /* older programs did not have it: may be absent, and keeps the value of the session then */
} ht_snapshot_tensor;

typedef struct ht_snapshot_tensor_list {
    ht_snapshot_tensor *items; /* heap memory, freed with the arena's names by ht_snapshot_tensor_free */
    size_t count, capacity;
    ht_arena *names;
} ht_snapshot_tensor_list;

/* Every state that is neither derived nor a gradient. What others view is saved as its views, so that a file holds
 * the tensors of the model and not how they were laid out; bytes that no view has follow as "name[begin:end]". Wide
 * types first. On failure *out is empty. */
ht_status ht_snapshot_tensor_find(ht_snapshot_tensor_list *out, const ht_plan *plan);
/* Wide types first, then by name. */
void ht_snapshot_tensor_sort(ht_snapshot_tensor_list *list);
void ht_snapshot_tensor_free(ht_snapshot_tensor_list *list);

/* Bytes of it in the session. */
static inline size_t ht_snapshot_tensor_own_bytes(const ht_snapshot_tensor *tensor)
{
    return tensor->part ? tensor->part_bytes : tensor->array.bytes;
}

/* snapshot_space.c: fails if the file system of `folder`, which is there, has no space for as many snapshots as there are
 * `at_once` in the folder `snapshots`, those that it holds already included, but for one more in any case. */
ht_status ht_snapshot_check_space(const ht_plan *plan, const char *folder, const char *snapshots, int64_t at_once);

/* Is it in the file now? */
ht_status ht_snapshot_tensor_present(const ht_session *session, const ht_snapshot_tensor *tensor, ht_host_copy *stage,
                                     bool *present);

#endif
