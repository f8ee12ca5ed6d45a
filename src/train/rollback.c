#include "train/rollback.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "exec/exec.h"

struct ht_rollback {
    ht_session *session;
    size_t *slots; /* the states that micro-batches change, gradients left out: those begin anew */
    size_t slot_count;
    char *copy; /* in the device's memory */
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

typedef enum walk_kind { COUNT, MARK, RESTORE } walk_kind;

/* Walks the states between session and copy; *bytes: of all together. */
static ht_status walk(const ht_rollback *rollback, walk_kind kind, size_t *bytes)
{
    const ht_session *session = rollback->session;
    *bytes = 0;
    for (size_t i = 0; i < rollback->slot_count; i++) {
        const ht_slot *slot = &session->plan->slots[rollback->slots[i]];
        size_t size = (size_t)ht_type_bytes(&slot->type);
        if (kind == MARK) HT_TRY(ht_executor_save(session->executor, slot->place, rollback->copy + *bytes, size));
        if (kind == RESTORE) HT_TRY(ht_executor_restore(session->executor, slot->place, rollback->copy + *bytes, size));
        *bytes += size;
    }
    return HT_OK;
}

static ht_status set_up(ht_rollback *rollback)
{
    const ht_plan *plan = rollback->session->plan;
    size_t bytes;
    void *copy;
    rollback->slots = calloc(plan->slot_count + 1, sizeof *rollback->slots);
    if (!rollback->slots) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a copy of what a step changes");
    for (size_t i = 0; i < plan->slot_count; i++)
        if (is_changed_by_micro(plan, i)) rollback->slots[rollback->slot_count++] = i;
    HT_TRY(walk(rollback, COUNT, &bytes));
    HT_TRY(ht_device_alloc(ht_executor_device(rollback->session->executor), bytes + 1, &copy));
    rollback->copy = copy;
    return HT_OK;
}

ht_status ht_rollback_open(ht_rollback **out, ht_session *session)
{
    ht_rollback *rollback = *out = calloc(1, sizeof *rollback);
    if (!rollback) HT_FAIL(session->plan->ctx, HT_ENOMEM, "out of memory for a copy of what a step changes");
    rollback->session = session;
    ht_status status = set_up(rollback);
    if (status == HT_OK) return HT_OK;
    ht_rollback_free(rollback);
    *out = NULL;
    return status;
}

ht_status ht_rollback_mark(ht_rollback *rollback)
{
    size_t bytes;
    return walk(rollback, MARK, &bytes);
}

ht_status ht_rollback_restore(ht_rollback *rollback)
{
    size_t bytes;
    rollback->session->stale = true; /* half copies follow */
    return walk(rollback, RESTORE, &bytes);
}

void ht_rollback_free(ht_rollback *rollback)
{
    if (!rollback) return;
    free(rollback->slots);
    if (rollback->copy) ht_device_free(ht_executor_device(rollback->session->executor), rollback->copy);
    free(rollback);
}
