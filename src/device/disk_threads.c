/* The engine for systems that refuse io_uring, as containers do: threads, each with one pread or pwrite at a time. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "device/disk_own.h"

typedef struct threads_engine {
    disk_engine base;
    int depth, started;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t came, finished;
    /* Under the lock, rings of `depth`: */
    disk_request **waiting, **done;
    size_t waiting_first, waiting_count, done_first, done_count;
    bool stop;
} threads_engine;

static void push(const threads_engine *e, disk_request **ring, size_t first, size_t *count, disk_request *request)
{
    ring[(first + (*count)++) % (size_t)e->depth] = request;
}

static disk_request *pop(const threads_engine *e, disk_request *const *ring, size_t *first, size_t *count)
{
    disk_request *request = ring[*first];
    *first = (*first + 1) % (size_t)e->depth;
    --*count;
    return request;
}

static void perform(disk_request *r)
{
    ssize_t moved;
    do moved = r->write ? pwrite(r->file, r->data, r->bytes, r->offset) : pread(r->file, r->data, r->bytes, r->offset);
    while (moved < 0 && errno == EINTR);
    r->result = moved < 0 ? -errno : moved;
}

static void *serve(void *arg)
{
    threads_engine *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->stop || e->waiting_count) {
        if (!e->waiting_count) {
            pthread_cond_wait(&e->came, &e->lock);
            continue;
        }
        disk_request *request = pop(e, e->waiting, &e->waiting_first, &e->waiting_count);
        pthread_mutex_unlock(&e->lock);
        perform(request);
        pthread_mutex_lock(&e->lock);
        push(e, e->done, e->done_first, &e->done_count, request);
        pthread_cond_signal(&e->finished);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

static void threads_close(disk_engine *engine)
{
    threads_engine *e = (threads_engine *)engine;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->came);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->started; i++) pthread_join(e->threads[i], NULL);
    pthread_cond_destroy(&e->finished);
    pthread_cond_destroy(&e->came);
    pthread_mutex_destroy(&e->lock);
    free(e->threads);
    free(e->waiting);
    free(e->done);
    free(e);
}

/* One thread is enough to go on; fewer than asked for are fewer requests at once. */
static int threads_open(disk_engine **out, int depth)
{
    threads_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return ENOMEM;
    e->base.class = &ht_disk_threads;
    e->depth = depth;
    e->threads = calloc((size_t)depth, sizeof *e->threads);
    e->waiting = calloc((size_t)depth, sizeof(disk_request *));
    e->done = calloc((size_t)depth, sizeof(disk_request *));
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->came, NULL);
    pthread_cond_init(&e->finished, NULL);
    bool ok = e->threads && e->waiting && e->done;
    while (ok && e->started < depth && pthread_create(&e->threads[e->started], NULL, serve, e) == 0) e->started++;
    if (!ok || !e->started) {
        threads_close(&e->base);
        return ok ? EAGAIN : ENOMEM;
    }
    *out = &e->base;
    return 0;
}

static bool threads_add_buffers(disk_engine *engine, char *memory, int count, size_t bytes)
{
    (void)engine;
    (void)memory;
    (void)count;
    (void)bytes;
    return false;
}

static void threads_submit(disk_engine *engine, disk_request *request, bool at_once)
{
    threads_engine *e = (threads_engine *)engine;
    (void)at_once;
    pthread_mutex_lock(&e->lock);
    push(e, e->waiting, e->waiting_first, &e->waiting_count, request);
    pthread_cond_signal(&e->came);
    pthread_mutex_unlock(&e->lock);
}

static disk_request *threads_reap(disk_engine *engine)
{
    threads_engine *e = (threads_engine *)engine;
    pthread_mutex_lock(&e->lock);
    while (!e->done_count) pthread_cond_wait(&e->finished, &e->lock);
    disk_request *request = pop(e, e->done, &e->done_first, &e->done_count);
    pthread_mutex_unlock(&e->lock);
    return request;
}

const disk_engine_class ht_disk_threads = {
    .name = "threads",
    .open = threads_open,
    .close = threads_close,
    .add_buffers = threads_add_buffers,
    .submit = threads_submit,
    .reap = threads_reap,
};
