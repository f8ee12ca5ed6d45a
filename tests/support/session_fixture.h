/* A graph on its way to a session, for tests of whole steps. */
#ifndef HT_TESTS_SESSION_FIXTURE_H
#define HT_TESTS_SESSION_FIXTURE_H

#include "context_fixture.h"
#include "train/train.h"

typedef struct session_fixture {
    ht_context *ctx;
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
    int64_t step; /* that the session has made, where a test counts them */
} session_fixture;

/* A context of that many threads (0: as the machine has) and an empty graph. */
session_fixture session_begin(int threads);
/* The graph's plan (NULL: default options) and a session of that seed. */
void session_plan(session_fixture *f, const ht_plan_opts *opts, uint64_t seed);
/* Frees what is there. */
void session_end(session_fixture *f);

/* Fails the test, with the context's message, unless the status is HT_OK. */
void must(const session_fixture *f, ht_status status);
/* Fails the test unless the context's message contains `part`. */
void message_has(const session_fixture *f, const char *part);

#endif
