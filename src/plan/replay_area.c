/* What a training step changes and a replay of it must give back: the state that micro-batches write, and the single
 * numbers that the update writes (counters, the loss scale). Parameters and moments are not among them: a replay ends
 * before the update writes them. Gradients begin anew in every step. */
#include <string.h>

#include "plan/plan.h"

enum { NUMBERS_BYTES = 64 };

static bool is_micro(const ht_plan_segment *s)
{
    return strncmp(s->name, "micro", 5) == 0;
}

/* Is it changed by micro-batches, or a single number that the update changes? */
static bool is_saved(const ht_slot *slot, bool in_micro)
{
    bool number = ht_type_bytes(&slot->type) <= NUMBERS_BYTES;
    return slot->heading != HT_HEADING_GRADIENTS && !slot->derived && (in_micro || number);
}

static void mark_saved(const ht_plan *plan, const ht_plan_segment *s, bool *saved)
{
    for (size_t i = 0; i < s->instr_count; i++) {
        for (size_t k = 0; k < s->instrs[i].call->n_out; k++) {
            const ht_slot *slot = ht_plan_state_at(plan, s->instrs[i].out[k]);
            if (slot && is_saved(slot, is_micro(s))) saved[slot - plan->slots] = true;
        }
    }
}

ht_status ht_plan_reserve_replay(ht_plan *plan)
{
    if (ht_plan_segment_find(plan, "update") < 0) return HT_OK;
    bool *saved = HT_NEW(plan->arena, bool, plan->slot_count);
    plan->replay_copies = HT_NEW(plan->arena, ht_replay_copy, plan->slot_count);
    if (!saved || !plan->replay_copies) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for the plan");
    for (size_t i = 0; i < plan->segment_count; i++)
        if (is_micro(&plan->segments[i]) || strcmp(plan->segments[i].name, "update") == 0)
            mark_saved(plan, &plan->segments[i], saved);
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (!saved[i]) continue;
        ht_place copy = ht_plan_add_place(plan, slot->place.space, HT_AREA_REPLAY, ht_type_bytes(&slot->type));
        plan->replay_copies[plan->replay_copy_count++] = (ht_replay_copy){i, copy};
    }
    return HT_OK;
}

static bool has_copy(const ht_plan *plan, const ht_slot *slot)
{
    for (size_t i = 0; i < plan->replay_copy_count; i++)
        if (plan->replay_copies[i].slot == (size_t)(slot - plan->slots)) return true;
    return false;
}

bool ht_plan_writes_for_good(const ht_plan *plan, const ht_instr *instr)
{
    for (size_t i = 0; i < instr->call->n_out; i++) {
        const ht_slot *slot = ht_plan_state_at(plan, instr->out[i]);
        if (slot && slot->heading != HT_HEADING_GRADIENTS && !has_copy(plan, slot)) return true;
    }
    return false;
}
