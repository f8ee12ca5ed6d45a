/* A process that takes a snapshot after every step is killed at random moments. Whenever it is looked at, the newest
 * snapshot is complete and holds the bits that an undisturbed run had at that step. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "snapshot_fixture.h"

enum { STEPS = 80, KILLS = 20, LONG_KILLS = 200, KEEP = 2 };

static void sleep_microseconds(int64_t microseconds)
{
    struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    nanosleep(&pause, NULL);
}

/* One life: from the newest snapshot, if there is one, to the end. Never returns. */
static void live(const char *folder)
{
    session_fixture w = snapshot_tiny(42);
    char *path;
    if (ht_snapshot_find(w.ctx, folder, &path) != HT_OK) _exit(2);
    if (path && snapshot_load(&w, path) != HT_OK) _exit(3);
    free(path);
    while (w.step < STEPS) {
        snapshot_step(&w);
        if (snapshot_save(&w, folder, KEEP) != HT_OK) _exit(4);
    }
    _exit(0);
}

/* Reads the newest snapshot into a session of our own; -1 when there is none. */
static int64_t look(const char *folder, const uint64_t *hashes)
{
    session_fixture w = snapshot_tiny(7);
    char *path;
    assert_int_equal(ht_snapshot_find(w.ctx, folder, &path), HT_OK);
    int64_t step = -1;
    if (path) {
        if (snapshot_load(&w, path) != HT_OK) fail_msg("%s", ht_context_message(w.ctx));
        step = w.step;
        assert_true(step >= 1 && step <= STEPS);
        assert_true(snapshot_hash(&w) == hashes[step]);
    }
    free(path);
    session_end(&w);
    return step;
}

/* Lives until it is killed or done; true when it was killed. */
static bool live_and_die(const char *folder, int64_t microseconds)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) live(folder);
    if (microseconds >= 0) {
        sleep_microseconds(microseconds);
        kill(child, SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

static int64_t microseconds_of_life(const char *folder)
{
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    assert_false(live_and_die(folder, -1));
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (end.tv_sec - begin.tv_sec) * 1000000 + (end.tv_nsec - begin.tv_nsec) / 1000;
}

static void kill__every_resume_has_the_bits_of_an_undisturbed_run(void **state)
{
    (void)state;
    static uint64_t hashes[STEPS + 1];
    char folder[64];
    int kills = 0, wanted = getenv("HALFTONE_LONG") ? LONG_KILLS : KILLS, inside = 0;
    session_fixture w = snapshot_tiny(42);
    while (w.step < STEPS) {
        snapshot_step(&w);
        hashes[w.step] = snapshot_hash(&w);
    }
    session_end(&w);
    folder_make(folder);
    int64_t whole = microseconds_of_life(folder);
    assert_int_equal(look(folder, hashes), STEPS);
    ht_stream rng = {.seed = (uint64_t)getpid(), .step = (uint64_t)time(NULL)};
    print_message("random stream of %d, %lld; a life of %lld us\n", (int)getpid(), (long long)rng.step,
                  (long long)whole);
    folder_remove(folder);
    folder_make(folder);
    int64_t last = -1;
    for (uint64_t turn = 0; kills < wanted; turn++) {
        /* Long enough to begin, short enough that a run is killed a few times before it ends. */
        int64_t pause = (int64_t)(ht_stream_uniform(&rng, turn) * (double)whole / 3);
        bool killed = live_and_die(folder, pause);
        kills += killed;
        int64_t step = look(folder, hashes);
        assert_true(step >= last);
        inside += killed && step > last;
        last = step;
        if (killed && step < STEPS) continue;
        folder_remove(folder);
        folder_make(folder);
        last = -1;
    }
    assert_false(live_and_die(folder, -1));
    assert_int_equal(look(folder, hashes), STEPS);
    assert_int_equal(folder_count(folder), KEEP);
    folder_remove(folder);
    print_message("%d kills, %d after new snapshots\n", kills, inside);
    assert_true(inside > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kill__every_resume_has_the_bits_of_an_undisturbed_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
