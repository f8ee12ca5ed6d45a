/* Going on from a snapshot: which one, what it must fit, and its state. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "train/run_state.h"
#include "train/snapshot.h"

static ht_status read_number(const ht_run *run, const char *name, double *out)
{
    return ht_session_read_f64(run->job.session, name, out, 1);
}

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
    if (rest) ht_run_note(run, "%" PRIu64 " micro-batches are left out, up to where a step begins", micros - rest);
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
    if (ht_run_is_dynamic(run) && run->saved_dynamic) return HT_OK;
    return ht_session_write_f64(run->job.session, "loss_scale", &scale, 1);
}

ht_status ht_run_restore(ht_run *run)
{
    bool evaluating = run->request.mode == HT_RUN_EVALUATE;
    char *path = NULL;
    ht_snapshot_meta *meta = NULL;
    HT_TRY(ht_snapshot_find(run->ctx, run->snapshots, &path));
    if (!path && evaluating) HT_FAIL(run->ctx, HT_EINVAL, "%s: there is no complete snapshot", run->snapshots);
    if (!path) {
        ht_run_note(run, "%s: there is no snapshot yet, so the run begins at its first step", run->snapshots);
        return HT_OK;
    }
    ht_status status = ht_snapshot_look(run->ctx, path, &meta);
    if (status == HT_OK) status = take_meta(run, meta, path);
    if (status == HT_OK)
        status = evaluating ? ht_snapshot_read_weights(run->job.session, path, NULL) : read_state(run, path);
    if (status == HT_OK && !evaluating) ht_run_note(run, "goes on after step %" PRId64 ", from %s", run->step, path);
    ht_snapshot_meta_free(meta);
    free(path);
    return status;
}
