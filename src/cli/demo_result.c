/* What halftone demo shows at the end: on the terminal, as JSON, as a page. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/demo_command.h"
#include "cli/explain_view.h"
#include "cli/numerics_page.h"
#include "report/report.h"

enum { SHOWN = 6, SHOWN_ON_PAGE = 40 };

static const char claims_title[] = "What the paper on mixed precision claims, and what happened here";

/* ---- the page ---- */

static void add_curves(const demo *d, ht_report *report)
{
    const cli_sweep_entry *t = &d->sweep.list[0];
    double *steps = calloc(t->made + 1, sizeof *steps);
    if (!steps) return;
    for (size_t i = 0; i < t->made; i++) steps[i] = (double)(i + 1);
    const ht_series series[] = {{.name = "training, each batch", .count = t->made, .x = steps, .y = t->loss},
                                {.name = "held out", .count = t->evals, .x = t->eval_step, .y = t->eval_loss}};
    ht_chart chart = {.title = "Loss of the first run",
                      .x_label = "step",
                      .y_label = "mean loss of a word",
                      .y_log = true,
                      .series = series,
                      .series_count = 2,
                      .zoom_from = 0.8 * (double)t->made,
                      .zoom_to = (double)t->made};
    if (d->floor_loss > 0) {
        chart.level = d->floor_loss;
        chart.level_name = "the least possible: some words have two translations";
    }
    ht_report_chart(report, &chart);
    ht_histogram times = {
        .title = "Time of a step", .x_label = "milliseconds", .count = t->made, .values = t->step_ms, .bins = 60};
    ht_report_histogram(report, &times);
    free(steps);
}

static void add_translations(const demo *d, ht_report *report)
{
    static const char *const made_up[] = {"English", "translation", "reference", "right"};
    static const char *const real[] = {"source", "translation", "reference", "equal"};
    const char *cells[SHOWN_ON_PAGE * 4];
    size_t rows = 0;
    for (size_t i = 0; i < d->translations.count && rows < SHOWN_ON_PAGE; i++, rows++) {
        const cli_translation *t = &d->translations.list[i];
        cells[rows * 4] = t->source;
        cells[rows * 4 + 1] = t->translation;
        cells[rows * 4 + 2] = t->reference;
        cells[rows * 4 + 3] = d->right[i] ? "yes" : "no";
    }
    ht_page_table table = {
        .title = "Held-out sentences", .columns = 4, .rows = rows, .heads = d->data ? real : made_up, .cells = cells};
    ht_report_table(report, &table);
}

static void add_numbers(const demo *d, ht_report *report)
{
    enum { ROWS = 6 };
    char text[ROWS][64];
    static const char *const heads[] = {"what", "value"};
    const cli_sweep_entry *t = &d->sweep.list[0];
    snprintf(text[0], sizeof text[0], "%zu", t->made);
    snprintf(text[1], sizeof text[1], "%" PRId64, t->parameters);
    snprintf(text[2], sizeof text[2], "%.4f", t->last_eval.perplexity);
    snprintf(text[3], sizeof text[3], "%.4f", exp(d->floor_loss));
    snprintf(text[4], sizeof text[4], "%zu of %zu", d->right_count, d->translations.count);
    snprintf(text[5], sizeof text[5], "%.2f", d->bleu);
    const char *cells[] = {"steps",
                           text[0],
                           "parameters",
                           text[1],
                           "perplexity, held out",
                           text[2],
                           "lowest possible perplexity",
                           d->floor_loss > 0 ? text[3] : "not known",
                           d->data ? "equal to the reference" : "valid translations",
                           text[4],
                           "BLEU (13a)",
                           text[5]};
    ht_report_table(report, &(ht_page_table){.columns = 2, .rows = ROWS, .heads = heads, .cells = cells});
}

/* Claims, tables and curves of all runs. */
static ht_status add_experiment(demo *d, ht_report *report)
{
    ht_table claims = {0}, runs = {0}, memory = {0};
    ht_text how = {0}, half = {0}, title = {0};
    ht_table_head(&claims, "claim");
    ht_table_head(&claims, "here");
    ht_table_head(&claims, "numbers");
    claims.verdict_column = 1;
    for (int i = 0; i < DEMO_CLAIMS; i++) {
        if (!d->claims[i].shown) continue;
        ht_table_cell(&claims, "%s", d->claims[i].text);
        ht_table_cell(&claims, "%s", ht_verdict_names[d->claims[i].verdict]);
        ht_table_cell(&claims, "%s", d->claims[i].numbers.data ? d->claims[i].numbers.data : "");
    }
    demo_explain_claims(&how, d);
    cli_sweep_half(&half, &d->sweep);
    cli_sweep_errors(&half, &d->sweep);
    cli_sweep_table(&runs, &d->sweep);
    ht_text_add(&title, "Memory in %s", cli_sweep_memory(&memory, &d->sweep));
    bool failed = how.failed || half.failed || title.failed || claims.failed || runs.failed || memory.failed;
    if (!failed) {
        ht_table_report(report, &claims, claims_title);
        ht_report_paragraph(report, how.data);
        ht_table_report(report, &runs, "All runs");
        ht_report_paragraph(report, half.data);
        cli_sweep_charts(report, &d->sweep);
        ht_table_report(report, &memory, title.data);
    }
    ht_table_free(&claims);
    ht_table_free(&runs);
    ht_table_free(&memory);
    ht_text_free(&how);
    ht_text_free(&half);
    ht_text_free(&title);
    if (failed) HT_FAIL(d->ctx, HT_ENOMEM, "out of memory for a page");
    /* Figure 1 of the paper for this model, in the precision whose gradients were looked at. */
    ht_run_request planned = {.config = d->sweep.list[d->traced_run].config, .mode = HT_RUN_NEW};
    HT_TRY(cli_explain_on_page(report, &d->figure, d->ctx, &planned));
    return cli_numerics_add(&d->gradients, report, d->ctx, d->sweep.list[d->traced_run].folder);
}

ht_status demo_write_page(demo *d)
{
    ht_report *report;
    HT_TRY(ht_report_create(&report, d->ctx, "A small translator"));
    ht_report_paragraph(report, d->data
                                    ? "Trained by halftone demo on the pairs of a file."
                                    : "Trained by halftone demo. The sentences are synthetic: a small grammar makes "
                                      "them up, and says which translations are right.");
    add_numbers(d, report);
    ht_status status = d->single ? HT_OK : add_experiment(d, report);
    add_curves(d, report);
    add_translations(d, report);
    if (status == HT_OK) status = ht_report_write(report, d->page);
    ht_report_free(report);
    return status;
}

/* ---- the terminal ---- */

/* Commands to try, with the program as it was started. */
static void add_next(const demo *d, ht_text *text, int which)
{
    static const char *const commands[] = {"eval", "train", "data"};
    cli_add_word(text, cli_program, "");
    ht_text_add(text, " %s ", commands[which]);
    cli_add_word(text, d->output, which == 0 ? "" : "/job.json");
    if (which == 0) ht_text_add(text, " --bleu 13a");
    if (which == 1) ht_text_add(text, " --resume --set train.steps=%" PRId64, d->steps * 3 / 2);
    if (which == 2) ht_text_add(text, " --validation");
}

static void add_some_translations(const demo *d, ht_text *text)
{
    /* Spread over the list, which is sorted by length; half of the places go to what is wrong, if there is any. */
    size_t count = d->translations.count, shown = 0;
    for (size_t i = 0; i < count && shown < SHOWN / 3; i++)
        if (!d->right[i]) {
            const cli_translation *t = &d->translations.list[i];
            ht_text_add(text, "  wrong  %s\n         %s\n", t->source, t->translation);
            shown++;
        }
    for (size_t k = 0; shown < SHOWN && k < 3 * SHOWN; k++) {
        size_t i = count * (2 * k + 1) / (6 * SHOWN);
        if (i >= count || !d->right[i]) continue;
        const cli_translation *t = &d->translations.list[i];
        ht_text_add(text, "  right  %s\n         %s\n", t->source, t->translation);
        shown++;
        k += 2;
    }
}

/* A mark and a colour, where the terminal has them. */
static void add_verdict(ht_text *text, ht_verdict verdict)
{
    static const char *const marks[] = {"\u2717", "?", "\u2713"}, *const plain[] = {"-", "?", "+"};
    static const char *const colours[] = {"\033[31m", "\033[33m", "\033[32m"};
    bool coloured = cli_colours();
    ht_text_add(text, "%s%s %s%s", coloured ? colours[verdict] : "", (ht_terminal_unicode() ? marks : plain)[verdict],
                ht_verdict_names[verdict], coloured ? "\033[0m" : "");
}

/* Every claim with its verdict and its numbers, then how they were judged. */
static void add_claims(const demo *d, ht_text *text)
{
    ht_text_add(text, "\n%s\n", claims_title);
    for (int i = 0; i < DEMO_CLAIMS; i++) {
        if (!d->claims[i].shown) continue;
        ht_text_add(text, "  %s: ", d->claims[i].text);
        add_verdict(text, d->claims[i].verdict);
        ht_text_add(text, "\n    %s\n", d->claims[i].numbers.data ? d->claims[i].numbers.data : "");
    }
    ht_text how = {0};
    demo_explain_claims(&how, d);
    cli_add_wrapped(text, how.data ? how.data : "", cli_prose_width(), 0, 0);
    ht_text_free(&how);
}

static void add_comparison(const demo *d, ht_text *text)
{
    ht_table runs = {0}, memory = {0};
    ht_text_add(text, "\nAll runs\n");
    cli_sweep_table(&runs, &d->sweep);
    ht_table_print(text, &runs, cli_columns());
    ht_text_add(text, "\nMemory in %s\n", cli_sweep_memory(&memory, &d->sweep));
    ht_table_print(text, &memory, cli_columns());
    cli_sweep_half(text, &d->sweep);
    cli_sweep_errors(text, &d->sweep);
    if (d->figure.data)
        ht_text_add(text, "\nFigure 1 of the paper for this model, in %s: what each block reads and makes\n%s\n",
                    d->sweep.list[d->traced_run].name, d->figure.data);
    if (d->gradients.data) ht_text_add(text, "%s(of %s)\n", d->gradients.data, d->sweep.list[d->traced_run].name);
    add_claims(d, text);
    ht_table_free(&runs);
    ht_table_free(&memory);
}

static int print_for_people(const demo *d)
{
    ht_text text = {0};
    const cli_sweep_entry *t = &d->sweep.list[0];
    int columns = cli_columns() ? cli_columns() : 80;
    ht_term_plot curve = {.y = t->loss,
                          .count = t->made,
                          .columns = (columns > 110 ? 110 : columns) - 14,
                          .rows = 12,
                          .level = d->floor_loss,
                          .unicode = ht_terminal_unicode()};
    ht_text_add(&text, "\nLoss of %zu steps in %.1f seconds, %s:\n", t->made, t->seconds, t->name);
    ht_term_plot_add(&text, &curve);
    if (d->floor_loss > 0)
        ht_text_add(&text, "(dotted: %.4f, the least that anybody can reach, for some words have two translations)\n",
                    d->floor_loss);
    ht_text_add(&text, "\nHeld out: perplexity %.4f", t->last_eval.perplexity);
    if (d->floor_loss > 0) ht_text_add(&text, "; the lowest possible is %.4f", exp(d->floor_loss));
    ht_text_add(&text, "\n%zu of %zu sentences %s (%.1f %%); BLEU %.2f\n\n", d->right_count, d->translations.count,
                d->data ? "are exactly the reference" : "are exactly right, any valid synonym counts",
                100 * (double)d->right_count / (double)d->translations.count, d->bleu);
    add_some_translations(d, &text);
    if (!d->single) add_comparison(d, &text);
    ht_text_add(&text, "\nThe curves as a page: %s\n\nTry next, on this very run:\n", d->page);
    for (int i = 0; i < 3; i++) {
        ht_text_add(&text, "  ");
        add_next(d, &text, i);
        ht_text_add(&text, "\n");
    }
    return cli_show(&text);
}

/* ---- JSON ---- */

static void put_translation(ht_json_writer *json, const demo *d, size_t at)
{
    const cli_translation *one = &d->translations.list[at];
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "source", one->source);
    ht_json_put_text(json, "translation", one->translation);
    ht_json_put_text(json, "reference", one->reference);
    ht_json_put_bool(json, "right", d->right[at]);
    ht_json_end_object(json);
}

static void put_claim(ht_json_writer *json, const demo_claim *claim)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "claim", claim->text);
    ht_json_put_text(json, "verdict", ht_verdict_names[claim->verdict]);
    ht_json_put_text(json, "numbers", claim->numbers.data ? claim->numbers.data : "");
    ht_json_end_object(json);
}

static void put_numbers(ht_json_writer *json, const demo *d)
{
    const cli_sweep_entry *t = &d->sweep.list[0];
    ht_json_put_bool(json, "synthetic", !d->data);
    ht_json_put_text(json, "run", d->output);
    ht_json_put_text(json, "page", d->page);
    ht_json_put_int(json, "parameters", t->parameters);
    ht_json_put_int(json, "train_pairs", d->train_pairs);
    ht_json_put_int(json, "held_out", d->held_out);
    ht_json_put_uint(json, "steps", t->made);
    ht_json_put_number(json, "seconds", t->seconds);
    ht_json_put_number(json, "loss", t->last_eval.loss);
    ht_json_put_number(json, "perplexity", t->last_eval.perplexity);
    ht_json_put_number(json, "lowest_perplexity", d->floor_loss > 0 ? exp(d->floor_loss) : NAN);
    ht_json_put_uint(json, "exact", d->right_count);
    ht_json_put_uint(json, "translated", d->translations.count);
    ht_json_put_number(json, "bleu", d->bleu);
}

static int print_json(const demo *d)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    put_numbers(&json, d);
    ht_json_begin_array(&json, "try");
    for (int i = 0; i < 3; i++) {
        ht_text next = {0};
        add_next(d, &next, i);
        ht_json_put_text(&json, NULL, next.data ? next.data : "");
        ht_text_free(&next);
    }
    ht_json_end_array(&json);
    ht_json_begin_array(&json, "translations");
    for (size_t i = 0; i < d->translations.count; i++) put_translation(&json, d, i);
    ht_json_line(&json, 0);
    ht_json_end_array(&json);
    ht_json_line(&json, 1);
    ht_json_begin_array(&json, "claims");
    for (int i = 0; i < DEMO_CLAIMS; i++)
        if (d->claims[i].shown) put_claim(&json, &d->claims[i]);
    ht_json_end_array(&json);
    ht_json_line(&json, 1);
    cli_sweep_json(&json, &d->sweep);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    return cli_put(&text);
}

int demo_print_result(demo *d)
{
    return d->json ? print_json(d) : print_for_people(d);
}
