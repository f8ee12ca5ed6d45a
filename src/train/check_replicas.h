#ifndef HT_TRAIN_CHECK_REPLICAS_H
#define HT_TRAIN_CHECK_REPLICAS_H

#include "train/run_state.h"

/* All ranks call it after the same step: fails on those that share a tensor which is not the same on all, with its name and
 * the rank. */
ht_status ht_run_check_replicas(ht_run *run);

#endif
