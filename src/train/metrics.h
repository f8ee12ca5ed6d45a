/* What a run writes down while it goes: metrics.jsonl and TensorBoard events in its folder, csv files where the engine
 * config asks for them. */
#ifndef HT_TRAIN_METRICS_H
#define HT_TRAIN_METRICS_H

#include "train/train.h"

typedef struct ht_metrics ht_metrics;

/* With `step` above 0 the run goes on from there: records of later steps are cut off, they will come again. */
ht_status ht_metrics_open(ht_metrics **out, ht_context *ctx, const ht_config *config, const char *folder, int64_t step);
ht_status ht_metrics_step(ht_metrics *metrics, const ht_step_report *report);
ht_status ht_metrics_eval(ht_metrics *metrics, const ht_eval_report *report);
/* Everything so far reaches the files. */
ht_status ht_metrics_flush(ht_metrics *metrics);
/* Cuts a file of such lines behind the last whole one of a step up to `step`. One that is not there stays away. */
ht_status ht_metrics_cut(ht_context *ctx, const char *path, int64_t step);
/* Takes NULL. */
ht_status ht_metrics_close(ht_metrics *metrics);

#endif
