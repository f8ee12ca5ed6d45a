#include "cli/report/run_metrics.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const step_keys[CLI_METRIC_COUNT] = {
#define CLI_METRIC(id, key) key,
    CLI_METRICS(CLI_METRIC)
#undef CLI_METRIC
};
static const char *const eval_keys[CLI_EVAL_METRIC_COUNT] = {"loss", "perplexity", "accuracy"};

/* ---- records ---- */

static bool reserve(cli_records *r, size_t columns)
{
    size_t wanted = r->capacity ? 2 * r->capacity : 1024;
    if (r->count < r->capacity) return true;
    for (size_t i = 0; i <= columns; i++) {
        double **column = i < columns ? &r->values[i] : &r->step;
        double *larger = realloc(*column, wanted * sizeof **column);
        if (!larger) return false;
        *column = larger;
    }
    r->capacity = wanted;
    return true;
}

/* Records of this step and of later ones go. */
static void cut(cli_records *r, double step)
{
    while (r->count > 0 && r->step[r->count - 1] >= step) r->count--;
}

static bool add(cli_records *r, double step, const double *values, size_t columns)
{
    cut(r, step);
    if (!reserve(r, columns)) return false;
    r->step[r->count] = step;
    for (size_t i = 0; i < columns; i++) r->values[i][r->count] = values[i];
    r->count++;
    return true;
}

static void free_records(cli_records *r)
{
    free(r->step);
    for (size_t i = 0; i < CLI_METRIC_COUNT; i++) free(r->values[i]);
}

void cli_run_metrics_free(cli_run_metrics *m)
{
    free_records(&m->steps);
    free_records(&m->evals);
}

/* ---- lines ---- */

static void take_members(const ht_json *line, const char *const *keys, size_t count, double *values)
{
    for (size_t i = 0; i < count; i++)
        if (!ht_json_as_number(ht_json_get(line, keys[i]), &values[i])) values[i] = NAN;
}

/* A kind that is not known is of a later version. */
static bool take_record(cli_run_metrics *m, const ht_json *line, bool *failed)
{
    const ht_json *kind = ht_json_get(line, "kind");
    double step, values[CLI_METRIC_COUNT];
    if (!kind || kind->kind != HT_JSON_STRING || !ht_json_as_number(ht_json_get(line, "step"), &step)) return false;
    if (strcmp(kind->text, "step") == 0) {
        /* Of a run that went on: evaluations after its snapshot are made again. */
        if (m->steps.count > 0 && step <= m->steps.step[m->steps.count - 1]) cut(&m->evals, step);
        take_members(line, step_keys, CLI_METRIC_COUNT, values);
        *failed |= !add(&m->steps, step, values, CLI_METRIC_COUNT);
    } else if (strcmp(kind->text, "eval") == 0) {
        take_members(line, eval_keys, CLI_EVAL_METRIC_COUNT, values);
        *failed |= !add(&m->evals, step, values, CLI_EVAL_METRIC_COUNT);
    } else if (strcmp(kind->text, "end") == 0 && !ht_json_as_number(ht_json_get(line, "seconds"), &m->seconds)) {
        m->seconds = NAN;
    }
    return true;
}

static bool take_line(cli_run_metrics *m, const char *text, size_t length, bool *failed)
{
    ht_context unheard = {0}; /* the caller names the line */
    const ht_json *line;
    ht_arena *arena = ht_arena_create();
    *failed |= !arena;
    bool taken =
        arena && ht_json_parse(&unheard, arena, "", text, length, &line) == HT_OK && take_record(m, line, failed);
    ht_arena_free(arena);
    return taken;
}

static bool take_lines(cli_run_metrics *m, FILE *file)
{
    char *line = NULL;
    size_t capacity = 0, number = 0;
    bool failed = false;
    for (ssize_t length; !failed && (length = getline(&line, &capacity, file)) > 0;) {
        number++;
        if (line[length - 1] != '\n') {
            m->cut = true;
        } else if (!take_line(m, line, (size_t)length, &failed)) {
            if (m->damaged++ == 0) m->bad_line = number;
        }
    }
    free(line);
    return !failed;
}

ht_status cli_run_metrics_read(cli_run_metrics *m, ht_context *ctx, const char *path)
{
    *m = (cli_run_metrics){.seconds = NAN};
    FILE *file = fopen(path, "rbe");
    if (!file) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    bool taken = take_lines(m, file), broken = ferror(file);
    int why = errno;
    fclose(file);
    if (broken) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(why));
    if (!taken) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    return HT_OK;
}
