#include "cli/cli.h"

#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: halftone opt [--pass NAME[,NAME...]] [--set KEY=VALUE]... [--target FILE] FILE\n"
    "       halftone opt --list [--json]\n"
    "\n"
    "Reads a graph in text form (docs/ir.md) from FILE, or from standard input when FILE is -, runs the passes in the\n"
    "order given, checks the graph after each, and prints what they left. Without --pass the graph is only checked "
    "and\n"
    "printed.\n"
    "    --pass      passes to run; may be given several times\n"
    "    --set       a setting for the passes that know its key\n"
    "    --target    the machine to optimise for (see halftone target); this one when it is left out\n"
    "    --list      the pipeline: its passes in the order that runs; with --json {\"passes\": [{\"name\", \"help\", "
    "\"if\"}]}\n";

enum { MAX_WORDS = 64 };

typedef struct opt_job {
    const char *file, *target_file;
    const ht_pass *passes[MAX_WORDS];
    ht_train_setting pairs[MAX_WORDS];
    size_t pass_count, pair_count;
    bool help, list, json;
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
static int add_passes(opt_job *job, char *names)
{
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
static int add_setting(opt_job *job, char *pair)
{
    char *equals = strchr(pair, '=');
    if (!equals || equals == pair) return cli_fail(CLI_WRONG, "opt: --set takes KEY=VALUE, not '%s'", pair);
    if (job->pair_count == MAX_WORDS) return cli_fail(CLI_WRONG, "opt: more than %d settings", MAX_WORDS);
    *equals = '\0';
    job->pairs[job->pair_count++] = (ht_train_setting){pair, equals + 1};
    return CLI_DONE;
}

static int read_argument(opt_job *job, int argc, char **argv, int *i)
{
    char *value, *option = argv[*i];
    if (cli_flag(argv, *i, "--help")) {
        job->help = true;
    } else if (cli_flag(argv, *i, "--list")) {
        job->list = true;
    } else if (cli_flag(argv, *i, "--json")) {
        job->json = true;
    } else if (cli_value(argc, argv, i, "--pass", &value)) {
        return value ? add_passes(job, value) : cli_fail(CLI_WRONG, "opt: --pass takes the name of a pass");
    } else if (cli_value(argc, argv, i, "--set", &value)) {
        return value ? add_setting(job, value) : cli_fail(CLI_WRONG, "opt: --set takes KEY=VALUE");
    } else if (cli_value(argc, argv, i, "--target", &value)) {
        if (!value) return cli_fail(CLI_WRONG, "opt: --target takes a file");
        job->target_file = value;
    } else if (option[0] == '-' && option[1] != '\0') {
        return cli_no_such_option("opt", option);
    } else if (job->file) {
        return cli_fail(CLI_WRONG, "opt: one file at a time: '%s' and '%s'", job->file, option);
    } else {
        job->file = option;
    }
    return CLI_DONE;
}

/* ---- the work ---- */

static int list_passes(bool json)
{
    ht_text text = {0};
    if (json) ht_text_add(&text, "{\n  \"passes\": [");
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++) {
        const char *condition = row->when->words;
        if (!json) {
            ht_text_add(&text, "%-12s %s%s%s\n", row->pass->name, row->pass->help, condition ? "; if " : "",
                        condition ? condition : "");
            continue;
        }
        ht_text_add(&text, "%s\n    {\"name\": ", row == ht_pipeline ? "" : ",");
        cli_json_string(&text, row->pass->name);
        ht_text_add(&text, ", \"help\": ");
        cli_json_string(&text, row->pass->help);
        if (condition) ht_text_add(&text, ", \"if\": ");
        if (condition) cli_json_string(&text, condition);
        ht_text_add(&text, "}");
    }
    if (json) ht_text_add(&text, "\n  ]\n}\n");
    return cli_put(&text);
}

static ht_status read_target(ht_context *ctx, const char *path, ht_target *out)
{
    if (!path) {
        ht_target_here(ctx, out);
        return HT_OK;
    }
    char *text;
    size_t length;
    HT_TRY(ht_read_file(ctx, &text, &length, path));
    ht_status status = ht_target_parse(ctx, out, path, text, length);
    free(text);
    return status;
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
    if (status == HT_OK) status = read_graph(ctx, job->file, g);
    if (status == HT_ENOMEM) return cli_fail(CLI_FAILED, "%s", ht_context_message(ctx));
    if (status != HT_OK) return cli_fail(CLI_WRONG, "%s", ht_context_message(ctx));
    status = ht_pass_options_read(ctx, &options, HT_STAGE_ANY, job->pair_count, job->pairs);
    for (size_t i = 0; i < job->pass_count && status == HT_OK; i++)
        status = ht_pass_run(*g, job->passes[i], &target, &options);
    if (status != HT_OK) return cli_fail(cli_end_of(status), "%s", ht_context_message(ctx));
    return print_graph(ctx, *g);
}

int cmd_opt(int argc, char **argv)
{
    opt_job job = {0};
    for (int i = 1; i < argc; i++) {
        int end = read_argument(&job, argc, argv, &i);
        if (end != CLI_DONE) return end;
    }
    if (job.help) return cli_puts(usage);
    if (job.list) return list_passes(job.json);
    if (job.json) return cli_fail(CLI_WRONG, "opt: --json goes with --list");
    if (!job.file) return cli_fail(CLI_WRONG, "opt: which file? - reads standard input; see halftone opt --help");
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    ht_graph *g = NULL;
    end = optimise(ctx, &job, &g);
    ht_graph_free(g);
    ht_context_free(ctx);
    return end;
}
