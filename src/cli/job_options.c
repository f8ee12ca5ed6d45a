#include "cli/job_options.h"

#include <stdio.h>

void cli_job_start(cli_job *job)
{
    job->request = (ht_config_request){.sets = job->sets, .blocks = job->blocks};
    job->request.block_count = ht_job_blocks(job->blocks);
}

bool cli_job_option(cli_job *job, const char *command, int argc, char **argv, int *i, int *end)
{
    char *value;
    *end = CLI_DONE;
    if (cli_value(argc, argv, i, "--set", &value)) {
        if (!value)
            *end = cli_fail(CLI_WRONG, "%s: --set takes KEY=VALUE", command);
        else if (job->request.set_count == CLI_MOST_SETS)
            *end = cli_fail(CLI_WRONG, "%s: more than %d settings", command, CLI_MOST_SETS);
        else
            job->sets[job->request.set_count++] = value;
        return true;
    }
    if (!cli_value(argc, argv, i, "--deepspeed", &value)) return false;
    if (!value) *end = cli_fail(CLI_WRONG, "%s: --deepspeed takes a file", command);
    job->request.engine_path = value;
    return true;
}

void cli_print_problems(const ht_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++)
        fprintf(stderr, "%s: %s\n", problems->list[i].is_error ? "error" : "warning", problems->list[i].text);
    size_t shown = 0;
    for (size_t i = 0; i < problems->count; i++) shown += problems->list[i].is_error;
    if (shown < problems->errors) fprintf(stderr, "error: and %zu more\n", problems->errors - shown);
}

int cli_job_read(const cli_job *job, ht_context *ctx, ht_config **out)
{
    ht_status status = ht_config_read(out, ctx, &job->request);
    if (*out == NULL) return cli_fail(CLI_FAILED, "%s", ht_context_message(ctx));
    cli_print_problems(ht_config_problems(*out));
    if (status == HT_OK) return CLI_DONE;
    ht_config_free(*out);
    *out = NULL;
    return CLI_WRONG;
}
