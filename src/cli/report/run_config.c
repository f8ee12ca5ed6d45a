/* The resolved configs of runs: what differs, and every value. */
#include <stdlib.h>
#include <string.h>

#include "cli/report/run_sections.h"

static const ht_json *values_of(const cli_run *run)
{
    const ht_json *values = ht_json_get(run->config, "values");
    return values && values->kind == HT_JSON_OBJECT ? values->child : NULL;
}

static const ht_json *entry_of(const cli_run *run, const char *key)
{
    return ht_json_get(ht_json_get(run->config, "values"), key);
}

static void add_value(ht_text *text, const cli_run *run, const char *key)
{
    const ht_json *value = ht_json_get(entry_of(run, key), "value");
    if (value && value->kind == HT_JSON_STRING)
        ht_text_add(text, "%s", value->text);
    else if (value)
        ht_json_print(text, value);
    else
        ht_text_add(text, "-");
}

static bool is_default(const cli_run *run, const char *key)
{
    const ht_json *entry = entry_of(run, key), *origin = ht_json_get(entry, "origin");
    return !entry || (origin && origin->kind == HT_JSON_STRING && strcmp(origin->text, "default") == 0);
}

/* Of DeepSpeed's config, whose keys are hundreds, only what somebody chose. */
static bool is_shown(const cli_runs *runs, const char *key)
{
    if (strncmp(key, "engine.", 7) != 0) return true;
    for (size_t i = 0; i < runs->count; i++)
        if (!is_default(&runs->list[i], key)) return true;
    return false;
}

static bool differs(const cli_runs *runs, const char *key, bool *failed)
{
    bool differ = false;
    ht_text first = {0};
    add_value(&first, &runs->list[0], key);
    for (size_t i = 1; i < runs->count && !differ; i++) {
        ht_text other = {0};
        add_value(&other, &runs->list[i], key);
        *failed |= first.failed || other.failed;
        differ = !first.failed && !other.failed && strcmp(first.data, other.data) != 0;
        ht_text_free(&other);
    }
    ht_text_free(&first);
    return differ;
}

static void add_row(ht_table *table, const cli_runs *runs, const char *key, bool *failed)
{
    ht_table_cell(table, "%s", key);
    for (size_t i = 0; i + 1 < table->columns; i++) {
        ht_text value = {0};
        add_value(&value, &runs->list[i], key);
        *failed |= value.failed;
        ht_table_cell(table, "%s", value.failed ? "-" : value.data);
        ht_text_free(&value);
    }
}

static bool is_of_earlier(const cli_runs *runs, size_t run, const char *key)
{
    for (size_t i = 0; i < run; i++)
        if (entry_of(&runs->list[i], key)) return true;
    return false;
}

/* Keys in the order of the first run that has them. */
static size_t fill_table(ht_table *table, const cli_runs *runs, bool only_differences, bool *failed)
{
    size_t rows = 0;
    ht_table_head(table, "key");
    for (size_t i = 0; i < runs->count; i++) ht_table_head(table, runs->count > 1 ? runs->list[i].name : "value");
    for (size_t i = 0; i < runs->count; i++)
        for (const ht_json *v = values_of(&runs->list[i]); v; v = v->next) {
            if (is_of_earlier(runs, i, v->key) || !is_shown(runs, v->key)) continue;
            if (only_differences && !differs(runs, v->key, failed)) continue;
            add_row(table, runs, v->key, failed);
            rows++;
        }
    return rows;
}

void cli_runs_add_configs(ht_report *report, const cli_runs *runs, bool *failed)
{
    ht_table differences = {.count = 0}, all = {.count = 0};
    bool any = false;
    for (size_t i = 0; i < runs->count; i++) any = any || runs->list[i].config;
    if (!any) return;
    if (runs->count > 1 && fill_table(&differences, runs, true, failed))
        cli_runs_put_table(report, &differences, "What differs in their configs", failed);
    else if (runs->count > 1)
        ht_report_paragraph(report, "Their configs do not differ.");
    ht_table_free(&differences);
    fill_table(&all, runs, false, failed);
    ht_report_details_open(report, "The resolved config");
    cli_runs_put_table(report, &all, NULL, failed);
    ht_report_paragraph(report,
                        "Keys of DeepSpeed's config that nobody set are left out: config.resolved.json has them.");
    ht_report_details_close(report);
}
