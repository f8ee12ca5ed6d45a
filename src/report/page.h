/* What the files of this room share: escaping, coordinates, axes. */
#ifndef HT_REPORT_PAGE_H
#define HT_REPORT_PAGE_H

#include "report/report.h"

struct ht_report {
    ht_context *ctx;
    ht_text page;
    bool ended;
};

/* Text with what HTML would read as its own written out; control characters become spaces. */
void ht_page_text(ht_text *page, const char *text);
/* A coordinate with two digits behind the point, whatever the locale. */
void ht_page_coordinate(ht_text *page, double x);

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
/* A tick's number, as short as it can be. */
void ht_axis_number(ht_text *page, double value);

#endif
