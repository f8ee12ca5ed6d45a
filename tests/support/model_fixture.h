/* A model from its name and JSON text, with a batch that is a function of the inputs' names alone. */
#ifndef TESTS_MODEL_FIXTURE_H
#define TESTS_MODEL_FIXTURE_H

#include "context_fixture.h"
#include "model/model.h"
#include "train/train.h"

typedef struct model_fixture {
    ht_context *ctx;
    ht_arena *arena;
    ht_fields *fields;
    ht_model_request request;
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
} model_fixture;

/* The graph alone; failures are the caller's to judge. */
ht_status model_graph(model_fixture *w, const char *type, const char *json, ht_model_request request, int threads);
/* Graph, training step, plan, session, and inputs filled; a failure fails the test. */
void model_start(model_fixture *w, const char *type, const char *json, ht_model_request request,
                 const ht_train_opts *opts);
void model_start_threads(model_fixture *w, const char *type, const char *json, ht_model_request request,
                         const ht_train_opts *opts, int threads);
/* With options of planning: its precision. */
void model_start_planned(model_fixture *w, const char *type, const char *json, ht_model_request request,
                         const ht_train_opts *opts, const ht_plan_opts *planning, int threads);
/* Without a training step. */
void model_start_plain(model_fixture *w, const char *type, const char *json, ht_model_request request);
/* Fails unless building is refused with a message that contains `word`. */
void model_refused(const char *type, const char *json, ht_model_request request, const char *word);
void model_stop(model_fixture *w);
void model_must(const model_fixture *w, ht_status status);

/* Fills the inputs of a segment: tokens and labels within their vocabularies, numbers within ±1. */
void model_write_inputs(const model_fixture *w, const char *segment);
/* Every trained state and statistic as make_models.py gives them. */
void model_set_parameters(const model_fixture *w);
/* A number within ±0.5 from a name and an index: the same in make_models.py. */
double model_number(const char *name, int64_t index);

float model_read_f32(const model_fixture *w, const char *name);
int64_t model_read_i64(const model_fixture *w, const char *name);
void model_write_f32(const model_fixture *w, const char *name, float value);

#endif
