#include "train/snapshot_parts.h"

#include <stdlib.h>
#include <string.h>

#include "train/snapshot.h"

/* A tensor while the first rank puts it together. Others send it what they have, in the order of ranks; of several that
 * have the same bytes the first sends them. */
typedef struct gathering {
    const ht_session *session;
    const ht_ranks *ranks;
    const ht_snapshot_tensor *tensor;
    ht_context *ctx;
    int64_t *counts; /* bytes by rank */
} gathering;

static bool sends(const ht_ranks *ranks, const ht_snapshot_tensor *tensor)
{
    return !tensor->elsewhere && (tensor->divided || ranks->data.rank == 0) &&
           (tensor->cut.ranks || ranks->tensor.rank == 0);
}

static ht_status gather_counts(const gathering *g)
{
    int64_t own = sends(g->ranks, g->tensor) ? (int64_t)g->tensor->part_bytes : 0;
    return ht_comm_run(
        g->ranks->host, g->ctx,
        &(ht_comm_call){
            .kind = HT_COMM_ALL_GATHER, .dtype = HT_I64, .in = &own, .out = g->counts, .elems = 1, .site = "snapshot"});
}

/* Parts of ranks one behind the other. */
static ht_status receive_parts(const gathering *g, char *all)
{
    char *at = all;
    if (g->counts[0]) HT_TRY(ht_executor_read(g->session->executor, g->tensor->place, at, (size_t)g->counts[0]));
    for (int i = 1; i < (int)g->ranks->size; i++) {
        at += g->counts[i - 1];
        HT_TRY(ht_comm_run(g->ranks->host, g->ctx,
                           &(ht_comm_call){.kind = HT_COMM_RECV,
                                           .dtype = HT_U8,
                                           .out = at,
                                           .elems = g->counts[i],
                                           .peer = i,
                                           .site = g->tensor->name}));
    }
    return HT_OK;
}

static ht_status send_part(const gathering *g, ht_host_copy *stage)
{
    int64_t bytes = g->counts[g->ranks->rank];
    if (!bytes) return HT_OK;
    if (!ht_grow(&stage->data, &stage->bytes, (size_t)bytes, 1))
        HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for a part of '%s'", g->tensor->name);
    HT_TRY(ht_executor_read(g->session->executor, g->tensor->place, stage->data, (size_t)bytes));
    return ht_comm_run(
        g->ranks->host, g->ctx,
        &(ht_comm_call){
            .kind = HT_COMM_SEND, .dtype = HT_U8, .in = stage->data, .elems = bytes, .site = g->tensor->name});
}

/* The piece of each rank of the tensor axis, from those that have bytes of it, into its place. */
static void put_pieces(const gathering *g, const char *all, char *piece, char *whole)
{
    const ht_snapshot_tensor *tensor = g->tensor;
    for (int64_t t = 0; t < tensor->cut.ranks; t++) {
        const char *from = all;
        size_t at = 0;
        ht_cut cut = tensor->cut;
        cut.rank = t;
        for (int64_t i = 0; i < g->ranks->size; from += g->counts[i++]) {
            if (i % tensor->cut.ranks != t || !g->counts[i]) continue;
            memcpy(piece + at, from, (size_t)g->counts[i]);
            at += (size_t)g->counts[i];
        }
        ht_cut_put(&cut, &tensor->whole, piece, whole);
    }
}

static ht_status receive(const gathering *g, ht_host_copy *stage)
{
    const ht_snapshot_tensor *tensor = g->tensor;
    if (!ht_grow(&stage->data, &stage->bytes, tensor->array.bytes + 1, 1))
        HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for '%s'", tensor->name);
    if (!tensor->cut.ranks) return receive_parts(g, stage->data);
    char *all = malloc(2 * tensor->array.bytes + 1);
    ht_status status = all ? receive_parts(g, all) : ht_fail(g->ctx, HT_ENOMEM, "out of memory for '%s'", tensor->name);
    if (status == HT_OK) put_pieces(g, all, all + tensor->array.bytes, stage->data);
    free(all);
    return status;
}

ht_status ht_snapshot_gather(const ht_session *session, const ht_ranks *ranks, const ht_snapshot_tensor *tensor,
                             ht_host_copy *stage, const void **out)
{
    ht_context *ctx = session->plan->ctx;
    if (!ranks || !ranks->host)
        HT_FAIL(ctx, HT_EINVAL, "'%s' is a part of a tensor, and the ranks that have the others are not here",
                tensor->name);
    gathering g = {.session = session, .ranks = ranks, .tensor = tensor, .ctx = ctx};
    g.counts = calloc((size_t)ranks->size, sizeof *g.counts);
    ht_status status = g.counts ? gather_counts(&g) : ht_fail(ctx, HT_ENOMEM, "out of memory for '%s'", tensor->name);
    if (status == HT_OK) status = ranks->rank == 0 ? receive(&g, stage) : send_part(&g, stage);
    free(g.counts);
    *out = stage->data;
    return status;
}

ht_status ht_snapshot_staging_bytes(int64_t *out, const ht_plan *plan, const ht_ranks *ranks)
{
    ht_snapshot_tensor_list list;
    size_t most = 0;
    *out = 0;
    HT_TRY(ht_snapshot_tensor_find(&list, plan));
    ht_status status = ht_snapshot_tensor_join(&list, ranks, plan->ctx);
    for (size_t i = 0; i < list.count && status == HT_OK; i++) {
        const ht_snapshot_tensor *tensor = &list.items[i];
        size_t bytes = ranks->rank > 0 ? tensor->part_bytes : (tensor->cut.ranks ? 3 : 1) * tensor->array.bytes;
        if (tensor->part && bytes > most) most = bytes;
    }
    ht_snapshot_tensor_free(&list);
    *out = (int64_t)most;
    return status;
}

ht_status ht_snapshot_serve(ht_session *session, const ht_ranks *ranks)
{
    ht_snapshot_tensor_list list;
    ht_host_copy stage = {0};
    ht_status status = ht_snapshot_tensor_find(&list, session->plan);
    if (status == HT_OK) status = ht_snapshot_tensor_join(&list, ranks, session->plan->ctx);
    for (int file = 0; file < HT_SNAPSHOT_FILES && status == HT_OK; file++)
        for (size_t i = 0; i < list.count && status == HT_OK; i++) {
            const void *whole;
            if (list.items[i].part && list.items[i].file == file)
                status = ht_snapshot_gather(session, ranks, &list.items[i], &stage, &whole);
        }
    ht_snapshot_tensor_free(&list);
    free(stage.data);
    return status;
}
