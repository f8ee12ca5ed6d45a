/* halftone compare: one job in several settings, side by side. */
#include "cli/sweep_result.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_VALUES = 64, MOST_AXES = 8, MOST_SEEDS = 100, MOST_FOLDER = 3000 };

/* A key and its values; words of the command line, cut at commas. */
typedef struct axis {
    const char *key;
    const char *values[MOST_VALUES];
    size_t count;
} axis;

typedef struct comparison {
    cli_job job_options;
    axis precision, scale, axes[MOST_AXES];
    size_t axis_count;
    int64_t seeds;
    const char *output;
    bool json;
    /* while it runs */
    cli_sweep sweep;
    ht_config *base;
    bool terminal;
    double shown_ms, total_ms;
} comparison;

/* ---- arguments ---- */

/* The next comma that is not inside of a list or an object. */
static char *find_comma(char *text)
{
    int depth = 0;
    for (char *c = text; *c; c++) {
        depth += (*c == '[' || *c == '{') - (*c == ']' || *c == '}');
        if (*c == ',' && depth == 0) return c;
    }
    return NULL;
}

/* Cuts at commas. False: an empty value, one that comes twice, or too many. */
static bool cut_values(axis *a, char *text)
{
    a->count = 0;
    for (char *next = text; next; a->count++) {
        char *value = next, *comma = find_comma(value);
        if (comma) *comma = '\0';
        next = comma ? comma + 1 : NULL;
        if (!*value || a->count == MOST_VALUES) return false;
        for (size_t i = 0; i < a->count; i++)
            if (strcmp(a->values[i], value) == 0) return false;
        a->values[a->count] = value;
    }
    return true;
}

static int take_axis(const cli_given *given, char *text)
{
    comparison *c = given->at;
    static const char *const own[][2] = {
        {"train.precision", "--precision"}, {"train.loss_scale", "--loss-scale"}, {"train.seed", "--seeds"}};
    axis *a = &c->axes[c->axis_count];
    char *equals = strchr(text, '=');
    if (!equals || equals == text) return cli_bad_value(given, text);
    if (c->axis_count == MOST_AXES) return cli_fail(CLI_WRONG, "compare: more than %d axes", MOST_AXES);
    *equals = '\0';
    a->key = text;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(text, own[i][0]) == 0)
            return cli_fail(CLI_WRONG, "compare: %s has an option of its own, %s", text, own[i][1]);
    for (size_t i = 0; i < c->axis_count; i++)
        if (strcmp(c->axes[i].key, text) == 0) return cli_fail(CLI_WRONG, "compare: %s is an axis already", text);
    if (!cut_values(a, equals + 1))
        return cli_fail(CLI_WRONG, "compare: --axis %s takes up to %d values that differ, between commas", text,
                        MOST_VALUES);
    c->axis_count++;
    return CLI_DONE;
}

static int take_list(const cli_given *given, char *value)
{
    return cut_values(given->at, value) ? CLI_DONE : cli_bad_value(given, NULL);
}

/* ---- settings ---- */

/* One setting: a choice from each list. */
typedef struct setting {
    const char *precision, *scale; /* NULL: as the job says */
    size_t choice[MOST_AXES];
} setting;

/* "fp16 scale 1024 train.lr=0.1" */
static void name_setting(ht_text *name, const comparison *c, const setting *s)
{
    if (s->precision) ht_text_add(name, "%s", s->precision);
    if (s->scale) ht_text_add(name, "%sscale %s", name->length ? " " : "", s->scale);
    for (size_t a = 0; a < c->axis_count; a++)
        ht_text_add(name, "%s%s=%s", name->length ? " " : "", c->axes[a].key, c->axes[a].values[s->choice[a]]);
    if (name->length == 0) ht_text_add(name, "%s", ht_config_train(c->base)->precision);
}

/* A name as part of a path. Two names may give one. */
static void add_path(ht_text *path, const char *name)
{
    for (; *name; name++) {
        bool plain = isalnum((unsigned char)*name) || (*name && strchr("._=-+", *name));
        ht_text_add(path, "%c", *name == ' ' ? '-' : plain ? *name : '_');
    }
}

static bool path_taken(const comparison *c, const char *path)
{
    for (size_t i = 0; i < c->sweep.count; i++)
        if (strcmp(c->sweep.list[i].folder, path) == 0) return true;
    return false;
}

static bool fill_entry(const comparison *c, cli_sweep_entry *t, const setting *s, uint64_t seed)
{
    bool ok = !s->precision || cli_sweep_entry_precision(t, c->base, s->precision, s->scale);
    for (size_t a = 0; a < c->axis_count && ok; a++)
        ok = cli_sweep_entry_set(t, "%s=%s", c->axes[a].key, c->axes[a].values[s->choice[a]]);
    return ok && (c->seeds == 1 || cli_sweep_entry_set(t, "train.seed=%" PRIu64, seed));
}

static int add_entry(comparison *c, const setting *s, int64_t number)
{
    ht_text name = {0}, group = {0}, folder = {0};
    uint64_t seed = ht_config_train(c->base)->seed + (uint64_t)number;
    cli_sweep_entry *t = NULL;
    name_setting(&group, c, s);
    name_setting(&name, c, s);
    if (c->seeds > 1) ht_text_add(&name, " seed %" PRIu64, seed);
    ht_text_add(&folder, "%s/", c->output);
    add_path(&folder, name.data ? name.data : "");
    while (!folder.failed && path_taken(c, folder.data)) ht_text_add(&folder, "_");
    if (!name.failed && !group.failed && !folder.failed)
        t = cli_sweep_add(&c->sweep, name.data, folder.data, group.data);
    bool ok = t && fill_entry(c, t, s, seed);
    ht_text_free(&name);
    ht_text_free(&group);
    ht_text_free(&folder);
    return ok ? CLI_DONE : cli_fail(CLI_FAILED, "compare: a setting is too long, or memory is out");
}

/* All seeds of all choices along the axes. */
static int add_choices(comparison *c, setting *s)
{
    memset(s->choice, 0, sizeof s->choice);
    for (;;) {
        size_t a = c->axis_count;
        for (int64_t seed = 0; seed < c->seeds; seed++) {
            if (c->sweep.count == CLI_MOST_SWEEP_ENTRIES)
                return cli_fail(CLI_WRONG, "compare: more than %d runs", CLI_MOST_SWEEP_ENTRIES);
            int end = add_entry(c, s, seed);
            if (end != CLI_DONE) return end;
        }
        while (a > 0 && ++s->choice[a - 1] == c->axes[a - 1].count) s->choice[--a] = 0;
        if (a == 0) return CLI_DONE;
    }
}

static int add_all(comparison *c)
{
    static const axis standard = {NULL, {"fp32", "fp16", "bf16"}, 3};
    static const axis own = {NULL, {NULL}, 1};
    const axis *precisions = c->precision.count ? &c->precision : c->axis_count ? &own : &standard;
    const char *job = ht_config_train(c->base)->precision;
    bool scaled = false;
    for (size_t p = 0; p < precisions->count; p++) {
        setting s = {.precision = precisions->values[p]};
        bool f16 = strcmp(s.precision ? s.precision : job, "fp16") == 0;
        if (f16 && c->scale.count && !s.precision) s.precision = job;
        scaled = scaled || f16;
        for (size_t k = 0; k < (f16 && c->scale.count ? c->scale.count : 1); k++) {
            s.scale = f16 && c->scale.count ? c->scale.values[k] : NULL;
            int end = add_choices(c, &s);
            if (end != CLI_DONE) return end;
        }
    }
    if (c->scale.count && !scaled)
        return cli_fail(CLI_WRONG, "compare: --loss-scale is for runs in fp16: there is none");
    return CLI_DONE;
}

/* ---- progress ---- */

static void on_step(void *arg, const cli_sweep_entry *t, const ht_step_report *r)
{
    comparison *c = arg;
    c->total_ms += r->step_ms;
    if (!c->terminal || (c->total_ms - c->shown_ms < 50 && r->step != r->steps)) return;
    c->shown_ms = c->total_ms;
    fprintf(stderr, "\r%zu of %zu  %s  step %" PRId64 " of %" PRId64 "  loss %.4f\033[K",
            (size_t)(t - c->sweep.list) + 1, c->sweep.count, t->name, r->step, r->steps, r->loss);
}

static ht_status on_end(void *arg, cli_sweep_entry *t, ht_run *run)
{
    const comparison *c = arg;
    (void)run;
    fprintf(stderr, "%shalftone: %zu of %zu, %s: %zu steps in %.1f seconds, loss %.4f\n", c->terminal ? "\r\033[K" : "",
            (size_t)(t - c->sweep.list) + 1, c->sweep.count, t->name, t->made, t->seconds, t->final_loss);
    return HT_OK;
}

/* ---- results ---- */

static const char unit_title[] = "Memory in ";

static ht_status write_page(const comparison *c, const char *path)
{
    ht_report *report;
    ht_text title = {0}, half = {0}, memory_title = {0}, errors = {0};
    ht_table runs = {0}, memory = {0}, groups = {0};
    ht_text_add(&title, "%s in %zu settings", c->job_options.request.path, c->sweep.count);
    cli_sweep_half(&half, &c->sweep);
    cli_sweep_errors(&errors, &c->sweep);
    ht_text_add(&memory_title, "%s%s", unit_title, cli_sweep_memory(&memory, &c->sweep));
    cli_sweep_table(&runs, &c->sweep);
    bool several = cli_sweep_groups(&groups, &c->sweep);
    bool failed = title.failed || half.failed || errors.failed || memory_title.failed || runs.failed || memory.failed ||
                  groups.failed;
    ht_status status = failed ? ht_fail(c->sweep.ctx, HT_ENOMEM, "out of memory for a page")
                              : ht_report_create(&report, c->sweep.ctx, title.data);
    if (status == HT_OK) {
        if (half.data) ht_report_paragraph(report, half.data);
        if (errors.data) ht_report_paragraph(report, errors.data);
        ht_table_report(report, &runs, "What came out");
        if (several) ht_table_report(report, &groups, "Over seeds");
        cli_sweep_charts(report, &c->sweep);
        ht_table_report(report, &memory, memory_title.data);
        status = ht_report_write(report, path);
        ht_report_free(report);
    }
    ht_table_free(&runs);
    ht_table_free(&memory);
    ht_table_free(&groups);
    ht_text_free(&title);
    ht_text_free(&half);
    ht_text_free(&memory_title);
    ht_text_free(&errors);
    return status;
}

static int print_tables(const comparison *c, const char *page)
{
    ht_text text = {0};
    ht_table runs = {0}, memory = {0}, groups = {0};
    cli_sweep_table(&runs, &c->sweep);
    ht_table_print(&text, &runs, cli_columns());
    if (cli_sweep_groups(&groups, &c->sweep)) {
        ht_text_add(&text, "\n");
        ht_table_print(&text, &groups, cli_columns());
    }
    ht_text_add(&text, "\n%s%s\n", unit_title, cli_sweep_memory(&memory, &c->sweep));
    ht_table_print(&text, &memory, cli_columns());
    ht_text_add(&text, "\n");
    cli_sweep_errors(&text, &c->sweep);
    cli_sweep_half(&text, &c->sweep);
    ht_text_add(&text, "The curves as a page: %s\n", page);
    ht_table_free(&runs);
    ht_table_free(&memory);
    ht_table_free(&groups);
    return cli_show(&text);
}

static int print_json(const comparison *c, const char *page)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "job", c->job_options.request.path);
    ht_json_put_text(&json, "page", page);
    ht_json_line(&json, 1);
    cli_sweep_json(&json, &c->sweep);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    return cli_put(&text);
}

/* ---- the command ---- */

static int compare(comparison *c)
{
    char page[MOST_FOLDER + 16];
    c->sweep.command = "compare";
    c->sweep.job = &c->job_options;
    c->sweep.arg = c;
    c->sweep.on_step = on_step;
    c->sweep.on_end = on_end;
    c->terminal = cli_terminal(STDERR_FILENO);
    c->job_options.request.training = true;
    /* Its warnings come again with the first run, so only errors are told here. */
    ht_status status = ht_config_read(&c->base, c->sweep.ctx, &c->job_options.request);
    if (!c->base) return cli_fail(CLI_FAILED, "compare: %s", ht_context_message(c->sweep.ctx));
    if (status != HT_OK) {
        cli_print_problems(ht_config_problems(c->base));
        return CLI_WRONG;
    }
    int end = add_all(c);
    if (end == CLI_DONE) end = cli_sweep_read(&c->sweep);
    if (end == CLI_DONE) end = cli_sweep_run(&c->sweep);
    if (end != CLI_DONE) return end;
    snprintf(page, sizeof page, "%s/compare.html", c->output);
    if (write_page(c, page) != HT_OK) return cli_fail(CLI_FAILED, "compare: %s", ht_context_message(c->sweep.ctx));
    return c->json ? print_json(c, page) : print_tables(c, page);
}

static int run_compare(void *arg)
{
    comparison *c = arg;
    cli_job_start(&c->job_options);
    int end = cli_context(&c->sweep.ctx);
    if (end != CLI_DONE) return end;
    end = compare(c);
    cli_sweep_free(&c->sweep);
    ht_config_free(c->base);
    ht_context_free(c->sweep.ctx);
    return end;
}

static const cli_option options[] = {
    {.kind = CLI_GROUP, .offset = offsetof(comparison, job_options), .group = cli_job_rows},
    {"--precision", "A,B,...", CLI_TAKEN, offsetof(comparison, precision),
     .help = "of fp64, fp32, fp16, bf16; fp32,fp16,bf16 when this and --axis are left out",
     .takes = "types that differ, between commas: fp32,fp16", .take = take_list},
    {"--loss-scale", "A,B,...", CLI_TAKEN, offsetof(comparison, scale),
     .help = "numbers, dynamic or none, for each run in fp16; others are not scaled",
     .takes = "scales that differ, between commas: 1024,dynamic", .take = take_list},
    {"--axis", "KEY=A,B,...", CLI_TAKEN, 0,
     .help = "a key and its values: train.lr=0.1,0.2; axes combine with each other", .flags = CLI_REPEATED,
     .takes = "KEY=A,B,...", .take = take_axis},
    {"--seeds", "N", CLI_WHOLE, offsetof(comparison, seeds),
     .help = "each setting with N seeds, from train.seed on; a table over seeds compares the settings with the first "
             "by pairs of one seed: mean difference and its standard error",
     .least = 1, .most = MOST_SEEDS, .standard = "1"},
    {"--output", "FOLDER", CLI_TEXT, offsetof(comparison, output),
     .help = "folder of the runs and of compare.html; runs of the same names are replaced", .flags = CLI_FILLED,
     .letter = 'o', .takes = "a folder", .most = MOST_FOLDER, .standard = "compare"},
    {"--json", NULL, CLI_FLAG, offsetof(comparison, json),
     .help =
         "one object: {\"job\", \"page\", \"runs\": [...], \"groups\": [...]}, with the members below in each element; "
         "what there is not is null"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone compare job.json", "the job in fp32, fp16 and bf16"},
    {"halftone compare job.json --precision fp16 --loss-scale 1,1024,dynamic", "what loss scaling does"},
    {"halftone compare job.json --axis train.lr=1e-3,3e-3 --seeds 3", "two learning rates, three seeds each"},
    {0},
};

const cli_command cmd_compare = {
    .name = "compare",
    .summary = "train a job in several precisions or settings, side by side",
    .description =
        "Trains a job in several settings, with the same data and seed, and prints what came of each: loss, perplexity "
        "or accuracy, steps skipped, time, memory by what it is for. A page with the curves is written beside the "
        "runs. Loss is the mean of the last tenth of the steps; perplexity and accuracy are of what is held out, where "
        "there is any; times are medians of all steps. A run whose gradients are not finite for good stays in the "
        "table with its reason.",
    .options = options,
    .size = sizeof(comparison),
    .run = run_compare,
    .alone = true,
    .examples = examples,
    .see_also = "train diff demo",
    .appendix_title = "Members of runs and groups with --json",
    .appendix = cli_sweep_describe,
};
