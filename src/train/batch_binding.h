/* How the batches of a loader reach a session: which array goes into which input, and which segments run on it. */
#ifndef HT_TRAIN_BATCH_BINDING_H
#define HT_TRAIN_BATCH_BINDING_H

#include "train/job.h"

/* One shape of batches: its memory, and the names of what it is run with. */
typedef struct ht_shape {
    ht_batch batch;                      /* made where the session reads it */
    void *unread[HT_BATCH_MOST_ARRAYS];  /* heap memory of an array that the model does not look at, else NULL */
    char first[32], micro[32], eval[32]; /* segments */
} ht_shape;

typedef struct ht_batch_binding {
    ht_session *session;
    ht_shape *shapes; /* by bucket */
    int shape_count;
    int64_t rows_of_micro; /* of random numbers: further rows of a step begin here */
    bool has_sample;
} ht_batch_binding;

/* For the job's data and the inputs of the session. After a failure, too, ht_batch_binding_close. */
ht_status ht_batch_binding_open(ht_batch_binding *binding, const ht_job *job, ht_session *session);
void ht_batch_binding_close(ht_batch_binding *binding);

/* The loader's next batch, in the session's inputs; *shape says what to run. */
ht_status ht_batch_binding_next(ht_batch_binding *binding, ht_loader *loader, ht_shape **shape);
/* The same for micro-batch `index` of a training step, and what random numbers ask for. */
ht_status ht_batch_binding_micro(ht_batch_binding *binding, ht_loader *loader, int64_t index, ht_shape **shape);

/* What backward starts from: the mean over everything that counts in the whole step. */
ht_status ht_batch_binding_loss_grad(const ht_job *job, ht_session *session, int64_t counted);

#endif
