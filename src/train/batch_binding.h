/* How the batches of a loader reach a session: which array goes into which input, and which segments run on it. Where the
 * session computes on the CPU, batches are made in its inputs; elsewhere in stages of the host that are copied to the
 * device while it computes the batch before. */
#ifndef HT_TRAIN_BATCH_BINDING_H
#define HT_TRAIN_BATCH_BINDING_H

#include "train/job.h"

enum { HT_NO_SEGMENT = -1 };

/* One shape of batches: where its arrays go, and what it is run with. */
typedef struct ht_shape {
    ht_batch batch;
    const ht_slot *inputs[HT_BATCH_MOST_ARRAYS]; /* NULL: the model does not look at the array */
    int first, micro, eval;                      /* segments, or HT_NO_SEGMENT; first and micro of a stage: backward */
    int forward, receive, send;                  /* of a stage of a pipeline */
} ht_shape;

/* Memory of the host for one batch. */
typedef struct ht_batch_stage {
    char *memory;
    ht_event *sent; /* its last batch has left it */
} ht_batch_stage;

typedef struct ht_batch_binding {
    ht_session *session;
    ht_shape *shapes; /* by bucket */
    int shape_count;
    ht_batch_stage *stages;
    int64_t stage_count;
    uint64_t turn;                    /* batches bound so far */
    const ht_slot *index, *loss_grad; /* NULL: the model asks for none */
    int64_t rank, ranks;              /* whose micro-batches these are: every so manieth of a step */
    double step_loss_grad;            /* what backward starts from, in the step at hand */
} ht_batch_binding;

/* For the job's data and the inputs of the session. After a failure, too, ht_batch_binding_close. */
ht_status ht_batch_binding_open(ht_batch_binding *binding, const ht_job *job, ht_session *session);
void ht_batch_binding_close(ht_batch_binding *binding);

/* A batch that is on its way: what to run on it. */
typedef struct ht_bound_batch {
    const ht_shape *shape;
    unsigned slot; /* of the session's inputs */
} ht_bound_batch;

/* The loader's next batch, in inputs of the session. */
ht_status ht_batch_binding_next(ht_batch_binding *binding, ht_loader *loader, ht_bound_batch *out);
/* The same for micro-batch `index` of this rank in a training step, with what random numbers and the backward pass ask for. */
ht_status ht_batch_binding_micro(ht_batch_binding *binding, ht_loader *loader, int64_t index, ht_bound_batch *out);

/* The same in a slot that the caller chooses. */
ht_status ht_batch_binding_in_slot(ht_batch_binding *binding, ht_loader *loader, int64_t index, unsigned slot,
                                   ht_bound_batch *out);

/* What backward starts from in the next step: the mean over everything that counts in it. */
void ht_batch_binding_step(ht_batch_binding *binding, const ht_job *job, int64_t counted);

#endif
