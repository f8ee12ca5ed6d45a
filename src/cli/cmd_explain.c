/* halftone explain: what a job's training step is made of. */
#include "cli/explain_view.h"
#include "cli/job_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct explain_job {
    cli_job job_options;
    const char *graph;  /* a pass, "" for every pass; NULL: not asked for */
    const char *html;   /* a file; NULL: none */
    const char *svg;    /* a file for Figure 1 alone; NULL: none */
    const char *layer;  /* of the figure; NULL: the one with the largest products */
    const char *target; /* a file; NULL: this machine */
    bool all, dot, json;
} explain_job;

static int write_page(const explain_job *job, const cli_explained *e)
{
    ht_report *report = NULL;
    ht_status status = ht_report_create(&report, e->ctx, "A training step, explained");
    if (status == HT_OK) status = cli_figure1_report(report, e, job->layer);
    if (status == HT_OK) status = cli_explain_report(report, e);
    if (status == HT_OK) status = ht_report_write(report, job->html);
    ht_report_free(report);
    return status == HT_OK ? CLI_DONE : cli_fail(cli_end_of(status), "explain: %s", ht_context_message(e->ctx));
}

static int write_figure(const explain_job *job, const cli_explained *e)
{
    ht_text text = {0};
    ht_status status = cli_figure1_svg(&text, e, job->layer);
    if (status != HT_OK) return cli_fail(cli_end_of(status), "explain: %s", ht_context_message(e->ctx));
    FILE *file = text.failed ? NULL : fopen(job->svg, "wbe");
    bool written = file && fwrite(text.data, 1, text.length, file) == text.length;
    if (file && fclose(file) != 0) written = false;
    ht_text_free(&text);
    return written ? CLI_DONE : cli_fail(CLI_FAILED, "explain: %s: %s", job->svg, strerror(errno));
}

static int print_explained(const explain_job *job, const cli_explained *e)
{
    ht_text text = {0};
    if (job->graph && !e->graphs.data) {
        ht_text_add(&text, "explain: --graph: the pass %s does not run for this job; these do:", job->graph);
        for (size_t i = 0; i < e->pass_count; i++) ht_text_add(&text, " %s", e->passes[i].pass->name);
        int end = cli_fail(CLI_WRONG, "%s", text.failed ? "out of memory" : text.data);
        ht_text_free(&text);
        return end;
    }
    if (job->graph) return cli_puts(e->graphs.data);
    if (job->html) return write_page(job, e);
    if (job->svg) return write_figure(job, e);
    if (job->dot && cli_explain_dot(&text, e) != HT_OK) text.failed = true;
    if (job->json) cli_explain_json(&text, e);
    if (job->dot || job->json) return cli_put(&text);
    cli_explain_table(&text, e, job->all);
    cli_explain_layers(&text, job->job_options.request.path);
    return cli_show(&text);
}

static int explain(explain_job *job, ht_context *ctx)
{
    ht_config *config;
    if (job->layer && !job->html && !job->svg)
        return cli_fail(CLI_WRONG, "explain: --layer chooses the layer of a figure: with --html or --svg");
    cli_explained explained = {.keep_text = job->graph, .only_pass = job->graph && *job->graph ? job->graph : NULL};
    int end = cli_job_read(&job->job_options, ctx, &config);
    if (end != CLI_DONE) return end;
    ht_target target;
    ht_run_request request = {.config = config, .mode = HT_RUN_NEW, .target = job->target ? &target : NULL};
    ht_status status = job->target ? ht_target_read(ctx, &target, job->target) : HT_OK;
    if (status == HT_OK) status = cli_explain(&explained, ctx, &request);
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

static int run_explain(void *arg)
{
    explain_job *job = arg;
    ht_context *ctx;
    cli_job_start(&job->job_options);
    job->job_options.request.training = true;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = explain(job, ctx);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {.kind = CLI_GROUP, .offset = offsetof(explain_job, job_options), .group = cli_job_rows},
    {"--ranks", "N", CLI_WHOLE, offsetof(explain_job, job_options.request.ranks),
     .help = "plan for the first of N ranks, without the others, and show what each would hold and exchange in every "
             "ZeRO stage (docs/parallel.md)",
     .least = 1, .most = 1e6, .standard = "1"},
    {"--target", "FILE", CLI_TEXT, offsetof(explain_job, target),
     .help = "plan for the machine of this target file (halftone probe writes one), or for the shipped target of this "
             "name, such as h200 (docs/target.md), not for this machine",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--all", NULL, CLI_FLAG, offsetof(explain_job, all),
     .help = "every layer; without it, those that are alike but for their number are one, with a *"},
    {"--graph", "PASS", CLI_TEXT, offsetof(explain_job, graph),
     .help = "the graph's text (docs/ir.md) after each pass, or after PASS", .bare = "", .choice = 1},
    {"--dot", NULL, CLI_FLAG, offsetof(explain_job, dot), .help = "a drawing for Graphviz", .choice = 1},
    {"--html", "FILE", CLI_TEXT, offsetof(explain_job, html),
     .help = "a page, into FILE: Figure 1 of the paper for a layer of this model, and the table", .flags = CLI_FILLED,
     .takes = "a file", .choice = 1},
    {"--svg", "FILE", CLI_TEXT, offsetof(explain_job, svg), .help = "that figure alone, into FILE", .flags = CLI_FILLED,
     .takes = "a file", .choice = 1},
    {"--layer", "NAME", CLI_TEXT, offsetof(explain_job, layer),
     .help = "the figure's layer; without it, the one with the largest products", .flags = CLI_FILLED,
     .takes = "a layer"},
    {"--json", NULL, CLI_FLAG, offsetof(explain_job, json),
     .help =
         "one object: {\"precision\", \"device\", \"isa\", \"model_hash\", \"plan_bytes\", \"bytes\": {space: "
         "{heading: bytes}}, "
         "\"dot_flops\", \"other_flops\", \"recomputed_flops\", \"kept\": [{\"layer\", \"op\", \"times\", \"bytes\"}], "
         "\"moved\": [{\"layer\", \"to\", \"times\", \"bytes\"}], \"recomputed\": [{\"layer\", \"op\", \"times\", "
         "\"bytes\", \"ms\"}], \"passes\": [{\"name\", \"level\", "
         "\"model_hash\", \"nodes\", \"casts\"}], \"rows\": [{\"layer\", \"block\", \"op\", \"in\", \"out\", "
         "\"in_types\", \"out_types\", \"dot_flops\", \"other_flops\", \"recomputed_flops\", \"class\", \"bytes\", "
         "\"kernel\", \"refused\"}]}; with --ranks also \"ranks\", \"axes\" and \"stages\": "
         "[{\"stage\", \"bytes\", \"padding\", \"prepacked\", \"messages\": [{\"op\", \"group\", \"dtype\", \"calls\", "
         "\"bytes\", "
         "\"largest\", \"sent\"}]}]; \"kernels\": false where rows stand in for a target that has none; FLOPs at the "
         "top are those of a step, a multiply-add counts two; "
         "docs/memory.md has the headings",
     .choice = 1},
    {0},
};

static const cli_entry examples[] = {
    {"halftone explain job.json --set train.precision=bf16", "what runs in which number type"},
    {"halftone explain job.json --graph=autocast", "the graph that this pass left"},
    {"halftone explain job.json --set halftone.recompute.policy=cheap", "what would be computed again, and what kept"},
    {"halftone explain job.json --ranks 4", "bytes and messages of each of four ranks, in every ZeRO stage"},
    {"halftone explain job.json --target h200", "the plan of another machine, made on this one"},
    {"halftone explain job.json --dot | dot -Tsvg > step.svg", "a drawing of the step"},
    {0},
};

const cli_command cmd_explain = {
    .name = "explain",
    .summary = "what a training step does to each layer: number types, bytes, kernels; the passes before",
    .description =
        "Plans a job and shows what its training step does to each layer, in the blocks of the mixed-precision paper: "
        "the half copy of the weights (float2half), FWD, BWD-Actv, BWD-Weight, weight update. First the passes on the "
        "way, each with the hash of the model that it left, the bytes of the plan, and the FLOPs of a step; what is "
        "kept from forward to backward, and what is computed again; then a "
        "line per layer with the "
        "number types that the product of each block reads and makes; then every instruction: its ops, the number "
        "types, the precision class that chose them, the bytes that it moves, its kernel, and by a note the kernels "
        "before that one that refused. Of a job that halftone compress wrote, also what layers took with codes and "
        "with "
        "floats. Nothing is trained. With --target the plan is that of another machine, byte for "
        "byte.",
    .options = options,
    .size = sizeof(explain_job),
    .run = run_explain,
    .alone = true,
    .examples = examples,
    .see_also = "check opt diff probe",
};
