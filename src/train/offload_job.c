/* The offload that a job asks for: the passes' options, and a line that says what lies where. */
#include <stdio.h>
#include <string.h>

#include "train/job.h"

enum { LEAST_IN_FLIGHT = 3, MOST_AHEAD = 64 };

ht_offload_options ht_job_offload(const ht_train_config *c)
{
    ht_offload_options options = ht_pass_options_standard().offload;
    int64_t ahead = c->offload_buffers - LEAST_IN_FLIGHT;
    if (strcmp(c->offload_optimizer, "cpu") == 0) options.optimizer = HT_SPACE_HOST;
    if (strcmp(c->offload_optimizer, "nvme") == 0) options.optimizer = HT_SPACE_DISK;
    options.tile = c->offload_tile;
    options.ratio = c->offload_ratio;
    options.ahead = ahead < 1 ? 1 : ahead > MOST_AHEAD ? MOST_AHEAD : ahead;
    return options;
}

void ht_job_tell_offload(const ht_job *job, const ht_run_request *request)
{
    char line[1024];
    const ht_offload_options *o = &job->options.offload;
    const char *computes = job->target.device == HT_DEVICE_CPU ? "" : ", and their update is computed by the processor";
    if (!job->options.training || o->optimizer == HT_SPACE_MAIN) return;
    if (o->optimizer == HT_SPACE_DISK)
        snprintf(line, sizeof line, "offload: moments and masters lie on the disk, in %s%s",
                 job->train_config->disk_folder, computes);
    else if (job->target.device == HT_DEVICE_CPU)
        snprintf(line, sizeof line,
                 "offload: the processor computes, so the optimiser's state lies in host memory already: "
                 "zero_optimization.offload_optimizer.device cpu changes nothing");
    else
        snprintf(line, sizeof line, "offload: moments and masters lie in host memory%s", computes);
    if (request->on_note)
        request->on_note(request->arg, line);
    else
        ht_note(job->ctx, HT_LOG_INFO, "%s", line);
}
