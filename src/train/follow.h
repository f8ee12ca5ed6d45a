/* A run seen from outside, by its folder: the records of metrics.jsonl as they come, and whether a process trains there.
 * Nothing is written or locked: a run does not notice who follows it. */
#ifndef HT_TRAIN_FOLLOW_H
#define HT_TRAIN_FOLLOW_H

#include "train/train.h"

typedef enum ht_run_state {
    HT_RUN_STATE_WAITING,  /* there is no run yet */
    HT_RUN_STATE_TRAINING, /* a process holds the folder */
    HT_RUN_STATE_DONE,     /* it made its last step */
    HT_RUN_STATE_STOPPED,  /* it was asked to stop before that, and can go on */
    HT_RUN_STATE_DIED,     /* nobody trains, and it left no record of its end */
    HT_RUN_STATE_COUNT
} ht_run_state;
extern const char *const ht_run_state_names[HT_RUN_STATE_COUNT];

typedef struct ht_run_status {
    ht_run_state state;
    char holder[512];                  /* the process that trains there; "": none */
    char model[64], precision[32];     /* "": not recorded yet */
    ht_step_report step;               /* the newest; its step is 0: none yet */
    ht_eval_report eval;               /* the newest; its count is 0: none yet */
    ht_end_report end;                 /* with state DONE or STOPPED */
    double step_ms, tokens_per_second; /* means over the newest steps; NAN: not recorded */
    double seconds_left;               /* at that pace; NAN: not known */
    double record_age;                 /* seconds since metrics.jsonl was written to; NAN: there is none */
    /* The whole run's losses, borrowed until the next look: each the mean of `loss_steps` steps. */
    const double *losses;
    size_t loss_count;
    int64_t loss_steps;
    int64_t damaged; /* lines that could not be read */
} ht_run_status;

typedef struct ht_follower ht_follower;

/* The folder need not be there yet. */
ht_status ht_follower_open(ht_follower **out, ht_context *ctx, const char *folder);
/* Reads what is new. A file that was cut, replaced or removed is read again from its beginning. */
ht_status ht_follower_look(ht_follower *follower, ht_run_status *status);
/* Takes NULL. */
void ht_follower_free(ht_follower *follower);

#endif
