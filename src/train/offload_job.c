/* The offload that a job asks for: the passes' options, and a line that says what lies where. */
#include <stdio.h>
#include <string.h>

#include "train/job.h"

enum { LEAST_IN_FLIGHT = 3, MOST_AHEAD = 64 };

static ht_space space_of(const char *device)
{
    if (strcmp(device, "cpu") == 0) return HT_SPACE_HOST;
    return strcmp(device, "nvme") == 0 ? HT_SPACE_DISK : HT_SPACE_MAIN;
}

static ht_space space_named(const char *name)
{
    if (strcmp(name, "host") == 0) return HT_SPACE_HOST;
    return strcmp(name, "disk") == 0 ? HT_SPACE_DISK : HT_SPACE_MAIN;
}

ht_offload_options ht_job_offload(const ht_train_config *c)
{
    int64_t ahead = c->offload_buffers - LEAST_IN_FLIGHT;
    return (ht_offload_options){
        .optimizer = space_of(c->offload_optimizer),
        .params = space_of(c->offload_param),
        .gradients = space_named(c->offload_gradients),
        .activations = space_named(c->offload_activations),
        .activation_bytes = c->offload_activation_bytes,
        .persistent = c->offload_persistent,
        .tile = c->offload_tile,
        .ahead = ahead < 1            ? 1
                 : ahead > MOST_AHEAD ? MOST_AHEAD
                                      : ahead,
        .ratio = c->offload_ratio,
    };
}

/* ---- what is told ---- */

static void tell(const ht_job *job, const ht_run_request *request, const char *line)
{
    if (request->on_note)
        request->on_note(request->arg, line);
    else
        ht_note(job->ctx, HT_LOG_INFO, "%s", line);
}

static void tell_one(const ht_job *job, const ht_run_request *request, const char *what, const char *key,
                     ht_space space, const char *more)
{
    char line[1024];
    const char *folder = job->train_config->disk_folder;
    if (space == HT_SPACE_MAIN) return;
    if (space == HT_SPACE_HOST && job->target.device == HT_DEVICE_CPU)
        snprintf(line, sizeof line,
                 "offload: the processor computes, so %s lie in host memory already: "
                 "%s changes nothing",
                 what, key);
    else
        snprintf(line, sizeof line, "offload: %s lie %s%s%s", what,
                 space == HT_SPACE_DISK ? "on the disk, in " : "in host memory", space == HT_SPACE_DISK ? folder : "",
                 more);
    tell(job, request, line);
}

void ht_job_tell_offload(const ht_job *job, const ht_run_request *request)
{
    const ht_offload_options *o = &job->options.offload;
    char what[128];
    bool processor = job->target.device == HT_DEVICE_CPU;
    if (!job->options.training) return;
    tell_one(job, request, "moments and masters", "zero_optimization.offload_optimizer.device cpu", o->optimizer,
             processor ? "" : ", and their update is computed by the processor");
    snprintf(what, sizeof what, "parameters of %lld elements and more", (long long)o->persistent);
    tell_one(job, request, what, "zero_optimization.offload_param.device cpu", o->params,
             "; they are fetched before each use");
    tell_one(job, request, "gradients", "halftone.offload_gradients", o->gradients,
             "; they are copied there as backward makes them");
    tell_one(job, request, "values kept for backward", "offloading activations", o->activations,
             "; they are copied back before backward reads them");
}
