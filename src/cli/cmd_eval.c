/* halftone eval: a run's newest snapshot on held-out data. */
#include "cli/job_options.h"
#include "cli/translate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

typedef struct eval_job {
    cli_job job_options;
    const char *run;
    const char *bleu; /* its tokenizer; NULL: not asked for */
    const char *hypotheses, *references;
    int64_t beam;
    bool json;
} eval_job;

/* What a BLEU is worth: words that the model cannot say, and sentences that were not judged. */
static void add_references(ht_text *text, const ht_data_part_info *part)
{
    int64_t words = part->tokens - part->items; /* each reference has an end, too */
    ht_text_add(text, "unknown     %" PRId64 " of %" PRId64 " words of the references\n", part->unknown, words);
    if (part->left_out > 0)
        ht_text_add(text, "left out    %" PRId64 " of %" PRId64 " pairs, empty or longer than data.max_length\n",
                    part->left_out, part->left_out + part->items);
}

static int print_report(const eval_job *job, const ht_eval_report *r, double bleu, const ht_data_part_info *part)
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
        if (!isnan(bleu)) ht_json_put_int(&json, "unknown", part->unknown);
        if (!isnan(bleu)) ht_json_put_int(&json, "left_out", part->left_out);
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
    if (!isnan(bleu)) add_references(&text, part);
    ht_text_add(&text, "count       %" PRId64 "\n", r->count);
    return cli_put(&text);
}

/* Nothing was judged: why. */
static int fail_empty(const ht_data_part_info *part)
{
    if (part->left_out > 0)
        return cli_fail(CLI_WRONG,
                        "eval: all %" PRId64 " pairs of the validation part are left out: empty, or longer than "
                        "data.max_length",
                        part->left_out);
    return cli_fail(CLI_WRONG,
                    "eval: the data of this run has no validation part; --set data.validation=FILE names one");
}

static int evaluate(const eval_job *job, ht_context *ctx, const cli_recorded *recorded)
{
    ht_run *run;
    ht_eval_report report;
    ht_run_request request = {
        .config = recorded->config, .mode = HT_RUN_EVALUATE, .folder = job->run, .data_folder = recorded->data_folder};
    double bleu = NAN;
    if (job->bleu) request.beam = job->beam;
    ht_status status = ht_run_open(&run, ctx, &request);
    if (status == HT_OK) status = ht_run_evaluate(run, &report);
    if (status == HT_OK && report.count > 0 && job->bleu) status = cli_run_bleu(ctx, run, job->bleu, job->beam, &bleu);
    int end = CLI_DONE;
    const ht_data_part_info *part =
        status == HT_OK ? &ht_data_info_of(ht_run_data(run))->parts[HT_DATA_VALIDATION] : NULL;
    if (status != HT_OK)
        end = cli_fail(cli_end_of(status), "eval: %s", ht_context_message(ctx));
    else if (report.count == 0)
        end = fail_empty(part);
    else
        end = print_report(job, &report, bleu, part);
    ht_run_close(run);
    return end;
}

static int read_run(eval_job *job, ht_context *ctx)
{
    cli_recorded recorded;
    int end = cli_recorded_open(&recorded, &job->job_options, ctx, "eval", job->run);
    if (end == CLI_DONE) end = evaluate(job, ctx, &recorded);
    cli_recorded_close(&recorded);
    return end;
}

/* ---- translations that are there already ---- */

static int print_files(const eval_job *job, const ht_bleu *bleu, int64_t count)
{
    ht_text text = {0};
    double score = ht_bleu_score(bleu), brevity = ht_bleu_brevity(bleu);
    if (job->json) {
        ht_json_writer json = {.text = &text};
        ht_json_begin_object(&json, NULL);
        ht_json_put_number(&json, "bleu", score);
        ht_json_put_number(&json, "brevity", brevity);
        ht_json_begin_array(&json, "precisions");
        for (int i = 0; i < HT_BLEU_ORDERS; i++)
            ht_json_put_number(&json, NULL, 100 * (double)bleu->matches[i] / (double)bleu->totals[i]);
        ht_json_end_array(&json);
        ht_json_put_int(&json, "count", count);
        ht_json_end_object(&json);
        ht_text_add(&text, "\n");
        return cli_put(&text);
    }
    ht_text_add(&text, "bleu        %.4f\nbrevity     %.4f\nprecisions ", score, brevity);
    for (int i = 0; i < HT_BLEU_ORDERS; i++)
        ht_text_add(&text, " %.2f", bleu->totals[i] ? 100 * (double)bleu->matches[i] / (double)bleu->totals[i] : 0);
    ht_text_add(&text, "\ncount       %" PRId64 "\n", count);
    return cli_put(&text);
}

static int judge_files(const eval_job *job, ht_context *ctx)
{
    ht_bleu bleu = {.tokenizer = HT_BLEU_13A};
    int64_t count;
    if (!job->hypotheses || !job->references)
        return cli_fail(CLI_WRONG, "eval: --hypotheses and --references come together");
    if (job->run) return cli_fail(CLI_WRONG, "eval: the BLEU of two files needs no run");
    if (job->bleu) ht_bleu_tokenizer_find(job->bleu, &bleu.tokenizer);
    if (cli_files_bleu(&bleu, ctx, job->hypotheses, job->references, &count) != HT_OK)
        return cli_fail(CLI_WRONG, "eval: %s", ht_context_message(ctx));
    return print_files(job, &bleu, count);
}

static int run_eval(void *arg)
{
    eval_job *job = arg;
    ht_context *ctx;
    cli_job_start(&job->job_options);
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = job->hypotheses || job->references ? judge_files(job, ctx) : read_run(job, ctx);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"RUN", "run", CLI_ARGUMENT, offsetof(eval_job, run), .help = "the folder of a run", .form = 1},
    {"--hypotheses", "FILE", CLI_TEXT, offsetof(eval_job, hypotheses),
     .help = "print the BLEU of these translations, one on each line, instead of evaluating a run", .form = 2,
     .flags = CLI_INSTEAD | CLI_NEEDED, .takes = "a file"},
    {"--references", "FILE", CLI_TEXT, offsetof(eval_job, references), .help = "their references, line by line",
     .form = 2, .flags = CLI_INSTEAD | CLI_NEEDED, .takes = "a file"},
    {"--bleu", "TOKENIZER", CLI_CHOICE, offsetof(eval_job, bleu),
     .help =
         "translate the validation part, too, and print its BLEU: 13a (sacreBLEU's standard) or none (texts are tokens "
         "already), against the references as their file has them; words that the vocabulary does not know are never "
         "matched, and counted",
     .choices = cli_bleu_tokenizers},
    {"--beam", "K", CLI_WHOLE, offsetof(eval_job, beam), .help = "hypotheses per sentence", .form = 1, .least = 1,
     .most = 64, .standard = "1"},
    {.kind = CLI_GROUP, .offset = offsetof(eval_job, job_options), .group = cli_set_rows, .form = 1},
    {"--json", NULL, CLI_FLAG, offsetof(eval_job, json),
     .help =
         "one object: {\"run\", \"step\", \"loss\", \"perplexity\", \"accuracy\", \"bleu\", \"count\", "
         "\"seconds\"}; what a task does not have is null; with --bleu also \"unknown\" and \"left_out\"; of files: "
         "{\"bleu\", \"brevity\", \"precisions\", \"count\"}"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone eval run", "the newest snapshot on the data held out by the job"},
    {"halftone eval run --set data.validation=other.txt", "on other data"},
    {"halftone eval runs/demo --bleu 13a --beam 4", "translations, with four hypotheses per sentence"},
    {"halftone eval --hypotheses out.txt --references ref.txt", "the BLEU of translations from elsewhere"},
    {0},
};

const cli_command cmd_eval = {
    .name = "eval",
    .summary = "loss, perplexity and accuracy of a run on held-out data",
    .description =
        "Reads the newest complete snapshot of the run in the folder RUN, which may still be training, and prints "
        "loss, perplexity and accuracy on the validation part of its data; with --bleu also the BLEU of its "
        "translations. Where that part has files of its own, the files to train on are not needed. Relative paths "
        "begin in the folder where the run was started (if there is no such "
        "file, in this one), those of --set in this one.",
    .options = options,
    .size = sizeof(eval_job),
    .run = run_eval,
    .alone = true,
    .examples = examples,
    .see_also = "train predict data",
};
