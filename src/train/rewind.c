#include "train/rewind.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "train/session_state.h"

struct ht_rewind {
    ht_session *session;
    char *copy;
};

/* Parameters and the optimiser's state change in the update alone, and derived state is made from them. */
static bool is_changed_by_micro(const ht_plan *plan, size_t index)
{
    const ht_slot *slot = &plan->slots[index];
    if (slot->kind != HT_SLOT_STATE || slot->derived || slot->owner != index) return false;
    return slot->heading == HT_HEADING_STATISTICS || slot->heading == HT_HEADING_CACHES ||
           slot->heading == HT_HEADING_SCALARS;
}

/* Walks the states between session and copy; returns their bytes together. Without a copy it only counts. */
static size_t walk(const ht_session *session, char *copy, bool back)
{
    const ht_plan *plan = session->plan;
    size_t at = 0;
    for (size_t i = 0; i < plan->slot_count; i++) {
        if (!is_changed_by_micro(plan, i)) continue;
        size_t bytes = (size_t)ht_type_bytes(&plan->slots[i].type);
        ht_place place = plan->slots[i].place;
        if (copy && back)
            memcpy(ht_machine_open(session->machine, place, (int64_t)bytes), copy + at, bytes);
        else if (copy)
            memcpy(copy + at, ht_machine_at(session->machine, place), bytes);
        at += bytes;
    }
    return at;
}

ht_status ht_rewind_open(ht_rewind **out, ht_session *session)
{
    ht_rewind *rewind = *out = calloc(1, sizeof *rewind);
    if (rewind) rewind->copy = calloc(1, walk(session, NULL, false) + 1);
    if (rewind && rewind->copy) {
        rewind->session = session;
        return HT_OK;
    }
    free(rewind);
    *out = NULL;
    HT_FAIL(session->plan->ctx, HT_ENOMEM, "out of memory for a copy of the model's statistics");
}

void ht_rewind_mark(ht_rewind *rewind)
{
    walk(rewind->session, rewind->copy, false);
}

void ht_rewind_back(ht_rewind *rewind)
{
    walk(rewind->session, rewind->copy, true);
}

void ht_rewind_free(ht_rewind *rewind)
{
    if (!rewind) return;
    free(rewind->copy);
    free(rewind);
}
