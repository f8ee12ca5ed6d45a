/* A roofline as SVG, on a page or as a file by itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

enum { LEGEND_COLUMN = 190 };
static const char x_label[] = "FLOPs per byte", y_label[] = "FLOP/s";

static void widen(ht_axis *axis, double value)
{
    if (!isfinite(value) || value <= 0) return;
    if (!(axis->low > 0) || value < axis->low) axis->low = value;
    if (value > axis->high) axis->high = value;
}

/* From one power of ten to another, so that ticks are powers of ten. */
static void round_outwards(ht_axis *axis)
{
    if (!(axis->low > 0)) return;
    axis->low = pow(10, floor(log10(axis->low)));
    axis->high = pow(10, ceil(log10(axis->high)));
}

/* Around all points and the ridges of all roofs. */
static void measure(ht_plot_field *f, const ht_roofline_chart *r)
{
    *f = (ht_plot_field){.x.logarithmic = true, .y.logarithmic = true};
    for (size_t i = 0; i < r->point_count; i++) {
        widen(&f->x, r->points[i].intensity / 2);
        widen(&f->x, r->points[i].intensity * 2);
        widen(&f->y, r->points[i].flops / 2);
    }
    for (size_t i = 0; i < r->roof_count; i++) {
        double ridge = r->roofs[i].flops / r->roofs[i].bandwidth;
        widen(&f->x, ridge / 8);
        widen(&f->x, ridge * 8);
        widen(&f->y, r->roofs[i].flops / 16);
        widen(&f->y, r->roofs[i].flops * 1.5);
    }
    round_outwards(&f->x);
    round_outwards(&f->y);
}

static void add_place(ht_text *page, const ht_plot_field *f, const char *before, double x, double y)
{
    ht_text_add(page, "%s", before);
    ht_page_coordinate(page, ht_axis_place(&f->x, x));
    ht_text_add(page, " ");
    ht_page_coordinate(page, ht_axis_place(&f->y, y));
}

static void draw_roof(ht_text *page, const ht_plot_field *f, const ht_roof *roof, size_t colour)
{
    double ridge = roof->flops / roof->bandwidth, from = fmax(f->x.low, f->y.low / roof->bandwidth);
    ht_text_add(page, "<path class=\"curve c%zu%s\" d=\"", colour % HT_COLOURS, roof->dashed ? " dashed" : "");
    if (ridge > from) add_place(page, f, "M", from, from * roof->bandwidth);
    add_place(page, f, ridge > from ? "L" : "M", fmax(ridge, f->x.low), roof->flops);
    add_place(page, f, "L", f->x.high, roof->flops);
    ht_text_add(page, "\" data-s=\"%zu\"><title>", colour);
    ht_page_text(page, roof->name);
    ht_text_add(page, "</title></path>\n");
}

/* The number of the point's name among all names. */
static size_t name_number(const ht_roofline_chart *r, size_t point)
{
    size_t number = 0;
    for (size_t i = 1; i <= point; i++) number += strcmp(r->points[i].name, r->points[i - 1].name) != 0;
    return number;
}

static void mark_class(char class[32], size_t number, const char *kind)
{
    static const char *const forms[] = {"", " hollow", " ringed", " cored"};
    snprintf(class, 32, "%s c%zu%s", kind, number % HT_COLOURS, forms[number / HT_COLOURS % 4]);
}

static void draw_point(ht_text *page, const ht_plot_field *f, const ht_roofline_chart *r, size_t i)
{
    const ht_roofline_point *p = &r->points[i];
    char class[32];
    if (!(p->intensity > 0) || !(p->flops > 0)) return;
    mark_class(class, name_number(r, i), "mark");
    ht_text_add(page, "<circle class=\"%s\" data-s=\"%zu\" r=\"4\" cx=\"", class, r->roof_count + name_number(r, i));
    ht_page_coordinate(page, ht_axis_place(&f->x, p->intensity));
    ht_text_add(page, "\" cy=\"");
    ht_page_coordinate(page, ht_axis_place(&f->y, p->flops));
    ht_text_add(page, "\"><title>");
    ht_page_text(page, p->name);
    ht_text_add(page, "%s", p->detail ? ", " : "");
    ht_page_text(page, p->detail ? p->detail : "");
    ht_text_add(page, ": %.3g FLOP/s, %.3g FLOPs per byte</title></circle>\n", p->flops, p->intensity);
}

static void draw(ht_text *page, const ht_roofline_chart *r, const ht_canvas *canvas)
{
    ht_plot_field field;
    measure(&field, r);
    ht_axis_settle(&field.x, canvas->x_ticks);
    ht_axis_settle(&field.y, canvas->y_ticks);
    ht_plot_field_place(&field, canvas, 0, canvas->height);
    ht_svg_field_open(page, &field);
    ht_svg_axes(page, &field);
    ht_svg_curves_open(page);
    for (size_t i = 0; i < r->roof_count; i++) draw_roof(page, &field, &r->roofs[i], i);
    for (size_t i = 0; i < r->point_count; i++) draw_point(page, &field, r, i);
    ht_svg_curves_close(page);
    ht_svg_labels(page, &field, x_label, y_label);
    ht_svg_field_close(page);
}

/* ---- on a page ---- */

static bool begins_name(const ht_roofline_chart *r, size_t i)
{
    return i == 0 || strcmp(r->points[i].name, r->points[i - 1].name) != 0;
}

static void add_legend(ht_text *legend, const ht_roofline_chart *r)
{
    char class[32];
    for (size_t i = 0; i < r->roof_count; i++) {
        snprintf(class, sizeof class, "c%zu%s", i % HT_COLOURS, r->roofs[i].dashed ? " dashed" : "");
        ht_legend_entry(legend, (int)i, class, r->roofs[i].name, NULL);
    }
    for (size_t i = 0; i < r->point_count; i++) {
        if (!begins_name(r, i)) continue;
        mark_class(class, name_number(r, i), "dot");
        ht_legend_entry(legend, (int)(r->roof_count + name_number(r, i)), class, r->points[i].name, NULL);
    }
}

/* A roof has a bend, and is drawn across the whole field. */
static void add_roof_data(ht_chart_data *data, const ht_plot_field *f, const ht_roof *roof, size_t colour)
{
    double ridge = roof->flops / roof->bandwidth, x[] = {f->x.low, ridge, f->x.high},
           y[] = {f->x.low * roof->bandwidth, roof->flops, roof->flops};
    bool slopes = ridge > f->x.low;
    ht_buckets line = {.count = slopes ? 3 : 2, .x = slopes ? x : x + 1, .middle = slopes ? y : y + 1};
    char class[32];
    if (!slopes) x[1] = f->x.low;
    snprintf(class, sizeof class, "c%zu%s", colour % HT_COLOURS, roof->dashed ? " dashed" : "");
    ht_chart_data_series(data, roof->name, class, &line);
}

static void add_data(ht_report *report, const ht_roofline_chart *r)
{
    ht_chart_data data;
    ht_plot_field field;
    char class[32];
    measure(&field, r);
    ht_chart_data_open(&data, x_label, y_label);
    for (size_t i = 0; i < r->roof_count; i++) add_roof_data(&data, &field, &r->roofs[i], i);
    for (size_t i = 0, end; i < r->point_count; i = end) {
        for (end = i + 1; end < r->point_count && !begins_name(r, end);) end++;
        mark_class(class, name_number(r, i), "mark");
        ht_chart_data_marks(&data, r->points[i].name, class, r->points + i, end - i);
    }
    ht_chart_data_close(&data, report, NAN);
}

void ht_report_roofline(ht_report *report, const ht_roofline_chart *r)
{
    ht_text *page = &report->page, legend = {0};
    ht_figure_open(page, r->title);
    for (int i = 0; i < HT_CANVASES; i++) {
        ht_svg_open(page, &ht_canvases[i], r->title, ht_canvases[i].height);
        draw(page, r, &ht_canvases[i]);
        ht_svg_close(page);
    }
    add_data(report, r);
    add_legend(&legend, r);
    ht_figure_close(page, &legend);
    ht_text_free(&legend);
}

/* ---- a file by itself: the legend is part of the picture ---- */

typedef struct legend_place {
    double x, y, width;
} legend_place;

static void next_place(legend_place *place)
{
    place->x += LEGEND_COLUMN;
    if (place->x + LEGEND_COLUMN <= place->width) return;
    place->x = HT_LINE_PIXELS;
    place->y += 1.25 * HT_LINE_PIXELS;
}

static void draw_legend(ht_text *text, const ht_roofline_chart *r, legend_place place)
{
    char class[32];
    for (size_t i = 0; i < r->roof_count; i++, next_place(&place)) {
        snprintf(class, sizeof class, "curve c%zu", i % HT_COLOURS);
        ht_svg_line(text, class, place.x, place.y - 4, place.x + HT_LINE_PIXELS, place.y - 4);
        ht_svg_text(text, place.x + 1.4 * HT_LINE_PIXELS, place.y, "start", r->roofs[i].name);
    }
    for (size_t i = 0; i < r->point_count; i++) {
        if (!begins_name(r, i)) continue;
        mark_class(class, name_number(r, i), "mark");
        ht_text_add(text, "<circle class=\"%s\" r=\"4\" cx=\"", class);
        ht_page_coordinate(text, place.x + HT_LINE_PIXELS / 2.0);
        ht_text_add(text, "\" cy=\"");
        ht_page_coordinate(text, place.y - 4);
        ht_text_add(text, "\"/>\n");
        ht_svg_text(text, place.x + 1.4 * HT_LINE_PIXELS, place.y, "start", r->points[i].name);
        next_place(&place);
    }
}

void ht_roofline_chart_svg(ht_text *text, const ht_roofline_chart *r)
{
    const ht_canvas *canvas = &ht_canvases[0];
    size_t names = r->point_count ? name_number(r, r->point_count - 1) + 1 : 0,
           columns = (size_t)(canvas->width - HT_LINE_PIXELS) / LEGEND_COLUMN;
    size_t lines = (r->roof_count + names) / columns + 2;
    double legend = 1.25 * HT_LINE_PIXELS * (double)lines;
    ht_text_add(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n<title>",
                (int)canvas->width, (int)ceil(canvas->height + legend), (int)canvas->width);
    ht_page_text(text, r->title ? r->title : "roofline");
    ht_text_add(text, "</title>\n<style>\nsvg{--bg:#fff;--soft:#555d66;--grid:#e6e8eb;--frame:#8a929a;--grey:#8f979f;"
                      "background:var(--bg)}svg text{font:12px system-ui,sans-serif;fill:var(--soft)}\n" HT_COLOUR_STYLE
                      "@media(prefers-color-scheme:dark){svg{--bg:#16191d;--soft:#b0b7bf;--grid:#2a3037;"
                      "--frame:#7d858e}" HT_DARK_COLOUR_STYLE "}\n" HT_CURVE_STYLE "</style>\n");
    draw(text, r, canvas);
    draw_legend(text, r, (legend_place){HT_LINE_PIXELS, canvas->height + 1.25 * HT_LINE_PIXELS, canvas->width});
    ht_text_add(text, "</svg>\n");
}
