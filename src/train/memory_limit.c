/* Does a plan fit where it is to run? Asked before anything is allocated; what would fit is found by planning it. */
#include "train/memory_limit.h"

#include <stdio.h>
#include <string.h>

typedef struct remedy {
    const char *words;
    void (*apply)(ht_pass_options *options);
} remedy;

static void cut_head(ht_pass_options *options)
{
    options->head.chunks = 8;
}

static void recompute_cheap(ht_pass_options *options)
{
    options->recompute = (ht_recompute_options){.policy = HT_RECOMPUTE_CHEAP};
}

static void recompute_all(ht_pass_options *options)
{
    options->recompute = (ht_recompute_options){.policy = HT_RECOMPUTE_ALL};
}

static void optimizer_to_disk(ht_pass_options *options)
{
    options->offload.optimizer = HT_SPACE_DISK;
}

static void take_bf16(ht_pass_options *options)
{
    options->precision.precision = HT_PRECISION_BF16;
}

static void take_bf16_and_recompute(ht_pass_options *options)
{
    take_bf16(options);
    recompute_all(options);
}

static void take_all(ht_pass_options *options)
{
    take_bf16_and_recompute(options);
    optimizer_to_disk(options);
}

/* In the order in which one would try them. */
static const remedy remedies[] = {
    {"halftone.head_chunks=8", cut_head},
    {"halftone.recompute.policy=cheap", recompute_cheap},
    {"halftone.recompute.policy=all", recompute_all},
    {"train.precision=bf16", take_bf16},
    {"zero_optimization.offload_optimizer.device=nvme", optimizer_to_disk},
    {"train.precision=bf16 with halftone.recompute.policy=all", take_bf16_and_recompute},
    {"both with zero_optimization.offload_optimizer.device=nvme", take_all},
};
enum { REMEDIES = sizeof remedies / sizeof remedies[0] };

/* Bytes in main of the job as it is now; 0: it cannot be planned. */
static int64_t plan_bytes(ht_job *job, const ht_run_request *request)
{
    ht_plan *plan = NULL;
    int64_t bytes = ht_job_plan(job, request, true, &plan) == HT_OK ? ht_plan_bytes_in(plan, HT_SPACE_MAIN) : 0;
    ht_plan_free(plan);
    return bytes;
}

/* The same batch, row by row; 0: it is so already, or cannot be. */
static int64_t bytes_of_rows(ht_job *job, const ht_run_request *request)
{
    const int64_t rows = job->batch, accumulate = job->options.train.accumulate;
    if (rows <= 1) return 0;
    job->batch = 1;
    job->options.train.accumulate = rows * accumulate;
    int64_t bytes = plan_bytes(job, request);
    job->batch = rows;
    job->options.train.accumulate = accumulate;
    return bytes;
}

/* Changed jobs whose plans take no more than the limit, behind `words`; what cannot be planned is left out. */
static void list_remedies(ht_job *job, const ht_run_request *request, int64_t limit, const char *words, ht_text *text)
{
    const ht_pass_options given = job->options;
    const ht_log_fn log = job->ctx->log;
    job->ctx->log = NULL; /* nobody asked for these plans */
    for (int i = 0; i < REMEDIES; i++) {
        remedies[i].apply(&job->options);
        int64_t bytes = plan_bytes(job, request);
        if (bytes > 0 && bytes <= limit)
            ht_text_add(text, "%s%s (%lld bytes)", text->length ? ", or " : words, remedies[i].words, (long long)bytes);
        job->options = given;
    }
    if (!text->length) {
        int64_t bytes = bytes_of_rows(job, request);
        if (bytes > 0 && bytes <= limit)
            ht_text_add(text, "%strain.micro_batch=1 (%lld bytes)", words, (long long)bytes);
        else
            ht_text_add(text, "; halftone plan shows what takes the memory");
    }
    job->ctx->log = log;
}

/* Beside main: what lies there was put there, and the message says how much it is. */
static ht_status check_elsewhere(const ht_job *job, ht_space space)
{
    int64_t limit = job->train_config->memory_limit[space], bytes = ht_plan_bytes_in(job->plan, space);
    if (!limit || bytes <= limit) return HT_OK;
    HT_FAIL(job->ctx, HT_EINVAL, "the plan takes %lld bytes %s, %lld more than halftone.memory_limit.%s allows",
            (long long)bytes, space == HT_SPACE_DISK ? "on the disk" : "in host memory", (long long)(bytes - limit),
            ht_space_name(space));
}

/* Each rank has a GPU of its own, unless the job names one. */
static int64_t ranks_that_share(const ht_job *job, const ht_run_request *request)
{
    bool own = job->target.device == HT_DEVICE_CUDA && !strchr(job->train_config->device, ':');
    return own || request->local_ranks < 1 ? 1 : request->local_ranks;
}

ht_status ht_job_check_memory(ht_job *job, const ht_run_request *request)
{
    HT_TRY(check_elsewhere(job, HT_SPACE_HOST));
    HT_TRY(check_elsewhere(job, HT_SPACE_DISK));
    int64_t own = job->train_config->memory_limit[HT_SPACE_MAIN], machine = job->target.memory_bytes[HT_SPACE_MAIN];
    int64_t sharing = ranks_that_share(job, request), limit = own ? own : machine / sharing,
            bytes = ht_plan_bytes_in(job->plan, HT_SPACE_MAIN);
    if (!limit || bytes <= limit) return HT_OK;
    ht_text fits = {0};
    if (request->on_too_large) request->on_too_large(request->arg, job->plan);
    list_remedies(job, request, limit, "; this fits: ", &fits);
    ht_status status =
        ht_fail(job->ctx, HT_EINVAL, "the plan takes %lld bytes where the model computes, %lld more than %s%s",
                (long long)bytes, (long long)(bytes - limit),
                own           ? "halftone.memory_limit allows"
                : sharing > 1 ? "the machine has for each of its ranks (halftone.memory_limit)"
                              : "the machine has (halftone.memory_limit)",
                fits.failed ? "" : fits.data);
    ht_text_free(&fits);
    return status;
}

ht_status ht_job_lacks_memory(ht_job *job, const ht_run_request *request)
{
    ht_text less = {0};
    char message[512];
    snprintf(message, sizeof message, "%s", ht_context_message(job->ctx));
    if (request->on_too_large) request->on_too_large(request->arg, job->plan);
    list_remedies(job, request, ht_plan_bytes_in(job->plan, HT_SPACE_MAIN) - 1, "; this takes less: ", &less);
    ht_status status = ht_fail(job->ctx, HT_ENOMEM, "%s%s", message, less.failed ? "" : less.data);
    ht_text_free(&less);
    return status;
}
