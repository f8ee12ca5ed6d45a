/* What a disk can do to a snapshot: run full, refuse, fail. Each time the error says what happened, the snapshot before
 * it can be read, and the session goes on as if nobody had tried. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "snapshot_fixture.h"
#include "train/snapshot_tensors.h"

/* ---- calls that fail, and a record of those that do not ---- */

static int calls_left = -1; /* until one fails; -1: none does */
static char record[4096];

static bool fails_now(void)
{
    if (calls_left < 0 || calls_left-- > 0) return false;
    errno = EIO;
    return true;
}

static void note(const char *what, const char *path)
{
    size_t length = strlen(record);
    const char *name = strrchr(path, '/');
    snprintf(record + length, sizeof record - length, "%s %s\n", what, name ? name + 1 : path);
}

/* These stand in for the C library's. */
int fsync(int file)
{
    char link[64], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    if (fails_now()) return -1;
    note("sync", path);
    return (int)syscall(SYS_fsync, file);
}

int rename(const char *from, const char *to)
{
    if (fails_now()) return -1;
    note("rename", to);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

/* ---- what must hold after every failure ---- */

/* The step of the newest snapshot; its state is the one that was recorded. */
static int64_t newest(const uint64_t *hashes)
{
    session_fixture w = snapshot_tiny(7);
    char *path;
    must(&w, ht_snapshot_find(w.ctx, test_folder, &path));
    assert_non_null(path);
    must(&w, snapshot_load(&w, path));
    assert_true(snapshot_hash(&w) == hashes[w.step]);
    int64_t step = w.step;
    free(path);
    session_end(&w);
    return step;
}

/* A snapshot of step 0 in the folder, and the session a step further. */
static session_fixture begin(uint64_t hashes[2])
{
    session_fixture w = snapshot_tiny(42);
    hashes[0] = snapshot_hash(&w);
    must(&w, snapshot_save(&w, test_folder, 1));
    snapshot_step(&w);
    hashes[1] = snapshot_hash(&w);
    return w;
}

static void try_and_fail(session_fixture *w, const uint64_t *hashes, const char *why)
{
    assert_int_equal(snapshot_save(w, test_folder, 1), HT_EIO);
    message_has(w, "no snapshot of step 1: ");
    message_has(w, test_folder);
    message_has(w, why);
    assert_true(snapshot_hash(w) == hashes[1]);
}

/* ---- the tests ---- */

static void write__syncs_files_then_names_then_folder(void **state)
{
    (void)state;
    session_fixture w = snapshot_tiny(42);
    record[0] = '\0';
    must(&w, snapshot_save(&w, test_folder, 1));
    char expected[1024];
    snprintf(expected, sizeof expected,
             "sync weights.safetensors\nsync optimizer.safetensors\nsync manifest.json\nsync step-00000000.partial\n"
             "rename step-00000000\nsync %s\n",
             strrchr(test_folder, '/') + 1);
    assert_string_equal(record, expected);
    /* Old ones are touched only behind all that. */
    snapshot_step(&w);
    record[0] = '\0';
    must(&w, snapshot_save(&w, test_folder, 1));
    const char *named = strstr(record, "rename step-00000001\n"),
               *old = strstr(record, "rename step-00000000.partial\n");
    assert_true(named && old && strstr(named, "sync halftone-") && strstr(named, "sync halftone-") < old);
    session_end(&w);
}

static void write__every_call_may_fail_once(void **state)
{
    (void)state;
    uint64_t hashes[2];
    int failures = 0;
    for (int call = 0;; call++) {
        session_fixture w = begin(hashes);
        calls_left = call;
        ht_status status = snapshot_save(&w, test_folder, 1);
        bool reached = calls_left < 0;
        calls_left = -1;
        if (status != HT_OK) {
            failures++;
            message_has(&w, "Input/output error");
        }
        assert_true(snapshot_hash(&w) == hashes[1]);
        /* Before the rename the old one is the newest, behind it the new one. */
        assert_int_equal(newest(hashes), status == HT_OK || call == 5 ? 1 : 0);
        must(&w, snapshot_save(&w, test_folder, 1));
        assert_int_equal(newest(hashes), 1);
        assert_int_equal(folder_count(test_folder), 1);
        session_end(&w);
        folder_remove(test_folder);
        folder_make(test_folder);
        if (!reached) break;
    }
    assert_int_equal(failures, 6);
}

static void write__replacing_may_fail_anywhere(void **state)
{
    (void)state;
    uint64_t hashes[2];
    int failures = 0;
    for (int call = 0;; call++) {
        session_fixture w = begin(hashes);
        must(&w, snapshot_save(&w, test_folder, 1));
        calls_left = call;
        failures += snapshot_save(&w, test_folder, 1) != HT_OK;
        bool reached = calls_left < 0;
        calls_left = -1;
        assert_int_equal(newest(hashes), 1);
        must(&w, snapshot_save(&w, test_folder, 1));
        assert_int_equal(newest(hashes), 1);
        assert_int_equal(folder_count(test_folder), 1);
        session_end(&w);
        folder_remove(test_folder);
        folder_make(test_folder);
        if (!reached) break;
    }
    assert_true(failures >= 8);
}

/* A limit on the size of files: writes become short, then fail. */
static void write__files_that_may_not_grow(void **state)
{
    (void)state;
    uint64_t hashes[2];
    session_fixture w = begin(hashes);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    int failures = 0;
    for (rlim_t most = 0; most < 1 << 16; most = most * 2 + 100) {
        tight = old;
        tight.rlim_cur = most;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
        ht_status status = snapshot_save(&w, test_folder, 1);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
        if (status == HT_OK) break;
        failures++;
        assert_int_equal(status, HT_EIO);
        message_has(&w, "File too large");
        message_has(&w, test_folder);
        assert_true(snapshot_hash(&w) == hashes[1]);
        assert_int_equal(newest(hashes), 0);
        assert_int_equal(folder_count(test_folder), 1);
    }
    assert_true(failures > 3);
    assert_int_equal(newest(hashes), 1);
    session_end(&w);
}

/* As whom root's rights do not hold; false where that cannot be had. */
static bool become_nobody(void)
{
    return geteuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0);
}

/* Runs a part of a test in a process of its own: what it asserts there counts here. */
static int apart(int (*part)(void))
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(part());
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static uint64_t known[2];

static int write_where_one_may_not(void)
{
    if (!become_nobody()) return 77;
    session_fixture w = snapshot_tiny(42);
    snapshot_step(&w);
    if (snapshot_save(&w, test_folder, 1) != HT_EIO) return 1;
    fprintf(stderr, "# %s\n", ht_context_message(w.ctx));
    if (!strstr(ht_context_message(w.ctx), "step-00000001.partial: Permission denied")) return 2;
    if (snapshot_hash(&w) != known[1]) return 3;
    char *path;
    if (ht_snapshot_find(w.ctx, test_folder, &path) != HT_OK || !path) return 4;
    if (snapshot_load(&w, path) != HT_OK) return 5;
    if (snapshot_hash(&w) != known[0]) return 6;
    free(path);
    session_end(&w);
    return 0;
}

static void write__a_folder_that_is_read_only(void **state)
{
    (void)state;
    session_fixture w = begin(known);
    assert_int_equal(chmod(test_folder, 0555), 0);
    int result = apart(write_where_one_may_not);
    assert_int_equal(chmod(test_folder, 0755), 0);
    if (result == 77) skip();
    assert_int_equal(result, 0);
    assert_int_equal(newest(known), 0);
    session_end(&w);
}

/* Writes zeros until the disk is full but for that many bytes. */
static bool fill_disk(const char *path, long spare)
{
    static char zeros[4096];
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    long total = 0;
    if (file < 0) return false;
    for (ssize_t got; (got = write(file, zeros, sizeof zeros)) > 0;) total += got;
    bool ok = errno == ENOSPC && total >= spare && ftruncate(file, total - spare) == 0;
    close(file);
    return ok;
}

/* On a disk of our own, in a view of the file system that nobody else sees. */
static int run_out_of_disk(void)
{
    char filler[128];
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 77;
    if (mount("tmpfs", test_folder, "tmpfs", 0, "size=128k") != 0) return 77;
    snprintf(filler, sizeof filler, "%s/filler", test_folder);
    uint64_t hashes[2];
    session_fixture w = begin(hashes);
    int failures = 0;
    for (long spare = 0; spare <= 64 << 10; spare += 4 << 10) {
        if (!fill_disk(filler, spare)) return 1;
        ht_status status = snapshot_save(&w, test_folder, 1);
        unlink(filler);
        if (snapshot_hash(&w) != hashes[1]) return 2;
        if (status == HT_OK) break;
        failures++;
        if (status != HT_EIO || !strstr(ht_context_message(w.ctx), "No space left on device")) return 3;
        if (newest(hashes) != 0 || folder_count(test_folder) != 1) return 4;
    }
    fprintf(stderr, "# the disk was full %d times\n", failures);
    if (failures < 3 || newest(hashes) != 1) return 5;
    session_end(&w);
    return 0;
}

static void write__a_disk_that_is_full(void **state)
{
    (void)state;
    int result = apart(run_out_of_disk);
    if (result == 77) skip();
    assert_int_equal(result, 0);
}

static void write__one_at_a_time(void **state)
{
    (void)state;
    uint64_t hashes[2];
    session_fixture w = begin(hashes);
    int other = open(test_folder, O_RDONLY | O_DIRECTORY);
    assert_true(other >= 0);
    assert_int_equal(flock(other, LOCK_EX), 0);
    try_and_fail(&w, hashes, "another process is writing a snapshot here");
    close(other);
    must(&w, snapshot_save(&w, test_folder, 1));
    session_end(&w);
}

static void write__names_that_are_taken_by_files(void **state)
{
    (void)state;
    uint64_t hashes[2];
    char path[128];
    session_fixture w = begin(hashes);
    snprintf(path, sizeof path, "%s/step-00000001", test_folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    try_and_fail(&w, hashes, "step-00000001: Not a directory");
    assert_int_equal(newest(hashes), 0);
    session_end(&w);
}

/* Before the first step of a run whose state lies on a disk: one more than there are, or two. */
static void a_run__is_told_that_its_snapshots_will_not_fit(void **state)
{
    static const char *const elems[] = {"100", "70368744177664"}; /* 2^46: no disk has them */
    (void)state;
    for (int huge = 0; huge < 2; huge++) {
        session_fixture w = {.ctx = context_create(1, NULL)};
        char text[256], snapshots[512], wanted[64];
        snprintf(text, sizeof text, "state %%m f32[%s]@disk heading=optimizer\nsegment update () -> () {\n}\n",
                 elems[huge]);
        snprintf(snapshots, sizeof snapshots, "%s/snapshots", test_folder);
        must(&w, ht_graph_parse(&w.g, w.ctx, "text", text, strlen(text)));
        must(&w, ht_plan_create(&w.plan, w.g, NULL));
        for (int at_once = 1; at_once <= 2; at_once++) {
            ht_status status = ht_snapshot_check_space(w.plan, test_folder, snapshots, at_once);
            assert_int_equal(status, huge ? HT_EIO : HT_OK);
            snprintf(wanted, sizeof wanted, "bytes are needed for %d snapshot", at_once);
            if (huge) assert_non_null(strstr(ht_context_message(w.ctx), wanted));
            if (huge) assert_non_null(strstr(ht_context_message(w.ctx), test_folder));
        }
        session_end(&w);
    }
}

int main(void)
{
#define ROW(test) cmocka_unit_test_setup_teardown(test, test_folder_setup, test_folder_teardown)
    const struct CMUnitTest tests[] = {
        ROW(write__syncs_files_then_names_then_folder),
        ROW(write__every_call_may_fail_once),
        ROW(write__replacing_may_fail_anywhere),
        ROW(write__files_that_may_not_grow),
        ROW(write__a_folder_that_is_read_only),
        ROW(write__a_disk_that_is_full),
        ROW(write__one_at_a_time),
        ROW(write__names_that_are_taken_by_files),
        ROW(a_run__is_told_that_its_snapshots_will_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
