#include "cli/cli.h"

#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: halftone ops [--samples] [--json]\n"
    "\n"
    "Prints a table of all operations: name, precision class, number of inputs and results, and whether there is a\n"
    "gradient (or why not).\n"
    "    --samples   instead, one line per sample: the operation's name, then its sample\n"
    "    --json      one object with everything, samples included: {\"ops\": [{\"name\", \"class\", \"inputs\": "
    "[least,\n"
    "                most], \"results\", \"gradient\", \"reason\" (without a gradient), \"samples\"}]}\n";

static const char *no_gradient_reason(const ht_op *op)
{
    return op->no_grad ? op->no_grad : "no reason given";
}

static void add_table(ht_text *text, const ht_context *ctx)
{
    int width = (int)strlen("name");
    for (size_t i = 0; i < ctx->op_count; i++) {
        int length = (int)strlen(ctx->ops[i]->name);
        if (length > width) width = length;
    }
    ht_text_add(text, "%-*s  %-6s  %6s  %7s  %s\n", width, "name", "class", "inputs", "results", "gradient");
    for (size_t i = 0; i < ctx->op_count; i++) {
        const ht_op *op = ctx->ops[i];
        char inputs[32];
        if (op->min_in == op->max_in)
            snprintf(inputs, sizeof inputs, "%d", op->min_in);
        else
            snprintf(inputs, sizeof inputs, "%d-%d", op->min_in, op->max_in);
        ht_text_add(text, "%-*s  %-6s  %6s  %7d  %s%s\n", width, op->name, ht_prec_name(op->prec), inputs, op->n_out,
                    op->grad ? "yes" : "no: ", op->grad ? "" : no_gradient_reason(op));
    }
}

static void add_samples(ht_text *text, const ht_context *ctx)
{
    for (size_t i = 0; i < ctx->op_count; i++)
        for (const char *const *line = ctx->ops[i]->samples; line && *line; line++)
            ht_text_add(text, "%s %s\n", ctx->ops[i]->name, *line);
}

static void add_json_op(ht_text *text, const ht_op *op)
{
    ht_text_add(text, "    {\"name\": ");
    cli_json_string(text, op->name);
    ht_text_add(text, ", \"class\": \"%s\", \"inputs\": [%d, %d], \"results\": %d, \"gradient\": %s",
                ht_prec_name(op->prec), op->min_in, op->max_in, op->n_out, op->grad ? "true" : "false");
    if (!op->grad) {
        ht_text_add(text, ", \"reason\": ");
        cli_json_string(text, no_gradient_reason(op));
    }
    ht_text_add(text, ", \"samples\": [");
    for (const char *const *line = op->samples; line && *line; line++) {
        if (line != op->samples) ht_text_add(text, ", ");
        cli_json_string(text, *line);
    }
    ht_text_add(text, "]}");
}

static void add_json(ht_text *text, const ht_context *ctx)
{
    ht_text_add(text, "{\n  \"ops\": [\n");
    for (size_t i = 0; i < ctx->op_count; i++) {
        add_json_op(text, ctx->ops[i]);
        ht_text_add(text, "%s\n", i + 1 < ctx->op_count ? "," : "");
    }
    ht_text_add(text, "  ]\n}\n");
}

int cmd_ops(int argc, char **argv)
{
    bool samples = false, json = false;
    for (int i = 1; i < argc; i++) {
        if (cli_flag(argv, i, "--help")) return cli_puts(usage);
        if (cli_flag(argv, i, "--samples"))
            samples = true;
        else if (cli_flag(argv, i, "--json"))
            json = true;
        else
            return cli_no_such_option("ops", argv[i]);
    }
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    ht_text text = {0};
    if (json)
        add_json(&text, ctx);
    else if (samples)
        add_samples(&text, ctx);
    else
        add_table(&text, ctx);
    ht_context_free(ctx);
    return cli_put(&text);
}
