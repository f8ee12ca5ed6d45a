#include "cli/stats.h"

#include <math.h>

const char *const cli_verdict_names[] = {"false", "not distinguishable here", "true"};

double cli_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += values[i];
    return count ? sum / (double)count : NAN;
}

double cli_deviation(const double *values, size_t count)
{
    double mean = cli_mean(values, count), squares = 0;
    for (size_t i = 0; i < count; i++) squares += (values[i] - mean) * (values[i] - mean);
    return count > 1 ? sqrt(squares / (double)(count - 1)) : NAN;
}

double cli_prediction_interval(const double *values, size_t count)
{
    /* 0.975 quantiles by degrees of freedom, from 1; more than these are treated as the last. */
    static const double quantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
    enum { KNOWN = sizeof quantiles / sizeof quantiles[0] };
    if (count < 2) return NAN;
    return quantiles[count - 1 < KNOWN ? count - 2 : KNOWN - 1] * cli_deviation(values, count) *
           sqrt(1 + 1 / (double)count);
}

cli_verdict cli_as_good(double value, const double *others, size_t count, double margin)
{
    double mean = cli_mean(others, count), interval = cli_prediction_interval(others, count);
    if (!isfinite(value)) return CLI_FALSE;
    if (value + interval <= mean + margin) return CLI_TRUE;
    return value - interval > mean ? CLI_FALSE : CLI_UNCLEAR;
}

cli_verdict cli_not(cli_verdict verdict)
{
    return (cli_verdict)(CLI_TRUE - verdict);
}
