#include "cli/sweep_result.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool has_tokens(const cli_sweep_entry *t)
{
    return t->task != HT_TASK_CLASS && t->task != HT_TASK_REGRESSION;
}

static int bits_of(const char *precision)
{
    int bits = atoi(precision + strcspn(precision, "0123456789"));
    return bits > 0 ? bits : 32;
}

static double held_out(const cli_sweep_entry *t)
{
    return t->last_eval.count > 0 ? t->last_eval.loss : NAN;
}

static double accuracy_of(const cli_sweep_entry *t)
{
    return t->last_eval.count > 0 ? t->last_eval.accuracy : NAN;
}

double cli_sweep_entry_measure(const cli_sweep_entry *t)
{
    if (has_tokens(t)) return t->perplexity;
    if (t->last_eval.count > 0) return t->last_eval.loss;
    return t->error[0] ? NAN : t->final_loss;
}

/* One for all: that of the first run that came to its end. */
static const char *measure_name(const cli_sweep *sweep)
{
    size_t i = 0;
    while (i + 1 < sweep->count && sweep->list[i].error[0]) i++;
    const cli_sweep_entry *t = &sweep->list[i];
    return has_tokens(t) ? "perplexity" : t->last_eval.count > 0 ? "held-out loss" : "loss";
}

/* How many runs from this one on differ in their seed only. */
static size_t group_length(const cli_sweep *sweep, size_t from)
{
    size_t to = from;
    while (to < sweep->count && strcmp(sweep->list[to].group, sweep->list[from].group) == 0) to++;
    return to - from;
}

/* ---- tables ---- */

/* The headings of all spaces, one behind the other. */
enum { BYTE_ROWS = HT_SPACE_COUNT * HT_BYTES_COUNT };

static const char *byte_name(int row)
{
    return ht_byte_line_names[row / HT_BYTES_COUNT][row % HT_BYTES_COUNT];
}

static int64_t bytes_at(const cli_sweep_entry *t, int row)
{
    return t->bytes.bytes[row / HT_BYTES_COUNT][row % HT_BYTES_COUNT];
}

/* Is it worth a column of its own? The others share one. */
static bool byte_row_shown(const cli_sweep *sweep, int row)
{
    for (size_t i = 0; i < sweep->count && row % HT_BYTES_COUNT != HT_BYTES_OTHER; i++) {
        int64_t bytes = bytes_at(&sweep->list[i], row);
        if (bytes > 0 && 200 * bytes >= sweep->list[i].plan_bytes) return true;
    }
    return false;
}

static int64_t bytes_not_shown(const cli_sweep *sweep, const cli_sweep_entry *t)
{
    int64_t bytes = 0;
    for (int row = 0; row < BYTE_ROWS; row++)
        if (!byte_row_shown(sweep, row)) bytes += bytes_at(t, row);
    return bytes;
}

static double byte_unit(const cli_sweep *sweep, const char **name)
{
    int64_t most = 0;
    for (size_t i = 0; i < sweep->count; i++)
        if (sweep->list[i].plan_bytes > most) most = sweep->list[i].plan_bytes;
    *name = most < 4 << 20 ? "KiB" : "MiB";
    return most < 4 << 20 ? 0x1p10 : 0x1p20;
}

/* What differs between runs, and what is large, stays. */
static int memory_rank(const char *heading)
{
    static const char *const first_to_go[] = {"other", "slots", "replay", "gradients", "optimizer", "parameters"};
    enum { COUNT = sizeof first_to_go / sizeof first_to_go[0] };
    for (int i = 0; i < COUNT; i++)
        if (strcmp(heading, first_to_go[i]) == 0) return COUNT - i;
    return 0;
}

const char *cli_sweep_memory(ht_table *table, const cli_sweep *sweep)
{
    const char *name;
    double unit = byte_unit(sweep, &name);
    ht_table_head(table, "run");
    for (int row = 0; row < BYTE_ROWS; row++)
        if (byte_row_shown(sweep, row)) ht_table_head(table, byte_name(row));
    ht_table_head(table, "other");
    for (size_t c = 1; c < table->columns; c++) table->rank[c] = memory_rank(table->heads[c]);
    ht_table_head(table, "total");
    for (size_t i = 0; i < sweep->count; i += group_length(sweep, i)) {
        const cli_sweep_entry *t = &sweep->list[i];
        ht_table_cell(table, "%s", t->group);
        for (int row = 0; row < BYTE_ROWS; row++)
            if (byte_row_shown(sweep, row)) ht_table_cell(table, "%.2f", (double)bytes_at(t, row) / unit);
        ht_table_cell(table, "%.2f", (double)bytes_not_shown(sweep, t) / unit);
        ht_table_cell(table, "%.2f", (double)t->plan_bytes / unit);
    }
    return name;
}

/* ---- columns of runs ---- */

/* A number where it is one. */
static ht_cell loss_scale_of(const cli_sweep_entry *r)
{
    double scale;
    bool number = ht_number_read(r->train_config->loss_scale, &scale);
    return number ? ht_cell_number(scale) : ht_cell_text(r->train_config->loss_scale);
}

static void write_bytes(ht_json_writer *json, const char *key, const void *row)
{
    const cli_sweep_entry *r = row;
    ht_byte_table_json(json, key, &r->bytes);
}

static void write_settings(ht_json_writer *json, const char *key, const void *row)
{
    const cli_sweep_entry *r = row;
    ht_json_begin_array(json, key);
    for (size_t i = 0; i < r->set_count; i++) ht_json_put_text(json, NULL, r->sets[i]);
    ht_json_end_array(json);
}

/* What the whole sweep has, which decides on headings. */
typedef struct sweep_view {
    bool tokens, accuracy;
} sweep_view;

static sweep_view view_of(const cli_sweep *sweep)
{
    sweep_view view = {.tokens = sweep->count > 0 && has_tokens(&sweep->list[0])};
    for (size_t i = 0; i < sweep->count; i++) view.accuracy = view.accuracy || !isnan(accuracy_of(&sweep->list[i]));
    return view;
}

/* The columns of halftone compare: a row here is a column on the terminal, on the page and in JSON. */
static size_t run_columns(ht_column *columns, const cli_sweep_entry *r, sweep_view view)
{
    const ht_column all[] = {
        {"name", "run", .cell = ht_cell_text(r->name)},
        {"precision", .cell = ht_cell_text(r->train_config->precision)},
        {"loss_scale", .cell = loss_scale_of(r)},
        {"seed", .cell = ht_cell_int((int64_t)r->train_config->seed)},
        {"bits", "bits", .cell = ht_cell_int(bits_of(r->train_config->precision)), .rank = 3},
        {"steps", .cell = ht_cell_int((int64_t)r->made)},
        {"final_loss", "loss", "%.5f", .cell = ht_cell_number(r->final_loss)},
        {"mean_loss", .cell = ht_cell_number(r->mean_loss)},
        {"eval_loss", "held out", "%.5f", .cell = ht_cell_number(held_out(r)), .rank = view.tokens ? 2 : 0},
        {"perplexity", view.tokens ? "perplexity" : NULL, "%.4f", .cell = ht_cell_number(r->perplexity)},
        {"accuracy", view.accuracy ? "accuracy" : NULL, "%.4f", .cell = ht_cell_number(accuracy_of(r))},
        {"skipped", "skipped", .cell = ht_cell_int(r->skipped)},
        {"step_ms", "step ms", "%.3f", .cell = ht_cell_number(r->median_ms)},
        {"tokens_per_second", view.tokens ? "tokens/s" : "rows/s", "%.0f", .cell = ht_cell_number(r->median_rate),
         .rank = 1},
        {"seconds", .cell = ht_cell_number(r->seconds)},
        {"parameters", .cell = ht_cell_int(r->parameters)},
        {"plan_bytes", .cell = ht_cell_int(r->plan_bytes)},
        {"bytes", .cell = ht_cell_written(write_bytes, r)},
        {"settings", .cell = ht_cell_written(write_settings, r)},
        {"folder", .cell = ht_cell_text(r->folder)},
        {"error", .cell = ht_cell_text(r->error[0] ? r->error : NULL)},
    };
    static_assert(sizeof all <= HT_MOST_COLUMNS * sizeof *all, "space for all columns");
    memcpy(columns, all, sizeof all);
    return sizeof all / sizeof all[0];
}

void cli_sweep_table(ht_table *table, const cli_sweep *sweep)
{
    ht_column columns[HT_MOST_COLUMNS];
    sweep_view view = view_of(sweep);
    for (size_t i = 0; i < sweep->count; i++) ht_table_row(table, columns, run_columns(columns, &sweep->list[i], view));
}

/* ---- groups ---- */

typedef struct entry_group {
    const cli_sweep_entry *first;
    size_t count;
    double mean, deviation;
    double difference, error; /* to the first group, by pairs of one seed: mean and its standard error; NAN: no pairs */
} entry_group;

/* The group that begins at run `from`. */
static entry_group make_group(const cli_sweep *sweep, size_t from)
{
    entry_group g = {.first = &sweep->list[from], .count = group_length(sweep, from), .difference = NAN};
    size_t pairs = group_length(sweep, 0) == g.count ? g.count : 0;
    double *values = calloc(2 * g.count + 1, sizeof *values);
    g.mean = g.deviation = g.error = NAN;
    if (!values) return g;
    for (size_t i = 0; i < g.count; i++) {
        values[i] = cli_sweep_entry_measure(&sweep->list[from + i]);
        if (i < pairs) values[g.count + i] = values[i] - cli_sweep_entry_measure(&sweep->list[i]);
        if (sweep->list[from + i].train_config->seed != sweep->list[i].train_config->seed) pairs = 0;
    }
    g.mean = ht_sample_mean(values, g.count);
    g.deviation = ht_sample_deviation(values, g.count);
    if (pairs > 0 && from > 0) {
        g.difference = ht_sample_mean(values + g.count, pairs);
        g.error = ht_sample_deviation(values + g.count, pairs) / sqrt((double)pairs);
    }
    free(values);
    return g;
}

/* Of groups, as above; `measure` is what runs are judged by. */
static size_t group_columns(ht_column *columns, const entry_group *g, const char *measure)
{
    const ht_column all[] = {
        {"name", "over seeds", .cell = ht_cell_text(g->first->group)},
        {"seeds", "seeds", .cell = ht_cell_int((int64_t)g->count)},
        {"measure", .cell = ht_cell_text(measure)},
        {"mean", measure, "%.5f", .cell = ht_cell_number(g->mean)},
        {"deviation", "deviation", "%.5f", .cell = ht_cell_number(g->deviation)},
        {"difference", "to the first", "%+.5f", .cell = ht_cell_number(g->difference)},
        {"difference_error", "its error", "%.5f", .cell = ht_cell_number(g->error)},
    };
    memcpy(columns, all, sizeof all);
    return sizeof all / sizeof all[0];
}

bool cli_sweep_groups(ht_table *table, const cli_sweep *sweep)
{
    ht_column columns[HT_MOST_COLUMNS];
    bool several = false;
    for (size_t i = 0; i < sweep->count; i += group_length(sweep, i)) several = several || group_length(sweep, i) > 1;
    for (size_t i = 0; i < sweep->count && several; i += group_length(sweep, i)) {
        entry_group g = make_group(sweep, i);
        ht_table_row(table, columns, group_columns(columns, &g, measure_name(sweep)));
    }
    return several;
}

/* ---- sentences ---- */

static bool any_precision(const cli_sweep *sweep, const char *precision)
{
    for (size_t i = 0; i < sweep->count; i++)
        if (strcmp(sweep->list[i].train_config->precision, precision) == 0) return true;
    return false;
}

/* f16 products are widened by every kernel row that there is, so only bf16 may have arithmetic of its own. */
void cli_sweep_half(ht_text *text, const cli_sweep *sweep)
{
    ht_target target;
    ht_text words = {0};
    bool f16 = any_precision(sweep, "fp16"), bf16 = any_precision(sweep, "bf16");
    ht_target_here(sweep->ctx, &target);
    const char *with = ht_target_has(&target, HT_FEATURE_AMX_BF16)      ? "AMX_BF16"
                       : ht_target_has(&target, HT_FEATURE_AVX512_BF16) ? "AVX512_BF16"
                                                                        : NULL;
    if (!f16 && !bf16) return;
    if (!with || !bf16)
        ht_text_add(&words,
                    "There is no arithmetic in %s on this processor: its numbers are widened to f32 where they are "
                    "used, so it saves memory and the time to move it, not the time to compute.\n",
                    f16 && bf16 ? "fp16 and bf16"
                    : f16       ? "fp16"
                                : "bf16");
    else if (f16)
        ht_text_add(&words,
                    "There is no arithmetic in fp16 on this processor, whose numbers are widened to f32 where they are "
                    "used; products of bf16 are made by %s.\n",
                    with);
    else
        ht_text_add(&words, "Products of bf16 are made by %s on this processor.\n", with);
    cli_add_wrapped(text, words.data ? words.data : "", cli_prose_width(), 0, 0);
    text->failed = text->failed || words.failed;
    ht_text_free(&words);
}

void cli_sweep_errors(ht_text *text, const cli_sweep *sweep)
{
    for (size_t i = 0; i < sweep->count; i++) {
        const cli_sweep_entry *t = &sweep->list[i];
        if (t->error[0]) ht_text_add(text, "%s ended after %zu steps: %s\n", t->name, t->made, t->error);
    }
}

/* ---- charts ---- */

typedef struct curve_set {
    ht_series *series;
    size_t count;
    double *points; /* of all */
    bool failed;
} curve_set;

/* Space for `length` points of each run, twice: x and y. */
static curve_set start_curves(const cli_sweep *sweep, size_t length)
{
    curve_set c = {.series = calloc(sweep->count + 1, sizeof *c.series),
                   .points = calloc(sweep->count * length * 2 + 1, sizeof *c.points)};
    c.failed = !c.series || !c.points;
    return c;
}

static void free_curves(curve_set *c)
{
    free(c->series);
    free(c->points);
}

static size_t longest(const cli_sweep *sweep)
{
    size_t most = 0;
    for (size_t i = 0; i < sweep->count; i++) {
        if (sweep->list[i].made > most) most = sweep->list[i].made;
        if (sweep->list[i].evals > most) most = sweep->list[i].evals;
    }
    return most;
}

/* Training curves from step `from` on, each point the mean of the steps around it. */
static void add_training(ht_report *report, const cli_sweep *sweep, size_t from, const char *title, bool logarithmic)
{
    size_t length = longest(sweep), window = length / 100;
    curve_set c = start_curves(sweep, length);
    bool tokens = has_tokens(&sweep->list[0]);
    for (size_t i = 0; i < sweep->count && !c.failed; i++) {
        const cli_sweep_entry *t = &sweep->list[i];
        double *x = c.points + 2 * i * length, *y = x + length;
        size_t count = 0;
        for (size_t k = from; k < t->made; k++, count++) {
            size_t first = k < window ? 0 : k - window, last = k + window < t->made ? k + window : t->made - 1;
            double mean = ht_sample_mean(t->loss + first, last - first + 1);
            x[count] = (double)(k + 1);
            y[count] = tokens ? exp(mean) : mean;
        }
        if (count > 0)
            c.series[c.count++] = (ht_series){.name = t->name, .count = count, .x = x, .y = y, .line = t->line};
    }
    ht_report_chart(report, &(ht_chart){.title = title,
                                        .x_label = "step",
                                        .y_label = tokens ? "training perplexity" : "training loss",
                                        .y_log = logarithmic,
                                        .series = c.series,
                                        .series_count = c.count});
    free_curves(&c);
}

static void add_held_out(ht_report *report, const cli_sweep *sweep)
{
    size_t length = longest(sweep);
    curve_set c = start_curves(sweep, length);
    bool tokens = has_tokens(&sweep->list[0]);
    for (size_t i = 0; i < sweep->count && !c.failed; i++) {
        const cli_sweep_entry *t = &sweep->list[i];
        double *y = c.points + i * length;
        for (size_t k = 0; k < t->evals; k++) y[k] = tokens ? exp(t->eval_loss[k]) : t->eval_loss[k];
        if (t->evals > 1)
            c.series[c.count++] =
                (ht_series){.name = t->name, .count = t->evals, .x = t->eval_step, .y = y, .line = t->line};
    }
    if (c.count > 0)
        ht_report_chart(report, &(ht_chart){.title = tokens ? "Held-out perplexity" : "Held-out loss",
                                            .x_label = "step",
                                            .y_label = tokens ? "perplexity" : "loss",
                                            .y_log = true,
                                            .series = c.series,
                                            .series_count = c.count});
    free_curves(&c);
}

static bool is_scaled(const cli_sweep_entry *t)
{
    for (size_t i = 0; i < t->made; i++)
        if (t->scale[i] != 1) return true;
    return false;
}

static void add_scales(ht_report *report, const cli_sweep *sweep)
{
    size_t length = longest(sweep);
    curve_set c = start_curves(sweep, length);
    for (size_t i = 0; i < sweep->count && !c.failed; i++) {
        const cli_sweep_entry *t = &sweep->list[i];
        double *x = c.points + i * length;
        for (size_t k = 0; k < t->made; k++) x[k] = (double)(k + 1);
        if (is_scaled(t))
            c.series[c.count++] =
                (ht_series){.name = t->name, .count = t->made, .x = x, .y = t->scale, .line = t->line};
    }
    if (c.count > 0)
        ht_report_chart(report, &(ht_chart){.title = "Loss scale",
                                            .x_label = "step",
                                            .y_label = "scale",
                                            .y_log = true,
                                            .series = c.series,
                                            .series_count = c.count});
    free_curves(&c);
}

static void add_bars(ht_report *report, const cli_sweep *sweep)
{
    const char *unit_name, *parts[BYTE_ROWS];
    double unit = byte_unit(sweep, &unit_name);
    double *heights = calloc(BYTE_ROWS * sweep->count + 1, sizeof *heights);
    const char **labels = calloc(sweep->count + 1, sizeof *labels);
    size_t used = 0, bars = 0;
    for (size_t i = 0; i < sweep->count && labels; i += group_length(sweep, i)) labels[bars++] = sweep->list[i].group;
    for (int row = 0; row < BYTE_ROWS && heights && labels; row++) {
        if (!byte_row_shown(sweep, row)) continue;
        double *next = heights + used * bars;
        for (size_t i = 0; i < sweep->count; i += group_length(sweep, i))
            *next++ = (double)bytes_at(&sweep->list[i], row) / unit;
        parts[used++] = byte_name(row);
    }
    if (used > 0)
        ht_report_bars(report, &(ht_bars){.title = "Memory by what it is for",
                                          .x_label = "run",
                                          .y_label = unit_name,
                                          .count = bars,
                                          .labels = labels,
                                          .part_count = used,
                                          .part_names = parts,
                                          .heights = heights});
    free(heights);
    free((void *)labels);
}

void cli_sweep_charts(ht_report *report, const cli_sweep *sweep)
{
    if (sweep->count == 0) return;
    size_t length = longest(sweep);
    bool tokens = has_tokens(&sweep->list[0]);
    const char *title = tokens ? "Training perplexity" : "Training loss";
    add_training(report, sweep, 0, sweep->title ? sweep->title : title, true);
    add_training(report, sweep, length - length / 5, "The last fifth of it", false);
    add_held_out(report, sweep);
    add_scales(report, sweep);
    add_bars(report, sweep);
}

/* ---- for programs ---- */

void cli_sweep_json(ht_json_writer *json, const cli_sweep *sweep)
{
    ht_column columns[HT_MOST_COLUMNS];
    sweep_view view = view_of(sweep);
    ht_json_begin_array(json, "runs");
    for (size_t i = 0; i < sweep->count; i++) {
        ht_json_line(json, 2);
        ht_json_put_row(json, columns, run_columns(columns, &sweep->list[i], view));
    }
    ht_json_end_array(json);
    ht_json_line(json, 1);
    ht_json_begin_array(json, "groups");
    for (size_t i = 0; i < sweep->count; i += group_length(sweep, i)) {
        entry_group g = make_group(sweep, i);
        ht_json_line(json, 2);
        ht_json_put_row(json, columns, group_columns(columns, &g, measure_name(sweep)));
    }
    ht_json_end_array(json);
}

static void add_keys(ht_text *text, const char *name, const ht_column *columns, size_t count)
{
    ht_text keys = {0};
    for (size_t i = 0; i < count; i++)
        if (columns[i].key) ht_text_add(&keys, "%s%s", keys.length ? ", " : "", columns[i].key);
    ht_text_add(text, "    %-7s ", name);
    cli_add_wrapped(text, keys.data ? keys.data : "", 100, 12, 12);
    ht_text_free(&keys);
}

void cli_sweep_describe(ht_text *text)
{
    static const ht_train_config config = {.precision = "", .loss_scale = ""};
    const cli_sweep_entry entry = {.train_config = &config};
    const entry_group group = {.first = &entry};
    ht_column columns[HT_MOST_COLUMNS];
    add_keys(text, "runs", columns, run_columns(columns, &entry, (sweep_view){false, false}));
    add_keys(text, "groups", columns, group_columns(columns, &group, ""));
}
