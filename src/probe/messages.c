/* What ranks exchange: messages between two of them, of one node and of two, and collectives of all. Rank 0's clock counts.
 * Every rank makes the same calls: rank 0 says after each round of them how many come next. */
#define _GNU_SOURCE /* gethostname */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "probe/probe_own.h"

enum { NAME = 64, SHORT_ELEMS = 2, LONG_ELEMS = 4 << 20 /* 16 MiB of f32 */ };

typedef struct message_probe {
    prober p;
    ht_comm *world;
    int rank, size;
    int peers[HT_NETWORK_COUNT]; /* whom rank 0 talks to; -1: nobody is there */
    float *in, *out;             /* of LONG_ELEMS */
} message_probe;

/* ---- who is where ---- */

static ht_status find_peers(message_probe *m)
{
    char mine[NAME] = "", *names = calloc((size_t)m->size, NAME);
    if (!names) HT_FAIL(m->p.ctx, HT_ENOMEM, "probe: out of memory for the names of %d ranks", m->size);
    if (gethostname(mine, sizeof mine - 1) != 0) mine[0] = '\0';
    const ht_comm_call gather = {
        .kind = HT_COMM_ALL_GATHER, .dtype = HT_I8, .in = mine, .out = names, .elems = NAME, .site = "names of nodes"};
    ht_status status = ht_comm_run(m->world, m->p.ctx, &gather);
    m->peers[HT_NETWORK_NODE] = m->peers[HT_NETWORK_CLUSTER] = -1;
    for (int i = m->size - 1; i > 0; i--) {
        bool here = memcmp(names, names + (size_t)i * NAME, NAME) == 0;
        m->peers[here ? HT_NETWORK_NODE : HT_NETWORK_CLUSTER] = i;
    }
    free(names);
    return status;
}

/* ---- rounds that all ranks agree on ---- */

typedef ht_status (*message_round)(message_probe *m, int64_t elems, int peer);

/* There and back between rank 0 and `peer`; the others have nothing to do. */
static ht_status ping_pong(message_probe *m, int64_t elems, int peer)
{
    ht_comm_call send = {.kind = HT_COMM_SEND, .dtype = HT_F32, .in = m->in, .elems = elems, .site = "a message"};
    ht_comm_call receive = {.kind = HT_COMM_RECV, .dtype = HT_F32, .out = m->out, .elems = elems, .site = "a message"};
    if (m->rank != 0 && m->rank != peer) return HT_OK;
    send.peer = receive.peer = m->rank == 0 ? peer : 0;
    HT_TRY(ht_comm_run(m->world, m->p.ctx, m->rank == 0 ? &send : &receive));
    return ht_comm_run(m->world, m->p.ctx, m->rank == 0 ? &receive : &send);
}

/* `kind`: of the collective. */
static ht_status collective(message_probe *m, int64_t elems, int kind)
{
    const ht_comm_call call = {.kind = (ht_comm_kind)kind,
                               .dtype = HT_F32,
                               .in = m->in,
                               .out = m->out,
                               .elems = elems,
                               .site = "a collective"};
    return ht_comm_run(m->world, m->p.ctx, &call);
}

/* Seconds of the shortest mean of several rounds. */
static ht_status best_round(message_probe *m, message_round make, int64_t elems, int arg, double *seconds)
{
    const double long_enough = m->p.slice / 4;
    double start = ht_probe_now();
    int32_t rounds = 1;
    *seconds = 0;
    for (int repeats = 0; rounds > 0;) {
        HT_TRY(ht_comm_barrier(m->world, m->p.ctx));
        double from = ht_probe_now();
        for (int32_t i = 0; i < rounds; i++) HT_TRY(make(m, elems, arg));
        double now = ht_probe_now(), took = now - from;
        if (took < long_enough && rounds < INT32_MAX / 4) {
            rounds *= took < long_enough / 4 ? 4 : 2;
        } else {
            if (*seconds == 0 || took / rounds < *seconds) *seconds = took / rounds;
            if (++repeats >= 3 && now - start > m->p.slice) rounds = 0;
        }
        const ht_comm_call next = {.kind = HT_COMM_BROADCAST,
                                   .dtype = HT_I32,
                                   .in = &rounds,
                                   .out = &rounds,
                                   .elems = 1,
                                   .site = "how many messages come next"};
        HT_TRY(ht_comm_run(m->world, m->p.ctx, &next));
    }
    return HT_OK;
}

/* ---- rows ---- */

static ht_status add_row(message_probe *m, const char *name, const char *what, const char *unit, double value)
{
    ht_probe_row *row = ht_probe_add(&m->p, "message", name, unit, value, 0);
    if (!row) return HT_ENOMEM;
    row->what = what;
    return HT_OK;
}

static const struct {
    int64_t elems;
    const char *what;
} between[] = {{1 << 8, "messages of 1 KiB, one way"},
               {1 << 14, "messages of 64 KiB, one way"},
               {1 << 18, "messages of 1 MiB, one way"}};
enum { BETWEEN = sizeof between / sizeof between[0] };

static ht_status measure_pair(message_probe *m, ht_network network)
{
    static const char *const names[HT_NETWORK_COUNT] = {"node", "cluster"};
    double few, many;
    if (m->peers[network] < 0) return HT_OK;
    HT_TRY(best_round(m, ping_pong, SHORT_ELEMS, m->peers[network], &few));
    HT_TRY(best_round(m, ping_pong, LONG_ELEMS, m->peers[network], &many));
    double rate = 2.0 * LONG_ELEMS * sizeof(float) / many;
    HT_TRY(add_row(m, names[network], "latency of a message of 8 bytes", "s", few / 2));
    for (int i = 0; i < BETWEEN; i++) {
        double seconds;
        HT_TRY(best_round(m, ping_pong, between[i].elems, m->peers[network], &seconds));
        double bytes = 2.0 * (double)between[i].elems * sizeof(float);
        HT_TRY(add_row(m, names[network], between[i].what, "B/s", bytes / seconds));
    }
    HT_TRY(add_row(m, names[network], "messages of 16 MiB, one way", "B/s", rate));
    m->p.out->target.network[network] = rate;
    return HT_OK;
}

/* Bandwidth as NCCL's tests count it: what a rank has to send at least, over the time. */
static ht_status measure_collectives(message_probe *m)
{
    static const struct {
        ht_comm_kind kind;
        bool pieces; /* a rank has a piece of the whole */
        double sent; /* times (ranks - 1) / ranks of the whole */
        const char *name;
    } rows[] = {
        {HT_COMM_ALL_REDUCE, false, 2, "all_reduce"},
        {HT_COMM_ALL_GATHER, true, 1, "all_gather"},
        {HT_COMM_REDUCE_SCATTER, true, 1, "reduce_scatter"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t elems = rows[i].pieces ? LONG_ELEMS / m->size : LONG_ELEMS;
        double few, many;
        HT_TRY(best_round(m, collective, SHORT_ELEMS, (int)rows[i].kind, &few));
        HT_TRY(best_round(m, collective, elems, (int)rows[i].kind, &many));
        double bytes = rows[i].sent * (m->size - 1) / m->size * LONG_ELEMS * (double)sizeof(float);
        HT_TRY(add_row(m, rows[i].name, "8 bytes of each rank", "s", few));
        HT_TRY(add_row(m, rows[i].name, "16 MiB, as a rank sends", "B/s", bytes / many));
    }
    return HT_OK;
}

ht_status ht_probe_messages(ht_context *ctx, ht_comm *world, double seconds, ht_probe *out)
{
    enum { SLICES = (2 + BETWEEN) * HT_NETWORK_COUNT + 6 };
    message_probe m = {
        .p = {.ctx = ctx, .out = out, .slice = (seconds > 0 ? seconds : HT_PROBE_MESSAGE_SECONDS) / SLICES},
        .world = world,
        .rank = ht_comm_rank(world),
        .size = ht_comm_size(world)};
    *out = (ht_probe){0};
    HT_TRY(find_peers(&m));
    m.in = calloc(LONG_ELEMS, sizeof *m.in);
    m.out = calloc(LONG_ELEMS, sizeof *m.out);
    ht_status status = m.in && m.out ? HT_OK : ht_fail(ctx, HT_ENOMEM, "probe: out of memory for messages");
    for (int i = 0; i < HT_NETWORK_COUNT && status == HT_OK; i++) status = measure_pair(&m, (ht_network)i);
    if (status == HT_OK) status = measure_collectives(&m);
    free(m.in);
    free(m.out);
    return status;
}
