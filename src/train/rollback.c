#include "train/rollback.h"

#include "exec/exec.h"

ht_status ht_rollback_mark(ht_session *session)
{
    const ht_plan *plan = session->plan;
    for (size_t i = 0; i < plan->replay_copy_count; i++) {
        const ht_slot *slot = &plan->slots[plan->replay_copies[i].slot];
        HT_TRY(ht_executor_copy(session->executor, plan->replay_copies[i].copy, slot->place,
                                (size_t)ht_type_bytes(&slot->type)));
    }
    return HT_OK;
}

ht_status ht_rollback_restore(ht_session *session)
{
    const ht_plan *plan = session->plan;
    session->stale = true; /* half copies follow */
    for (size_t i = 0; i < plan->replay_copy_count; i++) {
        const ht_slot *slot = &plan->slots[plan->replay_copies[i].slot];
        HT_TRY(ht_executor_copy(session->executor, slot->place, plan->replay_copies[i].copy,
                                (size_t)ht_type_bytes(&slot->type)));
    }
    return HT_OK;
}
