#include "train/metrics.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/folder.h"

#define HT_SINK(name) extern const ht_sink ht_sink_##name;
#include "train/sinks.def"
#undef HT_SINK

static const ht_sink *const sinks[] = {
#define HT_SINK(name) &ht_sink_##name,
#include "train/sinks.def"
#undef HT_SINK
};
enum { SINKS = sizeof sinks / sizeof sinks[0] };

struct ht_metrics {
    void *state[SINKS]; /* NULL: switched off */
};

ht_status ht_metrics_open(ht_metrics **out, ht_context *ctx, const ht_config *config, const char *folder, int64_t step)
{
    ht_sink_request request = {ctx, config, folder, step};
    ht_status status = HT_OK;
    *out = NULL;
    ht_metrics *m = calloc(1, sizeof *m);
    if (!m) HT_FAIL(ctx, HT_ENOMEM, "out of memory for metrics");
    for (int i = 0; i < SINKS && status == HT_OK; i++) status = sinks[i]->open(&m->state[i], &request);
    if (status == HT_OK)
        *out = m;
    else
        ht_metrics_close(m);
    return status;
}

ht_status ht_metrics_step(ht_metrics *m, const ht_step_report *report)
{
    for (int i = 0; m && i < SINKS; i++)
        if (m->state[i]) HT_TRY(sinks[i]->step(m->state[i], report));
    return HT_OK;
}

ht_status ht_metrics_eval(ht_metrics *m, const ht_eval_report *report)
{
    for (int i = 0; m && i < SINKS; i++)
        if (m->state[i] && sinks[i]->eval) HT_TRY(sinks[i]->eval(m->state[i], report));
    return ht_metrics_flush(m);
}

ht_status ht_metrics_end(ht_metrics *m, const ht_end_report *report)
{
    for (int i = 0; m && i < SINKS; i++)
        if (m->state[i] && sinks[i]->end) HT_TRY(sinks[i]->end(m->state[i], report));
    return ht_metrics_flush(m);
}

ht_status ht_metrics_flush(ht_metrics *m)
{
    for (int i = 0; m && i < SINKS; i++)
        if (m->state[i] && sinks[i]->flush) HT_TRY(sinks[i]->flush(m->state[i]));
    return HT_OK;
}

ht_status ht_metrics_close(ht_metrics *m)
{
    ht_status status = HT_OK;
    for (int i = 0; m && i < SINKS; i++) {
        ht_status closed = m->state[i] ? sinks[i]->close(m->state[i]) : HT_OK;
        if (status == HT_OK) status = closed;
    }
    free(m);
    return status;
}

bool ht_metrics_own(const char *name)
{
    for (int i = 0; i < SINKS; i++)
        if (sinks[i]->owns && sinks[i]->owns(name)) return true;
    return false;
}

/* ---- what sinks share ---- */

ht_status ht_sink_monitor_folder(const ht_sink_request *request, const char *monitor, char **out)
{
    const ht_fields *engine = ht_config_block(request->config, "engine");
    char key[64];
    snprintf(key, sizeof key, "%s.output_path", monitor);
    const char *path = ht_field_text(engine, key);
    snprintf(key, sizeof key, "%s.job_name", monitor);
    const char *name = ht_field_text(engine, key);
    HT_TRY(ht_folder_path(request->ctx, out, path && path[0] ? path : request->folder, name ? name : ""));
    return ht_folder_make(request->ctx, *out);
}

/* Everything up to the last line that stays: a line in between that cannot be read is not ours to remove. */
static size_t bytes_kept(char *text, size_t length, int64_t last, int64_t (*number_of)(const char *line),
                         ht_sink_kept *kept)
{
    size_t whole = 0;
    int64_t odd = 0;
    for (size_t start = 0; start < length;) {
        char *end = memchr(text + start, '\n', length - start);
        if (!end) break;
        *end = '\0';
        bool torn = strlen(text + start) != (size_t)(end - text) - start;
        int64_t number = torn ? -1 : number_of(text + start);
        start = (size_t)(end - text) + 1;
        if (number < 0 || number > last) {
            odd++;
            continue;
        }
        whole = start;
        kept->last = number;
        kept->damaged = odd;
    }
    return whole;
}

ht_status ht_sink_cut(ht_context *ctx, const char *path, int64_t last, int64_t (*number_of)(const char *line),
                      ht_sink_kept *kept)
{
    char *text = NULL;
    size_t length;
    *kept = (ht_sink_kept){0};
    if (access(path, F_OK) != 0) return HT_OK;
    HT_TRY(ht_read_file(ctx, &text, &length, path));
    size_t whole = bytes_kept(text, length, last, number_of, kept);
    free(text);
    if (whole < length && truncate(path, (off_t)whole) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (kept->damaged > 0) ht_note(ctx, HT_LOG_WARN, "%s: %" PRId64 " of its lines are damaged", path, kept->damaged);
    return HT_OK;
}

/* The number behind "step" in a line that we wrote ourselves; -1 in any other line, and in that of an end which was
 * none. */
static int64_t step_of_line(const char *line)
{
    size_t length = strlen(line);
    bool whole = length > 0 && line[0] == '{' && line[length - 1] == '}';
    const char *at = !whole || strstr(line, "\"kind\": \"end\"") ? NULL : strstr(line, "\"step\": ");
    return at ? strtoll(at + strlen("\"step\": "), NULL, 10) : -1;
}

ht_status ht_sink_cut_jsonl(ht_context *ctx, const char *path, int64_t step, ht_sink_kept *kept)
{
    return ht_sink_cut(ctx, path, step, step_of_line, kept);
}
