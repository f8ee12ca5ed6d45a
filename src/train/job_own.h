/* What the files of a job share. */
#ifndef HT_TRAIN_JOB_OWN_H
#define HT_TRAIN_JOB_OWN_H

#include "train/job.h"

/* job_data.c. `vocabularies` names the folder of a run, whose words and facts are used; NULL: none. */
ht_status ht_job_open_data(ht_job *job, const ht_run_request *request, const char *vocabularies);
/* The rows of a batch, and the files to predict on. */
ht_status ht_job_open_inputs(ht_job *job, const ht_run_request *request);

/* job_target.c. `recorded` is as for ht_job_open. */
ht_status ht_job_choose_target(ht_job *job, const ht_run_request *request, const char *recorded);
/* Libraries of a GPU that are not there, and what works without them. */
void ht_job_tell_libraries(const ht_job *job, const ht_run_request *request);
/* Keys for GPUs that change nothing on a processor, where they were given. */
void ht_job_tell_idle_keys(const ht_job *job, const ht_run_request *request);

#endif
