/* libnccl.so.2 for machines without GPUs: collectives between threads of one process, over memory that they all see. Sums
 * are made in the order of ranks; those of half types in f32. A call is a thread, and in progress until the other ranks
 * have made theirs: one that they do not make ends when its group is aborted. Other sizes are a failure. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"

typedef struct nccl_id {
    char bytes[128];
} nccl_id;
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config;
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
    IN_PROGRESS = 7,
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

typedef struct message {
    const void *in; /* NULL: it is received */
    void *out;
    size_t bytes;
    int peer;
} message;

/* A collective, or messages. */
typedef struct call {
    post post;
    void *out;
    size_t out_bytes;
    void (*make)(const world *w, void *out, const int *arg);
    int arg[4];
    message messages[MOST_GROUPED];
    int message_count;
} call;

typedef struct rank {
    world *world;
    int rank;
    pthread_t thread;
    bool has_thread;
    call call;
    int result; /* of the last call; under the world's lock */
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

/* Under the lock, until all ranks are here. */
static int meet(world *w)
{
    uint64_t meeting = w->meetings;
    if (w->broken) return REMOTE_ERROR;
    if (++w->waiting == w->ranks) {
        w->waiting = 0;
        w->meetings++;
        pthread_cond_broadcast(&w->changed);
        return 0;
    }
    while (w->meetings == meeting && !w->broken) pthread_cond_wait(&w->changed, &w->lock);
    return w->meetings == meeting ? REMOTE_ERROR : 0;
}

/* The last call's thread, once it is done. */
static void end_thread(rank *r)
{
    if (r->has_thread) pthread_join(r->thread, NULL);
    r->has_thread = false;
}

static int begin(rank *r, void *(*run)(void *rank))
{
    if (r->result == IN_PROGRESS) return INVALID_USAGE;
    end_thread(r);
    r->result = IN_PROGRESS;
    r->has_thread = pthread_create(&r->thread, NULL, run, r) == 0;
    return r->has_thread ? IN_PROGRESS : INVALID_USAGE;
}

static void finish(rank *r, int result)
{
    pthread_mutex_lock(&r->world->lock);
    r->result = result;
    pthread_mutex_unlock(&r->world->lock);
}

int ncclCommGetAsyncError(void *comm, int *result)
{
    rank *r = comm;
    pthread_mutex_lock(&r->world->lock);
    *result = r->result;
    pthread_mutex_unlock(&r->world->lock);
    if (*result != IN_PROGRESS) end_thread(r);
    return 0;
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

static void *run_join(void *arg)
{
    rank *r = arg;
    pthread_mutex_lock(&r->world->lock);
    r->result = meet(r->world);
    pthread_mutex_unlock(&r->world->lock);
    return NULL;
}

int ncclCommInitRankConfig(void **comm, int ranks, nccl_id id, int number, const nccl_config *config)
{
    bool fits = config->size >= sizeof *config && config->magic == 0xcafebeef && config->blocking == 0;
    if (!fits || ranks < 1 || ranks > MOST_RANKS || number < 0 || number >= ranks) return INVALID_ARGUMENT;
    pthread_mutex_lock(&worlds_lock);
    world *w = world_of(&id, ranks);
    pthread_mutex_unlock(&worlds_lock);
    rank *r = calloc(1, sizeof *r);
    if (!w || !r || w->ranks != ranks) {
        free(r);
        return INVALID_ARGUMENT;
    }
    r->world = w;
    r->rank = number;
    *comm = r;
    return begin(r, run_join);
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
    end_thread(r);
    pthread_mutex_lock(&worlds_lock);
    if (++r->world->left == r->world->ranks) forget(r->world);
    pthread_mutex_unlock(&worlds_lock);
    free(r);
    return 0;
}

/* What waits on the emulated GPUs for this rank's exchanges goes on. */
int ncclCommAbort(void *comm)
{
    world *w = ((rank *)comm)->world;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void (*hold)(int held) = NULL;
    if (driver) *(void **)&hold = dlsym(driver, "emulated_hold");
    if (hold) hold(0);
    pthread_mutex_lock(&w->lock);
    w->broken = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return ncclCommDestroy(comm);
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
static void *run_exchange(void *arg)
{
    rank *r = arg;
    const call *c = &r->call;
    world *w = r->world;
    void *made = malloc(c->out_bytes + 1);
    pthread_mutex_lock(&w->lock);
    w->posts[r->rank] = c->post;
    int result = made ? meet(w) : INVALID_USAGE;
    for (int i = 0; i < w->ranks && !result; i++)
        if (w->posts[i].kind != c->post.kind || w->posts[i].bytes != c->post.bytes) result = INVALID_USAGE;
    pthread_mutex_unlock(&w->lock);
    if (!result) c->make(w, made, c->arg);
    pthread_mutex_lock(&w->lock);
    int end = meet(w); /* all have read */
    pthread_mutex_unlock(&w->lock);
    if (!result && !end) memcpy(c->out, made, c->out_bytes);
    free(made);
    finish(r, result ? result : end);
    return NULL;
}

static int exchange(rank *r, const call *c)
{
    if (r->result == IN_PROGRESS) return INVALID_USAGE;
    r->call = *c;
    return begin(r, run_exchange);
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
    return exchange(comm, &(call){{in, bytes, ALL_REDUCE}, out, bytes, make_sum, {type, reduction, 0, 1}, {{0}}, 0});
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int reduction, void *comm, void *stream)
{
    (void)stream;
    rank *r = comm;
    size_t bytes = count * size_of(type);
    post mine = {in, bytes * (size_t)r->world->ranks, REDUCE_SCATTER};
    return exchange(r, &(call){mine, out, bytes, make_sum, {type, reduction, r->rank, r->world->ranks}, {{0}}, 0});
}

int ncclAllGather(const void *in, void *out, size_t count, int type, void *comm, void *stream)
{
    (void)stream;
    rank *r = comm;
    size_t bytes = count * size_of(type), all = bytes * (size_t)r->world->ranks;
    return exchange(r, &(call){{in, bytes, ALL_GATHER}, out, all, make_all, {0}, {{0}}, 0});
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)
{
    (void)stream;
    size_t bytes = count * size_of(type);
    return exchange(comm, &(call){{in, bytes, BROADCAST}, out, bytes, make_root, {root}, {{0}}, 0});
}

/* ---- from one to another ---- */

static _Thread_local rank *grouped_of;
static _Thread_local message grouped[MOST_GROUPED];
static _Thread_local int grouped_count, depth;

/* Under the lock. A message is shown until its receiver has taken it. */
static void show(const rank *r, const message *m)
{
    world *w = r->world;
    w->sent[r->rank][m->peer] = m->in;
    w->sent_bytes[r->rank][m->peer] = m->bytes;
    pthread_cond_broadcast(&w->changed);
}

static int take(const rank *r, const message *m)
{
    world *w = r->world;
    const void **from = &w->sent[m->peer][r->rank];
    while (!*from && !w->broken) pthread_cond_wait(&w->changed, &w->lock);
    if (!*from) return REMOTE_ERROR;
    if (w->sent_bytes[m->peer][r->rank] != m->bytes) return INVALID_USAGE;
    memcpy(m->out, *from, m->bytes);
    *from = NULL;
    pthread_cond_broadcast(&w->changed);
    return 0;
}

static int wait_until_taken(const rank *r, const message *m)
{
    world *w = r->world;
    while (w->sent[r->rank][m->peer] && !w->broken) pthread_cond_wait(&w->changed, &w->lock);
    return w->sent[r->rank][m->peer] ? REMOTE_ERROR : 0;
}

static void *run_messages(void *arg)
{
    rank *r = arg;
    const call *c = &r->call;
    int result = 0;
    pthread_mutex_lock(&r->world->lock);
    for (int i = 0; i < c->message_count; i++)
        if (c->messages[i].in) show(r, &c->messages[i]);
    for (int i = 0; i < c->message_count && !result; i++)
        if (!c->messages[i].in) result = take(r, &c->messages[i]);
    for (int i = 0; i < c->message_count && !result; i++)
        if (c->messages[i].in) result = wait_until_taken(r, &c->messages[i]);
    r->result = result;
    pthread_mutex_unlock(&r->world->lock);
    return NULL;
}

int ncclGroupStart(void)
{
    depth++;
    return 0;
}

int ncclGroupEnd(void)
{
    if (--depth > 0 || grouped_count == 0) return 0;
    rank *r = grouped_of;
    if (r->result == IN_PROGRESS) return INVALID_USAGE;
    memcpy(r->call.messages, grouped, sizeof grouped);
    r->call.message_count = grouped_count;
    grouped_count = 0;
    return begin(r, run_messages);
}

static int add(rank *r, message m)
{
    if (m.peer < 0 || m.peer >= r->world->ranks || grouped_count == MOST_GROUPED) return INVALID_ARGUMENT;
    ncclGroupStart();
    grouped_of = r;
    grouped[grouped_count++] = m;
    return ncclGroupEnd();
}

int ncclSend(const void *in, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)stream;
    return add(comm, (message){in, NULL, count * size_of(type), peer});
}

int ncclRecv(void *out, size_t count, int type, int peer, void *comm, void *stream)
{
    (void)stream;
    return add(comm, (message){NULL, out, count * size_of(type), peer});
}
