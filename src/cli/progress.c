#include "cli/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE = 120, SHORTEST_BAR = 5, LONGEST_BAR = 40, PART = 48 };

/* Pieces of a line, the most important first; those that have no space are left out, in whatever place. */
typedef struct line_parts {
    char text[8][PART];
    int count;
} line_parts;

__attribute__((format(printf, 2, 3))) static void add_part(line_parts *parts, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(parts->text[parts->count++], PART, format, args);
    va_end(args);
}

static void add_that_fit(ht_text *line, const line_parts *parts, size_t space)
{
    for (int i = 0; i < parts->count; i++)
        if (line->length + strlen(parts->text[i]) <= space) ht_text_add(line, "%s", parts->text[i]);
}

/* 0:07, 12:34, 3:25:00, 4d 03:00 */
static void print_time(char *text, size_t size, double seconds)
{
    int64_t all = seconds < 1e9 ? (int64_t)seconds : 1000000000, minutes = all / 60, hours = minutes / 60;
    if (hours >= 24)
        snprintf(text, size, "%" PRId64 "d %02" PRId64 ":%02" PRId64, hours / 24, hours % 24, minutes % 60);
    else if (hours > 0)
        snprintf(text, size, "%" PRId64 ":%02" PRId64 ":%02" PRId64, hours, minutes % 60, all % 60);
    else
        snprintf(text, size, "%" PRId64 ":%02" PRId64, minutes, all % 60);
}

/* Records that are read back may lack numbers: these are NAN, and are left out. */
static bool has_scale(const ht_step_report *r)
{
    return r->loss_scale != 1 && !isnan(r->loss_scale);
}

void cli_progress_bar(ht_text *line, const ht_step_report *r, double eval_loss, double seconds_left, int columns)
{
    char left[32], end[48] = "", start[96], bar[LONGEST_BAR + 1];
    line_parts parts = {.count = 0};
    print_time(left, sizeof left, seconds_left);
    if (!isnan(seconds_left)) snprintf(end, sizeof end, " | %s left", left);
    snprintf(start, sizeof start, " %" PRId64 "/%" PRId64 " loss %.4f", r->step, r->steps, r->loss);
    if (!isnan(eval_loss)) add_part(&parts, " eval %.4f", eval_loss);
    if (has_scale(r)) add_part(&parts, " scale %g", r->loss_scale);
    if (r->skips > 0) add_part(&parts, " skipped %" PRId64, r->skips);
    if (!isnan(r->tokens_per_second)) add_part(&parts, " %.0f/s", r->tokens_per_second);
    if (!isnan(r->lr)) add_part(&parts, " lr %.3g", r->lr);
    if (r->process_peak_bytes) add_part(&parts, " %.0f MiB", (double)r->process_peak_bytes / 0x1p20);
    /* The last column stays free: a terminal may break the line there. */
    int space = columns - 1 - (int)strlen(end), width = space - (int)strlen(start) - 40;
    width = width < SHORTEST_BAR ? SHORTEST_BAR : width > LONGEST_BAR ? LONGEST_BAR : width;
    if (width + (int)strlen(start) > space) width = 0;
    int full = (int)((double)width * (double)r->step / (double)r->steps);
    for (int i = 0; i < width; i++) bar[i] = i < full ? '#' : '.';
    bar[width] = '\0';
    ht_text_add(line, "%s%s", bar, start + (width == 0));
    add_that_fit(line, &parts, space > 0 ? (size_t)space : 0);
    ht_text_add(line, "%s", end);
}

void cli_progress_line(ht_text *line, const ht_step_report *r, bool breakdown)
{
    line_parts parts = {.count = 0};
    ht_text_add(line, "step %" PRId64 " of %" PRId64 " loss %.6f", r->step, r->steps, r->loss);
    if (r->skipped) add_part(&parts, " skipped 1");
    if (has_scale(r)) add_part(&parts, " loss_scale %.9g", r->loss_scale);
    if (!isnan(r->lr)) add_part(&parts, " lr %.6g", r->lr);
    add_part(&parts, " grad_norm %.6g", r->grad_norm); /* one that is no number is news */
    if (breakdown) add_part(&parts, " micro_ms %.3f update_ms %.3f", r->micro_ms, r->update_ms);
    if (!isnan(r->tokens_per_second)) add_part(&parts, " tokens_per_second %.1f", r->tokens_per_second);
    add_that_fit(line, &parts, LINE);
}

void cli_progress_eval(ht_text *line, const ht_eval_report *r)
{
    ht_text_add(line, "eval %" PRId64 " loss %.6f", r->step, r->loss);
    if (!isnan(r->perplexity)) ht_text_add(line, " perplexity %.6g", r->perplexity);
    if (!isnan(r->accuracy)) ht_text_add(line, " accuracy %.6f", r->accuracy);
    ht_text_add(line, " count %" PRId64 " seconds %.2f", r->count, r->seconds);
}
