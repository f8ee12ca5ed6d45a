/* Ranks on two hosts: network namespaces of this machine that a pair of virtual interfaces joins (tests/cli/two-hosts). */
#include "rank_runs.h"
#include "tiny_data.h"

#define HOSTS "ASAN_OPTIONS=detect_leaks=0 sh " HT_TEST_DIR "/cli/two-hosts "

/* Bytes that the second host received, or skipped where there can be none. */
static double train_on_hosts(const data_case *c, const char *arguments, int wanted)
{
    char line[1024];
    int status;
    snprintf(line, sizeof line, HOSTS "\"$H\" train job.json %s", arguments);
    const char *said = run(c, line, &status);
    if (status == 77) {
        print_message("%s", said);
        skip();
    }
    if (status != wanted) fail_msg("status %d: %s", status, said);
    const char *received = strstr(said, "the second host received ");
    if (!received) fail_msg("no bytes in: %s", said);
    if (!strstr(said, "started by Open MPI, on host-a") || !strstr(said, ", with ")) fail_msg("no host in: %s", said);
    return strtod(received + strlen("the second host received "), NULL);
}

static void hosts__make_the_steps_of_one_process(void **state)
{
    data_case *c = *state;
    double alone[RANK_STEPS];
    if (!rank_has_mpi(c, "openmpi")) skip();
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, RANK_STEPS);
    rank_train(c, "alone", 1, "");
    rank_read_numbers(c, "alone", "loss", RANK_STEPS, alone);
    for (int stage = 0; stage <= RANK_STAGES; stage++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "--force --set train.output=hosts --set engine.zero_optimization.stage=%d " RANK_ALL_CUT, stage);
        double bytes = train_on_hosts(c, arguments, 0);
        rank_expect_same_steps(c, arguments, "hosts", 2, alone, RANK_STEPS);
        assert_true(bytes > 100000); /* they went over the wire */
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(hosts__make_the_steps_of_one_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
