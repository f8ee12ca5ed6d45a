#include "cli/option_table.h"

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_WORDS = 64 };

typedef struct opt_job {
    const char *file, *target_file, *device;
    const ht_pass *passes[MAX_WORDS];
    ht_train_setting pairs[MAX_WORDS];
    size_t pass_count, pair_count;
    bool list, json;
} opt_job;

/* ---- arguments ---- */

static int no_such_pass(const char *name)
{
    const char *nearest = NULL;
    int best = 4;
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++) {
        int distance = ht_edit_distance(name, row->pass->name);
        if (distance < best) best = distance, nearest = row->pass->name;
    }
    if (nearest) return cli_fail(CLI_WRONG, "opt: there is no pass '%s'; did you mean '%s'?", name, nearest);
    return cli_fail(CLI_WRONG, "opt: there is no pass '%s'; see halftone opt --list", name);
}

/* Cuts the names at their commas. */
static int take_passes(const cli_given *given, char *names)
{
    opt_job *job = given->at;
    while (names) {
        char *name = names, *comma = strchr(names, ',');
        if (comma) *comma = '\0';
        names = comma ? comma + 1 : NULL;
        const ht_pass *pass = ht_pass_find(name);
        if (!pass) return no_such_pass(name);
        if (job->pass_count == MAX_WORDS) return cli_fail(CLI_WRONG, "opt: more than %d passes", MAX_WORDS);
        job->passes[job->pass_count++] = pass;
    }
    return CLI_DONE;
}

/* Cuts the pair at its equals sign. */
static int take_setting(const cli_given *given, char *pair)
{
    opt_job *job = given->at;
    char *equals = strchr(pair, '=');
    if (!equals || equals == pair) return cli_bad_value(given, pair);
    if (job->pair_count == MAX_WORDS) return cli_fail(CLI_WRONG, "opt: more than %d settings", MAX_WORDS);
    *equals = '\0';
    job->pairs[job->pair_count++] = (ht_train_setting){pair, equals + 1};
    return CLI_DONE;
}

/* ---- the work ---- */

static int list_passes(void)
{
    ht_text text = {0};
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++) {
        const char *condition = row->when->words;
        ht_text_add(&text, "%-12s %s%s%s\n", row->pass->name, row->pass->help, condition ? "; if " : "",
                    condition ? condition : "");
    }
    return cli_show(&text);
}

static int list_passes_as_json(void)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    ht_json_line(&json, 2);
    ht_json_begin_array(&json, "passes");
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++) {
        ht_json_line(&json, 4);
        ht_json_begin_object(&json, NULL);
        ht_json_put_text(&json, "name", row->pass->name);
        ht_json_put_text(&json, "help", row->pass->help);
        if (row->when->words) ht_json_put_text(&json, "if", row->when->words);
        ht_json_end_object(&json);
    }
    ht_json_line(&json, 2);
    ht_json_end_array(&json);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    return cli_put(&text);
}

static ht_status read_target(ht_context *ctx, const char *path, ht_target *out)
{
    if (path) return ht_target_read(ctx, out, path);
    ht_target_here(ctx, out);
    return HT_OK;
}

static ht_status read_graph(ht_context *ctx, const char *path, ht_graph **out)
{
    char *text;
    size_t length;
    bool standard_input = strcmp(path, "-") == 0;
    HT_TRY(ht_read_file(ctx, &text, &length, standard_input ? "/dev/stdin" : path));
    ht_status status = ht_graph_parse(out, ctx, standard_input ? "standard input" : path, text, length);
    free(text);
    return status == HT_OK ? ht_graph_verify(*out) : status;
}

static int print_graph(ht_context *ctx, const ht_graph *g)
{
    char *text;
    if (ht_graph_print(&text, g) != HT_OK) return cli_fail(CLI_FAILED, "%s", ht_context_message(ctx));
    int end = cli_puts(text);
    free(text);
    return end;
}

/* Whatever goes wrong before the first pass is wrong input. */
static int optimise(ht_context *ctx, const opt_job *job, ht_graph **g)
{
    ht_target target;
    ht_pass_options options = ht_pass_options_standard();
    ht_status status = read_target(ctx, job->target_file, &target);
    if (status == HT_OK && job->device) status = ht_target_bind(ctx, &target, job->device);
    if (status == HT_OK) status = read_graph(ctx, job->file, g);
    if (status == HT_ENOMEM) return cli_fail(CLI_FAILED, "%s", ht_context_message(ctx));
    if (status != HT_OK) return cli_fail(CLI_WRONG, "%s", ht_context_message(ctx));
    status = ht_pass_options_read(ctx, &options, HT_STAGE_ANY, job->pair_count, job->pairs);
    const ht_plan_request request = {.target = &target, .options = &options};
    const ht_pass_env env = ht_plan_pass_env(&request);
    for (size_t i = 0; i < job->pass_count && status == HT_OK; i++) status = ht_pass_run(*g, job->passes[i], &env);
    if (status != HT_OK) return cli_fail(cli_end_of(status), "%s", ht_context_message(ctx));
    return print_graph(ctx, *g);
}

static int run_opt(void *arg)
{
    opt_job *job = arg;
    if (job->list) return job->json ? list_passes_as_json() : list_passes();
    if (job->json) return cli_fail(CLI_WRONG, "opt: --json goes with --list");
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    ht_graph *g = NULL;
    end = optimise(ctx, job, &g);
    ht_graph_free(g);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"FILE", "file", CLI_ARGUMENT, offsetof(opt_job, file), .help = "a graph in text form; - is standard input",
     .flags = CLI_STDIN, .form = 1},
    {"--pass", "NAME[,NAME...]", CLI_TAKEN, 0, .help = "passes to run", .flags = CLI_REPEATED, .form = 1,
     .takes = "the name of a pass", .take = take_passes},
    {"--set", "KEY=VALUE", CLI_TAKEN, 0, .help = "a setting for the passes that know its key", .flags = CLI_REPEATED,
     .form = 1, .takes = "KEY=VALUE", .take = take_setting},
    {"--target", "FILE", CLI_TEXT, offsetof(opt_job, target_file),
     .help = "the machine to optimise for: a target file (halftone probe --output) or the name of a shipped target "
             "(docs/target.md); this one when it is left out",
     .form = 1, .takes = "a file"},
    {"--device", "NAME", CLI_TEXT, offsetof(opt_job, device), .help = "what computes on it: cpu, fake, cuda or cuda:N",
     .form = 1, .takes = "the name of a device"},
    {"--list", NULL, CLI_FLAG, offsetof(opt_job, list), .help = "the pipeline: its passes in the order that runs",
     .form = 2, .flags = CLI_INSTEAD | CLI_NEEDED},
    {"--json", NULL, CLI_FLAG, offsetof(opt_job, json),
     .help = "with --list: {\"passes\": [{\"name\", \"help\", \"if\"}]}", .form = 2, .flags = CLI_INSTEAD},
    {0},
};

static const cli_entry examples[] = {
    {"halftone opt graph.ht --pass cse,dce", "common subexpressions once, dead code removed"},
    {"halftone opt graph.ht --pass autocast --set precision=bf16", "the graph in mixed precision"},
    {0},
};

const cli_command cmd_opt = {
    .name = "opt",
    .summary = "run passes on a graph in text form",
    .description =
        "Reads a graph in text form (docs/ir.md) from FILE, or from standard input when FILE is -, runs the passes in "
        "the order given, checks the graph after each, and prints what they left. Without --pass the graph is only "
        "checked and printed.",
    .options = options,
    .size = sizeof(opt_job),
    .run = run_opt,
    .examples = examples,
    .see_also = "explain ops probe",
};
