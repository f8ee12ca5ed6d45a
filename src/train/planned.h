/* A job's plan for those who only look at it: what a run of it would be, without a folder, memory or a step. */
#ifndef HT_TRAIN_PLANNED_H
#define HT_TRAIN_PLANNED_H

#include "data/data.h"
#include "exec/exec.h"

struct ht_run_request;

typedef struct ht_planned {
    ht_plan *plan;
    ht_data *data; /* of the job; NULL where the request brought it */
    ht_task task;
    int64_t steps;                             /* of the whole run */
    int64_t parameters, frozen;                /* elements that are trained; that train.freeze leaves out */
    double samples, tokens;                    /* of a step, of all ranks: rows; tokens that count, 0: there are none */
    double host_seconds;                       /* of a step, here: batches are made, and a record is written */
    int bucket_count;                          /* shapes of batches, the largest last */
    double bucket_share[HT_DATA_MOST_BUCKETS]; /* of an epoch's batches */
} ht_planned;

/* To be freed whatever the result. With ht_run_request.data the data set is not opened again. */
ht_status ht_run_planned(ht_planned *out, ht_context *ctx, const struct ht_run_request *request);
void ht_planned_free(ht_planned *planned);

#endif
