/* halftone diff: where two jobs part, value by value. */
#include "cli/job_options.h"
#include "cli/value_diff.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct diff_job {
    cli_job job_options[2];
    char *axis;           /* KEY=A,B */
    char sets[2][1024];   /* KEY=A and KEY=B */
    const char *axis_key; /* what stands before the axis' own = ; NULL: the axis has its key */
    double tolerance;
    const char *paths[2];
    bool json;
} diff_job;

/* ---- layers ---- */

typedef struct layer_row {
    const char *name;
    size_t values;
    double max[2], rms[2]; /* forward (and update), backward; NAN: none */
} layer_row;

static const char *layer_of(const cli_pair *pair)
{
    if (pair->role == HT_ROLE_UPDATE) return "(update)";
    return pair->site ? pair->site : "(no layer)";
}

static void take_worst(double *worst, double value)
{
    if (isnan(*worst) || value > *worst) *worst = value;
}

/* By layer, in the order in which values are made; heap memory. NULL when memory is out. */
static layer_row *make_layers(const cli_value_diff *diff, size_t *count)
{
    layer_row *rows = calloc(diff->count + 1, sizeof *rows);
    *count = 0;
    for (size_t i = 0; rows && i < diff->count; i++) {
        const cli_pair *pair = &diff->pairs[i];
        size_t at = 0;
        while (at < *count && strcmp(rows[at].name, layer_of(pair)) != 0) at++;
        if (at == *count) rows[(*count)++] = (layer_row){layer_of(pair), 0, {NAN, NAN}, {NAN, NAN}};
        int backward = pair->role == HT_ROLE_BWD_ACT || pair->role == HT_ROLE_BWD_WEIGHT;
        rows[at].values++;
        take_worst(&rows[at].max[backward], pair->max);
        take_worst(&rows[at].rms[backward], pair->rms);
    }
    return rows;
}

static const cli_pair *first_pair(const cli_value_diff *diff, double tolerance)
{
    for (size_t i = 0; i < diff->count; i++)
        if (!diff->pairs[i].identical && diff->pairs[i].max > tolerance) return &diff->pairs[i];
    return NULL;
}

static size_t count_identical(const cli_value_diff *diff)
{
    size_t identical = 0;
    for (size_t i = 0; i < diff->count; i++) identical += diff->pairs[i].identical;
    return identical;
}

/* ---- for people ---- */

static void add_error(ht_text *text, double error)
{
    if (isnan(error))
        ht_text_add(text, "  %9s", "-");
    else if (error == 0)
        ht_text_add(text, "  %9s", "0");
    else
        ht_text_add(text, "  %9.2e", error);
}

static void add_first(ht_text *text, const char *what, const cli_pair *pair)
{
    ht_type_text a, b;
    if (!pair) {
        ht_text_add(text, "%s: none\n", what);
        return;
    }
    ht_type_str(&pair->type[0], &a);
    ht_type_str(&pair->type[1], &b);
    bool same = strcmp(a.text, b.text) == 0;
    ht_text_add(text, "%s: %s%s%s%s%s, %s%s%s (%s%s%s): max %.2e, rms %.2e\n", what, pair->name ? pair->name : "",
                pair->name ? " " : "", a.text, same ? "" : " and ", same ? "" : b.text, pair->op,
                pair->site ? " at " : "", pair->site ? pair->site : "", ht_role_names[pair->role],
                pair->origin ? " of " : "", pair->origin ? pair->origin : "", pair->max, pair->rms);
}

static void add_table(ht_text *text, const diff_job *job, const cli_value_diff *diff, const layer_row *rows,
                      size_t count)
{
    int width = (int)strlen("layer");
    for (size_t i = 0; i < count; i++)
        if ((int)strlen(rows[i].name) > width) width = (int)strlen(rows[i].name);
    ht_text_add(text, "%-*s  %6s  %20s  %20s\n", width, "", "", "forward", "backward");
    ht_text_add(text, "%-*s  %6s  %9s  %9s  %9s  %9s\n", width, "layer", "values", "max", "rms", "max", "rms");
    for (size_t i = 0; i < count; i++) {
        ht_text_add(text, "%-*s  %6zu", width, rows[i].name, rows[i].values);
        for (int backward = 0; backward < 2; backward++) {
            add_error(text, rows[i].max[backward]);
            add_error(text, rows[i].rms[backward]);
        }
        ht_text_add(text, "\n");
    }
    ht_text_add(text, "\n%zu values compared, %zu identical; %zu only in A, %zu only in B\n", diff->count,
                count_identical(diff), diff->only[0], diff->only[1]);
    add_first(text, "first difference", first_pair(diff, -1));
    char what[64];
    snprintf(what, sizeof what, "first beyond %g", job->tolerance);
    add_first(text, what, first_pair(diff, job->tolerance));
}

/* ---- for programs ---- */

static void put_pair(ht_json_writer *json, const char *key, const cli_pair *pair)
{
    ht_type_text a, b;
    if (!pair) {
        ht_json_put_null(json, key);
        return;
    }
    ht_json_begin_object(json, key);
    ht_json_put_text(json, "op", pair->op);
    ht_json_put_text(json, "name", pair->name);
    ht_json_put_text(json, "layer", layer_of(pair));
    ht_json_put_text(json, "role", ht_role_names[pair->role]);
    ht_json_put_text(json, "origin", pair->origin);
    ht_json_put_uint(json, "result", pair->result);
    ht_json_put_text(json, "type_a", ht_type_str(&pair->type[0], &a));
    ht_json_put_text(json, "type_b", ht_type_str(&pair->type[1], &b));
    ht_json_put_bool(json, "identical", pair->identical);
    ht_json_put_number(json, "max", pair->max);
    ht_json_put_number(json, "rms", pair->rms);
    ht_json_end_object(json);
}

static void put_layer(ht_json_writer *json, const layer_row *row)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "layer", row->name);
    ht_json_put_uint(json, "values", row->values);
    ht_json_put_number(json, "forward_max", row->max[0]);
    ht_json_put_number(json, "forward_rms", row->rms[0]);
    ht_json_put_number(json, "backward_max", row->max[1]);
    ht_json_put_number(json, "backward_rms", row->rms[1]);
    ht_json_end_object(json);
}

static const char *side_name(const diff_job *job, int side)
{
    return job->axis ? job->sets[side] : job->job_options[side].request.path;
}

static void add_json(ht_text *text, const diff_job *job, const cli_value_diff *diff, const layer_row *rows,
                     size_t count)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "a", side_name(job, 0));
    ht_json_put_text(&json, "b", side_name(job, 1));
    ht_json_put_number(&json, "tolerance", job->tolerance);
    ht_json_put_uint(&json, "compared", diff->count);
    ht_json_put_uint(&json, "identical", count_identical(diff));
    ht_json_put_uint(&json, "only_a", diff->only[0]);
    ht_json_put_uint(&json, "only_b", diff->only[1]);
    ht_json_line(&json, 1);
    put_pair(&json, "first_difference", first_pair(diff, -1));
    ht_json_line(&json, 1);
    put_pair(&json, "first_beyond", first_pair(diff, job->tolerance));
    ht_json_line(&json, 1);
    ht_json_begin_array(&json, "layers");
    for (size_t i = 0; i < count; i++) put_layer(&json, &rows[i]);
    ht_json_end_array(&json);
    ht_json_line(&json, 1);
    ht_json_begin_array(&json, "values");
    for (size_t i = 0; i < diff->count; i++) {
        ht_json_line(&json, 2);
        put_pair(&json, NULL, &diff->pairs[i]);
    }
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

static int print_diff(const diff_job *job, const cli_value_diff *diff)
{
    size_t count;
    layer_row *rows = make_layers(diff, &count);
    if (!rows) return cli_fail(CLI_FAILED, "diff: out of memory");
    ht_text text = {0};
    if (job->json)
        add_json(&text, job, diff, rows, count);
    else
        add_table(&text, job, diff, rows, count);
    free(rows);
    return job->json ? cli_put(&text) : cli_show(&text);
}

/* ---- the command ---- */

/* One side: its config, a replay of it, and what is done with that. */
static int walk_side(diff_job *job, ht_context *ctx, cli_value_diff *diff, int side)
{
    ht_config *config;
    ht_replay *replay = NULL;
    int end = cli_job_read(&job->job_options[side], ctx, &config);
    if (end != CLI_DONE) return end;
    ht_run_request request = {.config = config, .mode = HT_RUN_NEW};
    ht_status status = ht_replay_open(&replay, ctx, &request);
    if (status != HT_OK)
        end = cli_fail(status == HT_EIO ? CLI_WRONG : cli_end_of(status), "diff: %s: %s", side_name(job, side),
                       ht_context_message(ctx));
    if (status == HT_OK) status = side == 0 ? cli_value_diff_keep(diff, replay) : cli_value_diff_compare(diff, replay);
    if (status != HT_OK && end == CLI_DONE)
        end = cli_fail(cli_end_of(status), "diff: %s: %s", side_name(job, side), ht_context_message(ctx));
    ht_replay_free(replay);
    ht_config_free(config);
    return end;
}

static int walk_both(diff_job *job, ht_context *ctx)
{
    cli_value_diff diff;
    int end = CLI_DONE;
    if (cli_value_diff_start(&diff, ctx) != HT_OK) end = cli_fail(CLI_FAILED, "diff: %s", ht_context_message(ctx));
    for (int side = 0; side < 2 && end == CLI_DONE; side++) end = walk_side(job, ctx, &diff, side);
    if (end == CLI_DONE && diff.count == 0)
        end = cli_fail(CLI_WRONG, "diff: the two have no value in common");
    else if (end == CLI_DONE)
        end = print_diff(job, &diff);
    cli_value_diff_free(&diff);
    return end;
}

/* KEY=A,B as the settings KEY=A and KEY=B, behind those of both sides. */
static int split_axis(diff_job *job)
{
    const char *key = job->axis_key ? job->axis_key : "", *comma = strchr(job->axis, ',');
    const char *equals = strchr(job->axis, '=');
    size_t name = job->axis_key ? 0 : equals ? (size_t)(equals - job->axis) + 1 : 0;
    if (!comma || strchr(comma + 1, ',') || (!job->axis_key && (!equals || equals > comma)) || !comma[1] ||
        (size_t)(comma - job->axis) == name)
        return cli_fail(CLI_WRONG, "diff: %s takes %sA,B: two values", job->axis_key ? "--precision" : "--axis",
                        job->axis_key ? "" : "KEY=");
    for (int side = 0; side < 2; side++) {
        int first = side == 0 ? (int)(comma - job->axis - (ptrdiff_t)name) : (int)strlen(comma + 1);
        int length = snprintf(job->sets[side], sizeof job->sets[side], "%s%.*s%.*s", key, (int)name, job->axis, first,
                              side == 0 ? job->axis + name : comma + 1);
        if (length >= (int)sizeof job->sets[side]) return cli_fail(CLI_WRONG, "diff: the axis is too long");
        cli_job *options = &job->job_options[side];
        if (options->request.set_count == CLI_MOST_SETS)
            return cli_fail(CLI_WRONG, "diff: more than %d settings", CLI_MOST_SETS);
        options->sets[options->request.set_count++] = job->sets[side];
    }
    return CLI_DONE;
}

/* What was said once holds for both sides. */
static int reconcile_sides(diff_job *job)
{
    const char *const *paths = job->paths;
    int path_count = (paths[0] != NULL) + (paths[1] != NULL);
    cli_job *a = &job->job_options[0], *b = &job->job_options[1];
    if (path_count == 2 && job->axis)
        return cli_fail(CLI_WRONG, "diff: two jobs, or one with --axis or --precision: not both");
    if (path_count == 0 || (path_count == 1 && !job->axis))
        return cli_fail(CLI_WRONG, "diff: which two? see halftone diff --help");
    a->request.training = b->request.training = true;
    a->request.path = paths[0];
    b->request.path = paths[path_count - 1];
    b->request.engine_path = a->request.engine_path;
    b->request.set_count = a->request.set_count;
    memcpy(b->sets, a->sets, sizeof b->sets);
    return job->axis ? split_axis(job) : CLI_DONE;
}

static int take_axis(const cli_given *given, char *value)
{
    diff_job *job = given->at;
    if (job->axis) return cli_fail(CLI_WRONG, "diff: one axis at a time");
    job->axis = value;
    job->axis_key = strcmp(given->option->name, "--precision") == 0 ? "train.precision=" : NULL;
    return CLI_DONE;
}

static int run_diff(void *arg)
{
    diff_job *job = arg;
    ht_context *ctx;
    for (int side = 0; side < 2; side++) cli_job_start(&job->job_options[side]);
    int end = reconcile_sides(job);
    if (end == CLI_DONE) end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = walk_both(job, ctx);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"A.json", "job", CLI_ARGUMENT, offsetof(diff_job, paths[0]), .help = "a job file", .flags = CLI_NEEDED, .form = 1},
    {"B.json", "job", CLI_ARGUMENT, offsetof(diff_job, paths[1]), .help = "another one", .flags = CLI_NEEDED,
     .form = 1},
    {"JOB.json", "job", CLI_ARGUMENT, offsetof(diff_job, paths[0]), .help = "one job file, with two values of a key",
     .form = 2},
    {"--axis", "KEY=A,B", CLI_TAKEN, 0, .help = "the key that differs and its two values: train.lr=0.1,0.2",
     .takes = "KEY=A,B: two values", .take = take_axis, .form = 2, .choice = 1, .flags = CLI_NEEDED},
    {"--precision", "A,B", CLI_TAKEN, 0, .help = "the same as --axis train.precision=A,B: fp32,bf16",
     .takes = "A,B: two values", .take = take_axis, .form = 2, .choice = 1, .flags = CLI_NEEDED},
    {.kind = CLI_GROUP, .offset = offsetof(diff_job, job_options), .group = cli_override_rows},
    {"--tolerance", "X", CLI_NUMBER, offsetof(diff_job, tolerance),
     .help = "also tell the first value whose largest error is above this", .most = HUGE_VAL, .standard = "0.001"},
    {"--json", NULL, CLI_FLAG, offsetof(diff_job, json),
     .help =
         "one object: {\"a\", \"b\", \"tolerance\", \"compared\", \"identical\", \"only_a\", \"only_b\", "
         "\"first_difference\", \"first_beyond\", \"layers\": [{\"layer\", \"values\", \"forward_max\", "
         "\"forward_rms\", \"backward_max\", \"backward_rms\"}], \"values\": [{\"name\", \"op\", \"layer\", \"role\", "
         "\"origin\", \"result\", \"type_a\", \"type_b\", \"identical\", \"max\", \"rms\"}]}; an error that is no "
         "number is null"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone diff job.json --precision fp32,bf16", "what bf16 does to each layer of the first step"},
    {"halftone diff old.json new.json --tolerance 1e-6", "two jobs, and the first value that differs by more"},
    {0},
};

const cli_command cmd_diff = {
    .name = "diff",
    .summary = "the first value where two jobs part, and the error by layer",
    .description =
        "Makes the first micro-batch and the first update of two jobs that differ, or of one job with two values of a "
        "key, each in a plan that makes every value, and compares the values: by layer, forward and backward, the "
        "largest error relative to the largest number, and that of root mean squares; then the first value where the "
        "two part. Gradients are compared as they are without loss scaling. Values are partners by name; those without "
        "one by layer, op, role, shape and order.",
    .options = options,
    .size = sizeof(diff_job),
    .run = run_diff,
    .alone = true,
    .examples = examples,
    .see_also = "compare explain",
};
