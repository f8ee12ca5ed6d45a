#include "train/rewind.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "exec/exec.h"

struct ht_rewind {
    ht_session *session;
    size_t *slots; /* the states that micro-batches change, gradients left out: those begin anew */
    size_t slot_count;
    char *copy;
};

static bool writes(const ht_plan_segment *segment, const ht_slot *slot)
{
    int64_t first = slot->place.offset, end = first + ht_type_bytes(&slot->type);
    for (size_t i = 0; i < segment->instr_count; i++) {
        const ht_instr *instr = &segment->instrs[i];
        for (size_t o = 0; o < instr->call->n_out; o++)
            if (instr->out[o].area == HT_AREA_STATE && instr->out[o].offset >= first && instr->out[o].offset < end)
                return true;
    }
    return false;
}

static bool is_changed_by_micro(const ht_plan *plan, size_t index)
{
    const ht_slot *slot = &plan->slots[index];
    if (slot->kind != HT_SLOT_STATE || slot->derived || slot->owner != index) return false;
    if (slot->heading == HT_HEADING_GRADIENTS) return false;
    for (size_t i = 0; i < plan->segment_count; i++)
        if (strncmp(plan->segments[i].name, "micro", 5) == 0 && writes(&plan->segments[i], slot)) return true;
    return false;
}

/* Walks the states between session and copy; returns their bytes together. Without a copy it only counts. */
static size_t walk(const ht_rewind *rewind, char *copy, bool back)
{
    const ht_session *session = rewind->session;
    size_t at = 0;
    for (size_t i = 0; i < rewind->slot_count; i++) {
        const ht_slot *slot = &session->plan->slots[rewind->slots[i]];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        if (copy && back)
            memcpy(ht_executor_open(session->executor, slot->place, (int64_t)bytes), copy + at, bytes);
        else if (copy)
            memcpy(copy + at, ht_executor_at(session->executor, slot->place), bytes);
        at += bytes;
    }
    return at;
}

ht_status ht_rewind_open(ht_rewind **out, ht_session *session)
{
    const ht_plan *plan = session->plan;
    ht_rewind *rewind = *out = calloc(1, sizeof *rewind);
    if (rewind) rewind->slots = calloc(plan->slot_count + 1, sizeof *rewind->slots);
    if (rewind && rewind->slots) {
        rewind->session = session;
        for (size_t i = 0; i < plan->slot_count; i++)
            if (is_changed_by_micro(plan, i)) rewind->slots[rewind->slot_count++] = i;
        rewind->copy = calloc(1, walk(rewind, NULL, false) + 1);
        if (rewind->copy) return HT_OK;
    }
    ht_rewind_free(rewind);
    *out = NULL;
    HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a copy of what a step changes");
}

void ht_rewind_mark(ht_rewind *rewind)
{
    walk(rewind, rewind->copy, false);
}

void ht_rewind_back(ht_rewind *rewind)
{
    walk(rewind, rewind->copy, true);
    rewind->session->stale = true; /* half copies follow */
}

void ht_rewind_free(ht_rewind *rewind)
{
    if (!rewind) return;
    free(rewind->slots);
    free(rewind->copy);
    free(rewind);
}
