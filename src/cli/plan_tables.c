/* The tables of a plan. */
#include "cli/explain_view.h"
#include "cli/plan_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void add_heads(ht_table *table, const char *const *heads, size_t left)
{
    for (size_t i = 0; heads[i]; i++) {
        ht_table_head(table, heads[i]);
        table->right[i] = i >= left;
    }
}

void cli_plan_byte_table(ht_table *table, const cli_plan_view *view)
{
    const ht_byte_table *bytes = &view->row.bytes;
    int64_t sums[HT_SPACE_COUNT] = {0};
    ht_table_head(table, "bytes");
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        if (ht_byte_table_has(bytes, (ht_space)space)) {
            table->right[table->columns] = true;
            ht_table_head(table, ht_space_name((ht_space)space));
        }
    for (int h = 0; h <= HT_BYTES_COUNT; h++) {
        ht_table_cell(table, "%s", h < HT_BYTES_COUNT ? ht_byte_heading_names[h] : "all");
        for (int space = 0; space < HT_SPACE_COUNT; space++) {
            if (!ht_byte_table_has(bytes, (ht_space)space)) continue;
            if (h == HT_BYTES_WORKSPACE && bytes->workspace_unknown)
                ht_table_cell(table, "unknown");
            else
                ht_table_cell(table, "%" PRId64, h < HT_BYTES_COUNT ? bytes->bytes[space][h] : sums[space]);
            if (h < HT_BYTES_COUNT) sums[space] += bytes->bytes[space][h];
        }
    }
}

/* ---- ops ---- */

typedef struct op_sum {
    char *ops;
    double runs, flops, bytes, seconds;
    double bound_seconds[HT_BOUND_COUNT];
    bool measured;
} op_sum;

static int by_seconds(const void *a, const void *b)
{
    const op_sum *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return strcmp(x->ops, y->ops);
}

static bool add_op(op_sum *list, size_t *count, const ht_target *target, const ht_instr *instr,
                   const ht_instr_prediction *predicted, double times)
{
    ht_text ops = {0};
    size_t at = 0;
    ht_roofline limit = ht_instr_roofline(target, instr);
    ht_instr_add_ops(&ops, instr);
    if (ops.failed) return false;
    while (at < *count && strcmp(list[at].ops, ops.data) != 0) at++;
    if (at == *count)
        list[(*count)++] = (op_sum){.ops = ops.data, .measured = true};
    else
        ht_text_free(&ops);
    list[at].runs += times;
    list[at].flops += times * ht_cost_flops(instr->cost);
    list[at].bytes += times * instr->cost.bytes;
    list[at].seconds += times * predicted->seconds;
    list[at].bound_seconds[limit.bound] += times * predicted->seconds;
    list[at].measured = list[at].measured && predicted->measured;
    return true;
}

/* Instructions of a step with the longest batches, those with the same ops together. */
static op_sum *sum_ops(const cli_plan_view *view, size_t *count)
{
    const ht_plan *plan = view->planned.plan;
    int found = ht_plan_program_find(plan, "train");
    size_t most = 0;
    for (size_t s = 0; s < plan->segment_count; s++) most += plan->segments[s].instr_count;
    op_sum *list = calloc(most + 1, sizeof *list);
    *count = 0;
    for (size_t c = 0; list && found >= 0 && c < plan->programs[found].call_count; c++) {
        const ht_program_call *call = &plan->programs[found].calls[c];
        const ht_plan_segment *s = &plan->segments[call->segment];
        for (size_t i = 0; i < s->instr_count; i++)
            if (!add_op(list, count, &plan->target, &s->instrs[i], &view->prediction.segments[call->segment].instrs[i],
                        (double)call->times))
                break;
    }
    if (list && *count) qsort(list, *count, sizeof *list, by_seconds);
    return list;
}

void cli_plan_op_table(ht_table *table, const cli_plan_view *view, size_t most)
{
    static const char *const heads[] = {"ops", "times", "GFLOP", "MB", "FLOPs/byte", "ms", "% of step", NULL};
    size_t count;
    op_sum *list = sum_ops(view, &count);
    bool assumed = view->row.ceilings == HT_CEILINGS_ASSUMED;
    double all = 0;
    add_heads(table, heads, 1);
    table->left[table->columns] = true;
    ht_table_head(table, "bound by");
    for (size_t i = 0; list && i < count; i++) all += list[i].seconds;
    for (size_t i = 0; list && i < count; i++) {
        const op_sum *o = &list[i];
        if (i < most) {
            ht_table_cell(table, "%s", o->ops);
            ht_table_cell(table, "%.0f", o->runs);
            ht_table_cell(table, "%.4f", o->flops / 1e9);
            ht_table_cell(table, "%.3f", o->bytes / 1e6);
            ht_table_number(table, "%.2f", o->bytes > 0 ? o->flops / o->bytes : NAN);
            ht_table_cell(table, "%.3f%s", 1e3 * o->seconds, o->measured ? "" : assumed ? " (assumed)" : " (bound)");
            ht_table_cell(table, "%.1f", all > 0 ? 100 * o->seconds / all : 0);
            ht_table_cell(table, "%s", ht_bound_names[ht_bound_of_most(o->bound_seconds)]);
        }
        free(o->ops);
    }
    table->failed |= !list;
    free(list);
}

/* ---- rows of plans ---- */

static double share_of(double value, double own)
{
    return own > 0 ? value / own : NAN;
}

const char *cli_plan_fits(const cli_plan_row *r)
{
    return r->fits_unknown ? "unknown" : r->fits ? "yes" : "no";
}

bool cli_plan_is_bound(const cli_plan_row *r)
{
    enum { MOST_PERCENT = 2 }; /* of the time that may be of kernels which were not measured */
    if (r->ceilings == HT_CEILINGS_ASSUMED) return false;
    return r->exchange_unknown || r->measured_share < 1 - MOST_PERCENT / 100.0;
}

const char *cli_plan_mark(const cli_plan_row *r, const char *bound)
{
    return r->ceilings == HT_CEILINGS_ASSUMED ? "~ " : cli_plan_is_bound(r) ? bound : "";
}

static void add_plan_cells(ht_table *table, const cli_plan_row *r, const cli_plan_row *own)
{
    double rate = r->tokens > 0 ? r->tokens : r->samples;
    ht_table_cell(table, "%.1f", (double)r->main_bytes / 1e6);
    ht_table_number(table, "%.2f", share_of((double)r->main_bytes, (double)own->main_bytes));
    ht_table_cell(table, "%s%.3f", cli_plan_mark(r, ">= "), 1e3 * r->seconds);
    ht_table_number(table, "%.2f", share_of(r->seconds, own->seconds));
    ht_table_cell(table, "%s%.0f", cli_plan_mark(r, "<= "), r->seconds > 0 ? rate / r->seconds : 0);
    ht_table_cell(table, "%.1f", 100 * r->mfu);
    ht_table_cell(table, "%.3g", r->flops.recomputed / 1e9);
    ht_table_cell(table, "%s", cli_plan_fits(r));
}

static void add_refused(ht_table *table, const char *why)
{
    for (int i = 0; i < 7; i++) ht_table_cell(table, "-");
    ht_table_cell(table, "%s", why);
}

void cli_plan_what_if_table(ht_table *table, const cli_plan_view *view, const cli_plan_rows *rows)
{
    const char *heads[] = {
        "change", "to",          "MB in main", "x", "ms", "x", view->row.tokens > 0 ? "tokens/s" : "samples/s",
        "MFU %",  "GFLOP again", "fits",       NULL};
    add_heads(table, heads, 2);
    table->right[9] = false;
    table->left[9] = table->left[1] = true;
    table->rank[8] = 2;
    table->rank[7] = 1;
    ht_table_cell(table, "the job");
    ht_table_cell(table, "as it is");
    add_plan_cells(table, &view->row, &view->row);
    for (size_t i = 0; i < rows->count; i++) {
        const cli_plan_row *r = &rows->list[i];
        ht_table_cell(table, "%s", r->kind);
        ht_table_cell(table, "%s", r->name);
        if (r->refused[0])
            add_refused(table, "refused");
        else
            add_plan_cells(table, r, &view->row);
    }
}

/* Of the whole run: as many samples as the job has. */
static double seconds_to_end(const cli_plan_view *view, const cli_plan_row *r)
{
    double samples = (double)view->planned.steps * view->row.samples;
    return r->samples > 0 ? samples / r->samples * r->seconds : NAN;
}

void cli_plan_target_table(ht_table *table, const cli_plan_view *view)
{
    const char *heads[] = {"target",
                           "devices",
                           "batch",
                           "MB each",
                           "fits",
                           "ms of a step",
                           view->row.tokens > 0 ? "tokens/s" : "samples/s",
                           "MFU %",
                           "hours to the end",
                           "kWh to the end",
                           "kernels",
                           NULL};
    add_heads(table, heads, 1);
    table->left[10] = true;
    table->right[10] = false;
    for (size_t i = 0; i < view->targets.count; i++) {
        const cli_plan_row *r = &view->targets.list[i];
        double end = seconds_to_end(view, r), rate = r->tokens > 0 ? r->tokens : r->samples;
        ht_table_cell(table, "%s", r->name);
        ht_table_cell(table, "%" PRId64, r->ranks);
        if (r->refused[0]) {
            for (int k = 0; k < 8; k++) ht_table_cell(table, "-");
            ht_table_cell(table, "refused");
            continue;
        }
        ht_table_cell(table, "%.0f", r->samples);
        ht_table_cell(table, "%.1f", (double)r->main_bytes / 1e6);
        ht_table_cell(table, "%s", cli_plan_fits(r));
        ht_table_cell(table, "%s%.3f", cli_plan_mark(r, ">= "), 1e3 * r->seconds);
        ht_table_cell(table, "%s%.0f", cli_plan_mark(r, "<= "), r->seconds > 0 ? rate / r->seconds : 0);
        ht_table_cell(table, "%.1f", 100 * r->mfu);
        ht_table_cell(table, "%s%.3g", cli_plan_mark(r, ">= "), end / 3600);
        if (r->energy > 0)
            ht_table_cell(table, "%s%.3g", cli_plan_mark(r, ">= "), end / r->seconds * r->energy / 3.6e6);
        else
            ht_table_cell(table, "-");
        ht_table_cell(table, "%s", r->kernels ? "ours" : "none");
    }
}
