/* Opening and closing a run: its folder, job, loaders, records. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/folder.h"
#include "train/init_from.h"
#include "train/process_memory.h"
#include "train/run_state.h"
#include "train/snapshot_parts.h"
#include "train/snapshot_tensors.h"

void ht_run_note(const ht_run *run, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!run->request.on_note) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run->request.on_note(run->request.arg, line);
}

bool ht_run_is_dynamic(const ht_run *run)
{
    return strcmp(run->job.train_config->loss_scale, "dynamic") == 0;
}

static bool carries_state(const ht_plan *plan)
{
    for (size_t i = 0; i < plan->slot_count; i++)
        if (plan->slots[i].kind == HT_SLOT_STATE && strncmp(plan->slots[i].name, "carry.eval", 10) == 0) return true;
    return false;
}

static ht_status open_loaders(ht_run *run)
{
    const ht_data_info *info = ht_data_info_of(run->job.data);
    const ht_field *ahead = ht_fields_find(ht_config_block(run->job.config, "data"), "prefetch");
    bool prefetch = ahead && ahead->value->kind == HT_JSON_BOOL && ahead->value->boolean;
    if (!ht_mode_reads_only(run->request.mode) || run->request.mode == HT_RUN_CALIBRATE)
        HT_TRY(
            ht_loader_open_share(&run->train, run->job.data, HT_DATA_TRAIN, prefetch, run->job.rank, run->job.ranks));
    if (info->parts[HT_DATA_VALIDATION].batches < 1) return HT_OK;
    /* Where ranks gather parameters, all of them take part in every batch; where state goes from batch to batch, each
     * evaluates all of them. */
    bool shared = run->job.options.zero.stage < 3 && !carries_state(run->job.plan);
    run->eval_rank = shared ? run->job.rank : 0;
    run->eval_ranks = shared ? run->job.ranks : 1;
    return ht_loader_open_share(&run->validation, run->job.data, HT_DATA_VALIDATION, false, run->eval_rank,
                                run->eval_ranks);
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
    if (run->leads && run->request.mode == HT_RUN_FORCE) HT_TRY(ht_folder_claim(run->ctx, run->folder, HT_RUN_FORCE));
    if (run->leads) HT_TRY(ht_folder_record(run->ctx, run->folder, &run->job));
    if (run->leads) HT_TRY(ht_metrics_open(&run->metrics, run->ctx, run->job.config, run->folder, run->step));
    if (run->request.numerics < 1) return HT_OK;
    if (ht_plan_is_stage(run->job.plan))
        HT_FAIL(run->ctx, HT_ENOTSUP, "--numerics with halftone.parallel.pipeline above 1 is not there yet");
    return ht_numerics_open(&run->numerics, run, run->leads ? run->folder : NULL, run->step, run->request.numerics);
}

/* A snapshot is written before the one that it replaces is removed. */
static ht_status check_space(ht_run *run)
{
    const ht_train_config *c = run->job.train_config;
    bool several = c->snapshot_every > 0 && c->snapshot_every < run->job.steps;
    if (!ht_plan_bytes_in(run->job.plan, HT_SPACE_DISK)) return HT_OK;
    return ht_snapshot_check_space(run->job.plan, run->folder, run->snapshots, several ? 2 : 1);
}

/* Held until the run is closed, by all who write: nobody goes on with a run, or removes it, while it lives. */
static ht_status lock_folder(ht_run *run)
{
    char *before;
    if (ht_mode_reads_only(run->request.mode) || !run->leads) return HT_OK;
    HT_TRY(ht_run_lock_take(&run->lock, run->ctx, run->folder, &before));
    if (before) ht_run_note(run, "%s: %s ended without releasing its lock, which is taken over", run->folder, before);
    free(before);
    return HT_OK;
}

/* Stages of a pipeline have plans of different sizes. */
static ht_status sum_plans(ht_run *run)
{
    const ht_plan *plan = run->job.plan;
    int64_t staging;
    HT_TRY(ht_snapshot_staging_bytes(&staging, plan, &run->ranks));
    run->job.reserve.bytes[HT_RESERVE_STAGING] += staging;
    int64_t memory = ht_plan_bytes(plan) - ht_device_bytes(run->job.session) - ht_plan_bytes_in(plan, HT_SPACE_DISK);
    double sums[2] = {(double)memory, (double)ht_reserve_sum(&run->job.reserve)};
    HT_TRY(ht_ranks_sum(&run->ranks, run->ctx, sums, 2));
    run->ranks_memory_bytes = (int64_t)sums[0];
    run->ranks_reserve_bytes = (int64_t)sums[1];
    return HT_OK;
}

static ht_status set_up(ht_run *run)
{
    ht_run_mode mode = run->request.mode;
    const char *folder = run->request.folder ? run->request.folder : ht_config_train(run->request.config)->output;
    bool reads_only = ht_mode_reads_only(mode), again = mode == HT_RUN_RESUME || reads_only;
    ht_run_watch_opening(run);
    HT_TRY(ht_ranks_open(&run->ranks, run->ctx, &run->request));
    run->leads = run->ranks.rank == 0;
    if (!(run->folder = strdup(folder))) HT_FAIL(run->ctx, HT_ENOMEM, "out of memory for a run");
    HT_TRY(ht_folder_path(run->ctx, &run->snapshots, folder, "snapshots"));
    HT_TRY(of_output(run, lock_folder(run)));
    if (mode == HT_RUN_NEW && run->leads) HT_TRY(of_output(run, ht_folder_claim(run->ctx, folder, mode)));
    HT_TRY(ht_ranks_meet(&run->ranks, run->ctx)); /* the folder is as the first rank wants it */
    if (again) HT_TRY(of_output(run, ht_run_check_folder(run)));
    HT_TRY(ht_job_open(&run->job, run->ctx, &run->request, again ? folder : NULL));
    HT_TRY(ht_ranks_agree(&run->ranks, &run->job));
    HT_TRY(sum_plans(run));
    HT_TRY(open_loaders(run));
    if (mode != HT_RUN_PREDICT) HT_TRY(ht_batch_binding_open(&run->binding, &run->job, run->job.session));
    if (reads_only && run->request.init_weights) return ht_init_from_load(&run->job, &run->request, folder);
    if (again) HT_TRY(of_output(run, ht_run_restore(run)));
    if (reads_only) return HT_OK;
    /* What goes on from a snapshot has its weights there. */
    if (run->saved_step < 0) HT_TRY(ht_init_from_load(&run->job, &run->request, folder));
    if (run->leads) HT_TRY(of_output(run, check_space(run)));
    run->update = ht_plan_segment_find(run->job.plan, "update");
    HT_TRY(ht_step_records_open(&run->records, run->job.session, run->job.train_config->accumulate));
    run->exchange = ht_plan_segment_find(run->job.plan, "exchange");
    run->gather = ht_plan_segment_find(run->job.plan, "gather");
    run->can_drop = run->request.stop && run->job.train_config->accumulate > 1 && run->ranks.size == 1;
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
    run->last_lr = NAN;
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
        .device = plan->device,
        .device_model = plan->target.name,
        .task = run->job.task,
        .parameters = run->job.parameters,
        .frozen = run->job.frozen,
        .plan_bytes = ht_plan_bytes(plan),
        .reserve_bytes = ht_reserve_sum(&run->job.reserve),
        .bytes = ht_plan_byte_table(plan),
        .steps = run->job.steps,
        .first_step = run->first_step,
        .model_hash = plan->model_hash,
        .validates = ht_data_info_of(run->job.data)->parts[HT_DATA_VALIDATION].batches > 0,
    };
    return info;
}

ht_end_report ht_run_end(const ht_run *run)
{
    return (ht_end_report){
        .step = run->step,
        .seconds = run->seconds,
        .plan_bytes = ht_plan_bytes(run->job.plan),
        .device_bytes = ht_device_bytes(run->job.session),
        .disk_bytes = ht_plan_bytes_in(run->job.plan, HT_SPACE_DISK),
        .process_peak_bytes = ht_process_peak_bytes(),
        .reserve = run->job.reserve,
        .steps = run->step - run->first_step,
        .exchange = ht_ranks_report(&run->ranks, run->job.session, &run->in_steps),
        .ranks_memory_bytes = run->ranks_memory_bytes,
        .ranks_reserve_bytes = run->ranks_reserve_bytes,
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

const ht_inputs *ht_run_inputs(const ht_run *run)
{
    return run->job.inputs;
}

int64_t ht_run_batch(const ht_run *run)
{
    return run->job.batch;
}

ht_run_view ht_run_look(ht_run *run)
{
    return (ht_run_view){&run->job, &run->request, &run->binding, run->train, run->step};
}

/* ---- close ---- */

ht_status ht_run_close(ht_run *run)
{
    if (!run) return HT_OK;
    if (run->request.comm) ht_comm_watch_stop(run->request.comm, NULL, 0); /* the flag is the caller's */
    ht_status status = ht_metrics_close(run->metrics), numerics = ht_numerics_close(run->numerics);
    if (status == HT_OK) status = numerics;
    ht_batch_binding_close(&run->binding);
    ht_loader_free(run->train);
    ht_loader_free(run->validation);
    ht_step_records_free(run->records);
    ht_job_close(&run->job);
    ht_run_lock_release(run->lock);
    free(run->folder);
    free(run->snapshots);
    free(run);
    return status;
}
