#include "train/rollback.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "exec/exec.h"

struct ht_rollback {
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
            if (instr->out[o].space == slot->place.space && instr->out[o].area == HT_AREA_STATE &&
                instr->out[o].offset >= first && instr->out[o].offset < end)
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
static size_t walk(const ht_rollback *rollback, char *copy, bool back)
{
    const ht_session *session = rollback->session;
    size_t at = 0;
    for (size_t i = 0; i < rollback->slot_count; i++) {
        const ht_slot *slot = &session->plan->slots[rollback->slots[i]];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        if (copy && back)
            memcpy(ht_executor_open(session->executor, slot->place, (int64_t)bytes), copy + at, bytes);
        else if (copy)
            memcpy(copy + at, ht_executor_at(session->executor, slot->place), bytes);
        at += bytes;
    }
    return at;
}

ht_status ht_rollback_open(ht_rollback **out, ht_session *session)
{
    const ht_plan *plan = session->plan;
    ht_rollback *rollback = *out = calloc(1, sizeof *rollback);
    if (rollback) rollback->slots = calloc(plan->slot_count + 1, sizeof *rollback->slots);
    if (rollback && rollback->slots) {
        rollback->session = session;
        for (size_t i = 0; i < plan->slot_count; i++)
            if (is_changed_by_micro(plan, i)) rollback->slots[rollback->slot_count++] = i;
        rollback->copy = calloc(1, walk(rollback, NULL, false) + 1);
        if (rollback->copy) return HT_OK;
    }
    ht_rollback_free(rollback);
    *out = NULL;
    HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a copy of what a step changes");
}

void ht_rollback_mark(ht_rollback *rollback)
{
    walk(rollback, rollback->copy, false);
}

void ht_rollback_restore(ht_rollback *rollback)
{
    walk(rollback, rollback->copy, true);
    rollback->session->stale = true; /* half copies follow */
}

void ht_rollback_free(ht_rollback *rollback)
{
    if (!rollback) return;
    free(rollback->slots);
    free(rollback->copy);
    free(rollback);
}
