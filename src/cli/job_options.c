#include "cli/job_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

static int take_set(const cli_given *given, char *value)
{
    cli_job *job = given->at;
    if (job->request.set_count == CLI_MOST_SETS)
        return cli_fail(CLI_WRONG, "%s: more than %d settings", given->command->name, CLI_MOST_SETS);
    job->sets[job->request.set_count++] = value;
    return CLI_DONE;
}

static bool is_device(const char *name)
{
    ht_device_kind kind;
    int number;
    ht_context unheard = {0}; /* the option's own message says more */
    return ht_device_name_read(&unheard, name, &kind, &number) == HT_OK;
}

/* Short for a setting, so that the job's key and the option are one. */
static int take_device(const cli_given *given, char *value)
{
    cli_job *job = given->at;
    if (strcmp(value, "auto") != 0 && !is_device(value))
        return cli_fail(CLI_WRONG, "%s: --device takes %s, not '%s'", given->command->name, given->option->takes,
                        value);
    snprintf(job->device, sizeof job->device, "halftone.device=%s", value);
    return take_set(given, job->device);
}

const cli_option cli_device_rows[] = {
    {"--device", "NAME", CLI_TAKEN, 0,
     .help = "where the model computes: cpu, cuda, cuda:1 (the second GPU), fake (an accelerator for tests), or "
             "auto, a GPU if there is one",
     .takes = "auto, cpu, cuda, cuda:N or fake", .take = take_device},
    {0},
};

const cli_option cli_set_rows[] = {
    {.kind = CLI_GROUP, .group = cli_device_rows},
    {"--set", "KEY=VALUE", CLI_TAKEN, 0,
     .help = "override a key of the job: train.lr=3e-4, model.n_layer=2, engine.fp16.enabled=true",
     .flags = CLI_REPEATED, .takes = "KEY=VALUE", .take = take_set},
    {0},
};

/* Likewise: so that a run records it. */
static int take_lenient(const cli_given *given, char *value)
{
    static char lenient[] = "halftone.lenient=true";
    (void)value;
    return take_set(given, lenient);
}

const cli_option cli_override_rows[] = {
    {.kind = CLI_GROUP, .group = cli_set_rows},
    {"--deepspeed", "FILE", CLI_TEXT, offsetof(cli_job, request.engine_path),
     .help = "DeepSpeed's config, instead of the job's \"engine\"", .takes = "a file"},
    {"--lenient", NULL, CLI_TAKEN, 0,
     .help = "leave out what DeepSpeed's config asks for and is not there yet, and let the job's train values win; all "
             "of it is listed",
     .take = take_lenient},
    {0},
};

const cli_option cli_job_rows[] = {
    {"JOB.json", "job", CLI_ARGUMENT, offsetof(cli_job, request.path), .help = "the job file"},
    {.kind = CLI_GROUP, .group = cli_override_rows},
    {0},
};

/* ---- reading ---- */

void cli_job_start(cli_job *job)
{
    job->request.sets = job->sets;
    job->request.blocks = job->blocks;
    job->request.block_count = ht_job_blocks(job->blocks);
}

void cli_print_problems(const ht_problems *problems)
{
    for (size_t i = 0; i < problems->count; i++)
        cli_tell(problems->list[i].is_error ? "error: " : "warning: ", problems->list[i].text);
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

int cli_recorded_open(cli_recorded *recorded, cli_job *job, ht_context *ctx, const char *command, const char *run)
{
    *recorded = (cli_recorded){0};
    if (snprintf(recorded->path, sizeof recorded->path, "%s/config.resolved.json", run) >= (int)sizeof recorded->path)
        return cli_fail(CLI_WRONG, "%s: the path is too long", command);
    if (ht_job_recorded(ctx, recorded->path, &recorded->text, &recorded->data_folder) != HT_OK)
        return cli_fail(CLI_WRONG, "%s: %s holds no run: %s", command, run, ht_context_message(ctx));
    job->request.path = recorded->path;
    job->request.text = recorded->text;
    job->request.length = strlen(recorded->text);
    return cli_job_read(job, ctx, &recorded->config);
}

void cli_recorded_close(cli_recorded *recorded)
{
    ht_config_free(recorded->config);
    free(recorded->data_folder);
    free(recorded->text);
}
