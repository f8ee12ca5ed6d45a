/* halftone eval: a run's newest snapshot on held-out data. */
#include "cli/job_options.h"
#include "cli/translate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct eval_job {
    cli_job job_options;
    char *data_folder; /* where the run was started; NULL: not known */
    const char *run;
    const char *bleu; /* its tokenizer; NULL: not asked for */
    int64_t beam;
    bool json;
} eval_job;

static int print_report(const eval_job *job, const ht_eval_report *r, double bleu)
{
    ht_text text = {0};
    if (job->json) {
        ht_json_writer json = {.text = &text};
        ht_json_begin_object(&json, NULL);
        ht_json_put_text(&json, "run", job->run);
        ht_json_put_int(&json, "step", r->step);
        ht_json_put_number(&json, "loss", r->loss);
        ht_json_put_number(&json, "perplexity", r->perplexity);
        ht_json_put_number(&json, "accuracy", r->accuracy);
        ht_json_put_number(&json, "bleu", bleu);
        ht_json_put_int(&json, "count", r->count);
        ht_json_put_number(&json, "seconds", r->seconds);
        ht_json_end_object(&json);
        ht_text_add(&text, "\n");
        return cli_put(&text);
    }
    ht_text_add(&text, "step        %" PRId64 "\nloss        %.6f\n", r->step, r->loss);
    if (!isnan(r->perplexity)) ht_text_add(&text, "perplexity  %.6g\n", r->perplexity);
    if (!isnan(r->accuracy)) ht_text_add(&text, "accuracy    %.4f\n", r->accuracy);
    if (!isnan(bleu)) ht_text_add(&text, "bleu        %.4f\n", bleu);
    ht_text_add(&text, "count       %" PRId64 "\n", r->count);
    return cli_put(&text);
}

static ht_status find_bleu(const eval_job *job, ht_context *ctx, ht_run *run, double *bleu)
{
    cli_translations all;
    ht_status status = cli_translate(&all, ctx, run, job->beam, 0);
    if (status == HT_OK) status = cli_translations_bleu(&all, ctx, job->bleu, bleu);
    cli_translations_free(&all);
    return status;
}

static int evaluate(const eval_job *job, ht_context *ctx, const ht_config *config)
{
    ht_run *run;
    ht_eval_report report;
    ht_run_request request = {
        .config = config, .mode = HT_RUN_EVALUATE, .folder = job->run, .data_folder = job->data_folder};
    double bleu = NAN;
    if (job->bleu) request.beam = job->beam;
    ht_status status = ht_run_open(&run, ctx, &request);
    if (status == HT_OK) status = ht_run_evaluate(run, &report);
    if (status == HT_OK && report.count > 0 && job->bleu) status = find_bleu(job, ctx, run, &bleu);
    int end = CLI_DONE;
    if (status != HT_OK)
        end = cli_fail(cli_end_of(status), "eval: %s", ht_context_message(ctx));
    else if (report.count == 0)
        end = cli_fail(CLI_WRONG,
                       "eval: the data of this run has no validation part; --set data.validation=FILE names one");
    else
        end = print_report(job, &report, bleu);
    ht_run_close(run);
    return end;
}

static int read_run(eval_job *job, ht_context *ctx)
{
    char path[4096], *text;
    ht_config *config;
    if (snprintf(path, sizeof path, "%s/config.resolved.json", job->run) >= (int)sizeof path)
        return cli_fail(CLI_WRONG, "eval: the path is too long");
    if (ht_job_recorded(ctx, path, &text, &job->data_folder) != HT_OK)
        return cli_fail(CLI_WRONG, "eval: %s holds no run: %s", job->run, ht_context_message(ctx));
    job->job_options.request.path = path;
    job->job_options.request.text = text;
    job->job_options.request.length = strlen(text);
    int end = cli_job_read(&job->job_options, ctx, &config);
    if (end == CLI_DONE) end = evaluate(job, ctx, config);
    ht_config_free(config);
    free(job->data_folder);
    free(text);
    return end;
}

static int run_eval(void *arg)
{
    eval_job *job = arg;
    ht_context *ctx;
    cli_job_start(&job->job_options);
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = read_run(job, ctx);
    ht_context_free(ctx);
    return end;
}

static const char *const tokenizers[] = {"13a", "none", NULL};

static const cli_option options[] = {
    {"RUN", "run", CLI_ARGUMENT, offsetof(eval_job, run), .help = "the folder of a run"},
    {"--bleu", "TOKENIZER", CLI_CHOICE, offsetof(eval_job, bleu),
     .help =
         "translate the validation part, too, and print its BLEU: 13a (sacreBLEU's standard) or none (texts are tokens "
         "already); words of a reference that the vocabulary does not know are never matched",
     .choices = tokenizers},
    {"--beam", "K", CLI_WHOLE, offsetof(eval_job, beam), .help = "hypotheses per sentence", .least = 1, .most = 64,
     .standard = "1"},
    {.kind = CLI_GROUP, .offset = offsetof(eval_job, job_options), .group = cli_set_rows},
    {"--json", NULL, CLI_FLAG, offsetof(eval_job, json),
     .help = "one object: {\"run\", \"step\", \"loss\", \"perplexity\", \"accuracy\", \"bleu\", \"count\", "
             "\"seconds\"}; what a task does not have is null"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone eval run", "the newest snapshot on the data held out by the job"},
    {"halftone eval run --set data.validation=other.txt", "on other data"},
    {"halftone eval runs/demo --bleu 13a --beam 4", "translations, with four hypotheses per sentence"},
    {0},
};

const cli_command cmd_eval = {
    .name = "eval",
    .summary = "loss, perplexity and accuracy of a run on held-out data",
    .description =
        "Reads the newest complete snapshot of the run in the folder RUN, which may still be training, and prints "
        "loss, "
        "perplexity and accuracy on the validation part of its data. Where that part has files of its own, the files "
        "to train on are not needed. Relative paths begin in the folder where the run was started (if there is no such "
        "file, in this one), those of --set in this one.",
    .options = options,
    .size = sizeof(eval_job),
    .run = run_eval,
    .examples = examples,
    .see_also = "train data",
};
