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

/* Times of single runs, which short turns add to. */
typedef struct ht_infer_samples {
    double *seconds;
    size_t count, capacity;
} ht_infer_samples;

/* Another turn: at least three runs, and for so many seconds; *p50_s: the median of this turn. */
ht_status ht_infer_turn(ht_infer_samples *samples, ht_context *ctx, ht_session *session, double enough_s,
                        double *p50_s);
/* Sorts them: which time is at this share of all, such as 0.99. */
double ht_infer_samples_quantile(ht_infer_samples *samples, double share);
void ht_infer_samples_free(ht_infer_samples *samples);
/* What it takes beside time. */
void ht_infer_cost(ht_infer_times *out, const ht_session *session);

#endif
