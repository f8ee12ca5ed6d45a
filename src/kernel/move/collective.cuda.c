/* Collectives by NCCL, over the ranks of the launch's group, each with a GPU of its own; …_done: nothing, or a copy.
 * Numerics: sums in the library's order, in the operands' type: the same on every run over the same GPUs, and not those
 * of other transports.  Traffic: that of collective_rows.c.  Bound: the link.
 *
 * Ranks find each other over comm/: the first of a group draws the library's id, and all of them receive it when they
 * first exchange something. Calls do not block, and waits of the host ask comm/ whether the other ranks still come: once
 * one has died, or does not answer, all groups of the device are given up, so that what waits in its queues ends. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "kernel/cuda/cuda.h"
#include "kernel/move/collective_call.h"

/* The library's own types and numbers. */
typedef struct nccl_id {
    char bytes[128];
} nccl_id;
typedef struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} nccl_config; /* as of 2.14, the oldest that has it; newer ones read so much of it */
enum { IN_PROGRESS = 7, CONFIG_MAGIC = 0xcafebeef, CONFIG_VERSION = 21400 };
typedef struct nccl {
#define HT_NCCL(name, parameters) int(*name) parameters;
#include "kernel/move/nccl.def"
#undef HT_NCCL
    const char *(*ncclGetErrorString)(int result);
    const char *(*ncclGetLastError)(void *comm);
} nccl;

static union {
    nccl library;
    void (*functions[sizeof(nccl) / sizeof(void (*)(void))])(void);
} table;
static const char *const files[] = {"libnccl.so.2", "libnccl.so", NULL};
static const char *const names[] = {
#define HT_NCCL(name, parameters) #name,
#include "kernel/move/nccl.def"
#undef HT_NCCL
    "ncclGetErrorString",
    "ncclGetLastError",
};
static ht_cuda_library nccl_library = {files, names, sizeof names / sizeof names[0], table.functions, "", false};

enum { BYTES = 1 };
static const int data_types[HT_DTYPE_COUNT] = {
    [HT_U8] = BYTES, [HT_BOOL] = BYTES, [HT_I8] = BYTES, [HT_F8E4M3] = BYTES, [HT_F8E5M2] = BYTES, [HT_I32] = 2,
    [HT_I64] = 4,    [HT_F16] = 6,      [HT_F32] = 7,    [HT_F64] = 8,        [HT_BF16] = 9,
};
static const int reductions[HT_COMM_REDUCTION_COUNT] = {[HT_COMM_SUM] = 0, [HT_COMM_MAX] = 2, [HT_COMM_MIN] = 3};

/* ---- the groups of a device ---- */

typedef struct nccl_group {
    struct nccl_group *next;
    uint64_t number; /* comm's */
    void *comm;      /* NULL: not there yet, or given up */
} nccl_group;
typedef struct nccl_groups {
    nccl_group *first;
    ht_context *ctx;
    const ht_comm *latest; /* group of the last launch */
    bool given_up;
} nccl_groups;

static void give_up(nccl_groups *groups)
{
    groups->given_up = true;
    for (nccl_group *g = groups->first; g; g = g->next) {
        if (g->comm) table.library.ncclCommAbort(g->comm);
        g->comm = NULL;
    }
}

static void free_groups(void *object)
{
    nccl_groups *groups = object;
    while (groups->first) {
        nccl_group *g = groups->first;
        groups->first = g->next;
        if (g->comm) table.library.ncclCommDestroy(g->comm);
        free(g);
    }
    free(groups);
}

/* While the host waits for the device; sessions, whose queues ask, go before their world. */
static ht_status check_wait(void *arg, double waited_s)
{
    nccl_groups *groups = arg;
    ht_status status = ht_comm_check_wait(groups->latest, groups->ctx, "an exchange between GPUs", waited_s);
    if (status != HT_OK) give_up(groups);
    return status;
}

static ht_status groups_of(const ht_launch *launch, nccl_groups **out)
{
    ht_device *device = launch->queue->device;
    *out = ht_cuda_kept(device, "nccl");
    if (!*out) {
        *out = calloc(1, sizeof **out);
        if (!*out) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for groups of GPUs");
        (*out)->ctx = device->ctx;
        HT_TRY(ht_cuda_keep(device, "nccl", *out, free_groups));
    }
    if ((*out)->given_up) HT_FAIL(launch->ctx, HT_ERANK, "%s: the other ranks were given up", launch->call->op->name);
    (*out)->latest = launch->comm;
    ht_cuda_check_waits(launch->queue, check_wait, *out);
    return HT_OK;
}

static const double SPIN_S = 1e-3; /* looks follow each other; then with naps between */
static const double REASON_S = 1;  /* for the reason of another rank */

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* An error may follow from the end of another rank, whose reason says more, and comes to be known a moment later. */
static ht_status tell_error(const ht_launch *launch, void *comm, int result)
{
    const char *name = launch->call->op->name, *more = table.library.ncclGetLastError(comm);
    for (double begin = now(); now() - begin < REASON_S; nanosleep(&(struct timespec){0, 1000000}, NULL))
        HT_TRY(ht_comm_check_wait(launch->comm, launch->ctx, name, 0));
    HT_FAIL(launch->ctx, HT_ERANK, "%s: NCCL: %s%s%s", name, table.library.ncclGetErrorString(result),
            more && more[0] ? ": " : "", more && more[0] ? more : "");
}

/* A call has returned `result`: until it is on the queue. It may wait for the other ranks before. */
static ht_status finish(const ht_launch *launch, nccl_groups *groups, void *comm, int result)
{
    const char *name = launch->call->op->name;
    double begin = now(), waited_s = 0;
    ht_status status = HT_OK;
    while (result == IN_PROGRESS && status == HT_OK) {
        int asked = table.library.ncclCommGetAsyncError(comm, &result);
        if (asked) result = asked;
        if (result != IN_PROGRESS) break;
        if (waited_s < SPIN_S)
            sched_yield();
        else
            nanosleep(&(struct timespec){0, 50000}, NULL);
        waited_s = now() - begin;
        status = ht_comm_check_wait(launch->comm, launch->ctx, name, waited_s);
    }
    if (status == HT_OK && result != 0) status = tell_error(launch, comm, result);
    if (status != HT_OK) give_up(groups);
    return status;
}

/* All ranks of the group are here at the same time. */
static ht_status join(const ht_launch *launch, nccl_groups *groups, nccl_group *group)
{
    static const nccl_config config = {sizeof config, CONFIG_MAGIC, CONFIG_VERSION, .blocking = 0};
    nccl_id id = {""};
    int rank = ht_comm_rank(launch->comm);
    if (rank == 0) HT_TRY(finish(launch, groups, NULL, table.library.ncclGetUniqueId(&id)));
    HT_TRY(ht_comm_run(launch->comm, launch->ctx,
                       &(ht_comm_call){.kind = HT_COMM_BROADCAST,
                                       .dtype = HT_U8,
                                       .in = id.bytes,
                                       .out = id.bytes,
                                       .elems = sizeof id.bytes,
                                       .site = "NCCL's id"}));
    int ranks = ht_comm_size(launch->comm);
    int result = table.library.ncclCommInitRankConfig(&group->comm, ranks, id, rank, &config);
    return finish(launch, groups, group->comm, result);
}

/* NCCL's name for the launch's group. */
static ht_status group_of(const ht_launch *launch, nccl_groups **groups, void **comm)
{
    HT_TRY(groups_of(launch, groups));
    nccl_group *g = (*groups)->first;
    while (g && g->number != ht_comm_number(launch->comm)) g = g->next;
    if (!g) {
        g = calloc(1, sizeof *g);
        if (!g) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a group of GPUs");
        *g = (nccl_group){.next = (*groups)->first, .number = ht_comm_number(launch->comm)};
        (*groups)->first = g;
        ht_status status = join(launch, *groups, g);
        if (status != HT_OK) give_up(*groups); /* none is left half made */
        HT_TRY(status);
    }
    *comm = g->comm;
    return HT_OK;
}

/* ---- one call ---- */

static bool is_begun(int result)
{
    return result == 0 || result == IN_PROGRESS;
}

/* A piece to and from every rank. */
static int exchange_pieces(const ht_comm_call *call, int ranks, void *comm, void *stream)
{
    const nccl *n = &table.library;
    size_t bytes = (size_t)call->elems * ht_dtype_bytes(call->dtype);
    int result = n->ncclGroupStart(), end;
    for (int rank = 0; rank < ranks && is_begun(result); rank++) {
        result = n->ncclSend((const char *)call->in + (size_t)rank * bytes, bytes, BYTES, rank, comm, stream);
        if (is_begun(result))
            result = n->ncclRecv((char *)call->out + (size_t)rank * bytes, bytes, BYTES, rank, comm, stream);
    }
    end = n->ncclGroupEnd();
    return is_begun(result) ? end : result;
}

static int start(const ht_comm_call *call, int ranks, void *comm, void *stream)
{
    const nccl *n = &table.library;
    size_t count = (size_t)call->elems;
    int type = data_types[call->dtype], reduction = reductions[call->reduction];
    switch (call->kind) {
    case HT_COMM_ALL_REDUCE: return n->ncclAllReduce(call->in, call->out, count, type, reduction, comm, stream);
    case HT_COMM_ALL_GATHER: return n->ncclAllGather(call->in, call->out, count, type, comm, stream);
    case HT_COMM_REDUCE_SCATTER: return n->ncclReduceScatter(call->in, call->out, count, type, reduction, comm, stream);
    case HT_COMM_BROADCAST: return n->ncclBroadcast(call->in, call->out, count, type, call->peer, comm, stream);
    case HT_COMM_SEND: return n->ncclSend(call->in, count, type, call->peer, comm, stream);
    case HT_COMM_RECV: return n->ncclRecv(call->out, count, type, call->peer, comm, stream);
    default: return exchange_pieces(call, ranks, comm, stream);
    }
}

/* All ranks of a group have the same number of elements, so that they come here together or not at all. */
static ht_status exchange(const ht_launch *launch, const ht_comm_call *call)
{
    nccl_groups *groups = NULL;
    void *comm = NULL;
    if (call->elems == 0) return HT_OK;
    HT_TRY(group_of(launch, &groups, &comm));
    int result = start(call, ht_comm_size(launch->comm), comm, ht_cuda_stream(launch->queue));
    return finish(launch, groups, comm, result);
}

/* ---- the rows ---- */

static ht_status within(const ht_launch *launch, size_t at, size_t bytes)
{
    return ht_queue_copy(launch->queue, (char *)launch->out[0] + at, launch->in[0], bytes, HT_COPY_WITHIN);
}

/* As in collective_rows.c. */
static ht_status run_alone(const ht_launch *launch, ht_comm_kind kind)
{
    static const char zeros[4096];
    size_t bytes = (size_t)ht_type_bytes(launch->call->out[0]), at = 0;
    if (kind == HT_COMM_SEND) return HT_OK;
    size_t step = kind == HT_COMM_RECV ? sizeof zeros : (size_t)ht_type_bytes(launch->call->in[0]);
    for (; at < bytes && (kind == HT_COMM_RECV || launch->out[0] != launch->in[0]); at += step) {
        size_t some = bytes - at < step ? bytes - at : step;
        HT_TRY(kind == HT_COMM_RECV
                   ? ht_queue_copy(launch->queue, (char *)launch->out[0] + at, zeros, some, HT_COPY_TO_DEVICE)
                   : within(launch, at, some));
    }
    return HT_OK;
}

static ht_status run(const ht_launch *launch, ht_comm_kind kind)
{
    static const bool token = true;
    ht_comm_call call = ht_collective_of_launch(launch, kind);
    if (kind == HT_COMM_SEND)
        HT_TRY(ht_queue_copy(launch->queue, launch->out[0], &token, sizeof token, HT_COPY_TO_DEVICE));
    if (!launch->comm || call.peer < 0) return run_alone(launch, kind);
    return exchange(launch, &call);
}

/* Before the first step: is the library there? */
static ht_status prepare(ht_launch *launch)
{
    const char *reason = launch->comm ? ht_cuda_library_open(&nccl_library) : NULL;
    if (!reason) return HT_OK;
    HT_FAIL(launch->ctx, HT_ENOTSUP, "GPUs exchange by NCCL, which is not there: %s", reason);
}

static ht_status done_run(const ht_launch *launch)
{
    size_t bytes = (size_t)ht_type_bytes(launch->call->out[0]);
    return launch->out[0] == launch->in[0] ? HT_OK : within(launch, 0, bytes);
}

static ht_status run_reduce_scatter_within(const ht_launch *launch)
{
    ht_comm_call call = ht_collective_within(launch);
    HT_TRY(run_alone(launch, HT_COMM_REDUCE_SCATTER));
    return launch->comm ? exchange(launch, &call) : HT_OK;
}

#define RUN(op_, kind_)                                                                                                \
    static ht_status run_##op_(const ht_launch *launch)                                                                \
    {                                                                                                                  \
        return run(launch, kind_);                                                                                     \
    }                                                                                                                  \
    ROWS(op_)

#define ROWS(op_)                                                                                                      \
    const ht_kernel ht_kernel_cuda_##op_##_start = {                                                                   \
        .size = sizeof(ht_kernel),                                                                                     \
        .op = #op_ "_start",                                                                                           \
        .name = #op_ "_start.nccl",                                                                                    \
        .device = HT_DEVICE_CUDA,                                                                                      \
        .can = ht_collective_refusal,                                                                                  \
        .prepare = prepare,                                                                                            \
        .run = run_##op_,                                                                                              \
    };                                                                                                                 \
    const ht_kernel ht_kernel_cuda_##op_##_done = {                                                                    \
        .size = sizeof(ht_kernel),                                                                                     \
        .op = #op_ "_done",                                                                                            \
        .name = #op_ "_done.cuda",                                                                                     \
        .device = HT_DEVICE_CUDA,                                                                                      \
        .can = ht_collective_done_refusal,                                                                             \
        .run = done_run,                                                                                               \
    };

RUN(all_reduce, HT_COMM_ALL_REDUCE)
RUN(all_gather, HT_COMM_ALL_GATHER)
RUN(reduce_scatter, HT_COMM_REDUCE_SCATTER)
ROWS(reduce_scatter_within)
RUN(all_to_all, HT_COMM_ALL_TO_ALL)
RUN(broadcast, HT_COMM_BROADCAST)
RUN(send, HT_COMM_SEND)
RUN(recv, HT_COMM_RECV)
