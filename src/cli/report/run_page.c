#include "cli/report/run_sections.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- curves over steps ---- */

/* A chart of one value of all runs. It is left out where no run has a number that is not `dull`. */
typedef struct metric_chart {
    const char *title, *y_label;
    cli_metric metric;
    bool evals, y_log;
    double dull;
    double unit; /* 0: 1 */
} metric_chart;

static const metric_chart metric_charts[] = {
    {"Held-out loss", "loss", (cli_metric)CLI_EVAL_LOSS, .evals = true, .dull = NAN},
    {"Held-out accuracy", "share of right answers", (cli_metric)CLI_EVAL_ACCURACY, .evals = true, .dull = NAN},
    {"Learning rate", "learning rate", CLI_METRIC_LR, .dull = NAN},
    {"Throughput", "tokens or rows per second", CLI_METRIC_RATE, .dull = NAN},
    {"Time of a step", "ms", CLI_METRIC_STEP_MS, .dull = NAN},
    {"Norm of the gradients", "norm", CLI_METRIC_GRAD_NORM, .y_log = true, .dull = NAN},
    {"Loss scale", "scale", CLI_METRIC_LOSS_SCALE, .y_log = true, .dull = 1},
    {"Steps skipped so far", "steps", CLI_METRIC_SKIPS, .dull = 0},
    {"Exchange with other ranks", "ms of a step", CLI_METRIC_EXCHANGE_MS, .dull = NAN},
    {"Memory of the process, at most", "MB", CLI_METRIC_PROCESS_BYTES, .dull = NAN, .unit = 1e6},
};
enum { METRIC_CHARTS = sizeof metric_charts / sizeof metric_charts[0] };

static const cli_records *records_of(const cli_run *run, const metric_chart *chart)
{
    return chart->evals ? &run->metrics.evals : &run->metrics.steps;
}

static bool is_worth(const cli_run *run, const metric_chart *chart)
{
    const cli_records *r = records_of(run, chart);
    for (size_t i = 0; i < r->count; i++)
        if (isfinite(r->values[chart->metric][i]) && r->values[chart->metric][i] != chart->dull) return true;
    return false;
}

/* So many buckets for each curve that the page stays below a megabyte, however many steps and runs there are. */
static size_t buckets_of_curve(const cli_runs *runs)
{
    enum { ALL_BUCKETS = 7000, MOST_BUCKETS = 500 };
    size_t curves = 0;
    for (size_t i = 0; i < runs->count; i++) {
        curves += runs->list[i].metrics.steps.count > 0;
        for (size_t k = 0; k < METRIC_CHARTS; k++) curves += is_worth(&runs->list[i], &metric_charts[k]);
    }
    size_t each = ALL_BUCKETS / (curves + 1);
    return each < MOST_BUCKETS ? each : MOST_BUCKETS;
}

/* A run keeps its place, and so its colour, also where it has nothing to show. */
static void add_metric(ht_report *report, const cli_runs *runs, const metric_chart *chart, size_t buckets, bool *failed)
{
    ht_series series[CLI_MOST_RUNS];
    double *scaled[CLI_MOST_RUNS] = {NULL};
    bool worth = false;
    for (size_t i = 0; i < runs->count; i++) {
        const cli_records *r = records_of(&runs->list[i], chart);
        worth = worth || is_worth(&runs->list[i], chart);
        if (chart->unit && (scaled[i] = malloc((r->count + 1) * sizeof **scaled)))
            for (size_t k = 0; k < r->count; k++) scaled[i][k] = r->values[chart->metric][k] / chart->unit;
        *failed |= chart->unit && !scaled[i];
        series[i] = (ht_series){.name = runs->list[i].name,
                                .count = r->count,
                                .x = r->step,
                                .y = scaled[i] ? scaled[i] : r->values[chart->metric]};
    }
    if (worth)
        ht_report_chart(report, &(ht_chart){.title = chart->title,
                                            .x_label = "step",
                                            .y_label = chart->y_label,
                                            .y_log = chart->y_log,
                                            .whole = true,
                                            .series = series,
                                            .series_count = runs->count,
                                            .most_buckets = buckets});
    for (size_t i = 0; i < runs->count; i++) free(scaled[i]);
}

/* Of one run, evaluations are in the same chart. */
static void add_loss(ht_report *report, const cli_runs *runs, size_t buckets)
{
    ht_series series[CLI_MOST_RUNS + 1];
    size_t count = 0;
    bool alone = runs->count == 1, any = false;
    for (size_t i = 0; i < runs->count; i++) {
        const cli_records *r = &runs->list[i].metrics.steps;
        any = any || r->count;
        series[count++] = (ht_series){.name = alone ? "training" : runs->list[i].name,
                                      .count = r->count,
                                      .x = r->step,
                                      .y = r->values[CLI_METRIC_LOSS]};
    }
    const cli_records *evals = &runs->list[0].metrics.evals;
    if (alone && evals->count)
        series[count++] =
            (ht_series){.name = "held out", .count = evals->count, .x = evals->step, .y = evals->values[CLI_EVAL_LOSS]};
    if (any)
        ht_report_chart(report, &(ht_chart){.title = "Loss",
                                            .x_label = "step",
                                            .y_label = "loss",
                                            .series = series,
                                            .series_count = count,
                                            .most_buckets = buckets});
}

static void tell_dull(ht_report *report, const cli_runs *runs)
{
    bool steps = false, scaled = false, skipped = false;
    for (size_t i = 0; i < runs->count; i++) {
        const cli_records *r = &runs->list[i].metrics.steps;
        for (size_t k = 0; k < r->count; k++) {
            scaled = scaled || r->values[CLI_METRIC_LOSS_SCALE][k] != 1;
            skipped = skipped || r->values[CLI_METRIC_SKIPS][k] > 0;
        }
        steps = steps || r->count;
    }
    if (steps && (!scaled || !skipped))
        ht_report_paragraph(report, scaled    ? "No step was skipped."
                                    : skipped ? "Losses were not scaled."
                                              : "Losses were not scaled, and no step was skipped.");
}

static void add_curves(ht_report *report, const cli_runs *runs, bool *failed)
{
    size_t buckets = buckets_of_curve(runs);
    add_loss(report, runs, buckets);
    for (size_t k = 0; k < METRIC_CHARTS; k++)
        if (runs->count > 1 || !metric_charts[k].evals || metric_charts[k].metric != (cli_metric)CLI_EVAL_LOSS)
            add_metric(report, runs, &metric_charts[k], buckets, failed);
    tell_dull(report, runs);
}

/* ---- the page ---- */

void cli_runs_put_table(ht_report *report, ht_table *table, const char *title, bool *failed)
{
    *failed |= table->failed;
    if (table->count) ht_table_report(report, table, title);
    ht_table_free(table);
    *table = (ht_table){.count = 0};
}

static void add_notes(ht_report *report, const cli_run *run)
{
    const char *line = run->notes.data;
    for (size_t length; line && *line; line += length + 1) {
        char note[1024];
        length = strcspn(line, "\n");
        snprintf(note, sizeof note, "%.*s", (int)length, line);
        ht_report_paragraph(report, note);
    }
}

static bool fill_page(ht_report *report, const cli_runs *runs)
{
    ht_table table = {.count = 0};
    bool failed = false;
    cli_runs_table(&table, runs);
    cli_runs_put_table(report, &table, NULL, &failed);
    for (size_t i = 0; i < runs->count; i++) {
        failed |= runs->list[i].notes.failed;
        add_notes(report, &runs->list[i]);
    }
    add_curves(report, runs, &failed);
    cli_runs_add_memory(report, runs, &failed);
    cli_runs_add_profiles(report, runs, &failed);
    cli_runs_add_configs(report, runs, &failed);
    return !failed;
}

ht_status cli_runs_page(ht_report **out, ht_context *ctx, const cli_runs *runs)
{
    ht_text title = {0};
    if (runs->count == 1)
        ht_text_add(&title, "Run %s", runs->list[0].name);
    else
        ht_text_add(&title, "%zu runs", runs->count);
    ht_status status =
        title.failed ? ht_fail(ctx, HT_ENOMEM, "out of memory for a page") : ht_report_create(out, ctx, title.data);
    ht_text_free(&title);
    if (status != HT_OK) return status;
    if (fill_page(*out, runs)) return HT_OK;
    ht_report_free(*out);
    *out = NULL;
    HT_FAIL(ctx, HT_ENOMEM, "out of memory for a page");
}

ht_status cli_run_page(ht_report **out, ht_context *ctx, const char *const *folders, size_t count,
                       double refresh_seconds)
{
    *out = NULL;
    cli_runs *runs = calloc(1, sizeof *runs);
    if (!runs) HT_FAIL(ctx, HT_ENOMEM, "out of memory for runs");
    ht_status status = cli_runs_open(runs, ctx, folders, count);
    if (status == HT_OK) status = cli_runs_page(out, ctx, runs);
    if (status == HT_OK && refresh_seconds > 0) ht_report_refresh(*out, refresh_seconds);
    cli_runs_close(runs);
    free(runs);
    return status;
}
