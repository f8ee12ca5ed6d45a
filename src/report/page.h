/* What the files of this room share: escaping, coordinates, axes, canvases. */
#ifndef HT_REPORT_PAGE_H
#define HT_REPORT_PAGE_H

#include "report/report.h"

struct ht_report {
    ht_context *ctx;
    ht_text page;
    bool ended;
    bool scripted; /* it has a chart, or refreshes itself */
};

/* The script of pages, as text: a row of ht_page_scripts. */
typedef struct ht_page_script {
    const char *name, *text;
} ht_page_script;
extern const ht_page_script ht_page_scripts[];
extern const size_t ht_page_script_count;

/* Text with what HTML would read as its own written out; control characters become spaces. */
void ht_page_text(ht_text *page, const char *text);
/* A coordinate with two digits behind the point, whatever the locale; one of many with one. */
void ht_page_coordinate(ht_text *page, double x);
void ht_page_tenths(ht_text *page, double x);
/* A heading of the second level; NULL: none. */
void ht_page_heading(ht_text *page, const char *title);

/* Is it a number, perhaps with < before it or % behind it, or the dash of a number that is missing? */
bool ht_cell_is_number(const char *cell);

/* ---- axes ---- */

enum { HT_MOST_TICKS = 24 };

typedef struct ht_axis {
    double low, high; /* of the data */
    bool logarithmic;
    double from, to; /* pixels where low and high lie */
    int tick_count;
    double ticks[HT_MOST_TICKS];
} ht_axis;

/* Widens what is empty or a single value, rounds outwards to ticks where that costs little, chooses about `wanted`
 * ticks: 1, 2 or 5 times a power of ten, on a logarithmic axis powers of ten and, where those are few, 2 and 5 of them, or
 * even steps. */
void ht_axis_settle(ht_axis *axis, int wanted);
double ht_axis_place(const ht_axis *axis, double value);
/* Can the axis show it? */
bool ht_axis_holds(const ht_axis *axis, double value);
/* A number by itself, as short as it can be. */
void ht_axis_number(ht_text *page, double value);
/* The number of a tick, in the notation that all ticks of the axis share. */
void ht_axis_tick(ht_text *page, const ht_axis *axis, int tick);
/* Characters of the longest of them. */
int ht_axis_tick_length(const ht_axis *axis);

/* ---- drawing ---- */

/* A picture is drawn twice, as wide as a page and as wide as a phone, and the page's style shows one of them: so text
 * keeps its size, and each has as many ticks as it can hold. */
typedef struct ht_canvas {
    const char *class;
    double width, height;
    int x_ticks, y_ticks;
    size_t most_buckets, hover_strips;
} ht_canvas;

enum { HT_CANVASES = 2 };
extern const ht_canvas ht_canvases[HT_CANVASES];

/* Pixels between baselines, and of a character at most. */
enum { HT_LINE_PIXELS = 16, HT_COLOURS = 10 };
double ht_text_pixels(const char *text);

/* A field with its two axes. */
typedef struct ht_plot_field {
    ht_axis x, y;
} ht_plot_field;

/* After the axes are settled: gives them their pixels, with space for ticks and labels around, below `top`. */
void ht_plot_field_place(ht_plot_field *field, const ht_canvas *canvas, double top, double bottom);
void ht_svg_axes(ht_text *page, const ht_plot_field *field);
void ht_svg_labels(ht_text *page, const ht_plot_field *field, const char *x_label, const char *y_label);

/* What the page's script reads: the axes of a field, around its axes and curves, each a group. */
void ht_svg_field_open(ht_text *page, const ht_plot_field *field);
void ht_svg_curves_open(ht_text *page);
void ht_svg_curves_close(ht_text *page);
void ht_svg_field_close(ht_text *page);

/* ---- long series ---- */

/* Neighbours of a series: the least, the median and the greatest of them, and the x in their middle; or NAN, where the line
 * is interrupted. */
typedef struct ht_buckets {
    size_t count;
    double *x, *low, *middle, *high;
    bool some; /* one has a low below its high */
} ht_buckets;

/* Of the points whose x lies from..to and that the axes can show (only whether they are logarithmic matters): each by
 * itself where there are at most 2 * most, else in `most` buckets of as many. False: out of memory. */
bool ht_buckets_make(ht_buckets *buckets, const ht_series *series, const ht_plot_field *field, double from, double to,
                     size_t most);
void ht_buckets_free(ht_buckets *buckets);

/* ---- what charts leave for the page's script ---- */

/* Between open and close the series, or points without a line, in the order of the legend. */
typedef struct ht_chart_data {
    ht_text text;
    ht_json_writer json;
} ht_chart_data;
void ht_chart_data_open(ht_chart_data *data, const char *x_label, const char *y_label);
void ht_chart_data_series(ht_chart_data *data, const char *name, const char *class, const ht_buckets *buckets);
void ht_chart_data_marks(ht_chart_data *data, const char *name, const char *class, const ht_roofline_point *points,
                         size_t count);
/* Adds it to the figure that is open, and frees it. level: of a line across; NAN: there is none. */
void ht_chart_data_close(ht_chart_data *data, ht_report *report, double level);

/* A picture with its heading: open, one svg per canvas, close. */
void ht_figure_open(ht_text *page, const char *title);
void ht_svg_open(ht_text *page, const ht_canvas *canvas, const char *title, double height);
void ht_svg_close(ht_text *page);
/* `legend`: HTML, may be NULL. */
void ht_figure_close(ht_text *page, const ht_text *legend);

void ht_svg_text(ht_text *page, double x, double y, const char *anchor, const char *text);
void ht_svg_line(ht_text *page, const char *class, double x1, double y1, double x2, double y2);
/* `title`: shown while a pointer rests on it; NULL: none. */
void ht_svg_box(ht_text *page, const char *class, double x, double y, double width, double height, const char *title);

/* Of diagrams, on pages and in files of their own. */
#define HT_DIAGRAM_STYLE                                                                                               \
    ".step,.value,.absent{fill:var(--fill);stroke:var(--frame)}.value{fill:var(--bg)}.absent{fill:none;"               \
    "stroke-dasharray:3 3}.arrow{fill:none;stroke:var(--soft)}.head{fill:var(--soft)}.arrow.strong{stroke:"            \
    "var(--half)}.head.strong{fill:var(--half)}svg .strong-label text{fill:var(--half)}\n"

/* Of series and parts, and of rooflines. */
#define HT_COLOUR_STYLE                                                                                                \
    ".c0{--c:#0072b2}.c1{--c:#d55e00}.c2{--c:#009e73}.c3{--c:#cc79a7}.c4{--c:#e69f00}.c5{--c:#56b4e9}.c6{--c:#000}"    \
    ".c7{--c:#b8a800}.c8{--c:#8c564b}.c9{--c:#a3195b}.reference{--c:var(--grey)}\n"
#define HT_DARK_COLOUR_STYLE                                                                                           \
    ".c0{--c:#4aa3df}.c1{--c:#ff8c42}.c2{--c:#2fc79b}.c3{--c:#e59ac4}.c4{--c:#f0b93a}.c5{--c:#9bd8ff}.c6{--c:#fff}"    \
    ".c7{--c:#d9cf3e}.c8{--c:#c49a82}.c9{--c:#ff6f91}"
#define HT_CURVE_STYLE                                                                                                 \
    ".grid{stroke:var(--grid)}.frame{stroke:var(--frame);fill:none}.curve{fill:none;stroke:var(--c);stroke-width:1.7;" \
    "stroke-linecap:round;stroke-linejoin:round}.curve[stroke-dasharray]{stroke-linecap:butt}path.dashed{"             \
    "stroke-dasharray:7 "                                                                                              \
    "5;stroke-linecap:butt}path.alone{stroke-width:6}.mark{fill:var(--c);stroke:var(--c);stroke-width:1.5}"            \
    ".mark.hollow{fill:var(--bg)}.mark.ringed{stroke:var(--grey)}.mark.cored{fill:var(--grey)}.band{fill:var(--c);"    \
    "fill-opacity:.16;stroke:var(--c);stroke-opacity:.35;"                                                             \
    "stroke-width:.6}.band.faint{fill-opacity:.05;stroke-opacity:.25}\n"

/* A legend's entry; `class` gives colour and mark, `note` may be NULL. `series`: of the chart's data, -1: none. */
void ht_legend_entry(ht_text *legend, int series, const char *class, const char *name, const char *note);

#endif
