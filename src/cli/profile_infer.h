/* Inference, measured: the forward pass of evaluation in batches of several sizes. */
#ifndef HT_CLI_PROFILE_INFER_H
#define HT_CLI_PROFILE_INFER_H

#include "cli/job_options.h"
#include "cli/profile_view.h"

/* Fills the rows of the view, from the newest snapshot in the folder of a run of this job. */
ht_status cli_profile_infer(ht_context *ctx, const cli_job *job, const char *folder, const int64_t *batches,
                            size_t count, cli_profile_view *view);

#endif
