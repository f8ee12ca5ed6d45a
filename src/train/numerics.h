/* How large gradients are: numerics.jsonl in a run's folder. Before a step that is to be looked at, its first
 * micro-batch is replayed, and of every gradient the exponents are counted. docs/numerics.md has the records. */
#ifndef HT_TRAIN_NUMERICS_H
#define HT_TRAIN_NUMERICS_H

#include "train/train.h"

typedef struct ht_numerics ht_numerics;

/* With `step` above 0 the run goes on from there: later records are cut off, they will come again. On a rank that has no
 * `folder` (NULL) nothing is written: it replays with the others, for they may exchange in a micro-batch. */
ht_status ht_numerics_open(ht_numerics **out, ht_run *run, const char *folder, int64_t step, int64_t every);
/* Before `step`, from 1: looks at it when its turn has come (the first, the last, and every so many), and notes a loss
 * scale that has changed. */
ht_status ht_numerics_before(ht_numerics *numerics, int64_t step, bool last);
/* Takes NULL. */
ht_status ht_numerics_close(ht_numerics *numerics);

#endif
