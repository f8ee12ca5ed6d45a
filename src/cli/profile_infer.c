#include "cli/profile_infer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static ht_status infer_batch(ht_context *ctx, const ht_config *config, const char *folder, cli_infer_row *row,
                             ht_byte_table *bytes)
{
    ht_run *run;
    ht_run_request request = {.config = config, .mode = HT_RUN_EVALUATE, .folder = folder};
    HT_TRY(ht_run_open(&run, ctx, &request));
    ht_status status = ht_infer_times_measure(&row->times, ctx, ht_run_session(run), 1);
    *bytes = ht_run_info_of(run).bytes;
    ht_status closed = ht_run_close(run);
    return status == HT_OK ? closed : status;
}

ht_status cli_profile_infer(ht_context *ctx, const cli_job *job, const char *folder, const int64_t *batches,
                            size_t count, cli_profile_view *view)
{
    for (size_t i = 0; i < count; i++) {
        const char *sets[CLI_MOST_SETS + 3];
        char batch[2][48];
        ht_config_request request = job->request;
        ht_config *config;
        ht_byte_table bytes;
        memcpy(sets, job->sets, request.set_count * sizeof *sets);
        snprintf(batch[0], sizeof batch[0], "train.batch=%" PRId64, batches[i]);
        snprintf(batch[1], sizeof batch[1], "train.micro_batch=%" PRId64, batches[i]);
        sets[request.set_count++] = batch[0];
        sets[request.set_count++] = batch[1];
        sets[request.set_count++] = "train.accumulate=1";
        request.sets = sets;
        ht_status status = ht_config_read(&config, ctx, &request);
        cli_infer_row *row = &view->infer[i];
        *row = (cli_infer_row){.batch = batches[i]};
        if (status == HT_OK) status = infer_batch(ctx, config, folder, row, &bytes);
        if (status == HT_OK && i == 0) view->infer_bytes = bytes;
        if (config && ht_config_problems(config)->errors)
            status = ht_fail(ctx, HT_EINVAL, "--batch %" PRId64 ": %s", batches[i],
                             ht_config_problems(config)->list[0].text);
        ht_config_free(config);
        HT_TRY(status);
        view->infer_count = i + 1;
    }
    return HT_OK;
}
