/* Inference, measured: the forward pass of evaluation. */
#ifndef HT_TRAIN_INFER_TIMES_H
#define HT_TRAIN_INFER_TIMES_H

#include "exec/exec.h"

/* Of one size of batch. */
typedef struct ht_infer_times {
    double p50_s, p90_s, p99_s;
    int64_t plan_bytes, weight_bytes; /* weights: the state that it reads */
    ht_cost cost;                     /* of a run */
} ht_infer_times;

/* The segment that evaluates, of the longest batches where there are several shapes; -1: there is none. */
int ht_infer_segment(const ht_plan *plan);
/* Runs the session's evaluation, at least ten times and, unless a thousand runs take less, for so many seconds. */
ht_status ht_infer_times_measure(ht_infer_times *out, ht_context *ctx, ht_session *session, double enough_s);

#endif
