#include "train/snapshot_parts.h"

#include <stdlib.h>

#include "train/snapshot.h"

/* Bytes of every rank. */
static ht_status gather_counts(const ht_ranks *ranks, ht_context *ctx, int64_t own, int64_t *counts)
{
    return ht_comm_run(
        ranks->host, ctx,
        &(ht_comm_call){
            .kind = HT_COMM_ALL_GATHER, .dtype = HT_I64, .in = &own, .out = counts, .elems = 1, .site = "snapshot"});
}

static ht_status gather_bytes(const ht_session *session, const ht_ranks *ranks, const ht_snapshot_tensor *tensor,
                              const int64_t *counts, char *whole)
{
    ht_context *ctx = session->plan->ctx;
    char *own = whole + tensor->part_first;
    HT_TRY(ht_executor_read(session->executor, tensor->place, own, tensor->part_bytes));
    return ht_comm_run(ranks->host, ctx,
                       &(ht_comm_call){.kind = HT_COMM_ALL_GATHER,
                                       .dtype = HT_U8,
                                       .in = own,
                                       .out = whole,
                                       .elems = (int64_t)tensor->part_bytes,
                                       .counts = counts,
                                       .site = tensor->name});
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
    int64_t *counts = calloc((size_t)ranks->size, sizeof *counts);
    ht_status status = counts ? gather_counts(ranks, ctx, (int64_t)tensor->part_bytes, counts)
                              : ht_fail(ctx, HT_ENOMEM, "out of memory for '%s'", tensor->name);
    if (status == HT_OK) status = gather_bytes(session, ranks, tensor, counts, stage->data);
    free(counts);
    *out = stage->data;
    return status;
}

ht_status ht_snapshot_serve(ht_session *session, const ht_ranks *ranks)
{
    ht_snapshot_tensor_list list;
    ht_host_copy stage = {0};
    ht_status status = ht_snapshot_tensor_find(&list, session->plan);
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
