#include "cli/probe_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/report.h"

/* ---- numbers as people read them ---- */

typedef struct short_number {
    char text[32];
} short_number;

/* "1.64 TFLOP/s", "98.2 ns" */
static short_number shorten(double value, const char *unit)
{
    static const char *const large[] = {"", "k", "M", "G", "T", "P", "E"}, *const little[] = {"", "m", "µ", "n", "p"};
    short_number s;
    size_t i = 0;
    if (value >= 1)
        for (; value >= 999.5 && i + 1 < sizeof large / sizeof large[0]; i++) value /= 1000;
    else
        for (; value > 0 && value < 0.9995 && i + 1 < sizeof little / sizeof little[0]; i++) value *= 1000;
    bool is_little = value > 0 && i > 0 && (strcmp(unit, "s") == 0 || strcmp(unit, "J") == 0);
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    snprintf(s.text, sizeof s.text, "%.*f %s%s", digits, value, is_little ? little[i] : large[i], unit);
    return s;
}

/* ---- groups of rows, as one table each ---- */

static const struct {
    const char *group, *title;
} groups[] = {
    {"flops", "Arithmetic"},
    {"product", "Matrix products by our kernels"},
    {"cache", "Caches"},
    {"memory", "Memory"},
    {"link", "Copies between memories"},
    {"disk", "Disk"},
    {"message", "Messages between ranks"},
    {"energy", "Energy"},
    {"family", "Kernels against the ceilings: roofline time over measured time"},
    {"logic", "Logic, bit operations and comparisons"},
    {"branching", "Branching"},
    {"access", "Memory access, beyond the caches"},
    {"scalar", "Scalar arithmetic: each operation waits for the last one"},
    {"vector", "Vector arithmetic: arrays in the first level of the caches"},
    {"matrix", "Matrix work"},
    {"special", "Special functions"},
    {"scaling", "Thread scaling"},
};
enum { GROUPS = sizeof groups / sizeof groups[0] };

static bool in_group(const ht_probe_row *row, size_t group)
{
    return strcmp(row->group, groups[group].group) == 0;
}

static bool same_thing(const ht_probe_row *a, const ht_probe_row *b)
{
    bool sized = a->size && b->size;
    return strcmp(a->group, b->group) == 0 && strcmp(a->name, b->name) == 0 &&
           (sized ? strcmp(a->size, b->size) == 0 : strcmp(a->what, b->what) == 0);
}

/* What stands in the line of `row` too: measured on that device, with one thread or more. NULL: there is none. */
static const ht_probe_row *beside(const ht_probe *probe, const ht_probe_row *row, ht_device_kind device, bool one)
{
    for (size_t i = 0; i < probe->count; i++) {
        const ht_probe_row *other = &probe->rows[i];
        bool all = device == HT_DEVICE_CUDA ? other->threads == 0 : other->threads == probe->target.threads;
        if (other->device == device && (one ? other->threads == 1 : all) && same_thing(row, other)) return other;
    }
    return NULL;
}

/* Does an earlier row begin the line that it stands in? */
static bool has_line(const ht_probe *probe, const ht_probe_row *row)
{
    for (const ht_probe_row *earlier = probe->rows; earlier < row; earlier++) {
        if (!same_thing(earlier, row)) continue;
        if (earlier->device != row->device || earlier->threads != row->threads) return true;
    }
    return false;
}

static void add_rate(ht_table *table, const ht_probe_row *row)
{
    ht_table_cell(table, "%s", row ? shorten(row->value, row->unit).text : "-");
}

static void add_call(ht_table *table, const ht_probe_row *row)
{
    ht_table_cell(table, "%s", row ? shorten(row->seconds, "s").text : "-");
    ht_table_cell(table, "%s", row && row->flops > 0 ? shorten(row->flops / row->seconds, "FLOP/s").text : "-");
    ht_table_cell(table, "%s", row ? shorten(row->bytes / row->seconds, "B/s").text : "-");
    if (row)
        ht_table_cell(table, "%.2f", row->share);
    else
        ht_table_cell(table, "-");
}

static void add_family(ht_table *table, const ht_probe *probe, const ht_probe_row *row)
{
    ht_table_cell(table, "%s", row->name);
    ht_table_cell(table, "%s", row->size);
    add_call(table, row->device == HT_DEVICE_CPU ? row : NULL);
    if (probe->has_gpu) add_call(table, beside(probe, row, HT_DEVICE_CUDA, false));
}

/* Of a machine with one thread that is all of it, too. */
static void add_plain(ht_table *table, const ht_probe *probe, const ht_probe_row *row)
{
    bool threaded = probe->target.threads > 1, alone = row->device == HT_DEVICE_CPU && row->threads == 0;
    const ht_probe_row *one = alone ? row : beside(probe, row, HT_DEVICE_CPU, true);
    const ht_probe_row *all = threaded && !alone ? beside(probe, row, HT_DEVICE_CPU, false) : NULL;
    ht_table_cell(table, "%s", row->name);
    ht_table_cell(table, "%s", strcmp(row->what, row->name) == 0 ? "" : row->what);
    add_rate(table, one);
    add_rate(table, all);
    if (!probe->has_gpu) return;
    add_rate(table, beside(probe, row, HT_DEVICE_CUDA, true));
    add_rate(table, beside(probe, row, HT_DEVICE_CUDA, false));
}

/* False: the probe has no such rows. */
static bool make_table(ht_table *table, const ht_probe *probe, size_t group)
{
    bool family = strcmp(groups[group].group, "family") == 0, scaling = strcmp(groups[group].group, "scaling") == 0;
    static const char *const plain_heads[] = {"", "what", "one thread", "all threads", "GPU, one thread", "GPU"},
                             *const family_heads[] = {"family",      "size",     "a call",      "FLOP/s",
                                                      "bytes/s",     "share",    "GPU: a call", "GPU FLOP/s",
                                                      "GPU bytes/s", "GPU share"},
                             *const scaling_heads[] = {"", "threads", "rate"};
    const char *const *heads = family ? family_heads : scaling ? scaling_heads : plain_heads;
    int count = family ? 6 : scaling ? 3 : 4;
    if (probe->has_gpu && !scaling) count += family ? 4 : 2;
    *table = (ht_table){0};
    for (int i = 0; i < count; i++) {
        ht_table_head(table, heads[i]);
        table->right[i] = i >= 2;
    }
    for (size_t i = 0; i < probe->count; i++) {
        const ht_probe_row *row = &probe->rows[i];
        if (!in_group(row, group)) continue;
        if (family) {
            if (!has_line(probe, row)) add_family(table, probe, row);
        } else if (scaling) {
            ht_table_cell(table, "%s", row->name);
            ht_table_cell(table, "%d", row->threads);
            ht_table_cell(table, "%s", shorten(row->value, row->unit).text);
        } else if (!has_line(probe, row)) {
            add_plain(table, probe, row);
        }
    }
    return table->count > 0;
}

/* ---- the machine in sentences ---- */

static void add_bytes(ht_text *text, int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t i = 0;
    for (; value >= 1024 && i + 1 < sizeof units / sizeof units[0]; i++) value /= 1024;
    ht_text_add(text, "%.4g %s", value, units[i]);
}

static void add_machine(ht_text *text, const ht_probe *probe)
{
    const ht_topology *t = &probe->topology;
    const ht_target *target = &probe->target;
    ht_text_add(text, "%s, %s. Packages: %d, cores: %d, hardware threads: %d, NUMA nodes: %d. Memory ",
                t->processor[0] ? t->processor : "processor", target->arch, t->packages, t->cores, t->hardware_threads,
                t->numa_nodes);
    add_bytes(text, target->memory_bytes[HT_SPACE_MAIN]);
    for (int i = 0; i < HT_TOPOLOGY_CACHES; i++) {
        if (t->cache_bytes[i] <= 0) continue;
        ht_text_add(text, ", %d x L%d ", t->caches[i], i + 1);
        add_bytes(text, t->cache_bytes[i]);
    }
    ht_text_add(text, ". Kernels for %s", ht_isa_name(target->isa));
    for (int i = 0; i < HT_FEATURE_COUNT; i++)
        if (ht_target_has(target, (ht_feature)i)) ht_text_add(text, " + %s", ht_feature_name((ht_feature)i));
    ht_text_add(text, ", %d thread%s.", target->threads, target->threads == 1 ? "" : "s");
    if (probe->has_gpu) {
        ht_text_add(text, " GPU: %s, ", probe->gpu.name);
        add_bytes(text, probe->gpu.memory_bytes[HT_SPACE_MAIN]);
        ht_text_add(text, ".");
    }
    ht_text_add(text, " Measured in %.1f s.", probe->seconds);
}

static void add_notes(ht_text *text, const ht_probe *probe)
{
    if (probe->disk_note[0]) ht_text_add(text, " Disk: %s.", probe->disk_note);
    if (probe->energy_note[0]) ht_text_add(text, " No energy: %s.", probe->energy_note);
    if (probe->gpu_note[0]) ht_text_add(text, " Not measured on the GPU: %s.", probe->gpu_note);
    if (probe->has_gpu && probe->gpu_energy_note[0])
        ht_text_add(text, " No energy of the GPU: %s.", probe->gpu_energy_note);
}

void cli_probe_table(ht_text *text, const ht_probe *probe)
{
    add_machine(text, probe);
    add_notes(text, probe);
    ht_text_add(text, "\n");
    for (size_t g = 0; g < GROUPS; g++) {
        ht_table table;
        if (make_table(&table, probe, g)) {
            ht_text_add(text, "\n%s\n", groups[g].title);
            ht_table_print(text, &table, cli_columns());
        }
        if (table.failed) text->failed = true;
        ht_table_free(&table);
    }
}

/* ---- for programs ---- */

static void put_topology(ht_json_writer *json, const ht_topology *t)
{
    ht_json_begin_object(json, "topology");
    ht_json_put_text(json, "processor", t->processor);
    ht_json_put_int(json, "packages", t->packages);
    ht_json_put_int(json, "cores", t->cores);
    ht_json_put_int(json, "hardware_threads", t->hardware_threads);
    ht_json_put_int(json, "numa_nodes", t->numa_nodes);
    ht_json_begin_array(json, "caches");
    for (int i = 0; i < HT_TOPOLOGY_CACHES; i++) {
        if (t->cache_bytes[i] <= 0) continue;
        ht_json_begin_object(json, NULL);
        ht_json_put_int(json, "level", i + 1);
        ht_json_put_int(json, "bytes", t->cache_bytes[i]);
        ht_json_put_int(json, "count", t->caches[i]);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
    ht_json_end_object(json);
}

static void put_row(ht_json_writer *json, const ht_probe_row *row)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "group", row->group);
    ht_json_put_text(json, "name", row->name);
    ht_json_put_text(json, "what", row->what);
    if (row->size) ht_json_put_text(json, "size", row->size);
    ht_json_put_text(json, "device", ht_device_kind_names[row->device]);
    ht_json_put_number(json, "value", row->value);
    ht_json_put_text(json, "unit", row->unit);
    if (row->threads) ht_json_put_int(json, "threads", row->threads);
    if (row->seconds > 0) {
        ht_json_put_number(json, "share", row->share);
        ht_json_put_number(json, "flops", row->flops);
        ht_json_put_number(json, "bytes", row->bytes);
        ht_json_put_number(json, "seconds", row->seconds);
    }
    ht_json_end_object(json);
}

static void put_target(ht_json_writer *json, const char *key, const ht_target *target)
{
    ht_text text = {0};
    ht_target_print(&text, target);
    while (text.length > 0 && text.data[text.length - 1] == '\n') text.data[--text.length] = '\0';
    if (text.failed || !text.data)
        json->text->failed = true;
    else
        ht_json_put_json(json, key, text.data);
    ht_text_free(&text);
}

void cli_probe_json(ht_text *text, const ht_probe *probe)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_number(&json, "seconds", probe->seconds);
    put_topology(&json, &probe->topology);
    ht_json_put_text(&json, "disk_note", probe->disk_note[0] ? probe->disk_note : NULL);
    ht_json_put_text(&json, "energy_note", probe->energy_note[0] ? probe->energy_note : NULL);
    ht_json_put_text(&json, "gpu_note", probe->gpu_note[0] ? probe->gpu_note : NULL);
    ht_json_put_text(&json, "gpu_energy_note", probe->gpu_energy_note[0] ? probe->gpu_energy_note : NULL);
    put_target(&json, "target", probe->has_gpu ? &probe->gpu : &probe->target);
    if (probe->has_gpu) put_target(&json, "cpu_target", &probe->target);
    ht_json_begin_array(&json, "rows");
    for (size_t i = 0; i < probe->count; i++) put_row(&json, &probe->rows[i]);
    ht_json_line(&json, 0);
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

/* ---- pictures ---- */

enum { MOST_ROOFS = 8, MOST_POINTS = HT_MOST_FAMILIES * HT_FAMILY_SIZES };

typedef struct roofline_parts {
    ht_roof roofs[MOST_ROOFS];
    ht_roofline_point points[MOST_POINTS];
    ht_roofline_chart roofline;
} roofline_parts;

static void add_roof(roofline_parts *parts, const char *name, double flops, double bandwidth, bool dashed)
{
    if (flops > 0 && bandwidth > 0)
        parts->roofs[parts->roofline.roof_count++] = (ht_roof){name, flops, bandwidth, dashed};
}

/* Of one device. f32 from memory and from each cache; other types from memory. */
static void make_roofline(roofline_parts *parts, const ht_probe *probe, ht_device_kind device)
{
    static const char *const cache_roofs[HT_CACHE_COUNT] = {"f32 from L1", "f32 from L2", "f32 from L3"};
    bool gpu = device == HT_DEVICE_CUDA;
    const ht_target *t = gpu ? &probe->gpu : &probe->target;
    double memory = t->bandwidth[HT_SPACE_MAIN];
    *parts = (roofline_parts){.roofline.title = gpu ? "Roofline of the GPU" : "Roofline"};
    add_roof(parts, "f32 from memory", t->flops[HT_F32], memory, false);
    add_roof(parts, "tf32 from memory", t->flops[HT_FORMAT_TF32], memory, false);
    if (t->flops[HT_BF16] > 1.1 * t->flops[HT_F32])
        add_roof(parts, "bf16 from memory", t->flops[HT_BF16], memory, false);
    add_roof(parts, "f64 from memory", t->flops[HT_F64], memory, false);
    for (int i = 0; i < HT_CACHE_COUNT; i++)
        add_roof(parts, cache_roofs[i], t->flops[HT_F32], t->cache_bandwidth[i], true);
    for (size_t i = 0; i < probe->count; i++) {
        const ht_probe_row *row = &probe->rows[i];
        if (row->device != device || !(row->seconds > 0) || !(row->flops > 0) ||
            parts->roofline.point_count == MOST_POINTS)
            continue;
        parts->points[parts->roofline.point_count++] =
            (ht_roofline_point){row->name, row->size, row->flops / row->bytes, row->flops / row->seconds};
    }
    parts->roofline.roofs = parts->roofs;
    parts->roofline.points = parts->points;
}

void cli_probe_svg(ht_text *text, const ht_probe *probe)
{
    roofline_parts parts;
    make_roofline(&parts, probe, probe->has_gpu ? HT_DEVICE_CUDA : HT_DEVICE_CPU);
    ht_roofline_chart_svg(text, &parts.roofline);
}

static void add_tables(ht_report *report, const ht_probe *probe)
{
    for (size_t g = 0; g < GROUPS; g++) {
        ht_table table;
        if (make_table(&table, probe, g)) ht_table_report(report, &table, groups[g].title);
        ht_table_free(&table);
    }
}

ht_status cli_probe_page(ht_context *ctx, const ht_probe *probe, const char *path)
{
    ht_report *report;
    roofline_parts parts;
    ht_text machine = {0};
    HT_TRY(ht_report_create(&report, ctx, "What this machine can do"));
    add_machine(&machine, probe);
    add_notes(&machine, probe);
    ht_report_paragraph(report, machine.data ? machine.data : "");
    if (probe->has_gpu) {
        make_roofline(&parts, probe, HT_DEVICE_CUDA);
        ht_report_roofline(report, &parts.roofline);
    }
    make_roofline(&parts, probe, HT_DEVICE_CPU);
    ht_report_roofline(report, &parts.roofline);
    ht_report_paragraph(report,
                        "Points are calls of our kernels, at three sizes each. A point above the roof of memory "
                        "works on data that the caches hold.");
    add_tables(report, probe);
    ht_status status = ht_report_write(report, path);
    ht_report_free(report);
    ht_text_free(&machine);
    return status;
}
