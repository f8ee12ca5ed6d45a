/* What micro-batches change beside gradients: running statistics, what a recurrent model carries over, a model's own
 * counters. A copy of these lets a step be given up between two micro-batches, as if it had never begun. */
#ifndef HT_TRAIN_REWIND_H
#define HT_TRAIN_REWIND_H

#include <halftone/halftone.h>

typedef struct ht_rewind ht_rewind;

/* Makes room for the copy; the session outlives it. */
ht_status ht_rewind_open(ht_rewind **out, ht_session *session);
/* Before the first micro-batch of a step. */
void ht_rewind_mark(ht_rewind *rewind);
/* Back to the mark. Gradients keep what was added to them: the first micro-batch of a step overwrites them. */
void ht_rewind_back(ht_rewind *rewind);
/* Takes NULL. */
void ht_rewind_free(ht_rewind *rewind);

#endif
