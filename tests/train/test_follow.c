/* A run followed from outside: records that come, go and are damaged; who trains there. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "folder_fixture.h"
#include "train/follow.h"
#include "train/run_lock.h"

static ht_context ctx;

static void write_text(const char *name, const char *mode, const char *text)
{
    FILE *file = fopen(folder_at(test_folder, name), mode);
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void add_step(int step, double loss)
{
    char line[512];
    snprintf(line, sizeof line,
             "{\"kind\": \"step\", \"step\": %d, \"steps\": 9, \"epoch\": 0.5, \"loss\": %g, \"lr\": 0.001, "
             "\"step_ms\": 20, "
             "\"tokens_per_second\": 100, \"skipped\": false, \"skips\": 0}\n",
             step, loss);
    write_text("metrics.jsonl", "ab", line);
}

static ht_follower *open_follower(void)
{
    ht_follower *follower;
    assert_int_equal(ht_follower_open(&follower, &ctx, test_folder), HT_OK);
    return follower;
}

static ht_run_status look(ht_follower *follower)
{
    ht_run_status status;
    if (ht_follower_look(follower, &status) != HT_OK) fail_msg("%s", ctx.message);
    return status;
}

static void follow__reads_on_where_it_was(void **state)
{
    ht_follower *f = open_follower();
    (void)state;
    assert_int_equal(look(f).state, HT_RUN_STATE_WAITING);
    add_step(1, 4);
    ht_run_status s = look(f);
    assert_int_equal(s.step.step, 1);
    assert_int_equal(s.step.steps, 9);
    add_step(2, 3);
    write_text("metrics.jsonl", "ab", "{\"kind\": \"step\", \"step\": 3, \"lo");
    s = look(f);
    assert_int_equal(s.step.step, 2);
    assert_int_equal(s.loss_count, 2);
    write_text("metrics.jsonl", "ab", "ss\": null}\n{\"kind\": \"eval\", \"step\": 3, \"loss\": 2.5, \"count\": 8}\n");
    s = look(f);
    assert_int_equal(s.step.step, 3);
    assert_true(isnan(s.step.loss));
    assert_int_equal(s.step.steps, 9); /* that line did not say */
    assert_int_equal(s.eval.step, 3);
    assert_true(s.eval.loss == 2.5 && isnan(s.eval.accuracy));
    assert_int_equal(s.damaged, 0);
    ht_follower_free(f);
}

/* A run that goes on cuts the file and writes on; by the next look it may be longer than it was. */
static void follow__a_file_that_was_cut_is_read_again(void **state)
{
    ht_follower *f = open_follower();
    (void)state;
    for (int i = 1; i <= 4; i++) add_step(i, 10 + i);
    assert_int_equal(look(f).loss_count, 4);
    file_write(folder_at(test_folder, "metrics.jsonl"), "", 0);
    for (int i = 1; i <= 6; i++) add_step(i, 20 + i);
    ht_run_status s = look(f);
    assert_int_equal(s.step.step, 6);
    assert_int_equal(s.loss_count, 6);
    assert_true(s.losses[0] == 21);
    assert_int_equal(unlink(folder_at(test_folder, "metrics.jsonl")), 0);
    s = look(f);
    assert_int_equal(s.step.step, 0);
    assert_int_equal(s.state, HT_RUN_STATE_WAITING);
    ht_follower_free(f);
}

static void follow__damaged_lines_are_counted_and_passed_over(void **state)
{
    ht_follower *f = open_follower();
    (void)state;
    add_step(1, 4);
    write_text("metrics.jsonl", "ab", "not json\n{\"kind\": 3}\n{\"kind\": \"later version\"}\n\n[1, 2]\n");
    add_step(2, 3);
    ht_run_status s = look(f);
    assert_int_equal(s.step.step, 2);
    assert_int_equal(s.damaged, 4);
    ht_follower_free(f);
}

static void follow__a_line_without_an_end_is_refused(void **state)
{
    ht_follower *f = open_follower();
    ht_run_status s;
    (void)state;
    char *text = malloc(3 << 20);
    assert_non_null(text);
    memset(text, 'x', 3 << 20);
    file_write(folder_at(test_folder, "metrics.jsonl"), text, 3 << 20);
    free(text);
    assert_int_equal(ht_follower_look(f, &s), HT_EPARSE);
    assert_non_null(strstr(ctx.message, "metrics.jsonl"));
    ht_follower_free(f);
}

static void follow__long_curves_are_means(void **state)
{
    enum { STEPS = 10000 };
    ht_follower *f = open_follower();
    double sum = 0;
    (void)state;
    FILE *file = fopen(folder_at(test_folder, "metrics.jsonl"), "wb");
    assert_non_null(file);
    for (int i = 1; i <= STEPS; i++)
        fprintf(file, "{\"kind\": \"step\", \"step\": %d, \"steps\": 20000, \"loss\": %d, \"step_ms\": %d}\n", i, i,
                i > 5000 ? 10 : 99);
    assert_int_equal(fclose(file), 0);
    ht_run_status s = look(f);
    assert_int_equal(s.loss_steps, 8);
    assert_int_equal(s.loss_count, STEPS / 8);
    for (size_t i = 0; i < s.loss_count; i++) sum += s.losses[i];
    assert_true(fabs(sum / (double)s.loss_count - (STEPS + 1) / 2.0) < 1e-6);
    assert_true(fabs(s.losses[0] - 4.5) < 1e-9);
    assert_true(fabs(s.seconds_left - 100) < 1e-9); /* by the newest steps, not all of them */
    ht_follower_free(f);
}

/* ---- who trains there ---- */

static void follow__knows_the_states_of_a_run(void **state)
{
    ht_follower *f = open_follower();
    ht_run_lock *lock;
    (void)state;
    assert_int_equal(ht_run_lock_take(&lock, &ctx, test_folder, NULL), HT_OK);
    ht_run_status s = look(f);
    assert_int_equal(s.state, HT_RUN_STATE_TRAINING);
    assert_non_null(strstr(s.holder, "process "));
    add_step(1, 4);
    assert_int_equal(look(f).state, HT_RUN_STATE_TRAINING);
    ht_run_lock_release(lock);
    s = look(f);
    assert_int_equal(s.state, HT_RUN_STATE_DIED);
    assert_string_equal(s.holder, "");
    write_text("metrics.jsonl", "ab", "{\"kind\": \"end\", \"step\": 1, \"seconds\": 3, \"plan_bytes\": 5}\n");
    s = look(f);
    assert_int_equal(s.state, HT_RUN_STATE_STOPPED);
    assert_int_equal(s.end.plan_bytes, 5);
    /* It goes on. */
    assert_int_equal(ht_run_lock_take(&lock, &ctx, test_folder, NULL), HT_OK);
    assert_int_equal(look(f).state, HT_RUN_STATE_TRAINING);
    file_write(folder_at(test_folder, "metrics.jsonl"), "", 0);
    for (int i = 1; i <= 9; i++) add_step(i, 4);
    write_text("metrics.jsonl", "ab", "{\"kind\": \"end\", \"step\": 9, \"seconds\": 3}\n");
    ht_run_lock_release(lock);
    assert_int_equal(look(f).state, HT_RUN_STATE_DONE);
    ht_follower_free(f);
}

/* The lock of a process that is gone says nothing; that of another host, or another container, by its age. */
static void follow__locks_of_the_dead_do_not_count(void **state)
{
    ht_follower *f = open_follower();
    ht_run_lock *lock;
    char text[1024], *number;
    (void)state;
    add_step(1, 4);
    assert_int_equal(ht_run_lock_take(&lock, &ctx, test_folder, NULL), HT_OK);
    size_t length;
    char *own = file_read(folder_at(test_folder, HT_LOCK_NAME), &length);
    ht_run_lock_release(lock);
    snprintf(text, sizeof text, "%.*s", (int)length, own);
    free(own);
    assert_non_null(number = strstr(text, "\"process\": "));
    char gone[1100];
    snprintf(gone, sizeof gone, "{\"process\": 4194999%s", strchr(number, ','));
    write_text(HT_LOCK_NAME, "wb", gone);
    assert_int_equal(look(f).state, HT_RUN_STATE_DIED);
    char *space = strstr(gone, "pid:[");
    if (space) {
        space[5] = 'x';
        write_text(HT_LOCK_NAME, "wb", gone);
        assert_int_equal(look(f).state, HT_RUN_STATE_TRAINING);
        char line[256];
        snprintf(line, sizeof line, "touch -d '10 minutes ago' %s", folder_at(test_folder, HT_LOCK_NAME));
        assert_int_equal(system(line), 0);
        assert_int_equal(look(f).state, HT_RUN_STATE_DIED);
    }
    ht_follower_free(f);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(follow__reads_on_where_it_was),
        CASE(follow__a_file_that_was_cut_is_read_again),
        CASE(follow__damaged_lines_are_counted_and_passed_over),
        CASE(follow__a_line_without_an_end_is_refused),
        CASE(follow__long_curves_are_means),
        CASE(follow__knows_the_states_of_a_run),
        CASE(follow__locks_of_the_dead_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
