#include "train/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "format/format.h"
#include "train/folder.h"

/* The csv files that DeepSpeed's monitor writes, by its names. */
enum { CSV_LOSS, CSV_LR, CSV_SCALE, CSV_FILES };
static const char *const csv_names[CSV_FILES] = {"Train_Samples_train_loss", "Train_Samples_lr",
                                                 "Train_Samples_loss_scale"};

struct ht_metrics {
    ht_context *ctx;
    FILE *lines;
    char *lines_path;
    ht_events *events;
    FILE *csv[CSV_FILES];
    int64_t batch;
    bool scaled; /* losses have a scale that is worth a curve */
};

/* ---- opening ---- */

/* The number behind "step" in a line that we wrote ourselves; -1 in a line that is none. */
static int64_t step_of_line(const char *line)
{
    const char *at = strstr(line, "\"step\": ");
    return at ? strtoll(at + strlen("\"step\": "), NULL, 10) : -1;
}

/* The first field of a csv line. */
static int64_t samples_of_line(const char *line)
{
    char *end;
    int64_t samples = strtoll(line, &end, 10);
    return *end == ',' ? samples : 0; /* the header stays */
}

/* Cuts a file behind the last whole line whose number is at most `last`. A file that is not there stays away. */
static ht_status cut(ht_context *ctx, const char *path, int64_t last, int64_t (*number_of)(const char *line))
{
    char *text = NULL;
    size_t length;
    if (access(path, F_OK) != 0) return HT_OK;
    HT_TRY(ht_read_file(ctx, &text, &length, path));
    size_t keep = 0;
    for (size_t start = 0; start < length;) {
        char *end = memchr(text + start, '\n', length - start);
        if (!end) break;
        *end = '\0';
        int64_t number = number_of(text + start);
        if (number < 0 || number > last) break;
        keep = start = (size_t)(end - text) + 1;
    }
    free(text);
    if (keep < length && truncate(path, (off_t)keep) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    return HT_OK;
}

ht_status ht_metrics_cut(ht_context *ctx, const char *path, int64_t step)
{
    return cut(ctx, path, step, step_of_line);
}

static ht_status open_lines(ht_metrics *m, const char *folder, int64_t step)
{
    HT_TRY(ht_folder_path(m->ctx, &m->lines_path, folder, "metrics.jsonl"));
    if (step > 0) HT_TRY(cut(m->ctx, m->lines_path, step, step_of_line));
    m->lines = fopen(m->lines_path, step > 0 ? "abe" : "wbe");
    if (!m->lines) HT_FAIL(m->ctx, HT_EIO, "%s: %s", m->lines_path, strerror(errno));
    return HT_OK;
}

/* output_path/job_name of a monitor of the engine config, made; *out is heap memory. An empty path is the run's own. */
static ht_status monitor_folder(ht_metrics *m, const ht_fields *engine, const char *monitor, const char *folder,
                                char **out)
{
    char key[64];
    snprintf(key, sizeof key, "%s.output_path", monitor);
    const char *path = ht_field_text(engine, key);
    snprintf(key, sizeof key, "%s.job_name", monitor);
    const char *name = ht_field_text(engine, key);
    HT_TRY(ht_folder_path(m->ctx, out, path && path[0] ? path : folder, name ? name : ""));
    return ht_folder_make(m->ctx, *out);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ht_status open_events(ht_metrics *m, const ht_config *config, const char *folder, int64_t step)
{
    const ht_fields *engine = ht_config_block(config, "engine");
    char *place = NULL, *path = NULL, name[96];
    ht_status status = HT_OK;
    if (ht_config_has_engine(config) && ht_field_bool(engine, "tensorboard.enabled"))
        status = monitor_folder(m, engine, "tensorboard", folder, &place);
    snprintf(name, sizeof name, "events.out.tfevents.%lld.%ld.halftone", (long long)now(), (long)getpid());
    if (status == HT_OK) status = ht_folder_path(m->ctx, &path, place ? place : folder, name);
    if (status == HT_OK) status = ht_events_open(&m->events, m->ctx, path, now());
    if (status == HT_OK) status = ht_events_start(m->events, now(), step + 1);
    free(place);
    free(path);
    return status;
}

static ht_status open_csv_file(ht_metrics *m, const char *place, int which, int64_t step)
{
    char *path, name[64];
    snprintf(name, sizeof name, "%s.csv", csv_names[which]);
    HT_TRY(ht_folder_path(m->ctx, &path, place, name));
    ht_status status = step > 0 ? cut(m->ctx, path, step * m->batch, samples_of_line) : HT_OK;
    if (status == HT_OK && !(m->csv[which] = fopen(path, step > 0 ? "abe" : "wbe")))
        status = ht_fail(m->ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (status == HT_OK && fseek(m->csv[which], 0, SEEK_END) == 0 && ftell(m->csv[which]) == 0)
        fprintf(m->csv[which], "step,%s\n", csv_names[which]);
    free(path);
    return status;
}

static ht_status open_csv(ht_metrics *m, const ht_config *config, const char *folder, int64_t step)
{
    const ht_fields *engine = ht_config_block(config, "engine");
    char *place = NULL;
    if (!ht_config_has_engine(config) || !ht_field_bool(engine, "csv_monitor.enabled")) return HT_OK;
    ht_status status = monitor_folder(m, engine, "csv_monitor", folder, &place);
    for (int i = 0; i < CSV_FILES && status == HT_OK; i++)
        if (i != CSV_SCALE || m->scaled) status = open_csv_file(m, place, i, step);
    free(place);
    return status;
}

ht_status ht_metrics_open(ht_metrics **out, ht_context *ctx, const ht_config *config, const char *folder, int64_t step)
{
    *out = NULL;
    ht_metrics *m = calloc(1, sizeof *m);
    if (!m) HT_FAIL(ctx, HT_ENOMEM, "out of memory for metrics");
    m->ctx = ctx;
    m->batch = ht_config_train(config)->batch;
    m->scaled = strcmp(ht_config_train(config)->loss_scale, "none") != 0;
    ht_status status = open_lines(m, folder, step);
    if (status == HT_OK) status = open_events(m, config, folder, step);
    if (status == HT_OK) status = open_csv(m, config, folder, step);
    if (status == HT_OK)
        *out = m;
    else
        ht_metrics_close(m);
    return status;
}

/* ---- records ---- */

static void member(ht_text *text, const char *name, double value)
{
    ht_text_add(text, ", \"%s\": ", name);
    if (isfinite(value))
        ht_text_number(text, value);
    else
        ht_text_add(text, "null"); /* JSON has no word for it */
}

static ht_status put_line(ht_metrics *m, ht_text *text)
{
    ht_text_add(text, "}\n");
    bool wrote = !text->failed && fwrite(text->data, 1, text->length, m->lines) == text->length;
    if (fflush(m->lines) != 0) wrote = false;
    ht_text_free(text);
    if (!wrote) HT_FAIL(m->ctx, HT_EIO, "%s: %s", m->lines_path, strerror(errno));
    return HT_OK;
}

static ht_status put_events(ht_metrics *m, int64_t step, size_t count, const char *const *tags, const double *values)
{
    double wall = now();
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i])) HT_TRY(ht_events_scalar(m->events, wall, step, tags[i], (float)values[i]));
    return HT_OK;
}

static ht_status put_csv(ht_metrics *m, int which, int64_t step, double value)
{
    ht_text number = {0};
    if (!m->csv[which]) return HT_OK;
    ht_text_number(&number, value);
    bool wrote = number.data && fprintf(m->csv[which], "%" PRId64 ",%s\n", step * m->batch, number.data) > 0 &&
                 fflush(m->csv[which]) == 0;
    ht_text_free(&number);
    if (!wrote) HT_FAIL(m->ctx, HT_EIO, "%s.csv: %s", csv_names[which], strerror(errno));
    return HT_OK;
}

ht_status ht_metrics_step(ht_metrics *m, const ht_step_report *r)
{
    ht_text text = {0};
    ht_text_add(&text, "{\"kind\": \"step\", \"step\": %" PRId64, r->step);
    member(&text, "epoch", r->epoch);
    member(&text, "loss", r->loss);
    member(&text, "lr", r->lr);
    member(&text, "grad_norm", r->grad_norm);
    member(&text, "loss_scale", r->loss_scale);
    member(&text, "tokens_per_second", r->tokens_per_second);
    member(&text, "step_ms", r->step_ms);
    member(&text, "micro_ms", r->micro_ms);
    member(&text, "update_ms", r->update_ms);
    ht_text_add(&text, ", \"bytes\": %" PRId64 ", \"peak_bytes\": %" PRId64 ", \"skipped\": %s, \"skips\": %" PRId64,
                r->bytes, r->peak_bytes, r->skipped ? "true" : "false", r->skips);
    HT_TRY(put_line(m, &text));
    static const char *const tags[] = {"train/loss",    "train/lr",        "train/grad_norm", "train/tokens_per_second",
                                       "train/step_ms", "train/loss_scale"};
    HT_TRY(put_events(
        m, r->step, sizeof tags / sizeof tags[0], tags,
        (double[]){r->loss, r->lr, r->grad_norm, r->tokens_per_second, r->step_ms, m->scaled ? r->loss_scale : NAN}));
    HT_TRY(put_csv(m, CSV_LOSS, r->step, r->loss));
    HT_TRY(put_csv(m, CSV_SCALE, r->step, r->loss_scale));
    return put_csv(m, CSV_LR, r->step, r->lr);
}

ht_status ht_metrics_eval(ht_metrics *m, const ht_eval_report *r)
{
    ht_text text = {0};
    ht_text_add(&text, "{\"kind\": \"eval\", \"step\": %" PRId64, r->step);
    member(&text, "loss", r->loss);
    if (!isnan(r->perplexity)) member(&text, "perplexity", r->perplexity);
    if (!isnan(r->accuracy)) member(&text, "accuracy", r->accuracy);
    ht_text_add(&text, ", \"count\": %" PRId64, r->count);
    member(&text, "seconds", r->seconds);
    HT_TRY(put_line(m, &text));
    static const char *const tags[] = {"eval/loss", "eval/perplexity", "eval/accuracy"};
    HT_TRY(put_events(m, r->step, sizeof tags / sizeof tags[0], tags, (double[]){r->loss, r->perplexity, r->accuracy}));
    return ht_metrics_flush(m);
}

ht_status ht_metrics_flush(ht_metrics *m)
{
    return ht_events_flush(m->events);
}

ht_status ht_metrics_close(ht_metrics *m)
{
    if (!m) return HT_OK;
    ht_status status = ht_events_close(m->events);
    if (m->lines && fclose(m->lines) != 0) status = ht_fail(m->ctx, HT_EIO, "%s: %s", m->lines_path, strerror(errno));
    for (int i = 0; i < CSV_FILES; i++)
        if (m->csv[i] && fclose(m->csv[i]) != 0)
            status = ht_fail(m->ctx, HT_EIO, "%s.csv: %s", csv_names[i], strerror(errno));
    free(m->lines_path);
    free(m);
    return status;
}
