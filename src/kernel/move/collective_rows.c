/* Collectives: the exchange itself is that of comm/, over the ranks of the launch's group.  …_done: nothing, since a
 * plan puts its result where the start has written; a result with bytes of its own is copied. Numerics: f32
 * accumulation in the order of ranks.  Threads: the queue's own.  Traffic: all_reduce 2(N-1)/N of its bytes in and
 * out, all_gather and reduce_scatter half of it.  Bound: the link. */
#include <string.h>

#include "kernel/move/collective_call.h"

int ht_collective_ranks(const ht_call *call)
{
    return (int)ht_call_int(call, "ranks");
}

/* As in ht_comm_call. */
static int64_t elems_of(const ht_call *call, ht_comm_kind kind)
{
    if (kind == HT_COMM_RECV) return ht_type_elems(call->out[0]);
    int64_t elems = ht_type_elems(call->in[0]);
    bool pieces = kind == HT_COMM_ALL_TO_ALL || kind == HT_COMM_REDUCE_SCATTER;
    return pieces ? elems / ht_collective_ranks(call) : elems;
}

static ht_comm_reduction reduction_of(const ht_call *call)
{
    const char *name = ht_op_has_attr(call->op, "reduction") ? ht_call_text(call, "reduction") : "sum";
    int i = 0;
    while (strcmp(ht_comm_reduction_names[i], name) != 0) i++;
    return (ht_comm_reduction)i;
}

static int peer_of(const ht_call *call, ht_comm_kind kind)
{
    if (kind == HT_COMM_BROADCAST) return (int)ht_call_int(call, "root");
    return kind == HT_COMM_SEND || kind == HT_COMM_RECV ? (int)ht_call_int(call, "peer") : 0;
}

ht_comm_call ht_collective_of_call(const ht_call *call, ht_comm_kind kind)
{
    return (ht_comm_call){
        .kind = kind,
        .dtype = (call->n_in ? call->in[0] : call->out[0])->dtype,
        .reduction = reduction_of(call),
        .elems = elems_of(call, kind),
        .peer = peer_of(call, kind),
    };
}

ht_comm_call ht_collective_of_launch(const ht_launch *launch, ht_comm_kind kind)
{
    ht_comm_call call = ht_collective_of_call(launch->call, kind);
    call.in = launch->call->n_in ? launch->in[0] : NULL;
    call.out = launch->out[0];
    call.workspace = launch->workspace;
    call.site = launch->site;
    return call;
}

const char *ht_collective_refusal(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided(call);
}

const char *ht_collective_done_refusal(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_type_contiguous(call->in[0]) && ht_type_contiguous(call->out[0]) ? NULL : "operands are strided";
}

/* Without ranks beside this one, as the op's reference: everything is a copy, and nothing comes. */
static void run_alone(const ht_launch *launch, ht_comm_kind kind)
{
    size_t bytes = (size_t)ht_type_bytes(launch->call->out[0]);
    if (!bytes || kind == HT_COMM_SEND) return;
    if (kind == HT_COMM_RECV) {
        memset(launch->out[0], 0, bytes);
        return;
    }
    size_t given = (size_t)ht_type_bytes(launch->call->in[0]);
    for (size_t at = 0; at < bytes && launch->out[0] != launch->in[0]; at += given)
        memcpy((char *)launch->out[0] + at, launch->in[0], given < bytes ? given : bytes);
}

static ht_status run(const ht_launch *launch, ht_comm_kind kind)
{
    ht_comm_call call = ht_collective_of_launch(launch, kind);
    if (kind == HT_COMM_SEND) *(bool *)launch->out[0] = true; /* the token */
    if (launch->comm && call.peer >= 0) return ht_comm_run(launch->comm, launch->ctx, &call);
    run_alone(launch, kind);
    return HT_OK;
}

static int64_t workspace(const ht_call *call, ht_comm_kind kind)
{
    ht_comm_call asked = ht_collective_of_call(call, kind);
    int ranks = ht_collective_ranks(call);
    return ranks == 1 ? 0 : ht_comm_workspace(kind, asked.dtype, asked.elems, ranks);
}

static ht_status done_run(const ht_launch *launch)
{
    size_t bytes = (size_t)ht_type_bytes(launch->call->out[0]);
    if (bytes && launch->out[0] != launch->in[0]) memcpy(launch->out[0], launch->in[0], bytes);
    return HT_OK;
}

#define RUN(op_, kind_)                                                                                                \
    static ht_status run_##op_(const ht_launch *launch)                                                                \
    {                                                                                                                  \
        return run(launch, kind_);                                                                                     \
    }                                                                                                                  \
    ROWS(op_, kind_)

#define ROWS(op_, kind_)                                                                                               \
    static int64_t workspace_##op_(const ht_call *call, const ht_target *target)                                       \
    {                                                                                                                  \
        (void)target;                                                                                                  \
        return workspace(call, kind_);                                                                                 \
    }                                                                                                                  \
    const ht_kernel ht_kernel_##op_##_start = {.size = sizeof(ht_kernel),                                              \
                                               .op = #op_ "_start",                                                    \
                                               .name = #op_ "_start",                                                  \
                                               .isa = HT_ISA_PORTABLE,                                                 \
                                               .can = ht_collective_refusal,                                           \
                                               .workspace = workspace_##op_,                                           \
                                               .run = run_##op_};                                                      \
    const ht_kernel ht_kernel_##op_##_done = {.size = sizeof(ht_kernel),                                               \
                                              .op = #op_ "_done",                                                      \
                                              .name = #op_ "_done",                                                    \
                                              .isa = HT_ISA_PORTABLE,                                                  \
                                              .can = ht_collective_done_refusal,                                       \
                                              .run = done_run};

/* The piece that is summed lies where the others expect it: over what was read. */
ht_comm_call ht_collective_within(const ht_launch *launch)
{
    ht_comm_call call = ht_collective_of_launch(launch, HT_COMM_REDUCE_SCATTER);
    size_t piece = (size_t)call.elems * ht_dtype_bytes(call.dtype);
    call.in = launch->out[0];
    call.out = (char *)launch->out[0] + (launch->comm ? (size_t)ht_comm_rank(launch->comm) * piece : 0);
    return call;
}

static ht_status run_reduce_scatter_within(const ht_launch *launch)
{
    ht_comm_call call = ht_collective_within(launch);
    run_alone(launch, HT_COMM_REDUCE_SCATTER);
    return launch->comm ? ht_comm_run(launch->comm, launch->ctx, &call) : HT_OK;
}

RUN(all_reduce, HT_COMM_ALL_REDUCE)
RUN(all_gather, HT_COMM_ALL_GATHER)
RUN(reduce_scatter, HT_COMM_REDUCE_SCATTER)
ROWS(reduce_scatter_within, HT_COMM_REDUCE_SCATTER)
RUN(all_to_all, HT_COMM_ALL_TO_ALL)
RUN(broadcast, HT_COMM_BROADCAST)
RUN(send, HT_COMM_SEND)
RUN(recv, HT_COMM_RECV)
