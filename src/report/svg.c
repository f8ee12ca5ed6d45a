/* Pieces of pictures: text, lines, boxes, axes, legends. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

enum { AXIS_LABEL = 20, TICK_GAP = 8, TICK_LINE = 16, EDGE = 10 };

const ht_canvas ht_canvases[HT_CANVASES] = {
    {.class = "wide", .width = 800, .height = 400, .x_ticks = 8, .y_ticks = 6, .most_buckets = 600, .hover_strips = 50},
    {.class = "narrow",
     .width = 360,
     .height = 280,
     .x_ticks = 4,
     .y_ticks = 5,
     .most_buckets = 175,
     .hover_strips = 25},
};

/* Generous: a reader's font is not known here. */
double ht_text_pixels(const char *text)
{
    double characters = 0;
    for (; *text; text++) characters += ((unsigned char)*text & 0xc0) != 0x80;
    return 7.4 * characters;
}

void ht_svg_text(ht_text *page, double x, double y, const char *anchor, const char *text)
{
    ht_text_add(page, "<text x=\"");
    ht_page_coordinate(page, x);
    ht_text_add(page, "\" y=\"");
    ht_page_coordinate(page, y);
    ht_text_add(page, "\" text-anchor=\"%s\">", anchor);
    ht_page_text(page, text);
    ht_text_add(page, "</text>\n");
}

static void add_sizes(ht_text *page, const char *const names[4], const double sizes[4])
{
    for (int i = 0; i < 4; i++) {
        ht_text_add(page, " %s=\"", names[i]);
        ht_page_coordinate(page, sizes[i]);
        ht_text_add(page, "\"");
    }
}

void ht_svg_line(ht_text *page, const char *class, double x1, double y1, double x2, double y2)
{
    static const char *const names[] = {"x1", "y1", "x2", "y2"};
    ht_text_add(page, "<line class=\"%s\"", class);
    add_sizes(page, names, (const double[]){x1, y1, x2, y2});
    ht_text_add(page, "/>\n");
}

void ht_svg_box(ht_text *page, const char *class, double x, double y, double width, double height, const char *title)
{
    static const char *const names[] = {"x", "y", "width", "height"};
    ht_text_add(page, "<rect class=\"%s\"", class);
    add_sizes(page, names, (const double[]){x, y, width, height});
    if (title) {
        ht_text_add(page, "><title>");
        ht_page_text(page, title);
        ht_text_add(page, "</title></rect>\n");
    } else {
        ht_text_add(page, "/>\n");
    }
}

/* ---- pictures ---- */

void ht_figure_open(ht_text *page, const char *title)
{
    ht_page_heading(page, title);
    ht_text_add(page, "<figure>\n");
}

void ht_svg_open(ht_text *page, const ht_canvas *canvas, const char *title, double height)
{
    ht_text_add(page, "<svg class=\"%s\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", canvas->class,
                (int)canvas->width, (int)ceil(height));
    ht_page_text(page, title ? title : "chart");
    ht_text_add(page, "\">\n");
}

void ht_svg_close(ht_text *page)
{
    ht_text_add(page, "</svg>\n");
}

void ht_figure_close(ht_text *page, const ht_text *legend)
{
    if (legend && legend->failed) page->failed = true;
    if (legend && legend->data) ht_text_add(page, "<figcaption>%s</figcaption>\n", legend->data);
    ht_text_add(page, "</figure>\n");
}

void ht_legend_entry(ht_text *legend, int series, const char *class, const char *name, const char *note)
{
    ht_text_add(legend, "<span");
    if (series >= 0) ht_text_add(legend, " data-s=\"%d\"", series);
    ht_text_add(legend, "><i class=\"%s\"></i>", class);
    ht_page_text(legend, name);
    if (note && *note) {
        ht_text_add(legend, " <small>");
        ht_page_text(legend, note);
        ht_text_add(legend, "</small>");
    }
    ht_text_add(legend, "</span>\n");
}

/* ---- axes ---- */

void ht_plot_field_place(ht_plot_field *field, const ht_canvas *canvas, double top, double bottom)
{
    double x_label = 7.4 * ht_axis_tick_length(&field->x);
    field->x.from = AXIS_LABEL + TICK_GAP + 7.4 * ht_axis_tick_length(&field->y);
    field->x.to = canvas->width - fmax(EDGE, x_label / 2);
    field->y.from = bottom - AXIS_LABEL - TICK_LINE;
    field->y.to = top + EDGE;
}

/* Every how many ticks a label has space beside the one before. */
static int label_stride(const ht_axis *axis, double space)
{
    int stride = 1;
    for (bool fits = false; !fits && stride < axis->tick_count; stride += !fits) {
        fits = true;
        for (int i = stride; i < axis->tick_count; i += stride) {
            double apart = fabs(ht_axis_place(axis, axis->ticks[i]) - ht_axis_place(axis, axis->ticks[i - stride]));
            fits = fits && apart >= space;
        }
    }
    return stride;
}

static void add_tick(ht_text *page, const ht_axis *axis, int tick, double x, double y, const char *anchor)
{
    ht_text number = {0};
    ht_axis_tick(&number, axis, tick);
    ht_svg_text(page, x, y, anchor, number.data ? number.data : "");
    ht_text_free(&number);
}

static void add_axis(ht_text *page, const char *name, const ht_axis *axis)
{
    ht_text_add(page, " data-%s=\"", name);
    ht_page_coordinate(page, axis->from);
    ht_text_add(page, " ");
    ht_page_coordinate(page, axis->to);
    ht_text_add(page, " ");
    ht_text_number(page, axis->low);
    ht_text_add(page, " ");
    ht_text_number(page, axis->high);
    ht_text_add(page, " %d\"", axis->logarithmic);
}

void ht_svg_field_open(ht_text *page, const ht_plot_field *f)
{
    ht_text_add(page, "<g class=\"field\"");
    add_axis(page, "x", &f->x);
    add_axis(page, "y", &f->y);
    ht_text_add(page, ">\n<g class=\"axes\">\n");
}

void ht_svg_curves_open(ht_text *page)
{
    ht_text_add(page, "</g>\n<g class=\"curves\">\n");
}

void ht_svg_curves_close(ht_text *page)
{
    ht_text_add(page, "</g>\n");
}

void ht_svg_field_close(ht_text *page)
{
    ht_text_add(page, "</g>\n");
}

void ht_svg_axes(ht_text *page, const ht_plot_field *f)
{
    int stride = label_stride(&f->x, 7.4 * (ht_axis_tick_length(&f->x) + 1));
    for (int i = 0; i < f->x.tick_count; i++) {
        double x = ht_axis_place(&f->x, f->x.ticks[i]);
        ht_svg_line(page, "grid", x, f->y.from, x, f->y.to);
        if (i % stride == 0) add_tick(page, &f->x, i, x, f->y.from + TICK_LINE, "middle");
    }
    stride = label_stride(&f->y, HT_LINE_PIXELS);
    for (int i = 0; i < f->y.tick_count; i++) {
        double y = ht_axis_place(&f->y, f->y.ticks[i]);
        ht_svg_line(page, "grid", f->x.from, y, f->x.to, y);
        if (i % stride == 0) add_tick(page, &f->y, i, f->x.from - TICK_GAP, y + 4, "end");
    }
    ht_svg_box(page, "frame", f->x.from, f->y.to, f->x.to - f->x.from, f->y.from - f->y.to, NULL);
}

void ht_svg_labels(ht_text *page, const ht_plot_field *f, const char *x_label, const char *y_label)
{
    if (x_label)
        ht_svg_text(page, (f->x.from + f->x.to) / 2, f->y.from + TICK_LINE + AXIS_LABEL - 3, "middle", x_label);
    if (!y_label) return;
    ht_text_add(page, "<text transform=\"translate(13 ");
    ht_page_coordinate(page, (f->y.from + f->y.to) / 2);
    ht_text_add(page, ") rotate(-90)\" text-anchor=\"middle\">");
    ht_page_text(page, y_label);
    ht_text_add(page, "</text>\n");
}
