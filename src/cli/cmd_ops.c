#include "cli/option_table.h"

#include "pass/pass.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct ops_options {
    bool samples, json;
} ops_options;

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

static const char *const kinds[] = {
    [HT_ATTR_INT] = "integer",   [HT_ATTR_FLOAT] = "number",   [HT_ATTR_TEXT] = "text",
    [HT_ATTR_INTS] = "integers", [HT_ATTR_FLOATS] = "numbers",
};

static void put_list(ht_json_writer *json, const char *key, const ht_attr *list, bool whole)
{
    ht_json_begin_array(json, key);
    for (size_t i = 0; i < list->count; i++) {
        if (whole)
            ht_json_put_int(json, NULL, list->ints[i]);
        else
            ht_json_put_number(json, NULL, list->floats[i]);
    }
    ht_json_end_array(json);
}

/* What a node has that does not give it. */
static void put_default(ht_json_writer *json, const ht_attr_def *attr)
{
    if (attr->required)
        ht_json_put_null(json, "default");
    else if (attr->kind == HT_ATTR_INT)
        ht_json_put_int(json, "default", attr->standard.i);
    else if (attr->kind == HT_ATTR_TEXT)
        ht_json_put_text(json, "default", attr->standard.text);
    else if (attr->kind != HT_ATTR_FLOAT)
        put_list(json, "default", &attr->standard, attr->kind == HT_ATTR_INTS);
    else if (isfinite(attr->standard.f))
        ht_json_put_number(json, "default", attr->standard.f);
    else
        ht_json_put_text(json, "default", attr->standard.f > 0 ? "inf" : "-inf");
}

static void put_attributes(ht_json_writer *json, const ht_op *op)
{
    ht_json_begin_array(json, "attributes");
    for (const ht_attr_def *attr = op->attrs; attr && attr->key; attr++) {
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "name", attr->key);
        ht_json_put_text(json, "kind", kinds[attr->kind]);
        put_default(json, attr);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

static void put_op(ht_json_writer *json, const ht_op *op)
{
    ht_json_line(json, 4);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "name", op->name);
    ht_json_put_text(json, "class", ht_prec_name(op->prec));
    ht_json_begin_array(json, "inputs");
    ht_json_put_int(json, NULL, op->min_in);
    ht_json_put_int(json, NULL, op->max_in);
    ht_json_end_array(json);
    ht_json_put_int(json, "results", op->n_out);
    ht_json_put_bool(json, "gradient", op->grad);
    if (!op->grad) ht_json_put_text(json, "reason", no_gradient_reason(op));
    put_attributes(json, op);
    ht_json_begin_array(json, "samples");
    for (const char *const *line = op->samples; line && *line; line++) ht_json_put_text(json, NULL, *line);
    ht_json_end_array(json);
    ht_json_end_object(json);
}

static void add_json(ht_text *text, const ht_context *ctx)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_line(&json, 2);
    ht_json_begin_array(&json, "ops");
    for (size_t i = 0; i < ctx->op_count; i++) put_op(&json, ctx->ops[i]);
    ht_json_line(&json, 2);
    ht_json_end_array(&json);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

static int run_ops(void *arg)
{
    const ops_options *o = arg;
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    ht_text text = {0};
    if (o->json)
        add_json(&text, ctx);
    else if (o->samples)
        add_samples(&text, ctx);
    else
        add_table(&text, ctx);
    ht_context_free(ctx);
    return o->json || o->samples ? cli_put(&text) : cli_show(&text);
}

static const cli_option options[] = {
    {"--samples", NULL, CLI_FLAG, offsetof(ops_options, samples),
     .help = "instead, one line per sample: the operation's name, then its sample"},
    {"--json", NULL, CLI_FLAG, offsetof(ops_options, json),
     .help =
         "one object with everything, samples included: {\"ops\": [{\"name\", \"class\", \"inputs\": [least, most], "
         "\"results\", \"gradient\", \"reason\" (without a gradient), \"attributes\": [{\"name\", \"kind\", "
         "\"default\" (null: must be given)}], \"samples\"}]}"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone ops --samples | grep '^softmax '", "the samples that test softmax"},
    {0},
};

const cli_command cmd_ops = {
    .name = "ops",
    .summary = "list the operations: precision class, inputs, results, gradient",
    .description = "Prints a table of all operations: name, precision class, number of inputs and results, and whether "
                   "there is a gradient (or why not).",
    .options = options,
    .size = sizeof(ops_options),
    .run = run_ops,
    .examples = examples,
    .see_also = "opt explain",
};
