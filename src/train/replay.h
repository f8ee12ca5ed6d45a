/* Looking into a step. A run's plan fuses, so that many values never exist; a replay is the same step in a plan that makes
 * all of them, with the same bits, and shows each as soon as it is there. Only the first value that is not finite is
 * found in the run's own plan: a run that has failed must not need more memory than one that has not. */
#ifndef HT_TRAIN_REPLAY_H
#define HT_TRAIN_REPLAY_H

#include "exec/exec.h"

typedef struct ht_run ht_run;
typedef struct ht_run_request ht_run_request;
typedef struct ht_replay ht_replay;

/* Of a job, with state as it is before the first step. The request lives as long. */
ht_status ht_replay_open(ht_replay **out, ht_context *ctx, const ht_run_request *request);
/* Of a run that trains, with its data; the run lives as long. */
ht_status ht_replay_of_run(ht_replay **out, ht_run *run);
void ht_replay_free(ht_replay *replay);

/* Takes the state of the run over, as it stands, but random numbers as in `step`: one that the run has made, or its
 * next. What the run has learned since is not undone: of a step that was skipped this is its state, but for what a model
 * carries from batch to batch, which begins with zeros where it is not finite any more. */
ht_status ht_replay_take(ht_replay *replay, int64_t step);
/* The first `micros` micro-batches of a step (-1: all), then, if asked, its update. Stops where `trace` says so. */
ht_status ht_replay_step(ht_replay *replay, int64_t step, int64_t micros, bool update, ht_trace_fn trace, void *arg);
/* While tracing: the number of the micro-batch, from 0. */
int64_t ht_replay_micro(const ht_replay *replay);
/* The name of a result, or NULL: the first one's as the instruction says, others' where they are state or outputs. */
const char *ht_replay_name(const ht_replay *replay, const ht_instr *instr, size_t result);
ht_session *ht_replay_session(ht_replay *replay);
/* What gradients are multiplied by as the state stands: 1 where losses are not scaled. */
double ht_session_loss_scale(const ht_session *session);

/* `count` elements from `start` on, row-major whatever the strides, as f64. */
void ht_trace_load(const ht_type *type, const void *data, int64_t start, int64_t count, double *to);
/* "matmul at h.0.mlp (bwd_act of gelu)": where an instruction stands. */
void ht_trace_describe(ht_text *text, const ht_instr *instr);

/* ---- pieces of it, for replays in a run's own session ---- */

typedef struct ht_run_view ht_run_view;
/* What a model carries from batch to batch begins with zeros where it is not finite. */
ht_status ht_replay_clear_bad_carry(ht_session *session);
/* Random numbers as so many steps later. */
ht_status ht_replay_set_random(ht_session *session, int64_t steps);
/* The number of a step's first batch. A run may have counted otherwise before it was resumed, so it counts from where
 * the run stands now. */
ht_status ht_replay_position(const ht_run_view *run, int64_t step, uint64_t *out);
/* The name of the state, input or output at a place, or NULL. */
const char *ht_slot_name_of(const ht_plan *plan, const ht_type *type, ht_place place);

/* ---- the first value that is not finite ---- */

/* Replays a step that the run has made and was skipped, normally its last, and writes one line without its end: the first
 * value that is not finite, what made it, in which micro-batch, and how many inf and NaN it holds. It does so in the
 * run's own plan, session and loader, and allocates no memory for values; but for gradients and outputs, all is then as
 * it was before. The update is replayed as far as it changes nothing that cannot be given back: the gradients' norm and
 * what it needs come before that. */
ht_status ht_first_nonfinite(ht_run *run, int64_t step, ht_text *out, bool *found);

#endif
