/* The lock of a run's folder: who gets it, who is refused, and whose lock is taken over. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "context_fixture.h"
#include "folder_fixture.h"
#include "train/run_lock.h"

/* Stands in for the C library's: some file systems have no locks. */
static bool without_locks;
int flock(int file, int operation)
{
    if (without_locks) {
        errno = ENOSYS;
        return -1;
    }
    return (int)syscall(SYS_flock, file, operation);
}

static int setup(void **state)
{
    without_locks = false;
    return test_folder_setup(state) || context_setup(state);
}

static int teardown(void **state)
{
    return context_teardown(state) || test_folder_teardown(state);
}

static void expect_held(const char *folder, const char *by)
{
    ht_run_lock *lock;
    ht_status status = ht_run_lock_take(&lock, test_ctx, folder, NULL);
    if (status != HT_EINVAL || lock || !strstr(ht_context_message(test_ctx), by))
        fail_msg("status %d, not held by '%s': %s", (int)status, by, ht_context_message(test_ctx));
}

/* Takes the lock and gives it back; whose it was, in static memory, "" if nobody's. */
static const char *expect_free(const char *folder)
{
    static char who[512];
    ht_run_lock *lock;
    char *before;
    context_must(test_ctx, ht_run_lock_take(&lock, test_ctx, folder, &before));
    snprintf(who, sizeof who, "%s", before ? before : "");
    free(before);
    ht_run_lock_release(lock);
    return who;
}

static void write_record(int64_t process, const char *boot, int64_t ticks)
{
    char text[512];
    int length = snprintf(text, sizeof text,
                          "{\"process\": %" PRId64 ", \"host\": \"far\", \"start\": \"2026-01-02T03:04:05Z\", "
                          "\"boot\": \"%s\", \"ticks\": %" PRId64 "}\n",
                          process, boot, ticks);
    file_write(folder_at(test_folder, HT_LOCK_NAME), text, (size_t)length);
}

/* This machine's, as records have it. */
static const char *this_boot(void)
{
    static char boot[64];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file || !fgets(boot, sizeof boot, file)) skip();
    fclose(file);
    boot[strcspn(boot, "\n")] = '\0';
    return boot;
}

/* ---- the tests ---- */

static void lock__one_at_a_time_with_process_host_and_start(void **state)
{
    (void)state;
    ht_run_lock *lock;
    char host[256] = "", expected[512];
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    context_must(test_ctx, ht_run_lock_take(&lock, test_ctx, test_folder, NULL));
    snprintf(expected, sizeof expected, "process %d on host %s, started 2", (int)getpid(), host);
    expect_held(test_folder, expected);
    expect_held(test_folder, "/lock)");
    ht_run_lock_release(lock);
    assert_int_equal(folder_count(test_folder), 0);
    assert_string_equal(expect_free(test_folder), "");
}

static void lock__makes_the_folder_and_takes_it_away_while_it_is_empty(void **state)
{
    (void)state;
    ht_run_lock *lock;
    char deep[128];
    snprintf(deep, sizeof deep, "%s/runs/a/b", test_folder);
    expect_free(deep);
    assert_int_equal(folder_count(test_folder), 0);
    context_must(test_ctx, ht_run_lock_take(&lock, test_ctx, deep, NULL));
    file_write(folder_at(deep, "metrics.jsonl"), "x", 1);
    ht_run_lock_release(lock);
    assert_int_equal(folder_count(deep), 1);
}

static pid_t child_with_lock(bool stay)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        ht_run_lock *lock;
        if (ht_run_lock_take(&lock, test_ctx, test_folder, NULL) != HT_OK) _exit(1);
        if (write(ends[1], "x", 1) != 1) _exit(1);
        while (stay) pause();
        _exit(0); /* without a release, as after kill -9 */
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    return child;
}

static void end_child(pid_t child)
{
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void lock__of_a_process_that_was_killed_is_taken_over(void **state)
{
    (void)state;
    char expected[64];
    for (int kind = 0; kind < 2; kind++) {
        without_locks = kind == 1;
        pid_t child = child_with_lock(true);
        snprintf(expected, sizeof expected, "process %d on host ", (int)child);
        expect_held(test_folder, expected);
        end_child(child);
        assert_non_null(strstr(expect_free(test_folder), expected));
    }
}

/* Another process has its number by now. */
static void lock__of_an_earlier_process_with_the_same_number_is_taken_over(void **state)
{
    (void)state;
    without_locks = true;
    write_record(getpid(), this_boot(), 1);
    assert_non_null(strstr(expect_free(test_folder), "2026-01-02T03:04:05Z"));
}

/* Locks of the kernel may not reach from host to host: there a lock lives as long as it is touched. */
static void lock__of_another_host_is_held_while_it_is_touched(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        without_locks = kind == 1;
        write_record(1, "0-another-machine", 5);
        expect_held(test_folder, "process 1 on host far, started 2026-01-02T03:04:05Z");
        struct timespec long_ago[2] = {{.tv_nsec = UTIME_NOW}, {.tv_sec = 1000000000}};
        assert_int_equal(utimensat(AT_FDCWD, folder_at(test_folder, HT_LOCK_NAME), long_ago, 0), 0);
        assert_non_null(strstr(expect_free(test_folder), "process 1 on host far"));
    }
}

static void lock__a_damaged_record_is_nobodys(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "\0\0\0\0", "{\"process\": ", "{\"process\": \"x\", \"ticks\": 1}", "[]"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        file_write(folder_at(test_folder, HT_LOCK_NAME), texts[i], i == 1 ? 4 : strlen(texts[i]));
        assert_string_equal(expect_free(test_folder), "");
    }
}

/* Processes come and go; the folder appears and vanishes with them. */
static void lock__excludes_under_contention(void **state)
{
    (void)state;
    enum { PROCESSES = 6 };
    int rounds = getenv("HALFTONE_LONG") ? 2000 : 200, taken = 0;
    char folder[128];
    snprintf(folder, sizeof folder, "%s/run", test_folder);
    for (int i = 0; i < PROCESSES; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child > 0) continue;
        for (int round = 0; round < rounds; round++) {
            ht_run_lock *lock;
            ht_status status = ht_run_lock_take(&lock, test_ctx, folder, NULL);
            if (status == HT_EINVAL) continue;
            if (status != HT_OK) {
                fprintf(stderr, "%s\n", ht_context_message(test_ctx));
                _exit(2);
            }
            /* Exists while one of us is inside. */
            int inside = open(folder_at(test_folder, "inside"), O_CREAT | O_EXCL | O_WRONLY, 0600);
            if (inside < 0) _exit(3);
            close(inside);
            unlink(folder_at(test_folder, "inside"));
            ht_run_lock_release(lock);
        }
        _exit(0);
    }
    for (int status; taken < PROCESSES && wait(&status) > 0; taken++)
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("a process ended with %x", (unsigned)status);
    assert_int_equal(taken, PROCESSES);
    assert_int_not_equal(access(folder_at(folder, HT_LOCK_NAME), F_OK), 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(lock__one_at_a_time_with_process_host_and_start),
        CASE(lock__makes_the_folder_and_takes_it_away_while_it_is_empty),
        CASE(lock__of_a_process_that_was_killed_is_taken_over),
        CASE(lock__of_an_earlier_process_with_the_same_number_is_taken_over),
        CASE(lock__of_another_host_is_held_while_it_is_touched),
        CASE(lock__a_damaged_record_is_nobodys),
        CASE(lock__excludes_under_contention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
