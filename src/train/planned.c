#include "train/planned.h"

#include <stdlib.h>
#include <string.h>

#include "train/job.h"

/* Batches that are looked at for what is true of all of them in the mean. */
enum { MOST_BATCHES = 2000 };

/* What the loop does between two steps: losses are read, and a line is written. */
static const double record_seconds = 5e-5;

/* Memory for the arrays of a batch; NULL: there is none. */
static char *give_memory(ht_batch *batch)
{
    size_t bytes = 0;
    for (int i = 0; i < batch->array_count; i++) bytes += batch->arrays[i].bytes + 64;
    char *memory = malloc(bytes + 1), *at = memory;
    for (int i = 0; memory && i < batch->array_count; i++) {
        batch->arrays[i].data = at;
        at += (batch->arrays[i].bytes + 63) / 64 * 64;
    }
    return memory;
}

/* The fastest of a few batches. A thread that makes them ahead costs a step nothing. */
static ht_status time_batches(ht_planned *out, const ht_job *job, ht_loader *loader)
{
    enum { TIMES = 5 };
    const ht_field *ahead = ht_fields_find(ht_config_block(job->config, "data"), "prefetch");
    bool prefetch = ahead && ahead->value->kind == HT_JSON_BOOL && ahead->value->boolean;
    double best = 0;
    ht_status status = HT_OK;
    for (int i = 0; i < TIMES && !prefetch && status == HT_OK; i++) {
        ht_batch batch;
        ht_loader_seek(loader, (uint64_t)i);
        ht_data_layout(job->data, ht_loader_bucket(loader), &batch);
        char *memory = give_memory(&batch);
        double begin = ht_instr_clock();
        status = memory ? ht_loader_next(loader, &batch) : ht_fail(job->ctx, HT_ENOMEM, "out of memory for a batch");
        double seconds = ht_instr_clock() - begin;
        if (i == 0 || seconds < best) best = seconds;
        free(memory);
    }
    out->host_seconds = record_seconds + best * (double)job->train_config->accumulate;
    return status;
}

/* The shapes and the counted tokens of the first batches, which are those of every run. */
static ht_status look_at_batches(ht_planned *out, const ht_job *job)
{
    const ht_train_config *c = job->train_config;
    int64_t batches = ht_data_info_of(job->data)->parts[HT_DATA_TRAIN].batches, micros = c->accumulate * c->data_ranks;
    bool tokens = job->task != HT_TASK_CLASS && job->task != HT_TASK_REGRESSION;
    ht_loader *loader;
    HT_TRY(ht_loader_open(&loader, job->data, HT_DATA_TRAIN, false));
    int64_t looked = batches < MOST_BATCHES ? batches : MOST_BATCHES;
    double counted = 0;
    for (int64_t i = 0; i < looked; i++) {
        ht_loader_seek(loader, (uint64_t)i);
        out->bucket_share[ht_loader_bucket(loader)] += 1 / (double)looked;
        if (tokens) counted += (double)ht_loader_counted(loader, 1);
    }
    out->tokens = looked > 0 ? counted / (double)looked * (double)micros : 0;
    ht_status status = time_batches(out, job, loader);
    ht_loader_free(loader);
    return status;
}

ht_status ht_run_planned(ht_planned *out, ht_context *ctx, const ht_run_request *request)
{
    ht_job job;
    *out = (ht_planned){0};
    ht_status status = ht_job_open_plan(&job, ctx, request, NULL);
    if (status == HT_OK) {
        out->task = job.task;
        out->steps = job.steps;
        out->parameters = job.parameters;
        out->frozen = job.frozen;
        out->samples = (double)job.train_config->batch;
        out->bucket_count = ht_data_info_of(job.data)->bucket_count;
        if (!request->data) status = look_at_batches(out, &job);
    }
    if (status == HT_OK) {
        out->plan = job.plan;
        out->data = request->data ? NULL : job.data;
        job.plan = NULL;
        job.data = NULL;
    }
    ht_job_close(&job);
    return status;
}

void ht_planned_free(ht_planned *planned)
{
    ht_plan_free(planned->plan);
    ht_data_free(planned->data);
    *planned = (ht_planned){0};
}
