/* halftone watch, and the server of halftone train --http, beside runs that go, stop, die and go on. */
#include <signal.h>
#include <unistd.h>

#include "serve/serve.h" /* before the case's function run */

#include "http_client.h"
#include "run_process.h"

#define LONG_RUN "train job.json --set train.steps=1000000"

static void need_server(void)
{
    if (ht_http_missing()) skip();
}

/* The port that the run's notes tell, once they do. */
static int port_of(const data_case *c)
{
    for (;;) {
        int status, port = http_port_in(run(c, "cat notes 2>/dev/null", &status));
        if (port) return port;
        run_sleep(0.02);
    }
}

static void expect_page(int port, const char *path, const char *text)
{
    const char *body;
    assert_int_equal(http_get(port, path, "", &body), 200);
    if (!strstr(body, text)) fail_msg("no '%s' in %s: %.400s", text, path, body);
}

static void expect_gone(int port)
{
    for (int file; (file = http_connect(port)) >= 0; run_sleep(0.02)) close(file);
}

/* ---- watch ---- */

static void watch__shows_a_run_that_is_done(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c, "\"$H\" watch run --once", 1, "run: there is no run yet");
    expect(c, "\"$H\" train job.json", 0, "step 60 of 60");
    expect(c, "COLUMNS=80 LC_ALL=C \"$H\" watch run --once > shown; cat shown", 0, "run: gpt2 in fp32, done: 60 steps");
    expect(c, "grep -c -e '60/60 loss' -e 'held out, after step 60' -e 'MiB planned' -e '|  *\\*' shown", 0, "");
    expect(c, "awk 'length($0) > 80 {bad = 1} END {print bad + 0, (NR > 10)}' shown", 0, "0 1\n");
    expect(c, "grep -c \"$(printf '\\033')\" shown", 1, "0\n");
    expect(c, "\"$H\" watch run > lines; tail -n 3 lines", 0, "step 60 of 60 loss");
}

static void watch__leaves_out_what_records_do_not_have(void **state)
{
    data_case *c = *state;
    data_case_text(c, "run/metrics.jsonl", "{\"kind\": \"step\", \"step\": 1, \"steps\": 9, \"loss\": 4}\n");
    expect(c, "LC_ALL=C \"$H\" watch run --once > shown; cat shown", 0, " 1/9 loss 4.0000\n");
    expect(c, "grep -c 'nan\\|MiB\\|epoch\\|left' shown", 1, "0\n");
    data_case_text(c, "run/metrics.jsonl",
                   "{\"kind\": \"step\", \"step\": 1, \"steps\": 9, \"loss\": 4, \"lr\": 0.5, \"step_ms\": 20, "
                   "\"plan_bytes\": 1048576}\n");
    expect(c, "LC_ALL=C \"$H\" watch run --once > shown; cat shown", 0,
           "\nlr 0.5, 20.00 ms a step\nmemory: 1.0 MiB planned\n");
    expect(c, "grep -c nan shown", 1, "0\n");
}

static void watch__waits_for_a_run_and_follows_it_to_its_end(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    expect(c,
           "\"$H\" watch run --interval 0.1 > seen & w=$!; until grep -q 'no run yet' seen; do sleep 0.02; done; "
           "\"$H\" train job.json > trained 2>&1; wait $w; echo \"ended $?\"; cat seen",
           0, "ended 0\n");
    expect(
        c,
        "grep -c -e '^run: there is no run yet' -e 'done: 60 steps' -e '^step 60 of 60 loss' -e '^eval 60 loss' seen",
        0, "4\n");
    /* The same run, begun anew, while it is watched. */
    expect(c,
           "\"$H\" train job.json --force --set train.steps=1000000 > /dev/null 2>&1 & p=$!; "
           "until test -e run/lock && grep -q '\"step\": 9,' run/metrics.jsonl; do sleep 0.02; done; "
           "\"$H\" watch run --interval 0.1 > seen & w=$!; until grep -q '^step' seen; do sleep 0.02; done; "
           "kill -TERM $p; wait $p; wait $w; echo \"ended $?\"; tail -n 3 seen",
           0, "ended 3\n");
    expect(c, "grep -c '; --resume goes on' seen", 0, "1\n");
}

static void watch__tells_a_run_that_died(void **state)
{
    data_case *c = *state;
    run_write_job(c);
    run_process p = run_begin(c, 1, LONG_RUN);
    assert_true(run_wait_for_step(&p, 5));
    expect(c, "\"$H\" watch run --once", 0, "in training: process ");
    kill(p.process, SIGKILL);
    assert_int_equal(run_end(&p), -SIGKILL);
    expect(c, "\"$H\" watch run", 1, "ended without a last record after step ");
    expect(c, "\"$H\" watch run --once", 1, "--resume goes on from its snapshot");
}

static void watch__redraws_in_place_on_a_terminal(void **state)
{
    data_case *c = *state;
    int status;
    run_write_job(c);
    run(c, "command -v script && script -qec true /dev/null", &status);
    if (status != 0) skip();
    run_process p = run_begin(c, 1, LONG_RUN);
    assert_true(run_wait_for_step(&p, 5));
    expect(c,
           "TERM=xterm LC_ALL=C timeout -s INT 3 script -qfec \"stty cols 70 rows 20; exec $H watch run --interval "
           "0.2\" typed "
           "> /dev/null; grep -c \"$(printf '\\033')\\[[0-9]*A\" typed",
           0, "");
    expect(c,
           "LC_ALL=C sed 's/\\x1b[^A-Za-z]*[A-Za-z]//g; s/\\r//g' typed | awk '/^Script/ {next} "
           "length($0) > 69 "
           "{bad = 1} END {print bad + 0}'",
           0, "0\n");
    kill(p.process, SIGTERM);
    assert_int_equal(run_end(&p), 3);
}

/* ---- the server ---- */

static void http__a_run_is_served_while_it_trains(void **state)
{
    data_case *c = *state;
    need_server();
    run_write_job(c);
    run_process p = run_begin(c, 1, LONG_RUN " --http 127.0.0.1:0");
    int port = port_of(c);
    assert_true(run_wait_for_step(&p, 5));
    run_sleep(1.2); /* texts are kept for a second */
    expect_page(port, "/", "Loss");
    expect_page(port, "/", "<svg");
    expect_page(port, "/metrics", "# TYPE halftone_step gauge\nhalftone_step{run=\"run\"} ");
    expect_page(port, "/metrics", "halftone_run_state{run=\"run\",state=\"training\"} 1\n");
    expect_page(port, "/status.json", "\"state\": \"training\"");
    assert_int_equal(http_get(port, "/run/metrics.jsonl", "", NULL), 404);
    kill(p.process, SIGTERM);
    assert_int_equal(run_end(&p), 3);
    expect_gone(port);
    /* One that is over can be served, too. */
    remove(data_case_path(c, "notes"));
    p = run_begin(c, 1, "watch run --http 127.0.0.1:0");
    port = port_of(c);
    expect_page(port, "/status.json", "\"state\": \"stopped\"");
    expect_page(port, "/", "Loss");
    kill(p.process, SIGTERM);
    assert_int_equal(run_end(&p), 0);
}

static void http__the_page_of_a_run_has_no_problems_in_a_browser(void **state)
{
    data_case *c = *state;
    char line[128];
    int status;
    need_server();
    run_write_job(c);
    run_process p = run_begin(c, 1, LONG_RUN " --http 127.0.0.1:0");
    snprintf(line, sizeof line, HT_TEST_DIR "/../tools/check-pages http://127.0.0.1:%d/", port_of(c));
    assert_true(run_wait_for_step(&p, 50));
    const char *said = run(c, line, &status);
    kill(p.process, SIGTERM);
    assert_int_equal(run_end(&p), 3);
    if (status == 77 || status == 126 || status == 127) skip(); /* no browser, no Python */
    if (status != 0) fail_msg("%.3000s", said);
}

static void http__a_folder_without_a_run_has_a_page_that_waits(void **state)
{
    data_case *c = *state;
    need_server();
    run_process p = run_begin(c, 1, "watch run --http 127.0.0.1:0");
    int port = port_of(c);
    expect_page(port, "/", "There is no step yet");
    expect_page(port, "/status.json", "\"state\": \"waiting\"");
    kill(p.process, SIGTERM);
    assert_int_equal(run_end(&p), 0);
}

static void http__ends_with_its_run_however_that_ends(void **state)
{
    data_case *c = *state;
    need_server();
    run_write_job(c);
    run_process p = run_begin(c, 1, LONG_RUN " --http 127.0.0.1:0");
    int port = port_of(c);
    assert_true(run_wait_for_step(&p, 3));
    kill(p.process, SIGKILL);
    assert_int_equal(run_end(&p), -SIGKILL);
    expect_gone(port);
}

static void http__a_server_that_dies_does_not_end_the_run(void **state)
{
    data_case *c = *state;
    char line[128];
    int status;
    need_server();
    run_write_job(c);
    run(c, "command -v pgrep", &status);
    if (status != 0) skip();
    run_process p = run_begin(c, 1, "train job.json --set train.steps=600 --http 127.0.0.1:0");
    int port = port_of(c);
    assert_true(run_wait_for_step(&p, 3));
    snprintf(line, sizeof line, "kill -9 $(pgrep -P %d)", (int)p.process);
    expect(c, line, 0, "");
    expect_gone(port);
    assert_int_equal(run_end(&p), 0);
}

static void http__does_not_change_the_training(void **state)
{
    data_case *c = *state;
    need_server();
    run_write_job(c);
    expect(c, "\"$H\" train job.json --set train.output=whole", 0, "step 60 of 60");
    expect(c, "\"$H\" train job.json --http 0", 0, "http://127.0.0.1:");
    run_expect_the_same(c);
    expect(c, "\"$H\" train job.json --force --ranks 2 --http 0", 0, "http://127.0.0.1:");
}

static void http__wrong_addresses_are_told_before_anything_is_made(void **state)
{
    data_case *c = *state;
    char line[512];
    need_server();
    run_write_job(c);
    expect(c, "\"$H\" train job.json --http here", 2, "train: --http here: not an address to listen on");
    expect(c, "\"$H\" train job.json --http 0.0.0.0:0", 2, "--http 0.0.0.0:0: other machines can reach this address");
    expect(c, "echo short > token; \"$H\" train job.json --http 0.0.0.0:0 --http-token-file token", 2,
           "a token of 5 characters is too short");
    expect(c, "\"$H\" train job.json --http 0 --http-token-file nothing", 2, "--http-token-file nothing: ");
    expect(c, "HALFTONE_HTTP_TOKEN=short \"$H\" train job.json --http 0", 2, "too short");
    expect(c, "\"$H\" train job.json --http-token-file token", 2, "comes with --http");
    expect(c, "\"$H\" watch run --http 0 --once", 2, "do not go together");
    run_process p = run_begin(c, 1, "watch run --http 0");
    snprintf(line, sizeof line, "\"$H\" train job.json --http 127.0.0.1:%d", port_of(c));
    expect(c, line, 1, "it cannot be listened on: ");
    kill(p.process, SIGTERM);
    assert_int_equal(run_end(&p), 0);
    expect(c, "test ! -e run", 0, "");
}

static void http__a_library_that_is_missing_is_told(void **state)
{
    data_case *c = *state;
    need_server();
    run_write_job(c);
    expect(c, "mkdir none; echo nothing > none/libmicrohttpd.so.12", 0, "");
    expect(c, "LD_LIBRARY_PATH=$PWD/none \"$H\" train job.json --http 0", 1,
           "train: --http 0: there is no server here: libmicrohttpd.so.12 cannot be opened");
    expect(c, "test ! -e run", 0, "");
    expect(c, "LD_LIBRARY_PATH=$PWD/none \"$H\" check job.json", 0, "train --http is not there: libmicrohttpd.so.12");
    expect(c, "\"$H\" check job.json | grep -c http", 1, "0\n");
}

static void http__a_token_opens_other_addresses(void **state)
{
    data_case *c = *state;
    need_server();
    data_case_text(c, "token", "0123456789abcdef\n");
    run_process p = run_begin(c, 1, "watch run --http 0 --http-token-file token");
    int port = port_of(c);
    assert_int_equal(http_get(port, "/status.json", "", NULL), 401);
    assert_int_equal(http_get(port, "/status.json?token=0123456789abcdef", "", NULL), 200);
    assert_int_equal(http_get(port, "/metrics", "Authorization: Bearer 0123456789abcdef\r\n", NULL), 200);
    kill(p.process, SIGTERM);
    assert_int_equal(run_end(&p), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(watch__shows_a_run_that_is_done),
        CASE(watch__leaves_out_what_records_do_not_have),
        CASE(watch__waits_for_a_run_and_follows_it_to_its_end),
        CASE(watch__tells_a_run_that_died),
        CASE(watch__redraws_in_place_on_a_terminal),
        CASE(http__a_run_is_served_while_it_trains),
        CASE(http__the_page_of_a_run_has_no_problems_in_a_browser),
        CASE(http__a_folder_without_a_run_has_a_page_that_waits),
        CASE(http__ends_with_its_run_however_that_ends),
        CASE(http__a_server_that_dies_does_not_end_the_run),
        CASE(http__does_not_change_the_training),
        CASE(http__wrong_addresses_are_told_before_anything_is_made),
        CASE(http__a_library_that_is_missing_is_told),
        CASE(http__a_token_opens_other_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
