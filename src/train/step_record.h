/* Step records: the numbers that a step leaves behind (losses, norm, scale, what became of it), fetched in the order of
 * the runs and read later, so that no step waits for the host. A ring of them: the host is one step late. */
#ifndef HT_TRAIN_STEP_RECORD_H
#define HT_TRAIN_STEP_RECORD_H

#include "exec/exec.h"
#include "train/train.h"

typedef struct ht_step_records ht_step_records;

/* What the host knows of a step when it starts it. */
typedef struct ht_step_start {
    int64_t step;      /* its number, from 1 */
    int64_t counted;   /* tokens or rows */
    uint64_t position; /* of the loader, behind the step's batches */
    int64_t syncs;     /* how often the host waited while it started the step */
    ht_exchange_report exchange;
} ht_step_start;

typedef struct ht_step_record {
    ht_step_start start;
    double begin_seconds, micro_seconds, end_seconds; /* when it began, its micro-batches were done, it was done */
    double loss_sum, count;                           /* over all micro-batches of all ranks */
    double loss_scale;                                /* that its loss was multiplied by */
    double next_loss_scale;
    double lr, grad_norm;
    double applied_now; /* 0: the step was skipped */
    double applied;     /* updates so far */
    double skips_in_a_row;
    double bad_rank; /* the first rank whose gradients were not finite; NAN: nobody asked */
    double fatal;    /* not 0: no later step will be applied */
} ht_step_record;

/* For steps of so many micro-batches of the session's "micro" and "update" segments. */
ht_status ht_step_records_open(ht_step_records **out, ht_session *session, int64_t micros);
/* Memory of their cells. */
int64_t ht_step_records_bytes(int64_t micros);
void ht_step_records_free(ht_step_records *records); /* takes NULL; waits for what is under way */

/* A step, in this order; a step that is given up is simply begun again. At most HT_STEPS_UNREAD are ended and unread. */
enum { HT_STEPS_UNREAD = 2 };
ht_status ht_step_records_begin(ht_step_records *records);
ht_status ht_step_records_micro(ht_step_records *records, int64_t index);
ht_status ht_step_records_update(ht_step_records *records); /* before the update */
ht_status ht_step_records_end(ht_step_records *records, const ht_step_start *start);
/* Of the step that was ended last, until it is taken. */
void ht_step_records_syncs(ht_step_records *records, int64_t syncs);

/* Waits until at most `most` steps are not done, once or not at all; what has failed so far is told. */
ht_status ht_step_records_wait(ht_step_records *records, int64_t most);
/* The oldest unread record; *taken: there was one, of a step that is done. */
ht_status ht_step_records_take(ht_step_records *records, ht_step_record *out, bool *taken);

#endif
