/* A profile as a page. */
#include "cli/profile_view.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_INSTRS = 40 };

/* A paragraph for each line. */
static void add_lines(ht_report *report, ht_text *text)
{
    for (char *line = text->failed ? NULL : strtok(text->data, "\n"); line; line = strtok(NULL, "\n"))
        ht_report_paragraph(report, line);
    ht_text_free(text);
}

/* ---- pictures ---- */

static void add_steps(ht_report *report, const ht_profile *p)
{
    double *x = calloc(p->steps + 1, sizeof *x), *y = calloc(p->steps + 1, sizeof *y);
    for (size_t i = 0; x && y && i < p->steps; i++) {
        x[i] = (double)i + 1;
        y[i] = 1e3 * p->step_seconds[i];
    }
    if (x && y && p->steps > 1)
        ht_report_chart(report, &(ht_chart){.title = "Steps",
                                            .x_label = "step",
                                            .y_label = "ms",
                                            .series = &(ht_series){.name = "step", .count = p->steps, .x = x, .y = y},
                                            .series_count = 1});
    free(x);
    free(y);
}

static void add_phases(ht_report *report, const ht_profile *p)
{
    double heights[HT_PHASE_COUNT];
    const char *names[HT_PHASE_COUNT];
    size_t count = 0;
    static const char *const part[] = {"ms"};
    for (int phase = 0; phase < HT_PHASE_COUNT; phase++) {
        if (phase > HT_PHASE_REST && p->phases[phase].seconds == 0) continue;
        names[count] = ht_phase_names[phase];
        heights[count++] = 1e3 * p->phases[phase].seconds;
    }
    ht_report_bars(report, &(ht_bars){.title = "Where the time of a step goes",
                                      .x_label = "phase",
                                      .y_label = "ms",
                                      .count = count,
                                      .labels = names,
                                      .part_count = 1,
                                      .part_names = part,
                                      .heights = heights});
}

static double time_of(const cli_module_time *m)
{
    return m->forward_ms + m->backward_ms;
}

static bool has_children(const cli_module_time *modules, size_t count, size_t parent)
{
    for (size_t i = parent + 1; i < count; i++)
        if (modules[i].parent == parent) return true;
    return false;
}

/* The module whose children are worth a picture: as long as one of them is nearly all of it, that one. */
static size_t find_parent(const cli_module_time *modules, size_t count)
{
    size_t parent = 0;
    for (size_t i = 1; i < count; i++) { /* a parent stands before its children */
        bool most = modules[i].parent == parent && time_of(&modules[i]) > 0.8 * time_of(&modules[parent]);
        if (most && has_children(modules, count, i)) parent = i;
    }
    return parent;
}

void cli_profile_module_chart(ht_report *report, const char *title, const cli_module_time *modules, size_t count)
{
    size_t shown = 0, at = 0, parent = find_parent(modules, count);
    const char **labels = calloc(count + 1, sizeof *labels);
    double *heights = calloc(2 * count + 1, sizeof *heights);
    static const char *const parts[] = {"forward", "backward"};
    for (size_t i = 1; i < count; i++) shown += modules[i].parent == parent;
    for (size_t i = 1; labels && heights && i < count; i++) {
        if (modules[i].parent != parent) continue;
        labels[at] = modules[i].name;
        heights[at] = modules[i].forward_ms;
        heights[shown + at++] = modules[i].backward_ms;
    }
    if (labels && heights && shown)
        ht_report_bars(report, &(ht_bars){.title = title,
                                          .x_label = "module",
                                          .y_label = "ms",
                                          .count = shown,
                                          .labels = labels,
                                          .part_count = 2,
                                          .part_names = parts,
                                          .heights = heights});
    free(labels);
    free(heights);
}

static void add_modules(ht_report *report, const ht_profile *p)
{
    const ht_module_tree *t = &p->modules;
    cli_module_time *modules = calloc(t->count + 1, sizeof *modules);
    for (size_t i = 0; modules && i < t->count; i++) {
        const ht_module *m = &t->list[i];
        modules[i] = (cli_module_time){m->name, m->parent, 1e3 * m->forward_seconds, 1e3 * m->backward_seconds};
    }
    if (modules) cli_profile_module_chart(report, "Time of each module", modules, t->count);
    free(modules);
}

static bool has_format(const ht_profile *p, int format)
{
    for (size_t i = 0; i < p->instr_count; i++)
        if (p->instrs[i].limit.format == format) return true;
    return false;
}

/* The slowest instructions, by kind of work, below the roofs of the number types that they compute in. */
static void add_roofline(ht_report *report, const ht_profile *p)
{
    ht_roof roofs[HT_FORMAT_COUNT];
    ht_roofline_point *points = calloc(p->instr_count + 1, sizeof *points);
    const ht_target *target = &p->plan->target;
    ht_roofline_chart chart = {.title = "Instructions under the roofline", .roofs = roofs, .points = points};
    for (int format = 0; format < HT_FORMAT_COUNT; format++)
        if (has_format(p, format))
            roofs[chart.roof_count++] = (ht_roof){ht_format_name(format), ht_target_flops(target, format),
                                                  ht_target_bandwidth(target, HT_SPACE_MAIN), false};
    for (ht_work work = 0; points && work < HT_WORK_COUNT; work++)
        for (size_t i = 0; i < p->instr_count; i++) {
            const ht_instr_profile *at = &p->instrs[i];
            double flops = ht_cost_flops(at->instr->cost), bytes = at->instr->cost.bytes;
            if (at->work != work || flops <= 0 || bytes <= 0 || at->seconds < 1e-3 * p->mean_seconds) continue;
            points[chart.point_count++] =
                (ht_roofline_point){ht_work_names[work], at->layer, flops / bytes, at->runs * flops / at->seconds};
        }
    if (chart.point_count) ht_report_roofline(report, &chart);
    free(points);
}

static void add_infer_curve(ht_report *report, const cli_profile_view *v)
{
    double x[CLI_MOST_BATCHES], y[CLI_MOST_BATCHES];
    for (size_t i = 0; i < v->infer_count; i++) {
        x[i] = 1e3 * v->infer[i].times.p50_s;
        y[i] = (double)v->infer[i].batch / v->infer[i].times.p50_s;
    }
    ht_report_chart(report,
                    &(ht_chart){.title = "Inference: throughput against latency",
                                .x_label = "ms of a batch (p50)",
                                .y_label = "samples/s",
                                .series = &(ht_series){.name = "batches", .count = v->infer_count, .x = x, .y = y},
                                .series_count = 1});
}

/* ---- the page ---- */

static void add_table(ht_report *report, ht_table *table, const char *title, bool *failed)
{
    *failed |= table->failed;
    ht_table_report(report, table, title);
    ht_table_free(table);
}

static void add_infer(ht_report *report, const cli_profile_view *v, bool *failed)
{
    ht_table batches = {.count = 0}, sides = {.count = 0};
    ht_text caches = {0};
    cli_profile_infer_table(&batches, v);
    cli_profile_sides_table(&sides, v);
    cli_profile_caches(&caches, v);
    add_infer_curve(report, v);
    add_table(report, &batches, "Inference, by batch", failed);
    add_lines(report, &caches);
    add_table(report, &sides, "Training against inference", failed);
}

static void fill_page(ht_report *report, const cli_profile_view *v, bool *failed)
{
    const ht_profile *p = v->profile;
    ht_table phases = {.count = 0}, works = {.count = 0}, bounds = {.count = 0}, modules = {.count = 0},
             instrs = {.count = 0};
    ht_text summary = {0};
    cli_profile_summary(&summary, v);
    add_lines(report, &summary);
    add_phases(report, p);
    cli_profile_phase_table(&phases, p, v->save_seconds);
    add_table(report, &phases, "Phases of a step", failed);
    add_steps(report, p);
    add_modules(report, p);
    cli_profile_module_table(&modules, p, v->depth, true);
    add_table(report, &modules, "Modules", failed);
    add_roofline(report, p);
    cli_profile_work_table(&works, p);
    add_table(report, &works, "Kinds of work", failed);
    cli_profile_bound_table(&bounds, p);
    add_table(report, &bounds, "What bounds it", failed);
    cli_profile_instr_table(&instrs, p, SHOWN_INSTRS);
    add_table(report, &instrs, "The slowest instructions; * stands for a number", failed);
    if (v->infer_count) add_infer(report, v, failed);
}

ht_status cli_profile_page(ht_context *ctx, const cli_profile_view *v, const char *path)
{
    ht_report *report;
    bool failed = false;
    HT_TRY(ht_report_create(&report, ctx, "A training step, measured"));
    fill_page(report, v, &failed);
    ht_status status = failed ? ht_fail(ctx, HT_ENOMEM, "out of memory for a page") : ht_report_write(report, path);
    ht_report_free(report);
    return status;
}
