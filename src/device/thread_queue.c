#include "device/thread_queue.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { COMMANDS = 1024 }; /* that wait in a queue at most; the caller of one more waits, too */

/* ---- events ---- */

/* Counts: an event may be recorded again before everyone has waited for the last time. */
typedef struct thread_event {
    ht_event base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t submitted, done;
} thread_event;

ht_status ht_thread_event_create(ht_device *device, ht_event **out)
{
    thread_event *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for an event");
    e->base.device = device;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    *out = &e->base;
    return HT_OK;
}

void ht_thread_event_free(ht_event *event)
{
    thread_event *e = (thread_event *)event;
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

static uint64_t submit_event(thread_event *e)
{
    pthread_mutex_lock(&e->lock);
    uint64_t number = ++e->submitted;
    pthread_mutex_unlock(&e->lock);
    return number;
}

static uint64_t last_submitted(thread_event *e)
{
    pthread_mutex_lock(&e->lock);
    uint64_t number = e->submitted;
    pthread_mutex_unlock(&e->lock);
    return number;
}

static void finish_event(thread_event *e, uint64_t number)
{
    pthread_mutex_lock(&e->lock);
    e->done = number;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static bool has_come(thread_event *e, uint64_t number)
{
    pthread_mutex_lock(&e->lock);
    bool come = e->done >= number;
    pthread_mutex_unlock(&e->lock);
    return come;
}

static void await_event(thread_event *e, uint64_t number)
{
    pthread_mutex_lock(&e->lock);
    while (e->done < number) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

void ht_thread_event_set(ht_event *event)
{
    thread_event *e = (thread_event *)event;
    finish_event(e, submit_event(e));
}

ht_status ht_thread_event_sync(ht_event *event)
{
    thread_event *e = (thread_event *)event;
    await_event(e, last_submitted(e));
    return HT_OK;
}

bool ht_thread_event_done(ht_event *event)
{
    thread_event *e = (thread_event *)event;
    pthread_mutex_lock(&e->lock);
    bool done = e->done == e->submitted;
    pthread_mutex_unlock(&e->lock);
    return done;
}

/* ---- queues ---- */

typedef enum command_kind { LAUNCH, COPY, RECORD, WAIT, WAIT_FOREIGN, CALL } command_kind;

typedef struct command {
    command_kind kind;
    union {
        struct {
            ht_run_fn run;
            ht_launch launch;
            const ht_launch *block; /* in place of it: the first launch of a row block */
        } launch;
        struct {
            void *to;
            const void *from;
            size_t bytes;
        } copy;
        struct {
            thread_event *event;
            uint64_t number;
        } event;
        ht_event *foreign; /* of a device whose events are of another kind */
        struct {
            void (*fn)(void *arg);
            void *arg;
        } call;
    };
} command;

typedef struct thread_queue {
    ht_queue base;
    ht_thread_queue_hooks hooks;
    ht_pool *pool;       /* made when it is first needed; of the thread */
    ht_context messages; /* the device's context belongs to its caller's thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t came, went;
    /* Under the lock: */
    uint64_t submitted, done;
    bool stop;
    ht_status status; /* of the first command that failed; its reason is in `messages` */
    command commands[COMMANDS];
} thread_queue;

static ht_status run_command(thread_queue *q, const command *c)
{
    static const ht_command_kind kinds[] = {
        [LAUNCH] = HT_COMMAND_LAUNCH, [COPY] = HT_COMMAND_COPY,          [RECORD] = HT_COMMAND_OTHER,
        [WAIT] = HT_COMMAND_OTHER,    [WAIT_FOREIGN] = HT_COMMAND_OTHER, [CALL] = HT_COMMAND_OTHER,
    };
    if (q->hooks.before) HT_TRY(q->hooks.before(q->base.device, &q->messages, kinds[c->kind]));
    if (c->kind == LAUNCH) return c->launch.run(c->launch.block ? c->launch.block : &c->launch.launch);
    if (c->kind == COPY && q->hooks.copy)
        return q->hooks.copy(q->hooks.copy_arg, &q->messages, c->copy.to, c->copy.from, c->copy.bytes);
    if (c->kind == COPY) memcpy(c->copy.to, c->copy.from, c->copy.bytes);
    if (c->kind == CALL) c->call.fn(c->call.arg);
    return HT_OK;
}

/* What a device of another kind failed in is told by its own queue. */
static void await(const command *c)
{
    if (c->kind == WAIT) await_event(c->event.event, c->event.number);
    if (c->kind == WAIT_FOREIGN) (void)c->foreign->device->class->event_sync(c->foreign);
}

/* Events come to pass in a queue that has failed, too: others wait for them. */
static void *serve(void *arg)
{
    thread_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    while (!q->stop || q->done < q->submitted) {
        if (q->done == q->submitted) {
            pthread_cond_wait(&q->came, &q->lock);
            continue;
        }
        command c = q->commands[q->done % COMMANDS];
        ht_status status = q->status;
        pthread_mutex_unlock(&q->lock);
        if (status == HT_OK) status = run_command(q, &c);
        await(&c);
        if (c.kind == RECORD) finish_event(c.event.event, c.event.number);
        pthread_mutex_lock(&q->lock);
        q->status = status;
        q->done++;
        pthread_cond_broadcast(&q->went);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

ht_status ht_thread_queue_create(ht_device *device, const ht_thread_queue_hooks *hooks, ht_queue **out)
{
    thread_queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for a queue");
    q->base.device = device;
    q->hooks = *hooks;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->came, NULL);
    pthread_cond_init(&q->went, NULL);
    if (pthread_create(&q->thread, NULL, serve, q) != 0) {
        free(q);
        HT_FAIL(device->ctx, HT_ENOMEM, "no thread can be had for a queue of the device %s", device->class->name);
    }
    *out = &q->base;
    return HT_OK;
}

void ht_thread_queue_free(ht_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->came);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    ht_pool_free(q->pool);
    pthread_cond_destroy(&q->went);
    pthread_cond_destroy(&q->came);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

ht_pool *ht_thread_queue_pool(ht_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    if (!q->pool) q->pool = ht_pool_create(ht_pool_threads(queue->device->ctx->pool));
    return q->pool;
}

void *ht_thread_queue_copy_arg(const ht_queue *queue)
{
    return ((const thread_queue *)queue)->hooks.copy_arg;
}

bool ht_thread_queue_next_copy(ht_queue *queue, ht_next_copy *next)
{
    thread_queue *q = (thread_queue *)queue;
    bool found = false, passes = true;
    pthread_mutex_lock(&q->lock);
    for (uint64_t i = q->done + 1; i < q->submitted && passes && !found; i++) {
        const command *c = &q->commands[i % COMMANDS];
        found = c->kind == COPY;
        if (found) *next = (ht_next_copy){c->copy.to, c->copy.from, c->copy.bytes};
        passes = c->kind == RECORD || (c->kind == WAIT && has_come(c->event.event, c->event.number));
    }
    pthread_mutex_unlock(&q->lock);
    return found;
}

ht_context *ht_thread_queue_messages(ht_queue *queue)
{
    return &((thread_queue *)queue)->messages;
}

/* Under the lock. */
static ht_status tell_failure(thread_queue *q)
{
    if (q->status == HT_OK) return HT_OK;
    return ht_fail(q->base.device->ctx, q->status, "%s", q->messages.message);
}

static ht_status submit(ht_queue *queue, const command *c)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    while (q->submitted - q->done == COMMANDS) pthread_cond_wait(&q->went, &q->lock);
    ht_status status = tell_failure(q);
    if (status == HT_OK || c->kind == RECORD) {
        q->commands[q->submitted++ % COMMANDS] = *c;
        pthread_cond_signal(&q->came);
    }
    pthread_mutex_unlock(&q->lock);
    return status;
}

ht_status ht_thread_queue_launch(ht_queue *queue, ht_run_fn run, const ht_launch *launch)
{
    command c = {.kind = LAUNCH, .launch = {run, *launch, launch->block ? launch : NULL}};
    return submit(queue, &c);
}

ht_status ht_thread_queue_copy(ht_queue *queue, void *to, const void *from, size_t bytes)
{
    command c = {.kind = COPY, .copy = {to, from, bytes}};
    return submit(queue, &c);
}

ht_status ht_thread_queue_record(ht_queue *queue, ht_event *event)
{
    thread_event *e = (thread_event *)event;
    command c = {.kind = RECORD, .event = {e, submit_event(e)}};
    return submit(queue, &c);
}

ht_status ht_thread_queue_wait(ht_queue *queue, ht_event *event)
{
    command c = {.kind = WAIT_FOREIGN, .foreign = event};
    if (event->device->class->event_sync == ht_thread_event_sync) {
        thread_event *e = (thread_event *)event;
        c = (command){.kind = WAIT, .event = {e, last_submitted(e)}};
    }
    return submit(queue, &c);
}

ht_status ht_thread_queue_call(ht_queue *queue, void (*fn)(void *arg), void *arg)
{
    command c = {.kind = CALL, .call = {fn, arg}};
    return submit(queue, &c);
}

ht_status ht_thread_queue_sync(ht_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    while (q->done < q->submitted) pthread_cond_wait(&q->went, &q->lock);
    ht_status status = tell_failure(q);
    pthread_mutex_unlock(&q->lock);
    return status;
}

ht_status ht_thread_queue_status(ht_queue *queue)
{
    thread_queue *q = (thread_queue *)queue;
    pthread_mutex_lock(&q->lock);
    ht_status status = tell_failure(q);
    pthread_mutex_unlock(&q->lock);
    return status;
}
