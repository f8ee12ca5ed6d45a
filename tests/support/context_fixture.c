#include "context_fixture.h"

#include <stdlib.h>

ht_context *test_ctx;

ht_context *context_create(int threads, const char *isa)
{
    ht_context *ctx;
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = threads;
    opts.isa = isa;
    assert_int_equal(ht_context_create(&ctx, &opts), HT_OK);
    return ctx;
}

int context_setup(void **state)
{
    (void)state;
    return ht_context_create(&test_ctx, NULL) != HT_OK;
}

int context_teardown(void **state)
{
    (void)state;
    ht_context_free(test_ctx);
    test_ctx = NULL;
    return 0;
}

static ht_context *shared;

static void free_shared(void)
{
    ht_context_free(shared);
}

ht_context *context_shared(void)
{
    if (shared) return shared;
    if (ht_context_create(&shared, NULL) != HT_OK) abort();
    atexit(free_shared);
    return shared;
}

void context_must(const ht_context *ctx, ht_status status)
{
    if (status != HT_OK) print_error("%s\n", ht_context_message(ctx));
    assert_int_equal(status, HT_OK);
}
