#include "cli/compress_view.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* ---- goals ---- */

bool cli_compress_goals(const char *text, ht_compress_goals *out, char wrong[64])
{
    *out = (ht_compress_goals){-1, -1, -1};
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const struct {
            const char *name;
            double *to;
        } goals[] = {{"drop=", &out->drop}, {"size=", &out->size}, {"latency=", &out->latency}};
        double *to = NULL;
        char *end = NULL;
        snprintf(wrong, 64, "%.*s", (int)strcspn(at, ","), at);
        for (size_t i = 0; i < sizeof goals / sizeof goals[0]; i++)
            if (strncmp(at, goals[i].name, strlen(goals[i].name)) == 0) to = goals[i].to;
        double value = to ? strtod(strchr(at, '=') + 1, &end) : NAN;
        if (!to || end == strchr(at, '=') + 1 || *end != '%' || (end[1] && end[1] != ',') ||
            !(value >= 0 && value < 1e6))
            return false;
        *to = value / 100;
    }
    return true;
}

/* ---- tables ---- */

/* Change of a loss in per cent. */
static double rise(const ht_compress_figures *was, const ht_compress_figures *is)
{
    return 100 * (is->loss / was->loss - 1);
}

static void add_trial(ht_table *table, const ht_compress_trials *t, size_t i)
{
    const ht_compress_trial *trial = &t->trials[i];
    const ht_compress_figures *was = &t->before, *is = &trial->after;
    const char *verdict = (int)i == t->chosen ? "chosen" : trial->fits ? "fits" : trial->failure;
    bool failed = trial->failure[0];
    const ht_column columns[] = {
        {.heading = "settings", .cell = ht_cell_text(trial->settings)},
        {.heading = "loss", .format = "%.4f", .cell = ht_cell_number(is->loss)},
        {.heading = "change, %", .format = "%+.2f", .cell = ht_cell_number(rise(was, is))},
        {.heading = "accuracy", .format = "%.4f", .cell = ht_cell_number(is->accuracy), .rank = 2},
        {.heading = "not zero, %",
         .format = "%.1f",
         .cell = ht_cell_number(failed ? NAN : 100.0 * (double)is->nonzero / (double)was->parameters),
         .rank = 1},
        {.heading = "disk, %",
         .format = "%.1f",
         .cell = ht_cell_number(failed ? NAN : 100.0 * (double)is->disk_bytes / (double)was->disk_bytes)},
        {.heading = "p50, ms", .format = "%.3f", .cell = ht_cell_number(is->p50_ms), .rank = 3},
        {.heading = "p50, %", .format = "%.1f", .cell = ht_cell_number(100 * is->p50_ms / was->p50_ms)},
        {.heading = "front", .cell = ht_cell_text(trial->front ? "yes" : "")},
        {.heading = "goals", .cell = ht_cell_text(verdict)},
    };
    ht_table_row(table, columns, sizeof columns / sizeof columns[0]);
}

static void make_table(ht_table *table, const ht_compress_trials *t)
{
    *table = (ht_table){0};
    for (size_t i = 0; i < t->count; i++) add_trial(table, t, i);
}

void cli_compress_trials_print(ht_text *text, const ht_compress_trials *t)
{
    ht_table table;
    make_table(&table, t);
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
    ht_text_add(text, "before: loss %.4f, %lld bytes on disk, p50 %.3f ms\n", t->before.loss,
                (long long)t->before.disk_bytes, t->before.p50_ms);
    if (t->chosen >= 0)
        ht_text_add(text, "the output has: %s\n", t->trials[t->chosen].settings);
    else
        ht_text_add(text, "nothing fits the goals: there is no output\n");
}

void cli_compress_trials_json(ht_json_writer *json, const ht_compress_trials *t)
{
    ht_compress_put_figures(json, "before", &t->before);
    ht_json_begin_array(json, "trials");
    for (size_t i = 0; i < t->count; i++) {
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "settings", t->trials[i].settings);
        ht_json_put_bool(json, "front", t->trials[i].front);
        ht_json_put_bool(json, "fits", t->trials[i].fits);
        if (t->trials[i].failure[0])
            ht_json_put_text(json, "failure", t->trials[i].failure);
        else
            ht_compress_put_figures(json, "after", &t->trials[i].after);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
    if (t->chosen >= 0)
        ht_json_put_text(json, "chosen", t->trials[t->chosen].settings);
    else
        ht_json_put_null(json, "chosen");
}

/* ---- pages ---- */

typedef struct point {
    double x, y;
} point;

static int by_x(const void *left, const void *right)
{
    double a = ((const point *)left)->x, b = ((const point *)right)->x;
    return a < b ? -1 : a > b;
}

typedef double (*figure_of)(const ht_compress_figures *figures);

static double nonzero_of(const ht_compress_figures *f)
{
    return (double)f->nonzero;
}

static double disk_of(const ht_compress_figures *f)
{
    return (double)f->disk_bytes;
}

static double latency_of(const ht_compress_figures *f)
{
    return f->p50_ms;
}

static size_t take_points(const ht_compress_trials *t, figure_of figure, bool front, double *x, double *y)
{
    point points[HT_COMPRESS_MOST_TRIALS];
    size_t count = 0;
    for (size_t i = 0; i < t->count; i++)
        if (!t->trials[i].failure[0] && (t->trials[i].front || !front))
            points[count++] = (point){100 * figure(&t->trials[i].after) / figure(&t->before), t->trials[i].after.loss};
    qsort(points, count, sizeof *points, by_x);
    for (size_t i = 0; i < count; i++) {
        x[i] = points[i].x;
        y[i] = points[i].y;
    }
    return count;
}

/* Loss against one figure, in per cent of the run's: all trials, and those of the front. Alike for all: no chart. */
static void add_chart(ht_report *report, const ht_compress_trials *t, const char *title, const char *label,
                      figure_of figure)
{
    double x[2][HT_COMPRESS_MOST_TRIALS], y[2][HT_COMPRESS_MOST_TRIALS];
    size_t all = take_points(t, figure, false, x[0], y[0]), front = take_points(t, figure, true, x[1], y[1]);
    if (all < 2 || x[0][all - 1] - x[0][0] < 0.01) return;
    const ht_series series[] = {{"all settings", all, x[0], y[0], HT_LINE_REFERENCE},
                                {"Pareto front", front, x[1], y[1], HT_LINE_COLOUR}};
    ht_chart chart = {.title = title,
                      .x_label = label,
                      .y_label = "loss",
                      .series = series,
                      .series_count = 2,
                      .level = t->before.loss,
                      .level_name = "before"};
    ht_report_chart(report, &chart);
}

static void report_table(ht_report *report, ht_table *table, const char *title)
{
    ht_table_report(report, table, title);
    ht_table_free(table);
}

ht_status cli_compress_trials_page(ht_context *ctx, const char *path, const char *run, const ht_compress_trials *t)
{
    ht_report *report;
    ht_table table;
    ht_text text = {0};
    HT_TRY(ht_report_create(&report, ctx, "What compression costs"));
    ht_text_add(&text, "%s: %zu settings. Loss %.4f before, %lld bytes on disk, p50 %.3f ms for a batch of %lld. %s%s",
                run, t->count, t->before.loss, (long long)t->before.disk_bytes, t->before.p50_ms,
                (long long)t->before.batch, t->chosen >= 0 ? "Chosen: " : "None fits the goals.",
                t->chosen >= 0 ? t->trials[t->chosen].settings : "");
    ht_report_paragraph(report, text.data ? text.data : "");
    ht_text_free(&text);
    add_chart(report, t, "Loss against weights that are not zero", "weights that are not zero, %", nonzero_of);
    add_chart(report, t, "Loss against bytes on disk", "bytes on disk, %", disk_of);
    add_chart(report, t, "Loss against latency", "p50, %", latency_of);
    make_table(&table, t);
    report_table(report, &table, "Settings");
    ht_status status = ht_report_write(report, path);
    ht_report_free(report);
    return status;
}

/* ---- before and after ---- */

typedef struct row {
    const char *name, *format;
    double before, after;
} row;

static void add_row(ht_table *table, const row *r)
{
    if (isnan(r->before) && isnan(r->after)) return;
    const ht_column columns[] = {
        {.heading = "", .cell = ht_cell_text(r->name), .width = 22},
        {.heading = "before", .format = r->format, .cell = ht_cell_number(r->before), .width = 14},
        {.heading = "after", .format = r->format, .cell = ht_cell_number(r->after), .width = 14},
        {.heading = "ratio",
         .format = "%.3f",
         .cell = ht_cell_number(r->before != 0 ? r->after / r->before : NAN),
         .width = 9},
    };
    ht_table_row(table, columns, sizeof columns / sizeof columns[0]);
}

static double best_batch(const ht_compress_figures *f)
{
    return isnan(f->items_per_s) ? NAN : (double)f->best_batch;
}

void cli_compress_rows(ht_table *table, const ht_compress_figures *b, const ht_compress_figures *a)
{
    const row rows[] = {
        {"loss", "%.6f", b->loss, a->loss},
        {"perplexity", "%.4f", b->perplexity, a->perplexity},
        {"accuracy", "%.4f", b->accuracy, a->accuracy},
        {"BLEU", "%.4f", b->bleu, a->bleu},
        {"parameters", "%.0f", (double)b->parameters, (double)a->parameters},
        {"  not zero", "%.0f", (double)b->nonzero, (double)a->nonzero},
        {"bytes on disk", "%.0f", (double)b->disk_bytes, (double)a->disk_bytes},
        {"bytes in memory", "%.0f", (double)b->memory_bytes, (double)a->memory_bytes},
        {"GFLOP", "%.4f", b->flops / 1e9, a->flops / 1e9},
        {"latency p50, ms", "%.3f", b->p50_ms, a->p50_ms},
        {"latency p99, ms", "%.3f", b->p99_ms, a->p99_ms},
        {"items per second", "%.1f", b->items_per_s, a->items_per_s},
        {"  at a batch of", "%.0f", best_batch(b), best_batch(a)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) add_row(table, &rows[i]);
}

static void make_step_table(ht_table *table, const ht_compress_report *report)
{
    *table = (ht_table){0};
    for (size_t i = 0; i < report->step_count; i++) {
        const ht_compress_figures *is = &report->steps[i].after;
        const ht_column columns[] = {
            {.heading = "behind step", .cell = ht_cell_text(report->steps[i].name), .width = 22},
            {.heading = "loss", .format = "%.6f", .cell = ht_cell_number(is->loss)},
            {.heading = "change, %", .format = "%+.2f", .cell = ht_cell_number(rise(&report->before, is))},
            {.heading = "accuracy", .format = "%.4f", .cell = ht_cell_number(is->accuracy), .rank = 1},
            {.heading = "parameters", .format = "%.0f", .cell = ht_cell_number((double)is->parameters)},
            {.heading = "not zero", .format = "%.0f", .cell = ht_cell_number((double)is->nonzero)},
            {.heading = "bytes on disk", .format = "%.0f", .cell = ht_cell_number((double)is->disk_bytes)},
        };
        ht_table_row(table, columns, sizeof columns / sizeof columns[0]);
    }
}

void cli_compress_steps_print(ht_text *text, const ht_compress_report *report)
{
    ht_table table;
    make_step_table(&table, report);
    ht_text_add(text, "\n");
    ht_table_print(text, &table, 0);
    ht_table_free(&table);
}

static void write_verdict(const ht_compress_layer *layer, char out[64])
{
    const char *why = layer->ms > layer->float_ms ? "slower" : "no faster than times scatter";
    const char *kept = layer->stays ? "" : layer->sparse ? ": keeps its zeros" : ": keeps its floats";
    snprintf(out, 64, "%s%s", layer->slower ? why : "", layer->slower ? kept : "");
}

/* Where codes, or leaving zeros out, were tried. */
static void make_layer_table(ht_table *table, const ht_compress_report *report)
{
    bool scanned = false;
    *table = (ht_table){0};
    for (size_t i = 0; i < report->layer_count; i++) scanned |= !isnan(report->layers[i].loss);
    for (size_t i = 0; i < report->layer_count; i++) {
        const ht_compress_layer *layer = &report->layers[i];
        bool before = layer->slower && !layer->stays;
        char verdict[64];
        write_verdict(layer, verdict);
        ht_column columns[6] = {
            {.heading = "layer, ms", .cell = ht_cell_text(layer->name)},
            {.heading = "before", .format = "%.4f", .cell = ht_cell_number(layer->float_ms)},
            {.heading = "after", .format = "%.4f", .cell = ht_cell_number(layer->ms)},
            {.heading = "kernel", .cell = ht_cell_text(before ? layer->float_kernel : layer->kernel), .rank = 1},
        };
        size_t count = 4;
        if (scanned)
            columns[count++] = (ht_column){.heading = "loss", .format = "%+.6f", .cell = ht_cell_number(layer->loss)};
        columns[count++] = (ht_column){.heading = "", .cell = ht_cell_text(verdict)};
        ht_table_row(table, columns, count);
    }
}

void cli_compress_layers_print(ht_text *text, const ht_compress_report *report)
{
    ht_table table;
    make_layer_table(&table, report);
    ht_text_add(text, "\n");
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

/* A line for each layer that a step changed: its figures as compress.json has them. */
static void add_layers(ht_table *table, const ht_json *step)
{
    const ht_json *kind = ht_json_get(step, "step"), *layers = ht_json_get(step, "layers");
    for (const ht_json *layer = layers && layers->kind == HT_JSON_ARRAY ? layers->child : NULL; layer;
         layer = layer->next) {
        const ht_json *name = ht_json_get(layer, "name");
        ht_text figures = {0};
        if (!name || name->kind != HT_JSON_STRING) continue;
        for (const ht_json *member = layer->child; member; member = member->next) {
            if (member == name || member->kind == HT_JSON_NULL) continue;
            ht_text_add(&figures, "%s%s ", figures.length ? ", " : "", member->key);
            ht_json_print(&figures, member);
        }
        const ht_column columns[] = {
            {.heading = "step", .cell = ht_cell_text(kind && kind->kind == HT_JSON_STRING ? kind->text : "")},
            {.heading = "layer", .cell = ht_cell_text(name->text)},
            {.heading = "what it did", .cell = ht_cell_text(figures.data ? figures.data : "")},
        };
        ht_table_row(table, columns, sizeof columns / sizeof columns[0]);
        ht_text_free(&figures);
    }
}

static ht_status read_steps(ht_context *ctx, ht_arena *arena, const char *output, const ht_json **steps)
{
    char path[4096], *text;
    size_t length;
    const ht_json *root;
    snprintf(path, sizeof path, "%s/compress.json", output);
    HT_TRY(ht_read_file(ctx, &text, &length, path));
    ht_status status = ht_json_parse(ctx, arena, path, text, length, &root);
    free(text);
    if (status == HT_OK) *steps = ht_json_get(root, "steps");
    return status;
}

static ht_status fill_page(ht_context *ctx, ht_arena *arena, ht_report *report, const char *output,
                           const ht_compress_report *figures)
{
    const ht_json *steps = NULL;
    ht_table table = {0}, layers = {0}, costs;
    HT_TRY(read_steps(ctx, arena, output, &steps));
    cli_compress_rows(&table, &figures->before, &figures->after);
    report_table(report, &table, "Before and after");
    make_step_table(&costs, figures);
    report_table(report, &costs, "Step by step");
    for (const ht_json *step = steps ? steps->child : NULL; step; step = step->next) add_layers(&layers, step);
    if (layers.count) report_table(report, &layers, "Layers");
    if (figures->layer_count) {
        ht_table times;
        make_layer_table(&times, figures);
        report_table(report, &times, "Layers that were timed");
    }
    return HT_OK;
}

ht_status cli_compress_page(ht_context *ctx, const char *path, const char *run, const char *output,
                            const ht_compress_report *figures)
{
    ht_report *report;
    ht_text text = {0};
    HT_TRY(ht_report_create(&report, ctx, "What compression cost"));
    ht_arena *arena = ht_arena_create();
    ht_text_add(&text, "%s became %s. Memory, GFLOP and latency are those of one evaluation of a batch of %lld.", run,
                output, (long long)figures->after.batch);
    ht_report_paragraph(report, text.data ? text.data : "");
    ht_text_free(&text);
    ht_status status =
        arena ? fill_page(ctx, arena, report, output, figures) : ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status == HT_OK) status = ht_report_write(report, path);
    ht_report_free(report);
    ht_arena_free(arena);
    return status;
}
