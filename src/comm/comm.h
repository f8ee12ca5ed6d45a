/* comm: how ranks exchange bytes. A world of one or more ranks, groups of it, and collectives over them, blocking or
 * not. The collectives are written once (collective_algorithms.c), over transports that only move messages: self,
 * thread (ranks of one process), mpi. Reductions have a fixed order: pieces are exchanged, summed in f32 in the order
 * of ranks, and gathered, so that a rerun gives the same bits. One rank is a world of one. Knows no graphs. */
#ifndef HT_COMM_H
#define HT_COMM_H

#include <stdatomic.h>

#include <halftone/comm.h>

#include "base/base.h"

/* ---- a world and its groups ---- */

enum { HT_COMM_NAME = 32 }; /* bytes of a group's name, with the 0 */

const char *ht_comm_name(const ht_comm *comm); /* "world", or that of the group */
/* The rank of the world that a rank of this group is. */
int ht_comm_world_rank(const ht_comm *comm, int rank);
/* Of this group alone, among all that the process has had. */
uint64_t ht_comm_number(const ht_comm *comm);
const char *ht_comm_transport(const ht_comm *comm); /* "self", "thread", "mpi" */

/* A group of the world, by the world's ranks in the order in which they count there; this rank is among them. It
 * belongs to the world. Every rank adds its group of an axis ("data", "tensor") in the same order of axes; the groups
 * of one axis share no rank. */
ht_status ht_comm_add_group(ht_comm **out, ht_comm *world, ht_context *ctx, const char *name, const int *ranks,
                            int count);
/* "world" is the world itself; NULL: there is none of this name. */
ht_comm *ht_comm_find_group(ht_comm *world, const char *name);

/* ht_comm_free takes a world, with its groups, once nothing is under way. Ranks that are to end together meet before, by a
 * barrier. This rank cannot go on: the others end, too, with its number and the reason. Over MPI this ends the processes of the
 * job, also the caller's. */
void ht_comm_abort(ht_comm *comm, const char *reason);

/* Once *stop is not 0, a call of this process waits for others at most `seconds` longer: who is asked to stop has little
 * time, and a peer may be dead. NULL: as long as ever. Calls that are under way take it up. Ranks that are processes only. */
void ht_comm_watch_stop(ht_comm *comm, const atomic_int *stop, double seconds);

/* For who waits for other ranks by no call of ours, as for a GPU that exchanges: has `what` been waited for too long? Fails
 * (HT_ERANK) once a rank of the world has ended, or after as many seconds as a call would wait. */
ht_status ht_comm_check_wait(const ht_comm *comm, ht_context *ctx, const char *what, double waited_s);

/* ---- calls ---- */

typedef enum ht_comm_kind {
    HT_COMM_BARRIER,
    HT_COMM_BROADCAST,      /* in: elems of the root `peer`; out: elems, everywhere */
    HT_COMM_ALL_REDUCE,     /* in, out: elems; may be the same */
    HT_COMM_ALL_GATHER,     /* in: elems; out: those of all ranks, one behind the other; in may be its place in out */
    HT_COMM_REDUCE_SCATTER, /* in: elems of each rank; out: elems, its place in `in` or elsewhere */
    HT_COMM_ALL_TO_ALL,     /* in: elems for each rank; out: elems from each rank, elsewhere */
    HT_COMM_SEND,           /* in: elems, to `peer` */
    HT_COMM_RECV,           /* out: elems, from `peer` */
    HT_COMM_KIND_COUNT
} ht_comm_kind;
extern const char *const ht_comm_kind_names[HT_COMM_KIND_COUNT];

/* Sums of f16, bf16 and f32 are made in f32 and rounded once, those of f64 in f64; integers wrap. Bytes and bool have a
 * greatest and a least. A NaN stays. */
typedef enum ht_comm_reduction { HT_COMM_SUM, HT_COMM_MAX, HT_COMM_MIN, HT_COMM_REDUCTION_COUNT } ht_comm_reduction;
extern const char *const ht_comm_reduction_names[HT_COMM_REDUCTION_COUNT];

typedef struct ht_comm_call {
    ht_comm_kind kind;
    ht_dtype dtype;
    ht_comm_reduction reduction;
    const void *in;
    void *out;
    int64_t elems;
    const int64_t *counts; /* all_gather and reduce_scatter: elems by rank, where they differ; NULL: `elems` each */
    int peer;
    void *workspace;  /* ht_comm_workspace bytes at a multiple of 64; NULL: the group's own, made when first needed */
    const char *site; /* for messages; may be NULL */
} ht_comm_call;

/* NULL: the type can be reduced so; else the reason. */
const char *ht_comm_reduction_refusal(ht_comm_reduction reduction, ht_dtype dtype);
/* Bytes that a call over so many ranks needs beside its operands; the same on all ranks. `elems` as in the call, the
 * most of `counts`. */
int64_t ht_comm_workspace(ht_comm_kind kind, ht_dtype dtype, int64_t elems, int ranks);
/* What a call makes a rank send: the first rank, or the root, which send the most. */
typedef struct ht_comm_sent {
    int64_t bytes, messages;
} ht_comm_sent;
ht_comm_sent ht_comm_call_sent(ht_comm_kind kind, ht_dtype dtype, int64_t elems, int ranks);

/* A call that was started; the caller's memory, until it is waited for. */
typedef struct ht_comm_request {
    ht_comm *comm;
    ht_comm_call call;
    struct ht_comm_request *next;
    bool done; /* the comm's, under its lock */
} ht_comm_request;

/* Calls of one group run one after the other, in the order in which they are started, which is the same on all its
 * ranks; those of different groups beside each other. `start` returns at once, and a thread of the group's makes
 * progress. A failure (HT_ERANK) is told by `wait` and all calls after it. */
ht_status ht_comm_start(ht_comm *comm, ht_context *ctx, const ht_comm_call *call, ht_comm_request *request);
bool ht_comm_test(ht_comm_request *request); /* is it done? It must still be waited for */
ht_status ht_comm_wait(ht_comm_request *request, ht_context *ctx);
/* Both at once; the caller's thread does the work. */
ht_status ht_comm_run(ht_comm *comm, ht_context *ctx, const ht_comm_call *call);
ht_status ht_comm_barrier(ht_comm *comm, ht_context *ctx);

/* What the calls of a group have taken and sent since it was made, waits for other ranks included. */
typedef struct ht_comm_traffic {
    double seconds;
    int64_t bytes;
} ht_comm_traffic;
ht_comm_traffic ht_comm_traffic_of(ht_comm *comm);

/* ---- agreement ---- */

/* Something that must be the same on all ranks: a hash, and in few words what it is of (may be NULL). */
typedef struct ht_comm_fact {
    const char *name;
    uint64_t hash;
    const char *text;
} ht_comm_fact;
/* Fails on all ranks where one differs, with the names of what differs and the ranks that do. All ranks give the same
 * number of facts under the same names, or that is what differs. */
ht_status ht_comm_agree(ht_comm *comm, ht_context *ctx, const ht_comm_fact *facts, size_t count);

/* ---- finding the world ---- */

/* Who started this process, and as which of how many ranks. */
typedef struct ht_launcher {
    const char *name; /* "Open MPI", "MPICH", "Slurm", "torchrun"; NULL: nobody, a world of one */
    const char *mpi;  /* the flavour that it speaks, "openmpi" or "mpich"; NULL: not known */
    int rank, size;
    int local_rank, local_size; /* on this node; -1: not told */
    char node[64];
} ht_launcher;
/* From the variables that launchers set. Fails where they contradict themselves. */
ht_status ht_launcher_find(ht_launcher *out, ht_context *ctx);
/* One line for the log. */
void ht_launcher_describe(const ht_launcher *launcher, char *text, size_t capacity);
/* HALFTONE_COMM_TIMEOUT_S: how long a rank waits for another before it gives up; 1800. */
ht_status ht_comm_timeout(ht_context *ctx, double *seconds);

/* The world that the launcher has made. */
ht_status ht_comm_open(ht_comm **out, ht_context *ctx, const ht_launcher *launcher);
/* A world of one. */
ht_status ht_comm_open_self(ht_comm **out, ht_context *ctx);
/* `flavour`: "openmpi", "mpich" or NULL: whichever this process has loaded already, or else can be opened. `mpi_comm`:
 * the address of the caller's MPI_Comm, which stays his; NULL: MPI_COMM_WORLD. MPI is initialised unless it is. */
ht_status ht_comm_open_flavour(ht_comm **out, ht_context *ctx, const char *flavour, const void *mpi_comm);

/* ---- ranks that are threads of this process ---- */

typedef struct ht_thread_ranks ht_thread_ranks;

typedef struct ht_thread_ranks_opts {
    int ranks;
    double timeout_s; /* 0: ht_comm_timeout */
    /* For tests. Each exchange begins with a random delay between the two; both 0: HALFTONE_COMM_DELAY_US, "100" or
     * "0..100". */
    double least_delay_us, most_delay_us;
    uint64_t seed;
    /* `death_rank` dies at exchange `death_at`, counted from 1; 0: HALFTONE_COMM_DEATH, "rank:exchange", or else
     * never. */
    int death_rank;
    int64_t death_at;
} ht_thread_ranks_opts;

ht_status ht_thread_ranks_create(ht_thread_ranks **out, ht_context *ctx, const ht_thread_ranks_opts *opts);
void ht_thread_ranks_free(ht_thread_ranks *ranks); /* after all worlds; takes NULL */
/* The world of one of them, for its thread. */
ht_status ht_comm_open_thread(ht_comm **out, ht_context *ctx, ht_thread_ranks *ranks, int rank);

/* What a rank does, in a thread of its own; `messages` holds nothing but the reason of a failure. */
typedef ht_status (*ht_rank_fn)(void *arg, ht_comm *world, ht_context *messages);
/* Runs it on all ranks, and waits for them. A rank that fails ends the others; the message is that of the first. */
ht_status ht_thread_ranks_run(ht_context *ctx, const ht_thread_ranks_opts *opts, ht_rank_fn fn, void *arg);

#endif
