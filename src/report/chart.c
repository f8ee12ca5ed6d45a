/* Line charts. Colours are those of Okabe and Ito, which people who see fewer colours can tell apart; lines beyond the
 * eighth are dashed. Curves that coincide are drawn as a rope of their colours. A series that would flatten all others
 * leaves the chart at its edge, and the legend says so. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

enum { DASH = 7, NOTE = 160 };

/* How one series is drawn in one field. */
typedef struct series_view {
    bool clipped;      /* left out when the axis was measured */
    size_t rope, turn; /* it coincides with so many others, itself included; which of them it is */
    size_t first;      /* the first of them */
} series_view;

typedef struct line_plot {
    const ht_chart *chart;
    ht_plot_field field;
    series_view *views;
} line_plot;

/* ---- measuring ---- */

typedef struct range {
    double low, high;
} range;

static range no_range(void)
{
    return (range){INFINITY, -INFINITY};
}

static void widen(range *r, double value)
{
    r->low = fmin(r->low, value);
    r->high = fmax(r->high, value);
}

static bool drawn_at(const ht_chart *chart, const ht_plot_field *f, size_t series, size_t point, range x)
{
    const ht_series *s = &chart->series[series];
    return ht_axis_holds(&f->x, s->x[point]) && ht_axis_holds(&f->y, s->y[point]) && s->x[point] >= x.low &&
           s->x[point] <= x.high;
}

static double on_scale(const ht_axis *axis, double value)
{
    return axis->logarithmic ? log(value) : value;
}

/* Of the series that are not clipped, but for `without`; on the axis's scale. */
static range range_without(const line_plot *p, range x, size_t without)
{
    range all = no_range();
    for (size_t s = 0; s < p->chart->series_count; s++)
        for (size_t i = 0; s != without && !p->views[s].clipped && i < p->chart->series[s].count; i++)
            if (drawn_at(p->chart, &p->field, s, i, x)) widen(&all, on_scale(&p->field.y, p->chart->series[s].y[i]));
    return all;
}

/* Does most of the series lie far from the range? */
static bool lies_outside(const line_plot *p, range x, size_t series, range others)
{
    double span = others.high - others.low;
    size_t outside = 0, all = 0;
    for (size_t i = 0; i < p->chart->series[series].count; i++) {
        if (!drawn_at(p->chart, &p->field, series, i, x)) continue;
        double y = on_scale(&p->field.y, p->chart->series[series].y[i]);
        outside += y > others.high + span || y < others.low - span;
        all++;
    }
    return 2 * outside > all;
}

/* One bad run must not flatten the others: a series without which the axis would be several times shorter is clipped, as
 * long as half of the series stay. */
static void clip_outliers(line_plot *p, range x)
{
    size_t count = p->chart->series_count;
    for (size_t left = count; count > 1 && 2 * (left - 1) >= count; left--) {
        range all = range_without(p, x, count), best = no_range();
        size_t worst = count;
        double factor = p->field.y.logarithmic ? 20 : 4;
        for (size_t s = 0; s < count; s++) {
            range rest = range_without(p, x, s);
            double span = rest.high - rest.low;
            if (p->views[s].clipped || !(span > 0) || span * factor >= all.high - all.low) continue;
            if (!lies_outside(p, x, s, rest) || (worst < count && span >= best.high - best.low)) continue;
            worst = s;
            best = rest;
        }
        if (worst == count) return;
        p->views[worst].clipped = true;
    }
}

static bool any_drawn(const line_plot *p, range x)
{
    for (size_t s = 0; s < p->chart->series_count; s++)
        for (size_t i = 0; i < p->chart->series[s].count; i++)
            if (drawn_at(p->chart, &p->field, s, i, x)) return true;
    return false;
}

/* Both axes over all points whose x lies in the range. False: there are none. */
static bool measure(line_plot *p, range x)
{
    const ht_chart *chart = p->chart;
    range across = no_range(), up = no_range();
    p->field.x = (ht_axis){.logarithmic = chart->x_log};
    p->field.y = (ht_axis){.logarithmic = chart->y_log};
    /* All zero: a logarithmic axis could not show it. */
    if (!any_drawn(p, x)) p->field.y.logarithmic = false;
    memset(p->views, 0, chart->series_count * sizeof *p->views);
    clip_outliers(p, x);
    for (size_t s = 0; s < chart->series_count; s++)
        for (size_t i = 0; i < chart->series[s].count; i++) {
            if (!drawn_at(chart, &p->field, s, i, x)) continue;
            widen(&across, chart->series[s].x[i]);
            if (!p->views[s].clipped) widen(&up, chart->series[s].y[i]);
        }
    bool any = across.low <= across.high;
    if (chart->level_name && ht_axis_holds(&p->field.y, chart->level)) widen(&up, chart->level);
    p->field.x.low = across.low, p->field.x.high = across.high;
    p->field.y.low = up.low, p->field.y.high = up.high;
    return any;
}

/* ---- curves that coincide ---- */

static double height_at(const ht_plot_field *f, double y)
{
    return fmin(f->y.from, fmax(f->y.to, ht_axis_place(&f->y, y)));
}

/* Can a reader not see two lines? */
static bool coincide(const line_plot *p, size_t one, size_t other)
{
    enum { PIXELS = 2 };
    const ht_series *a = &p->chart->series[one], *b = &p->chart->series[other];
    size_t near = 0, all = 0;
    if (a->count != b->count || a->line == HT_LINE_REFERENCE || b->line == HT_LINE_REFERENCE) return false;
    for (size_t i = 0; i < a->count; i++) {
        if (a->x[i] != b->x[i]) return false;
        if (!ht_axis_holds(&p->field.y, a->y[i]) || !ht_axis_holds(&p->field.y, b->y[i])) continue;
        all++;
        near += fabs(height_at(&p->field, a->y[i]) - height_at(&p->field, b->y[i])) <= PIXELS;
    }
    return all > 0 && 5 * near >= 4 * all;
}

static void find_ropes(line_plot *p)
{
    size_t count = p->chart->series_count;
    for (size_t s = 0; s < count; s++) {
        size_t first = 0;
        while (first < s && (p->views[first].first != first || !coincide(p, first, s))) first++;
        p->views[s].first = first;
        p->views[s].turn = first == s ? 0 : p->views[first].rope++;
        if (first == s) p->views[s].rope = 1;
    }
    for (size_t s = 0; s < count; s++) p->views[s].rope = p->views[p->views[s].first].rope;
}

/* ---- drawing ---- */

static void add_point(ht_text *page, const ht_plot_field *f, double x, double y, bool *pen_down)
{
    ht_text_add(page, *pen_down ? "L" : "M");
    ht_page_coordinate(page, ht_axis_place(&f->x, x));
    ht_text_add(page, " ");
    ht_page_coordinate(page, height_at(f, y));
    /* A point by itself is a dot. */
    if (!*pen_down) ht_text_add(page, "h0");
    *pen_down = true;
}

/* Of neighbouring points that share a pixel only the lowest and the highest can be seen. */
static void add_neighbours(ht_text *page, const ht_plot_field *f, const ht_series *s, size_t first, size_t end,
                           bool *pen_down)
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

/* "c3", "c3 dashed", "reference": what the style knows. In a rope the dashes are those of the rope. */
static void series_class(char class[32], const ht_chart *chart, size_t series, bool in_rope)
{
    ht_line how = chart->series[series].line;
    size_t colour = 0;
    for (size_t s = 0; s < series; s++) colour += chart->series[s].line != HT_LINE_REFERENCE;
    if (how == HT_LINE_REFERENCE)
        snprintf(class, 32, "reference");
    else
        snprintf(class, 32, "c%zu%s", colour % HT_COLOURS,
                 !in_rope && (how == HT_LINE_DASHED || colour >= HT_COLOURS) ? " dashed" : "");
}

static void draw_series(ht_text *page, const line_plot *p, size_t series, size_t most_points)
{
    const ht_series *s = &p->chart->series[series];
    const series_view *view = &p->views[series];
    size_t stride = s->count / most_points + 1;
    char class[32];
    bool pen_down = false;
    series_class(class, p->chart, series, view->turn > 0);
    ht_text_add(page, "<path class=\"curve %s\"", class);
    if (view->turn > 0)
        ht_text_add(page, " stroke-dasharray=\"%d %zu\" stroke-dashoffset=\"-%zu\"", DASH, DASH * (view->rope - 1),
                    DASH * view->turn);
    ht_text_add(page, " d=\"");
    for (size_t i = 0; i < s->count; i += stride)
        add_neighbours(page, &p->field, s, i, i + stride < s->count ? i + stride : s->count, &pen_down);
    ht_text_add(page, "\"/>\n");
}

/* References lie below all others. */
static void draw_curves(ht_text *page, const line_plot *p, size_t most_points)
{
    const ht_plot_field *f = &p->field;
    for (int reference = 1; reference >= 0; reference--)
        for (size_t s = 0; s < p->chart->series_count; s++)
            if ((p->chart->series[s].line == HT_LINE_REFERENCE) == reference) draw_series(page, p, s, most_points);
    if (!p->chart->level_name || !ht_axis_holds(&f->y, p->chart->level)) return;
    double y = ht_axis_place(&f->y, p->chart->level);
    ht_svg_line(page, "level", f->x.from, y, f->x.to, y);
}

/* The last point of a series whose x lies in from..to; count: none. */
static size_t last_point(const ht_series *s, const ht_axis *x, double from, double to)
{
    size_t found = s->count;
    for (size_t i = 0; i < s->count; i++) {
        double at = ht_axis_holds(x, s->x[i]) ? ht_axis_place(x, s->x[i]) : -1;
        if (at >= from && at < to && isfinite(s->y[i])) found = i;
    }
    return found;
}

/* Strips that a pointer finds: the values of all series there. */
static void draw_hover(ht_text *page, const line_plot *p, size_t strips)
{
    const ht_plot_field *f = &p->field;
    double width = (f->x.to - f->x.from) / (double)strips;
    for (size_t k = 0; k < strips; k++) {
        double from = f->x.from + width * (double)k, shown = NAN;
        ht_text title = {0};
        for (size_t s = 0; s < p->chart->series_count; s++) {
            const ht_series *series = &p->chart->series[s];
            size_t i = last_point(series, &f->x, from, from + width + (k + 1 == strips));
            if (i == series->count) continue;
            if (series->x[i] != shown) {
                ht_text_add(&title, "%s%s ", title.length ? "\n" : "", p->chart->x_label ? p->chart->x_label : "x");
                ht_axis_number(&title, shown = series->x[i]);
            }
            ht_text_add(&title, "\n%s: ", series->name);
            ht_axis_number(&title, series->y[i]);
        }
        if (title.failed) page->failed = true;
        if (title.data && !title.failed)
            ht_svg_box(page, "hover", from, f->y.to, width, f->y.from - f->y.to, title.data);
        ht_text_free(&title);
    }
}

static void draw_field(ht_text *page, line_plot *p, const ht_canvas *canvas, double top, double bottom)
{
    ht_axis_settle(&p->field.x, canvas->x_ticks);
    ht_axis_settle(&p->field.y, canvas->y_ticks);
    ht_plot_field_place(&p->field, canvas, top, bottom);
    find_ropes(p);
    ht_svg_axes(page, &p->field);
    ht_svg_labels(page, &p->field, p->chart->x_label, p->chart->y_label);
    draw_curves(page, p, canvas->most_points);
    draw_hover(page, p, canvas->hover_strips);
}

/* ---- the legend ---- */

static void series_note(char note[NOTE], const line_plot *p, size_t series)
{
    const series_view *view = &p->views[series];
    double most = -INFINITY, least = INFINITY;
    note[0] = '\0';
    for (size_t i = 0; i < p->chart->series[series].count; i++) {
        if (!isfinite(p->chart->series[series].y[i])) continue;
        most = fmax(most, p->chart->series[series].y[i]);
        least = fmin(least, p->chart->series[series].y[i]);
    }
    if (view->clipped && most > p->field.y.high)
        snprintf(note, NOTE, "(leaves the chart: up to %.4g)", most);
    else if (view->clipped)
        snprintf(note, NOTE, "(leaves the chart: down to %.4g)", least);
    else if (view->turn > 0)
        snprintf(note, NOTE, "(coincides with %s)", p->chart->series[view->first].name);
}

static void add_legend(ht_text *legend, const line_plot *p)
{
    for (size_t s = 0; s < p->chart->series_count; s++) {
        char class[32], note[NOTE];
        series_class(class, p->chart, s, false);
        series_note(note, p, s);
        ht_legend_entry(legend, class, p->chart->series[s].name, note);
    }
    if (p->chart->level_name) ht_legend_entry(legend, "level", p->chart->level_name, NULL);
}

/* ---- the chart ---- */

static void draw_canvas(ht_text *page, ht_text *legend, line_plot *p, const ht_canvas *canvas)
{
    range zoom = {p->chart->zoom_from, p->chart->zoom_to};
    bool zooms = zoom.low < zoom.high && measure(p, zoom);
    double below = zooms ? 0.7 * canvas->height : 0;
    ht_svg_open(page, canvas, p->chart->title, canvas->height + below);
    measure(p, (range){-INFINITY, INFINITY});
    draw_field(page, p, canvas, 0, canvas->height);
    if (legend) add_legend(legend, p);
    if (zooms) {
        ht_text_add(page, "<g class=\"zoom\">\n");
        measure(p, zoom);
        draw_field(page, p, canvas, canvas->height, canvas->height + below);
        ht_text_add(page, "</g>\n");
    }
    ht_svg_close(page);
}

void ht_report_chart(ht_report *report, const ht_chart *chart)
{
    ht_text *page = &report->page, legend = {0};
    line_plot p = {.chart = chart, .views = calloc(chart->series_count + 1, sizeof *p.views)};
    if (!p.views) {
        page->failed = true;
        return;
    }
    ht_figure_open(page, chart->title);
    for (int i = 0; i < HT_CANVASES; i++) draw_canvas(page, i == 0 ? &legend : NULL, &p, &ht_canvases[i]);
    ht_figure_close(page, &legend);
    ht_text_free(&legend);
    free(p.views);
}
