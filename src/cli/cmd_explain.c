/* halftone explain: what a job's training step is made of. */
#include "cli/explain_view.h"
#include "cli/job_options.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: halftone explain JOB.json [--all] [--set KEY=VALUE]...\n"
    "       halftone explain JOB.json --graph[=PASS] | --dot | --html FILE | --json [--set KEY=VALUE]...\n"
    "\n"
    "Plans a job and shows what its training step does to each layer, in the blocks of the mixed-precision paper: "
    "the\n"
    "half copy of the weights (float2half), FWD, BWD-Actv, BWD-Weight, weight update. First the passes on the way, "
    "each\n"
    "with the hash of the model that it left, and the bytes of the plan; then a line per layer with the number types "
    "that\n"
    "the product of each block reads and makes; then every instruction: its ops, the number types, the precision "
    "class\n"
    "that chose them, the bytes that it moves, its kernel, and by a note the kernels before that one that refused.\n"
    "Nothing is trained.\n"
    "    --all         every layer; without it, those that are alike but for their number are one, with a *\n"
    "    --graph       the graph's text (docs/ir.md) after each pass, or after PASS\n"
    "    --dot         a drawing for Graphviz: halftone explain job.json --dot | dot -Tsvg > step.svg\n"
    "    --html        the table as a page, into FILE\n"
    "    --set         overrides a key: train.precision=bf16\n"
    "    --deepspeed   DeepSpeed's config, instead of the job's \"engine\"\n"
    "    --json        one object: {\"precision\", \"isa\", \"model_hash\", \"bytes\": {heading: bytes}, \"passes\": "
    "[{\"name\",\n"
    "                  \"level\", \"model_hash\", \"nodes\", \"casts\"}], \"rows\": [{\"layer\", \"block\", \"op\", "
    "\"in\", \"out\",\n"
    "                  \"in_types\", \"out_types\", \"class\", \"bytes\", \"kernel\", \"refused\"}]}\n";

typedef struct explain_job {
    cli_job job_options;
    const char *graph_pass; /* NULL: after every pass */
    const char *html;       /* a file; NULL: none */
    bool help, all, graph, dot, json;
} explain_job;

static int write_page(const explain_job *job, const cli_explained *e)
{
    ht_report *report = NULL;
    ht_status status = ht_report_create(&report, e->ctx, "A training step, explained");
    if (status == HT_OK) status = cli_explain_report(report, e);
    if (status == HT_OK) status = ht_report_write(report, job->html);
    ht_report_free(report);
    return status == HT_OK ? CLI_DONE : cli_fail(CLI_FAILED, "explain: %s", ht_context_message(e->ctx));
}

static int print_explained(const explain_job *job, const cli_explained *e)
{
    ht_text text = {0};
    if (job->graph && !e->graphs.data) {
        ht_text_add(&text, "explain: --graph: the pass %s does not run for this job; these do:", job->graph_pass);
        for (size_t i = 0; i < e->pass_count; i++) ht_text_add(&text, " %s", e->passes[i].pass->name);
        int end = cli_fail(CLI_WRONG, "%s", text.failed ? "out of memory" : text.data);
        ht_text_free(&text);
        return end;
    }
    if (job->graph) return cli_puts(e->graphs.data);
    if (job->html) return write_page(job, e);
    if (job->dot && cli_explain_dot(&text, e) != HT_OK) text.failed = true;
    if (job->json) cli_explain_json(&text, e);
    if (!job->dot && !job->json) cli_explain_table(&text, e, job->all);
    return cli_put(&text);
}

static int explain(explain_job *job, ht_context *ctx)
{
    ht_config *config;
    cli_explained explained = {.keep_text = job->graph, .only_pass = job->graph_pass};
    int end = cli_job_read(&job->job_options, ctx, &config);
    if (end != CLI_DONE) return end;
    ht_run_request request = {.config = config, .mode = HT_RUN_NEW};
    ht_status status = cli_explain(&explained, ctx, &request);
    if (status != HT_OK)
        end = cli_fail(status == HT_EIO ? CLI_WRONG : cli_end_of(status), "explain: %s", ht_context_message(ctx));
    else if (explained.graphs.failed)
        end = cli_fail(CLI_FAILED, "explain: out of memory for the graphs");
    else
        end = print_explained(job, &explained);
    cli_explained_free(&explained);
    ht_config_free(config);
    return end;
}

static int parse_args(explain_job *job, int argc, char **argv)
{
    int end;
    char *value;
    for (int i = 1; i < argc; i++) {
        if (cli_flag(argv, i, "--help")) {
            job->help = true;
        } else if (cli_flag(argv, i, "--all")) {
            job->all = true;
        } else if (cli_flag(argv, i, "--dot")) {
            job->dot = true;
        } else if (cli_flag(argv, i, "--json")) {
            job->json = true;
        } else if (cli_flag(argv, i, "--graph")) {
            job->graph = true;
        } else if (strncmp(argv[i], "--graph=", 8) == 0) {
            job->graph = true;
            job->graph_pass = argv[i] + 8;
        } else if (cli_value(argc, argv, &i, "--html", &value)) {
            if (!value || !value[0]) return cli_fail(CLI_WRONG, "explain: --html takes a file");
            job->html = value;
        } else if (cli_job_option(&job->job_options, "explain", argc, argv, &i, &end)) {
            if (end != CLI_DONE) return end;
        } else if (argv[i][0] == '-') {
            return cli_no_such_option("explain", argv[i]);
        } else if (job->job_options.request.path) {
            return cli_fail(CLI_WRONG, "explain: one job at a time: '%s' and '%s'", job->job_options.request.path,
                            argv[i]);
        } else {
            job->job_options.request.path = argv[i];
        }
    }
    if (job->help) return CLI_DONE;
    if (!job->job_options.request.path) return cli_fail(CLI_WRONG, "explain: which job? see halftone explain --help");
    if (job->graph + job->dot + job->json + (job->html != NULL) > 1)
        return cli_fail(CLI_WRONG, "explain: --graph, --dot, --html and --json are different outputs");
    return CLI_DONE;
}

int cmd_explain(int argc, char **argv)
{
    explain_job *job = calloc(1, sizeof *job);
    ht_context *ctx;
    if (!job) return cli_fail(CLI_FAILED, "explain: out of memory");
    cli_job_start(&job->job_options);
    job->job_options.request.training = true;
    int end = parse_args(job, argc, argv);
    if (end == CLI_DONE && job->help) {
        free(job);
        return cli_puts(usage);
    }
    if (end == CLI_DONE) end = cli_context(&ctx);
    if (end == CLI_DONE) {
        end = explain(job, ctx);
        ht_context_free(ctx);
    }
    free(job);
    return end;
}
