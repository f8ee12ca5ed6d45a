/* Contexts for tests. */
#ifndef HT_TESTS_CONTEXT_FIXTURE_H
#define HT_TESTS_CONTEXT_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <halftone/halftone.h>

/* cmocka's set-up and tear-down, of a case or of a group: test_ctx is a context with default
 * options. *state stays as it was. */
extern ht_context *test_ctx;
int context_setup(void **state);
int context_teardown(void **state);

/* A context of the caller's, freed with ht_context_free. 0 threads, NULL: what the machine has. */
ht_context *context_create(int threads, const char *isa);
/* One context for the whole program, freed at its end. */
ht_context *context_shared(void);

/* Fails the test, with the context's message, unless the status is HT_OK. */
void context_must(const ht_context *ctx, ht_status status);

#endif
