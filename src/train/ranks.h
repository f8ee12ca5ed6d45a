/* The ranks of a run, as its loop sees them: what the first of them does alone, and what all agree on outside of the
 * session's exchanges. A run alone is a world of one: then these do nothing. */
#ifndef HT_TRAIN_RANKS_H
#define HT_TRAIN_RANKS_H

#include "train/job.h"

typedef struct ht_ranks {
    ht_comm *host; /* a group of all ranks for what the host exchanges, beside the session; NULL: a world of one */
    int64_t rank, size;
    ht_comm *stage;                 /* of those that have the same layers; NULL: they are all, or this one is alone */
    ht_axis data, pipeline, tensor; /* size = data × pipeline × tensor, tensor innermost */
} ht_ranks;

/* Of the ranks that share a model, the one whose losses count: the first of those that share its last layers. */
static inline bool ht_ranks_tells_losses(const ht_ranks *ranks)
{
    return ranks->tensor.rank == 0 && ranks->pipeline.rank == ranks->pipeline.ranks - 1;
}

/* The request's world, with a group for each axis of several ranks ("data", "tensor", "pipeline"); fails if it is not of as
 * many ranks as the config, or where ranks have different programs or jobs: what differs is named. All ranks call it. */
ht_status ht_ranks_open(ht_ranks *ranks, ht_context *ctx, const ht_run_request *request);
/* Of the ranks that see the same GPUs, those of this machine under one CUDA_VISIBLE_DEVICES: which one this is, and how
 * many they are. All ranks call it. */
ht_status ht_ranks_local(ht_comm *world, ht_context *ctx, int *rank, int *count);
/* All ranks call it: the target becomes one that each can compute for. Where machines differ, the first rank says so. */
ht_status ht_ranks_common_target(ht_comm *world, ht_context *ctx, const ht_run_request *request, ht_target *target);
ht_status ht_ranks_meet(const ht_ranks *ranks, ht_context *ctx);
/* True everywhere if it is true anywhere. */
ht_status ht_ranks_any(const ht_ranks *ranks, ht_context *ctx, bool *flag);
/* Sums over ranks, in their order. */
ht_status ht_ranks_sum(const ht_ranks *ranks, ht_context *ctx, double *values, size_t count);
/* The text of the first rank that has one, everywhere; *has: there is one. */
ht_status ht_ranks_text(const ht_ranks *ranks, ht_context *ctx, char *text, size_t capacity, bool *has);
/* What the session of this rank has exchanged so far, and what it waited for that. */
typedef struct ht_exchange_totals {
    double seconds, waited;
    int64_t bytes;
} ht_exchange_totals;
ht_exchange_totals ht_ranks_exchanged(const ht_ranks *ranks, const ht_session *session, ht_comm *world);
/* As a report, where it is known. */
ht_exchange_report ht_ranks_report(const ht_ranks *ranks, const ht_session *session, const ht_exchange_totals *totals);
/* Before the first step: do all have the same data, plan and order of collectives? What differs is named. */
ht_status ht_ranks_agree(const ht_ranks *ranks, const ht_job *job);

#endif
