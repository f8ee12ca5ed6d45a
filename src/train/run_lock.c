/* The lock of a run's folder. The file `lock` is held by flock, which the
 * kernel gives up when a process ends in any way, and says who holds it.
 * Between hosts that do not share locks, and where a file system has none, the
 * record decides: a process of this host by its number and start, one of
 * another host by how long ago it last touched the file. */
#include "train/run_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "train/folder.h"

/* A holder touches its lock every so often; on another host it is gone after so
 * many seconds without. */
enum { HEARTBEAT_SECONDS = 10, STALE_SECONDS = 60, MOST_RECORD_BYTES = 4096, TRIES = 100 };

typedef struct holder {
    int64_t process;
    int64_t ticks;            /* when the process started, in the kernel's count since boot;
                    0: not known */
    char host[256], boot[64]; /* `boot` tells starts of one machine, and machines
                               of one name, apart */
    char processes[64];       /* the name space that the process's number is of: a
                               container has its own */
    char start[32];           /* UTC */
} holder;

struct ht_run_lock {
    int file;
    char *path;
    char *made;   /* the folder, where it was not there before; else NULL */
    size_t first; /* bytes of it up to the first part that was not there */
    pthread_t heartbeat;
    pthread_mutex_t mutex;
    pthread_cond_t released;
    bool beats, done;
};

/* ---- who holds it ---- */

/* The first word of a file of the system; "" where there is none. */
static void read_word(const char *path, char *out, size_t capacity)
{
    FILE *file = fopen(path, "rbe");
    out[0] = '\0';
    if (!file) return;
    if (!fgets(out, (int)capacity, file)) out[0] = '\0';
    fclose(file);
    out[strcspn(out, " \n")] = '\0';
}

/* Field 22 of /proc/PID/stat. The second is a name in parentheses that may hold
 * anything. */
static int64_t start_ticks(int64_t process)
{
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", process);
    FILE *file = fopen(path, "rbe");
    if (!file) return 0;
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = '\0';
    const char *at = strrchr(line, ')');
    for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
    return at ? strtoll(at, NULL, 10) : 0;
}

static holder this_process(void)
{
    holder h = {.process = getpid()};
    time_t now = time(NULL);
    struct tm utc;
    h.ticks = start_ticks(h.process);
    if (gethostname(h.host, sizeof h.host - 1) != 0) snprintf(h.host, sizeof h.host, "unknown");
    read_word("/proc/sys/kernel/random/boot_id", h.boot, sizeof h.boot);
    if (readlink("/proc/self/ns/pid", h.processes, sizeof h.processes - 1) < 0) h.processes[0] = '\0';
    if (gmtime_r(&now, &utc)) strftime(h.start, sizeof h.start, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return h;
}

static void print_holder(ht_text *text, const holder *h)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_int(&json, "process", h->process);
    ht_json_put_text(&json, "host", h->host);
    ht_json_put_text(&json, "start", h->start);
    ht_json_put_text(&json, "boot", h->boot);
    ht_json_put_text(&json, "processes", h->processes);
    ht_json_put_int(&json, "ticks", h->ticks);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

static void copy_member(const ht_json *root, const char *key, char *out, size_t capacity)
{
    const ht_json *value = ht_json_get(root, key);
    snprintf(out, capacity, "%s", value && value->kind == HT_JSON_STRING ? value->text : "");
}

/* False where the file is empty or says something else. */
static bool read_holder(int file, holder *out)
{
    char text[MOST_RECORD_BYTES];
    ht_context aside = {0};
    const ht_json *root = NULL;
    ssize_t length = pread(file, text, sizeof text, 0);
    *out = (holder){0};
    ht_arena *arena = length > 0 ? ht_arena_create() : NULL;
    bool ok = arena && ht_json_parse(&aside, arena, HT_LOCK_NAME, text, (size_t)length, &root) == HT_OK;
    const ht_json *process = ok ? ht_json_get(root, "process") : NULL, *ticks = ok ? ht_json_get(root, "ticks") : NULL;
    ok = process && ht_json_as_int(process, &out->process) && ticks && ht_json_as_int(ticks, &out->ticks);
    if (ok) {
        copy_member(root, "host", out->host, sizeof out->host);
        copy_member(root, "start", out->start, sizeof out->start);
        copy_member(root, "boot", out->boot, sizeof out->boot);
        copy_member(root, "processes", out->processes, sizeof out->processes);
    }
    ht_arena_free(arena);
    return ok;
}

static void describe(const holder *h, bool known, char *out, size_t capacity)
{
    if (known)
        snprintf(out, capacity, "process %" PRId64 " on host %s, started %s", h->process, h->host, h->start);
    else
        snprintf(out, capacity, "another process");
}

/* ---- is it alive? ---- */

static bool same_boot(const holder *a, const holder *b)
{
    return a->boot[0] ? strcmp(a->boot, b->boot) == 0 : strcmp(a->host, b->host) == 0;
}

/* A process of this host; another one may have its number by now. */
static bool lives_here(const holder *h)
{
    if (kill((pid_t)h->process, 0) != 0 && errno == ESRCH) return false;
    int64_t ticks = start_ticks(h->process);
    return !h->ticks || !ticks || ticks == h->ticks;
}

/* Seconds since the lock was last touched, by the clock of its file system:
 * that of a new file beside it. */
static double age_of(const char *path, int file)
{
    char probe[4096];
    struct stat then, now;
    if (snprintf(probe, sizeof probe, "%s.XXXXXX", path) >= (int)sizeof probe) return 0;
    int other = mkstemp(probe);
    if (other < 0) return 0;
    bool known = fstat(file, &then) == 0 && fstat(other, &now) == 0;
    close(other);
    unlink(probe);
    return known ? (double)(now.st_mtim.tv_sec - then.st_mtim.tv_sec) : 0;
}

/* `excluded`: the kernel has given us the lock, so no process of this host has
 * it. */
static bool is_held(const char *path, int file, const holder *has, bool excluded)
{
    holder self = this_process();
    if (same_boot(&self, has)) return !excluded && lives_here(has);
    return age_of(path, file) < STALE_SECONDS;
}

/* ---- looking at it ---- */

/* By this host's clock: who only looks makes no files. */
static bool is_fresh(int file)
{
    struct stat lock;
    return fstat(file, &lock) == 0 && time(NULL) - lock.st_mtim.tv_sec < STALE_SECONDS;
}

/* The kernel's lock is left alone: one that is taken for a moment would refuse a training that begins just then. */
bool ht_run_lock_is_held(ht_context *ctx, const char *folder, char *who, size_t capacity)
{
    holder self = this_process(), has;
    char *path = NULL;
    who[0] = '\0';
    int file = ht_folder_path(ctx, &path, folder, HT_LOCK_NAME) == HT_OK ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    free(path);
    if (file < 0) return false;
    bool known = read_holder(file, &has);
    bool here = known && same_boot(&self, &has) && strcmp(self.processes, has.processes) == 0;
    bool held = here ? lives_here(&has) : is_fresh(file);
    if (held) describe(&has, known, who, capacity);
    close(file);
    return held;
}

/* ---- taking it ---- */

typedef enum attempt { TAKEN, HELD, AGAIN, FAILED } attempt;

/* The file under the path is the one that we opened: nobody released it in
 * between. */
static bool is_current(const char *path, int file)
{
    struct stat opened, named;
    return fstat(file, &opened) == 0 && stat(path, &named) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

static attempt write_holder(int file)
{
    ht_text text = {0};
    holder self = this_process();
    print_holder(&text, &self);
    bool wrote =
        !text.failed && ftruncate(file, 0) == 0 && pwrite(file, text.data, text.length, 0) == (ssize_t)text.length;
    int error = text.failed ? ENOMEM : errno;
    ht_text_free(&text);
    errno = error;
    return wrote ? TAKEN : FAILED;
}

/* Where the kernel has no locks, the last to write its record has the lock. */
static attempt write_and_wait(int file)
{
    holder self = this_process(), has;
    attempt result = write_holder(file);
    if (result != TAKEN) return result;
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    bool known = read_holder(file, &has);
    return known && has.process == self.process && same_boot(&has, &self) ? TAKEN : AGAIN;
}

/* One attempt. `who` is the holder, or whose lock is taken over, or "". */
static attempt try_lock(const char *path, int *out, char *who, size_t capacity)
{
    holder has;
    int file = *out = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    who[0] = '\0';
    if (file < 0) return errno == ENOENT ? AGAIN : FAILED;
    bool excluded = flock(file, LOCK_EX | LOCK_NB) == 0;
    if (!excluded && errno == EWOULDBLOCK) {
        bool known = read_holder(file, &has);
        if (!is_current(path, file)) return AGAIN;
        describe(&has, known, who, capacity);
        return HELD;
    }
    if (!is_current(path, file)) return AGAIN;
    bool known = read_holder(file, &has);
    if (known) describe(&has, known, who, capacity);
    if (known && is_held(path, file, &has, excluded)) return HELD;
    return excluded ? write_holder(file) : write_and_wait(file);
}

/* ---- the heartbeat ---- */

static void *beat(void *arg)
{
    ht_run_lock *lock = arg;
    struct timespec next;
    pthread_mutex_lock(&lock->mutex);
    while (!lock->done) {
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_sec += HEARTBEAT_SECONDS;
        pthread_cond_timedwait(&lock->released, &lock->mutex, &next);
        if (!lock->done) futimens(lock->file, NULL);
    }
    pthread_mutex_unlock(&lock->mutex);
    return NULL;
}

/* Signals are for the other threads. Without the thread the lock holds all the
 * same, but for other hosts. */
static void start_heartbeat(ht_run_lock *lock)
{
    sigset_t all, before;
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->released, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    lock->beats = pthread_create(&lock->heartbeat, NULL, beat, lock) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void stop_heartbeat(ht_run_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    lock->done = true;
    pthread_cond_signal(&lock->released);
    pthread_mutex_unlock(&lock->mutex);
    if (lock->beats) pthread_join(lock->heartbeat, NULL);
    pthread_cond_destroy(&lock->released);
    pthread_mutex_destroy(&lock->mutex);
}

/* ---- the doors ---- */

/* Notes which folders of the path are not there; they go with the lock where
 * nothing came into them. */
static ht_status note_missing(ht_run_lock *lock, ht_context *ctx, const char *folder)
{
    if (access(folder, F_OK) == 0 || lock->made) return HT_OK;
    lock->made = strdup(folder);
    if (!lock->made) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a lock");
    for (lock->first = 1; lock->made[lock->first]; lock->first++) {
        if (lock->made[lock->first] != '/') continue;
        lock->made[lock->first] = '\0';
        bool missing = access(lock->made, F_OK) != 0;
        lock->made[lock->first] = '/';
        if (missing) break;
    }
    return HT_OK;
}

static void remove_made(ht_run_lock *lock)
{
    for (size_t length = lock->made ? strlen(lock->made) : 0; length >= lock->first && length > 0; length--) {
        if (lock->made[length] != '\0' && lock->made[length] != '/') continue;
        lock->made[length] = '\0';
        if (rmdir(lock->made) != 0) return;
    }
}

/* Whoever releases a lock may take the empty folder with it, so that it is made
 * again. */
static ht_status take(ht_run_lock *lock, ht_context *ctx, const char *folder, char *who, size_t capacity)
{
    for (int tries = 0; tries < TRIES; tries++) {
        if (tries > 0) nanosleep(&(struct timespec){.tv_nsec = 1000000L * tries}, NULL); /* others are at it, too */
        HT_TRY(note_missing(lock, ctx, folder));
        ht_status status = ht_folder_make(ctx, folder);
        if (status != HT_OK && access(folder, F_OK) != 0 && errno == ENOENT && tries + 1 < TRIES) continue;
        HT_TRY(status);
        attempt result = try_lock(lock->path, &lock->file, who, capacity);
        if (result == TAKEN) return HT_OK;
        if (result == FAILED) HT_FAIL(ctx, HT_EIO, "%s: %s", lock->path, strerror(errno));
        if (lock->file >= 0) close(lock->file);
        lock->file = -1;
        if (result == HELD)
            HT_FAIL(ctx, HT_EINVAL,
                    "%s holds a run that is in use by %s (%s): wait until it ends, "
                    "or stop it; "
                    "--set train.output=FOLDER takes another folder",
                    folder, who, lock->path);
    }
    HT_FAIL(ctx, HT_EIO, "%s: it could not be locked: other processes come and go", lock->path);
}

ht_status ht_run_lock_take(ht_run_lock **out, ht_context *ctx, const char *folder, char **taken_over)
{
    char who[512];
    *out = NULL;
    if (taken_over) *taken_over = NULL;
    ht_run_lock *lock = calloc(1, sizeof *lock);
    if (!lock) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a lock");
    lock->file = -1;
    ht_status status = ht_folder_path(ctx, &lock->path, folder, HT_LOCK_NAME);
    if (status == HT_OK) status = take(lock, ctx, folder, who, sizeof who);
    if (status != HT_OK) {
        if (lock->file >= 0) close(lock->file);
        free(lock->path);
        free(lock->made);
        free(lock);
        return status;
    }
    start_heartbeat(lock);
    if (taken_over && who[0]) *taken_over = strdup(who);
    *out = lock;
    return HT_OK;
}

void ht_run_lock_release(ht_run_lock *lock)
{
    if (!lock) return;
    stop_heartbeat(lock);
    /* While it is held: who opened it in between finds that it is no longer
   * current. */
    if (is_current(lock->path, lock->file)) unlink(lock->path);
    remove_made(lock);
    close(lock->file);
    free(lock->path);
    free(lock->made);
    free(lock);
}
