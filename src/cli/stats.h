/* How runs that differ in their seed only are spread, and whether another run is worse than they are. */
#ifndef HT_CLI_STATS_H
#define HT_CLI_STATS_H

#include "base/base.h"

/* The mean of `count` numbers, and the standard deviation of a sample (NAN of fewer than two). */
double cli_mean(const double *values, size_t count);
double cli_deviation(const double *values, size_t count);
/* One more number of the same kind lies within the mean plus or minus this in 95 of 100 cases: the t distribution. NAN of
 * fewer than two. */
double cli_prediction_interval(const double *values, size_t count);

typedef enum cli_verdict { CLI_FALSE, CLI_UNCLEAR, CLI_TRUE } cli_verdict;
extern const char *const cli_verdict_names[];

/* Is the value as low as the others, or lower? Chance can move it by the prediction interval. True: even then it is at most `margin` above
 * their mean. False: even then it is above the mean. A value that is no number is not. */
cli_verdict cli_as_good(double value, const double *others, size_t count, double margin);
cli_verdict cli_not(cli_verdict verdict);

#endif
