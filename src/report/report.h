/* report: what people see of results. A single HTML page of paragraphs, tables, line charts and histograms, drawn as SVG,
 * which loads nothing, so that it can be mailed, kept and printed, and is whole without its script (page_script.js), by
 * which charts answer to a pointer; tables and curves for the terminal; the statistics behind them. Knows nothing of
 * training, and prints nothing itself. */
#ifndef HT_REPORT_H
#define HT_REPORT_H

#include "base/base.h"

typedef struct ht_report ht_report;

/* How a series is drawn: in a colour of its own; as one of several references, all alike in grey; or dashed. */
typedef enum ht_line { HT_LINE_COLOUR, HT_LINE_REFERENCE, HT_LINE_DASHED } ht_line;

typedef struct ht_series {
    const char *name;
    size_t count;
    const double *x, *y; /* a y that is no number interrupts the line */
    ht_line line;
} ht_series;

typedef struct ht_chart {
    const char *title, *x_label, *y_label;
    bool x_log, y_log; /* what is not above zero is left out; an axis on which nothing is left is linear */
    const ht_series *series;
    size_t series_count;
    double level; /* a dotted line across, with its name; NULL: none */
    const char *level_name;
    double zoom_from, zoom_to; /* a second field below shows these x larger; from >= to: none */
    /* Of each series. A longer one is drawn as the line of their medians, in a band from their least to their greatest
     * values. 0: as many as can be seen. */
    size_t most_buckets;
    bool whole; /* the axis holds every series, also one that flattens all others */
} ht_chart;

typedef struct ht_page_table {
    const char *title;
    size_t columns, rows;
    const char *const *heads; /* [columns] */
    const char *const *cells; /* [rows, columns]; columns of numbers stand to the right, with their heads */
    const bool *right;        /* [columns]: these do, too; NULL: none */
    size_t verdict_column;    /* its cells are names of verdicts: with a mark and a colour; 0: there is none */
} ht_page_table;

typedef struct ht_histogram {
    const char *title, *x_label;
    size_t count;
    const double *values; /* those that are no number are left out */
    size_t bins;          /* 0: as many as the numbers suggest */
} ht_histogram;

/* Bars beside each other, or where their labels are too long for that below each other; each a stack of parts. */
typedef struct ht_bars {
    const char *title, *x_label, *y_label;
    size_t count;
    const char *const *labels; /* [count]; NULL: this one has none */
    size_t part_count;
    const char *const *part_names;
    const double *heights; /* [part_count, count], from below; what is not above zero is left out */
} ht_bars;

/* Boxes with arrows between them, at places of their own. */
typedef struct ht_diagram_box {
    enum { HT_BOX_STEP, HT_BOX_VALUE, HT_BOX_ABSENT } kind;
    double x, y, width, height;
    const char *text;
} ht_diagram_box;

typedef struct ht_diagram_arrow {
    size_t count; /* of points, up to four; 0: there is no such arrow */
    double points[4][2];
    const char *label;
    double label_x, label_y; /* its middle, on the line that it stands on */
    bool strong;
} ht_diagram_arrow;

typedef struct ht_diagram {
    const char *title; /* above it on a page, and for those who cannot see it */
    double width, height;
    size_t box_count, arrow_count;
    const ht_diagram_box *boxes;
    const ht_diagram_arrow *arrows;
    const char *note; /* below, in the picture; may be NULL */
} ht_diagram;

/* A roofline: FLOP/s against FLOPs per byte, both logarithmic. Roofs are what a number type and a memory allow, points what
 * was reached. */
typedef struct ht_roof {
    const char *name;
    double flops, bandwidth; /* per second */
    bool dashed;
} ht_roof;

typedef struct ht_roofline_point {
    const char *name,
        *detail;             /* points of one name stand next to each other, and have one colour; detail may be NULL */
    double intensity, flops; /* FLOPs per byte, FLOP/s */
} ht_roofline_point;

typedef struct ht_roofline_chart {
    const char *title;
    size_t roof_count, point_count;
    const ht_roof *roofs;
    const ht_roofline_point *points;
} ht_roofline_chart;

ht_status ht_report_create(ht_report **out, ht_context *ctx, const char *title);
void ht_report_free(ht_report *report);
/* All text is plain: it is escaped here. */
void ht_report_paragraph(ht_report *report, const char *text);
void ht_report_chart(ht_report *report, const ht_chart *chart);
void ht_report_table(ht_report *report, const ht_page_table *table);
void ht_report_histogram(ht_report *report, const ht_histogram *histogram);
void ht_report_bars(ht_report *report, const ht_bars *bars);
void ht_report_diagram(ht_report *report, const ht_diagram *diagram);
void ht_report_roofline(ht_report *report, const ht_roofline_chart *roofline);
/* The page, served, asks for its next version that often, and shows it in its place. */
void ht_report_refresh(ht_report *report, double seconds);
/* A part that a reader opens. */
void ht_report_details_open(ht_report *report, const char *summary);
void ht_report_details_close(ht_report *report);
/* The same as a file by itself. */
void ht_diagram_svg(ht_text *text, const ht_diagram *diagram);
void ht_roofline_chart_svg(ht_text *text, const ht_roofline_chart *roofline);
/* Ends the page, to which nothing is added any more, and gives its text; borrowed. NULL when memory ran out. */
const char *ht_report_page(ht_report *report);
/* Writes the page beside `path` and renames it, so that no reader sees half of it. */
ht_status ht_report_write(ht_report *report, const char *path);

/* ---- tables that grow cell by cell, for the terminal and for a page ---- */

enum { HT_MOST_COLUMNS = 32 };

typedef struct ht_table {
    const char *heads[HT_MOST_COLUMNS]; /* borrowed */
    int width[HT_MOST_COLUMNS];         /* characters, at least */
    bool right[HT_MOST_COLUMNS];        /* stands to the right; columns of numbers do anyway... */
    bool left[HT_MOST_COLUMNS];         /* ...but for these */
    int rank[HT_MOST_COLUMNS]; /* where space is short the column of the highest rank goes first; 0: it stays */
    size_t verdict_column;     /* as in ht_page_table */
    size_t columns;
    char **cells; /* row by row */
    size_t count, capacity;
    bool failed; /* memory ran out: what follows is left out */
} ht_table;

/* Before the first cell. */
void ht_table_head(ht_table *table, const char *head);
/* The next cell. */
void ht_table_cell(ht_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A number, or "-" where there is none. */
void ht_table_number(ht_table *table, const char *format, double value) __attribute__((format(printf, 2, 0)));
/* In lines of `width` characters (0: as long as they are): columns of high rank are left out, and named below, until the
 * rest fits, or until none is left that may go. */
void ht_table_print(ht_text *text, const ht_table *table, int width);
void ht_table_report(ht_report *report, const ht_table *table, const char *title);
void ht_table_free(ht_table *table);

/* ---- columns: one list for the table on the terminal, the table on the page and the JSON object ---- */

/* What a row has in a column. */
typedef struct ht_cell {
    enum { HT_CELL_TEXT, HT_CELL_INT, HT_CELL_NUMBER, HT_CELL_WRITTEN } kind;
    const char *text; /* NULL: "-" in tables, null in JSON */
    int64_t integer;
    double number; /* what is not finite: likewise */
    /* Lists and objects, only in JSON. */
    void (*write)(ht_json_writer *json, const char *key, const void *row);
    const void *row;
} ht_cell;

ht_cell ht_cell_text(const char *text);
ht_cell ht_cell_int(int64_t integer);
ht_cell ht_cell_number(double number);
ht_cell ht_cell_written(void (*write)(ht_json_writer *json, const char *key, const void *row), const void *row);

/* A column with what one row has in it. A result is a function that makes the list of its columns for a row; adding a
 * column is adding one to this list. */
typedef struct ht_column {
    const char *key;     /* of the member in JSON; NULL: not there */
    const char *heading; /* in tables; NULL: not there */
    const char *format;  /* of numbers in tables: "%.5f" */
    ht_cell cell;
    int width;  /* in tables, at least */
    bool right; /* in tables, its texts stand to the right, too */
    int rank;   /* in tables, as in ht_table */
} ht_column;

/* Adds a row; the first brings the headings with it. */
void ht_table_row(ht_table *table, const ht_column *columns, size_t count);
/* An element of an array that is open: the row as an object. */
void ht_json_put_row(ht_json_writer *json, const ht_column *columns, size_t count);

/* ---- curves on the terminal ---- */

typedef struct ht_term_plot {
    const double *y; /* at 1, 2, ...; what is not above zero is left out */
    size_t count;
    int columns, rows; /* of the field; at least 2 and at most 200 */
    int64_t last;      /* of the other axis, where a y is several of its units; 0: `count` */
    double level;      /* a dotted line across; 0: none */
    bool unicode;      /* Braille characters, two by four dots each; else ASCII */
} ht_term_plot;

/* Adds the rows, a logarithmic axis at the left and the ends of the other axis below. */
void ht_term_plot_add(ht_text *text, const ht_term_plot *plot);
/* Does the environment promise a terminal that shows UTF-8? */
bool ht_terminal_unicode(void);

/* ---- statistics: how runs that differ in their seed only are spread, and whether another run is worse ---- */

/* The mean of `count` numbers, and the standard deviation of a sample (NAN of fewer than two). */
double ht_sample_mean(const double *values, size_t count);
double ht_sample_deviation(const double *values, size_t count);
/* The one that stands at `rank`, from 0, among `count` numbers in order, which this moves about. */
double ht_sample_select(double *values, size_t count, size_t rank);
/* One more number of the same kind lies within the mean plus or minus this in 95 of 100 cases, if such numbers scatter
 * normally: the t distribution. NAN of fewer than two. */
double ht_prediction_interval(const double *values, size_t count);

typedef enum ht_verdict { HT_VERDICT_FALSE, HT_VERDICT_UNCLEAR, HT_VERDICT_TRUE } ht_verdict;
extern const char *const ht_verdict_names[];

/* Is the value as low as the others, or lower? Chance can move it by the prediction interval. True: even then it is at
 * most `margin` above their mean. False: even then it is above the mean. A value that is no number is not; of fewer than
 * two others nothing is known. */
ht_verdict ht_verdict_as_good(double value, const double *others, size_t count, double margin);
/* Is the value above the others? True: chance does not explain it. False: even if it does, it is at most `margin`. */
ht_verdict ht_verdict_worse(double value, const double *others, size_t count, double margin);
/* Could the value be one more of the others, or lower? True: it is not further above their mean than the prediction
 * interval. */
ht_verdict ht_verdict_alike(double value, const double *others, size_t count);

#endif
