#include "train/snapshot_parts.h"

#include <stdlib.h>
#include <string.h>

#include "train/snapshot.h"

/* A tensor while it is put together. World ranks send what they have in their order; of several that have the same bytes
 * the first sends them. */
typedef struct gathering {
    const ht_session *session;
    const ht_ranks *ranks;
    const ht_snapshot_tensor *tensor;
    ht_context *ctx;
    int64_t *counts; /* bytes by rank */
    int64_t own;     /* where those of this rank begin */
} gathering;

static bool sends(const ht_ranks *ranks, const ht_snapshot_tensor *tensor)
{
    return !tensor->elsewhere && (tensor->divided || ranks->data.rank == 0) &&
           (tensor->cut.ranks || ranks->tensor.rank == 0);
}

static ht_status gather_counts(gathering *g)
{
    int64_t own = sends(g->ranks, g->tensor) ? (int64_t)g->tensor->part_bytes : 0;
    HT_TRY(ht_comm_run(g->ranks->host, g->ctx,
                       &(ht_comm_call){.kind = HT_COMM_ALL_GATHER,
                                       .dtype = HT_I64,
                                       .in = &own,
                                       .out = g->counts,
                                       .elems = 1,
                                       .site = "snapshot"}));
    for (int64_t i = 0; i < g->ranks->rank; i++) g->own += g->counts[i];
    return HT_OK;
}

static ht_status gather_bytes(const gathering *g, char *all)
{
    const ht_snapshot_tensor *tensor = g->tensor;
    int64_t bytes = g->counts[g->ranks->rank];
    if (bytes) HT_TRY(ht_executor_read(g->session->executor, tensor->place, all + g->own, (size_t)bytes));
    return ht_comm_run(g->ranks->host, g->ctx,
                       &(ht_comm_call){.kind = HT_COMM_ALL_GATHER,
                                       .dtype = HT_U8,
                                       .in = all + g->own,
                                       .out = all,
                                       .elems = bytes,
                                       .counts = g->counts,
                                       .site = tensor->name});
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

static ht_status gather(gathering *g, char *whole)
{
    const ht_snapshot_tensor *tensor = g->tensor;
    HT_TRY(gather_counts(g));
    if (!tensor->cut.ranks) return gather_bytes(g, whole);
    char *all = malloc(2 * tensor->array.bytes + 1);
    ht_status status = all ? gather_bytes(g, all) : ht_fail(g->ctx, HT_ENOMEM, "out of memory for '%s'", tensor->name);
    if (status == HT_OK) put_pieces(g, all, all + tensor->array.bytes, whole);
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
    if (!ht_grow(&stage->data, &stage->bytes, tensor->array.bytes + 1, 1))
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for '%s'", tensor->name);
    gathering g = {.session = session, .ranks = ranks, .tensor = tensor, .ctx = ctx};
    g.counts = calloc((size_t)ranks->size, sizeof *g.counts);
    ht_status status =
        g.counts ? gather(&g, stage->data) : ht_fail(ctx, HT_ENOMEM, "out of memory for '%s'", tensor->name);
    free(g.counts);
    *out = stage->data;
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
