/* Histograms and bars. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/page.h"

enum { MOST_BINS = 200, ROW_PIXELS = 40 };

/* ---- histograms ---- */

/* Of the values that are numbers; counts must have space for MOST_BINS. */
static size_t count_bins(const ht_histogram *h, double *low, double *high, size_t *counts)
{
    size_t numbers = 0;
    *low = INFINITY;
    *high = -INFINITY;
    for (size_t i = 0; i < h->count; i++) {
        if (!isfinite(h->values[i])) continue;
        numbers++;
        *low = fmin(*low, h->values[i]);
        *high = fmax(*high, h->values[i]);
    }
    if (numbers == 0) *low = 0, *high = 1;
    if (*low == *high) *low -= 0.5, *high += 0.5;
    size_t bins = h->bins ? h->bins : (size_t)(2 * cbrt((double)numbers)) + 1;
    if (bins > MOST_BINS) bins = MOST_BINS;
    for (size_t i = 0; i < h->count; i++) {
        if (!isfinite(h->values[i])) continue;
        /* Halves first: the span of two large numbers of opposite sign may not be a number. */
        double share = (h->values[i] / 2 - *low / 2) / (*high / 2 - *low / 2);
        size_t bin = (size_t)(share * (double)bins);
        counts[bin < bins ? bin : bins - 1]++;
    }
    return bins;
}

static void draw_bin(ht_text *page, const ht_plot_field *f, double from, double to, size_t count)
{
    double left = ht_axis_place(&f->x, from), right = ht_axis_place(&f->x, to);
    double top = ht_axis_place(&f->y, (double)count);
    ht_text title = {0};
    ht_axis_number(&title, from);
    ht_text_add(&title, " to ");
    ht_axis_number(&title, to);
    ht_text_add(&title, ": %zu", count);
    ht_svg_box(page, "bar c0", left, top, fmax(right - left - 1, 0.5), f->y.from - top, title.data);
    ht_text_free(&title);
}

void ht_report_histogram(ht_report *report, const ht_histogram *h)
{
    ht_text *page = &report->page;
    size_t counts[MOST_BINS] = {0}, most = 1;
    double low, high;
    size_t bins = count_bins(h, &low, &high, counts);
    for (size_t i = 0; i < bins; i++)
        if (counts[i] > most) most = counts[i];
    ht_figure_open(page, h->title);
    for (const ht_canvas *canvas = ht_canvases; canvas < ht_canvases + HT_CANVASES; canvas++) {
        ht_plot_field f = {.x = {.low = low, .high = high}, .y = {.high = (double)most}};
        ht_axis_settle(&f.x, canvas->x_ticks);
        ht_axis_settle(&f.y, canvas->y_ticks);
        ht_plot_field_place(&f, canvas, 0, canvas->height);
        ht_svg_open(page, canvas, h->title, canvas->height);
        ht_svg_axes(page, &f);
        ht_svg_labels(page, &f, h->x_label, "count");
        double step = high / (double)bins - low / (double)bins;
        for (size_t i = 0; i < bins; i++)
            if (counts[i]) draw_bin(page, &f, low + step * (double)i, low + step * (double)(i + 1), counts[i]);
        ht_svg_close(page);
    }
    ht_figure_close(page, NULL);
}

/* ---- stacks ---- */

/* The height of the tallest bar, or 1 when there is nothing to see. */
static double tallest(const ht_bars *bars)
{
    double most = 0;
    for (size_t i = 0; i < bars->count; i++) {
        double height = 0;
        for (size_t k = 0; k < bars->part_count; k++) {
            double part = bars->heights[k * bars->count + i];
            if (isfinite(part) && part > 0) height += part;
        }
        if (isfinite(height)) most = fmax(most, height);
    }
    return most > 0 ? most : 1;
}

/* Bar i, across its slot from..to, along the axis on which parts are measured. */
static void draw_stack(ht_text *page, const ht_bars *bars, const ht_axis *axis, size_t i, double from, double to,
                       bool upright)
{
    double below = 0;
    for (size_t k = 0; k < bars->part_count; k++) {
        double part = bars->heights[k * bars->count + i];
        if (!(isfinite(part) && part > 0) || !isfinite(below + part)) continue;
        double start = ht_axis_place(axis, below), end = ht_axis_place(axis, below + part);
        char class[16];
        ht_text title = {0};
        snprintf(class, sizeof class, "part c%zu", k % HT_COLOURS);
        if (bars->labels[i]) ht_text_add(&title, "%s, ", bars->labels[i]);
        ht_text_add(&title, "%s: ", bars->part_names[k]);
        ht_axis_number(&title, part);
        if (upright)
            ht_svg_box(page, class, from, end, to - from, start - end, title.data);
        else
            ht_svg_box(page, class, start, from, end - start, to - from, title.data);
        ht_text_free(&title);
        below += part;
    }
}

static bool labels_fit(const ht_bars *bars, double slot)
{
    double taken = -INFINITY;
    for (size_t i = 0; i < bars->count; i++) {
        if (!bars->labels[i]) continue;
        double middle = ((double)i + 0.5) * slot, half = ht_text_pixels(bars->labels[i]) / 2;
        if (middle - half < taken + 4) return false;
        taken = middle + half;
    }
    return true;
}

static void draw_upright(ht_text *page, const ht_bars *bars, const ht_plot_field *f, double slot)
{
    ht_svg_axes(page, f);
    ht_svg_labels(page, f, bars->x_label, bars->y_label);
    for (size_t i = 0; i < bars->count; i++) {
        double left = f->x.from + (double)i * slot;
        draw_stack(page, bars, &f->y, i, left + 0.1 * slot, left + 0.9 * slot, true);
        if (bars->labels[i]) ht_svg_text(page, left + slot / 2, f->y.from + HT_LINE_PIXELS, "middle", bars->labels[i]);
    }
}

/* A row for each bar, its label above it. */
static void draw_rows(ht_text *page, const ht_bars *bars, const ht_canvas *canvas, double most)
{
    ht_plot_field f = {.x = {.high = most}, .y = {.low = 0, .high = 1}};
    double height = ROW_PIXELS * (double)bars->count + 3 * HT_LINE_PIXELS;
    ht_axis_settle(&f.x, canvas->x_ticks);
    ht_plot_field_place(&f, canvas, 0, height);
    f.x.from = 6; /* half of a zero */
    ht_svg_open(page, canvas, bars->title, height);
    ht_svg_axes(page, &f);
    ht_svg_labels(page, &f, bars->y_label, NULL);
    for (size_t i = 0; i < bars->count; i++) {
        double top = f.y.to + ROW_PIXELS * (double)i;
        if (bars->labels[i]) ht_svg_text(page, f.x.from + 6, top + 14, "start", bars->labels[i]);
        draw_stack(page, bars, &f.x, i, top + 19, top + ROW_PIXELS - 3, false);
    }
    ht_svg_close(page);
}

static void draw_bars(ht_text *page, const ht_bars *bars, const ht_canvas *canvas, double most)
{
    ht_plot_field f = {.y = {.high = most}};
    ht_axis_settle(&f.y, canvas->y_ticks);
    ht_plot_field_place(&f, canvas, 0, canvas->height);
    double slot = (f.x.to - f.x.from) / (double)(bars->count ? bars->count : 1);
    bool all_named = bars->count > 0;
    for (size_t i = 0; i < bars->count; i++) all_named = all_named && bars->labels[i];
    if (all_named && !labels_fit(bars, slot)) {
        draw_rows(page, bars, canvas, most);
        return;
    }
    ht_svg_open(page, canvas, bars->title, canvas->height);
    draw_upright(page, bars, &f, slot);
    ht_svg_close(page);
}

static bool is_drawn(const ht_bars *bars, size_t part)
{
    bool drawn = false;
    for (size_t i = 0; i < bars->count; i++) {
        double height = bars->heights[part * bars->count + i];
        drawn = drawn || (isfinite(height) && height > 0);
    }
    return drawn;
}

void ht_report_bars(ht_report *report, const ht_bars *bars)
{
    ht_text *page = &report->page, legend = {0};
    double most = tallest(bars);
    ht_figure_open(page, bars->title);
    for (int i = 0; i < HT_CANVASES; i++) draw_bars(page, bars, &ht_canvases[i], most);
    for (size_t k = 0; k < bars->part_count; k++) {
        char class[16];
        snprintf(class, sizeof class, "part c%zu", k % HT_COLOURS);
        if (is_drawn(bars, k)) ht_legend_entry(&legend, -1, class, bars->part_names[k], NULL);
    }
    ht_figure_close(page, &legend);
    ht_text_free(&legend);
}
