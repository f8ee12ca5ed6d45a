/* One folder, several processes: a live run is neither joined nor removed, and can be evaluated. */
#include "run_process.h"

/* A run that lives until the shell kills it: `wait_for 3` waits until it has made three steps, and a snapshot. */
#define LIVE                                                                                                           \
    "wait_for() { while ! grep -q \"step\\\": $1,\" run/metrics.jsonl 2>/dev/null; do sleep 0.02; done; }; "           \
    "\"$H\" train job.json --set train.steps=1000000 > /dev/null 2>&1 & p=$!; wait_for 12; "

static void lock__a_live_run_is_neither_joined_nor_removed(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c,
           LIVE "for how in '' --resume --force; do \"$H\" train job.json $how; echo \"status $?\"; done; "
                "kill -9 $p; wait $p; head -n 1 run/metrics.jsonl | cut -c 1-27",
           0, "{\"kind\": \"step\", \"step\": 1,");
    for (int i = 0; i < 3; i++) {
        static const char *const hows[] = {"", "--resume", "--force"};
        char line[1024];
        snprintf(line, sizeof line,
                 LIVE "\"$H\" train job.json %s 2>&1 | sed \"s/process $p on host $(hostname), started 20/THAT/\"; "
                      "kill -9 $p; wait $p 2>/dev/null; true",
                 hows[i]);
        expect(c, "rm -rf run", 0, "");
        expect(c, line, 0, "run holds a run that is in use by THAT");
        snprintf(line, sizeof line, LIVE "\"$H\" train job.json %s; s=$?; kill -9 $p; wait $p; exit $s", hows[i]);
        expect(c, "rm -rf run", 0, "");
        expect(c, line, 2, "(run/lock)");
    }
    /* It was killed: its lock stops nobody. */
    expect(c, "\"$H\" train job.json --resume --set train.steps=90", 0, "ended without releasing its lock");
    expect(c, "test ! -e run/lock", 0, "");
}

static void lock__a_live_run_is_evaluated_from_its_newest_snapshot(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c,
           LIVE "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do \"$H\" eval run --json >> evals || echo failed; done; "
                "kill -9 $p; wait $p 2>/dev/null; grep -c '\"loss\": [0-9]' evals",
           0, "12\n");
}

/* A folder too deep to remove stops --force half way. */
static void lock__a_removal_that_ends_half_way_leaves_a_run_that_goes_on(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c, "\"$H\" train job.json && mkdir -p run/numerics.html/2/3/4/5/6/7/8/9/10", 0, "step 60 of 60");
    expect(c, "\"$H\" train job.json --force", 1, "run/numerics.html");
    expect(c, "rm -r run/numerics.html; \"$H\" train job.json --resume", 0, "the run begins at its first step");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(lock__a_live_run_is_neither_joined_nor_removed),
        CASE(lock__a_live_run_is_evaluated_from_its_newest_snapshot),
        CASE(lock__a_removal_that_ends_half_way_leaves_a_run_that_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
