#include "cli/job_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: halftone check FILE [--set KEY=VALUE]... [--deepspeed FILE] [--ranks N] [--all] [--json]\n"
    "       halftone check --keys\n"
    "\n"
    "Reads a job file, or DeepSpeed's config alone, from FILE, or from standard input when FILE is -, and prints "
    "every\n"
    "value and where it came from: file and line, the command line, default, or derived from others. All errors are\n"
    "printed, not only the first; then the exit status is 2. What is not there yet is a warning here, and an error of\n"
    "halftone train.\n"
    "    --set         overrides a key: train.lr=3e-4, engine.fp16.enabled=true\n"
    "    --deepspeed   DeepSpeed's config, instead of the job's \"engine\"\n"
    "    --ranks       for how many ranks; 1 when it is left out\n"
    "    --all         also the keys of DeepSpeed's config that nobody mentioned and nothing uses\n"
    "    --json        one object: {\"file\", \"kind\": job or engine, \"ranks\", \"values\": {KEY: {\"value\",\n"
    "                  \"origin\": file, command, default or derived, \"file\", \"line\", \"why\", \"standing\"}},\n"
    "                  \"warnings\", \"errors\"}\n"
    "    --keys        all keys that there are, as Markdown: docs/config.md\n";

typedef struct check_job {
    cli_job job_options;
    bool help, all, json, keys;
} check_job;

static int take_ranks(check_job *job, const char *word)
{
    double ranks;
    if (word == NULL || !ht_number_read(word, &ranks) || !(ranks >= 1 && ranks <= 1e6) || ranks != (double)(int)ranks)
        return cli_fail(CLI_WRONG, "check: --ranks takes a number from 1 to 1000000, not '%s'", word ? word : "");
    job->job_options.request.ranks = (int64_t)ranks;
    return CLI_DONE;
}

static int read_argument(check_job *job, int argc, char **argv, int *i)
{
    char *value, *option = argv[*i];
    int end;
    if (cli_flag(argv, *i, "--help")) {
        job->help = true;
    } else if (cli_flag(argv, *i, "--all")) {
        job->all = true;
    } else if (cli_flag(argv, *i, "--json")) {
        job->json = true;
    } else if (cli_flag(argv, *i, "--keys")) {
        job->keys = true;
    } else if (cli_job_option(&job->job_options, "check", argc, argv, i, &end)) {
        return end;
    } else if (cli_value(argc, argv, i, "--ranks", &value)) {
        return take_ranks(job, value);
    } else if (option[0] == '-' && option[1] != '\0') {
        return cli_no_such_option("check", option);
    } else if (job->job_options.request.path) {
        return cli_fail(CLI_WRONG, "check: one file at a time: '%s' and '%s'", job->job_options.request.path, option);
    } else {
        job->job_options.request.path = option;
    }
    return CLI_DONE;
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
    if (job->json)
        ht_config_print_json(&text, config);
    else if (status == HT_OK)
        ht_config_print(&text, config, job->all);
    int end = cli_put(&text);
    if (!job->json) cli_print_problems(ht_config_problems(config));
    ht_config_free(config);
    return end != CLI_DONE ? end : status != HT_OK ? CLI_WRONG : CLI_DONE;
}

int cmd_check(int argc, char **argv)
{
    check_job job = {0};
    cli_job_start(&job.job_options);
    for (int i = 1; i < argc; i++) {
        int end = read_argument(&job, argc, argv, &i);
        if (end != CLI_DONE) return end;
    }
    if (job.help) {
        ht_text text = {0};
        ht_text_add(&text, "%s\nKeys of the job's train block, and their defaults:\n", usage);
        ht_config_print_help(&text);
        return cli_put(&text);
    }
    if (job.keys) {
        ht_text text = {0};
        ht_config_print_docs(&text, job.job_options.request.blocks, job.job_options.request.block_count);
        return cli_put(&text);
    }
    if (!job.job_options.request.path) return cli_fail(CLI_WRONG, "check: which file? see halftone check --help");
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = check(ctx, &job);
    ht_context_free(ctx);
    return end;
}
