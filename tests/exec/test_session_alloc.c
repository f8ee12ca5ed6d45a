/* Steps allocate nothing: this program counts every call of the allocator while a step runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <halftone/halftone.h>

#include "session_fixture.h"
#include "tiny_model.h"

static atomic_long calls;
static atomic_bool counting;

/* The sanitizers have allocators of their own; there the step is run, but not counted. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
enum { COUNTED = 0 };
#else
enum { COUNTED = 1 };

static void count_call(void)
{
    if (atomic_load(&counting)) atomic_fetch_add(&calls, 1);
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);

void *malloc(size_t size)
{
    count_call();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    count_call();
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    count_call();
    return __libc_realloc(old, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    count_call();
    return __libc_memalign(align, size);
}
#endif

static void session__steps_allocate_nothing(void **state)
{
    (void)state;
    session_fixture w = session_begin(2);
    tiny_build(w.g, 0.1);
    must(&w, ht_graph_train(w.g, NULL));
    session_plan(&w, NULL, 0);
    /* The counter works: an allocation outside a step is seen. */
    atomic_store(&counting, true);
    void *volatile probe = malloc(1);
    long seen = atomic_exchange(&calls, 0);
    for (int i = 0; i < 5; i++) assert_int_equal(ht_session_run(w.s, "train"), HT_OK);
    atomic_store(&counting, false);
    free(probe);
    session_end(&w);
    if (!COUNTED) skip();
    assert_int_equal(seen, 1);
    assert_int_equal(atomic_load(&calls), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(session__steps_allocate_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
