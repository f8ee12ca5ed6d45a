/* The sessions of the public API: a plan's memory with its initial values, run and accessed by name. */
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

/* ---- open and close ---- */

/* What is written to an input is there for runs with any of its slots. */
static ht_status write_all(const ht_session *s, const ht_slot *slot, const void *data)
{
    unsigned slots = slot->kind == HT_SLOT_INPUT ? s->plan->input_slots : 1;
    for (unsigned k = 0; k < slots; k++)
        HT_TRY(ht_executor_send(s->executor, ht_executor_slot_place(s->executor, slot->place, k), data,
                                (size_t)ht_type_bytes(&slot->type)));
    return ht_executor_sync(s->executor);
}

static ht_status fill_input(const ht_session *s, const ht_slot *slot, double value)
{
    size_t bytes = (size_t)ht_type_bytes(&slot->type);
    void *data = calloc(1, bytes + 1);
    if (!data) HT_FAIL(s->plan->ctx, HT_ENOMEM, "out of memory for input '%s'", slot->name);
    for (int64_t i = 0; i < ht_type_elems(&slot->type); i++) ht_store_f64(data, slot->type.dtype, i, value);
    ht_status status = write_all(s, slot, data);
    free(data);
    return status;
}

static ht_status start_inputs(ht_session *s)
{
    for (size_t i = 0; i < s->plan->slot_count; i++) {
        const ht_slot *slot = &s->plan->slots[i];
        if (slot->init.kind == HT_INIT_CONSTANT) HT_TRY(fill_input(s, slot, slot->init.a));
        if (slot->init.kind == HT_INIT_NORMAL || slot->init.kind == HT_INIT_UNIFORM)
            HT_FAIL(s->plan->ctx, HT_ENOTSUP, "input '%s': an input starts as zero or a constant", slot->name);
    }
    return HT_OK;
}

static ht_status start(ht_session *s, const ht_session_opts *opts)
{
    const ht_slot *seed = ht_plan_slot(s->plan, "rng.seed");
    ht_session_opts o = HT_SESSION_OPTS;
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    int64_t value = (int64_t)o.seed;
    HT_TRY(ht_executor_create(&s->executor, s->plan, &o));
    if (!o.no_recordings) ht_executor_allow_recordings(s->executor);
    HT_TRY(start_inputs(s));
    if (seed) HT_TRY(write_all(s, seed, &value));
    int init = ht_plan_segment_find(s->plan, "init"), derive = ht_plan_segment_find(s->plan, "derive");
    if (init >= 0) HT_TRY(ht_executor_run(s->executor, (size_t)init, 0));
    if (derive >= 0) HT_TRY(ht_executor_run(s->executor, (size_t)derive, 0));
    return ht_executor_sync(s->executor);
}

ht_status ht_session_create(ht_session **out, const ht_plan *plan, const ht_session_opts *opts)
{
    HT_NEED(plan ? plan->ctx : NULL, out, "out");
    *out = NULL;
    HT_NEED(NULL, plan, "plan");
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
    return derive >= 0 ? ht_executor_run(s->executor, (size_t)derive, 0) : HT_OK;
}

/* "micro_first" and "micro": each run of them takes a batch. */
static bool takes_batch(const ht_session *s, size_t segment)
{
    return strncmp(s->plan->segments[segment].name, "micro", 5) == 0;
}

static int64_t count_batches(const ht_session *s, const ht_plan_program *p)
{
    int64_t batches = 0;
    for (size_t c = 0; c < p->call_count; c++)
        if (takes_batch(s, p->calls[c].segment)) batches += p->calls[c].times;
    return batches;
}

/* The inputs of batch `index` of a program: which one it is, and what the caller writes. */
static ht_status take_batch(ht_session *s, int64_t index, ht_batch_fn fill, void *arg)
{
    const ht_slot *slot = ht_plan_slot(s->plan, "micro.index");
    if (slot) HT_TRY(write_all(s, slot, &index));
    HT_TRY(fill(arg, s, index));
    return derive_again(s);
}

/* `fill` is NULL for a program that takes at most one batch. */
static ht_status run_program(ht_session *s, const ht_plan_program *p, ht_batch_fn fill, void *arg)
{
    int64_t index = 0;
    for (size_t c = 0; c < p->call_count; c++)
        for (uint32_t k = 0; k < p->calls[c].times; k++) {
            if (fill && takes_batch(s, p->calls[c].segment)) HT_TRY(take_batch(s, index++, fill, arg));
            HT_TRY(ht_executor_run(s->executor, p->calls[c].segment, p->calls[c].slot));
        }
    return HT_OK;
}

/* Does a program call the segment "update"? */
static bool updates(const ht_plan *plan, const ht_plan_program *program)
{
    int update = ht_plan_segment_find(plan, "update");
    for (size_t c = 0; c < program->call_count; c++)
        if ((int)program->calls[c].segment == update) return true;
    return false;
}

/* Handles count from 1: programs, then segments; slots have their own. */
ht_status ht_session_program(const ht_session *s, const char *name, ht_handle *out)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, out, "out");
    *out = (ht_handle){0};
    HT_NEED(s->plan->ctx, name, "name");
    int program = ht_plan_program_find(s->plan, name), segment = -1;
    if (program < 0) segment = ht_plan_segment_find(s->plan, name);
    if (program < 0 && segment < 0) HT_FAIL(s->plan->ctx, HT_EINVAL, "there is no program or segment '%s'", name);
    out->id = 1 + (uint32_t)(program >= 0 ? (size_t)program : s->plan->program_count + (size_t)segment);
    return HT_OK;
}

static ht_status start_program(ht_session *s, ht_handle program)
{
    const ht_plan *plan = s->plan;
    if (program.id < 1 || program.id > plan->program_count + plan->segment_count)
        HT_FAIL(plan->ctx, HT_EINVAL, "the handle %u stands for no program of this session", program.id);
    HT_TRY(derive_again(s));
    size_t index = program.id - 1;
    if (index >= plan->program_count) {
        s->updated |= (int)(index - plan->program_count) == ht_plan_segment_find(plan, "update");
        return ht_executor_run(s->executor, index - plan->program_count, 0);
    }
    const ht_plan_program *p = &plan->programs[index];
    s->updated |= updates(plan, p);
    if (count_batches(s, p) > 1)
        HT_FAIL(plan->ctx, HT_EINVAL,
                "program '%s' takes %lld batches, and would take the same one each time: ht_session_run_batches asks "
                "for each",
                p->name, (long long)count_batches(s, p));
    return run_program(s, p, NULL, NULL);
}

ht_status ht_session_start(ht_session *s, ht_handle program)
{
    HT_NEED(NULL, s, "session");
    HT_TRY(ht_executor_follow_stream(s->executor));
    HT_TRY(start_program(s, program));
    return ht_executor_lead_stream(s->executor);
}

ht_status ht_session_start_segment(ht_session *s, size_t segment, unsigned slot)
{
    HT_TRY(derive_again(s));
    return ht_executor_run(s->executor, segment, slot);
}

ht_status ht_session_start_before(ht_session *s, size_t segment, unsigned slot, size_t next)
{
    HT_TRY(derive_again(s));
    return ht_executor_run_before(s->executor, segment, slot, next);
}

/* An update that gave up keeps the state "fatal": from then on it changes nothing. */
static ht_status check_fatal(const ht_session *s)
{
    double fatal = 0, scale = 1;
    if (!ht_plan_slot(s->plan, "fatal")) return HT_OK;
    HT_TRY(ht_session_read_f64(s, "fatal", &fatal, 1));
    if (fatal == 0) return HT_OK;
    HT_TRY(ht_session_read_f64(s, "loss_scale", &scale, 1));
    HT_FAIL(s->plan->ctx, HT_ENONFINITE,
            "gradients stay inf or NaN at a loss scale of %g: no update is made until the state 'fatal' is set to 0",
            scale);
}

ht_status ht_session_wait(ht_session *s)
{
    HT_NEED(NULL, s, "session");
    HT_TRY(ht_executor_sync(s->executor));
    bool updated = s->updated;
    s->updated = false;
    return updated ? check_fatal(s) : HT_OK;
}

ht_status ht_session_run(ht_session *s, const char *name)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, name, "name");
    ht_handle program;
    HT_TRY(ht_session_program(s, name, &program));
    HT_TRY(ht_session_start(s, program));
    return ht_session_wait(s);
}

ht_status ht_session_run_batches(ht_session *s, const char *name, ht_batch_fn fill, void *arg)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, name, "name");
    int program = ht_plan_program_find(s->plan, name);
    if (program < 0) HT_FAIL(s->plan->ctx, HT_EINVAL, "there is no program '%s'", name);
    if (!fill) HT_FAIL(s->plan->ctx, HT_EINVAL, "program '%s': there is no function that writes its batches", name);
    HT_TRY(ht_executor_follow_stream(s->executor));
    HT_TRY(derive_again(s));
    s->updated |= updates(s->plan, &s->plan->programs[program]);
    HT_TRY(run_program(s, &s->plan->programs[program], fill, arg));
    HT_TRY(ht_executor_lead_stream(s->executor));
    return ht_session_wait(s);
}

/* ---- reading and writing ---- */

ht_status ht_session_slot(const ht_session *s, const char *name, ht_handle *out)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, out, "out");
    *out = (ht_handle){0};
    HT_NEED(s->plan->ctx, name, "name");
    const ht_slot *slot = ht_plan_slot(s->plan, name);
    if (!slot && strcmp(name, "seed") == 0) slot = ht_plan_slot(s->plan, "loss_grad"); /* its deprecated name */
    *out = (ht_handle){slot ? 1 + (uint32_t)(slot - s->plan->slots) : 0};
    if (!slot) HT_FAIL(s->plan->ctx, HT_EINVAL, "there is no state, input or output '%s'", name);
    return HT_OK;
}

static ht_status check_slot(const ht_session *s, ht_handle handle, size_t count, bool bytes, const ht_slot **out)
{
    const ht_plan *plan = s->plan;
    if (handle.id < 1 || handle.id > plan->slot_count)
        HT_FAIL(plan->ctx, HT_EINVAL, "the handle %u stands for nothing of this session", handle.id);
    const ht_slot *slot = *out = &plan->slots[handle.id - 1];
    size_t has = (size_t)(bytes ? ht_type_bytes(&slot->type) : ht_type_elems(&slot->type));
    ht_type_text t;
    if (has != count)
        HT_FAIL(plan->ctx, HT_ESHAPE, "'%s' is %s: %zu %s, not %zu", slot->name, ht_type_str(&slot->type, &t), has,
                bytes ? "bytes" : "elements", count);
    return HT_OK;
}

static void note_write(ht_session *s, const ht_slot *slot)
{
    bool parameter = slot->heading == HT_HEADING_PARAMETERS || slot->heading == HT_HEADING_MASTERS;
    s->stale |= slot->kind == HT_SLOT_STATE && parameter;
}

ht_status ht_session_write_slot(ht_session *s, ht_handle handle, const void *data, size_t bytes)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || bytes == 0, "data");
    const ht_slot *slot;
    HT_TRY(check_slot(s, handle, bytes, true, &slot));
    note_write(s, slot);
    return write_all(s, slot, data);
}

ht_status ht_session_read_slot(const ht_session *s, ht_handle handle, void *data, size_t bytes)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || bytes == 0, "data");
    const ht_slot *slot;
    HT_TRY(check_slot(s, handle, bytes, true, &slot));
    return ht_executor_read(s->executor, slot->place, data, bytes);
}

ht_status ht_session_write(ht_session *s, const char *name, const void *data, size_t bytes)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || bytes == 0, "data");
    ht_handle handle;
    HT_TRY(ht_session_slot(s, name, &handle));
    return ht_session_write_slot(s, handle, data, bytes);
}

ht_status ht_session_read(const ht_session *s, const char *name, void *data, size_t bytes)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || bytes == 0, "data");
    ht_handle handle;
    HT_TRY(ht_session_slot(s, name, &handle));
    return ht_session_read_slot(s, handle, data, bytes);
}

enum { FEW_BYTES = 64 };

/* Bytes of a slot on the host, for conversion: `few` where they fit, else heap memory. */
static ht_status stage(const ht_session *s, const char *name, size_t count, const ht_slot **slot, char *few, void **out)
{
    ht_handle handle;
    HT_TRY(ht_session_slot(s, name, &handle));
    HT_TRY(check_slot(s, handle, count, false, slot));
    size_t bytes = (size_t)ht_type_bytes(&(*slot)->type);
    *out = bytes <= FEW_BYTES ? few : malloc(bytes);
    if (!*out) HT_FAIL(s->plan->ctx, HT_ENOMEM, "out of memory for '%s'", name);
    return HT_OK;
}

ht_status ht_session_write_f64(ht_session *s, const char *name, const double *data, size_t count)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || count == 0, "data");
    const ht_slot *slot;
    _Alignas(8) char few[FEW_BYTES];
    void *bytes;
    HT_TRY(stage(s, name, count, &slot, few, &bytes));
    note_write(s, slot);
    for (size_t i = 0; i < count; i++) ht_store_f64(bytes, slot->type.dtype, (int64_t)i, data[i]);
    ht_status status = write_all(s, slot, bytes);
    if (bytes != few) free(bytes);
    return status;
}

ht_status ht_session_read_f64(const ht_session *s, const char *name, double *data, size_t count)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || count == 0, "data");
    const ht_slot *slot;
    _Alignas(8) char few[FEW_BYTES];
    void *bytes;
    HT_TRY(stage(s, name, count, &slot, few, &bytes));
    ht_status status = ht_executor_read(s->executor, slot->place, bytes, (size_t)ht_type_bytes(&slot->type));
    for (size_t i = 0; i < count && status == HT_OK; i++) data[i] = ht_load_f64(bytes, slot->type.dtype, (int64_t)i);
    if (bytes != few) free(bytes);
    return status;
}

/* ---- a caller that uses the device, too ---- */

ht_status ht_session_set_stream(ht_session *s, void *stream)
{
    HT_NEED(NULL, s, "session");
    return ht_executor_set_stream(s->executor, stream);
}

static ht_status check_main(const ht_session *s, const ht_slot *slot)
{
    if (slot->place.space == HT_SPACE_MAIN) return HT_OK;
    HT_FAIL(s->plan->ctx, HT_ENOTSUP, "'%s' lies in @%s, not in the memory of %s", slot->name,
            ht_space_name(slot->place.space), s->plan->device);
}

/* To the stream, or where there is none, to the caller: who comes next finds the copy done. */
static ht_status hand_over(const ht_session *s)
{
    return ht_executor_has_stream(s->executor) ? ht_executor_lead_stream(s->executor) : ht_executor_sync(s->executor);
}

ht_status ht_session_write_device(ht_session *s, ht_handle handle, const void *data, size_t bytes)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || bytes == 0, "data");
    const ht_slot *slot;
    HT_TRY(check_slot(s, handle, bytes, true, &slot));
    HT_TRY(check_main(s, slot));
    note_write(s, slot);
    HT_TRY(ht_executor_follow_stream(s->executor));
    unsigned slots = slot->kind == HT_SLOT_INPUT ? s->plan->input_slots : 1;
    for (unsigned k = 0; k < slots; k++)
        HT_TRY(ht_executor_copy_in(s->executor, ht_executor_slot_place(s->executor, slot->place, k), data, bytes));
    return hand_over(s);
}

ht_status ht_session_read_device(const ht_session *s, ht_handle handle, void *data, size_t bytes)
{
    HT_NEED(NULL, s, "session");
    HT_NEED(s->plan->ctx, data || bytes == 0, "data");
    const ht_slot *slot;
    HT_TRY(check_slot(s, handle, bytes, true, &slot));
    HT_TRY(check_main(s, slot));
    HT_TRY(ht_executor_follow_stream(s->executor));
    HT_TRY(ht_executor_copy_out(s->executor, data, slot->place, bytes));
    return hand_over(s);
}
