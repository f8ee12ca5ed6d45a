/* libnccl.so.2 for machines without GPUs: collectives between threads of one process, at once, over memory that they all
 * see. Sums are made in the order of ranks; those of half types in f32. A call that the other ranks do not make, or make
 * with other sizes, is a failure after some seconds, not a deadlock. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/half.h"

typedef struct nccl_id {
    char bytes[128];
} nccl_id;
#define HT_NCCL(name, parameters) __attribute__((visibility("default"))) int name parameters;
#include "kernel/move/nccl.def"
__attribute__((visibility("default"))) const char *ncclGetErrorString(int result);
__attribute__((visibility("default"))) const char *ncclGetLastError(void *comm);

enum {
    MOST_RANKS = 16,
    MOST_GROUPED = 64,
    INVALID_ARGUMENT = 4,
    INVALID_USAGE = 5,
    REMOTE_ERROR = 6,
    PATIENCE_SECONDS = 60
};

typedef struct post {
    const void *in;
    size_t bytes;
    int kind;
} post;

/* The ranks that came with one id. */
typedef struct world {
    struct world *next;
    nccl_id id;
    int ranks, joined, left;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int waiting;
    uint64_t meetings;
    bool broken;
    post posts[MOST_RANKS];
    const void *sent[MOST_RANKS][MOST_RANKS]; /* by sender and receiver; NULL: nothing is under way */
    size_t sent_bytes[MOST_RANKS][MOST_RANKS];
} world;

typedef struct rank {
    world *world;
    int rank;
} rank;

static pthread_mutex_t worlds_lock = PTHREAD_MUTEX_INITIALIZER;
static world *worlds;

const char *ncclGetErrorString(int result)
{
    return result == REMOTE_ERROR ? "a rank did not come" : "invalid use";
}

const char *ncclGetLastError(void *comm)
{
    (void)comm;
    return "";
}

/* ---- meeting ---- */

static struct timespec deadline(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_SECONDS;
    return until;
}

/* Under the lock, until all ranks are here. */
static int meet(world *w)
{
    struct timespec until = deadline();
    uint64_t meeting = w->meetings;
    if (++w->waiting == w->ranks) {
        w->waiting = 0;
        w->meetings++;
        pthread_cond_broadcast(&w->changed);
        return 0;
    }
    while (w->meetings == meeting && !w->broken)
        if (pthread_cond_timedwait(&w->changed, &w->lock, &until)) w->broken = true;
    pthread_cond_broadcast(&w->changed);
    return w->broken ? REMOTE_ERROR : 0;
}

int ncclGetUniqueId(nccl_id *id)
{
    static int drawn;
    pthread_mutex_lock(&worlds_lock);
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "world %d", ++drawn);
    pthread_mutex_unlock(&worlds_lock);
    return 0;
}

static world *world_of(const nccl_id *id, int ranks)
{
    world *w = worlds;
    while (w && memcmp(&w->id, id, sizeof *id) != 0) w = w->next;
    if (w) return w;
    w = calloc(1, sizeof *w);
    if (!w) return NULL;
    *w = (world){.next = worlds, .id = *id, .ranks = ranks};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    return worlds = w;
}

int ncclCommInitRank(void **comm, int ranks, nccl_id id, int number)
{
    if (ranks < 1 || ranks > MOST_RANKS || number < 0 || number >= ranks) return INVALID_ARGUMENT;
    pthread_mutex_lock(&worlds_lock);
    world *w = world_of(&id, ranks);
    pthread_mutex_unlock(&worlds_lock);
    rank *r = malloc(sizeof *r);
    if (!w || !r || w->ranks != ranks) {
        free(r);
        return INVALID_ARGUMENT;
    }
    *r = (rank){w, number};
    *comm = r;
    pthread_mutex_lock(&w->lock);
    int result = meet(w);
    pthread_mutex_unlock(&w->lock);
    return result;
}

static void forget(world *w)
{
    for (world **at = &worlds; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            break;
        }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

int ncclCommDestroy(void *comm)
{
    rank *r = comm;
    pthread_mutex_lock(&worlds_lock);
    if (++r->world->left == r->world->ranks) forget(r->world);
    pthread_mutex_unlock(&worlds_lock);
    free(r);
    return 0;
}

/* ---- what ranks exchange ---- */

enum { ALL_REDUCE = 1, ALL_GATHER, REDUCE_SCATTER, BROADCAST };
enum { SUM = 0, MAX = 2, MIN = 3 };

static size_t size_of(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return type >= 0 && type < (int)(sizeof sizes / sizeof sizes[0]) ? sizes[type] : 0;
}

static double element(const void *data, int type, size_t i)
{
    switch (type) {
    case 2: return ((const int32_t *)data)[i];
    case 4: return (double)((const int64_t *)data)[i];
    case 6: return ht_f16_to_f32(((const ht_f16 *)data)[i]);
    case 7: return ((const float *)data)[i];
    case 8: return ((const double *)data)[i];
    case 9: return ht_bf16_to_f32(((const ht_bf16 *)data)[i]);
    default: return ((const uint8_t *)data)[i];
    }
}

static void put(void *data, int type, size_t i, double value)
{
    switch (type) {
    case 2: ((int32_t *)data)[i] = (int32_t)value; break;
    case 4: ((int64_t *)data)[i] = (int64_t)value; break;
    case 6: ((ht_f16 *)data)[i] = ht_f16_from_f32((float)value); break;
    case 7: ((float *)data)[i] = (float)value; break;
    case 8: ((double *)data)[i] = value; break;
    case 9: ((ht_bf16 *)data)[i] = ht_bf16_from_f32((float)value); break;
    default: ((uint8_t *)data)[i] = (uint8_t)value;
    }
}

static double combine(double a, double b, int type, int reduction)
{
    if (reduction == MAX) return b > a || b != b ? b : a;
    if (reduction == MIN) return b < a || b != b ? b : a;
    return type == 8 || type == 4 || type == 2 ? a + b : (double)((float)a + (float)b);
}

static void reduce(const world *w, void *out, size_t first, size_t count, int type, int reduction)
{
    for (size_t i = 0; i < count; i++) {
        double sum = element(w->posts[0].in, type, first + i);
        for (int k = 1; k < w->ranks; k++)
            sum = combine(sum, element(w->posts[k].in, type, first + i), type, reduction);
        put(out, type, i, sum);
    }
}

/* Every rank shows what it has; then `make` builds this rank's result elsewhere, since it may lie over an operand. */
static int exchange(const rank *r, post mine, void *out, size_t out_bytes,
                    void (*make)(const world *w, void *out, const int *arg), const int *arg)
{
    world *w = r->world;
    void *made = malloc(out_bytes + 1);
    if (!made) return INVALID_USAGE;
    pthread_mutex_lock(&w->lock);
    w->posts[r->rank] = mine;
    int result = meet(w);
    for (int i = 0; i < w->ranks && !result; i++)
        if (w->posts[i].kind != mine.kind || w->posts[i].bytes != mine.bytes) result = INVALID_USAGE;
    pthread_mutex_unlock(&w->lock);
    if (!result) make(w, made, arg);
    pthread_mutex_lock(&w->lock);
    int end = meet(w); /* all have read */
    pthread_mutex_unlock(&w->lock);
    if (!result && !end) memcpy(out, made, out_bytes);
    free(made);
    return result ? result : end;
}

/* arg: type, reduction, rank whose part it is, parts. */
static void make_sum(const world *w, void *out, const int *arg)
{
    size_t count = w->posts[0].bytes / size_of(arg[0]) / (size_t)arg[3];
    reduce(w, out, count * (size_t)arg[2], count, arg[0], arg[1]);
}

static void make_all(const world *w, void *out, const int *arg)
{
    (void)arg;
    for (int i = 0; i < w->ranks; i++)
        memcpy((char *)out + (size_t)i * w->posts[i].bytes, w->posts[i].in, w->posts[i].bytes);
}

static void make_root(const world *w, void *out, const int *arg)
{
    memcpy(out, w->posts[arg[0]].in, w->posts[arg[0]].bytes);
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int reduction, void *comm, void *stream)
{
    (void)stream;
    size_t bytes = count * size_of(type);
    return exchange(comm, (post){in, bytes, ALL_REDUCE}, out, bytes, make_sum, (int[]){type, reduction, 0, 1});
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int reduction, void *comm, void *stream)
{
    (void)stream;
    const rank *r = comm;
    size_t bytes = count * size_of(type);
    return exchange(r, (post){in, bytes * (size_t)r->world->ranks, REDUCE_SCATTER}, out, bytes, make_sum,
                    (int[]){type, reduction, r->rank, r->world->ranks});
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    (void)stream;
    const rank *r = comm;
    size_t bytes = count * size_of(type);
    return exchange(r, (post){in, bytes, ALL_GATHER}, out, bytes * (size_t)r->world->ranks, make_all, NULL);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    (void)stream;
    size_t bytes = count * size_of(type);
    return exchange(comm, (post){in, bytes, BROADCAST}, out, bytes, make_root, &root);
}

/* ---- from one to another ---- */

typedef struct message {
    rank *rank;
    const void *in; /* NULL: it is received */
    void *out;
    size_t bytes;
    int peer;
} message;
static _Thread_local message grouped[MOST_GROUPED];
static _Thread_local int grouped_count, depth;

/* Under the lock. A message is shown until its receiver has taken it. */
static void show(const message *m)
{
    world *w = m->rank->world;
    w->sent[m->rank->rank][m->peer] = m->in;
    w->sent_bytes[m->rank->rank][m->peer] = m->bytes;
    pthread_cond_broadcast(&w->changed);
}

static int take(const message *m)
{
    world *w = m->rank->world;
    struct timespec until = deadline();
    const void **from = &w->sent[m->peer][m->rank->rank];
    while (!*from)
        if (pthread_cond_timedwait(&w->changed, &w->lock, &until)) return REMOTE_ERROR;
    if (w->sent_bytes[m->peer][m->rank->rank] != m->bytes) return INVALID_USAGE;
    memcpy(m->out, *from, m->bytes);
    *from = NULL;
    pthread_cond_broadcast(&w->changed);
    return 0;
}

static int wait_until_taken(const message *m)
{
    world *w = m->rank->world;
    struct timespec until = deadline();
    while (w->sent[m->rank->rank][m->peer])
        if (pthread_cond_timedwait(&w->changed, &w->lock, &until)) return REMOTE_ERROR;
    return 0;
}

int ncclGroupStart(void)
{
    depth++;
    return 0;
}

int ncclGroupEnd(void)
{
    int result = 0;
    if (--depth > 0 || grouped_count == 0) return 0;
    world *w = grouped[0].rank->world;
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < grouped_count; i++)
        if (grouped[i].in) show(&grouped[i]);
    for (int i = 0; i < grouped_count && !result; i++)
        if (!grouped[i].in) result = take(&grouped[i]);
    for (int i = 0; i < grouped_count && !result; i++)
        if (grouped[i].in) result = wait_until_taken(&grouped[i]);
    pthread_mutex_unlock(&w->lock);
    grouped_count = 0;
    return result;
}

static int add(message m)
{
    if (m.peer < 0 || m.peer >= m.rank->world->ranks || grouped_count == MOST_GROUPED) return INVALID_ARGUMENT;
    ncclGroupStart();
    grouped[grouped_count++] = m;
    return ncclGroupEnd();
}

int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)stream;
    return add((message){comm, in, NULL, count * size_of(type), peer});
}

int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)stream;
    return add((message){comm, NULL, out, count * size_of(type), peer});
}
