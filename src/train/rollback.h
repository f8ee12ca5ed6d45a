/* What micro-batches change beside gradients: running statistics, what a recurrent model carries over, a model's own
 * counters. A copy of these lets a step be given up between two micro-batches, as if it had never begun. */
#ifndef HT_TRAIN_ROLLBACK_H
#define HT_TRAIN_ROLLBACK_H

#include <halftone/halftone.h>

typedef struct ht_rollback ht_rollback;

/* Allocates memory for the copy; the session outlives it. */
ht_status ht_rollback_open(ht_rollback **out, ht_session *session);
/* Before the first micro-batch of a step. */
ht_status ht_rollback_mark(ht_rollback *rollback);
/* Back to the mark. Gradients keep what was added to them: the first micro-batch of a step overwrites them. */
ht_status ht_rollback_restore(ht_rollback *rollback);
/* Takes NULL. */
void ht_rollback_free(ht_rollback *rollback);

#endif
