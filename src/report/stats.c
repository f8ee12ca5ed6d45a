#include "report/report.h"

#include <math.h>

const char *const ht_verdict_names[] = {"false", "not distinguishable here", "true"};

double ht_sample_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return count ? sum / (double)count : NAN;
}

double ht_sample_deviation(const double *values, size_t count)
{
    double mean = ht_sample_mean(values, count), squares = 0;
    for (size_t i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    return count > 1 ? sqrt(squares / (double)(count - 1)) : NAN;
}

/* By three parts, below, at and above a pivot, so that many equal numbers cost nothing. */
double ht_sample_select(double *values, size_t count, size_t rank)
{
    size_t first = 0, end = count;
    for (;;) {
        double a = values[first], b = values[first + (end - first) / 2], c = values[end - 1];
        double pivot = fmax(fmin(a, b), fmin(fmax(a, b), c));
        size_t below = first, above = end;
        for (size_t i = first; i < above;) {
            double value = values[i];
            if (value < pivot) {
                values[i++] = values[below];
                values[below++] = value;
            } else if (value > pivot) {
                values[i] = values[--above];
                values[above] = value;
            } else {
                i++;
            }
        }
        if (rank >= below && rank < above) return pivot;
        if (rank < below)
            end = below;
        else
            first = above;
    }
}

double ht_prediction_interval(const double *values, size_t count)
{
    /* 0.975 quantiles by degrees of freedom, from 1; more than these are treated as the last. */
    static const double quantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    enum { KNOWN = sizeof quantiles / sizeof quantiles[0] };
    if (count < 2) return NAN;
    return quantiles[count - 1 < KNOWN ? count - 2 : KNOWN - 1] * ht_sample_deviation(values, count) *
           sqrt(1 + 1 / (double)count);
}

ht_verdict ht_verdict_as_good(double value, const double *others, size_t count, double margin)
{
    double mean = ht_sample_mean(others, count), interval = ht_prediction_interval(others, count);
    if (!isfinite(value)) return HT_VERDICT_FALSE;
    if (value + interval <= mean + margin) return HT_VERDICT_TRUE;
    return value - interval > mean ? HT_VERDICT_FALSE : HT_VERDICT_UNCLEAR;
}

/* Where a value is both, above the mean for certain and within the margin, the two claims answer for themselves: it is as
 * good as makes no difference, and it is worse. */
ht_verdict ht_verdict_worse(double value, const double *others, size_t count, double margin)
{
    double mean = ht_sample_mean(others, count), interval = ht_prediction_interval(others, count);
    if (!isfinite(value) || value - interval > mean) return HT_VERDICT_TRUE;
    return value + interval <= mean + margin ? HT_VERDICT_FALSE : HT_VERDICT_UNCLEAR;
}

ht_verdict ht_verdict_alike(double value, const double *others, size_t count)
{
    double mean = ht_sample_mean(others, count), interval = ht_prediction_interval(others, count);
    if (!isfinite(value)) return HT_VERDICT_FALSE;
    if (isnan(interval)) return HT_VERDICT_UNCLEAR;
    return value <= mean + interval ? HT_VERDICT_TRUE : HT_VERDICT_FALSE;
}
