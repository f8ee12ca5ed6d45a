#include "graph/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- names of items ---- */

const char *const ht_figure_source_names[HT_SOURCE_COUNT] = {"given", "measured", "data sheet", "derived"};
const char *const ht_cache_names[HT_CACHE_COUNT] = {"L1", "L2", "L3"};

/* The number types first. */
static const char *const format_names[] = {
#define HT_DTYPE(id, name, bytes, is_float) name,
#include <halftone/dtypes.def>
    "tf32",
};
static const char *const space_names[HT_SPACE_COUNT] = {"main", "host", "disk"};
static const char *const link_names[HT_SPACE_COUNT * HT_SPACE_COUNT] = {
    NULL, "main-host", "main-disk", "host-main", NULL, "host-disk", "disk-main", "disk-host", NULL};
static const char *const network_names[HT_NETWORK_COUNT] = {"node", "cluster"};
static const char *const power_names[HT_POWER_COUNT] = {"board"};
static const char *const family_names[HT_MOST_FAMILIES * HT_FAMILY_SIZES] = {
#define HT_FAMILY(name, ...) #name ".small", #name ".medium", #name ".large",
#include "graph/families.def"
};
static const char format_kind[] = "number type", space_kind[] = "memory", link_kind[] = "link",
                  ht_cache_kind[] = "cache", network_kind[] = "network", family_kind[] = "family and size",
                  power_kind[] = "power";

const char *ht_format_name(int format)
{
    return format_names[format];
}

/* ---- groups ---- */

const ht_figure_group ht_figure_groups[] = {
#define HT_FIGURES(group, dims, item, unit, what)                                                                      \
    {#group,                                                                                                           \
     unit,                                                                                                             \
     what,                                                                                                             \
     item##_kind,                                                                                                      \
     item##_names,                                                                                                     \
     sizeof((ht_target *)0)->group / sizeof(double),                                                                   \
     offsetof(ht_target, group),                                                                                       \
     offsetof(ht_target, source.group)},
#include "graph/figures.def"
};
const size_t ht_figure_group_count = sizeof ht_figure_groups / sizeof ht_figure_groups[0];

const ht_figure_group *ht_figure_group_find(const char *key, size_t length)
{
    for (size_t i = 0; i < ht_figure_group_count; i++)
        if (strlen(ht_figure_groups[i].key) == length && memcmp(ht_figure_groups[i].key, key, length) == 0)
            return &ht_figure_groups[i];
    return NULL;
}

static double *values_of(const ht_target *target, const ht_figure_group *group)
{
    return (double *)((char *)target + group->offset);
}

static uint8_t *sources_of(const ht_target *target, const ht_figure_group *group)
{
    return (uint8_t *)target + group->source_offset;
}

bool ht_target_figure(const ht_target *target, size_t index, ht_figure *out)
{
    for (size_t g = 0; g < ht_figure_group_count; g++) {
        const ht_figure_group *group = &ht_figure_groups[g];
        if (index >= group->count) {
            index -= group->count;
            continue;
        }
        *out = (ht_figure){group->key, group->names[index], group->unit, values_of(target, group)[index],
                           (ht_figure_source)sources_of(target, group)[index]};
        return true;
    }
    return false;
}

void ht_target_mark(ht_target *target, ht_figure_source source)
{
    for (size_t g = 0; g < ht_figure_group_count; g++)
        for (size_t i = 0; i < ht_figure_groups[g].count; i++) {
            uint8_t *mark = &sources_of(target, &ht_figure_groups[g])[i];
            if (values_of(target, &ht_figure_groups[g])[i] > 0 && *mark == HT_SOURCE_GIVEN) *mark = (uint8_t)source;
        }
}

/* ---- reading ---- */

ht_hint ht_hint_for(const char *word, size_t count, const char *(*name_of)(size_t i))
{
    ht_hint h = {""};
    int best = 4;
    for (size_t i = 0; i < count; i++) {
        int distance = ht_edit_distance(word, name_of(i));
        if (distance >= best) continue;
        best = distance;
        snprintf(h.text, sizeof h.text, "; did you mean \"%s\"?", name_of(i));
    }
    return h;
}

/* -1: there is none of that name. */
static int item_find(const ht_figure_group *group, const char *name, size_t length)
{
    for (size_t i = 0; i < group->count; i++)
        if (group->names[i] && strlen(group->names[i]) == length && memcmp(group->names[i], name, length) == 0)
            return (int)i;
    return -1;
}

static ht_status no_such_item(ht_context *ctx, const char *file, const ht_figure_group *group, const ht_json *member)
{
    const char *nearest = NULL;
    int best = 4;
    if (group->kind == link_kind)
        return ht_json_fail(ctx, file, member, "\"%s\" is no link: two memories, as in \"main-host\" or \"host-disk\"",
                            member->key);
    for (size_t i = 0; i < group->count && group->names[i]; i++) {
        int distance = ht_edit_distance(member->key, group->names[i]);
        if (distance < best) best = distance, nearest = group->names[i];
    }
    return ht_json_fail(ctx, file, member, "there is no %s \"%s\"%s%s%s", group->kind, member->key,
                        nearest ? "; did you mean \"" : "", nearest ? nearest : "", nearest ? "\"?" : "");
}

ht_status ht_figures_read(ht_context *ctx, const char *file, ht_target *target, const ht_figure_group *group,
                          const ht_json *value)
{
    if (value->kind != HT_JSON_OBJECT)
        return ht_json_fail(ctx, file, value, "%s is %s, not %s", value->key, ht_json_kind_name(value->kind),
                            ht_json_kind_name(HT_JSON_OBJECT));
    for (const ht_json *member = value->child; member; member = member->next) {
        int item = item_find(group, member->key, member->key_length);
        if (item < 0) return no_such_item(ctx, file, group, member);
        double *to = &values_of(target, group)[item];
        if (!ht_json_as_number(member, to) || !(*to > 0) || !isfinite(*to))
            return ht_json_fail(ctx, file, member, "\"%s\" must be %s, more than 0", member->key, group->unit);
    }
    return HT_OK;
}

/* `item` -1: all of the group. Sources are of figures that are there. */
static ht_status mark(ht_context *ctx, const char *file, ht_target *target, const ht_json *member,
                      const ht_figure_group *group, int item, ht_figure_source source)
{
    bool any = false;
    for (size_t i = 0; i < group->count; i++) {
        if ((item >= 0 && (size_t)item != i) || !(values_of(target, group)[i] > 0)) continue;
        sources_of(target, group)[i] = (uint8_t)source;
        any = true;
    }
    return any ? HT_OK : ht_json_fail(ctx, file, member, "source: the file gives no \"%s\"", member->key);
}

/* Groups in the first round, single figures in the second. */
static ht_status read_source(ht_context *ctx, const char *file, ht_target *target, const ht_json *member, bool single)
{
    const char *dot = memchr(member->key, '.', member->key_length);
    size_t length = dot ? (size_t)(dot - member->key) : member->key_length;
    if ((dot != NULL) != single) return HT_OK;
    const ht_figure_group *group = ht_figure_group_find(member->key, length);
    int item = group && dot ? item_find(group, dot + 1, member->key_length - length - 1) : -1;
    if (!group || (dot && item < 0))
        return ht_json_fail(ctx, file, member, "source: there is no figure \"%s\"", member->key);
    int source = HT_SOURCE_MEASURED;
    while (source < HT_SOURCE_COUNT &&
           (member->kind != HT_JSON_STRING || strcmp(ht_figure_source_names[source], member->text) != 0))
        source++;
    if (source == HT_SOURCE_COUNT)
        return ht_json_fail(ctx, file, member, "source: \"%s\" is none of \"measured\", \"data sheet\", \"derived\"",
                            member->key);
    return mark(ctx, file, target, member, group, item, (ht_figure_source)source);
}

ht_status ht_figures_read_sources(ht_context *ctx, const char *file, ht_target *target, const ht_json *sources)
{
    for (int single = 0; sources && single < 2; single++)
        for (const ht_json *member = sources->child; member; member = member->next)
            HT_TRY(read_source(ctx, file, target, member, single));
    return HT_OK;
}

/* ---- printing ---- */

static void print_group(ht_json_writer *json, const ht_target *target, const ht_figure_group *group)
{
    const double *values = values_of(target, group);
    bool any = false;
    for (size_t i = 0; i < group->count; i++) {
        if (!(values[i] > 0) || !group->names[i]) continue;
        if (!any) {
            ht_json_line(json, 2);
            ht_json_begin_object(json, group->key);
        }
        any = true;
        ht_json_put_number(json, group->names[i], values[i]);
    }
    if (any) ht_json_end_object(json);
}

/* The source that all known figures of the group share; HT_SOURCE_COUNT: they differ; GIVEN: none is known or told. */
static ht_figure_source common_source(const ht_target *target, const ht_figure_group *group)
{
    int common = -1;
    for (size_t i = 0; i < group->count; i++) {
        if (!(values_of(target, group)[i] > 0)) continue;
        int source = sources_of(target, group)[i];
        common = common < 0 || common == source ? source : HT_SOURCE_COUNT;
    }
    return common < 0 ? HT_SOURCE_GIVEN : (ht_figure_source)common;
}

static void print_source(ht_json_writer *json, bool *any, const char *key, ht_figure_source source)
{
    if (source == HT_SOURCE_GIVEN) return;
    if (!*any) {
        ht_json_line(json, 2);
        ht_json_begin_object(json, "source");
    }
    *any = true;
    ht_json_put_text(json, key, ht_figure_source_names[source]);
}

static void print_sources(ht_json_writer *json, const ht_target *target)
{
    bool any = false;
    for (size_t g = 0; g < ht_figure_group_count; g++) {
        const ht_figure_group *group = &ht_figure_groups[g];
        ht_figure_source common = common_source(target, group);
        if (common != HT_SOURCE_COUNT) print_source(json, &any, group->key, common);
        for (size_t i = 0; i < group->count && common == HT_SOURCE_COUNT; i++) {
            char key[96];
            if (!(values_of(target, group)[i] > 0) || !group->names[i]) continue;
            snprintf(key, sizeof key, "%s.%s", group->key, group->names[i]);
            print_source(json, &any, key, (ht_figure_source)sources_of(target, group)[i]);
        }
    }
    if (any) ht_json_end_object(json);
}

void ht_figures_print(ht_json_writer *json, const ht_target *target)
{
    for (size_t g = 0; g < ht_figure_group_count; g++) print_group(json, target, &ht_figure_groups[g]);
    print_sources(json, target);
}
