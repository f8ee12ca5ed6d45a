/* Tensors of which each rank has a part. */
#ifndef HT_TRAIN_SNAPSHOT_PARTS_H
#define HT_TRAIN_SNAPSHOT_PARTS_H

#include "train/ranks.h"
#include "train/snapshot_tensors.h"

/* snapshot_stages.c: the tensors of all stages of a pipeline in place of this one's. All ranks call it; ranks may be NULL:
 * then, and without a pipeline, the list stays. */
ht_status ht_snapshot_tensor_join(ht_snapshot_tensor_list *list, const ht_ranks *ranks, ht_context *ctx);

/* On the first rank the whole tensor, in the stage, until that is used again; others send their parts, and have nothing in
 * *out. All ranks call it for the same tensors in the same order. */
ht_status ht_snapshot_gather(const ht_session *session, const ht_ranks *ranks, const ht_snapshot_tensor *tensor,
                             ht_host_copy *stage, const void **out);
/* What this rank's stage, and what is put together for it, take at most. All ranks call it. */
ht_status ht_snapshot_staging_bytes(int64_t *out, const ht_plan *plan, const ht_ranks *ranks);

#endif
