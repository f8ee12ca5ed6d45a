/* Weights that a run starts from: train.init_from. */
#ifndef HT_TRAIN_INIT_FROM_H
#define HT_TRAIN_INIT_FROM_H

#include "train/job.h"

/* The folder of the run that a job starts from; NULL: it starts from nothing, or from a snapshot or a file alone. */
const char *ht_init_from_run(const ht_train_config *config);

/* Opens what the job starts from and compares its tensors with those of the plan, by name and shape; on_note is told of
 * each. HT_EINVAL where they do not fit, unless the job's "strict" is false and some do. Nothing to do without
 * train.init_from. */
ht_status ht_init_from_check(const ht_job *job, const ht_plan *plan, const ht_run_request *request);

/* The same with the job's own plan, and the session's parameters and statistics get the values, converted to the types
 * that they have there. on_note is told what does not fit. `folder` is that of the run. */
ht_status ht_init_from_load(ht_job *job, const ht_run_request *request, const char *folder);

#endif
