/* Time per layer and roofline of runs whose folder has a profile.json. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/profile_view.h"
#include "cli/report/run_sections.h"

/* Points of all runs together: each is drawn twice, and described. */
enum { MOST_POINTS = 240 };

static double number(const ht_json *object, const char *key)
{
    double value;
    return ht_json_as_number(ht_json_get(object, key), &value) ? value : 0;
}

static const char *text(const ht_json *object, const char *key)
{
    const ht_json *value = ht_json_get(object, key);
    return value && value->kind == HT_JSON_STRING ? value->text : "";
}

static const ht_json *list(const ht_json *object, const char *key, size_t *count)
{
    const ht_json *found = ht_json_get(object, key);
    bool right = found && found->kind == HT_JSON_ARRAY;
    *count = right ? found->count : 0;
    return right ? found->child : NULL;
}

/* "Time of each module" of one run, "...: NAME" of several. */
static void add_title(ht_text *title, const char *what, const cli_runs *runs, const cli_run *run, bool *failed)
{
    ht_text_add(title, "%s", what);
    if (runs->count > 1) ht_text_add(title, ": %s", run->name);
    *failed |= title->failed;
}

/* ---- layers ---- */

static void add_modules(ht_report *report, const cli_run *run, const char *title, bool *failed)
{
    size_t count, at = 0;
    const ht_json *first = list(run->profile, "modules", &count);
    cli_module_time *modules = calloc(count + 1, sizeof *modules);
    int *depth = calloc(count + 1, sizeof *depth);
    for (const ht_json *m = first; m && modules && depth; m = m->next, at++) {
        size_t parent = at;
        depth[at] = (int)number(m, "depth");
        while (parent > 0 && depth[parent] >= depth[at]) parent--; /* it stands before its children */
        modules[at] = (cli_module_time){text(m, "name"), parent, number(m, "forward_ms"), number(m, "backward_ms")};
    }
    *failed |= !modules || !depth;
    if (modules && depth) cli_profile_module_chart(report, title, modules, count);
    free(modules);
    free(depth);
}

/* ---- roofline ---- */

static int by_time(const void *a, const void *b)
{
    const ht_json *const *p = a, *const *q = b;
    double x = number(*p, "ms"), y = number(*q, "ms");
    return x < y ? 1 : x > y ? -1 : 0;
}

static size_t add_roofs(ht_roof *roofs, const ht_json *profile)
{
    const ht_json *ceilings = ht_json_get(profile, "ceilings"), *flops = ht_json_get(ceilings, "flops");
    size_t count = 0;
    for (const ht_json *f = flops && flops->kind == HT_JSON_OBJECT ? flops->child : NULL; f && count < HT_FORMAT_COUNT;
         f = f->next) {
        ht_roof roof = {.name = f->key, .bandwidth = number(ceilings, "bandwidth")};
        if (ht_json_as_number(f, &roof.flops) && roof.flops > 0 && roof.bandwidth > 0) roofs[count++] = roof;
    }
    return count;
}

static void add_roofline(ht_report *report, const cli_run *run, const char *title, size_t most, bool *failed)
{
    size_t count, at = 0;
    const ht_json *first = list(run->profile, "instructions", &count);
    const ht_json **slowest = calloc(count + 1, sizeof *slowest);
    ht_roofline_point *points = calloc(count + 1, sizeof *points);
    ht_roof roofs[HT_FORMAT_COUNT];
    ht_roofline_chart chart = {
        .title = title, .roofs = roofs, .roof_count = add_roofs(roofs, run->profile), .points = points};
    *failed |= !slowest || !points;
    for (const ht_json *i = first; i && slowest; i = i->next) slowest[at++] = i;
    if (slowest && count) qsort(slowest, count, sizeof *slowest, by_time);
    for (int work = 0; work < HT_WORK_COUNT && slowest && points; work++)
        for (size_t i = 0; i < count && i < most; i++) {
            const ht_json *instr = slowest[i];
            double flops =
                number(instr, "dot_flops") + number(instr, "other_flops") + number(instr, "recomputed_flops");
            double bytes = number(instr, "bytes"), ms = number(instr, "ms");
            if (strcmp(text(instr, "work"), ht_work_names[work]) != 0 || flops <= 0 || bytes <= 0 || ms <= 0) continue;
            points[chart.point_count++] = (ht_roofline_point){ht_work_names[work], text(instr, "layer"), flops / bytes,
                                                              1e3 * number(instr, "runs") * flops / ms};
        }
    if (chart.point_count) ht_report_roofline(report, &chart);
    free(slowest);
    free(points);
}

/* ---- both ---- */

static void add_profile(ht_report *report, const cli_runs *runs, const cli_run *run, size_t most, bool *failed)
{
    ht_text layers = {0}, roofline = {0};
    add_title(&layers, "Time per layer", runs, run, failed);
    add_title(&roofline, "Instructions under the roofline", runs, run, failed);
    if (!layers.failed && !roofline.failed) {
        add_modules(report, run, layers.data, failed);
        add_roofline(report, run, roofline.data, most, failed);
    }
    ht_text_free(&layers);
    ht_text_free(&roofline);
}

static void tell_missing(ht_report *report, const cli_run *run, bool *failed)
{
    ht_text line = {0};
    size_t length = strlen(run->folder);
    while (length > 1 && run->folder[length - 1] == '/') length--;
    ht_text_add(&line,
                "Time per layer and roofline: %s has not been profiled. halftone profile JOB.json --json > "
                "%.*s/profile.json measures a few steps; so does training with DeepSpeed's flops_profiler.",
                run->name, (int)length, run->folder);
    *failed |= line.failed;
    if (!line.failed) ht_report_paragraph(report, line.data);
    ht_text_free(&line);
}

void cli_runs_add_profiles(ht_report *report, const cli_runs *runs, bool *failed)
{
    size_t profiled = 0;
    for (size_t i = 0; i < runs->count; i++) profiled += runs->list[i].profile != NULL;
    for (size_t i = 0; i < runs->count; i++) {
        if (runs->list[i].profile)
            add_profile(report, runs, &runs->list[i], MOST_POINTS / profiled, failed);
        else
            tell_missing(report, &runs->list[i], failed);
    }
}
