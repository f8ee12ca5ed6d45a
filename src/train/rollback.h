/* What micro-batches change beside gradients: running statistics, what a recurrent model carries over, a model's own
 * counters; and the single numbers that an update changes. A copy of these, in memory that the plan has for it, lets a
 * step be given up between two micro-batches, or be replayed, as if it had never begun. */
#ifndef HT_TRAIN_ROLLBACK_H
#define HT_TRAIN_ROLLBACK_H

#include <halftone/halftone.h>

/* Before the first micro-batch of a step, in a session of a plan that trains. */
ht_status ht_rollback_mark(ht_session *session);
/* Back to the last mark. Gradients keep what was added to them: the first micro-batch of a step overwrites them. */
ht_status ht_rollback_restore(ht_session *session);

#endif
