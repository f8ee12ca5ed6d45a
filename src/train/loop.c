/* A run: steps of micro-batches, evaluation, snapshots. Resuming gives the same bits as never having stopped: a batch is
 * a function of its number, random numbers of the step's, and everything else is in the session's state. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "train/batch_binding.h"
#include "train/folder.h"
#include "train/metrics.h"
#include "train/numerics.h"
#include "train/process_memory.h"
#include "train/rollback.h"
#include "train/snapshot.h"
#include "train/step_record.h"

struct ht_run {
    ht_context *ctx;
    ht_run_request request;
    char *folder, *snapshots;
    ht_job job;
    ht_loader *train, *validation;
    ht_batch_binding binding;
    int update;               /* the segment */
    ht_step_records *records; /* NULL in a run that evaluates */
    double last_end;          /* when the last step was done whose record was read */
    ht_metrics *metrics;
    ht_numerics *numerics; /* NULL: not asked for */
    bool can_drop;         /* something can stop the run between two micro-batches */
    int64_t step, first_step, saved_step;
    double seconds;     /* that the training took */
    bool saved_dynamic; /* the snapshot that it goes on from had a loss scale that moves */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note(const ht_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(const ht_run *run, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!run->request.on_note) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->request.on_note(run->request.arg, line);
}

static ht_status read_number(const ht_run *run, const char *name, double *out)
{
    return ht_session_read_f64(run->job.session, name, out, 1);
}

static bool is_dynamic(const ht_run *run)
{
    return strcmp(run->job.train_config->loss_scale, "dynamic") == 0;
}

static bool is_stopped(const ht_run *run)
{
    return run->request.stop && *run->request.stop;
}

/* ---- open ---- */

static int64_t extra_number(const ht_json *extra, const char *name, int64_t otherwise)
{
    int64_t number;
    const ht_json *value = ht_json_get(extra, name);
    return value && ht_json_as_int(value, &number) ? number : otherwise;
}

/* A step begins with the first slice of its batch. A position between two of them is that of a run with another number
 * of micro-batches: the rest of the batch is left out. */
static void take_position(ht_run *run, uint64_t position)
{
    uint64_t micros = (uint64_t)run->job.train_config->accumulate, rest = position % micros;
    if (rest) note(run, "%" PRIu64 " micro-batches are left out, up to where a step begins", micros - rest);
    ht_loader_seek(run->train, position + (rest ? micros - rest : 0));
}

/* A position counts batches, so it means something only with the same ones. */
static ht_status take_meta(ht_run *run, const ht_snapshot_meta *meta, const char *path)
{
    const ht_train_config *train_config = run->job.train_config;
    const ht_json *extra = NULL;
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(run->ctx, HT_ENOMEM, "out of memory for a snapshot");
    ht_status status =
        meta->extra ? ht_json_parse(run->ctx, arena, path, meta->extra, strlen(meta->extra), &extra) : HT_OK;
    int64_t micro_batch = extra_number(extra, "micro_batch", train_config->micro_batch);
    run->saved_dynamic = extra_number(extra, "dynamic_loss_scale", 0) != 0;
    ht_arena_free(arena);
    HT_TRY(status);
    run->step = run->first_step = run->saved_step = meta->step;
    if (run->request.mode == HT_RUN_EVALUATE) return HT_OK;
    if (micro_batch != train_config->micro_batch)
        HT_FAIL(run->ctx, HT_EINVAL,
                "%s was made with train.micro_batch %" PRId64 ", not %" PRId64 ": its place in the data would be lost",
                path, micro_batch, train_config->micro_batch);
    if (meta->seed != train_config->seed)
        HT_FAIL(run->ctx, HT_EINVAL, "%s was made with train.seed %" PRIu64 ", not %" PRIu64, path, meta->seed,
                train_config->seed);
    take_position(run, meta->position);
    return HT_OK;
}

/* Older programs left there where their last micro-batch began. */
static ht_status begin_at_first_sample(ht_run *run)
{
    const int64_t first = 0;
    if (!ht_plan_slot(run->job.plan, "rng.sample")) return HT_OK;
    return ht_session_write(run->job.session, "rng.sample", &first, sizeof first);
}

/* All state; but a loss scale that does not move is the config's, and one that moves goes on only where it moved. */
static ht_status read_state(ht_run *run, const char *path)
{
    double scale;
    HT_TRY(read_number(run, "loss_scale", &scale));
    HT_TRY(ht_snapshot_read(run->job.session, path, NULL));
    HT_TRY(begin_at_first_sample(run));
    if (is_dynamic(run) && run->saved_dynamic) return HT_OK;
    return ht_session_write_f64(run->job.session, "loss_scale", &scale, 1);
}

static ht_status restore(ht_run *run)
{
    bool evaluating = run->request.mode == HT_RUN_EVALUATE;
    char *path = NULL;
    ht_snapshot_meta *meta = NULL;
    HT_TRY(ht_snapshot_find(run->ctx, run->snapshots, &path));
    if (!path && evaluating) HT_FAIL(run->ctx, HT_EINVAL, "%s: there is no complete snapshot", run->snapshots);
    if (!path) {
        note(run, "%s: there is no snapshot yet, so the run begins at its first step", run->snapshots);
        return HT_OK;
    }
    ht_status status = ht_snapshot_look(run->ctx, path, &meta);
    if (status == HT_OK) status = take_meta(run, meta, path);
    if (status == HT_OK)
        status = evaluating ? ht_snapshot_read_weights(run->job.session, path, NULL) : read_state(run, path);
    if (status == HT_OK && !evaluating) note(run, "goes on after step %" PRId64 ", from %s", run->step, path);
    ht_snapshot_meta_free(meta);
    free(path);
    return status;
}

static ht_status open_loaders(ht_run *run)
{
    const ht_data_info *info = ht_data_info_of(run->job.data);
    const ht_field *ahead = ht_fields_find(ht_config_block(run->job.config, "data"), "prefetch");
    bool prefetch = ahead && ahead->value->kind == HT_JSON_BOOL && ahead->value->boolean;
    if (run->request.mode != HT_RUN_EVALUATE)
        HT_TRY(ht_loader_open(&run->train, run->job.data, HT_DATA_TRAIN, prefetch));
    if (info->parts[HT_DATA_VALIDATION].batches < 1) return HT_OK;
    return ht_loader_open(&run->validation, run->job.data, HT_DATA_VALIDATION, false);
}

/* Of a step that writes: a failure is one of the run's folder. */
static ht_status of_output(const ht_run *run, ht_status status)
{
    if (status != HT_OK && run->request.output_failed) *run->request.output_failed = true;
    return status;
}

/* Only now, when nothing of the job can be wrong any more, does an older run have to go. */
static ht_status open_output(ht_run *run)
{
    if (run->request.mode == HT_RUN_FORCE) HT_TRY(ht_folder_claim(run->ctx, run->folder, HT_RUN_FORCE));
    HT_TRY(ht_folder_record(run->ctx, run->folder, &run->job));
    HT_TRY(ht_metrics_open(&run->metrics, run->ctx, run->job.config, run->folder, run->step));
    if (run->request.numerics < 1) return HT_OK;
    return ht_numerics_open(&run->numerics, run, run->folder, run->step, run->request.numerics);
}

static ht_status set_up(ht_run *run)
{
    ht_run_mode mode = run->request.mode;
    const char *folder = run->request.folder ? run->request.folder : ht_config_train(run->request.config)->output;
    bool again = mode == HT_RUN_RESUME || mode == HT_RUN_EVALUATE;
    if (!(run->folder = strdup(folder))) HT_FAIL(run->ctx, HT_ENOMEM, "out of memory for a run");
    HT_TRY(ht_folder_path(run->ctx, &run->snapshots, folder, "snapshots"));
    if (mode == HT_RUN_NEW) HT_TRY(of_output(run, ht_folder_claim(run->ctx, folder, mode)));
    HT_TRY(ht_job_open(&run->job, run->ctx, &run->request, again ? folder : NULL));
    HT_TRY(open_loaders(run));
    HT_TRY(ht_batch_binding_open(&run->binding, &run->job, run->job.session));
    if (again) HT_TRY(restore(run));
    if (mode == HT_RUN_EVALUATE) return HT_OK;
    run->update = ht_plan_segment_find(run->job.plan, "update");
    HT_TRY(ht_step_records_open(&run->records, run->job.session, run->job.train_config->accumulate));
    run->can_drop = run->request.stop && run->job.train_config->accumulate > 1;
    return of_output(run, open_output(run));
}

ht_status ht_run_open(ht_run **out, ht_context *ctx, const ht_run_request *request)
{
    *out = NULL;
    ht_run *run = calloc(1, sizeof *run);
    if (!run) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a run");
    run->ctx = ctx;
    run->request = *request;
    run->saved_step = -1;
    ht_status status = set_up(run);
    if (status == HT_OK)
        *out = run;
    else
        ht_run_close(run);
    return status;
}

ht_run_info ht_run_info_of(const ht_run *run)
{
    const ht_plan *plan = run->job.plan;
    ht_run_info info = {
        .folder = run->folder,
        .model = run->job.model->name,
        .task = run->job.task,
        .parameters = run->job.parameters,
        .plan_bytes = ht_plan_bytes(plan),
        .reserve_bytes = run->job.reserve_bytes,
        .bytes = ht_plan_byte_table(plan),
        .steps = run->job.steps,
        .first_step = run->first_step,
        .model_hash = plan->model_hash,
    };
    return info;
}

ht_end_report ht_run_end(const ht_run *run)
{
    return (ht_end_report){
        .step = run->step,
        .seconds = run->seconds,
        .plan_bytes = ht_plan_bytes(run->job.plan),
        .process_peak_bytes = ht_process_peak_bytes(),
        .reserve_bytes = run->job.reserve_bytes,
    };
}

ht_session *ht_run_session(ht_run *run)
{
    return run->job.session;
}

ht_data *ht_run_data(ht_run *run)
{
    return run->job.data;
}

ht_run_view ht_run_look(ht_run *run)
{
    return (ht_run_view){&run->job, &run->request, &run->binding, run->train, run->step};
}

/* ---- step ---- */

static ht_status run_micro(ht_run *run, int64_t index)
{
    ht_bound_batch batch;
    HT_TRY(ht_batch_binding_micro(&run->binding, run->train, index, &batch));
    int segment = index == 0 ? batch.shape->first : batch.shape->micro;
    HT_TRY(ht_session_start_segment(run->job.session, (size_t)segment, batch.slot));
    return ht_step_records_micro(run->records, index);
}

/* Training cannot go on: why, and the first value that went wrong. */
static ht_status fail_for_good(ht_run *run, const ht_step_report *r, int64_t in_a_row)
{
    ht_text first = {0};
    /* Where the replay fails, too, its reason stands in the same place. */
    bool found = ht_first_nonfinite(run, r->step, &first) == HT_OK && !first.failed && first.data;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", found ? first.data : ht_context_message(run->ctx));
    ht_text_free(&first);
    if (is_dynamic(run))
        HT_FAIL(run->ctx, HT_ENOTSUP,
                "the gradients of step %" PRId64
                " were not finite (loss %g) with the smallest loss scale, %g: training cannot go on: %s",
                r->step, r->loss, r->loss_scale, reason);
    HT_FAIL(run->ctx, HT_ENOTSUP,
            "the gradients of %" PRId64 " steps in a row, up to step %" PRId64
            ", were not finite (loss %g, loss scale %g): training cannot go on; a smaller %s may help: %s",
            in_a_row, r->step, r->loss, r->loss_scale,
            r->loss_scale > 1 ? "train.loss_scale" : "train.lr or train.clip", reason);
}

static ht_status judge_skip(ht_run *run, const ht_step_report *r, const ht_step_record *record)
{
    char now[64] = "";
    if (!r->skipped) return HT_OK;
    if (record->next_loss_scale != r->loss_scale)
        snprintf(now, sizeof now, "; the loss scale is now %g", record->next_loss_scale);
    note(run, "step %" PRId64 " is skipped: its gradients are not finite (loss %g, %.0f in a row)%s", r->step, r->loss,
         record->skips_in_a_row, now);
    return record->fatal != 0 ? fail_for_good(run, r, (int64_t)record->skips_in_a_row) : HT_OK;
}

static ht_step_report report_of(ht_run *run, const ht_step_record *record)
{
    const ht_step_start *start = &record->start;
    /* A device that is never idle begins a step when it is done with the one before. */
    double begin = record->begin_seconds > run->last_end ? record->begin_seconds : run->last_end;
    run->last_end = record->end_seconds;
    return (ht_step_report){
        .step = start->step,
        .steps = run->job.steps,
        .epoch = (double)start->position / (double)ht_data_info_of(run->job.data)->parts[HT_DATA_TRAIN].batches,
        .loss = record->loss_sum / (record->count > 0 ? record->count : 1),
        .lr = record->lr,
        .grad_norm = record->grad_norm,
        .loss_scale = record->loss_scale,
        .tokens_per_second = (double)start->counted / (record->end_seconds - begin),
        .step_ms = 1e3 * (record->end_seconds - begin),
        .micro_ms = 1e3 * (record->micro_seconds - begin),
        .update_ms = 1e3 * (record->end_seconds - record->micro_seconds),
        .plan_bytes = ht_plan_bytes(run->job.plan),
        .process_peak_bytes = ht_process_peak_bytes(),
        .syncs = start->syncs,
        .skipped = record->applied_now == 0,
        .skips = start->step - (int64_t)record->applied,
    };
}

/* What steps that are done have left to tell. */
static ht_status read_records(ht_run *run, ht_step_report *last)
{
    ht_step_record record;
    for (bool taken;;) {
        HT_TRY(ht_step_records_take(run->records, &record, &taken));
        if (!taken) return HT_OK;
        ht_step_report report = report_of(run, &record);
        if (last) *last = report;
        HT_TRY(ht_metrics_step(run->metrics, &report));
        if (run->request.on_step) run->request.on_step(run->request.arg, &report);
        HT_TRY(judge_skip(run, &report, &record));
    }
}

/* All steps so far are done and recorded. */
static ht_status catch_up(ht_run *run)
{
    if (!run->records) return HT_OK;
    HT_TRY(ht_step_records_wait(run->records, 0));
    return read_records(run, NULL);
}

/* All micro-batches of a step, or none: when the caller's flag is set between two of them, everything but the gradients
 * is again as it was before the first, and *dropped says so. */
static ht_status run_micros(ht_run *run, bool *dropped)
{
    uint64_t position = ht_loader_position(run->train);
    *dropped = false;
    if (run->can_drop) HT_TRY(ht_rollback_mark(run->job.session));
    for (int64_t i = 0; i < run->job.train_config->accumulate; i++) {
        *dropped = i > 0 && run->can_drop && is_stopped(run);
        if (*dropped) break;
        HT_TRY(run_micro(run, i));
    }
    if (!*dropped) return HT_OK;
    HT_TRY(ht_rollback_restore(run->job.session));
    ht_loader_seek(run->train, position);
    return HT_OK;
}

ht_status ht_run_step(ht_run *run, ht_step_report *report, bool *dropped)
{
    if (!run->train) HT_FAIL(run->ctx, HT_EINVAL, "a run that was opened to evaluate makes no steps");
    const ht_device *device = ht_executor_device(run->job.session->executor);
    int64_t counted = ht_loader_counted(run->train, run->job.train_config->accumulate), syncs = device->syncs;
    HT_TRY(ht_step_records_begin(run->records));
    ht_batch_binding_step(&run->binding, &run->job, counted);
    HT_TRY(run_micros(run, dropped));
    if (*dropped) return HT_OK;
    HT_TRY(ht_step_records_update(run->records));
    HT_TRY(ht_session_start_segment(run->job.session, (size_t)run->update, 0));
    run->step++;
    ht_step_start start = {.step = run->step, .counted = counted, .position = ht_loader_position(run->train)};
    HT_TRY(ht_step_records_end(run->records, &start));
    HT_TRY(ht_step_records_wait(run->records, report ? 0 : HT_STEPS_UNREAD - 1));
    ht_step_records_syncs(run->records, device->syncs - syncs);
    return read_records(run, report);
}

static bool is_due(int64_t step, int64_t every)
{
    return every > 0 && step % every == 0;
}

/* What a step leaves to do: evaluate, save. */
static ht_status finish_step(ht_run *run, bool stopped)
{
    const ht_train_config *train_config = run->job.train_config;
    bool last = run->step == run->job.steps;
    if (last || is_due(run->step, train_config->eval_every)) HT_TRY(ht_run_evaluate(run, NULL));
    if (last || stopped || is_due(run->step, train_config->snapshot_every)) HT_TRY(ht_run_snapshot(run));
    if (stopped) note(run, "stopped after step %" PRId64 " of %" PRId64 ", with a snapshot", run->step, run->job.steps);
    return HT_OK;
}

/* The snapshot of the last complete step may be there already. */
static ht_status give_up_step(ht_run *run)
{
    if (run->saved_step != run->step) HT_TRY(ht_run_snapshot(run));
    note(run, "stopped in the middle of step %" PRId64 " of %" PRId64 ", with a snapshot of step %" PRId64,
         run->step + 1, run->job.steps, run->step);
    return HT_OK;
}

ht_status ht_run_train(ht_run *run, bool *stopped)
{
    double start = seconds();
    *stopped = false;
    if (run->step >= run->job.steps) note(run, "all %" PRId64 " steps are made", run->job.steps);
    while (run->step < run->job.steps && !*stopped) {
        bool dropped;
        if (run->numerics) HT_TRY(ht_numerics_before(run->numerics, run->step + 1, run->step + 1 == run->job.steps));
        HT_TRY(ht_run_step(run, NULL, &dropped));
        *stopped = dropped || (run->step < run->job.steps && is_stopped(run));
        HT_TRY(dropped ? give_up_step(run) : finish_step(run, *stopped));
    }
    HT_TRY(catch_up(run));
    run->seconds = seconds() - start;
    ht_end_report end = ht_run_end(run);
    return ht_metrics_end(run->metrics, &end);
}

/* ---- evaluate ---- */

/* A model that carries its state from batch to batch begins the validation text with none. */
static ht_status clear_carry(ht_run *run)
{
    const ht_plan *plan = run->job.plan;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (slot->kind != HT_SLOT_STATE || strncmp(slot->name, "carry.eval", 10) != 0) continue;
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        void *zero = calloc(1, bytes + 1);
        ht_status status = zero ? ht_session_write(run->job.session, slot->name, zero, bytes)
                                : ht_fail(run->ctx, HT_ENOMEM, "out of memory for an evaluation");
        free(zero);
        HT_TRY(status);
    }
    return HT_OK;
}

enum { EVALS_IN_FLIGHT = 32, EVAL_NUMBERS = 3, NUMBER_BYTES = 8 };

/* Losses, counts and right answers of batches that the host has not waited for yet, and the sums of the others. */
typedef struct eval_sums {
    const ht_slot *slots[EVAL_NUMBERS]; /* NULL: the model has none */
    char cells[EVALS_IN_FLIGHT][EVAL_NUMBERS][NUMBER_BYTES];
    double total[EVAL_NUMBERS];
} eval_sums;

static ht_status fetch_eval(ht_run *run, eval_sums *sums, int64_t batch)
{
    for (int i = 0; i < EVAL_NUMBERS; i++)
        if (sums->slots[i])
            HT_TRY(ht_executor_fetch(run->job.session->executor, sums->slots[i]->place,
                                     sums->cells[batch % EVALS_IN_FLIGHT][i],
                                     (size_t)ht_type_bytes(&sums->slots[i]->type)));
    return HT_OK;
}

static ht_status add_evals(ht_run *run, eval_sums *sums, int64_t batches)
{
    HT_TRY(ht_executor_sync(run->job.session->executor));
    for (int64_t b = 0; b < batches; b++)
        for (int i = 0; i < EVAL_NUMBERS; i++)
            if (sums->slots[i]) sums->total[i] += ht_load_f64(sums->cells[b][i], sums->slots[i]->type.dtype, 0);
    return HT_OK;
}

static ht_status sum_evals(ht_run *run, int64_t batches, eval_sums *sums)
{
    HT_TRY(clear_carry(run));
    ht_loader_seek(run->validation, 0);
    for (int64_t i = 0; i < batches; i++) {
        ht_bound_batch batch;
        HT_TRY(ht_batch_binding_next(&run->binding, run->validation, &batch));
        HT_TRY(ht_session_start_segment(run->job.session, (size_t)batch.shape->eval, batch.slot));
        HT_TRY(fetch_eval(run, sums, i));
        if (i + 1 == batches || i % EVALS_IN_FLIGHT == EVALS_IN_FLIGHT - 1)
            HT_TRY(add_evals(run, sums, i % EVALS_IN_FLIGHT + 1));
    }
    return HT_OK;
}

static ht_status evaluate(ht_run *run, int64_t batches, ht_eval_report *r)
{
    eval_sums sums = {.slots = {ht_plan_slot(run->job.plan, "loss_sum"), ht_plan_slot(run->job.plan, "count"),
                                ht_plan_slot(run->job.plan, "correct")}};
    ht_status status = sum_evals(run, batches, &sums);
    if (status != HT_OK) {
        /* The device may still write into the sums. */
        ht_executor_drain(run->job.session->executor);
        return status;
    }
    bool tokens = run->job.task != HT_TASK_CLASS && run->job.task != HT_TASK_REGRESSION;
    double loss = sums.total[0], count = sums.total[1], correct = sums.total[2];
    r->count = (int64_t)count;
    r->loss = count > 0 ? loss / count : NAN;
    r->perplexity = tokens ? exp(r->loss) : NAN;
    r->accuracy = sums.slots[2] && count > 0 ? correct / count : NAN;
    return HT_OK;
}

ht_status ht_run_evaluate(ht_run *run, ht_eval_report *report)
{
    HT_TRY(catch_up(run));
    double start = seconds();
    ht_eval_report r = {.step = run->step, .loss = NAN, .perplexity = NAN, .accuracy = NAN};
    int64_t batches = ht_data_info_of(run->job.data)->parts[HT_DATA_VALIDATION].batches;
    int64_t most = run->job.train_config->eval_batches;
    if (most > 0 && most < batches) batches = most;
    if (run->validation) HT_TRY(evaluate(run, batches, &r));
    r.seconds = seconds() - start;
    if (report) *report = r;
    if (r.count == 0) return HT_OK;
    if (run->metrics) HT_TRY(ht_metrics_eval(run->metrics, &r));
    if (run->request.on_eval) run->request.on_eval(run->request.arg, &r);
    return HT_OK;
}

/* ---- snapshot ---- */

ht_status ht_run_snapshot(ht_run *run)
{
    HT_TRY(catch_up(run));
    const ht_train_config *train_config = run->job.train_config;
    ht_text config = {0}, extra = {0};
    ht_json_writer json = {.text = &extra};
    ht_json_begin_object(&json, NULL);
    ht_json_put_int(&json, "micro_batch", train_config->micro_batch);
    ht_json_put_int(&json, "dynamic_loss_scale", is_dynamic(run));
    ht_json_end_object(&json);
    ht_config_print_json(&config, run->job.config);
    ht_snapshot_meta meta = {
        .step = run->step,
        .position = ht_loader_position(run->train),
        .seed = train_config->seed,
        .model_hash = run->job.plan->model_hash,
        .config_json = config.failed ? NULL : config.data,
        .extra = extra.failed ? NULL : extra.data,
    };
    int keep = train_config->keep < INT32_MAX ? (int)train_config->keep : INT32_MAX;
    ht_status status = ht_snapshot_write(run->job.session, run->snapshots, &meta, keep);
    ht_text_free(&config);
    ht_text_free(&extra);
    HT_TRY(status);
    run->saved_step = run->step;
    return ht_metrics_flush(run->metrics);
}

/* ---- close ---- */

ht_status ht_run_close(ht_run *run)
{
    if (!run) return HT_OK;
    ht_status status = ht_metrics_close(run->metrics), numerics = ht_numerics_close(run->numerics);
    if (status == HT_OK) status = numerics;
    ht_batch_binding_close(&run->binding);
    ht_loader_free(run->train);
    ht_loader_free(run->validation);
    ht_step_records_free(run->records);
    ht_job_close(&run->job);
    free(run->folder);
    free(run->snapshots);
    free(run);
    return status;
}
