/* How the batches of a feed reach a session: which array goes into which input, and which segments run on it. */
#ifndef HT_TRAIN_BATCHES_H
#define HT_TRAIN_BATCHES_H

#include "train/job.h"

/* One shape of batches: its memory, and the names of what it is run with. */
typedef struct ht_shape {
    ht_batch batch;
    char inputs[HT_BATCH_MOST_ARRAYS][64]; /* slot of each array; empty: the model does not look at it */
    char first[32], micro[32], eval[32];   /* segments */
} ht_shape;

typedef struct ht_batches {
    ht_shape *shapes; /* by bucket */
    int shape_count;
    int64_t rows_of_micro; /* of random numbers: further rows of a step begin here */
    bool has_sample;
} ht_batches;

/* For the job's data and the inputs of `plan`. After a failure, too, ht_batches_close. */
ht_status ht_batches_open(ht_batches *batches, const ht_job *job, const ht_plan *plan);
void ht_batches_close(ht_batches *batches);

/* The feed's next batch into the session's inputs; *shape says what to run. */
ht_status ht_batches_next(ht_batches *batches, ht_feed *feed, ht_session *session, ht_shape **shape);
/* The same for micro-batch `index` of a training step, and what random numbers ask for. */
ht_status ht_batches_micro(ht_batches *batches, ht_feed *feed, int64_t index, ht_session *session, ht_shape **shape);

/* What backward starts from: the mean over everything that counts in the whole step. */
ht_status ht_batches_seed(const ht_job *job, ht_session *session, int64_t counted);

#endif
