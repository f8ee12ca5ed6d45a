/* The room's own: what a transport gives, and the inside of a world. */
#ifndef HT_COMM_OWN_H
#define HT_COMM_OWN_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/comm.h"

typedef struct ht_message {
    int peer; /* rank of the world */
    bool receive;
    void *data; /* of a message that is sent: only read */
    size_t bytes;
    /* The transport's own: */
    bool done, taken;
    int source, channel;
    struct ht_message *next;
    uint64_t handle;
} ht_message;

enum { HT_CALL_TEXT = 96 };

/* Messages that are under way at once. */
typedef struct ht_exchange {
    int channel; /* messages of different channels do not meet */
    ht_message *messages;
    size_t count;
    const char *call;   /* what it is part of: "all_reduce 17 of data" */
    ht_context *reason; /* for a failure */
} ht_exchange;

typedef struct ht_transport ht_transport;

/* What a transport must give. Messages of one channel from one rank to another arrive in the order in which they are
 * sent, and each meets a receive of the same size. */
typedef struct ht_transport_class {
    const char *name;
    /* Returns when all messages are there, and the memory is the caller's again. Fails with HT_ERANK where a rank has
     * died or left, sends another size, or has not come in time. Several threads may be in it, each with a channel of
     * its own. */
    ht_status (*exchange)(ht_transport *transport, ht_exchange *exchange);
    void (*end_all)(ht_transport *transport, const char *reason);
    /* Fails once a rank has ended. NULL: whoever started the ranks ends them all then. */
    ht_status (*check)(ht_transport *transport, ht_context *ctx, const char *what);
    void (*close)(ht_transport *transport, bool failed);
} ht_transport_class;

struct ht_transport {
    const ht_transport_class *class;
    int rank, size;
    double timeout_s; /* that an exchange waits; 0: it never does */
    /* Exchanges may be under way while these change: */
    _Atomic(const atomic_int *) stop; /* not 0: this rank was asked to stop; NULL: nobody can */
    _Atomic double stop_s;            /* that it waits for others from then on */
};

struct ht_comm {
    ht_transport *transport; /* of the world, and all its groups */
    char name[HT_COMM_NAME];
    int rank, size, channel;
    uint64_t number;
    int *ranks;           /* by rank here: that of the world */
    ht_message *messages; /* 2 × size: those of an exchange */
    int64_t *counts;      /* by rank: elements of pieces */
    int64_t sent;         /* bytes, by all calls so far; who runs a call counts */
    void *scratch;        /* for calls without a workspace */
    int64_t scratch_bytes;
    ht_comm *next; /* group of this world */
    int groups;    /* of a world: how many were added */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock: */
    ht_comm_request *first, *last; /* in the order of their start */
    bool busy;                     /* some thread runs the first */
    bool stop, has_thread;
    pthread_t thread;
    int64_t calls;
    ht_comm_traffic traffic; /* of those that are done */
    ht_status status;        /* of the first call that failed; its reason: */
    ht_context reason;
};

/* Was this rank asked to stop? Then *seconds is what it still waits for others. */
static inline bool ht_transport_stopping(ht_transport *t, double *seconds)
{
    const atomic_int *stop = t->stop;
    *seconds = t->stop_s;
    return stop && *stop;
}

/* The world of a transport, which it owns from here on, also after a failure. */
ht_status ht_comm_create_world(ht_comm **out, ht_context *ctx, ht_transport *transport);

/* collective_algorithms.c: a call by exchanges. `text` names it. */
ht_status ht_collective_run(ht_comm *comm, const ht_comm_call *call, const char *text);

/* reduce_ranks.c: out[i] = in[0][i] + in[1][i] + …, in this order; out may be one of them. */
void ht_reduce_ranks(ht_dtype dtype, ht_comm_reduction reduction, void *out, const void *const *in, int count,
                     int64_t n);

#endif
