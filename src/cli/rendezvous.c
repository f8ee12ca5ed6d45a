/* Before MPI has begun, ranks cannot ask each other who is missing. So each of them holds a name while it waits, an abstract
 * address of a socket, which ends with its process: whoever waits too long sees which ranks of its node have theirs. */
#include "cli/rendezvous.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct rendezvous {
    const ht_launcher *launcher;
    const char *command;
    double timeout_s;
    char job[80]; /* begins the names of its ranks on this node */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
} rendezvous;

/* ---- names ---- */

/* The parent of who leads this process's session: of all ranks of a node it is one, the launcher there or its parent. */
static long launcher_process(void)
{
    char path[64], text[512] = "";
    long parent = 0;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)getsid(0));
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    const char *behind_name = strrchr(text, ')'); /* "12 (name) S parent …" */
    if (behind_name && strlen(behind_name) > 4) parent = strtol(behind_name + 4, NULL, 10);
    return parent;
}

static void name_job(rendezvous *r)
{
    static const char *const variables[] = {"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID"};
    int length = snprintf(r->job, sizeof r->job, "halftone %ld %ld", (long)getuid(), launcher_process());
    for (size_t i = 0; i < sizeof variables / sizeof variables[0] && length < (int)sizeof r->job; i++) {
        const char *value = getenv(variables[i]);
        length += snprintf(r->job + length, sizeof r->job - (size_t)length, " %.40s", value ? value : "");
    }
}

/* A socket that has the name; -1: another process has it, or *failed: there is none to be had. */
static int take_name(const rendezvous *r, const char *what, int rank, bool *failed)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s %s %d", r->job, what, rank);
    int file = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    *failed = file < 0;
    if (file < 0 || bind(file, (struct sockaddr *)&address, bytes) == 0) return file;
    *failed = errno != EADDRINUSE;
    close(file);
    return -1;
}

static bool is_here(const rendezvous *r, int rank)
{
    bool failed;
    if (rank == r->launcher->rank) return true;
    int file = take_name(r, "rank", rank, &failed);
    if (file >= 0) close(file);
    return file < 0 && !failed;
}

/* ---- who is missing ---- */

/* "0, 2-5" */
static int list_ranks(ht_text *text, const rendezvous *r, bool here)
{
    int count = 0, from = -1, size = r->launcher->size;
    const char *before = "";
    for (int rank = 0; rank <= size; rank++) {
        bool listed = rank < size && is_here(r, rank) == here;
        count += listed;
        if (listed && from < 0) from = rank;
        if (listed || from < 0) continue;
        ht_text_add(text, from == rank - 1 ? "%s%d" : "%s%d-%d", before, from, rank - 1);
        before = ", ";
        from = -1;
    }
    return count;
}

static void describe_absent(ht_text *text, const rendezvous *r)
{
    const ht_launcher *l = r->launcher;
    ht_text here = {0}, absent = {0};
    int came = list_ranks(&here, r, true), missing = list_ranks(&absent, r, false);
    const char *present = here.failed ? "?" : here.data;
    if (l->local_size == l->size && missing > 0)
        ht_text_add(text, "rank%s %s of %d %s not come", missing == 1 ? "" : "s", absent.failed ? "?" : absent.data,
                    l->size, missing == 1 ? "has" : "have");
    else if (l->local_size == l->size)
        ht_text_add(text, "all %d ranks have come, and MPI does not begin", l->size);
    else if (l->local_size > came)
        ht_text_add(text, "%d of the %d ranks of %s have not come: of %d, %s are there", l->local_size - came,
                    l->local_size, l->node, l->size, present);
    else
        ht_text_add(text, "of %d ranks, %s have come on %s%s", l->size, present, l->node,
                    l->local_size == came ? ", which has no more: ranks of other machines are missing" : "");
    text->failed |= here.failed || absent.failed;
    ht_text_free(&here);
    ht_text_free(&absent);
}

/* The first of a node that has waited too long tells it for all of them. */
static void tell_absent(const rendezvous *r)
{
    bool failed;
    ht_text text = {0};
    if (take_name(r, "tells", 0, &failed) < 0 && !failed) return;
    ht_text_add(&text, "%s: timeout after %g s: ", r->command, r->timeout_s);
    describe_absent(&text, r);
    cli_tell("halftone: ", text.failed ? "timeout, and out of memory to say of whom" : text.data);
    ht_text_free(&text);
}

static void *watch(void *arg)
{
    enum { GRACE_S = 3 }; /* until the launcher ends the others, of which one has something to say */
    rendezvous *r = arg;
    struct timespec until;
    int timeout = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)r->timeout_s + 1;
    pthread_mutex_lock(&r->lock);
    while (!r->over && timeout == 0) timeout = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    if (!r->over) {
        tell_absent(r);
        sleep(GRACE_S);
        _exit(CLI_FAILED);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

ht_status cli_rendezvous(ht_comm **out, ht_context *ctx, const char *command, const ht_launcher *launcher)
{
    rendezvous r = {.launcher = launcher, .command = command};
    pthread_condattr_t clock;
    pthread_t thread;
    bool failed;
    HT_TRY(ht_comm_timeout(ctx, &r.timeout_s));
    name_job(&r);
    int name = take_name(&r, "rank", launcher->rank, &failed);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, &clock);
    bool watched = pthread_create(&thread, NULL, watch, &r) == 0;
    ht_status status = ht_comm_open(out, ctx, launcher);
    pthread_mutex_lock(&r.lock);
    r.over = true;
    pthread_cond_signal(&r.changed);
    pthread_mutex_unlock(&r.lock);
    if (watched) pthread_join(thread, NULL);
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.lock);
    pthread_condattr_destroy(&clock);
    if (name >= 0) close(name);
    return status;
}
