/* Page allocation: what a block of memory holds and where it lies, whoever touches it first. */
#include "base/pages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <halftone/types.h>

/* Sanitizers ask for these: an allocation that is too large shall fail, not stop the program. */
HT_API const char *__asan_default_options(void);
HT_API const char *__tsan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

enum { HUGE_BYTES = 2 << 20 };

/* Around the ends of lines, pages, huge pages and shares of threads. */
static const size_t sizes[] = {1,
                               63,
                               64,
                               4097,
                               HUGE_BYTES - 1,
                               HUGE_BYTES,
                               HUGE_BYTES + 1,
                               3 * HUGE_BYTES,
                               7 * HUGE_BYTES + 12345,
                               20 * HUGE_BYTES + 64};

/* Memory that free() took back with other contents is what the next allocation may get. */
static void check_blocks(int threads)
{
    ht_pool *pool = threads > 0 ? ht_pool_create(threads) : NULL;
    assert_true(threads == 0 || pool);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int round = 0; round < 2; round++) {
            unsigned char *memory = ht_pages_alloc(sizes[i], pool);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            if (sizes[i] >= HUGE_BYTES) assert_int_equal((uintptr_t)memory % HUGE_BYTES, 0);
            for (size_t at = 0; at < sizes[i]; at++)
                if (memory[at] != 0)
                    fail_msg("%d threads, %zu bytes: byte %zu is %d", threads, sizes[i], at, memory[at]);
            memset(memory, 0xa5, sizes[i]);
            free(memory);
        }
    }
    ht_pool_free(pool);
}

static void pages__are_zero_and_aligned_with_any_number_of_threads(void **state)
{
    (void)state;
    for (int threads = 0; threads <= 5; threads++) check_blocks(threads);
}

static void pages__are_null_when_memory_is_out(void **state)
{
    (void)state;
    ht_pool *pool = ht_pool_create(2);
    assert_null(ht_pages_alloc(SIZE_MAX / 2, pool));
    ht_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages__are_zero_and_aligned_with_any_number_of_threads),
        cmocka_unit_test(pages__are_null_when_memory_is_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
