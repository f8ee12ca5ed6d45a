/* Line charts, histograms and bars as SVG. Colours are those of Okabe and Ito, which people who see fewer colours can tell
 * apart; lines beyond the eighth are dashed. */
#include <math.h>
#include <stdlib.h>

#include "report/page.h"

enum { WIDTH = 800, HEIGHT = 420, LEFT = 70, RIGHT = 20, TOP = 20, BOTTOM = 50, LEGEND_LINE = 18, COLOURS = 8 };
enum { MOST_POINTS = 1200, MOST_BINS = 200 };

static const char *const colours[COLOURS] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                             "#e69f00", "#56b4e9", "#000000", "#b8a800"};

/* A field with its two axes. */
typedef struct field {
    ht_axis x, y;
} field;

static void text_at(ht_text *page, double x, double y, const char *anchor, const char *text)
{
    ht_text_add(page, "<text x=\"");
    ht_page_coordinate(page, x);
    ht_text_add(page, "\" y=\"");
    ht_page_coordinate(page, y);
    ht_text_add(page, "\" text-anchor=\"%s\">", anchor);
    ht_page_text(page, text);
    ht_text_add(page, "</text>\n");
}

static void number_at(ht_text *page, double x, double y, const char *anchor, double value)
{
    ht_text number = {0};
    ht_axis_number(&number, value);
    text_at(page, x, y, anchor, number.data ? number.data : "");
    ht_text_free(&number);
}

static void line(ht_text *page, const char *class, double x1, double y1, double x2, double y2)
{
    const double ends[] = {x1, y1, x2, y2};
    static const char *const names[] = {"x1", "y1", "x2", "y2"};
    ht_text_add(page, "<line class=\"%s\"", class);
    for (int i = 0; i < 4; i++) {
        ht_text_add(page, " %s=\"", names[i]);
        ht_page_coordinate(page, ends[i]);
        ht_text_add(page, "\"");
    }
    ht_text_add(page, "/>\n");
}

static void box(ht_text *page, const char *class, double x, double y, double width, double height)
{
    const double sizes[] = {x, y, width, height};
    static const char *const names[] = {"x", "y", "width", "height"};
    ht_text_add(page, "<rect class=\"%s\"", class);
    for (int i = 0; i < 4; i++) {
        ht_text_add(page, " %s=\"", names[i]);
        ht_page_coordinate(page, sizes[i]);
        ht_text_add(page, "\"");
    }
    ht_text_add(page, "/>\n");
}

static void open_picture(ht_text *page, const char *title, double height)
{
    if (title) {
        ht_text_add(page, "<h2>");
        ht_page_text(page, title);
        ht_text_add(page, "</h2>\n");
    }
    ht_text_add(page, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, (int)height);
    ht_page_text(page, title ? title : "chart");
    ht_text_add(page, "\">\n");
}

static void draw_axes(ht_text *page, const field *f)
{
    for (int i = 0; i < f->x.tick_count; i++) {
        double x = ht_axis_place(&f->x, f->x.ticks[i]);
        line(page, "grid", x, f->y.from, x, f->y.to);
        number_at(page, x, f->y.from + 16, "middle", f->x.ticks[i]);
    }
    for (int i = 0; i < f->y.tick_count; i++) {
        double y = ht_axis_place(&f->y, f->y.ticks[i]);
        line(page, "grid", f->x.from, y, f->x.to, y);
        number_at(page, f->x.from - 8, y + 4, "end", f->y.ticks[i]);
    }
    box(page, "frame", f->x.from, f->y.to, f->x.to - f->x.from, f->y.from - f->y.to);
}

static void draw_labels(ht_text *page, const field *f, const char *x_label, const char *y_label)
{
    if (x_label) text_at(page, (f->x.from + f->x.to) / 2, f->y.from + 38, "middle", x_label);
    if (!y_label) return;
    double middle = (f->y.from + f->y.to) / 2;
    ht_text_add(page, "<text transform=\"translate(16 ");
    ht_page_coordinate(page, middle);
    ht_text_add(page, ") rotate(-90)\" text-anchor=\"middle\">");
    ht_page_text(page, y_label);
    ht_text_add(page, "</text>\n");
}

static void widen(ht_axis *axis, double value)
{
    if (!ht_axis_holds(axis, value)) return;
    axis->low = fmin(axis->low, value);
    axis->high = fmax(axis->high, value);
}

/* Both axes over all points whose x lies in from..to. */
static void measure(field *f, const ht_chart *chart, double from, double to)
{
    f->x = (ht_axis){.low = INFINITY, .high = -INFINITY, .logarithmic = chart->x_log};
    f->y = (ht_axis){.low = INFINITY, .high = -INFINITY, .logarithmic = chart->y_log};
    for (size_t s = 0; s < chart->series_count; s++)
        for (size_t i = 0; i < chart->series[s].count; i++) {
            double x = chart->series[s].x[i], y = chart->series[s].y[i];
            if (!ht_axis_holds(&f->x, x) || !ht_axis_holds(&f->y, y) || x < from || x > to) continue;
            widen(&f->x, x);
            widen(&f->y, y);
        }
    if (chart->level_name) widen(&f->y, chart->level);
}

static void add_point(ht_text *page, const field *f, double x, double y, bool *pen_down)
{
    ht_text_add(page, *pen_down ? "L" : "M");
    ht_page_coordinate(page, ht_axis_place(&f->x, x));
    ht_text_add(page, " ");
    ht_page_coordinate(page, ht_axis_place(&f->y, y));
    *pen_down = true;
}

/* Of neighbouring points that share a pixel only the lowest and the highest can be seen. */
static void add_neighbours(ht_text *page, const field *f, const ht_series *s, size_t first, size_t end, bool *pen_down)
{
    size_t low = end, high = end;
    for (size_t i = first; i < end; i++) {
        if (!ht_axis_holds(&f->x, s->x[i]) || !ht_axis_holds(&f->y, s->y[i]) || s->x[i] < f->x.low ||
            s->x[i] > f->x.high)
            continue;
        if (low == end || s->y[i] < s->y[low]) low = i;
        if (high == end || s->y[i] > s->y[high]) high = i;
    }
    if (low == end) {
        *pen_down = false;
        return;
    }
    size_t one = low < high ? low : high, other = low < high ? high : low;
    add_point(page, f, s->x[one], s->y[one], pen_down);
    if (other != one) add_point(page, f, s->x[other], s->y[other], pen_down);
}

static const char *dashes(size_t series)
{
    return series < COLOURS ? "" : " stroke-dasharray=\"6 3\"";
}

static void draw_series(ht_text *page, const field *f, const ht_chart *chart)
{
    for (size_t k = 0; k < chart->series_count; k++) {
        const ht_series *s = &chart->series[k];
        size_t stride = s->count / MOST_POINTS + 1;
        bool pen_down = false;
        ht_text_add(page, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.6\"%s d=\"", colours[k % COLOURS],
                    dashes(k));
        for (size_t i = 0; i < s->count; i += stride)
            add_neighbours(page, f, s, i, i + stride < s->count ? i + stride : s->count, &pen_down);
        ht_text_add(page, "\"/>\n");
    }
    if (!chart->level_name || !ht_axis_holds(&f->y, chart->level)) return;
    double y = ht_axis_place(&f->y, chart->level);
    line(page, "level", f->x.from, y, f->x.to, y);
}

static void draw_legend(ht_text *page, const ht_chart *chart, double top)
{
    for (size_t k = 0; k < chart->series_count; k++) {
        double y = top + (double)k * LEGEND_LINE;
        ht_text_add(page, "<path stroke=\"%s\" stroke-width=\"3\"%s d=\"M%d ", colours[k % COLOURS], dashes(k), LEFT);
        ht_page_coordinate(page, y - 4);
        ht_text_add(page, "h24\"/>\n");
        text_at(page, LEFT + 32, y, "start", chart->series[k].name);
    }
    if (!chart->level_name) return;
    double y = top + (double)chart->series_count * LEGEND_LINE;
    line(page, "level", LEFT, y - 4, LEFT + 24, y - 4);
    text_at(page, LEFT + 32, y, "start", chart->level_name);
}

/* In the upper right corner, where the curves of losses leave space. */
static void draw_inset(ht_text *page, const ht_chart *chart, const field *whole)
{
    field f;
    measure(&f, chart, chart->zoom_from, chart->zoom_to);
    if (!(f.x.low <= f.x.high)) return;
    double width = whole->x.to - whole->x.from, height = whole->y.from - whole->y.to;
    f.x.from = whole->x.to - 0.5 * width;
    f.x.to = whole->x.to - 12;
    f.y.from = whole->y.to + 0.5 * height;
    f.y.to = whole->y.to + 12;
    ht_axis_settle(&f.x, 4);
    ht_axis_settle(&f.y, 4);
    box(page, "zoom", f.x.from - 52, f.y.to - 8, f.x.to - f.x.from + 58, f.y.from - f.y.to + 32);
    draw_axes(page, &f);
    draw_series(page, &f, chart);
}

void ht_report_chart(ht_report *report, const ht_chart *chart)
{
    ht_text *page = &report->page;
    field f;
    measure(&f, chart, -INFINITY, INFINITY);
    f.x.from = LEFT;
    f.x.to = WIDTH - RIGHT;
    f.y.from = HEIGHT - BOTTOM;
    f.y.to = TOP;
    ht_axis_settle(&f.x, 8);
    ht_axis_settle(&f.y, 6);
    size_t entries = chart->series_count + (chart->level_name != NULL);
    open_picture(page, chart->title, HEIGHT + 10 + (double)entries * LEGEND_LINE);
    draw_axes(page, &f);
    draw_labels(page, &f, chart->x_label, chart->y_label);
    draw_series(page, &f, chart);
    if (chart->zoom_from < chart->zoom_to) draw_inset(page, chart, &f);
    draw_legend(page, chart, HEIGHT + 10);
    ht_text_add(page, "</svg>\n");
}

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

void ht_report_histogram(ht_report *report, const ht_histogram *h)
{
    ht_text *page = &report->page;
    size_t counts[MOST_BINS] = {0}, most = 1;
    field f = {.x = {.from = LEFT, .to = WIDTH - RIGHT}, .y = {.from = HEIGHT - BOTTOM, .to = TOP}};
    double low, high;
    size_t bins = count_bins(h, &low, &high, counts);
    for (size_t i = 0; i < bins; i++)
        if (counts[i] > most) most = counts[i];
    f.x.low = low;
    f.x.high = high;
    f.y.high = (double)most;
    ht_axis_settle(&f.x, 8);
    ht_axis_settle(&f.y, 6);
    open_picture(page, h->title, HEIGHT);
    draw_axes(page, &f);
    draw_labels(page, &f, h->x_label, "count");
    for (size_t i = 0; i < bins; i++) {
        if (!counts[i]) continue;
        double from = low + (high / (double)bins - low / (double)bins) * (double)i;
        double left = ht_axis_place(&f.x, from), top = ht_axis_place(&f.y, (double)counts[i]);
        double right = ht_axis_place(&f.x, from + (high / (double)bins - low / (double)bins));
        box(page, "bar", left, top, fmax(right - left - 1, 0.5), f.y.from - top);
    }
    ht_text_add(page, "</svg>\n");
}

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

static void draw_stack(ht_text *page, const ht_bars *bars, const field *f, size_t i, double left, double width)
{
    double below = 0;
    for (size_t k = 0; k < bars->part_count; k++) {
        double part = bars->heights[k * bars->count + i];
        if (!(isfinite(part) && part > 0) || !isfinite(below + part)) continue;
        double bottom = ht_axis_place(&f->y, below), top = ht_axis_place(&f->y, below + part);
        ht_text_add(page, "<g fill=\"%s\">", colours[k % COLOURS]);
        box(page, "part", left, top, width, bottom - top);
        ht_text_add(page, "</g>\n");
        below += part;
    }
}

static void draw_parts_legend(ht_text *page, const ht_bars *bars)
{
    for (size_t k = 0; k < bars->part_count; k++) {
        double y = HEIGHT + 10 + (double)k * LEGEND_LINE;
        ht_text_add(page, "<g fill=\"%s\">", colours[k % COLOURS]);
        box(page, "part", LEFT, y - 10, 12, 12);
        ht_text_add(page, "</g>\n");
        text_at(page, LEFT + 20, y, "start", bars->part_names[k]);
    }
}

void ht_report_bars(ht_report *report, const ht_bars *bars)
{
    ht_text *page = &report->page;
    field f = {.x = {.from = LEFT, .to = WIDTH - RIGHT}, .y = {.from = HEIGHT - BOTTOM, .to = TOP}};
    f.y.high = tallest(bars);
    ht_axis_settle(&f.y, 6);
    open_picture(page, bars->title, HEIGHT + 10 + (double)bars->part_count * LEGEND_LINE);
    draw_axes(page, &f);
    draw_labels(page, &f, bars->x_label, bars->y_label);
    double slot_width = (f.x.to - f.x.from) / (double)(bars->count ? bars->count : 1);
    for (size_t i = 0; i < bars->count; i++) {
        double left = f.x.from + (double)i * slot_width;
        draw_stack(page, bars, &f, i, left + 0.1 * slot_width, 0.8 * slot_width);
        if (bars->labels[i]) text_at(page, left + slot_width / 2, f.y.from + 16, "middle", bars->labels[i]);
    }
    draw_parts_legend(page, bars);
    ht_text_add(page, "</svg>\n");
}
