/* halftone compress: a smaller run from a trained one. */
#include "cli/compress_view.h"
#include "cli/job_options.h"
#include "cli/translate.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>

typedef struct compress_job {
    cli_job job_options;
    const char *run, *recipe, *output, *job, *search, *page;
    const char *bleu; /* its tokenizer; NULL: not asked for */
    int64_t beam;
    bool force, json;
} compress_job;

static atomic_int stop_asked;

static void ask_stop(int signal)
{
    (void)signal;
    stop_asked = 1;
}

/* ---- what is told ---- */

static void on_note(void *arg, const char *line)
{
    (void)arg;
    cli_tell("", line);
}

static void on_step(void *arg, const ht_step_report *report)
{
    (void)arg;
    if (report->step % 50 != 0 && report->step != report->steps) return;
    fprintf(stderr, "tune %" PRId64 "/%" PRId64 "  loss %.4f\n", report->step, report->steps, report->loss);
}

/* What zeros that were pruned are worth by themselves. */
static void add_zeros(ht_text *text, const ht_compress_report *report)
{
    size_t sparse = 0;
    for (size_t i = 0; i < report->layer_count; i++) sparse += report->layers[i].sparse && !report->layers[i].slower;
    if (report->pruned && sparse)
        ht_text_add(text, "%zu layers leave their zeros out; other zeros are computed like other weights\n", sparse);
    else if (report->pruned)
        ht_text_add(text,
                    "zeros that were pruned are computed like other weights: by themselves they make nothing faster\n");
}

static int print_table(const ht_compress_report *report)
{
    const ht_compress_figures *b = &report->before, *a = &report->after;
    ht_text text = {0};
    ht_table table = {0};
    cli_compress_rows(&table, b, a);
    ht_table_print(&text, &table, 0);
    ht_table_free(&table);
    ht_text_add(&text, "memory, GFLOP and latency: one evaluation of a batch of %" PRId64 "\n", a->batch);
    if (report->step_count > 1) cli_compress_steps_print(&text, report);
    add_zeros(&text, report);
    if (report->layer_count) cli_compress_layers_print(&text, report);
    return cli_put(&text);
}

static int print_json(const compress_job *job, const ht_compress_report *report)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "run", job->run);
    ht_json_put_text(&json, "output", job->output);
    ht_compress_put_figures(&json, "before", &report->before);
    ht_compress_put_figures(&json, "after", &report->after);
    ht_compress_put_layers(&json, "layers", report->layers, report->layer_count);
    ht_json_begin_array(&json, "steps");
    for (size_t i = 0; i < report->step_count; i++) {
        ht_json_begin_object(&json, NULL);
        ht_json_put_text(&json, "step", report->steps[i].name);
        ht_compress_put_worth(&json, &report->steps[i].after);
        ht_json_end_object(&json);
    }
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    return cli_put(&text);
}

static int print_trials_json(const compress_job *job, const ht_compress_trials *trials)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "run", job->run);
    ht_json_put_text(&json, "output", trials->chosen >= 0 ? job->output : NULL);
    cli_compress_trials_json(&json, trials);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    return cli_put(&text);
}

/* ---- the command ---- */

static ht_status find_bleu(void *arg, ht_context *ctx, ht_run *run, double *bleu)
{
    const compress_job *job = arg;
    return cli_run_bleu(ctx, run, job->bleu, job->beam, bleu);
}

static int fail(ht_context *ctx, ht_status status)
{
    return cli_fail(status == HT_ENOTSUP ? CLI_WRONG : cli_end_of(status), "compress: %s", ht_context_message(ctx));
}

static int compress_once(const compress_job *job, ht_context *ctx, const ht_compress_request *request)
{
    ht_compress_report report;
    ht_status status = ht_compress(&report, ctx, request);
    if (status == HT_OK && job->page) status = cli_compress_page(ctx, job->page, job->run, job->output, &report);
    int end = status == HT_OK ? (job->json ? print_json(job, &report) : print_table(&report)) : fail(ctx, status);
    ht_compress_report_free(&report);
    return end;
}

static int compress_search(const compress_job *job, ht_context *ctx, const ht_compress_request *request)
{
    static ht_compress_trials trials;
    ht_compress_goals goals;
    char wrong[64];
    ht_text text = {0};
    if (!cli_compress_goals(job->search, &goals, wrong))
        return cli_fail(CLI_WRONG, "compress: --search: '%s' is none of drop=P%%, size=P%% and latency=P%%", wrong);
    ht_status status = ht_compress_search(&trials, ctx, request, &goals);
    if (status == HT_OK && job->page) status = cli_compress_trials_page(ctx, job->page, job->run, &trials);
    if (status != HT_OK) return fail(ctx, status);
    if (!job->json) cli_compress_trials_print(&text, &trials);
    int end = job->json ? print_trials_json(job, &trials) : cli_put(&text);
    return end == CLI_DONE && trials.chosen < 0 ? CLI_FAILED : end;
}

static int run_compress(void *arg)
{
    compress_job *job = arg;
    ht_context *ctx;
    if (!job->output) return cli_fail(CLI_WRONG, "compress: --output names the folder of the new run");
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    signal(SIGINT, ask_stop);
    signal(SIGTERM, ask_stop);
    ht_compress_request request = {.run = job->run,
                                   .job = job->job,
                                   .recipe = job->recipe,
                                   .output = job->output,
                                   .force = job->force,
                                   .sets = job->job_options.sets,
                                   .set_count = job->job_options.request.set_count,
                                   .stop = &stop_asked,
                                   .arg = job,
                                   .judge = job->bleu ? find_bleu : NULL,
                                   .beam = job->beam,
                                   .on_step = on_step,
                                   .on_note = on_note};
    end = job->search ? compress_search(job, ctx, &request) : compress_once(job, ctx, &request);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"RUN", "run", CLI_ARGUMENT, offsetof(compress_job, run),
     .help = "the folder of a run; with --job, a .safetensors file"},
    {"RECIPE.json", "recipe", CLI_ARGUMENT, offsetof(compress_job, recipe),
     .help = "the steps: quantize, prune, shrink, distill, tune; or DeepSpeed's config with compression_training "
             "(docs/compression.md)"},
    {"--output", "FOLDER", CLI_TEXT, offsetof(compress_job, output), .help = "the folder of the new run",
     .flags = CLI_NEEDED, .takes = "a folder", .letter = 'o'},
    {"--job", "JOB.json", CLI_TEXT, offsetof(compress_job, job),
     .help = "RUN is a file of weights, and this the job whose model they are", .flags = CLI_FILLED, .takes = "a file"},
    {"--search", "GOALS", CLI_TEXT, offsetof(compress_job, search),
     .help =
         "try every combination of the recipe's alternatives, such as \"ratio\": {\"try\": [0.3, 0.5]}, show the "
         "Pareto front of loss, bytes and latency, and write the smallest that fits: drop=0.5%,size=70%,latency=80%, "
         "any of them, in per cent of the run's",
     .flags = CLI_FILLED, .takes = "goals"},
    {"--bleu", "TOKENIZER", CLI_CHOICE, offsetof(compress_job, bleu),
     .help = "of a translator: its BLEU on the validation part before and after, as of halftone eval",
     .choices = cli_bleu_tokenizers},
    {"--beam", "K", CLI_WHOLE, offsetof(compress_job, beam), .help = "hypotheses per sentence", .least = 1, .most = 64,
     .standard = "1"},
    {"--page", "FILE", CLI_TEXT, offsetof(compress_job, page), .help = "also write a page with tables and charts",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--force", NULL, CLI_FLAG, offsetof(compress_job, force), .help = "replace an output that compress wrote before"},
    {.kind = CLI_GROUP, .offset = offsetof(compress_job, job_options), .group = cli_set_rows},
    {"--json", NULL, CLI_FLAG, offsetof(compress_job, json),
     .help = "one object: {\"run\", \"output\", \"before\", \"after\", \"layers\": [{\"name\", \"kernel\", \"ms\", "
             "\"replaced_ms\" or \"refused_ms\", \"margin_ms\", \"loss\"}], \"steps\": [{\"step\", \"quality\", "
             "\"parameters\", \"nonzero\", \"disk_bytes\"}]}, before and after with \"quality\" {\"loss\", "
             "\"perplexity\", \"accuracy\", with --bleu \"bleu\"}, \"parameters\", \"nonzero\", \"disk_bytes\", "
             "\"memory_bytes\", \"batch\", "
             "\"flops\", \"p50_ms\", \"p99_ms\", and \"items_per_s\" at \"best_batch\""},
    {0},
};

static const cli_entry examples[] = {
    {"halftone compress run recipe.json --output small", "what the recipe says, and a table of what it cost"},
    {"halftone train small/job.json --resume --set train.steps=4000", "the result, trained further"},
    {0},
};

const cli_command cmd_compress = {
    .name = "compress",
    .summary = "a smaller run from a trained one: quantize, prune, shrink, distill, tune",
    .description =
        "Takes the newest snapshot of the run in the folder RUN, changes its weights and its model by the steps of the "
        "recipe, and writes a new run, which opens with eval, predict, profile and train like any other. Beside the "
        "files of a run it holds job.json, with which its training goes on, model.ht, the graph of the model, and "
        "compress.json: what was done, and what the run was worth and cost before and after. The folder appears when "
        "all of it is there.",
    .options = options,
    .size = sizeof(compress_job),
    .run = run_compress,
    .alone = true,
    .examples = examples,
    .see_also = "train eval profile",
};
