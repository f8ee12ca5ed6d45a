/* Ranks hold some parameters alike: along the data axis all that is not in pieces, along the tensor axis what is not cut. Every
 * halftone.check_replicas steps they compare hashes of them, tensor by tensor. A machine that computes wrongly is found in
 * this way, and a bug of ours. */
#include "train/check_replicas.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool is_alike(const ht_slot *slot, bool tensor_axis)
{
    bool parameter = slot->heading == HT_HEADING_PARAMETERS || slot->heading == HT_HEADING_MASTERS ||
                     slot->heading == HT_HEADING_WEIGHTS;
    if (slot->kind != HT_SLOT_STATE || !parameter || strncmp(slot->name, "flat.", 5) == 0) return false;
    return !slot->part && !(tensor_axis && slot->cut.ranks);
}

static ht_status hash_piece(void *arg, size_t offset, const void *data, size_t bytes)
{
    uint64_t *hash = arg;
    (void)offset;
    *hash = ht_hash_bytes(*hash, data, bytes);
    return HT_OK;
}

/* By slot; those that are not compared stay 0. */
static ht_status hash_all(const ht_run *run, bool tensor_axis, uint64_t *hashes)
{
    const ht_plan *plan = run->job.plan;
    ht_host_copy stage = {0};
    ht_status status = HT_OK;
    for (size_t i = 0; i < plan->slot_count && status == HT_OK; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (!is_alike(slot, tensor_axis)) continue;
        hashes[i] = ht_hash_text(slot->name);
        status = ht_executor_view_pieces(run->job.session->executor, slot->place, (size_t)ht_type_bytes(&slot->type),
                                         &stage, hash_piece, &hashes[i]);
    }
    free(stage.data);
    return status;
}

/* The rank of the group whose hash most have, the first of them where several do. */
static int find_usual(const uint64_t *all, int ranks, size_t count, size_t slot)
{
    int usual = 0, most = 0;
    for (int i = 0; i < ranks; i++) {
        int same = 0;
        for (int k = 0; k < ranks; k++) same += all[(size_t)k * count + slot] == all[(size_t)i * count + slot];
        if (same > most) usual = i;
        if (same > most) most = same;
    }
    return usual;
}

static ht_status compare(const ht_run *run, ht_comm *group, const uint64_t *all, size_t count)
{
    int ranks = ht_comm_size(group);
    for (size_t i = 0; i < count; i++) {
        int usual = find_usual(all, ranks, count, i);
        for (int k = 0; k < ranks; k++)
            if (all[(size_t)k * count + i] != all[(size_t)usual * count + i])
                HT_FAIL(run->ctx, HT_EVERIFY,
                        "after step %" PRId64 " '%s' of rank %d is not that of rank %d: replicas have diverged",
                        run->step, run->job.plan->slots[i].name, ht_comm_world_rank(group, k),
                        ht_comm_world_rank(group, usual));
    }
    return HT_OK;
}

static ht_status check_axis(const ht_run *run, const char *axis, bool tensor_axis)
{
    ht_comm *group = run->request.comm ? ht_comm_find_group(run->request.comm, axis) : NULL;
    size_t count = run->job.plan->slot_count;
    if (!group) return HT_OK;
    uint64_t *all = calloc((size_t)ht_comm_size(group) * count + 1, sizeof *all);
    uint64_t *own = calloc(count + 1, sizeof *own);
    ht_status status = all && own ? hash_all(run, tensor_axis, own)
                                  : ht_fail(run->ctx, HT_ENOMEM, "out of memory to compare replicas");
    if (status == HT_OK)
        status = ht_comm_run(group, run->ctx,
                             &(ht_comm_call){.kind = HT_COMM_ALL_GATHER,
                                             .dtype = HT_I64,
                                             .in = own,
                                             .out = all,
                                             .elems = (int64_t)count,
                                             .site = "check_replicas"});
    if (status == HT_OK) status = compare(run, group, all, count);
    free(all);
    free(own);
    return status;
}

ht_status ht_run_check_replicas(ht_run *run)
{
    HT_TRY(ht_run_catch_up(run));
    HT_TRY(ht_executor_sync(run->job.session->executor)); /* the groups' next calls are these, on all ranks */
    HT_TRY(check_axis(run, "data", false));
    return check_axis(run, "tensor", true);
}
