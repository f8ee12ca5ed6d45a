/* Collectives by NCCL, over the ranks of the launch's group, each with a GPU of its own; …_done: nothing, or a copy.
 * Numerics: sums in the library's order, in the operands' type: the same on every run over the same GPUs, and not those
 * of other transports.  Traffic: that of collective_rows.c.  Bound: the link.
 *
 * Ranks find each other over comm/: the first of a group draws the library's id, and all of them receive it when they
 * first exchange something. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "kernel/move/collective_call.h"

/* The library's own types and numbers. */
typedef struct nccl_id {
    char bytes[128];
} nccl_id;
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

static ht_status check(const ht_launch *launch, int result, void *comm)
{
    if (result == 0) return HT_OK;
    const char *more = table.library.ncclGetLastError(comm);
    HT_FAIL(launch->ctx, HT_ERANK, "%s: NCCL: %s%s%s", launch->call->op->name, table.library.ncclGetErrorString(result),
            more && more[0] ? ": " : "", more && more[0] ? more : "");
}

/* ---- the ranks ---- */

static void destroy(void *comm)
{
    table.library.ncclCommDestroy(comm);
}

/* All ranks of the group are here at the same time. */
static ht_status join(const ht_launch *launch, const char *name, void **out)
{
    nccl_id id = {""};
    int rank = ht_comm_rank(launch->comm);
    if (rank == 0) HT_TRY(check(launch, table.library.ncclGetUniqueId(&id), NULL));
    HT_TRY(ht_comm_run(launch->comm, launch->ctx,
                       &(ht_comm_call){.kind = HT_COMM_BROADCAST,
                                       .dtype = HT_U8,
                                       .in = id.bytes,
                                       .out = id.bytes,
                                       .elems = sizeof id.bytes,
                                       .site = "NCCL's id"}));
    HT_TRY(check(launch, table.library.ncclCommInitRank(out, ht_comm_size(launch->comm), id, rank), NULL));
    return ht_cuda_keep(launch->queue->device, name, *out, destroy);
}

/* NCCL's name for the group; the device keeps it. */
static ht_status group_of(const ht_launch *launch, void **out)
{
    char name[64];
    snprintf(name, sizeof name, "nccl %llu", (unsigned long long)ht_comm_number(launch->comm));
    *out = ht_cuda_kept(launch->queue->device, name);
    return *out ? HT_OK : join(launch, name, out);
}

/* ---- one call ---- */

/* A piece to and from every rank. */
static int exchange_pieces(const ht_comm_call *call, int ranks, void *comm, void *stream)
{
    const nccl *n = &table.library;
    size_t bytes = (size_t)call->elems * ht_dtype_bytes(call->dtype);
    int result = n->ncclGroupStart(), end;
    for (int rank = 0; rank < ranks && result == 0; rank++) {
        result = n->ncclSend((const char *)call->in + (size_t)rank * bytes, bytes, BYTES, rank, comm, stream);
        if (result == 0)
            result = n->ncclRecv((char *)call->out + (size_t)rank * bytes, bytes, BYTES, rank, comm, stream);
    }
    end = n->ncclGroupEnd();
    return result ? result : end;
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
    void *comm;
    ht_comm_call call = ht_collective_of_launch(launch, kind);
    if (kind == HT_COMM_SEND)
        HT_TRY(ht_queue_copy(launch->queue, launch->out[0], &token, sizeof token, HT_COPY_TO_DEVICE));
    if (!launch->comm || call.peer < 0) return run_alone(launch, kind);
    HT_TRY(group_of(launch, &comm));
    if (call.elems == 0) return HT_OK;
    return check(launch, start(&call, ht_comm_size(launch->comm), comm, ht_cuda_stream(launch->queue)), comm);
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
    void *comm;
    ht_comm_call call = ht_collective_within(launch);
    HT_TRY(run_alone(launch, HT_COMM_REDUCE_SCATTER));
    if (!launch->comm || call.elems == 0) return HT_OK;
    HT_TRY(group_of(launch, &comm));
    return check(launch, start(&call, ht_comm_size(launch->comm), comm, ht_cuda_stream(launch->queue)), comm);
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
