/* halftone ladder: a row per technique; those that change no number type change no bit. */
#include "run_case.h"

static void ladder__has_a_row_for_each_technique(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[0]);
    expect(c, "\"$H\" ladder job.json --steps 2 --json > ladder.json; grep -c '\"name\"' ladder.json", 0, "11\n");
    expect(c, "sed -n 's/.*\"name\": \"\\([^\"]*\\)\".*/\\1/p' ladder.json | tr '\\n' ','", 0,
           "baseline,+ fusion,+ half,+ recompute cheap,+ recompute selective,+ recompute all,+ optimiser on disk,"
           "2 ranks, ZeRO 0,2 ranks, ZeRO 1,2 ranks, ZeRO 2,2 ranks, ZeRO 3,");
    expect(c, "test -s ladder/ladder.html && grep -c 'Memory over a step' ladder/ladder.html", 0, "");
    /* fp32 with and without fusion; bf16 with and without recomputation. */
    expect(c, "sed -n 's/.*\"loss\": \\([-0-9.e+]*\\).*/\\1/p' ladder.json | head -7 | uniq | wc -l", 0, "2\n");
    /* The optimiser's state in parts takes less than all of it on both ranks. */
    expect(c,
           "sed -n 's/.*\"plan_bytes\": \\([0-9]*\\).*/\\1/p' ladder.json | tail -4 | tr '\\n' ' ' | "
           "awk '{ print $2 < $1 ? \"less\" : $0 }'",
           0, "less\n");
    expect(c,
           "sed -n 's/.*\"loss\": \\([-0-9.e+]*\\).*/\\1/p' ladder.json | tail -9 | awk '{ d = $1 - (NR > 1 ? first : "
           "$1); "
           "if (NR == 1) first = $1; if (d < 0) d = -d; if (d > 1e-2) bad++ } END { print bad + 0 }'",
           0, "0\n");
    expect(c, "sed -n 's/.*\"recomputed_flops\": \\([0-9]*\\).*/\\1/p' ladder.json | sort -n | head -3 | sort -u", 0,
           "0\n");
}

static void ladder__is_a_table_for_people(void **state)
{
    data_case *c = *state;
    run_case_write(c, &run_jobs[2]);
    expect(c, "\"$H\" ladder job.json --steps 2 -o steps --set train.precision=fp16 2>/dev/null", 0, "MB in main");
    expect(c, "test -s steps/ladder.html && echo page", 0, "page\n");
    expect(c, "\"$H\" ladder missing.json", 2, "missing.json");
    expect(c, "\"$H\" ladder job.json --steps 0", 2, "--steps");
    expect(c, "\"$H\" ladder job.json --steps 1 --ranks 7", 0, "7 ranks cannot share the batch of this job");
    expect(c, "\"$H\" ladder job.json --steps 1 --ranks 1 --json | grep -c ZeRO", 1, "0\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(ladder__has_a_row_for_each_technique),
        CASE(ladder__is_a_table_for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
