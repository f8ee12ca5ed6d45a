/* Predictors: a run's folder as a session, for C programs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/train.h"

struct ht_predictor {
    ht_config *config;
    ht_run *run;
    char path[4096], *text; /* what the config was read from */
    char *data_folder;
};

/* The config of the run, with the caller's device. */
static ht_status read_config(ht_config **out, ht_context *ctx, const char *path, const char *text, const char *device)
{
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    char setting[128];
    const char *sets[] = {setting};
    ht_config_request request = {.path = path, .text = text, .length = strlen(text), .sets = sets, .blocks = blocks};
    request.block_count = ht_job_blocks(blocks);
    request.set_count = device != NULL;
    if (snprintf(setting, sizeof setting, "halftone.device=%s", device ? device : "") >= (int)sizeof setting)
        HT_FAIL(ctx, HT_EINVAL, "ht_predictor_open: there is no such device");
    return ht_config_read(out, ctx, &request);
}

static ht_status open_run(ht_predictor *p, ht_context *ctx, const char *folder, const ht_predictor_opts *opts)
{
    if (snprintf(p->path, sizeof p->path, "%s/config.resolved.json", folder) >= (int)sizeof p->path)
        HT_FAIL(ctx, HT_EINVAL, "ht_predictor_open: the path is too long");
    HT_TRY(ht_job_recorded(ctx, p->path, &p->text, &p->data_folder));
    HT_TRY(read_config(&p->config, ctx, p->path, p->text, opts->device));
    ht_run_request request = {.config = p->config,
                              .mode = HT_RUN_PREDICT,
                              .folder = folder,
                              .data_folder = p->data_folder,
                              .batch = opts->batch};
    return ht_run_open(&p->run, ctx, &request);
}

ht_status ht_predictor_open(ht_predictor **out, ht_context *ctx, const char *run, const ht_predictor_opts *opts)
{
    ht_predictor_opts o = HT_PREDICTOR_OPTS;
    HT_NEED(ctx, out, "out");
    *out = NULL;
    HT_NEED(NULL, ctx, "ctx");
    HT_NEED(ctx, run, "run");
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (o.batch < 0 || o.batch > INT64_C(1) << 24)
        HT_FAIL(ctx, HT_EINVAL, "ht_predictor_open: a batch of %lld rows", (long long)o.batch);
    ht_predictor *p = calloc(1, sizeof *p);
    if (!p) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a predictor");
    ht_status status = open_run(p, ctx, run, &o);
    if (status == HT_OK)
        *out = p;
    else
        ht_predictor_free(p);
    return status;
}

void ht_predictor_free(ht_predictor *predictor)
{
    if (!predictor) return;
    ht_run_close(predictor->run);
    ht_config_free(predictor->config);
    free(predictor->data_folder);
    free(predictor->text);
    free(predictor);
}

ht_session *ht_predictor_session(ht_predictor *predictor)
{
    return predictor ? ht_run_session(predictor->run) : NULL;
}

int64_t ht_predictor_batch(const ht_predictor *predictor)
{
    return predictor ? ht_run_batch(predictor->run) : 0;
}

int64_t ht_predictor_width(const ht_predictor *predictor)
{
    if (!predictor) return 0;
    ht_task task = ht_run_info_of(predictor->run).task;
    const ht_data_info *info = ht_data_info_of(ht_run_data(predictor->run));
    return task == HT_TASK_CLASS || task == HT_TASK_REGRESSION ? info->classes : info->vocabulary;
}

const char *ht_predictor_class_name(const ht_predictor *predictor, int64_t index)
{
    return predictor ? ht_data_class_name(ht_run_data(predictor->run), index) : NULL;
}
