/* Machines of one job may differ: all ranks compute with the instructions that all of them have, since what they hold alike
 * has to stay alike, to the bit. */
#include <stdlib.h>

#include "train/ranks.h"

/* As a rank sends it. */
typedef struct abilities {
    int64_t isa, features;
} abilities;

/* One that machines of both can run; that of every processor where none of the two runs the other's. */
static ht_isa common_isa(ht_isa a, ht_isa b)
{
    if (ht_isa_runs(a, b)) return b;
    return ht_isa_runs(b, a) ? a : HT_ISA_PORTABLE;
}

static ht_status gather(ht_comm *host, ht_context *ctx, const abilities *own, abilities *all)
{
    return ht_comm_run(host, ctx,
                       &(ht_comm_call){.kind = HT_COMM_ALL_GATHER,
                                       .dtype = HT_I64,
                                       .in = own,
                                       .out = all,
                                       .elems = sizeof *own / sizeof(int64_t),
                                       .site = "instruction sets"});
}

static void tell(const ht_run_request *request, const abilities *all, int size, const ht_target *target)
{
    ht_text line = {0};
    int least = 0;
    for (int i = 0; i < size; i++) /* the first that has no more than all */
        if (all[i].isa == (int64_t)target->isa && all[least].isa != (int64_t)target->isa) least = i;
    ht_text_add(&line, "ranks have different instruction sets: all compute with those of rank %d, %s", least,
                ht_isa_name(target->isa));
    for (int f = 0; f < HT_FEATURE_COUNT; f++)
        if (ht_target_has(target, (ht_feature)f)) ht_text_add(&line, ", %s", ht_feature_name((ht_feature)f));
    if (request->on_note && !line.failed) request->on_note(request->arg, line.data);
    ht_text_free(&line);
}

ht_status ht_ranks_common_target(ht_comm *world, ht_context *ctx, const ht_run_request *request, ht_target *target)
{
    ht_comm *host = world ? ht_comm_find_group(world, "host") : NULL;
    if (!host) return HT_OK;
    int size = ht_comm_size(host);
    bool differ = false;
    const abilities own = {(int64_t)target->isa, (int64_t)target->features};
    abilities *all = calloc((size_t)size, sizeof *all);
    if (!all) HT_FAIL(ctx, HT_ENOMEM, "out of memory for ranks");
    ht_status status = gather(host, ctx, &own, all);
    for (int i = 0; i < size && status == HT_OK; i++) {
        differ |= all[i].isa != all[0].isa || all[i].features != all[0].features;
        target->isa = common_isa(target->isa, (ht_isa)all[i].isa);
        target->features &= (unsigned)all[i].features;
    }
    if (status == HT_OK && differ && ht_comm_rank(host) == 0) tell(request, all, size, target);
    free(all);
    return status;
}
