/* Hardware counters: they count, or there is a reason. */
#include "exec/perf_counters.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TURNS = 10000000 };

static void counters__rise_with_the_work_or_tell_why_not(void **state)
{
    (void)state;
    char reason[128] = "?";
    int64_t before[HT_COUNTER_COUNT], after[HT_COUNTER_COUNT];
    ht_perf_counters *counters = ht_perf_counters_open(reason, sizeof reason);
    if (!counters) {
        assert_true(strlen(reason) > 1);
        skip();
    }
    assert_string_equal(reason, "");
    ht_perf_counters_read(counters, before);
    for (volatile int i = 0; i < TURNS; i++) continue;
    ht_perf_counters_read(counters, after);
    assert_true(after[HT_COUNTER_INSTRUCTIONS] - before[HT_COUNTER_INSTRUCTIONS] > TURNS);
    assert_true(after[HT_COUNTER_CYCLES] > before[HT_COUNTER_CYCLES]);
    ht_perf_counters_close(counters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters__rise_with_the_work_or_tell_why_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
