/* Messages by MPI, through the shim of its flavour. Requests are polled, never waited for: so a rank that has died or
 * hangs is told after the timeout, and several threads can be at it where the library takes only one at a time. */
#define _GNU_SOURCE /* dladdr */
#include "comm/comm_own.h"
#include "comm/mpi_shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct mpi_transport {
    ht_transport base;
    const ht_mpi_shim *shim;
    ht_mpi_world *world;
    bool serialized;
    pthread_mutex_t lock; /* of the library, where it is serialized */
    pthread_mutex_t note_lock;
    /* Under the note's lock: */
    char call[HT_CALL_TEXT];      /* the last one */
    char (*reports)[HT_MPI_NOTE]; /* by rank: what it was in; "": not heard of. NULL unless we ask */
} mpi_transport;

enum { SPINS = 2000, POLLS_PER_NOTE = 64 };
static const double GRACE_S = 3; /* for the answers of the other ranks, after a timeout */

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* Others compute on the same cores: a poll gives way, and after a while it sleeps. */
static void give_way(int64_t polls)
{
    if (polls < SPINS) {
        sched_yield();
        return;
    }
    long sleep_ns = polls < 2 * SPINS ? 20000 : 200000;
    nanosleep(&(struct timespec){0, sleep_ns}, NULL);
}

static void enter(mpi_transport *t)
{
    if (t->serialized) pthread_mutex_lock(&t->lock);
}

static void leave(mpi_transport *t)
{
    if (t->serialized) pthread_mutex_unlock(&t->lock);
}

/* ---- notes: who asks after a timeout, and who answers ---- */

static const char ASKS = '?', ANSWERS = '.';

static void write_note(const mpi_transport *t, char kind, char note[HT_MPI_NOTE])
{
    memset(note, 0, HT_MPI_NOTE);
    snprintf(note, HT_MPI_NOTE, "%c%s", kind, t->call);
}

/* Under the note's lock. */
static void hear_notes(mpi_transport *t)
{
    char note[HT_MPI_NOTE], answer[HT_MPI_NOTE];
    int from;
    enter(t);
    while (t->shim->take_note(t->world, note, &from)) {
        note[HT_MPI_NOTE - 1] = 0;
        if (t->reports) memcpy(t->reports[from], note, HT_MPI_NOTE);
        write_note(t, ANSWERS, answer);
        if (note[0] == ASKS) t->shim->send_note(t->world, from, answer);
    }
    leave(t);
}

/* The thread that finds the lock taken leaves it to the other. */
static void answer_notes(mpi_transport *t)
{
    if (pthread_mutex_trylock(&t->note_lock) != 0) return;
    hear_notes(t);
    pthread_mutex_unlock(&t->note_lock);
}

static int heard(const mpi_transport *t)
{
    int count = 0;
    for (int i = 0; i < t->base.size; i++) count += t->reports[i][0] != 0;
    return count;
}

/* Under the note's lock. */
static void ask_all(mpi_transport *t)
{
    char note[HT_MPI_NOTE];
    write_note(t, ASKS, note);
    memcpy(t->reports[t->base.rank], note, HT_MPI_NOTE);
    enter(t);
    for (int i = 0; i < t->base.size; i++)
        if (i != t->base.rank) t->shim->send_note(t->world, i, note);
    leave(t);
    for (double until = now() + GRACE_S; heard(t) < t->base.size && now() < until;) {
        hear_notes(t);
        give_way(SPINS);
    }
}

static void add_reports(const mpi_transport *t, ht_text *text)
{
    const char *before = "no answer from rank";
    for (int i = 0; i < t->base.size; i++) {
        if (t->reports[i][0]) continue;
        ht_text_add(text, "%s %d", before, i);
        before = ",";
    }
    before = text->length ? "; last calls: rank" : "all ranks answer; last calls: rank";
    for (int i = 0; i < t->base.size; i++) {
        if (!t->reports[i][0]) continue;
        ht_text_add(text, "%s %d %s", before, i, t->reports[i] + 1);
        before = ", rank";
    }
}

static ht_status tell_timeout(mpi_transport *t, const ht_exchange *e, bool stopping, double seconds)
{
    ht_text text = {0};
    pthread_mutex_lock(&t->note_lock);
    t->reports = calloc((size_t)t->base.size, sizeof *t->reports);
    if (t->reports) {
        ask_all(t);
        add_reports(t, &text);
    }
    free(t->reports);
    t->reports = NULL;
    pthread_mutex_unlock(&t->note_lock);
    ht_fail(e->reason, HT_ERANK, "%s %g s in %s: %.800s", stopping ? "asked to stop, waited" : "timeout after", seconds,
            e->call, text.data ? text.data : "out of memory to ask the other ranks");
    ht_text_free(&text);
    return HT_ERANK;
}

/* ---- exchange ---- */

static ht_status fail_with(const mpi_transport *t, const ht_exchange *e, const ht_message *m, int error)
{
    char text[512];
    t->shim->explain(error, text, sizeof text);
    HT_FAIL(e->reason, HT_ERANK, "%s: MPI failed with rank %d: %s", e->call, m->peer, text);
}

static ht_status post_all(mpi_transport *t, ht_exchange *e, size_t *posted)
{
    for (size_t i = 0; i < e->count; i++) {
        ht_message *m = &e->messages[i];
        enter(t);
        int error = m->receive ? t->shim->receive(t->world, m->data, m->bytes, m->peer, e->channel, &m->handle)
                               : t->shim->send(t->world, m->data, m->bytes, m->peer, e->channel, &m->handle);
        leave(t);
        if (error) return fail_with(t, e, m, error);
        *posted = i + 1;
    }
    return HT_OK;
}

/* *left: messages that are not there yet. */
static ht_status poll_all(mpi_transport *t, ht_exchange *e, size_t *left)
{
    *left = 0;
    for (size_t i = 0; i < e->count; i++) {
        ht_message *m = &e->messages[i];
        size_t bytes = 0;
        if (m->done) continue;
        enter(t);
        int error = t->shim->test(&m->handle, &m->done, &bytes);
        leave(t);
        if (error) return fail_with(t, e, m, error);
        if (m->done && m->receive && bytes != m->bytes)
            HT_FAIL(e->reason, HT_ERANK, "rank %d expects %zu bytes of rank %d in %s, which sends %zu", t->base.rank,
                    m->bytes, m->peer, e->call, bytes);
        *left += !m->done;
    }
    return HT_OK;
}

static ht_status await_all(mpi_transport *t, ht_exchange *e)
{
    double seconds = t->base.timeout_s, until = now() + seconds, stop_s;
    bool stopping = false;
    for (int64_t polls = 0;; polls++) {
        size_t left;
        HT_TRY(poll_all(t, e, &left));
        if (!left) return HT_OK;
        if (polls % POLLS_PER_NOTE == POLLS_PER_NOTE - 1) {
            answer_notes(t);
            if (!stopping && ht_transport_stopping(&t->base, &stop_s) && now() + stop_s < until) {
                seconds = stop_s;
                until = now() + seconds;
                stopping = true;
            }
            if (now() > until) return tell_timeout(t, e, stopping, seconds);
        }
        give_way(polls);
    }
}

static ht_status mpi_exchange(ht_transport *transport, ht_exchange *e)
{
    mpi_transport *t = (mpi_transport *)transport;
    size_t posted = 0;
    pthread_mutex_lock(&t->note_lock);
    snprintf(t->call, sizeof t->call, "%s", e->call);
    pthread_mutex_unlock(&t->note_lock);
    ht_status status = post_all(t, e, &posted);
    if (status == HT_OK) status = await_all(t, e);
    for (size_t i = 0; i < posted && status != HT_OK; i++) {
        if (e->messages[i].done) continue;
        enter(t);
        t->shim->cancel(&e->messages[i].handle);
        leave(t);
    }
    return status;
}

static void mpi_end_all(ht_transport *transport, const char *reason)
{
    mpi_transport *t = (mpi_transport *)transport;
    (void)reason; /* the caller's to tell: processes share no message */
    t->shim->end_all(t->world);
}

static void mpi_close(ht_transport *transport, bool failed)
{
    mpi_transport *t = (mpi_transport *)transport;
    t->shim->close(t->world, failed);
    pthread_mutex_destroy(&t->lock);
    pthread_mutex_destroy(&t->note_lock);
    free(t);
}

static const ht_transport_class mpi_class = {"mpi", mpi_exchange, mpi_end_all, NULL, mpi_close};

/* ---- opening ---- */

/* The library that this process has loaded, by its own word; NULL: none, or an unknown one. */
static const char *loaded_flavour(void)
{
    typedef int version_fn(char *text, int *length);
    char text[16384] = ""; /* more than MPI_MAX_LIBRARY_VERSION_STRING of any */
    int length = 0;
    version_fn *version;
    *(void **)&version = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    if (!version || version(text, &length) != 0) return NULL;
    if (strstr(text, "Open MPI")) return "openmpi";
    return strstr(text, "MPICH") || strstr(text, "Intel") || strstr(text, "MVAPICH") ? "mpich" : NULL;
}

/* The folder of the program or library that this function is in; false: not known. */
static bool own_folder(char *path, size_t capacity)
{
    Dl_info here;
    bool found = dladdr((const void *)&mpi_class, &here) && here.dli_fname && strchr(here.dli_fname, '/');
    ssize_t length =
        found ? snprintf(path, capacity, "%s", here.dli_fname) : readlink("/proc/self/exe", path, capacity);
    if (length < 0 || (size_t)length >= capacity) return false;
    path[length] = 0;
    char *slash = strrchr(path, '/');
    if (slash) slash[1] = 0;
    return slash != NULL;
}

/* There, in the folders that an installation has beside it, then wherever the system looks. */
static void *open_shim_file(const char *flavour, char *reason, size_t capacity)
{
    static const char *const folders[] = {"", "../lib/", "../"};
    char folder[4096], file[64], path[sizeof folder + sizeof file + 8];
    void *handle = NULL;
    snprintf(file, sizeof file, "libhalftone_mpi_%s.so", flavour);
    bool known = own_folder(folder, sizeof folder);
    for (size_t i = 0; known && !handle && i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, "%s%s%s", folder, folders[i], file);
        handle = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    }
    if (!handle) handle = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) snprintf(reason, capacity, "%s", dlerror());
    return handle;
}

static const ht_mpi_shim *find_shim(const char *flavour, char *reason, size_t capacity)
{
    void *handle = open_shim_file(flavour, reason, capacity);
    if (!handle) return NULL;
    const ht_mpi_shim *shim = dlsym(handle, HT_MPI_SHIM_SYMBOL);
    if (shim && shim->version == HT_MPI_SHIM_VERSION) return shim;
    snprintf(reason, capacity, "libhalftone_mpi_%s.so is of another version of Halftone", flavour);
    return NULL;
}

static ht_status open_shim(ht_context *ctx, const char *flavour, const ht_mpi_shim **out)
{
    static const char *const all[] = {"openmpi", "mpich"};
    const char *asked = getenv("HALFTONE_MPI");
    const char *loaded = loaded_flavour();
    char reason[512] = "";
    *out = NULL;
    if (asked && asked[0]) flavour = asked;
    if (loaded) flavour = loaded;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && !*out; i++)
        if (!flavour || strcmp(flavour, all[i]) == 0) *out = find_shim(all[i], reason, sizeof reason);
    if (!*out)
        HT_FAIL(ctx, HT_ENOTSUP, "no MPI can be opened: %s",
                reason[0] ? reason : "HALFTONE_MPI is neither openmpi nor mpich");
    return HT_OK;
}

ht_status ht_comm_open_flavour(ht_comm **out, ht_context *ctx, const char *flavour, const void *mpi_comm)
{
    const ht_mpi_shim *shim;
    double timeout_s;
    char reason[512] = "";
    *out = NULL;
    HT_TRY(ht_comm_timeout(ctx, &timeout_s));
    HT_TRY(open_shim(ctx, flavour, &shim));
    mpi_transport *t = calloc(1, sizeof *t);
    if (!t) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a world of ranks");
    t->shim = shim;
    const char *refusal = shim->open(&t->world, mpi_comm, &t->serialized, reason, sizeof reason);
    if (refusal) {
        free(t);
        HT_FAIL(ctx, HT_ENOTSUP, "MPI cannot be used: %s", refusal);
    }
    t->base = (ht_transport){
        .class = &mpi_class, .rank = shim->rank(t->world), .size = shim->size(t->world), .timeout_s = timeout_s};
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->note_lock, NULL);
    snprintf(t->call, sizeof t->call, "the start");
    return ht_comm_create_world(out, ctx, &t->base);
}
