/* A long series in buckets: of neighbours on one pixel a reader can see no more than the least, the greatest and what lies
 * between. */
#include <math.h>
#include <stdlib.h>

#include "report/page.h"

static void add_bucket(ht_buckets *b, double x, double low, double middle, double high)
{
    b->x[b->count] = x;
    b->low[b->count] = low;
    b->middle[b->count] = middle;
    b->high[b->count++] = high;
    b->some = b->some || low < high;
}

/* The median is one of the values: the lower of two. It stands in the middle of the bucket. */
static void take_bucket(ht_buckets *b, const ht_series *s, const ht_plot_field *f, size_t first, size_t end,
                        double *scratch)
{
    size_t count = 0;
    double low = INFINITY, high = -INFINITY;
    for (size_t i = first; i < end; i++) {
        if (!ht_axis_holds(&f->x, s->x[i]) || !ht_axis_holds(&f->y, s->y[i])) continue;
        scratch[count++] = s->y[i];
        low = s->y[i] < low ? s->y[i] : low;
        high = s->y[i] > high ? s->y[i] : high;
    }
    if (count)
        add_bucket(b, s->x[first + (end - first - 1) / 2], low, ht_sample_select(scratch, count, (count - 1) / 2),
                   high);
    /* What is no number interrupts the line. */
    if (count < end - first) add_bucket(b, s->x[end - 1], NAN, NAN, NAN);
}

/* The points whose x lies in the range and on the axis, as long as they are neighbours. */
static void find_points(const ht_series *s, const ht_axis *x, double from, double to, size_t *first, size_t *end)
{
    for (*first = 0; *first < s->count; ++*first)
        if (ht_axis_holds(x, s->x[*first]) && s->x[*first] >= from && s->x[*first] <= to) break;
    for (*end = s->count; *end > *first; --*end)
        if (ht_axis_holds(x, s->x[*end - 1]) && s->x[*end - 1] >= from && s->x[*end - 1] <= to) break;
}

bool ht_buckets_make(ht_buckets *b, const ht_series *s, const ht_plot_field *f, double from, double to, size_t most)
{
    size_t first, end;
    *b = (ht_buckets){.count = 0};
    find_points(s, &f->x, from, to, &first, &end);
    size_t points = end - first, buckets = points <= 2 * most ? points : most,
           largest = points / (buckets + !buckets) + 1;
    double *all = calloc(8 * buckets + 4, sizeof *all);
    double *scratch = calloc(largest + 1, sizeof *scratch);
    if (all && scratch) {
        *b = (ht_buckets){
            .x = all, .low = all + 2 * buckets + 1, .middle = all + 4 * buckets + 2, .high = all + 6 * buckets + 3};
        for (size_t i = 0; i < buckets; i++)
            take_bucket(b, s, f, first + points * i / buckets, first + points * (i + 1) / buckets, scratch);
    } else {
        free(all);
    }
    free(scratch);
    return b->x != NULL;
}

void ht_buckets_free(ht_buckets *b)
{
    free(b->x);
    *b = (ht_buckets){.count = 0};
}
