/* The memory planner alone: intervals in, offsets out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "plan/memory.h"

static void memplan__disjoint_lifetimes_share_bytes(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_interval b[] = {{.first = 0, .last = 1, .bytes = 100}, {.first = 2, .last = 3, .bytes = 100}};
    int64_t total, live;
    assert_int_equal(ht_memory_assign(&ctx, b, 2, 64, &total, &live), HT_OK);
    assert_int_equal(b[0].offset, b[1].offset);
    assert_int_equal(total, 128);
    assert_int_equal(live, 128);
}

static void memplan__a_buffer_that_ends_where_another_begins_does_not_share(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_interval b[] = {{.first = 0, .last = 2, .bytes = 64}, {.first = 2, .last = 3, .bytes = 64}};
    int64_t total, live;
    assert_int_equal(ht_memory_assign(&ctx, b, 2, 64, &total, &live), HT_OK);
    assert_int_not_equal(b[0].offset, b[1].offset);
    assert_int_equal(total, 128);
}

static void memplan__neighbouring_free_blocks_are_joined(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_interval b[] = {
        {.first = 0, .last = 1, .bytes = 64},
        {.first = 0, .last = 1, .bytes = 64},
        {.first = 0, .last = 9, .bytes = 64},
        {.first = 2, .last = 3, .bytes = 128},
    };
    int64_t total, live;
    assert_int_equal(ht_memory_assign(&ctx, b, 4, 64, &total, &live), HT_OK);
    assert_int_equal(b[3].offset, 0);
    assert_int_equal(total, 192);
}

static void memplan__nothing_and_empty_buffers_take_no_bytes(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_interval b[] = {{.first = 0, .last = 5, .bytes = 0}, {.first = 1, .last = 5, .bytes = 0}};
    int64_t total, live;
    assert_int_equal(ht_memory_assign(&ctx, b, 0, 64, &total, &live), HT_OK);
    assert_int_equal(total, 0);
    assert_int_equal(ht_memory_assign(&ctx, b, 2, 64, &total, &live), HT_OK);
    assert_int_equal(total, 0);
}

static uint32_t draw(uint32_t *seed, uint32_t below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void assert_no_overlap(const ht_interval *b, size_t n, int64_t total)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(b[i].offset % 64, 0);
        assert_true(b[i].offset >= 0 && b[i].offset + b[i].bytes <= total);
        for (size_t k = 0; k < i; k++) {
            bool together = b[i].first <= b[k].last && b[k].first <= b[i].last;
            bool apart = b[i].offset + b[i].bytes <= b[k].offset || b[k].offset + b[k].bytes <= b[i].offset;
            assert_true(!together || apart);
        }
    }
}

/* Random lifetimes: never two live buffers on one byte, and not much above what is alive at once. */
static void memplan__random_lifetimes_never_overlap(void **state)
{
    (void)state;
    enum { N = 300, ROUNDS = 60 };
    static ht_interval b[N];
    ht_context ctx = {0};
    uint32_t seed = 7;
    double worst = 0;
    for (int round = 0; round < ROUNDS; round++) {
        uint32_t n = 1 + draw(&seed, N), span = 1 + draw(&seed, 200);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t first = draw(&seed, span);
            b[i] = (ht_interval){.first = first, .last = first + draw(&seed, 1 + span / 4), .bytes = draw(&seed, 5000)};
        }
        int64_t total, live;
        assert_int_equal(ht_memory_assign(&ctx, b, n, 64, &total, &live), HT_OK);
        assert_no_overlap(b, n, total);
        assert_true(total >= live);
        if ((double)total / (double)(live + 1) > worst) worst = (double)total / (double)(live + 1);
    }
    print_message("worst total / alive: %.3f\n", worst);
    assert_true(worst < 1.6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memplan__disjoint_lifetimes_share_bytes),
        cmocka_unit_test(memplan__a_buffer_that_ends_where_another_begins_does_not_share),
        cmocka_unit_test(memplan__neighbouring_free_blocks_are_joined),
        cmocka_unit_test(memplan__nothing_and_empty_buffers_take_no_bytes),
        cmocka_unit_test(memplan__random_lifetimes_never_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
