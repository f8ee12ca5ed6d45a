/* A model of src/model with its training step, ready to run: what `halftone train` makes of a job file. */
#ifndef BENCH_TRAINEE_H
#define BENCH_TRAINEE_H

#include "model/model.h"
#include "ours.h"

typedef struct trainee {
    const char *name;
    const char *type, *json; /* the "model" block */
    const char *optimizer;
    const char *precision;            /* NULL: fp32 */
    const ht_train_setting *settings; /* of planning */
    size_t setting_count;
    const ht_session_opts *session; /* NULL: as they are by default */
    const char *target;             /* text of a target file; NULL: this machine */
    ht_model_request request;       /* but model and fields */
    ours ours;
    ht_arena *arena;
    ht_fields *fields;
} trainee;

/* Graph, training step and plan. Ends the program on failure. */
void trainee_plan(trainee *t, ht_context *ctx);
/* And a session, and a batch of random tokens, labels and images. */
void trainee_start(trainee *t, ht_context *ctx);
void trainee_stop(trainee *t);
/* Runs the step `rounds` times before the eyes of an observer: median time per kernel and of the most expensive
 * instructions, on standard output. */
void trainee_profile(trainee *t, ht_context *ctx, int rounds);

#endif
