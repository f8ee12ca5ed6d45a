#include "cli/job_options.h"
#include "cli/stage_table.h"
#include "serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct check_job {
    cli_job job_options;
    bool all, json, keys, config_only;
} check_job;

static void tell_note(void *arg, const char *line)
{
    (void)arg;
    cli_tell("halftone: ", line);
}

/* What the config names: a job's data and model. Its own errors come first, since they may be the reason. */
static ht_status open_job(ht_context *ctx, const check_job *job, ht_config *config)
{
    bool whole = ht_config_type(config, "model") != NULL && ht_config_type(config, "data") != NULL;
    if (job->config_only || !whole) return HT_OK;
    ht_status status = ht_run_check(ctx, &(ht_run_request){.config = config, .on_note = job->json ? NULL : tell_note});
    if (status != HT_OK) ht_config_add_error(config, ht_context_message(ctx));
    return status;
}

/* What each of several ranks would hold and exchange. */
static void add_stages(ht_text *text, ht_context *ctx, const ht_config *config)
{
    cli_stages stages;
    cli_stages_plan(&stages, ctx, &(ht_run_request){.config = config});
    cli_stages_print(text, &stages);
}

static int check(ht_context *ctx, const check_job *job)
{
    ht_config *config;
    ht_text text = {0};
    ht_config_request request = job->job_options.request;
    char *input = NULL;
    if (strcmp(request.path, "-") == 0) {
        if (ht_read_file(ctx, &input, &request.length, "/dev/stdin") != HT_OK)
            return cli_fail(CLI_FAILED, "%s", ht_context_message(ctx));
        request.text = input;
        request.path = "standard input";
    }
    ht_status status = ht_config_read(&config, ctx, &request);
    free(input);
    if (config == NULL) return cli_fail(CLI_FAILED, "%s", ht_context_message(ctx));
    bool readable = status == HT_OK;
    if (readable) status = open_job(ctx, job, config);
    if (job->json)
        ht_config_print_json(&text, config);
    else if (readable)
        ht_config_print(&text, config, job->all);
    bool planned = status == HT_OK && request.ranks > 1 && !job->json && !job->config_only;
    if (planned && ht_config_has_job(config)) add_stages(&text, ctx, config);
    int end = cli_put(&text);
    if (!job->json) cli_print_problems(ht_config_problems(config));
    if (!job->json && ht_http_missing()) cli_tell("halftone: train --http is not there: ", ht_http_missing());
    ht_config_free(config);
    return end != CLI_DONE ? end : status != HT_OK ? CLI_WRONG : CLI_DONE;
}

static int run_check(void *arg)
{
    check_job *job = arg;
    ht_context *ctx;
    cli_job_start(&job->job_options);
    if (job->keys) {
        ht_text text = {0};
        ht_config_print_docs(&text, job->job_options.request.blocks, job->job_options.request.block_count);
        return cli_put(&text);
    }
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = check(ctx, job);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"FILE", "file", CLI_ARGUMENT, offsetof(check_job, job_options.request.path),
     .help = "a job file, or DeepSpeed's config; - is standard input", .flags = CLI_STDIN, .form = 1},
    {.kind = CLI_GROUP, .offset = offsetof(check_job, job_options), .group = cli_override_rows, .form = 1},
    {"--ranks", "N", CLI_WHOLE, offsetof(check_job, job_options.request.ranks),
     .help = "for how many ranks; of a job also what each would hold and exchange in every ZeRO stage", .form = 1,
     .least = 1, .most = 1e6, .standard = "1"},
    {"--config-only", NULL, CLI_FLAG, offsetof(check_job, config_only),
     .help = "read the config alone: neither open the data nor build the model", .form = 1},
    {"--all", NULL, CLI_FLAG, offsetof(check_job, all),
     .help = "also the keys of DeepSpeed's config that are neither set nor used", .form = 1},
    {"--json", NULL, CLI_FLAG, offsetof(check_job, json),
     .help =
         "one object: {\"file\", \"kind\": job or engine, \"ranks\", \"values\": {KEY: {\"value\", \"origin\": file, "
         "command, default or derived, \"file\", \"line\", \"why\", \"standing\"}}, \"warnings\", \"errors\"}",
     .form = 1},
    {"--keys", NULL, CLI_FLAG, offsetof(check_job, keys),
     .help = "all keys that there are, as Markdown: docs/config.md", .form = 2, .flags = CLI_INSTEAD | CLI_NEEDED},
    {0},
};

static const cli_entry examples[] = {
    {"halftone check job.json --set train.lr=3e-4", "what the job comes to with another learning rate"},
    {"halftone check ds_config.json --ranks 8", "a DeepSpeed config alone, for eight ranks"},
    {0},
};

const cli_command cmd_check = {
    .name = "check",
    .summary = "read a job file or a DeepSpeed config; print every value and where it came from",
    .description =
        "Reads a job file, or DeepSpeed's config alone, from FILE, or from standard input when FILE is -, and prints "
        "every value and where it came from: file and line, the command line, default, or derived from others. Then it "
        "opens the data of a job and builds its model, so that what would not train is told here: a file that is "
        "missing, sizes that do not fit. The tensors that train.init_from starts from are listed. All errors of the "
        "config are printed, not only the first; then the exit "
        "status is 2. What is not there yet is a warning here, "
        "and an error of halftone train.",
    .options = options,
    .size = sizeof(check_job),
    .run = run_check,
    .alone = true,
    .examples = examples,
    .see_also = "init train explain",
    .appendix_title = "Keys of the job's train block, and their defaults",
    .appendix = ht_config_print_help,
};
