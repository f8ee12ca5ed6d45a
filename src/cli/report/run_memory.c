/* The memory of runs: by heading, and alive over a step, as memory.json tells. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/run_sections.h"
#include "cli/timeline_view.h"
#include "plan/plan.h"

static double member(const ht_json *object, const char *key)
{
    double value;
    return ht_json_as_number(ht_json_get(object, key), &value) ? value : 0;
}

static const ht_json *list_of(const ht_json *object, const char *key)
{
    const ht_json *list = ht_json_get(object, key);
    return list && list->kind == HT_JSON_ARRAY ? list->child : NULL;
}

static size_t count_of(const ht_json *segment)
{
    const ht_json *live = ht_json_get(segment, "live_bytes");
    return live && live->kind == HT_JSON_ARRAY ? live->count : 0;
}

static size_t instructions(const ht_json *memory)
{
    size_t count = 0;
    for (const ht_json *s = list_of(memory, "segments"); s; s = s->next) count += count_of(s);
    return count;
}

/* Megabytes in main at each instruction: what is alive, and what lasts. */
static void fill(double *y, const ht_json *memory, const ht_json *segment)
{
    double lasts = member(memory, "main_bytes") - member(memory, "transient_bytes"), live;
    for (const ht_json *at = list_of(segment, "live_bytes"); at; at = at->next)
        *y++ = (lasts + (ht_json_as_number(at, &live) ? live : 0)) / 1e6;
}

/* ---- one run: its segments one behind the other, each in its colour ---- */

enum { MOST_SEGMENTS = 16, SHOWN_ALIVE = 12 };

static void add_one(ht_report *report, const cli_run *run, bool *failed)
{
    size_t count = instructions(run->memory), at = 0;
    double *x = calloc(count + 1, sizeof *x), *y = calloc(count + 1, sizeof *y);
    ht_series series[MOST_SEGMENTS];
    ht_chart chart = {.title = "Memory over a step",
                      .x_label = "instruction",
                      .y_label = "MB in main memory",
                      .series = series,
                      .whole = true,
                      .level = member(run->memory, "main_bytes") / 1e6,
                      .level_name = "planned"};
    *failed |= !x || !y;
    for (size_t i = 0; x && i < count; i++) x[i] = (double)(i + 1);
    for (const ht_json *s = list_of(run->memory, "segments"); x && y && s && chart.series_count < MOST_SEGMENTS;
         s = s->next) {
        const ht_json *name = ht_json_get(s, "name");
        fill(y + at, run->memory, s);
        series[chart.series_count++] = (ht_series){.name = name && name->kind == HT_JSON_STRING ? name->text : "?",
                                                   .count = count_of(s),
                                                   .x = x + at,
                                                   .y = y + at};
        at += count_of(s);
    }
    if (x && y && count) ht_report_chart(report, &chart);
    free(x);
    free(y);
}

/* ---- one run: by heading, and what is alive at the peak ---- */

static int64_t whole_of(const ht_json *value)
{
    int64_t whole;
    return value && ht_json_as_int(value, &whole) ? whole : 0;
}

static const char *word_of(const ht_json *object, const char *key)
{
    const ht_json *word = ht_json_get(object, key);
    return word && word->kind == HT_JSON_STRING ? word->text : "";
}

/* What a plan told of its timeline, but for the instructions themselves. False: out of memory. */
static bool read_timeline(ht_memory_timeline *t, const ht_json *memory)
{
    const ht_json *main = ht_json_get(ht_json_get(memory, "bytes"), ht_space_name(HT_SPACE_MAIN));
    const ht_json *alive = ht_json_get(memory, "alive");
    size_t count = instructions(memory), most = alive && alive->kind == HT_JSON_ARRAY ? alive->count : 0;
    *t = (ht_memory_timeline){.arena = ht_arena_create()};
    t->moments = t->arena ? HT_NEW(t->arena, ht_memory_moment, count + 1) : NULL;
    t->alive = t->arena ? HT_NEW(t->arena, ht_alive, most + 1) : NULL;
    if (!t->moments || !t->alive) return false;
    for (int h = 0; h < HT_BYTES_COUNT; h++)
        if (h != HT_BYTES_ACTIVATIONS && h != HT_BYTES_WORKSPACE)
            t->lasting[h] = whole_of(ht_json_get(main, ht_byte_heading_names[h]));
    for (const ht_json *s = list_of(memory, "segments"); s; s = s->next) {
        const ht_json *workspace = list_of(s, "workspace_bytes"); /* older runs have none */
        for (const ht_json *live = list_of(s, "live_bytes"); live; live = live->next) {
            int64_t scratch = whole_of(workspace);
            t->moments[t->count++] = (ht_memory_moment){.values = whole_of(live) - scratch, .workspace = scratch};
            workspace = workspace ? workspace->next : NULL;
        }
    }
    for (const ht_json *a = list_of(memory, "alive"); a; a = a->next)
        t->alive[t->alive_count++] = (ht_alive){.op = word_of(a, "op"),
                                                .layer = word_of(a, "layer"),
                                                .type = word_of(a, "type"),
                                                .bytes = whole_of(ht_json_get(a, "bytes")),
                                                .first = (uint32_t)whole_of(ht_json_get(a, "first")),
                                                .last = (uint32_t)whole_of(ht_json_get(a, "last"))};
    return true;
}

static void add_peak(ht_report *report, const cli_run *run, bool *failed)
{
    ht_memory_timeline t;
    ht_table alive = {.count = 0};
    ht_text line = {0};
    const ht_json *peak = ht_json_get(run->memory, "peak");
    if (read_timeline(&t, run->memory)) {
        cli_timeline_bars(report, &t);
        ht_text_add(&line, "The peak is at instruction %" PRId64 " of %s (%s of %s).",
                    whole_of(ht_json_get(peak, "instruction")), word_of(peak, "segment"), word_of(peak, "op"),
                    word_of(peak, "layer"));
        if (peak && !line.failed) ht_report_paragraph(report, line.data);
        cli_timeline_alive(&alive, &t, SHOWN_ALIVE);
        if (t.alive_count) cli_runs_put_table(report, &alive, "The largest tensors that are alive at the peak", failed);
        ht_table_free(&alive);
    } else {
        *failed = true;
    }
    *failed |= line.failed;
    ht_text_free(&line);
    ht_memory_timeline_free(&t);
}

/* ---- several: over the share of their instructions ---- */

static void add_several(ht_report *report, const cli_runs *runs, bool *failed)
{
    ht_series series[CLI_MOST_RUNS];
    for (size_t i = 0; i < runs->count; i++) {
        const ht_json *memory = runs->list[i].memory;
        size_t count = instructions(memory), at = 0;
        double *x = calloc(2 * count + 1, sizeof *x);
        *failed |= !x;
        for (size_t k = 0; x && k < count; k++) x[k] = 100 * (double)(k + 1) / (double)count;
        for (const ht_json *s = x ? list_of(memory, "segments") : NULL; s; s = s->next) {
            fill(x + count + at, memory, s);
            at += count_of(s);
        }
        series[i] = (ht_series){.name = runs->list[i].name, .count = x ? count : 0, .x = x, .y = x ? x + count : NULL};
    }
    ht_report_chart(report, &(ht_chart){.title = "Memory over a step",
                                        .x_label = "instructions, percent",
                                        .y_label = "MB in main memory",
                                        .series = series,
                                        .series_count = runs->count,
                                        .whole = true,
                                        .most_buckets = 150});
    for (size_t i = 0; i < runs->count; i++) free((void *)series[i].x);
}

/* ---- by heading ---- */

static double heading_bytes(const cli_run *run, int space, int heading)
{
    return member(ht_json_get(ht_json_get(run->memory, "bytes"), ht_space_name((ht_space)space)),
                  ht_byte_heading_names[heading]);
}

static void add_headings(ht_report *report, const cli_runs *runs, bool *failed)
{
    ht_table table = {.count = 0};
    ht_table_head(&table, "MB");
    for (size_t i = 0; i < runs->count; i++) ht_table_head(&table, runs->list[i].name);
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int heading = 0; heading < HT_BYTES_COUNT; heading++) {
            double most = 0;
            for (size_t i = 0; i < runs->count; i++)
                if (heading_bytes(&runs->list[i], space, heading) > most)
                    most = heading_bytes(&runs->list[i], space, heading);
            if (most == 0) continue;
            ht_table_cell(&table, "%s", ht_byte_line_names[space][heading]);
            for (size_t i = 1; i < table.columns; i++)
                ht_table_cell(&table, "%.3f", heading_bytes(&runs->list[i - 1], space, heading) / 1e6);
        }
    cli_runs_put_table(report, &table, "What the plan holds", failed);
}

void cli_runs_add_memory(ht_report *report, const cli_runs *runs, bool *failed)
{
    bool any = false;
    for (size_t i = 0; i < runs->count; i++) any = any || runs->list[i].memory;
    if (!any) {
        ht_report_paragraph(report, "Memory over a step: there is no memory.json, which halftone train writes now.");
        return;
    }
    if (runs->count == 1) {
        add_one(report, &runs->list[0], failed);
        add_peak(report, &runs->list[0], failed);
    } else {
        add_several(report, runs, failed);
    }
    add_headings(report, runs, failed);
}
