#include "compress/ranges.h"

#include <math.h>
#include <string.h>

enum { BINS = HT_HISTOGRAM_BINS, HALF = BINS / 2, CANDIDATES = 128, LEVELS = 256 };

/* ---- counting ---- */

/* Twice as wide: each bin takes two of the old ones, and the outer quarters are empty. */
static void widen(ht_histogram *h)
{
    for (int i = 0; i < HALF / 2; i++) {
        h->bins[HALF + i] = h->bins[HALF + 2 * i] + h->bins[HALF + 2 * i + 1];
        h->bins[HALF - 1 - i] = h->bins[HALF - 1 - 2 * i] + h->bins[HALF - 2 - 2 * i];
    }
    memset(h->bins + HALF + HALF / 2, 0, HALF / 2 * sizeof h->bins[0]);
    memset(h->bins, 0, HALF / 2 * sizeof h->bins[0]);
    h->limit *= 2;
}

static void count_one(ht_histogram *h, double x)
{
    int bin = (int)floor(x / h->limit * HALF) + HALF;
    h->bins[bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin]++;
}

bool ht_histogram_add(ht_histogram *h, const float *x, int64_t count)
{
    float low = 0, high = 0, bad = 0;
    for (int64_t i = 0; i < count; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        bad += x[i] * 0;
    }
    if (bad != 0) return false;
    if (low < h->low) h->low = low;
    if (high > h->high) h->high = high;
    double most = fmax((double)high, -(double)low);
    if (most > 0 && h->limit == 0) {
        h->limit = exp2(ceil(log2(most)));
        h->bins[HALF] = (double)h->count; /* zeros until now */
    }
    while (most > h->limit) widen(h);
    h->count += count;
    if (h->limit == 0) return true;
    for (int64_t i = 0; i < count; i++) count_one(h, (double)x[i]);
    return true;
}

static double centre_of(const ht_histogram *h, int bin)
{
    return (bin - HALF + 0.5) * h->limit / HALF;
}

/* ---- choosing ---- */

/* The whole span, scaled by a factor up to 1. */
static ht_code_span scaled(const ht_histogram *h, bool symmetric, double factor)
{
    double most = fmax((double)h->high, -(double)h->low);
    double low = symmetric ? -most : (double)h->low, high = symmetric ? most : (double)h->high;
    return (ht_code_span){(float)(low * factor), (float)(high * factor)};
}

/* As many numbers beyond each end as there are per cent left, shared by the ends that there are. */
static ht_code_span choose_percentile(const ht_histogram *h, bool symmetric, double percentile)
{
    ht_code_span whole = scaled(h, symmetric, 1);
    double outside = (double)h->count * (1 - percentile / 100), low = 0, high = 0;
    if (h->low < 0 && h->high > 0) outside /= 2;
    int first = 0, last = BINS - 1;
    while (first < HALF && (low += h->bins[first]) <= outside) first++;
    while (last >= HALF && (high += h->bins[last]) <= outside) last--;
    float width = (float)(h->limit / HALF);
    float below = (float)(first - HALF) * width, above = (float)(last + 1 - HALF) * width;
    if (symmetric) above = fmaxf(above, -below);
    if (symmetric) below = -above;
    return (ht_code_span){fmaxf(below, whole.low), fminf(above, whole.high)};
}

/* The squared error that codes of a span make. */
static double error_of(const ht_histogram *h, ht_code_span span)
{
    double step = ((double)span.high - (double)span.low) / (LEVELS - 1), sum = 0;
    for (int i = 0; i < BINS && step > 0; i++) {
        if (h->bins[i] == 0) continue;
        double x = centre_of(h, i);
        double inside = fmin(fmax(x, (double)span.low), (double)span.high);
        double code = nearbyint((inside - (double)span.low) / step) * step + (double)span.low;
        sum += h->bins[i] * (x - code) * (x - code);
    }
    return sum;
}

/* Kullback and Leibler's divergence of the numbers, those beyond the span at its ends, from what codes tell of them: of each
 * code, that its numbers lie evenly in those of its bins that are not empty. */
static double divergence_of(const ht_histogram *h, ht_code_span span)
{
    double width = h->limit / HALF, sum = 0, lost = 0;
    int first = (int)floor((double)span.low / width) + HALF, last = (int)ceil((double)span.high / width) + HALF - 1;
    first = first < 0 ? 0 : first;
    last = last > BINS - 1 ? BINS - 1 : last;
    int bins = last - first + 1;
    double below = 0, above = 0; /* the span */
    for (int i = 0; i < first; i++) below += h->bins[i];
    for (int i = last + 1; i < BINS; i++) above += h->bins[i];
    for (int level = 0; level < LEVELS; level++) {
        int from = first + (int)((int64_t)level * bins / LEVELS),
            to = first + (int)((int64_t)(level + 1) * bins / LEVELS);
        double counted = 0;
        int filled = 0;
        for (int i = from; i < to; i++) {
            counted += h->bins[i];
            filled += h->bins[i] + (i == first ? below : 0) + (i == last ? above : 0) > 0;
        }
        for (int i = from; i < to; i++) {
            double p = h->bins[i] + (i == first ? below : 0) + (i == last ? above : 0);
            if (p == 0) continue;
            if (counted == 0)
                lost += p; /* codes tell nothing of them */
            else
                sum += p * log(p / (counted / filled));
        }
    }
    double all = (double)h->count, inside = all - below - above;
    if (inside <= 0) return INFINITY;
    return (sum + 32 * lost) / all + log(inside / all);
}

static ht_code_span choose_least(const ht_histogram *h, bool symmetric,
                                 double (*loss)(const ht_histogram *h, ht_code_span span))
{
    ht_code_span best = scaled(h, symmetric, 1);
    double least = loss(h, best);
    for (int i = CANDIDATES - 1; i >= CANDIDATES / 16; i--) {
        ht_code_span span = scaled(h, symmetric, (double)i / CANDIDATES);
        double found = loss(h, span);
        if (found >= least) continue;
        least = found;
        best = span;
    }
    return best;
}

ht_code_span ht_range_choose(const ht_histogram *h, ht_range_method method, bool symmetric, double percentile)
{
    if (h->limit == 0 || method == HT_RANGE_MINMAX) return scaled(h, symmetric, 1);
    if (method == HT_RANGE_PERCENTILE) return choose_percentile(h, symmetric, percentile);
    return choose_least(h, symmetric, method == HT_RANGE_MSE ? error_of : divergence_of);
}
