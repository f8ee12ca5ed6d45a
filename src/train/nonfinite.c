/* The first value of a step that is not finite, found in the run's own session. */
#include <inttypes.h>

#include "exec/exec.h"
#include "train/batch_binding.h"
#include "train/replay.h"
#include "train/rollback.h"

typedef struct search {
    ht_run_view run;
    ht_session *session;
    ht_text *out;
    unsigned slot; /* of the inputs of the micro-batch at hand */
    int64_t micro;
    bool found;
} search;

static void add_count(ht_text *text, const ht_type *type, int64_t inf, int64_t nan)
{
    ht_text_add(text, "%" PRId64 " inf and %" PRId64 " NaN of %" PRId64 " elements", inf, nan, ht_type_elems(type));
}

static bool is_written(const ht_instr *instr, ht_place place)
{
    for (size_t k = 0; k < instr->call->n_out; k++)
        if (ht_place_same(place, instr->out[k])) return true;
    return false;
}

/* Every result before was finite, so what came in broken is state or a batch. What the instruction has written over
 * cannot be told any more. */
static ht_status add_broken_input(const search *s, const ht_bad_value *bad)
{
    const ht_call *call = bad->op.call;
    for (size_t i = 0; i < call->n_in; i++) {
        ht_place place = bad->op.in[i];
        const ht_type *type = call->in[i];
        int64_t inf, nan;
        if (!type || place.area == HT_AREA_NONE || is_written(bad->instr, place)) continue;
        HT_TRY(ht_executor_count_nonfinite(
            s->session->executor, ht_executor_slot_place(s->session->executor, place, s->slot), type, &inf, &nan));
        if (inf + nan == 0) continue;
        const char *name = ht_slot_name_of(s->session->plan, type, place);
        ht_text_add(s->out, "; what it read was not finite before: %s, ", name ? name : "a part of the state");
        add_count(s->out, type, inf, nan);
        return HT_OK;
    }
    return HT_OK;
}

static ht_status tell(const search *s, const ht_bad_value *bad)
{
    const ht_instr *op = &bad->op;
    const ht_type *type = op->call->out[bad->result];
    const char *name =
        bad->result == 0 && op->value ? op->value : ht_slot_name_of(s->session->plan, type, op->out[bad->result]);
    ht_type_text shape;
    ht_text_add(s->out, "the first value that is not finite is %s%s%s, the result of ", name ? name : "",
                name ? " " : "", ht_type_str(type, &shape));
    ht_trace_describe(s->out, op);
    if (op->role != HT_ROLE_UPDATE)
        ht_text_add(s->out, " in micro-batch %" PRId64 " of %" PRId64, s->micro + 1,
                    s->run.job->train_config->accumulate);
    ht_text_add(s->out, ": ");
    add_count(s->out, type, bad->inf, bad->nan);
    return add_broken_input(s, bad);
}

static ht_status look(search *s, int segment, ht_until_fn until)
{
    ht_bad_value bad;
    if (segment < 0) HT_FAIL(s->run.job->ctx, HT_EINVAL, "replay: the plan lacks a segment of the training step");
    HT_TRY(ht_executor_find_nonfinite(s->session->executor, s->session->plan, (size_t)segment, s->slot, until, &bad));
    s->found = bad.instr != NULL;
    return s->found ? tell(s, &bad) : HT_OK;
}

static ht_status look_at_micros(search *s)
{
    int64_t micros = s->run.job->train_config->accumulate;
    ht_batch_binding_step(s->run.binding, s->run.job, ht_loader_counted(s->run.train, micros));
    for (s->micro = 0; s->micro < micros && !s->found; s->micro++) {
        ht_bound_batch batch;
        HT_TRY(ht_batch_binding_micro(s->run.binding, s->run.train, s->micro, &batch));
        s->slot = batch.slot;
        HT_TRY(look(s, s->micro == 0 ? batch.shape->first : batch.shape->micro, NULL));
        if (s->found) return HT_OK;
    }
    return HT_OK;
}

static ht_status replay(search *s, int64_t step, uint64_t position)
{
    HT_TRY(ht_replay_clear_bad_carry(s->session));
    HT_TRY(ht_replay_set_random(s->session, step - 1 - s->run.step));
    ht_loader_seek(s->run.train, position);
    HT_TRY(look_at_micros(s));
    s->slot = 0;
    if (!s->found) HT_TRY(look(s, ht_plan_segment_find(s->session->plan, "update"), ht_plan_writes_for_good));
    if (!s->found) ht_text_add(s->out, "step %" PRId64 " was replayed, and every value in it was finite", step);
    return HT_OK;
}

ht_status ht_first_nonfinite(ht_run *run, int64_t step, ht_text *out, bool *found)
{
    search s = {.run = ht_run_look(run), .out = out};
    uint64_t position;
    s.session = s.run.job->session;
    if (ht_plan_is_stage(s.session->plan))
        HT_FAIL(s.run.job->ctx, HT_ENOTSUP,
                "with halftone.parallel.pipeline above 1 the first value that is not finite is not looked for yet");
    HT_TRY(ht_replay_position(&s.run, step, &position));
    uint64_t now = ht_loader_position(s.run.train);
    HT_TRY(ht_executor_sync(s.session->executor)); /* a later step may be under way */
    HT_TRY(ht_rollback_mark(s.session));
    ht_status status = replay(&s, step, position);
    ht_status back = ht_rollback_restore(s.session);
    ht_loader_seek(s.run.train, now);
    HT_TRY(status);
    HT_TRY(back);
    if (found) *found = s.found;
    if (out->failed) HT_FAIL(s.run.job->ctx, HT_ENOMEM, "out of memory for a report");
    return HT_OK;
}
