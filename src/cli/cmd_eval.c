/* halftone eval: a run's newest snapshot on held-out data. */
#include "cli/job_options.h"
#include "cli/translate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: halftone eval RUN [--bleu TOKENIZER] [--beam K] [--set KEY=VALUE]... [--json]\n"
    "\n"
    "Reads the newest complete snapshot of the run in the folder RUN and prints loss, perplexity and accuracy on the\n"
    "validation part of its data. Paths of the data are seen from where the command is started, as in halftone train.\n"
    "    --set         overrides a key: data.validation=other.txt, train.eval_batches=10\n"
    "    --bleu        translate the validation part, too, and print its BLEU: 13a (sacreBLEU's standard) or none "
    "(texts\n"
    "                  are tokens already); words of a reference that the vocabulary does not know are never matched\n"
    "    --beam        hypotheses per sentence; 1 when it is left out\n"
    "    --json        one object: {\"run\", \"step\", \"loss\", \"perplexity\", \"accuracy\", \"bleu\", \"count\", "
    "\"seconds\"};\n"
    "                  what a task does not have is null\n";

typedef struct eval_job {
    cli_job job_options;
    const char *run;
    const char *bleu; /* its tokenizer; NULL: not asked for */
    int64_t beam;
    bool help, json;
} eval_job;

static int print_report(const eval_job *job, const ht_eval_report *r, double bleu)
{
    ht_text text = {0};
    if (job->json) {
        ht_text_add(&text, "{\"run\": ");
        cli_json_string(&text, job->run);
        ht_text_add(&text, ", \"step\": %" PRId64, r->step);
        cli_json_number(&text, "loss", r->loss);
        cli_json_number(&text, "perplexity", r->perplexity);
        cli_json_number(&text, "accuracy", r->accuracy);
        cli_json_number(&text, "bleu", bleu);
        ht_text_add(&text, ", \"count\": %" PRId64, r->count);
        cli_json_number(&text, "seconds", r->seconds);
        ht_text_add(&text, "}\n");
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
    ht_run_request request = {.config = config, .mode = HT_RUN_EVALUATE, .folder = job->run};
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
    if (ht_job_recorded(ctx, path, &text) != HT_OK)
        return cli_fail(CLI_WRONG, "eval: %s holds no run: %s", job->run, ht_context_message(ctx));
    job->job_options.request.path = path;
    job->job_options.request.text = text;
    job->job_options.request.length = strlen(text);
    int end = cli_job_read(&job->job_options, ctx, &config);
    if (end == CLI_DONE) end = evaluate(job, ctx, config);
    ht_config_free(config);
    free(text);
    return end;
}

static int parse_args(eval_job *job, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int end;
        char *value;
        double number;
        if (cli_flag(argv, i, "--help")) {
            job->help = true;
        } else if (cli_flag(argv, i, "--json")) {
            job->json = true;
        } else if (cli_value(argc, argv, &i, "--bleu", &value)) {
            if (!value || (strcmp(value, "13a") != 0 && strcmp(value, "none") != 0))
                return cli_fail(CLI_WRONG, "eval: --bleu wants a tokenizer: 13a or none");
            job->bleu = value;
        } else if (cli_value(argc, argv, &i, "--beam", &value)) {
            if (!value || !ht_number_read(value, &number) || !(number >= 1 && number <= 64) || number != floor(number))
                return cli_fail(CLI_WRONG, "eval: --beam wants a whole number from 1 to 64");
            job->beam = (int64_t)number;
        } else if (strncmp(argv[i], "--set", 5) == 0 &&
                   cli_job_option(&job->job_options, "eval", argc, argv, &i, &end)) {
            if (end != CLI_DONE) return end;
        } else if (argv[i][0] == '-') {
            return cli_no_such_option("eval", argv[i]);
        } else if (job->run) {
            return cli_fail(CLI_WRONG, "eval: one run at a time: '%s' and '%s'", job->run, argv[i]);
        } else {
            job->run = argv[i];
        }
    }
    return job->help || job->run ? CLI_DONE : cli_fail(CLI_WRONG, "eval: which run? see halftone eval --help");
}

int cmd_eval(int argc, char **argv)
{
    eval_job job = {.beam = 1};
    ht_context *ctx;
    cli_job_start(&job.job_options);
    int end = parse_args(&job, argc, argv);
    if (end != CLI_DONE) return end;
    if (job.help) return cli_puts(usage);
    end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = read_run(&job, ctx);
    ht_context_free(ctx);
    return end;
}
