/* A run in one row. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/run_page.h"

/* Of the values that are numbers, the lower one of two; NAN of none. */
static double median(const double *values, size_t count)
{
    double *numbers = malloc((count + 1) * sizeof *numbers), middle = NAN;
    size_t found = 0;
    for (size_t i = 0; numbers && i < count; i++)
        if (isfinite(values[i])) numbers[found++] = values[i];
    if (found) middle = ht_sample_select(numbers, found, (found - 1) / 2);
    free(numbers);
    return middle;
}

static double last(const cli_records *r, int metric)
{
    return r->count ? r->values[metric][r->count - 1] : NAN;
}

static double largest(const cli_records *r, int metric)
{
    double most = NAN;
    for (size_t i = 0; i < r->count; i++) most = fmax(most, r->values[metric][i]);
    return most;
}

/* The evaluation with the lowest loss; evals.count: there is none. */
static size_t best_eval(const cli_records *evals)
{
    size_t best = evals->count;
    for (size_t i = 0; i < evals->count; i++) {
        double loss = evals->values[CLI_EVAL_LOSS][i];
        if (isfinite(loss) && (best == evals->count || loss < evals->values[CLI_EVAL_LOSS][best])) best = i;
    }
    return best;
}

static ht_cell whole(double number)
{
    return isfinite(number) ? ht_cell_int(llround(number)) : ht_cell_text(NULL);
}

static const char *text_of(const cli_run *run, const char *key)
{
    const ht_json *value = cli_run_value(run, key);
    return value && value->kind == HT_JSON_STRING ? value->text : NULL;
}

/* A row here is a column on the terminal, on the page and in JSON. */
static size_t summary_columns(ht_column *columns, const cli_run *run)
{
    const cli_records *steps = &run->metrics.steps, *evals = &run->metrics.evals;
    size_t best = best_eval(evals);
    bool judged = best < evals->count;
    double wanted;
    if (!ht_json_as_number(cli_run_value(run, "train.steps"), &wanted)) wanted = NAN;
    const ht_column all[] = {
        {"name", "run", .cell = ht_cell_text(run->name)},
        {"folder", .cell = ht_cell_text(run->folder)},
        {"model", "model", .cell = ht_cell_text(text_of(run, "model.type")), .rank = 4},
        {"precision", "precision", .cell = ht_cell_text(text_of(run, "train.precision")), .rank = 3},
        {"step", "steps", .cell = whole(steps->count ? steps->step[steps->count - 1] : NAN)},
        {"steps", "of", .cell = whole(wanted), .rank = 6},
        {"loss", "loss", "%.5f", .cell = ht_cell_number(last(steps, CLI_METRIC_LOSS))},
        {"eval_loss", "held out", "%.5f", .cell = ht_cell_number(last(evals, CLI_EVAL_LOSS)), .rank = 1},
        {"best_eval_loss", "best", "%.5f", .cell = ht_cell_number(judged ? evals->values[CLI_EVAL_LOSS][best] : NAN)},
        {"best_eval_step", "at step", .cell = whole(judged ? evals->step[best] : NAN), .rank = 5},
        {"eval_perplexity", .cell = ht_cell_number(last(evals, CLI_EVAL_PERPLEXITY))},
        {"eval_accuracy", .cell = ht_cell_number(last(evals, CLI_EVAL_ACCURACY))},
        {"skips", "skipped", .cell = whole(last(steps, CLI_METRIC_SKIPS)), .rank = 2},
        {"step_ms", "step ms", "%.3f", .cell = ht_cell_number(median(steps->values[CLI_METRIC_STEP_MS], steps->count))},
        {"tokens_per_second", "per second", "%.0f",
         .cell = ht_cell_number(median(steps->values[CLI_METRIC_RATE], steps->count))},
        {"process_peak_bytes", .cell = whole(largest(steps, CLI_METRIC_PROCESS_BYTES))},
        {"seconds", .cell = ht_cell_number(run->metrics.seconds)},
    };
    static_assert(sizeof all <= HT_MOST_COLUMNS * sizeof *all, "space for all columns");
    memcpy(columns, all, sizeof all);
    return sizeof all / sizeof all[0];
}

void cli_runs_table(ht_table *table, const cli_runs *runs)
{
    ht_column columns[HT_MOST_COLUMNS];
    for (size_t i = 0; i < runs->count; i++) ht_table_row(table, columns, summary_columns(columns, &runs->list[i]));
}

void cli_runs_json(ht_text *text, const cli_runs *runs)
{
    ht_json_writer json = {.text = text};
    ht_column columns[HT_MOST_COLUMNS];
    ht_json_begin_array(&json, NULL);
    for (size_t i = 0; i < runs->count; i++) {
        ht_json_line(&json, 2);
        ht_json_put_row(&json, columns, summary_columns(columns, &runs->list[i]));
    }
    ht_json_line(&json, 0);
    ht_json_end_array(&json);
    ht_text_add(text, "\n");
}
