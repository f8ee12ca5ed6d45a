/* The memory that a plan may take: halftone.memory_limit, or what the machine has. */
#ifndef HT_TRAIN_MEMORY_LIMIT_H
#define HT_TRAIN_MEMORY_LIMIT_H

#include "train/job.h"

/* Refuses a plan that takes more, with by how much, and with what would fit; on_too_large is told of it. */
ht_status ht_job_check_memory(ht_job *job, const ht_run_request *request);
/* Of a plan whose memory could not be had (HT_ENOMEM, which stays): the message also says what would take less. */
ht_status ht_job_lacks_memory(ht_job *job, const ht_run_request *request);

#endif
