#include "train/replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "train/batch_binding.h"

struct ht_replay {
    ht_context *ctx;
    ht_run *run; /* NULL: of a job of its own */
    ht_job own, *job;
    ht_plan *plan;
    ht_session *session;
    ht_batch_binding binding;
    ht_loader *loader;
    /* while it walks */
    ht_trace_fn trace;
    void *arg;
    int64_t micro;
    bool enough;
    ht_host_copy stage; /* of what the host reads */
};

/* ---- opening ---- */

static ht_status open_loaders(ht_replay *r)
{
    HT_TRY(ht_batch_binding_open(&r->binding, r->job, r->session));
    return ht_loader_open_share(&r->loader, r->job->data, HT_DATA_TRAIN, false, r->job->rank, r->job->ranks);
}

static ht_status open_own(ht_replay *r, const ht_run_request *request)
{
    ht_run_request wanted = *request;
    wanted.no_fusion = true;
    HT_TRY(ht_job_open(&r->own, r->ctx, &wanted, NULL));
    r->plan = r->own.plan;
    r->session = r->own.session;
    return open_loaders(r);
}

static ht_status open_beside(ht_replay *r, const ht_run_view *run)
{
    HT_TRY(ht_job_plan(r->job, run->request, false, &r->plan));
    HT_TRY(ht_job_session(r->job, r->plan, &r->session));
    return open_loaders(r);
}

static ht_status start(ht_replay **out, ht_context *ctx)
{
    *out = calloc(1, sizeof **out);
    if (!*out) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a replay");
    (*out)->ctx = ctx;
    return HT_OK;
}

static ht_status finish(ht_replay **out, ht_status status)
{
    if (status == HT_OK) return HT_OK;
    ht_replay_free(*out);
    *out = NULL;
    return status;
}

ht_status ht_replay_open(ht_replay **out, ht_context *ctx, const ht_run_request *request)
{
    HT_TRY(start(out, ctx));
    (*out)->job = &(*out)->own;
    return finish(out, open_own(*out, request));
}

ht_status ht_replay_of_run(ht_replay **out, ht_run *run)
{
    ht_run_view view = ht_run_look(run);
    HT_TRY(start(out, view.job->ctx));
    (*out)->run = run;
    (*out)->job = view.job;
    return finish(out, open_beside(*out, &view));
}

void ht_replay_free(ht_replay *r)
{
    if (!r) return;
    free(r->stage.data);
    ht_loader_free(r->loader);
    ht_batch_binding_close(&r->binding);
    if (r->run) {
        ht_session_free(r->session);
        ht_plan_free(r->plan);
    } else {
        ht_job_close(&r->own);
    }
    free(r);
}

/* ---- state ---- */

typedef struct copying {
    ht_executor *executor;
    ht_place to;
} copying;

static ht_status copy_piece(void *arg, size_t offset, const void *data, size_t bytes)
{
    const copying *c = arg;
    ht_place to = c->to;
    to.offset += (int64_t)offset;
    return ht_executor_write(c->executor, to, data, bytes);
}

/* Plans of one graph have the same states, each with its own place for them. */
static ht_status copy_state(ht_replay *r, const ht_session *from)
{
    for (size_t i = 0; i < r->plan->slot_count; i++) {
        const ht_slot *to = &r->plan->slots[i];
        if (to->kind != HT_SLOT_STATE || to->owner != i) continue;
        const ht_slot *slot = ht_plan_slot(from->plan, to->name);
        if (!slot || !ht_type_same(&slot->type, &to->type))
            HT_FAIL(r->ctx, HT_EVERIFY, "replay: the run's plan has no state '%s' of this type", to->name);
        size_t bytes = (size_t)ht_type_bytes(&to->type);
        copying copy = {r->session->executor, to->place};
        HT_TRY(ht_executor_view_pieces(from->executor, slot->place, bytes, &r->stage, copy_piece, &copy));
    }
    return HT_OK;
}

ht_status ht_replay_clear_bad_carry(ht_session *session)
{
    const ht_plan *plan = session->plan;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (slot->kind != HT_SLOT_STATE || strncmp(slot->name, "carry.", 6) != 0) continue;
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        int64_t inf, nan;
        HT_TRY(ht_executor_count_nonfinite(session->executor, slot->place, &slot->type, &inf, &nan));
        if (inf + nan == 0) continue;
        void *zeros = calloc(1, bytes);
        ht_status status = zeros ? ht_executor_write(session->executor, slot->place, zeros, bytes)
                                 : ht_fail(plan->ctx, HT_ENOMEM, "out of memory for a replay");
        free(zeros);
        HT_TRY(status);
    }
    return HT_OK;
}

ht_status ht_replay_set_random(ht_session *session, int64_t steps)
{
    int64_t random;
    bool counted = false; /* a model without random numbers does not count its steps */
    for (size_t i = 0; i < session->plan->replay_copy_count; i++)
        counted |= strcmp(session->plan->slots[session->plan->replay_copies[i].slot].name, "rng.step") == 0;
    if (!counted) return HT_OK;
    HT_TRY(ht_session_read(session, "rng.step", &random, sizeof random));
    random += steps;
    return ht_session_write(session, "rng.step", &random, sizeof random);
}

ht_status ht_replay_position(const ht_run_view *run, int64_t step, uint64_t *out)
{
    ht_context *ctx = run->job->ctx;
    if (!run->train) HT_FAIL(ctx, HT_EINVAL, "replay: a run that was opened to evaluate has no steps");
    int64_t micros = run->job->train_config->accumulate * run->job->ranks;
    int64_t position = (int64_t)ht_loader_position(run->train) + (step - 1 - run->step) * micros;
    if (position < 0) HT_FAIL(ctx, HT_EINVAL, "replay: there is no step %" PRId64, step);
    *out = (uint64_t)position;
    return HT_OK;
}

ht_status ht_replay_take(ht_replay *r, int64_t step)
{
    ht_run_view run = ht_run_look(r->run);
    HT_TRY(copy_state(r, run.job->session));
    HT_TRY(ht_replay_clear_bad_carry(r->session));
    return ht_replay_set_random(r->session, step - 1 - run.step);
}

/* ---- walking ---- */

static bool pass_on(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    ht_replay *r = arg;
    r->enough = !r->trace(r->arg, instr, result, type, data);
    return !r->enough;
}

static ht_status walk(ht_replay *r, int segment, unsigned slot)
{
    if (segment < 0) HT_FAIL(r->ctx, HT_EINVAL, "replay: the plan lacks a segment of the training step");
    return ht_executor_trace(r->session->executor, (size_t)segment, slot, pass_on, r);
}

static ht_status seek(ht_replay *r, int64_t step)
{
    int64_t micros = r->job->train_config->accumulate;
    uint64_t position = (uint64_t)((step - 1) * micros * r->job->ranks);
    if (r->run) {
        ht_run_view run = ht_run_look(r->run);
        HT_TRY(ht_replay_position(&run, step, &position));
    } else if (step < 1) {
        HT_FAIL(r->ctx, HT_EINVAL, "replay: there is no step %" PRId64, step);
    }
    ht_loader_seek(r->loader, position);
    ht_batch_binding_step(&r->binding, r->job, ht_loader_counted(r->loader, micros));
    return HT_OK;
}

ht_status ht_replay_step(ht_replay *r, int64_t step, int64_t micros, bool update, ht_trace_fn trace, void *arg)
{
    int64_t all = r->job->train_config->accumulate;
    r->trace = trace;
    r->arg = arg;
    r->enough = false;
    HT_TRY(seek(r, step));
    if (micros < 0 || micros > all) micros = all;
    for (r->micro = 0; r->micro < micros && !r->enough; r->micro++) {
        ht_bound_batch batch;
        HT_TRY(ht_batch_binding_micro(&r->binding, r->loader, r->micro, &batch));
        HT_TRY(walk(r, r->micro == 0 ? batch.shape->first : batch.shape->micro, batch.slot));
        if (r->enough) return HT_OK;
    }
    return update && !r->enough ? walk(r, ht_plan_segment_find(r->plan, "update"), 0) : HT_OK;
}

int64_t ht_replay_micro(const ht_replay *r)
{
    return r->micro;
}

const char *ht_slot_name_of(const ht_plan *plan, const ht_type *type, ht_place place)
{
    if (place.area == HT_AREA_TRANSIENT || place.area == HT_AREA_NONE) return NULL;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (ht_place_same(slot->place, place) && ht_type_same(&slot->type, type)) return slot->name;
    }
    return NULL;
}

const char *ht_replay_name(const ht_replay *r, const ht_instr *instr, size_t result)
{
    return result == 0 && instr->value ? instr->value
                                       : ht_slot_name_of(r->plan, instr->call->out[result], instr->out[result]);
}

ht_session *ht_replay_session(ht_replay *r)
{
    return r->session;
}

double ht_session_loss_scale(const ht_session *session)
{
    double scale = 1;
    const ht_slot *slot = ht_plan_slot(session->plan, "loss_scale");
    bool scaled = slot && slot->kind == HT_SLOT_STATE && ht_type_elems(&slot->type) == 1 &&
                  ht_session_read_f64(session, "loss_scale", &scale, 1) == HT_OK;
    return scaled && scale > 0 ? scale : 1;
}

/* ---- values ---- */

/* Elements from the first to number `index` of a row-major order. */
static int64_t offset_of(const ht_type *type, int64_t index)
{
    int64_t offset = 0;
    for (int i = type->rank; i-- > 0;) {
        offset += index % type->dim[i] * type->stride[i];
        index /= type->dim[i];
    }
    return offset;
}

void ht_trace_load(const ht_type *type, const void *data, int64_t from, int64_t count, double *to)
{
    if (!ht_type_contiguous(type))
        for (int64_t i = 0; i < count; i++) to[i] = ht_load_f64(data, type->dtype, offset_of(type, from + i));
    else if (type->dtype == HT_F32)
        for (int64_t i = 0; i < count; i++) to[i] = (double)((const float *)data)[from + i];
    else
        for (int64_t i = 0; i < count; i++) to[i] = ht_load_f64(data, type->dtype, from + i);
}

void ht_trace_describe(ht_text *text, const ht_instr *instr)
{
    const char *site = instr->site ? instr->site : instr->origin_site;
    ht_text_add(text, "%s%s%s (%s%s%s)", instr->call->op->name, site ? " at " : "", site ? site : "",
                ht_role_names[instr->role], instr->origin ? " of " : "", instr->origin ? instr->origin : "");
}
