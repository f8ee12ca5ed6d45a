/* The sessions of the public API: a plan's memory with its initial values, run and accessed by name. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

/* ---- open and close ---- */

static void fill_slot(const ht_session *s, const ht_slot *slot, double value)
{
    void *to = ht_executor_open(s->executor, slot->place, ht_type_bytes(&slot->type));
    for (int64_t i = 0; i < ht_type_elems(&slot->type); i++) ht_store_f64(to, slot->type.dtype, i, value);
}

static ht_status start_inputs(ht_session *s)
{
    for (size_t i = 0; i < s->plan->slot_count; i++) {
        const ht_slot *slot = &s->plan->slots[i];
        if (slot->init.kind == HT_INIT_CONSTANT) fill_slot(s, slot, slot->init.a);
        if (slot->init.kind == HT_INIT_NORMAL || slot->init.kind == HT_INIT_UNIFORM)
            HT_FAIL(s->plan->ctx, HT_ENOTSUP, "input '%s': an input starts as zero or a constant", slot->name);
    }
    return HT_OK;
}

static ht_status start(ht_session *s, const ht_session_opts *opts)
{
    const ht_slot *seed = ht_plan_slot(s->plan, "rng.seed");
    int64_t value = opts ? (int64_t)opts->seed : 0;
    HT_TRY(ht_executor_create(&s->executor, s->plan, s->plan->ctx->pool));
    HT_TRY(start_inputs(s));
    if (seed) memcpy(ht_executor_open(s->executor, seed->place, sizeof value), &value, sizeof value);
    int init = ht_plan_segment_find(s->plan, "init"), derive = ht_plan_segment_find(s->plan, "derive");
    if (init >= 0) HT_TRY(ht_executor_run(s->executor, (size_t)init));
    if (derive >= 0) HT_TRY(ht_executor_run(s->executor, (size_t)derive));
    return HT_OK;
}

ht_status ht_session_create(ht_session **out, const ht_plan *plan, const ht_session_opts *opts)
{
    *out = NULL;
    ht_session *s = calloc(1, sizeof *s);
    if (!s) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a session");
    s->plan = plan;
    ht_status status = start(s, opts);
    if (status != HT_OK) {
        ht_session_free(s);
        return status;
    }
    *out = s;
    return HT_OK;
}

void ht_session_free(ht_session *s)
{
    if (!s) return;
    ht_executor_free(s->executor);
    free(s);
}

/* Half copies of parameters that were written since the last run. */
static ht_status derive_again(ht_session *s)
{
    int derive = s->stale ? ht_plan_segment_find(s->plan, "derive") : -1;
    s->stale = false;
    return derive >= 0 ? ht_executor_run(s->executor, (size_t)derive) : HT_OK;
}

ht_status ht_session_run(ht_session *s, const char *name)
{
    HT_TRY(derive_again(s));
    int program = ht_plan_program_find(s->plan, name);
    if (program < 0) {
        int segment = ht_plan_segment_find(s->plan, name);
        if (segment < 0) HT_FAIL(s->plan->ctx, HT_EINVAL, "there is no program or segment '%s'", name);
        return ht_executor_run(s->executor, (size_t)segment);
    }
    const ht_plan_program *p = &s->plan->programs[program];
    for (size_t c = 0; c < p->call_count; c++)
        for (uint32_t k = 0; k < p->calls[c].times; k++) HT_TRY(ht_executor_run(s->executor, p->calls[c].segment));
    return HT_OK;
}

/* ---- reading and writing ---- */

static ht_status find_slot(const ht_session *s, const char *name, size_t count, bool bytes, const ht_slot **slot)
{
    *slot = ht_plan_slot(s->plan, name);
    if (!*slot && strcmp(name, "seed") == 0) *slot = ht_plan_slot(s->plan, "loss_grad"); /* its deprecated name */
    if (!*slot) HT_FAIL(s->plan->ctx, HT_EINVAL, "there is no state, input or output '%s'", name);
    size_t has = (size_t)(bytes ? ht_type_bytes(&(*slot)->type) : ht_type_elems(&(*slot)->type));
    ht_type_text t;
    if (has != count)
        HT_FAIL(s->plan->ctx, HT_ESHAPE, "'%s' is %s: %zu %s, not %zu", name, ht_type_str(&(*slot)->type, &t), has,
                bytes ? "bytes" : "elements", count);
    return HT_OK;
}

static void note_write(ht_session *s, const ht_slot *slot)
{
    bool parameter = slot->heading == HT_HEADING_PARAMETERS || slot->heading == HT_HEADING_MASTERS;
    s->stale |= slot->kind == HT_SLOT_STATE && parameter;
}

ht_status ht_session_write(ht_session *s, const char *name, const void *data, size_t bytes)
{
    const ht_slot *slot;
    HT_TRY(find_slot(s, name, bytes, true, &slot));
    note_write(s, slot);
    if (bytes) memcpy(ht_executor_open(s->executor, slot->place, (int64_t)bytes), data, bytes);
    return HT_OK;
}

ht_status ht_session_read(const ht_session *s, const char *name, void *data, size_t bytes)
{
    const ht_slot *slot;
    HT_TRY(find_slot(s, name, bytes, true, &slot));
    if (bytes) memcpy(data, ht_executor_at(s->executor, slot->place), bytes);
    return HT_OK;
}

ht_status ht_session_write_f64(ht_session *s, const char *name, const double *data, size_t count)
{
    const ht_slot *slot;
    HT_TRY(find_slot(s, name, count, false, &slot));
    note_write(s, slot);
    void *to = ht_executor_open(s->executor, slot->place, ht_type_bytes(&slot->type));
    for (size_t i = 0; i < count; i++) ht_store_f64(to, slot->type.dtype, (int64_t)i, data[i]);
    return HT_OK;
}

ht_status ht_session_read_f64(const ht_session *s, const char *name, double *data, size_t count)
{
    const ht_slot *slot;
    HT_TRY(find_slot(s, name, count, false, &slot));
    const void *from = ht_executor_at(s->executor, slot->place);
    for (size_t i = 0; i < count; i++) data[i] = ht_load_f64(from, slot->type.dtype, (int64_t)i);
    return HT_OK;
}
