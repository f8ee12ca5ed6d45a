/* Going on from a snapshot: which one, what it must fit, and its state. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train/config_changes.h"
#include "train/folder.h"
#include "train/run_state.h"
#include "train/snapshot_folder.h"

static ht_status read_number(const ht_run *run, const char *name, double *out)
{
    return ht_session_read_f64(run->job.session, name, out, 1);
}

/* ---- what a snapshot says of its run ---- */

typedef struct saved_run {
    ht_snapshot_meta *meta;
    const ht_json *extra; /* NULL: nothing */
    ht_arena *arena;
    ht_config_changes changes; /* since then */
} saved_run;

static const char *const part_keys[HT_DATA_PARTS] = {"train", "validation"};

void ht_run_print_extra(const ht_run *run, ht_text *text)
{
    const ht_data_fingerprint *print = ht_data_fingerprint_of(run->job.data);
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_int(&json, "batch", run->job.train_config->batch);
    ht_json_put_int(&json, "micro_batch", run->job.train_config->micro_batch);
    ht_json_put_int(&json, "dynamic_loss_scale", ht_run_is_dynamic(run));
    ht_json_put_int(&json, "steps", run->job.steps);
    ht_json_put_number(&json, "lr", run->last_lr);
    ht_folder_list(&json, "files", &run->job);
    ht_json_begin_object(&json, "data");
    for (int part = 0; part < HT_DATA_PARTS; part++)
        if (print->files[part] > 0) ht_json_put_hash(&json, part_keys[part], print->hashes[part]);
    ht_json_end_object(&json);
    ht_json_end_object(&json);
}

static ht_status open_saved(saved_run *out, ht_context *ctx, const char *path)
{
    *out = (saved_run){.arena = ht_arena_create()};
    if (!out->arena) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a snapshot");
    HT_TRY(ht_snapshot_look(ctx, path, &out->meta));
    const char *extra = out->meta->extra;
    return extra ? ht_json_parse(ctx, out->arena, path, extra, strlen(extra), &out->extra) : HT_OK;
}

static void close_saved(saved_run *saved)
{
    ht_snapshot_meta_free(saved->meta);
    ht_arena_free(saved->arena);
    ht_config_changes_free(&saved->changes);
}

static int64_t extra_number(const ht_json *extra, const char *name, int64_t otherwise)
{
    int64_t number;
    const ht_json *value = ht_json_get(extra, name);
    return value && ht_json_as_int(value, &number) ? number : otherwise;
}

/* ---- what it must fit ---- */

/* A position counts micro-batches. Where steps have the same batches as before, however they are cut and shared among ranks,
 * it is that of the same step. */
static bool is_cut_anew(const ht_run *run, const saved_run *saved)
{
    const ht_train_config *train_config = run->job.train_config;
    int64_t micro_batch = extra_number(saved->extra, "micro_batch", 0);
    if (micro_batch < 1 || micro_batch == train_config->micro_batch) return false;
    return extra_number(saved->extra, "batch", 0) == train_config->batch && train_config->batch % micro_batch == 0;
}

static uint64_t position_of(const ht_run *run, const saved_run *saved)
{
    uint64_t position = saved->meta->position;
    if (!is_cut_anew(run, saved)) return position;
    int64_t before = run->job.train_config->batch / extra_number(saved->extra, "micro_batch", 1);
    int64_t now = run->job.train_config->accumulate * run->job.ranks;
    return position / (uint64_t)before * (uint64_t)now;
}

static ht_status check_saved(const ht_run *run, const saved_run *saved, const char *path)
{
    const ht_train_config *train_config = run->job.train_config;
    int64_t micro_batch = extra_number(saved->extra, "micro_batch", train_config->micro_batch);
    if (micro_batch != train_config->micro_batch && !is_cut_anew(run, saved))
        HT_FAIL(run->ctx, HT_EINVAL,
                "%s was made with train.micro_batch %" PRId64 ", not %" PRId64 ": its place in the data would be lost",
                path, micro_batch, train_config->micro_batch);
    if (saved->meta->seed != train_config->seed)
        HT_FAIL(run->ctx, HT_EINVAL, "%s was made with train.seed %" PRIu64 ", not %" PRIu64, path, saved->meta->seed,
                train_config->seed);
    return HT_OK;
}

/* ---- its data ---- */

/* Is the part's fingerprint another one? Older programs recorded none. */
static bool is_changed(const ht_run *run, const saved_run *saved, ht_data_part part)
{
    const ht_data_fingerprint *print = ht_data_fingerprint_of(run->job.data);
    const ht_json *data = ht_json_get(saved->extra, "data"), *was = ht_json_get(data, part_keys[part]);
    char now[24] = "";
    if (print->files[part] > 0) snprintf(now, sizeof now, "%016" PRIx64, print->hashes[part]);
    return data && strcmp(was && was->kind == HT_JSON_STRING ? was->text : "", now) != 0;
}

/* Why the validation part is not the one of the run so far; NULL: it is. A share of the files to train on moves with
 * them, and with the keys by which they are cut. */
static const char *moved_because(const ht_run *run, const saved_run *saved)
{
    static const char *const cuts[] = {"data.format",  "data.validation_share", "data.documents", "data.field",
                                       "data.sources", "data.tokenizer",        "data.dtype"};
    const ht_data *data = run->job.data;
    if (ht_data_info_of(data)->parts[HT_DATA_VALIDATION].batches < 1) return NULL;
    if (is_changed(run, saved, HT_DATA_VALIDATION)) return "data.validation: its files are others";
    if (ht_data_fingerprint_of(data)->files[HT_DATA_VALIDATION] > 0) return NULL;
    if (is_changed(run, saved, HT_DATA_TRAIN)) return "data.train: the files that it is a share of are others";
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++)
        if (ht_config_changes_of(&saved->changes, cuts[i])) return cuts[i];
    return NULL;
}

/* Text that was trained on would be evaluated, and the result be too good. */
static ht_status check_data(const ht_run *run, const saved_run *saved)
{
    const char *why = moved_because(run, saved);
    if (!why || run->request.allow_data_change) return HT_OK;
    HT_FAIL(run->ctx, HT_EINVAL,
            "the validation part is not that of the run so far (%s): what the run was trained on may be in it now; "
            "--allow-data-change goes on all the same",
            why);
}

/* ---- what a person should know ---- */

static void tell_changes(const ht_run *run, const saved_run *saved)
{
    const ht_config_changes *changes = &saved->changes;
    const char *why = moved_because(run, saved);
    for (size_t i = 0; i < changes->count; i++)
        ht_run_note(run, "changed: %s: %s -> %s", changes->list[i].key, changes->list[i].before,
                    changes->list[i].after);
    if (is_changed(run, saved, HT_DATA_TRAIN))
        ht_run_note(run, "changed: the files of data.train differ in name, size, content or order from those of the "
                         "run so far");
    if (why) ht_run_note(run, "changed: the validation part (%s): losses before and after are not comparable", why);
}

/* Without a change a rate goes where its schedule leads it. */
static bool is_rate_changed(const ht_run *run, const saved_run *saved)
{
    static const char *const prefixes[] = {"train.lr",     "train.schedule",   "train.warmup",    "train.steps",
                                           "train.epochs", "engine.scheduler", "engine.optimizer"};
    for (size_t i = 0; i < saved->changes.count; i++)
        for (size_t k = 0; k < sizeof prefixes / sizeof prefixes[0]; k++)
            if (strncmp(saved->changes.list[i].key, prefixes[k], strlen(prefixes[k])) == 0) return true;
    return extra_number(saved->extra, "steps", run->job.steps) != run->job.steps;
}

static void prepare_rate(ht_run *run, const saved_run *saved)
{
    const ht_json *lr = ht_json_get(saved->extra, "lr");
    if (!lr || !ht_json_as_number(lr, &run->last_lr)) run->last_lr = NAN;
    run->rate_changed = is_rate_changed(run, saved);
}

void ht_run_judge_rate(ht_run *run, const ht_step_report *first)
{
    if (first->lr == 0)
        ht_run_note(run, "step %" PRId64 " has a learning rate of 0: the schedule is over, and nothing more is learned",
                    first->step);
    else if (run->rate_changed && fabs(first->lr - run->last_lr) > 0.25 * run->last_lr)
        ht_run_note(run, "the learning rate jumps from %.4g in step %" PRId64 " to %.4g in step %" PRId64, run->last_lr,
                    first->step - 1, first->lr, first->step);
}

/* ---- its state ---- */

/* A step begins with the first slice of its batch. A position between two of them is that of a run with another number
 * of micro-batches: the rest of the batch is left out. */
static void take_position(ht_run *run, uint64_t position)
{
    uint64_t micros = (uint64_t)(run->job.train_config->accumulate * run->job.ranks), rest = position % micros;
    if (rest) ht_run_note(run, "%" PRIu64 " micro-batches are left out, up to where a step begins", micros - rest);
    ht_loader_seek(run->train, position + (rest ? micros - rest : 0));
}

/* Older programs left there where their last micro-batch began. */
static ht_status begin_at_first_sample(ht_run *run)
{
    const int64_t first = 0;
    if (!ht_plan_slot(run->job.plan, "rng.sample")) return HT_OK;
    return ht_session_write(run->job.session, "rng.sample", &first, sizeof first);
}

/* All state; but a loss scale that does not move is the config's, and one that moves goes on only where it moved. */
static ht_status read_state(ht_run *run, const saved_run *saved, const char *path)
{
    double scale;
    bool was_dynamic = extra_number(saved->extra, "dynamic_loss_scale", 0) != 0;
    HT_TRY(read_number(run, "loss_scale", &scale));
    uint64_t model = run->job.plan->model_hash;
    if (is_cut_anew(run, saved))
        HT_TRY(ht_job_model_hash(&run->job, &run->request, extra_number(saved->extra, "micro_batch", 1), &model));
    HT_TRY(ht_snapshot_read_as(run->job.session, path, model));
    HT_TRY(begin_at_first_sample(run));
    if (ht_run_is_dynamic(run) && was_dynamic) return HT_OK;
    return ht_session_write_f64(run->job.session, "loss_scale", &scale, 1);
}

/* State that does not fit is the work of a key that was changed. */
static ht_status name_keys(const ht_run *run, const saved_run *saved, ht_status status)
{
    ht_text keys = {0};
    char reason[512];
    if (status != HT_EINVAL && status != HT_ESHAPE && status != HT_EDTYPE) return status;
    snprintf(reason, sizeof reason, "%s", ht_context_message(run->ctx));
    ht_config_changes_name_state(&saved->changes, &keys);
    if (keys.length > 0 && !keys.failed)
        status = ht_fail(run->ctx, status, "changed: %s: the run cannot go on with it: %s", keys.data, reason);
    ht_text_free(&keys);
    return status;
}

static ht_status take_saved(ht_run *run, const saved_run *saved, const char *path)
{
    run->step = run->first_step = run->saved_step = saved->meta->step;
    if (ht_mode_reads_only(run->request.mode)) return ht_snapshot_read_weights(run->job.session, path, NULL);
    HT_TRY(check_saved(run, saved, path));
    HT_TRY(check_data(run, saved));
    ht_status status = read_state(run, saved, path);
    if (status != HT_OK) return name_keys(run, saved, status);
    ht_run_note(run, "goes on after step %" PRId64 ", from %s", run->step, path);
    tell_changes(run, saved);
    take_position(run, position_of(run, saved));
    prepare_rate(run, saved);
    return HT_OK;
}

static ht_status take_snapshot(void *arg, const char *path)
{
    ht_run *run = arg;
    saved_run saved;
    ht_status status = ht_snapshot_complete(run->ctx, path);
    if (status != HT_OK) return status;
    status = open_saved(&saved, run->ctx, path);
    if (status == HT_OK && !ht_mode_reads_only(run->request.mode))
        status = ht_config_changes_find(&saved.changes, run->ctx, saved.meta->config_json, run->job.config);
    if (status == HT_OK) status = take_saved(run, &saved, path);
    close_saved(&saved);
    return status;
}

ht_status ht_run_restore(ht_run *run)
{
    bool taken;
    /* Where none can be read, to begin again would write over what may still be saved. */
    HT_TRY(ht_snapshot_newest(run->ctx, run->snapshots, take_snapshot, run, &taken));
    if (taken) return HT_OK;
    if (ht_mode_reads_only(run->request.mode))
        HT_FAIL(run->ctx, HT_EINVAL, "%s: there is no complete snapshot", run->snapshots);
    ht_run_note(run, "%s: there is no snapshot yet, so the run begins at its first step", run->snapshots);
    return HT_OK;
}

/* ---- what it needs beside itself ---- */

/* The names that the newest manifest lists; one of an older version lists none. */
static ht_status require_files(ht_run *run, const char *path)
{
    saved_run saved;
    ht_context aside = {0};
    ht_status status = HT_OK;
    if (open_saved(&saved, &aside, path) == HT_OK) {
        const ht_json *files = ht_json_get(saved.extra, "files");
        for (const ht_json *file = files ? files->child : NULL; file && status == HT_OK; file = file->next)
            if (file->kind == HT_JSON_STRING) status = ht_folder_require(run->ctx, run->folder, file->text);
    }
    close_saved(&saved);
    return status;
}

ht_status ht_run_check_folder(ht_run *run)
{
    ht_context aside = {0}; /* what is wrong with a snapshot is said when they are read */
    char *path = NULL;
    if (ht_snapshot_find(&aside, run->snapshots, &path) != HT_OK || !path) return HT_OK;
    ht_status status = require_files(run, path);
    free(path);
    return status;
}
