/* report: the one chart writer. Makes a single HTML page of paragraphs, tables, line charts and histograms, drawn as SVG.
 * The page loads nothing and runs nothing: it can be mailed, kept and printed. Knows nothing of training. */
#ifndef HT_REPORT_H
#define HT_REPORT_H

#include "base/base.h"

typedef struct ht_report ht_report;

typedef struct ht_series {
    const char *name;
    size_t count;
    const double *x, *y; /* a y that is no number interrupts the line */
} ht_series;

typedef struct ht_chart {
    const char *title, *x_label, *y_label;
    bool x_log, y_log; /* what is not above zero is left out */
    const ht_series *series;
    size_t series_count;
    double level; /* a dashed line across, with its name; NULL: none */
    const char *level_name;
    double zoom_from, zoom_to; /* an inset shows these x larger; from >= to: none */
} ht_chart;

typedef struct ht_table {
    const char *title;
    size_t columns, rows;
    const char *const *heads; /* [columns] */
    const char *const *cells; /* [rows, columns]; those that are numbers stand to the right */
} ht_table;

typedef struct ht_histogram {
    const char *title, *x_label;
    size_t count;
    const double *values; /* those that are no number are left out */
    size_t bins;          /* 0: as many as the numbers suggest */
} ht_histogram;

/* Bars beside each other, each a stack of parts. */
typedef struct ht_bars {
    const char *title, *x_label, *y_label;
    size_t count;
    const char *const *labels; /* [count], below the bars; NULL: this one has none */
    size_t part_count;
    const char *const *part_names;
    const double *heights; /* [part_count, count], from below; what is not above zero is left out */
} ht_bars;

ht_status ht_report_create(ht_report **out, ht_context *ctx, const char *title);
void ht_report_free(ht_report *report);
/* All text is plain: it is escaped here. */
void ht_report_paragraph(ht_report *report, const char *text);
void ht_report_chart(ht_report *report, const ht_chart *chart);
void ht_report_table(ht_report *report, const ht_table *table);
void ht_report_histogram(ht_report *report, const ht_histogram *histogram);
void ht_report_bars(ht_report *report, const ht_bars *bars);
/* Ends the page, to which nothing is added any more, and gives its text; borrowed. NULL when memory ran out. */
const char *ht_report_page(ht_report *report);
/* Writes the page beside `path` and renames it, so that nobody sees half of it. */
ht_status ht_report_write(ht_report *report, const char *path);

#endif
