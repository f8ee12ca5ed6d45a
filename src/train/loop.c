/* The loop of a run: steps of micro-batches, evaluation, snapshots. Resuming gives the same bits as never having stopped: a batch is
 * a function of its number, random numbers of the step's, and everything else is in the session's state. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "train/check_replicas.h"
#include "train/process_memory.h"
#include "train/rollback.h"
#include "train/run_state.h"
#include "train/snapshot.h"

double ht_run_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_stopped(const ht_run *run)
{
    return run->request.stop && *run->request.stop;
}

/* Ranks stop before the same step, whichever of them was asked to. */
static ht_status ask_to_stop(ht_run *run, bool *stopped)
{
    *stopped = is_stopped(run);
    return ht_ranks_any(&run->ranks, run->ctx, stopped);
}

/* From now on a rank that is asked to stop waits for the others no longer than so many seconds: one may be dead. */
static void watch_stop(const ht_run *run, double seconds)
{
    if (run->request.comm) ht_comm_watch_stop(run->request.comm, run->request.stop, seconds);
}

static const double STOP_S = 5, UNTIMED_S = 20; /* of what has not been timed yet, or is not known at all */
static const double SAVED_PER_S = 20e6;         /* bytes that a slow disk takes */

void ht_run_watch_opening(const ht_run *run)
{
    watch_stop(run, UNTIMED_S);
}

/* The slowest step so far, twice over, and some seconds. */
static void watch_steps(const ht_run *run)
{
    watch_stop(run, run->longest_step > 0 ? STOP_S + 2 * run->longest_step : UNTIMED_S);
}

/* While a snapshot is written, which is what a stop is for, others than the first rank wait for it to write. */
static void watch_saving(const ht_run *run)
{
    if (!run->leads)
        watch_stop(run, UNTIMED_S + 2 * run->longest_step + (double)ht_plan_bytes(run->job.plan) / SAVED_PER_S);
}

/* ---- step ---- */

static ht_status run_micro(ht_run *run, int64_t index)
{
    ht_bound_batch batch;
    double begin = ht_run_clock();
    HT_TRY(ht_batch_binding_micro(&run->binding, run->train, index, &batch));
    ht_profile_span(run->profile, HT_PHASE_DATA, begin, ht_run_clock());
    int segment = index == 0 ? batch.shape->first : batch.shape->micro;
    bool last = index + 1 == run->job.train_config->accumulate && run->exchange != HT_NO_SEGMENT;
    HT_TRY(last ? ht_session_start_before(run->job.session, (size_t)segment, batch.slot, (size_t)run->exchange)
                : ht_session_start_segment(run->job.session, (size_t)segment, batch.slot));
    return ht_step_records_micro(run->records, index);
}

/* The first value of the step that went wrong; of several ranks each looks at its own micro-batches. */
static ht_status find_reason(ht_run *run, int64_t step, char *reason, size_t capacity)
{
    ht_text first = {0};
    bool found = false;
    /* Where the replay fails, too, its reason stands in the same place. */
    bool told = ht_first_nonfinite(run, step, &first, &found) == HT_OK && !first.failed && first.data;
    const char *text = told ? first.data : ht_context_message(run->ctx);
    if (run->ranks.size == 1)
        snprintf(reason, capacity, "%s", text);
    else
        snprintf(reason, capacity, "on rank %" PRId64 " %s", run->ranks.rank, text);
    ht_text_free(&first);
    return ht_ranks_text(&run->ranks, run->ctx, reason, capacity, &found);
}

/* Training cannot go on: why, and the first value that went wrong. */
static ht_status fail_for_good(ht_run *run, const ht_step_report *r, int64_t in_a_row)
{
    char reason[512];
    HT_TRY(find_reason(run, r->step, reason, sizeof reason));
    if (ht_run_is_dynamic(run))
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
    char now[64] = "", where[64] = "";
    if (!r->skipped) return HT_OK;
    if (record->bad_rank < (double)run->ranks.size) snprintf(where, sizeof where, " on rank %.0f", record->bad_rank);
    if (record->next_loss_scale != r->loss_scale)
        snprintf(now, sizeof now, "; the loss scale is now %g", record->next_loss_scale);
    ht_run_note(run, "step %" PRId64 " is skipped: its gradients are not finite%s (loss %g, %.0f in a row)%s", r->step,
                where, r->loss, record->skips_in_a_row, now);
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
        .exchange = start->exchange,
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
        if (run->first_step > 0 && report.step == run->first_step + 1) ht_run_judge_rate(run, &report);
        run->last_lr = report.lr;
        HT_TRY(ht_metrics_step(run->metrics, &report));
        if (run->request.on_step) run->request.on_step(run->request.arg, &report);
        HT_TRY(judge_skip(run, &report, &record));
    }
}

ht_status ht_run_catch_up(ht_run *run)
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
    if (ht_plan_is_stage(run->job.plan)) return ht_run_stage(run);
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

/* Of the step that ends here. */
static ht_exchange_report count_exchanges(ht_run *run)
{
    ht_exchange_totals now = ht_ranks_exchanged(&run->ranks, run->job.session, run->request.comm);
    const ht_exchange_totals *before = &run->exchanged;
    ht_exchange_totals step = {now.seconds - before->seconds, now.waited - before->waited, now.bytes - before->bytes};
    run->exchanged = now;
    run->in_steps.seconds += step.seconds;
    run->in_steps.waited += step.waited;
    run->in_steps.bytes += step.bytes;
    return ht_ranks_report(&run->ranks, run->job.session, &step);
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
    if (run->exchange != HT_NO_SEGMENT) HT_TRY(ht_session_start_segment(run->job.session, (size_t)run->exchange, 0));
    HT_TRY(ht_step_records_update(run->records));
    HT_TRY(ht_session_start_segment(run->job.session, (size_t)run->update, 0));
    if (run->gather != HT_NO_SEGMENT) HT_TRY(ht_session_start_segment(run->job.session, (size_t)run->gather, 0));
    run->step++;
    ht_step_start start = {.step = run->step, .counted = counted, .position = ht_loader_position(run->train)};
    start.exchange = count_exchanges(run);
    HT_TRY(ht_step_records_end(run->records, &start));
    HT_TRY(ht_step_records_wait(run->records, report ? 0 : HT_STEPS_UNREAD - 1));
    ht_step_records_syncs(run->records, device->syncs - syncs);
    double begin = ht_run_clock();
    ht_status status = read_records(run, report);
    ht_profile_span(run->profile, HT_PHASE_RECORDS, begin, ht_run_clock());
    return status;
}

/* The step that the caller wants to see measured. */
static ht_status profile_step(ht_run *run, bool *dropped)
{
    ht_profile *profile;
    HT_TRY(ht_run_catch_up(run));
    HT_TRY(ht_profile_open(&profile, run, 1, 0));
    ht_status status = ht_profile_step(profile, dropped);
    if (status == HT_OK && !*dropped) status = ht_profile_finish(profile);
    if (status == HT_OK && !*dropped && run->request.on_profile) run->request.on_profile(run->request.arg, profile);
    ht_profile_free(profile);
    return status;
}

static ht_status make_step(ht_run *run, bool *dropped)
{
    bool profiled = run->request.profile_step == run->step + 1;
    return profiled ? profile_step(run, dropped) : ht_run_step(run, NULL, dropped);
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
    if (is_due(run->step, train_config->check_replicas)) HT_TRY(ht_run_check_replicas(run));
    if (last || is_due(run->step, train_config->eval_every)) HT_TRY(ht_run_evaluate(run, NULL));
    if (last || stopped || is_due(run->step, train_config->snapshot_every)) HT_TRY(ht_run_snapshot(run));
    if (is_due(run->step, train_config->check_replicas) || is_due(run->step, train_config->eval_every))
        run->exchanged = ht_ranks_exchanged(&run->ranks, run->job.session, run->request.comm);
    if (stopped)
        ht_run_note(run, "stopped after step %" PRId64 " of %" PRId64 ", with a snapshot", run->step, run->job.steps);
    return HT_OK;
}

/* The snapshot of the last complete step may be there already. */
static ht_status save_last(ht_run *run)
{
    return run->saved_step == run->step ? HT_OK : ht_run_snapshot(run);
}

static ht_status stop_before_step(ht_run *run)
{
    HT_TRY(save_last(run));
    ht_run_note(run, "stopped before step %" PRId64 " of %" PRId64 ", with a snapshot", run->step + 1, run->job.steps);
    return HT_OK;
}

static ht_status give_up_step(ht_run *run)
{
    HT_TRY(save_last(run));
    ht_run_note(run, "stopped in the middle of step %" PRId64 " of %" PRId64 ", with a snapshot of step %" PRId64,
                run->step + 1, run->job.steps, run->step);
    return HT_OK;
}

/* A device that failed does nothing more: the run goes on from its newest snapshot, in another process. */
static ht_status name_step(const ht_run *run, int64_t step, ht_status status)
{
    char saved[64] = "there is no snapshot yet";
    if (status != HT_EDEVICE) return status;
    if (run->saved_step >= 0)
        snprintf(saved, sizeof saved, "the newest snapshot is that of step %" PRId64, run->saved_step);
    return ht_fail(run->ctx, status, "step %" PRId64 ": %s; %s", step, ht_context_message(run->ctx), saved);
}

ht_status ht_run_train(ht_run *run, bool *stopped)
{
    double start = ht_run_clock();
    *stopped = false;
    if (run->step >= run->job.steps) ht_run_note(run, "all %" PRId64 " steps are made", run->job.steps);
    while (run->step < run->job.steps && !*stopped) {
        bool dropped;
        int64_t step = run->step + 1;
        /* It may have come while the run was opened. */
        HT_TRY(ask_to_stop(run, stopped));
        if (*stopped) {
            HT_TRY(stop_before_step(run));
            break;
        }
        watch_steps(run);
        double begin = ht_run_clock();
        if (run->numerics) HT_TRY(ht_numerics_before(run->numerics, step, step == run->job.steps));
        HT_TRY(name_step(run, step, make_step(run, &dropped)));
        if (ht_run_clock() - begin > run->longest_step) run->longest_step = ht_run_clock() - begin;
        *stopped = dropped || (run->ranks.size == 1 && run->step < run->job.steps && is_stopped(run));
        HT_TRY(name_step(run, step, dropped ? give_up_step(run) : finish_step(run, *stopped)));
    }
    HT_TRY(name_step(run, run->step, ht_run_catch_up(run)));
    HT_TRY(ht_ranks_meet(&run->ranks, run->ctx)); /* nobody leaves while another still saves */
    run->seconds = ht_run_clock() - start;
    ht_end_report end = ht_run_end(run);
    return ht_metrics_end(run->metrics, &end);
}

/* ---- snapshot ---- */

static ht_status write_snapshot(ht_run *run)
{
    const ht_train_config *train_config = run->job.train_config;
    ht_text config = {0}, extra = {0};
    ht_run_print_extra(run, &extra);
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
    ht_status status = ht_snapshot_write_ranks(run->job.session, &run->ranks, run->snapshots, &meta, keep);
    ht_text_free(&config);
    ht_text_free(&extra);
    return status;
}

ht_status ht_run_snapshot(ht_run *run)
{
    HT_TRY(ht_run_catch_up(run));
    watch_saving(run);
    HT_TRY(run->leads ? write_snapshot(run) : ht_snapshot_serve(run->job.session, &run->ranks));
    HT_TRY(ht_ranks_meet(&run->ranks, run->ctx)); /* nobody waits in the next step while another still saves */
    watch_steps(run);
    run->saved_step = run->step;
    return ht_metrics_flush(run->metrics);
}
