/* Boxes and arrows as SVG, on a page or as a file by itself. */
#include <math.h>

#include "report/page.h"

enum { HEAD_LENGTH = 8, HEAD_WIDTH = 4, BASELINE = 4, NOTE_BASELINE = 8 };

static void add_point(ht_text *page, const char *before, double x, double y)
{
    ht_text_add(page, "%s", before);
    ht_page_coordinate(page, x);
    ht_text_add(page, " ");
    ht_page_coordinate(page, y);
}

/* At the end of the last line. */
static void draw_head(ht_text *page, const ht_diagram_arrow *a)
{
    const double *end = a->points[a->count - 1], *before = a->points[a->count - 2];
    double length = fmax(hypot(end[0] - before[0], end[1] - before[1]), 1e-9);
    double along_x = (end[0] - before[0]) / length, along_y = (end[1] - before[1]) / length;
    double base_x = end[0] - HEAD_LENGTH * along_x, base_y = end[1] - HEAD_LENGTH * along_y;
    ht_text_add(page, "<path class=\"head%s\" d=\"", a->strong ? " strong" : "");
    add_point(page, "M", end[0], end[1]);
    add_point(page, "L", base_x - HEAD_WIDTH * along_y, base_y + HEAD_WIDTH * along_x);
    add_point(page, "L", base_x + HEAD_WIDTH * along_y, base_y - HEAD_WIDTH * along_x);
    ht_text_add(page, "z\"/>\n");
}

static void draw_arrow(ht_text *page, const ht_diagram_arrow *a)
{
    if (a->count < 2) return;
    ht_text_add(page, "<path class=\"arrow%s\" d=\"", a->strong ? " strong" : "");
    for (size_t i = 0; i < a->count; i++) add_point(page, i == 0 ? "M" : "L", a->points[i][0], a->points[i][1]);
    ht_text_add(page, "\"/>\n");
    draw_head(page, a);
    if (!a->label) return;
    if (a->strong) ht_text_add(page, "<g class=\"strong-label\">");
    ht_svg_text(page, a->label_x, a->label_y, "middle", a->label);
    if (a->strong) ht_text_add(page, "</g>\n");
}

static void draw_box(ht_text *page, const ht_diagram_box *b)
{
    static const char *const classes[] = {[HT_BOX_STEP] = "step", [HT_BOX_VALUE] = "value", [HT_BOX_ABSENT] = "absent"};
    ht_svg_box(page, classes[b->kind], b->x, b->y, b->width, b->height, NULL);
    ht_svg_text(page, b->x + b->width / 2, b->y + b->height / 2 + BASELINE, "middle", b->text);
}

static void draw(ht_text *page, const ht_diagram *d)
{
    for (size_t i = 0; i < d->arrow_count; i++) draw_arrow(page, &d->arrows[i]);
    for (size_t i = 0; i < d->box_count; i++) draw_box(page, &d->boxes[i]);
    if (d->note) ht_svg_text(page, d->width / 2, d->height - NOTE_BASELINE, "middle", d->note);
}

void ht_report_diagram(ht_report *report, const ht_diagram *d)
{
    ht_text *page = &report->page;
    ht_figure_open(page, d->title);
    ht_svg_open(page, &(ht_canvas){.class = "diagram", .width = d->width}, d->title, d->height);
    draw(page, d);
    ht_svg_close(page);
    ht_figure_close(page, NULL);
}

void ht_diagram_svg(ht_text *text, const ht_diagram *d)
{
    ht_text_add(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n<title>",
                (int)d->width, (int)ceil(d->height), (int)(1.3 * d->width));
    ht_page_text(text, d->title ? d->title : "diagram");
    ht_text_add(text, "</title>\n<style>\n"
                      "svg{--bg:#fff;--soft:#555d66;--frame:#8a929a;--fill:#f2f4f7;--half:#b3261e;background:var(--bg)}"
                      "svg text{font:12px system-ui,sans-serif;fill:var(--soft)}\n"
                      "@media(prefers-color-scheme:dark){svg{--bg:#16191d;--soft:#b0b7bf;--frame:#7d858e;"
                      "--fill:#22272e;--half:#ff8a80}}\n" HT_DIAGRAM_STYLE "</style>\n");
    draw(text, d);
    ht_text_add(text, "</svg>\n");
}
