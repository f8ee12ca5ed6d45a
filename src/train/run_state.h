/* Internal: a run as the files that open, train and evaluate it share it. */
#ifndef HT_TRAIN_RUN_STATE_H
#define HT_TRAIN_RUN_STATE_H

#include "train/batch_binding.h"
#include "train/job.h"
#include "train/metrics.h"
#include "train/numerics.h"
#include "train/ranks.h"
#include "train/run_lock.h"
#include "train/step_record.h"

struct ht_run {
    ht_context *ctx;
    ht_run_request request;
    char *folder, *snapshots;
    ht_ranks ranks;
    int64_t ranks_memory_bytes, ranks_reserve_bytes; /* as in ht_end_report */
    bool leads;                                      /* the first rank: it writes and speaks */
    ht_run_lock *lock;                               /* of the folder; NULL in a run that evaluates */
    ht_job job;
    ht_loader *train, *validation;
    int64_t eval_rank, eval_ranks; /* that share an evaluation */
    ht_batch_binding binding;
    int update;                   /* the segment */
    int exchange, gather;         /* before and behind it, or HT_NO_SEGMENT */
    ht_step_records *records;     /* NULL in a run that evaluates */
    ht_exchange_totals exchanged; /* up to the last step, or what came behind it */
    ht_exchange_totals in_steps;  /* of all steps of this start */
    double last_end;              /* when the last step was done whose record was read */
    ht_metrics *metrics;          /* NULL: nobody asks for them */
    ht_numerics *numerics;        /* NULL: not asked for */
    bool can_drop;                /* something can stop the run between two micro-batches */
    int64_t step, first_step, saved_step;
    double seconds;      /* that the training took */
    ht_profile *profile; /* measures the step that is made; NULL: nobody does */
    double longest_step; /* seconds, of this start */
    double last_lr;      /* the rate of the last step; NAN: not known */
    bool rate_changed;   /* the job changed since that step, so that the next one's rate may come as a surprise */
};

/* A line for the caller's on_note. */
void ht_run_note(const ht_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Does the loss scale move? */
bool ht_run_is_dynamic(const ht_run *run);
/* Seconds of a clock that never goes back. */
double ht_run_clock(void);
/* All steps so far are done and recorded. */
ht_status ht_run_catch_up(ht_run *run);

/* Until the first step: a rank that is asked to stop does not wait long for one that may be dead. */
void ht_run_watch_opening(const ht_run *run);

/* pipeline_step.c: the micro-batches of a step, where this rank is a stage of a pipeline. */
ht_status ht_run_stage(ht_run *run);

/* The files beside the snapshots that these need are there and whole. */
ht_status ht_run_check_folder(ht_run *run);
/* The state of the newest snapshot that can be read, others are passed over with a warning; without any snapshot, a run
 * that goes on begins. HT_EIO where there are some and none can be read. */
ht_status ht_run_restore(ht_run *run);

/* Of the first step after a resume: says where the rate jumps, or where the schedule is over. */
void ht_run_judge_rate(ht_run *run, const ht_step_report *first);
/* What a snapshot's manifest says of the run, as an object: "extra". */
void ht_run_print_extra(const ht_run *run, ht_text *text);

#endif
