/* halftone plan: what a job needs and how long it will take, without running it. */
#include "cli/plan_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_job {
    cli_job job_options;
    const char *target, *page;
    const char *names[CLI_MOST_TARGETS]; /* of --compare */
    size_t name_count;
    char budget[128]; /* the setting that --budget stands for */
    bool json, quick;
    /* while it runs */
    ht_target machine, targets[CLI_MOST_TARGETS];
} plan_job;

static int show(const plan_job *job, const cli_plan_view *view)
{
    ht_text text = {0};
    if (job->page && cli_plan_page(view, job->page) != HT_OK)
        return cli_fail(CLI_FAILED, "plan: %s", ht_context_message(view->ctx));
    if (job->json)
        cli_plan_json(&text, view);
    else
        cli_plan_text(&text, view);
    return job->json ? cli_put(&text) : cli_show(&text);
}

static ht_status read_targets(plan_job *job, ht_context *ctx)
{
    if (job->target) HT_TRY(ht_target_read(ctx, &job->machine, job->target));
    for (size_t i = 0; i < job->name_count; i++) HT_TRY(ht_target_read(ctx, &job->targets[i], job->names[i]));
    return HT_OK;
}

/* A plan that does not fit is a result, and a failure for scripts. */
static int plan(plan_job *job, ht_context *ctx)
{
    ht_config *config;
    if (read_targets(job, ctx) != HT_OK) return cli_fail(CLI_WRONG, "plan: %s", ht_context_message(ctx));
    int end = cli_job_read(&job->job_options, ctx, &config);
    if (end != CLI_DONE) return end;
    cli_plan_view *view = calloc(1, sizeof *view);
    if (!view) {
        ht_config_free(config);
        return cli_fail(CLI_FAILED, "plan: out of memory");
    }
    *view = (cli_plan_view){.ctx = ctx,
                            .request = &job->job_options.request,
                            .config = config,
                            .target = job->target ? &job->machine : NULL,
                            .target_name = job->target};
    ht_status status = cli_plan_job(view);
    if (status != HT_OK) {
        end = cli_fail(cli_end_of(status), "plan: %s", ht_context_message(ctx));
    } else {
        if (job->name_count) cli_plan_compare(view, job->targets, job->names, job->name_count);
        if (!job->name_count && !job->quick) {
            cli_plan_what_if(view);
            cli_plan_budgets(view);
            cli_plan_most(view);
        }
        end = show(job, view);
        if (end == CLI_DONE && !view->row.fits && !job->name_count) end = CLI_FAILED;
    }
    cli_plan_view_free(view);
    ht_config_free(config);
    free(view);
    return end;
}

static int run_plan(void *arg)
{
    plan_job *job = arg;
    ht_context *ctx;
    cli_job_start(&job->job_options);
    job->job_options.request.training = true;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = plan(job, ctx);
    ht_context_free(ctx);
    return end;
}

static int take_names(const cli_given *given, char *value)
{
    plan_job *job = given->at;
    job->name_count = 0;
    for (char *at = value, *name; (name = strsep(&at, ","));) {
        if (!*name || job->name_count == CLI_MOST_TARGETS) return cli_bad_value(given, value);
        job->names[job->name_count++] = name;
    }
    return CLI_DONE;
}

/* Short for a setting, so that the job's key and the option are one. */
static int take_budget(const cli_given *given, char *value)
{
    plan_job *job = given->at;
    cli_job *options = &job->job_options;
    if (options->request.set_count == CLI_MOST_SETS)
        return cli_fail(CLI_WRONG, "plan: more than %d settings", CLI_MOST_SETS);
    if (snprintf(job->budget, sizeof job->budget, "halftone.memory_limit=%s", value) >= (int)sizeof job->budget)
        return cli_bad_value(given, value);
    options->sets[options->request.set_count++] = job->budget;
    return CLI_DONE;
}

static const cli_option options[] = {
    {.kind = CLI_GROUP, .offset = offsetof(plan_job, job_options), .group = cli_job_rows},
    {"--ranks", "N", CLI_WHOLE, offsetof(plan_job, job_options.request.ranks),
     .help = "plan for the first of N ranks, without the others (docs/parallel.md)", .least = 1, .most = 1e6,
     .standard = "1"},
    {"--target", "FILE", CLI_TEXT, offsetof(plan_job, target),
     .help = "plan for the machine of this target file (halftone probe -o FILE writes one, and its kernels are what "
             "times are predicted by), or for the shipped target of this name, such as h200 (docs/target.md)",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--budget", "SIZE", CLI_TAKEN, 0,
     .help = "what the plan may take where the model computes: 24GiB, 800MB; short for --set "
             "halftone.memory_limit=SIZE. Without it, the memory of the target",
     .takes = "a size", .take = take_budget},
    {"--compare", "LIST", CLI_TAKEN, 0,
     .help = "these targets side by side, files or names with commas between them (edge,h200,cluster): each of their "
             "devices has the job's batch",
     .takes = "up to 16 files or names with commas between them", .take = take_names},
    {"--quick", NULL, CLI_FLAG, offsetof(plan_job, quick),
     .help = "the job itself alone: no changed jobs, no budgets, not the most that fits"},
    {"--page", "FILE", CLI_TEXT, offsetof(plan_job, page), .help = "also write a page with charts", .flags = CLI_FILLED,
     .takes = "a file"},
    {"--json", NULL, CLI_FLAG, offsetof(plan_job, json),
     .help =
         "one object: {\"job\", \"model\", \"precision\", \"target\", \"steps\", \"ranks\", \"params\", "
         "\"plan_bytes\", \"main_bytes\", \"bytes\": {space: {heading: bytes}}, \"kernels\", \"flops\": {\"forward\", "
         "\"backward\", \"update\", \"recomputed\", \"other\", \"causal_masked\"}, \"samples\", \"tokens\", "
         "\"step_ms\", \"exchange_ms\", \"exchange_known\", \"measured_share\", \"ceilings\", \"mfu\", "
         "\"step_joules\", \"fits\" "
         "(null: nobody knows), "
         "\"run_seconds\", \"limit_bytes\", \"what_if\": [{\"change\", \"to\", and \"refused\" or the same figures}], "
         "\"budgets\": [..], \"targets\": [..], \"largest_batch\": null or {\"key\", \"value\", \"main_bytes\", "
         "\"next_main_bytes\"}, \"most_layers\": likewise, \"timeline\": {\"lasting\": {heading: bytes}, "
         "\"activations\": [bytes], \"workspace\": [bytes], \"peak\", \"alive\": [{\"layer\", \"op\", \"type\", "
         "\"bytes\", \"first\", \"last\"}]}, \"instructions\": [{\"segment\", \"index\", \"layer\", \"op\", \"flops\", "
         "\"bytes\", \"ms\", "
         "\"memory_ms\", \"bound\", \"measured\"}]}. measured_share is 1 where every kernel was measured, and 0 "
         "where step_ms is the roofline's; ceilings is \"given\" by the target, the \"data sheet\" of the H200, or "
         "\"assumed\", and then step_ms is no bound; target is \"here\", or \"elsewhere\" for a GPU that is not here; "
         "without \"kernels\" workspace is null, and the sums hold that of "
         "the "
         "rows that stand in"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone probe -o machine.json && halftone plan job.json --target machine.json",
     "how long a step will take here"},
    {"halftone plan job.json --budget 8GiB", "does it fit, what would make it fit, the largest batch that does"},
    {"halftone plan job.json --compare edge,h200,cluster", "one job on several machines"},
    {"halftone plan job.json --ranks 8 --target 8xh200", "each of eight ranks, and what ZeRO's stages would do"},
    {0},
};

const cli_command cmd_plan = {
    .name = "plan",
    .summary = "bytes, FLOPs and the time of a step before it runs; what-if; what fits",
    .description =
        "Plans a job, runs nothing, and tells what it needs: parameters, FLOPs of a step, bytes by space and heading, "
        "and "
        "for each op its FLOPs, bytes and arithmetic intensity. The time of a step is predicted from the costs of the "
        "plan's instructions and the kernels that halftone probe measured (--target machine.json); for a target "
        "without "
        "such figures it is the bound of the roofline, and marked so (>=); without --target, by ceilings that are "
        "assumed, it is an estimate (~). Below come the same figures for changed jobs: "
        "precision, batch, recomputation, offload, ranks and ZeRO's stages, each of them a plan of its own; the "
        "largest "
        "batch and the most layers that fit; budgets of recomputation, memory against time; and the memory of one step "
        "by instruction, with the tensors that are alive where it is fullest.\n\n"
        "A plan that does not fit its limit (--budget, halftone.memory_limit, or the memory of the target) is shown "
        "with "
        "the changes that would fit, and ends with status 1. docs/planning.md says how times are predicted.",
    .options = options,
    .size = sizeof(plan_job),
    .run = run_plan,
    .alone = true,
    .examples = examples,
    .see_also = "explain profile probe check ladder",
};
