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

static bool writes(const ht_instr *instr, const ht_slot *slot)
{
    int64_t first = slot->place.offset, end = first + ht_type_bytes(&slot->type);
    for (size_t i = 0; i < instr->call->n_out; i++) {
        ht_place out = instr->out[i];
        if (out.space == slot->place.space && out.area == HT_AREA_STATE && out.offset >= first && out.offset < end)
            return true;
    }
    return false;
}

static bool segment_writes(const ht_plan_segment *s, const ht_slot *slot)
{
    for (size_t i = 0; i < s->instr_count; i++)
        if (writes(&s->instrs[i], slot)) return true;
    return false;
}

static bool is_own_state(const ht_plan *plan, size_t index)
{
    const ht_slot *slot = &plan->slots[index];
    return slot->kind == HT_SLOT_STATE && slot->owner == index && slot->heading != HT_HEADING_GRADIENTS;
}

static bool is_saved(const ht_plan *plan, size_t index)
{
    const ht_slot *slot = &plan->slots[index];
    if (!is_own_state(plan, index) || slot->derived) return false;
    for (size_t i = 0; i < plan->segment_count; i++) {
        const ht_plan_segment *s = &plan->segments[i];
        bool number = strcmp(s->name, "update") == 0 && ht_type_bytes(&slot->type) <= NUMBERS_BYTES;
        if ((number || is_micro(s)) && segment_writes(s, slot)) return true;
    }
    return false;
}

ht_status ht_plan_reserve_replay(ht_plan *plan)
{
    if (ht_plan_segment_find(plan, "update") < 0) return HT_OK;
    plan->replay_copies = HT_NEW(plan->arena, ht_replay_copy, plan->slot_count);
    if (!plan->replay_copies) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for the plan");
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (!is_saved(plan, i)) continue;
        ht_place copy = ht_plan_add_place(plan, slot->place.space, HT_AREA_REPLAY, ht_type_bytes(&slot->type));
        plan->replay_copies[plan->replay_copy_count++] = (ht_replay_copy){i, copy};
    }
    return HT_OK;
}

bool ht_plan_writes_for_good(const ht_plan *plan, const ht_instr *instr)
{
    size_t next = 0;
    for (size_t i = 0; i < plan->slot_count; i++) {
        bool saved = next < plan->replay_copy_count && plan->replay_copies[next].slot == i;
        next += saved;
        if (!saved && is_own_state(plan, i) && writes(instr, &plan->slots[i])) return true;
    }
    return false;
}
