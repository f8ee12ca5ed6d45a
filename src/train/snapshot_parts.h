/* Tensors of which each rank has a part. */
#ifndef HT_TRAIN_SNAPSHOT_PARTS_H
#define HT_TRAIN_SNAPSHOT_PARTS_H

#include "train/ranks.h"
#include "train/snapshot_tensors.h"

/* snapshot_stages.c: the tensors of all stages of a pipeline in place of this one's. All ranks call it; ranks may be NULL:
 * then, and without a pipeline, the list stays. */
ht_status ht_snapshot_tensor_join(ht_snapshot_tensor_list *list, const ht_ranks *ranks, ht_context *ctx);

/* The whole tensor, in the stage, until that is used again; all ranks call it for the same tensors in the same order. */
ht_status ht_snapshot_gather(const ht_session *session, const ht_ranks *ranks, const ht_snapshot_tensor *tensor,
                             ht_host_copy *stage, const void **out);

#endif
