/* A job's data: the task that it serves, files, and what an earlier start recorded of them. */
#include "train/job_own.h"

#include <stdlib.h>
#include <string.h>

#include "train/folder.h"
#include "train/init_from.h"

/* What the job says; else the first task that both serve, the format's own before others. */
static ht_status choose_task(ht_job *job)
{
    const char *asked = job->train_config->task;
    unsigned both = job->format->tasks & job->model->tasks;
    int task = 0;
    if (asked)
        while (task < HT_TASK_COUNT && strcmp(ht_task_names[task], asked) != 0) task++;
    else
        while (task < HT_TASK_COUNT && !(both >> task & 1)) task++;
    if (!asked && both >> ht_data_standard_task(job->format) & 1) task = (int)ht_data_standard_task(job->format);
    if (task == HT_TASK_COUNT)
        HT_FAIL(job->ctx, HT_EINVAL, "model.type %s learns nothing that data.format %s could teach", job->model->name,
                job->format->name);
    if (!(job->model->tasks >> task & 1))
        HT_FAIL(job->ctx, HT_EINVAL, "model.type %s cannot learn the task %s", job->model->name, ht_task_names[task]);
    if (!(job->format->tasks >> task & 1))
        HT_FAIL(job->ctx, HT_EINVAL, "data.format %s does not serve the task %s", job->format->name,
                ht_task_names[task]);
    job->task = (ht_task)task;
    return HT_OK;
}

static ht_status read_vocabulary(ht_job *job, const char *folder, int which, ht_vocabulary **out)
{
    char *path;
    bool there;
    HT_TRY(ht_folder_check(job->ctx, folder, ht_vocabulary_files[which], &there));
    if (!there) return HT_OK;
    HT_TRY(ht_folder_path(job->ctx, &path, folder, ht_vocabulary_files[which]));
    ht_status status = ht_vocabulary_read(out, job->ctx, path);
    free(path);
    return status;
}

/* Older versions recorded none: *out stays NULL. */
static ht_status read_facts(ht_job *job, const char *folder, ht_arena *arena, const ht_json **out)
{
    char *path, *text = NULL;
    size_t length;
    bool there;
    HT_TRY(ht_folder_check(job->ctx, folder, ht_facts_file, &there));
    if (!there) return HT_OK;
    HT_TRY(ht_folder_path(job->ctx, &path, folder, ht_facts_file));
    ht_status status = ht_read_file(job->ctx, &text, &length, path);
    if (status == HT_OK) status = ht_json_parse(job->ctx, arena, path, text, length, out);
    free(text);
    free(path);
    return status;
}

/* Of a run that an older version recorded: the data says them again. */
static ht_status find_facts(ht_job *job, const ht_data_request *wanted, ht_arena *arena, const ht_json **out)
{
    ht_data *data;
    ht_text text = {0};
    HT_TRY(ht_data_open(&data, job->ctx, wanted));
    ht_data_print_facts(data, &text);
    ht_data_free(data);
    ht_status status = text.failed ? ht_fail(job->ctx, HT_ENOMEM, "out of memory for the data")
                                   : ht_json_parse(job->ctx, arena, "data", text.data, text.length, out);
    ht_text_free(&text);
    return status;
}

/* A run that evaluates reads files to validate on alone, where there are some; one that predicts reads none. */
static ht_status open_with_facts(ht_job *job, ht_data_request *wanted, const char *folder, bool predicts)
{
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for the data");
    ht_status status = read_facts(job, folder, arena, &wanted->facts);
    if (status == HT_OK && predicts && !wanted->facts) status = find_facts(job, wanted, arena, &wanted->facts);
    wanted->facts_only = predicts;
    if (status == HT_OK) status = ht_data_open(&job->data, job->ctx, wanted);
    ht_arena_free(arena);
    return status;
}

ht_status ht_job_open_data(ht_job *job, const ht_run_request *request, const char *vocabularies)
{
    const char *type = ht_config_type(job->config, "model"), *format = ht_config_type(job->config, "data");
    job->model = type ? ht_model_find(type, NULL) : NULL;
    job->format = format ? ht_data_format_find(format) : NULL;
    if (!job->model || !job->format)
        HT_FAIL(job->ctx, HT_EINVAL, "there is no \"%s\" block: training needs a job file with model and data",
                job->model ? "data" : "model");
    HT_TRY(choose_task(job));
    if (request->data) {
        job->data = request->data;
        job->borrows_data = true;
        return HT_OK;
    }
    /* The embeddings of a run are those of its words. */
    if (!vocabularies) vocabularies = ht_init_from_run(job->train_config);
    if (vocabularies) {
        HT_TRY(read_vocabulary(job, vocabularies, 0, &job->vocabulary));
        HT_TRY(read_vocabulary(job, vocabularies, 1, &job->source_vocabulary));
    }
    ht_data_request wanted = {
        .format = job->format,
        .fields = ht_config_block(job->config, "data"),
        .task = job->task,
        .batch = job->train_config->micro_batch,
        .slices = job->train_config->accumulate * job->train_config->data_ranks,
        .seed = job->train_config->seed,
        .folder = request->data_folder,
        .memory = request->memory,
        .memory_length = request->memory_length,
        .vocabulary = job->vocabulary,
        .source_vocabulary = job->source_vocabulary,
    };
    if (ht_mode_reads_only(request->mode) && request->mode != HT_RUN_CALIBRATE && vocabularies)
        return open_with_facts(job, &wanted, vocabularies, request->mode == HT_RUN_PREDICT);
    return ht_data_open(&job->data, job->ctx, &wanted);
}

enum { PREDICTED_ROWS = 32 };

/* A micro-batch fitted into memory when the run was trained, and a graph from elsewhere may know that size only. It does
 * not depend on the number of inputs: kernels for fewer rows round differently, and an answer shall not change with what
 * else is asked. */
static int64_t choose_batch(const ht_job *job, const ht_run_request *request)
{
    int64_t batch = job->train_config->micro_batch;
    if (request->mode != HT_RUN_PREDICT) return batch;
    if (request->batch > 0) return request->batch;
    return batch > PREDICTED_ROWS && !job->model->make ? PREDICTED_ROWS : batch;
}

ht_status ht_job_open_inputs(ht_job *job, const ht_run_request *request)
{
    job->batch = choose_batch(job, request);
    if (request->input_count == 0) return HT_OK;
    HT_TRY(ht_inputs_create(&job->inputs, job->data, job->ctx));
    for (size_t i = 0; i < request->input_count; i++) HT_TRY(ht_inputs_read(job->inputs, request->inputs[i]));
    return HT_OK;
}
