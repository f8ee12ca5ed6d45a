/* Internal: what calibration keeps of a layer's inputs, and the range of codes that follows from it. */
#ifndef HT_COMPRESS_RANGES_H
#define HT_COMPRESS_RANGES_H

#include "compress/compress.h"

/* How a range is chosen; the words of the recipe's calibration.method, in this order. */
typedef enum ht_range_method { HT_RANGE_MINMAX, HT_RANGE_PERCENTILE, HT_RANGE_ENTROPY, HT_RANGE_MSE } ht_range_method;
#define HT_RANGE_METHODS "minmax|percentile|entropy|mse"

enum { HT_HISTOGRAM_BINS = 4096 };

/* Numbers seen so far: their span, and how many there were in each of so many bins between -limit and limit. The limit is a
 * power of two; it doubles when a number lies beyond it, and bins are joined in pairs. */
typedef struct ht_histogram {
    double limit;    /* 0: only zeros so far */
    float low, high; /* 0 included */
    int64_t count;
    double bins[HT_HISTOGRAM_BINS];
} ht_histogram;

/* False: one of them is not finite. */
bool ht_histogram_add(ht_histogram *histogram, const float *x, int64_t count);

typedef struct ht_code_span {
    float low, high; /* 0 included */
} ht_code_span;

/* The span that codes of 8 bits shall have: signed ones around zero, or from low to high. percentile: of PERCENTILE, the per cent of
 * numbers that lie within. */
ht_code_span ht_range_choose(const ht_histogram *histogram, ht_range_method method, bool symmetric, double percentile);

#endif
