/* A plan as a page. */
#include "cli/plan_view.h"
#include "cli/timeline_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN_OPS = 40, SHOWN_ALIVE = 30 };

/* A paragraph for each line. */
static void add_lines(ht_report *report, ht_text *text)
{
    for (char *line = text->failed || !text->data ? NULL : strtok(text->data, "\n"); line; line = strtok(NULL, "\n"))
        ht_report_paragraph(report, line);
    ht_text_free(text);
}

static void add_table(ht_report *report, ht_table *table, const char *title, bool *failed)
{
    *failed |= table->failed;
    ht_table_report(report, table, title);
    ht_table_free(table);
}

/* ---- pictures ---- */

/* Memory against time, as far as budgets can be met. */
static void add_budgets(ht_report *report, const cli_plan_view *v)
{
    double x[CLI_MOST_PLAN_ROWS], y[CLI_MOST_PLAN_ROWS];
    size_t count = 0;
    for (size_t i = v->budgets.count; i-- > 0;) {
        const cli_plan_row *r = &v->budgets.list[i];
        if (r->refused[0]) continue;
        x[count] = (double)r->main_bytes / 1e6;
        y[count++] = 1e3 * r->seconds;
    }
    if (count > 1)
        ht_report_chart(report, &(ht_chart){.title = "Recomputation: time of a step against memory",
                                            .x_label = "MB in main",
                                            .y_label = "ms",
                                            .series = &(ht_series){.name = "budgets", .count = count, .x = x, .y = y},
                                            .series_count = 1});
}

/* Instructions at the rate that is predicted for them. */
static void add_roofline(ht_report *report, const cli_plan_view *v)
{
    const ht_plan *plan = v->planned.plan;
    const ht_target *target = &plan->target;
    int found = ht_plan_segment_find(plan, "micro_first");
    const ht_plan_segment *s = found < 0 ? NULL : &plan->segments[found];
    ht_roof roofs[2] = {{"f32", ht_target_flops(target, HT_F32), ht_target_bandwidth(target, HT_SPACE_MAIN), false},
                        {"bf16", ht_target_flops(target, HT_BF16), ht_target_bandwidth(target, HT_SPACE_MAIN), false}};
    ht_roofline_point *points = s ? calloc(s->instr_count + 1, sizeof *points) : NULL;
    ht_roofline_chart chart = {.title = "Instructions of a micro-batch under the roofline",
                               .roofs = roofs,
                               .roof_count = strcmp(plan->precision, "bf16") == 0 ? 2 : 1,
                               .points = points};
    for (ht_work work = 0; points && work < HT_WORK_COUNT; work++)
        for (size_t i = 0; i < s->instr_count; i++) {
            double flops = ht_cost_flops(s->instrs[i].cost), bytes = s->instrs[i].cost.bytes;
            double seconds = v->prediction.segments[found].instrs[i].seconds;
            if (ht_instr_work(&s->instrs[i]) != work || flops <= 0 || bytes <= 0 || seconds <= 0) continue;
            points[chart.point_count++] =
                (ht_roofline_point){ht_work_names[work], ht_instr_layer(s, i), flops / bytes, flops / seconds};
        }
    if (chart.point_count && !v->row.bandwidth_unknown) ht_report_roofline(report, &chart);
    free(points);
}

/* ---- the page ---- */

static void add_rows(ht_report *report, const cli_plan_view *v, const cli_plan_rows *rows, const char *title,
                     bool *failed)
{
    ht_table table = {.count = 0};
    ht_text refused = {0};
    if (!rows->count) return;
    cli_plan_what_if_table(&table, v, rows);
    add_table(report, &table, title, failed);
    cli_plan_refusals(&refused, rows);
    add_lines(report, &refused);
}

static void fill_page(ht_report *report, const cli_plan_view *v, bool *failed)
{
    ht_table bytes = {.count = 0}, ops = {.count = 0}, alive = {.count = 0}, targets = {.count = 0};
    ht_text summary = {0}, peak = {0}, most = {0};
    cli_plan_summary(&summary, v);
    cli_plan_fit(&summary, v);
    add_lines(report, &summary);
    if (v->targets.count) {
        cli_plan_target_table(&targets, v);
        add_table(report, &targets, "Targets side by side; every device has the batch of the job", failed);
    }
    cli_plan_byte_table(&bytes, v);
    add_table(report, &bytes, "Bytes by space and heading", failed);
    cli_timeline_bars(report, &v->timeline);
    cli_timeline_peak(&peak, &v->timeline);
    add_lines(report, &peak);
    cli_timeline_alive(&alive, &v->timeline, SHOWN_ALIVE);
    add_table(report, &alive, "The largest tensors that are alive at the peak", failed);
    cli_plan_op_table(&ops, v, SHOWN_OPS);
    add_table(report, &ops, "Ops of a step", failed);
    add_roofline(report, v);
    add_rows(report, v, &v->what_if, "What if", failed);
    cli_plan_most_text(&most, v);
    add_lines(report, &most);
    add_rows(report, v, &v->budgets, "Budgets of recomputation, in percent of the transients", failed);
    add_budgets(report, v);
}

ht_status cli_plan_page(const cli_plan_view *v, const char *path)
{
    ht_report *report;
    bool failed = false;
    HT_TRY(ht_report_create(&report, v->ctx, "A training step, planned"));
    fill_page(report, v, &failed);
    ht_status status = failed ? ht_fail(v->ctx, HT_ENOMEM, "out of memory for a page") : ht_report_write(report, path);
    ht_report_free(report);
    return status;
}
