/* The thread pool. The caller opens a job, works on it, closes it, and waits for the workers that are inside. It never
 * waits for a worker that has not arrived yet, so a sleeping worker, or one without a core, delays nothing.
 *
 * `epoch` is the whole state: odd while a job is open, even between jobs, and EPOCH_STOP at the end. A worker announces
 * itself in `inside` before it reads the epoch, the caller changes the epoch before it reads `inside`; with both in the
 * single order of sequential consistency, either the worker sees that the job is closed and leaves, or the caller sees
 * the worker and waits. The same argument with `asleep` in the place of `inside` shows that no wake-up is lost. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#define EPOCH_STOP   UINT64_MAX
#define SPIN_NANOS   100000
#define YIELD_NANOS  300000
#define LINE_BYTES   64
#define MOST_THREADS 4096

struct ht_pool {
    /* Fields that are polled and fields that are written are in separate cache lines, against false sharing. */
    _Alignas(LINE_BYTES) _Atomic uint64_t epoch;
    ht_tile_fn fn;
    void *arg;
    int64_t tiles;
    _Alignas(LINE_BYTES) _Atomic int64_t next;
    _Alignas(LINE_BYTES) _Atomic int inside;
    _Alignas(LINE_BYTES) _Atomic int asleep;
    int threads; /* with the caller */
    int started; /* workers that exist */
    pthread_t *workers;
    pthread_mutex_t lock;
    pthread_cond_t opened;
};

static _Thread_local bool inside_tile;

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t nanos_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static bool is_news(uint64_t epoch, uint64_t seen)
{
    return (epoch & 1) != 0 && epoch != seen; /* EPOCH_STOP is odd */
}

static void run_tiles(ht_pool *pool)
{
    ht_tile_fn fn = pool->fn;
    void *arg = pool->arg;
    int64_t tiles = pool->tiles;
    inside_tile = true;
    for (;;) {
        int64_t tile = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (tile >= tiles) break;
        fn(arg, tile);
    }
    inside_tile = false;
}

static uint64_t sleep_for_news(ht_pool *pool, uint64_t seen)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_add(&pool->asleep, 1);
    uint64_t epoch;
    while (!is_news(epoch = atomic_load(&pool->epoch), seen)) pthread_cond_wait(&pool->opened, &pool->lock);
    atomic_fetch_sub(&pool->asleep, 1);
    pthread_mutex_unlock(&pool->lock);
    return epoch;
}

/* Waits for the epoch of a new job, or the end. Between two steps the caller makes a batch and writes its records,
 * which takes longer than a spin should; but waking a sleeper takes about as long again, so a worker stays awake for a
 * while and yields its core. */
static uint64_t wait_for_news(ht_pool *pool, uint64_t seen)
{
    int64_t since = 0;
    for (unsigned turn = 0;; turn++) {
        uint64_t epoch = atomic_load_explicit(&pool->epoch, memory_order_acquire);
        if (is_news(epoch, seen)) return epoch;
        relax();
        if (turn % 64 != 63) continue;
        int64_t now = nanos_now();
        if (since == 0) since = now;
        if (now - since >= YIELD_NANOS) return sleep_for_news(pool, seen);
        if (now - since >= SPIN_NANOS) sched_yield();
    }
}

static void *worker_main(void *arg)
{
    ht_pool *pool = arg;
    uint64_t seen = 0;
    for (;;) {
        if (wait_for_news(pool, seen) == EPOCH_STOP) return NULL;
        atomic_fetch_add(&pool->inside, 1);
        uint64_t epoch = atomic_load(&pool->epoch); /* again: the job may have been closed since */
        if (is_news(epoch, seen) && epoch != EPOCH_STOP) {
            run_tiles(pool);
            seen = epoch;
        }
        atomic_fetch_sub_explicit(&pool->inside, 1, memory_order_release);
    }
}

static void wake(ht_pool *pool, int64_t wanted)
{
    int sleeping = atomic_load(&pool->asleep);
    if (sleeping == 0) return;
    pthread_mutex_lock(&pool->lock);
    if (wanted >= sleeping)
        pthread_cond_broadcast(&pool->opened);
    else
        for (int64_t i = 0; i < wanted; i++) pthread_cond_signal(&pool->opened);
    pthread_mutex_unlock(&pool->lock);
}

/* A worker inside may have been preempted; spinning would only keep it from running. */
static void wait_until_empty(ht_pool *pool)
{
    for (unsigned turn = 0; atomic_load(&pool->inside) != 0; turn++) {
        if (turn < 2000)
            relax();
        else
            sched_yield();
    }
}

void ht_parallel(ht_pool *pool, int64_t tiles, ht_tile_fn fn, void *arg)
{
    if (tiles == 1 || pool == NULL || pool->threads == 1 || inside_tile) {
        for (int64_t tile = 0; tile < tiles; tile++) fn(arg, tile);
        return;
    }
    if (tiles <= 0) return;
    pool->fn = fn;
    pool->arg = arg;
    pool->tiles = tiles;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    uint64_t closed = atomic_load_explicit(&pool->epoch, memory_order_relaxed);
    atomic_store(&pool->epoch, closed + 1);
    wake(pool, tiles - 1);
    run_tiles(pool);
    atomic_store(&pool->epoch, closed + 2);
    wait_until_empty(pool);
}

static void stop_workers(ht_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->epoch, EPOCH_STOP);
    pthread_cond_broadcast(&pool->opened);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->started; i++) pthread_join(pool->workers[i], NULL);
}

void ht_pool_free(ht_pool *pool)
{
    if (pool == NULL) return;
    stop_workers(pool);
    pthread_cond_destroy(&pool->opened);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}

/* Signals belong to the threads of the program: workers start with all of them blocked. */
static bool start_workers(ht_pool *pool)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return false;
    while (pool->started < pool->threads - 1) {
        if (pthread_create(&pool->workers[pool->started], NULL, worker_main, pool) != 0) break;
        pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pool->started == pool->threads - 1;
}

ht_pool *ht_pool_create(int threads)
{
    if (threads < 1) threads = 1;
    if (threads > MOST_THREADS) return NULL;
    ht_pool *pool = aligned_alloc(LINE_BYTES, sizeof *pool);
    if (pool == NULL) return NULL;
    *pool = (ht_pool){.threads = threads};
    pool->workers = calloc((size_t)threads, sizeof *pool->workers);
    if (pool->workers == NULL) {
        free(pool);
        return NULL;
    }
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->opened, NULL);
    if (!start_workers(pool)) {
        ht_pool_free(pool);
        return NULL;
    }
    return pool;
}

int ht_pool_threads(const ht_pool *pool)
{
    return pool != NULL ? pool->threads : 1;
}
