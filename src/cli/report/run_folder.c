/* What the folder of a run tells about it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report/run_page.h"

enum { MOST_PATH = 4096 };

const ht_json *cli_run_value(const cli_run *run, const char *key)
{
    const ht_json *value = ht_json_get(ht_json_get(ht_json_get(run->config, "values"), key), "value");
    return value && value->kind != HT_JSON_NULL ? value : NULL;
}

/* ---- names ---- */

/* Without slashes at its end. */
static size_t path_length(const char *path)
{
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    return length;
}

static void name_by_last_part(cli_run *run)
{
    size_t end = path_length(run->folder), start = end;
    while (start > 0 && run->folder[start - 1] != '/') start--;
    if (start == end) start = 0;
    snprintf(run->name, sizeof run->name, "%.*s", (int)(end - start), run->folder + start);
}

static bool has_namesake(const cli_runs *runs, size_t at)
{
    for (size_t i = 0; i < runs->count; i++)
        if (i != at && strcmp(runs->list[i].name, runs->list[at].name) == 0) return true;
    return false;
}

/* Of a long path the end says more. */
static void name_runs(cli_runs *runs)
{
    bool whole[CLI_MOST_RUNS];
    for (size_t i = 0; i < runs->count; i++) name_by_last_part(&runs->list[i]);
    for (size_t i = 0; i < runs->count; i++) whole[i] = has_namesake(runs, i);
    for (size_t i = 0; i < runs->count; i++) {
        cli_run *run = &runs->list[i];
        size_t length = path_length(run->folder), most = sizeof run->name - 1, from = length > most ? length - most : 0;
        if (whole[i]) snprintf(run->name, sizeof run->name, "%.*s", (int)(length - from), run->folder + from);
    }
}

/* ---- files ---- */

static ht_status file_path(char path[MOST_PATH], ht_context *ctx, const cli_run *run, const char *name)
{
    int length = snprintf(path, MOST_PATH, "%.*s/%s", (int)path_length(run->folder), run->folder, name);
    if (length < 0 || length >= MOST_PATH) HT_FAIL(ctx, HT_EINVAL, "%.60s...: the path is too long", run->folder);
    return HT_OK;
}

/* NULL, and a note where it is damaged. *there: it exists. */
static ht_status read_json(const ht_json **out, bool *there, ht_context *ctx, cli_run *run, const char *name)
{
    char path[MOST_PATH], *text;
    size_t length;
    ht_context heard = {0};
    *out = NULL;
    HT_TRY(file_path(path, ctx, run, name));
    *there = access(path, F_OK) == 0;
    if (!*there) return HT_OK;
    ht_status status = ht_read_file(&heard, &text, &length, path);
    if (status == HT_OK) {
        status = ht_json_parse(&heard, run->arena, path, text, length, out);
        free(text);
    }
    if (status == HT_ENOMEM) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status != HT_OK) ht_text_add(&run->notes, "%s\n", ht_context_message(&heard));
    if (status != HT_OK) *out = NULL;
    return HT_OK;
}

static bool has_list(const ht_json *object, const char *key)
{
    const ht_json *list = ht_json_get(object, key);
    return list && list->kind == HT_JSON_ARRAY;
}

/* JSON of another kind tells no times: it is left out like a damaged file. */
static void check_profile(cli_run *run)
{
    if (!run->profile || (has_list(run->profile, "modules") && has_list(run->profile, "instructions"))) return;
    ht_text_add(&run->notes, "%.*s/profile.json: it is not what halftone profile --json writes, and left out\n",
                (int)path_length(run->folder), run->folder);
    run->profile = NULL;
}

static void note_metrics(cli_run *run, const char *path)
{
    const cli_run_metrics *m = &run->metrics;
    if (m->damaged == 1)
        ht_text_add(&run->notes, "%s:%zu: the line is damaged, and left out\n", path, m->bad_line);
    else if (m->damaged)
        ht_text_add(&run->notes, "%s:%zu: the line is damaged, and left out; so are %zu more\n", path, m->bad_line,
                    m->damaged - 1);
    if (m->cut) ht_text_add(&run->notes, "%s: the last line is not whole, and left out\n", path);
    if (!m->steps.count) ht_text_add(&run->notes, "%s: there is no step yet\n", path);
}

static ht_status open_run(cli_run *run, ht_context *ctx)
{
    char path[MOST_PATH];
    bool has_config, ignored;
    if (!(run->arena = ht_arena_create())) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a run");
    HT_TRY(read_json(&run->config, &has_config, ctx, run, "config.resolved.json"));
    HT_TRY(read_json(&run->memory, &ignored, ctx, run, "memory.json"));
    HT_TRY(read_json(&run->profile, &ignored, ctx, run, "profile.json"));
    check_profile(run);
    HT_TRY(file_path(path, ctx, run, "metrics.jsonl"));
    bool has_metrics = access(path, F_OK) == 0;
    if (!has_config && !has_metrics)
        HT_FAIL(ctx, HT_EINVAL, "%s holds no run: it has neither config.resolved.json nor metrics.jsonl", run->folder);
    if (!has_config) ht_text_add(&run->notes, "%s: config.resolved.json is missing\n", run->folder);
    if (!has_metrics) ht_text_add(&run->notes, "%s: metrics.jsonl is missing\n", run->folder);
    if (!has_metrics) return HT_OK;
    HT_TRY(cli_run_metrics_read(&run->metrics, ctx, path));
    note_metrics(run, path);
    return HT_OK;
}

ht_status cli_runs_open(cli_runs *runs, ht_context *ctx, const char *const *folders, size_t count)
{
    *runs = (cli_runs){.count = 0};
    if (count > CLI_MOST_RUNS) HT_FAIL(ctx, HT_EINVAL, "%zu runs are more than %d", count, CLI_MOST_RUNS);
    for (size_t i = 0; i < count; i++) runs->list[runs->count++].folder = folders[i];
    name_runs(runs);
    for (size_t i = 0; i < count; i++) HT_TRY(open_run(&runs->list[i], ctx));
    return HT_OK;
}

void cli_runs_close(cli_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++) {
        cli_run_metrics_free(&runs->list[i].metrics);
        ht_text_free(&runs->list[i].notes);
        ht_arena_free(runs->list[i].arena);
    }
}
