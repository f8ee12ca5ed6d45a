/* Ranks that are threads of one process. A message is a pointer in the inbox of its receiver, who copies the bytes; its
 * sender waits until they are copied. One lock for all ranks: it is held for moments only, never while bytes move. */
#include "comm/comm_own.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct rank_state {
    pthread_cond_t changed; /* of this rank's messages, or of another rank's end */
    ht_message *inbox;      /* in the order in which they were sent */
    bool left;              /* its world was freed */
    int waiting;            /* exchanges that it is in */
    char call[HT_CALL_TEXT];
} rank_state;

struct ht_thread_ranks {
    int size;
    double timeout_s, least_delay_us, most_delay_us;
    uint64_t seed;
    int death_rank;
    int64_t death_at;
    pthread_mutex_t lock;
    /* Under the lock: */
    rank_state *ranks;
    int dead; /* the first rank that ended, or -1 */
    char reason[1024];
};

typedef struct thread_transport {
    ht_transport base;
    ht_thread_ranks *ranks;
    int64_t exchanges; /* under the lock */
} thread_transport;

/* ---- time ---- */

static struct timespec in_seconds(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    double whole = (double)(int64_t)seconds;
    at.tv_sec += (time_t)whole;
    at.tv_nsec += (long)((seconds - whole) * 1e9);
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

static void wait_some(const thread_transport *t, int64_t exchange)
{
    const ht_thread_ranks *w = t->ranks;
    if (!(w->most_delay_us > 0)) return;
    uint64_t draw = ht_hash_bytes(w->seed, (int64_t[]){t->base.rank, exchange}, 2 * sizeof exchange);
    double share = (double)(draw >> 11) * 0x1p-53;
    struct timespec at = in_seconds((w->least_delay_us + share * (w->most_delay_us - w->least_delay_us)) * 1e-6);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

/* ---- ends; all under the lock ---- */

static void end(ht_thread_ranks *w, int rank, const char *reason)
{
    if (w->dead < 0) {
        w->dead = rank;
        snprintf(w->reason, sizeof w->reason, "%s", reason);
    }
    for (int i = 0; i < w->size; i++) pthread_cond_broadcast(&w->ranks[i].changed);
}

static ht_status tell_dead(const ht_thread_ranks *w, ht_context *ctx, int rank)
{
    if (w->dead == rank) HT_FAIL(ctx, HT_ERANK, "%s", w->reason);
    HT_FAIL(ctx, HT_ERANK, "rank %d has ended in %s: %s", w->dead, w->ranks[w->dead].call, w->reason);
}

/* A rank that some message of ours is still for or from; -1: none. */
static int awaited(const ht_exchange *e, int after)
{
    int next = -1;
    for (size_t i = 0; i < e->count; i++) {
        int peer = e->messages[i].peer;
        if (!e->messages[i].done && peer > after && (next < 0 || peer < next)) next = peer;
    }
    return next;
}

static ht_status tell_timeout(ht_thread_ranks *w, const ht_exchange *e, int rank)
{
    char text[600];
    size_t length = 0;
    const char *before = "no word from rank";
    for (int peer = awaited(e, -1); peer >= 0 && length < sizeof text; peer = awaited(e, peer)) {
        length += (size_t)snprintf(text + length, sizeof text - length, "%s %d", before, peer);
        before = ",";
    }
    before = "; last calls: rank";
    for (int i = 0; i < w->size && length < sizeof text; i++) {
        const rank_state *r = &w->ranks[i];
        length += (size_t)snprintf(text + length, sizeof text - length, "%s %d %s%s", before, i, r->call,
                                   r->waiting ? "" : " (done)");
        before = ", rank";
    }
    ht_fail(e->reason, HT_ERANK, "timeout after %g s in %s: %s", w->timeout_s, e->call, text);
    end(w, rank, e->reason->message);
    return HT_ERANK;
}

/* ---- messages; all under the lock ---- */

static void post(thread_transport *t, ht_exchange *e, ht_message *m)
{
    rank_state *to = &t->ranks->ranks[m->peer];
    ht_message **at = &to->inbox;
    while (*at) at = &(*at)->next;
    m->source = t->base.rank;
    m->channel = e->channel;
    *at = m;
    pthread_cond_broadcast(&to->changed);
}

static void unlink_message(ht_message **at)
{
    ht_message *m = *at;
    *at = m->next;
    m->next = NULL;
}

static ht_message *take(rank_state *own, const ht_message *wanted, int channel)
{
    for (ht_message **at = &own->inbox; *at; at = &(*at)->next) {
        ht_message *m = *at;
        if (m->source != wanted->peer || m->channel != channel) continue;
        unlink_message(at);
        m->taken = true;
        return m;
    }
    return NULL;
}

static ht_status tell_other_size(ht_thread_ranks *w, const ht_exchange *e, int rank, const ht_message *m, size_t got)
{
    ht_fail(e->reason, HT_ERANK, "rank %d expects %zu bytes of rank %d in %s, which sends %zu in %s", rank, m->bytes,
            m->peer, e->call, got, w->ranks[m->peer].call);
    end(w, rank, e->reason->message);
    return HT_ERANK;
}

/* All that is there. The lock is left while bytes move (*moved), and others may have come or been taken since. */
static ht_status receive(thread_transport *t, ht_exchange *e, bool *moved)
{
    ht_thread_ranks *w = t->ranks;
    *moved = false;
    for (size_t i = 0; i < e->count; i++) {
        ht_message *m = &e->messages[i];
        ht_message *sent = m->receive && !m->done ? take(&w->ranks[t->base.rank], m, e->channel) : NULL;
        if (!sent) continue;
        size_t bytes = sent->bytes;
        *moved = true;
        pthread_mutex_unlock(&w->lock);
        if (bytes == m->bytes) memcpy(m->data, sent->data, bytes);
        pthread_mutex_lock(&w->lock);
        m->done = sent->done = true;
        pthread_cond_broadcast(&w->ranks[m->peer].changed);
        if (bytes != m->bytes) return tell_other_size(w, e, t->base.rank, m, bytes);
    }
    return HT_OK;
}

/* Their memory is the caller's again: messages that nobody has taken leave the inboxes, the others are waited for. */
static void withdraw(thread_transport *t, ht_exchange *e)
{
    ht_thread_ranks *w = t->ranks;
    for (size_t i = 0; i < e->count; i++) {
        ht_message *m = &e->messages[i];
        if (m->receive || m->done) continue;
        while (m->taken && !m->done) pthread_cond_wait(&w->ranks[t->base.rank].changed, &w->lock);
        for (ht_message **at = &w->ranks[m->peer].inbox; *at; at = &(*at)->next)
            if (*at == m) {
                unlink_message(at);
                break;
            }
    }
}

static ht_status await_all(thread_transport *t, ht_exchange *e)
{
    ht_thread_ranks *w = t->ranks;
    struct timespec until = in_seconds(w->timeout_s);
    for (;;) {
        bool moved;
        HT_TRY(receive(t, e, &moved));
        int peer = awaited(e, -1);
        if (peer < 0) return HT_OK;
        if (moved) continue;
        if (w->dead >= 0) return tell_dead(w, e->reason, t->base.rank);
        for (; peer >= 0; peer = awaited(e, peer))
            if (w->ranks[peer].left)
                HT_FAIL(e->reason, HT_ERANK, "%s: rank %d has left already, after %s", e->call, peer,
                        w->ranks[peer].call);
        if (pthread_cond_timedwait(&w->ranks[t->base.rank].changed, &w->lock, &until) == ETIMEDOUT &&
            awaited(e, -1) >= 0)
            return tell_timeout(w, e, t->base.rank);
    }
}

/* The death that a test asks for. */
static bool dies(thread_transport *t)
{
    const ht_thread_ranks *w = t->ranks;
    return w->death_at > 0 && t->base.rank == w->death_rank && t->exchanges >= w->death_at;
}

static ht_status thread_exchange(ht_transport *transport, ht_exchange *e)
{
    thread_transport *t = (thread_transport *)transport;
    ht_thread_ranks *w = t->ranks;
    rank_state *own = &w->ranks[transport->rank];
    pthread_mutex_lock(&w->lock);
    int64_t number = ++t->exchanges;
    snprintf(own->call, sizeof own->call, "%s", e->call);
    if (dies(t)) end(w, transport->rank, "it was told to die");
    pthread_mutex_unlock(&w->lock);
    wait_some(t, number);
    pthread_mutex_lock(&w->lock);
    own->waiting++;
    ht_status status = w->dead >= 0 ? tell_dead(w, e->reason, transport->rank) : HT_OK;
    for (size_t i = 0; i < e->count && status == HT_OK; i++)
        if (!e->messages[i].receive) post(t, e, &e->messages[i]);
    if (status == HT_OK) status = await_all(t, e);
    if (status != HT_OK) withdraw(t, e);
    own->waiting--;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void thread_end_all(ht_transport *transport, const char *reason)
{
    ht_thread_ranks *w = ((thread_transport *)transport)->ranks;
    pthread_mutex_lock(&w->lock);
    end(w, transport->rank, reason);
    pthread_mutex_unlock(&w->lock);
}

/* For the messages of others, what it waits for is its last call. */
static ht_status thread_check(ht_transport *transport, ht_context *ctx, const char *what)
{
    ht_thread_ranks *w = ((thread_transport *)transport)->ranks;
    pthread_mutex_lock(&w->lock);
    snprintf(w->ranks[transport->rank].call, sizeof w->ranks[transport->rank].call, "%s", what);
    ht_status status = w->dead >= 0 ? tell_dead(w, ctx, transport->rank) : HT_OK;
    pthread_mutex_unlock(&w->lock);
    return status;
}

static void thread_close(ht_transport *transport, bool failed)
{
    ht_thread_ranks *w = ((thread_transport *)transport)->ranks;
    (void)failed;
    pthread_mutex_lock(&w->lock);
    w->ranks[transport->rank].left = true;
    for (int i = 0; i < w->size; i++) pthread_cond_broadcast(&w->ranks[i].changed);
    pthread_mutex_unlock(&w->lock);
    free(transport);
}

static const ht_transport_class thread_class = {"thread", thread_exchange, thread_end_all, thread_check, thread_close};

/* ---- worlds ---- */

/* "100": always as long; "0..100": at random. */
static ht_status read_delay(ht_context *ctx, ht_thread_ranks *w)
{
    const char *text = getenv("HALFTONE_COMM_DELAY_US");
    if (!text || !text[0]) return HT_OK;
    const char *dots = strstr(text, "..");
    char first[32];
    snprintf(first, sizeof first, "%.*s", (int)(dots ? dots - text : (long)strlen(text)), text);
    bool read = ht_number_read(first, &w->least_delay_us) && ht_number_read(dots ? dots + 2 : first, &w->most_delay_us);
    if (!read || !(w->least_delay_us >= 0 && w->most_delay_us >= w->least_delay_us && w->most_delay_us <= 1e9))
        HT_FAIL(ctx, HT_EINVAL, "HALFTONE_COMM_DELAY_US is '%s', and neither microseconds nor a range 0..100", text);
    return HT_OK;
}

static ht_status read_death(ht_context *ctx, ht_thread_ranks *w)
{
    const char *text = getenv("HALFTONE_COMM_DEATH");
    long long at;
    char rest;
    if (!text || !text[0]) return HT_OK;
    if (sscanf(text, "%d:%lld%c", &w->death_rank, &at, &rest) != 2 || w->death_rank < 0 || at < 1)
        HT_FAIL(ctx, HT_EINVAL, "HALFTONE_COMM_DEATH is '%s', and not rank:exchange", text);
    w->death_at = at;
    return HT_OK;
}

static ht_status set_up(ht_thread_ranks *w, ht_context *ctx, const ht_thread_ranks_opts *opts)
{
    w->timeout_s = opts->timeout_s;
    w->least_delay_us = opts->least_delay_us;
    w->most_delay_us = opts->most_delay_us;
    w->seed = opts->seed;
    w->death_rank = opts->death_rank;
    w->death_at = opts->death_at;
    if (!w->timeout_s) HT_TRY(ht_comm_timeout(ctx, &w->timeout_s));
    if (!w->most_delay_us) HT_TRY(read_delay(ctx, w));
    return w->death_at ? HT_OK : read_death(ctx, w);
}

ht_status ht_thread_ranks_create(ht_thread_ranks **out, ht_context *ctx, const ht_thread_ranks_opts *opts)
{
    *out = NULL;
    if (opts->ranks < 1) HT_FAIL(ctx, HT_EINVAL, "%d ranks: there must be at least one", opts->ranks);
    ht_thread_ranks *w = calloc(1, sizeof *w);
    rank_state *ranks = w ? calloc((size_t)opts->ranks, sizeof *ranks) : NULL;
    if (!ranks) {
        free(w);
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for %d ranks", opts->ranks);
    }
    w->size = opts->ranks;
    w->ranks = ranks;
    w->dead = -1;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    for (int i = 0; i < w->size; i++) {
        pthread_cond_init(&ranks[i].changed, &clock);
        snprintf(ranks[i].call, sizeof ranks[i].call, "the start");
    }
    pthread_condattr_destroy(&clock);
    ht_status status = set_up(w, ctx, opts);
    if (status == HT_OK)
        *out = w;
    else
        ht_thread_ranks_free(w);
    return status;
}

void ht_thread_ranks_free(ht_thread_ranks *w)
{
    if (!w) return;
    for (int i = 0; i < w->size; i++) pthread_cond_destroy(&w->ranks[i].changed);
    pthread_mutex_destroy(&w->lock);
    free(w->ranks);
    free(w);
}

ht_status ht_comm_open_thread(ht_comm **out, ht_context *ctx, ht_thread_ranks *ranks, int rank)
{
    thread_transport *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a world of ranks");
    t->base = (ht_transport){.class = &thread_class, .rank = rank, .size = ranks->size, .timeout_s = ranks->timeout_s};
    t->ranks = ranks;
    return ht_comm_create_world(out, ctx, &t->base);
}

/* ---- running them ---- */

typedef struct rank_thread {
    pthread_t thread;
    bool started;
    ht_thread_ranks *ranks;
    int rank;
    ht_rank_fn fn;
    void *arg;
    ht_context messages;
    ht_status status;
} rank_thread;

/* A failure of its own ends the others; one that came from them is known there already. */
static void *run_rank(void *arg)
{
    rank_thread *r = arg;
    ht_comm *world;
    r->status = ht_comm_open_thread(&world, &r->messages, r->ranks, r->rank);
    if (r->status == HT_OK) r->status = r->fn(r->arg, world, &r->messages);
    if (r->status != HT_OK && world) ht_comm_abort(world, r->messages.message);
    ht_comm_free(world);
    return NULL;
}

/* The failure of the rank that was the first to end, if there is one. */
static ht_status tell_first(ht_context *ctx, const rank_thread *threads, const ht_thread_ranks *w)
{
    int first = w->dead;
    for (int i = 0; first < 0 && i < w->size; i++)
        if (threads[i].status != HT_OK) first = i;
    if (first < 0) return HT_OK;
    ht_status status = threads[first].status == HT_OK ? HT_ERANK : threads[first].status;
    HT_FAIL(ctx, status, "rank %d: %s", first, threads[first].messages.message);
}

ht_status ht_thread_ranks_run(ht_context *ctx, const ht_thread_ranks_opts *opts, ht_rank_fn fn, void *arg)
{
    ht_thread_ranks *w;
    HT_TRY(ht_thread_ranks_create(&w, ctx, opts));
    rank_thread *threads = calloc((size_t)w->size, sizeof *threads);
    ht_status status = threads ? HT_OK : ht_fail(ctx, HT_ENOMEM, "out of memory for %d ranks", w->size);
    for (int i = 0; threads && i < w->size; i++) {
        threads[i] = (rank_thread){.ranks = w, .rank = i, .fn = fn, .arg = arg};
        threads[i].started = pthread_create(&threads[i].thread, NULL, run_rank, &threads[i]) == 0;
        if (threads[i].started) continue;
        threads[i].status = ht_fail(&threads[i].messages, HT_ENOMEM, "no thread can be had for it");
        pthread_mutex_lock(&w->lock);
        end(w, i, threads[i].messages.message);
        pthread_mutex_unlock(&w->lock);
    }
    for (int i = 0; threads && i < w->size; i++)
        if (threads[i].started) pthread_join(threads[i].thread, NULL);
    if (threads) status = tell_first(ctx, threads, w);
    free(threads);
    ht_thread_ranks_free(w);
    return status;
}
