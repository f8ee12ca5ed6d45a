/* Line charts. Colours are those of Okabe and Ito, which people who see fewer colours can tell apart; lines beyond the
 * eighth are dashed. Curves that coincide are drawn as a rope of their colours. A series that would flatten all others
 * leaves the chart at its edge, and the legend says so. One that has more points than can be seen is drawn in buckets. */
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
    ht_buckets *buckets; /* by series, of the x that the field shows */
    bool failed;
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

static double on_scale(const ht_axis *axis, double value)
{
    return axis->logarithmic ? log(value) : value;
}

/* Of the series that are not clipped, but for `without`; on the axis's scale. */
static range range_without(const line_plot *p, size_t without)
{
    range all = no_range();
    for (size_t s = 0; s < p->chart->series_count; s++) {
        const ht_buckets *b = &p->buckets[s];
        for (size_t i = 0; s != without && !p->views[s].clipped && i < b->count; i++) {
            if (isnan(b->middle[i])) continue;
            widen(&all, on_scale(&p->field.y, b->low[i]));
            widen(&all, on_scale(&p->field.y, b->high[i]));
        }
    }
    return all;
}

/* Does most of the series lie far from the range? */
static bool lies_outside(const line_plot *p, size_t series, range others)
{
    double span = others.high - others.low;
    const ht_buckets *b = &p->buckets[series];
    size_t outside = 0, all = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (isnan(b->middle[i])) continue;
        double y = on_scale(&p->field.y, b->middle[i]);
        outside += y > others.high + span || y < others.low - span;
        all++;
    }
    return 2 * outside > all;
}

/* One bad run must not flatten the others: a series without which the axis would be several times shorter is clipped, as
 * long as half of the series stay. */
static void clip_outliers(line_plot *p)
{
    size_t count = p->chart->series_count;
    for (size_t left = count; count > 1 && 2 * (left - 1) >= count; left--) {
        range all = range_without(p, count), best = no_range();
        size_t worst = count;
        double factor = p->field.y.logarithmic ? 20 : 4;
        for (size_t s = 0; s < count; s++) {
            range rest = range_without(p, s);
            double span = rest.high - rest.low;
            if (p->views[s].clipped || !(span > 0) || span * factor >= all.high - all.low) continue;
            if (!lies_outside(p, s, rest) || (worst < count && span >= best.high - best.low)) continue;
            worst = s;
            best = rest;
        }
        if (worst == count) return;
        p->views[worst].clipped = true;
    }
}

/* False: the axes can show none of them. */
static bool make_buckets(line_plot *p, range x, size_t most)
{
    bool any = false;
    for (size_t s = 0; s < p->chart->series_count; s++) {
        ht_buckets *b = &p->buckets[s];
        ht_buckets_free(b);
        p->failed |= !ht_buckets_make(b, &p->chart->series[s], &p->field, x.low, x.high, most);
        for (size_t i = 0; i < b->count && !any; i++) any = !isnan(b->middle[i]);
    }
    return any;
}

/* Buckets and both axes of all points whose x lies in the range. False: there are none. */
static bool measure(line_plot *p, range x, size_t most)
{
    const ht_chart *chart = p->chart;
    range across = no_range(), up = no_range();
    p->field.x = (ht_axis){.logarithmic = chart->x_log};
    p->field.y = (ht_axis){.logarithmic = chart->y_log};
    if (!make_buckets(p, x, most)) {
        /* All zero: a logarithmic axis could not show it. */
        p->field.y.logarithmic = false;
        make_buckets(p, x, most);
    }
    memset(p->views, 0, chart->series_count * sizeof *p->views);
    if (!chart->whole) clip_outliers(p);
    for (size_t s = 0; s < chart->series_count; s++)
        for (size_t i = 0; i < p->buckets[s].count; i++) {
            const ht_buckets *b = &p->buckets[s];
            if (isnan(b->middle[i])) continue;
            widen(&across, b->x[i]);
            if (!p->views[s].clipped) widen(&up, b->low[i]), widen(&up, b->high[i]);
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
    const ht_series *series = p->chart->series;
    const ht_buckets *a = &p->buckets[one], *b = &p->buckets[other];
    size_t near = 0, all = 0;
    if (a->count != b->count) return false;
    if (series[one].line == HT_LINE_REFERENCE || series[other].line == HT_LINE_REFERENCE) return false;
    for (size_t i = 0; i < a->count; i++) {
        if (a->x[i] != b->x[i]) return false;
        if (isnan(a->middle[i]) || isnan(b->middle[i])) continue;
        all++;
        near += fabs(height_at(&p->field, a->middle[i]) - height_at(&p->field, b->middle[i])) <= PIXELS;
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

/* A series in buckets has many points. */
static void add_place(ht_text *page, const ht_plot_field *f, double x, double y, bool tenths)
{
    void (*add)(ht_text *, double) = tenths ? ht_page_tenths : ht_page_coordinate;
    add(page, ht_axis_place(&f->x, x));
    ht_text_add(page, " ");
    add(page, height_at(f, y));
}

static void add_line(ht_text *page, const ht_plot_field *f, const ht_buckets *b)
{
    bool pen_down = false;
    for (size_t i = 0; i < b->count; i++) {
        bool drawn = !isnan(b->middle[i]);
        if (drawn) ht_text_add(page, pen_down ? "L" : "M");
        if (drawn) add_place(page, f, b->x[i], b->middle[i], b->some);
        /* A point by itself is a dot. */
        if (drawn && !pen_down) ht_text_add(page, "h0");
        pen_down = drawn;
    }
}

/* "c3", "c3 dashed", "reference", with "alone" for one point: what the style knows. In a rope the dashes are those of the rope. */
static void series_class(char class[32], const ht_chart *chart, size_t series, bool in_rope)
{
    ht_line how = chart->series[series].line;
    const char *alone = chart->series[series].count == 1 ? " alone" : "";
    size_t colour = 0;
    for (size_t s = 0; s < series; s++) colour += chart->series[s].line != HT_LINE_REFERENCE;
    if (how == HT_LINE_REFERENCE)
        snprintf(class, 32, "reference%s", alone);
    else
        snprintf(class, 32, "c%zu%s%s", colour % HT_COLOURS,
                 !in_rope && (how == HT_LINE_DASHED || colour >= HT_COLOURS) ? " dashed" : "", alone);
}

/* From the least to the greatest values: along one, back along the other, for each piece of the line. */
static void draw_band(ht_text *page, const line_plot *p, size_t series)
{
    const ht_plot_field *f = &p->field;
    const ht_buckets *b = &p->buckets[series];
    char class[32];
    series_class(class, p->chart, series, true);
    ht_text_add(page, "<path class=\"band %s%s\" d=\"", p->chart->series_count > 3 ? "faint " : "", class);
    for (size_t first = 0, end; first < b->count; first = end + 1) {
        for (end = first; end < b->count && !isnan(b->middle[end]);) end++;
        for (size_t i = first; i < end; i++) {
            ht_text_add(page, i == first ? "M" : "L");
            add_place(page, f, b->x[i], b->high[i], true);
        }
        for (size_t i = end; i-- > first;) {
            ht_text_add(page, "L");
            add_place(page, f, b->x[i], b->low[i], true);
        }
        if (first < end) ht_text_add(page, "Z");
    }
    ht_text_add(page, "\" data-s=\"%zu\"/>\n", series);
}

static void draw_series(ht_text *page, const line_plot *p, size_t series)
{
    const series_view *view = &p->views[series];
    const ht_buckets *b = &p->buckets[series];
    char class[32];
    series_class(class, p->chart, series, view->turn > 0);
    ht_text_add(page, "<path class=\"curve %s\"", class);
    if (view->turn > 0)
        ht_text_add(page, " stroke-dasharray=\"%d %zu\" stroke-dashoffset=\"-%zu\"", DASH, DASH * (view->rope - 1),
                    DASH * view->turn);
    ht_text_add(page, " d=\"");
    add_line(page, &p->field, b);
    ht_text_add(page, "\" data-s=\"%zu\"/>\n", series);
}

/* Bands lie below lines, and references below all others. */
static void draw_curves(ht_text *page, const line_plot *p)
{
    const ht_plot_field *f = &p->field;
    for (size_t s = 0; s < p->chart->series_count; s++)
        if (p->buckets[s].some) draw_band(page, p, s);
    for (int reference = 1; reference >= 0; reference--)
        for (size_t s = 0; s < p->chart->series_count; s++)
            if ((p->chart->series[s].line == HT_LINE_REFERENCE) == reference) draw_series(page, p, s);
    if (!p->chart->level_name || !ht_axis_holds(&f->y, p->chart->level)) return;
    double y = ht_axis_place(&f->y, p->chart->level);
    ht_svg_line(page, "level", f->x.from, y, f->x.to, y);
}

/* The last point of a series whose x lies in from..to; count: none. */
static size_t last_point(const ht_buckets *b, const ht_axis *x, double from, double to)
{
    size_t found = b->count;
    for (size_t i = 0; i < b->count; i++) {
        double at = ht_axis_place(x, b->x[i]);
        if (at >= from && at < to && !isnan(b->middle[i])) found = i;
    }
    return found;
}

/* Strips that a pointer finds: the values of all series there, for a reader whose browser runs no scripts. */
static void draw_hover(ht_text *page, const line_plot *p, size_t strips)
{
    const ht_plot_field *f = &p->field;
    double width = (f->x.to - f->x.from) / (double)strips;
    for (size_t k = 0; k < strips; k++) {
        double from = f->x.from + width * (double)k, shown = NAN;
        ht_text title = {0};
        for (size_t s = 0; s < p->chart->series_count; s++) {
            const ht_buckets *b = &p->buckets[s];
            size_t i = last_point(b, &f->x, from, from + width + (k + 1 == strips));
            if (i == b->count) continue;
            if (b->x[i] != shown) {
                ht_text_add(&title, "%s%s ", title.length ? "\n" : "", p->chart->x_label ? p->chart->x_label : "x");
                ht_axis_number(&title, shown = b->x[i]);
            }
            ht_text_add(&title, "\n%s: ", p->chart->series[s].name);
            ht_axis_number(&title, b->middle[i]);
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
    ht_svg_field_open(page, &p->field);
    ht_svg_axes(page, &p->field);
    ht_svg_curves_open(page);
    draw_curves(page, p);
    ht_svg_curves_close(page);
    ht_svg_labels(page, &p->field, p->chart->x_label, p->chart->y_label);
    draw_hover(page, p, canvas->hover_strips);
    ht_svg_field_close(page);
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
    if (most < least)
        snprintf(note, NOTE, "(no values)");
    else if (view->clipped && most > p->field.y.high)
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
        ht_legend_entry(legend, (int)s, class, p->chart->series[s].name, note);
    }
    if (p->chart->level_name) ht_legend_entry(legend, -1, "level", p->chart->level_name, NULL);
}

/* ---- the chart ---- */

static void add_data(ht_chart_data *data, const line_plot *p)
{
    for (size_t s = 0; s < p->chart->series_count; s++) {
        char class[32];
        series_class(class, p->chart, s, false);
        ht_chart_data_series(data, p->chart->series[s].name, class, &p->buckets[s]);
    }
}

/* The first, which is the widest, gives legend and data. */
static void draw_canvas(ht_text *page, ht_text *legend, ht_chart_data *data, line_plot *p, const ht_canvas *canvas)
{
    range zoom = {p->chart->zoom_from, p->chart->zoom_to};
    size_t most = canvas->most_buckets,
           wanted = p->chart->most_buckets * canvas->most_buckets / ht_canvases[0].most_buckets;
    if (p->chart->most_buckets && wanted < most) most = wanted > 0 ? wanted : 1;
    bool zooms = zoom.low < zoom.high && measure(p, zoom, most);
    double below = zooms ? 0.7 * canvas->height : 0;
    ht_svg_open(page, canvas, p->chart->title, canvas->height + below);
    measure(p, (range){-INFINITY, INFINITY}, most);
    draw_field(page, p, canvas, 0, canvas->height);
    if (legend) add_legend(legend, p);
    if (data) add_data(data, p);
    if (zooms) {
        ht_text_add(page, "<g class=\"zoom\">\n");
        measure(p, zoom, most);
        draw_field(page, p, canvas, canvas->height, canvas->height + below);
        ht_text_add(page, "</g>\n");
    }
    ht_svg_close(page);
}

void ht_report_chart(ht_report *report, const ht_chart *chart)
{
    ht_text *page = &report->page, legend = {0};
    ht_chart_data data;
    line_plot p = {.chart = chart,
                   .views = calloc(chart->series_count + 1, sizeof *p.views),
                   .buckets = calloc(chart->series_count + 1, sizeof *p.buckets)};
    if (p.views && p.buckets) {
        ht_figure_open(page, chart->title);
        ht_chart_data_open(&data, chart->x_label, chart->y_label);
        for (int i = 0; i < HT_CANVASES; i++)
            draw_canvas(page, i == 0 ? &legend : NULL, i == 0 ? &data : NULL, &p, &ht_canvases[i]);
        ht_chart_data_close(&data, report, chart->level_name ? chart->level : NAN);
        ht_figure_close(page, &legend);
        for (size_t s = 0; s < chart->series_count; s++) ht_buckets_free(&p.buckets[s]);
    }
    page->failed |= p.failed || !p.views || !p.buckets;
    ht_text_free(&legend);
    free(p.views);
    free(p.buckets);
}
