/* A graph on its way to a session, for tests of whole steps. */
#ifndef HT_TESTS_SESSION_FIXTURE_H
#define HT_TESTS_SESSION_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/train.h"

typedef struct fixture {
    ht_context *ctx;
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
} fixture;

static void must(const fixture *w, ht_status status)
{
    if (status != HT_OK) print_error("%s\n", ht_context_message(w->ctx));
    assert_int_equal(status, HT_OK);
}

#endif
