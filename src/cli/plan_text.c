/* A plan on the terminal. */
#include "cli/cli.h"
#include "cli/plan_view.h"
#include "cli/timeline_view.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SHOWN_OPS = 20 };

/* ---- sentences ---- */

static void add_job(ht_text *text, const cli_plan_view *v)
{
    const ht_plan *plan = v->planned.plan;
    const cli_plan_row *r = &v->row;
    ht_text_add(text, "%s, %" PRId64 " parameters", ht_config_type(v->config, "model"), r->parameters);
    if (v->planned.frozen) ht_text_add(text, " and %" PRId64 " frozen", v->planned.frozen);
    ht_text_add(text, ", %s, batches of %.0f", plan->precision, r->samples);
    if (r->tokens > 0) ht_text_add(text, " (%.0f tokens)", r->tokens);
    const char *machine = v->target      ? v->target_name
                          : v->elsewhere ? "a GPU that is not here, by the data sheet of the H200"
                                         : "this machine";
    ht_text_add(text, ", %" PRId64 " steps, %" PRId64 " rank%s. Planned for %s (%s, %s, %d thread%s).\n",
                v->planned.steps, r->ranks, r->ranks == 1 ? "" : "s", machine, plan->device,
                ht_isa_name(plan->target.isa), plan->target.threads, plan->target.threads == 1 ? "" : "s");
}

static void add_flops(ht_text *text, const ht_step_flops *f)
{
    double model = f->forward + f->backward + f->update;
    ht_text_add(text,
                "FLOPs of a step: products forward %.0f, backward %.0f, update %.0f (model: %.0f); computed again %.0f "
                "(hardware: %.0f); everything else %.0f.\n",
                f->forward, f->backward, f->update, model, f->recomputed, model + f->recomputed, f->other);
    if (f->masked > 0)
        ht_text_add(text, "Causal attention is counted as it is computed; counted whole, products are %.0f.\n",
                    model + f->masked);
}

/* "1.5 hours", "12 s". */
static void add_time(ht_text *text, double seconds)
{
    if (seconds >= 7200)
        ht_text_add(text, "%.1f hours", seconds / 3600);
    else if (seconds >= 120)
        ht_text_add(text, "%.1f minutes", seconds / 60);
    else
        ht_text_add(text, "%.1f s", seconds);
}

/* Behind a time that is no prediction by measured kernels. */
static const char *by_ceilings(const cli_plan_row *r)
{
    if (r->ceilings == HT_CEILINGS_ASSUMED) return " by assumed ceilings (docs/target.md)";
    return r->ceilings == HT_CEILINGS_DATA_SHEET && cli_plan_is_bound(r) ? " by the data sheet of the H200" : "";
}

static void add_roofline(ht_text *text, const cli_plan_row *r)
{
    if (r->measured_share > 0) {
        if (r->measured_share < 1 - 1e-3)
            ht_text_add(text, "%.1f %% of it by measured kernels, the rest is the bound of the roofline.\n",
                        100 * r->measured_share);
        return;
    }
    if (r->ceilings == HT_CEILINGS_ASSUMED)
        ht_text_add(text, "This is the roofline of no machine in particular: a step may be faster or slower.");
    else
        ht_text_add(text, "This is the bound of the roofline: the target has no measured kernels. Only what its caches "
                          "hold can be faster.");
    ht_text_add(text, " On the machine itself, halftone probe -o machine.json measures ceilings and kernels; then "
                      "--target machine.json.\n");
}

static void add_step(ht_text *text, const cli_plan_view *v)
{
    const cli_plan_row *r = &v->row;
    bool bound = cli_plan_is_bound(r), assumed = r->ceilings == HT_CEILINGS_ASSUMED;
    ht_text_add(text, "A step takes %s%.3f ms%s: %.1f samples/s",
                bound     ? "at least "
                : assumed ? "about "
                          : "",
                1e3 * r->seconds, by_ceilings(r), r->samples / r->seconds);
    if (r->tokens > 0) ht_text_add(text, ", %.0f tokens/s", r->tokens / r->seconds);
    ht_text_add(text, "; MFU %.1f %%; the whole run ", 100 * r->mfu);
    add_time(text, (double)v->planned.steps * r->seconds);
    if (r->energy > 0)
        ht_text_add(text, " and %s%.3g kWh", bound ? "at least " : "", (double)v->planned.steps * r->energy / 3.6e6);
    ht_text_add(text, ".\n");
    if (v->planned.bucket_count > 1)
        ht_text_add(text,
                    "Times are means over the lengths of its batches; bytes and FLOPs are those of the longest.\n");
    if (r->energy <= 0) ht_text_add(text, "Energy is not known: the target gives neither watts nor joules.\n");
    add_roofline(text, r);
    if (r->bandwidth_unknown) ht_text_add(text, "Moving bytes is not in it: the target has no figure \"bandwidth\".\n");
    if (r->exchange_unknown) ht_text_add(text, "Exchanges are not in it: the target has no figure \"network\".\n");
    if (!r->kernels)
        ht_text_add(text,
                    "There are no kernels for this target: state and activations are exact, workspace is unknown.\n");
}

void cli_plan_summary(ht_text *text, const cli_plan_view *v)
{
    add_job(text, v);
    add_step(text, v);
    add_flops(text, &v->row.flops);
}

/* Whether it fits, and what would. */
void cli_plan_fit(ht_text *text, const cli_plan_view *v)
{
    const cli_plan_row *r = &v->row;
    size_t named = 0;
    ht_text_add(text, "The plan takes %" PRId64 " bytes, %" PRId64 " of them where the model computes", r->plan_bytes,
                r->main_bytes);
    if (!v->limit) {
        ht_text_add(text, ". How much memory there is, the target does not tell.\n");
        return;
    }
    ht_text_add(text, ": %s %s (%" PRId64 " bytes).\n", r->fits ? "it fits" : "it does not fit", v->limit_name,
                v->limit);
    for (int list = 0; list < 2 && !r->fits; list++) {
        const cli_plan_rows *rows = list ? &v->budgets : &v->what_if;
        for (size_t i = 0; i < rows->count; i++) {
            const cli_plan_row *w = &rows->list[i];
            if (w->refused[0] || !w->fits) continue;
            ht_text_add(text, "%s%s %s (%" PRId64 " bytes, %.2f times the time)",
                        named++ ? "; " : "This fits: ", w->kind, w->name, w->main_bytes, w->seconds / r->seconds);
        }
    }
    if (named) ht_text_add(text, ".\n");
    if (!named && !r->fits) ht_text_add(text, "None of the changes below makes it fit.\n");
}

static void add_most(ht_text *text, const char *what, const cli_most *m)
{
    if (!m->key) return;
    if (m->value == 0) {
        ht_text_add(text, "%s (%s): not even the least fits.\n", what, m->key);
        return;
    }
    ht_text_add(text, "%s (%s): %" PRId64 ", %" PRId64 " bytes in main", what, m->key, m->value, m->bytes);
    if (m->next_bytes)
        ht_text_add(text, "; the next takes %" PRId64 ".\n", m->next_bytes);
    else
        ht_text_add(text, m->next_refused ? "; the next cannot be planned.\n" : "; more was not tried.\n");
}

void cli_plan_most_text(ht_text *text, const cli_plan_view *v)
{
    add_most(text, "The largest batch that fits", &v->batch);
    add_most(text, "The most layers that fit", &v->layers);
}

/* ---- memory against time ---- */

static void add_curve(ht_text *text, const cli_plan_view *v)
{
    enum { WIDTH = 40 };
    double most = 0;
    for (size_t i = 0; i < v->budgets.count; i++)
        if (!v->budgets.list[i].refused[0] && v->budgets.list[i].seconds > most) most = v->budgets.list[i].seconds;
    ht_text_add(text, "\nTime of a step against memory\n");
    for (size_t i = 0; i < v->budgets.count && most > 0; i++) {
        const cli_plan_row *r = &v->budgets.list[i];
        if (r->refused[0]) continue;
        ht_text_add(text, "  %10.2f MB  ", (double)r->main_bytes / 1e6);
        for (int at = 0; at < (int)(WIDTH * r->seconds / most + 0.5); at++) ht_text_add(text, "=");
        ht_text_add(text, " %.3f ms\n", 1e3 * r->seconds);
    }
}

/* ---- the whole ---- */

static void print_table(ht_text *text, ht_table *table, const char *title)
{
    ht_text_add(text, "\n%s\n", title);
    ht_table_print(text, table, cli_columns());
    text->failed |= table->failed;
    ht_table_free(table);
}

void cli_plan_refusals(ht_text *text, const cli_plan_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        if (rows->list[i].refused[0])
            ht_text_add(text, "%s %s: %s\n", rows->list[i].kind, rows->list[i].name, rows->list[i].refused);
}

static void add_rows(ht_text *text, const cli_plan_view *v, const cli_plan_rows *rows, const char *title)
{
    ht_table table = {.count = 0};
    if (!rows->count) return;
    cli_plan_what_if_table(&table, v, rows);
    print_table(text, &table, title);
    cli_plan_refusals(text, rows);
}

void cli_plan_text(ht_text *text, const cli_plan_view *v)
{
    ht_table bytes = {.count = 0}, ops = {.count = 0}, targets = {.count = 0};
    cli_plan_summary(text, v);
    cli_plan_fit(text, v);
    if (v->targets.count) {
        cli_plan_target_table(&targets, v);
        print_table(text, &targets, "Targets side by side; every device has the batch of the job");
        cli_plan_refusals(text, &v->targets);
        return;
    }
    cli_plan_byte_table(&bytes, v);
    print_table(text, &bytes, "Bytes by space and heading (docs/memory.md)");
    cli_plan_op_table(&ops, v, SHOWN_OPS);
    print_table(text, &ops, "Ops of a step");
    add_rows(text, v, &v->what_if, "What if");
    if (v->batch.key) ht_text_add(text, "\n");
    cli_plan_most_text(text, v);
    add_rows(text, v, &v->budgets, "Budgets of recomputation, in percent of the transients");
    if (v->budgets.count) add_curve(text, v);
    ht_text_add(text, "\n");
    cli_timeline_text(text, &v->timeline);
}
