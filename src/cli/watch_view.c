#include "cli/watch_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/progress.h"
#include "report/report.h"

enum { AXIS = 11, PLAIN_COLUMNS = 80, PLAIN_LINES = 24, FEWEST_ROWS = 3, MOST_ROWS = 20, WIDEST = 160 };

/* Bytes that a file brought may not speak to the terminal. */
static void add_clean(ht_text *text, const char *from)
{
    for (const char *c = from; *c; c++) ht_text_add(text, "%c", (unsigned char)*c < ' ' || *c == 127 ? '?' : *c);
}

void cli_watch_state(ht_text *text, const ht_run_status *s, const char *folder)
{
    ht_text_add(text, "%s: ", folder);
    if (s->model[0]) add_clean(text, s->model);
    if (s->precision[0]) ht_text_add(text, " in "), add_clean(text, s->precision);
    if (s->model[0]) ht_text_add(text, ", ");
    switch (s->state) {
    case HT_RUN_STATE_WAITING: ht_text_add(text, "there is no run yet"); break;
    case HT_RUN_STATE_TRAINING:
        ht_text_add(text, s->step.step > 0 ? "in training: " : "about to train: ");
        add_clean(text, s->holder);
        break;
    case HT_RUN_STATE_DONE:
        ht_text_add(text, "done: %" PRId64 " steps; its last start took %.1f s", s->end.step, s->end.seconds);
        break;
    case HT_RUN_STATE_STOPPED:
        ht_text_add(text, "stopped after step %" PRId64 " of %" PRId64 "; --resume goes on", s->end.step,
                    s->step.steps);
        break;
    case HT_RUN_STATE_DIED:
        ht_text_add(text, "ended without a last record after step %" PRId64 "; --resume goes on from its snapshot",
                    s->step.step);
        break;
    case HT_RUN_STATE_COUNT: break;
    }
}

/* ---- the lines below the curve ---- */

/* A number that the record has; behind others of the line, which begins at `start`, with a comma. */
__attribute__((format(printf, 3, 0))) static void add_number(ht_text *text, size_t start, const char *format,
                                                             double value)
{
    char number[64];
    if (isnan(value)) return;
    snprintf(number, sizeof number, format, value);
    ht_text_add(text, "%s%s", text->length > start ? ", " : "", number);
}

static void add_steps(ht_text *text, const ht_run_status *s)
{
    const ht_step_report *r = &s->step;
    size_t before = text->length;
    add_number(text, before, "epoch %.3g", r->epoch);
    add_number(text, before, "grad norm %.4g", r->grad_norm);
    add_number(text, before, "lr %.4g", r->lr);
    add_number(text, before, "%.2f ms a step", s->step_ms);
    add_number(text, before, "micro %.2f ms", r->micro_ms);
    add_number(text, before, "update %.2f ms", r->update_ms);
    if (text->length > before) ht_text_add(text, "\n");
}

static void add_eval(ht_text *text, const ht_eval_report *r)
{
    ht_text_add(text, "held out, after step %" PRId64 ": loss %.5f", r->step, r->loss);
    if (!isnan(r->perplexity)) ht_text_add(text, ", perplexity %.5g", r->perplexity);
    if (!isnan(r->accuracy)) ht_text_add(text, ", accuracy %.2f %%", 100 * r->accuracy);
    ht_text_add(text, "\n");
}

static void add_memory(ht_text *text, const ht_run_status *s)
{
    const ht_step_report *r = &s->step;
    if (!r->plan_bytes && !r->process_peak_bytes) return;
    ht_text_add(text, "memory: ");
    if (r->plan_bytes) ht_text_add(text, "%.1f MiB planned", (double)r->plan_bytes / 0x1p20);
    if (r->plan_bytes && r->process_peak_bytes) ht_text_add(text, ", ");
    if (r->process_peak_bytes)
        ht_text_add(text, "the process held %.1f MiB at most", (double)r->process_peak_bytes / 0x1p20);
    ht_text_add(text, "\n");
}

static void add_exchange(ht_text *text, const ht_exchange_report *r)
{
    ht_text_add(text, "ranks: %.2f ms of exchanges in the step, %.0f %% of it hidden, %.2f MiB sent\n", r->ms,
                100 * r->hidden_share, (double)r->bytes / 0x1p20);
}

static void add_numbers(ht_text *text, const ht_run_status *s, int columns)
{
    ht_step_report newest = s->step;
    newest.tokens_per_second = s->tokens_per_second;
    if (newest.steps < newest.step) newest.steps = newest.step; /* not known: a run of an older version */
    cli_progress_bar(text, &newest, s->eval.count > 0 ? s->eval.loss : NAN, s->seconds_left, columns);
    ht_text_add(text, "\n");
    add_steps(text, s);
    if (s->eval.count > 0) add_eval(text, &s->eval);
    add_memory(text, s);
    if (s->step.exchange.known) add_exchange(text, &s->step.exchange);
    if (s->damaged > 0) ht_text_add(text, "%" PRId64 " lines of metrics.jsonl could not be read\n", s->damaged);
}

/* ---- the frame ---- */

static int count_lines(const ht_text *text)
{
    int count = 0;
    for (const char *c = text->data; c && *c; c++) count += *c == '\n';
    return count;
}

static void add_curve(ht_text *text, const ht_run_status *s, const cli_frame *frame, int columns, int rows)
{
    ht_term_plot plot = {.y = s->losses,
                         .count = s->loss_count,
                         .last = s->step.step,
                         .columns = (columns < WIDEST ? columns : WIDEST) - AXIS,
                         .rows = rows < MOST_ROWS ? rows : MOST_ROWS,
                         .level = s->eval.count > 0 ? s->eval.loss : 0,
                         .unicode = frame->unicode};
    if (rows >= FEWEST_ROWS && s->loss_count > 0) ht_term_plot_add(text, &plot);
}

/* Lines and columns beyond the terminal's are cut, not wrapped: the next frame begins where this one began. */
static void add_cut(ht_text *to, const char *from, int columns, int lines)
{
    for (int line = 0; *from && line < lines; line++) {
        int shown = 0;
        for (; *from && *from != '\n'; from++) {
            shown += ((unsigned char)*from & 0xc0) != 0x80;
            if (shown <= columns) ht_text_add(to, "%c", *from);
        }
        if (*from) from++;
        ht_text_add(to, "\n");
    }
}

void cli_watch_frame(ht_text *text, const ht_run_status *s, const cli_frame *frame)
{
    int columns = frame->columns > 0 ? frame->columns : PLAIN_COLUMNS;
    int lines = frame->lines > 1 ? frame->lines - 1 : PLAIN_LINES;
    ht_text whole = {0}, numbers = {0};
    cli_watch_state(&whole, s, frame->folder);
    ht_text_add(&whole, "\n");
    if (s->step.step > 0) add_numbers(&numbers, s, columns);
    /* The curve has a line below it for its axis. */
    add_curve(&whole, s, frame, columns - 1, lines - 2 - count_lines(&numbers));
    if (numbers.data) ht_text_add(&whole, "%s", numbers.data);
    text->failed = text->failed || whole.failed || numbers.failed;
    if (!text->failed) add_cut(text, whole.data, frame->columns > 0 ? columns - 1 : INT16_MAX, lines);
    ht_text_free(&whole);
    ht_text_free(&numbers);
}
