/* Worlds, groups, and the order of their calls. A group's calls wait in a queue; whoever waits for one runs those
 * before it, unless the group's thread is at it, which non-blocking calls start. So a blocking call costs no change of
 * threads. */
#include "comm/comm_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

const char *const ht_comm_kind_names[HT_COMM_KIND_COUNT] = {
    [HT_COMM_BARRIER] = "barrier",
    [HT_COMM_BROADCAST] = "broadcast",
    [HT_COMM_ALL_REDUCE] = "all_reduce",
    [HT_COMM_ALL_GATHER] = "all_gather",
    [HT_COMM_REDUCE_SCATTER] = "reduce_scatter",
    [HT_COMM_ALL_TO_ALL] = "all_to_all",
    [HT_COMM_SEND] = "send",
    [HT_COMM_RECV] = "recv",
};

int ht_comm_rank(const ht_comm *comm)
{
    return comm ? comm->rank : 0;
}

int ht_comm_size(const ht_comm *comm)
{
    return comm ? comm->size : 1;
}

const char *ht_comm_name(const ht_comm *comm)
{
    return comm->name;
}

int ht_comm_world_rank(const ht_comm *comm, int rank)
{
    return comm->ranks[rank];
}

uint64_t ht_comm_number(const ht_comm *comm)
{
    return comm->number;
}

const char *ht_comm_transport(const ht_comm *comm)
{
    return comm->transport->class->name;
}

/* ---- the queue of calls ---- */

static void describe(const ht_comm *c, const ht_comm_call *call, char text[HT_CALL_TEXT])
{
    int length =
        snprintf(text, HT_CALL_TEXT, "%s %lld of %s", ht_comm_kind_names[call->kind], (long long)c->calls, c->name);
    if (call->site && length > 0 && length < HT_CALL_TEXT)
        snprintf(text + length, HT_CALL_TEXT - (size_t)length, " at %s", call->site);
}

static double clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

ht_comm_traffic ht_comm_traffic_of(ht_comm *c)
{
    pthread_mutex_lock(&c->lock);
    ht_comm_traffic traffic = c->traffic;
    pthread_mutex_unlock(&c->lock);
    return traffic;
}

/* Runs the first call of the queue, which the lock is left for. */
static void run_first(ht_comm *c)
{
    ht_comm_request *request = c->first;
    char text[HT_CALL_TEXT];
    ht_status status = c->status;
    c->busy = true;
    c->calls++;
    describe(c, &request->call, text);
    pthread_mutex_unlock(&c->lock);
    double begin = clock_seconds();
    if (status == HT_OK) status = ht_collective_run(c, &request->call, text);
    double seconds = clock_seconds() - begin;
    pthread_mutex_lock(&c->lock);
    c->traffic.seconds += seconds;
    c->traffic.bytes = c->sent;
    c->status = status;
    c->busy = false;
    c->first = request->next;
    request->done = true;
    pthread_cond_broadcast(&c->changed);
}

static void *serve(void *arg)
{
    ht_comm *c = arg;
    pthread_mutex_lock(&c->lock);
    while (!c->stop || c->first) {
        if (c->first && !c->busy)
            run_first(c);
        else
            pthread_cond_wait(&c->changed, &c->lock);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static bool takes_peer(ht_comm_kind kind)
{
    return kind == HT_COMM_BROADCAST || kind == HT_COMM_SEND || kind == HT_COMM_RECV;
}

static bool reduces(ht_comm_kind kind)
{
    return kind == HT_COMM_ALL_REDUCE || kind == HT_COMM_REDUCE_SCATTER;
}

static ht_status check(const ht_comm *c, ht_context *ctx, const ht_comm_call *call)
{
    if ((unsigned)call->kind >= HT_COMM_KIND_COUNT) HT_FAIL(ctx, HT_EINVAL, "%d is no kind of call", (int)call->kind);
    const char *name = ht_comm_kind_names[call->kind];
    if (call->elems < 0) HT_FAIL(ctx, HT_EINVAL, "%s: %lld elements", name, (long long)call->elems);
    if (takes_peer(call->kind) && (call->peer < 0 || call->peer >= c->size))
        HT_FAIL(ctx, HT_EINVAL, "%s: the group %s has no rank %d, only 0 to %d", name, c->name, call->peer,
                c->size - 1);
    if ((call->kind == HT_COMM_SEND || call->kind == HT_COMM_RECV) && call->peer == c->rank)
        HT_FAIL(ctx, HT_EINVAL, "%s: rank %d of %s cannot be its own peer", name, c->rank, c->name);
    const char *refusal = reduces(call->kind) ? ht_comm_reduction_refusal(call->reduction, call->dtype) : NULL;
    if (refusal) HT_FAIL(ctx, HT_EDTYPE, "%s of %s: %s", name, ht_dtype_name(call->dtype), refusal);
    return HT_OK;
}

/* Under the lock. */
static void enqueue(ht_comm *c, const ht_comm_call *call, ht_comm_request *request)
{
    *request = (ht_comm_request){.comm = c, .call = *call};
    if (c->first)
        c->last->next = request;
    else
        c->first = request;
    c->last = request;
    pthread_cond_broadcast(&c->changed);
}

ht_status ht_comm_start(ht_comm *c, ht_context *ctx, const ht_comm_call *call, ht_comm_request *request)
{
    HT_TRY(check(c, ctx, call));
    pthread_mutex_lock(&c->lock);
    if (!c->has_thread) c->has_thread = pthread_create(&c->thread, NULL, serve, c) == 0;
    bool ready = c->has_thread;
    if (ready) enqueue(c, call, request);
    pthread_mutex_unlock(&c->lock);
    if (!ready) HT_FAIL(ctx, HT_ENOMEM, "no thread can be had for the calls of %s", c->name);
    return HT_OK;
}

bool ht_comm_test(ht_comm_request *request)
{
    pthread_mutex_lock(&request->comm->lock);
    bool done = request->done;
    pthread_mutex_unlock(&request->comm->lock);
    return done;
}

/* Under the lock. */
static ht_status finish(ht_comm *c, const ht_comm_request *request, ht_context *ctx)
{
    while (!request->done) {
        if (c->first && !c->busy)
            run_first(c);
        else
            pthread_cond_wait(&c->changed, &c->lock);
    }
    return c->status == HT_OK ? HT_OK : ht_fail(ctx, c->status, "%s", c->reason.message);
}

ht_status ht_comm_wait(ht_comm_request *request, ht_context *ctx)
{
    ht_comm *c = request->comm;
    pthread_mutex_lock(&c->lock);
    ht_status status = finish(c, request, ctx);
    pthread_mutex_unlock(&c->lock);
    return status;
}

ht_status ht_comm_run(ht_comm *c, ht_context *ctx, const ht_comm_call *call)
{
    ht_comm_request request;
    HT_TRY(check(c, ctx, call));
    pthread_mutex_lock(&c->lock);
    enqueue(c, call, &request);
    ht_status status = finish(c, &request, ctx);
    pthread_mutex_unlock(&c->lock);
    return status;
}

ht_status ht_comm_barrier(ht_comm *comm, ht_context *ctx)
{
    return ht_comm_run(comm, ctx, &(ht_comm_call){.kind = HT_COMM_BARRIER, .dtype = HT_U8});
}

/* ---- worlds and groups ---- */

static void free_group(ht_comm *c)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (c->has_thread) pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c->ranks);
    free(c->messages);
    free(c->counts);
    free(c->scratch);
    free(c);
}

static ht_comm *new_group(ht_transport *transport, const char *name, int size)
{
    static _Atomic uint64_t groups;
    ht_comm *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->transport = transport;
    c->size = size;
    c->number = ++groups;
    snprintf(c->name, sizeof c->name, "%s", name);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->ranks = calloc((size_t)size, sizeof *c->ranks);
    c->messages = calloc((size_t)size * 2, sizeof *c->messages);
    c->counts = calloc((size_t)size, sizeof *c->counts);
    if (c->ranks && c->messages && c->counts) return c;
    free_group(c);
    return NULL;
}

ht_status ht_comm_create_world(ht_comm **out, ht_context *ctx, ht_transport *transport)
{
    ht_comm *c = *out = new_group(transport, "world", transport->size);
    if (!c) {
        transport->class->close(transport, true);
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for a world of ranks");
    }
    c->rank = transport->rank;
    for (int i = 0; i < c->size; i++) c->ranks[i] = i;
    return HT_OK;
}

static ht_status check_group(ht_comm *world, ht_context *ctx, const char *name, const int *ranks, int count)
{
    bool here = false;
    if (!name[0] || strlen(name) >= HT_COMM_NAME) HT_FAIL(ctx, HT_EINVAL, "'%s' cannot be a group's name", name);
    if (ht_comm_find_group(world, name)) HT_FAIL(ctx, HT_EINVAL, "there is a group '%s' already", name);
    for (int i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= world->size)
            HT_FAIL(ctx, HT_EINVAL, "group '%s': the world has no rank %d, only 0 to %d", name, ranks[i],
                    world->size - 1);
        for (int k = 0; k < i; k++)
            if (ranks[k] == ranks[i]) HT_FAIL(ctx, HT_EINVAL, "group '%s': rank %d is there twice", name, ranks[i]);
        here |= ranks[i] == world->rank;
    }
    if (!here) HT_FAIL(ctx, HT_EINVAL, "group '%s': rank %d, which adds it, is not in it", name, world->rank);
    return HT_OK;
}

ht_status ht_comm_add_group(ht_comm **out, ht_comm *world, ht_context *ctx, const char *name, const int *ranks,
                            int count)
{
    *out = NULL;
    HT_TRY(check_group(world, ctx, name, ranks, count));
    ht_comm *c = new_group(world->transport, name, count);
    if (!c) HT_FAIL(ctx, HT_ENOMEM, "out of memory for the group '%s'", name);
    for (int i = 0; i < count; i++) {
        c->ranks[i] = ranks[i];
        if (ranks[i] == world->rank) c->rank = i;
    }
    c->channel = ++world->groups;
    c->next = world->next;
    world->next = c;
    *out = c;
    return HT_OK;
}

ht_comm *ht_comm_find_group(ht_comm *world, const char *name)
{
    for (ht_comm *c = world; c; c = c->next)
        if (strcmp(c->name, name) == 0) return c;
    return NULL;
}

void ht_comm_free(ht_comm *world)
{
    if (!world) return;
    ht_transport *transport = world->transport;
    bool failed = false;
    for (ht_comm *c = world, *next; c; c = next) {
        next = c->next;
        failed |= c->status != HT_OK;
        free_group(c);
    }
    transport->class->close(transport, failed);
}

void ht_comm_watch_stop(ht_comm *comm, const atomic_int *stop, double seconds)
{
    comm->transport->stop_s = seconds;
    comm->transport->stop = stop;
}

ht_status ht_comm_check_wait(const ht_comm *comm, ht_context *ctx, const char *what, double waited_s)
{
    ht_transport *t = comm->transport;
    double stop_s;
    bool stopping = ht_transport_stopping(t, &stop_s) && stop_s < t->timeout_s;
    double most = stopping ? stop_s : t->timeout_s;
    if (t->class->check) HT_TRY(t->class->check(t, ctx, what));
    if (!(most > 0) || waited_s <= most) return HT_OK;
    HT_FAIL(ctx, HT_ERANK, "%s %g s in %s: another rank does not answer",
            stopping ? "asked to stop, waited" : "timeout after", most, what);
}

void ht_comm_abort(ht_comm *comm, const char *reason)
{
    comm->transport->class->end_all(comm->transport, reason);
}
