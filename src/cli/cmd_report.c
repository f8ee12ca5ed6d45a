/* halftone report: runs as a page. */
#include <stdio.h>
#include <string.h>

#include "cli/option_table.h"
#include "cli/report/run_page.h"

typedef struct report_job {
    const char *folders[CLI_MOST_RUNS];
    size_t count;
    const char *output; /* NULL: run.html in the folder of a run that is alone, else runs.html here */
    bool json;
    /* while it runs */
    cli_runs runs;
    char path[4096];
} report_job;

static int take_folder(const cli_given *given, char *value)
{
    report_job *job = given->at;
    if (job->count == CLI_MOST_RUNS) return cli_fail(CLI_WRONG, "report: more than %d runs", CLI_MOST_RUNS);
    job->folders[job->count++] = value;
    return CLI_DONE;
}

static int find_output(report_job *job)
{
    const char *first = job->folders[0];
    bool slash = first[0] && first[strlen(first) - 1] == '/';
    int length = job->output      ? snprintf(job->path, sizeof job->path, "%s", job->output)
                 : job->count > 1 ? snprintf(job->path, sizeof job->path, "runs.html")
                                  : snprintf(job->path, sizeof job->path, "%s%srun.html", first, slash ? "" : "/");
    return length < (int)sizeof job->path ? CLI_DONE : cli_fail(CLI_WRONG, "report: the path is too long");
}

static ht_status write_page(report_job *job, ht_context *ctx)
{
    ht_report *report = NULL;
    HT_TRY(cli_runs_page(&report, ctx, &job->runs));
    ht_status status = ht_report_write(report, job->path);
    ht_report_free(report);
    return status;
}

static void tell_notes(const cli_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++)
        if (runs->list[i].notes.data) fputs(runs->list[i].notes.data, stderr);
}

static int show(const report_job *job, bool page)
{
    ht_text text = {0};
    if (job->json) {
        cli_runs_json(&text, &job->runs);
        return cli_put(&text);
    }
    ht_table table = {.count = 0};
    cli_runs_table(&table, &job->runs);
    text.failed |= table.failed;
    ht_table_print(&text, &table, cli_columns());
    if (page) ht_text_add(&text, "\nThe page: %s\n", job->path);
    ht_table_free(&table);
    return cli_show(&text);
}

static int report(report_job *job, ht_context *ctx)
{
    bool page = job->output || !job->json;
    int end = find_output(job);
    if (end != CLI_DONE) return end;
    ht_status status = cli_runs_open(&job->runs, ctx, job->folders, job->count);
    if (status != HT_OK) return cli_fail(CLI_WRONG, "report: %s", ht_context_message(ctx));
    tell_notes(&job->runs);
    if (page) status = write_page(job, ctx);
    if (status != HT_OK) return cli_fail(CLI_FAILED, "report: %s", ht_context_message(ctx));
    return show(job, page);
}

static int run_report(void *arg)
{
    report_job *job = arg;
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = report(job, ctx);
    cli_runs_close(&job->runs);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"RUN", "run", CLI_ARGUMENT, 0, .help = "the folder of a run; several are compared", .flags = CLI_REPEATED,
     .take = take_folder},
    {"--output", "FILE", CLI_TEXT, offsetof(report_job, output),
     .help = "the page; without it, run.html in the folder of a run that is alone, runs.html here for several",
     .flags = CLI_FILLED, .letter = 'o', .takes = "a file"},
    {"--json", NULL, CLI_FLAG, offsetof(report_job, json),
     .help = "instead of the table, and without a page unless --output asks for one, an array with an object for each "
             "run: {\"name\", \"folder\", \"model\", \"precision\", \"step\", \"steps\", \"loss\", \"eval_loss\", "
             "\"best_eval_loss\", \"best_eval_step\", \"eval_perplexity\", \"eval_accuracy\", \"skips\", \"step_ms\", "
             "\"tokens_per_second\", \"process_peak_bytes\", \"seconds\"}; losses are those of the last step and the "
             "last evaluation, times and rates medians"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone report run", "run/run.html"},
    {"halftone report runs/demo runs/demo/bf16 -o both.html", "two runs, their curves over each other"},
    {"halftone report run --json", "the last values, for a program"},
    {0},
};

const cli_command cmd_report = {
    .name = "report",
    .summary = "a run, or several compared, as a page with charts",
    .description =
        "Makes one page of what the folder of a run holds, which may still be training: loss, learning rate, "
        "throughput, gradient norm, loss scale and skipped steps, memory over a step and by heading, and the resolved "
        "config. Time per layer and the roofline come from profile.json in the folder, which halftone profile JOB.json "
        "--json > RUN/profile.json writes, and training with DeepSpeed's flops_profiler. Several runs are drawn over "
        "each other, by step, and what differs in their configs is listed.\n\n"
        "The page is one file that loads nothing, below a megabyte however long the runs are: long curves are medians "
        "in "
        "a band from the least to the greatest values. Where the browser runs scripts, a pointer shows values, "
        "dragging zooms and a double click resets, the legend hides curves; arrows, +, - and Escape do the same by "
        "keyboard. Lines of metrics.jsonl that cannot be read are left out, and named (docs/report.md).",
    .options = options,
    .size = sizeof(report_job),
    .run = run_report,
    .examples = examples,
    .see_also = "train compare profile",
};
