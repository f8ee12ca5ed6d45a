/* Our side of a row: graph, plan, session, as a user of the library has it. */
#ifndef BENCH_OURS_H
#define BENCH_OURS_H

#include <stdbool.h>

#include "train/train.h"

typedef struct ours {
    ht_graph *graph;
    ht_plan *plan;
    ht_session *session;
    const char *run; /* segment or program; "forward" unless changed */
    bool no_prepack; /* as in ht_plan_opts */
    const char *target;
    const char *sparse; /* the setting of that name; NULL: none */
} ours;

/* bench_threads() threads; ends the program when there is no context. */
ht_context *ours_context(void);
/* An empty graph in o->graph to build the model in. */
void ours_begin(ours *o, ht_context *ctx);
/* Plans what was built, fills every float input and state with random numbers around 0. False after saying what went
 * wrong on stderr: then turns are refused and the row has no BENCH line. */
bool ours_ready(ours *o);
/* Uniform random numbers into a state or input. */
void ours_fill(ours *o, const char *name, double low, double high);
/* A contest_turn; arg is the ours. */
double ours_turn(void *arg, int calls);
void ours_end(ours *o);

/* Stores the gradients of Σ y·dy by n values in states "grad0" …, where dy is an input named "dy" of y's type: what a
 * backward pass costs, without a loss. States, as in a training step: an output is a part of the model, and there the
 * loss gradient's 1·dy would be kept and run. */
void ours_backward(ours *o, ht_val y, size_t n, const ht_val *wrt);

#endif
