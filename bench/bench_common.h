/* What the benchmarks share: a clock, medians, and the line that programs read.
 *
 *     BENCH name=… ours=… peer=… peer_name=… ratio=… unit=…
 *
 * name and peer_name together name a row. A ratio above 1 always means that we are the better one: it is peer / ours
 * where the numbers are costs (ms, ns, MB), ours / peer where they are rates (GFLOP/s, GB/s). Against a ceiling the
 * ratio is the share of it that we reach. Without the peer on this machine, peer and ratio read "none". */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* On both sides of every row: HALFTONE_BENCH_THREADS, or 2. */
static inline int bench_threads(void)
{
    const char *text = getenv("HALFTONE_BENCH_THREADS");
    long threads = text ? strtol(text, NULL, 10) : 0;
    return threads > 0 && threads <= 4096 ? (int)threads : 2;
}

static inline double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int bench_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts its argument. */
static inline double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, bench_compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* More of it is better: units per second. Everything else is a cost. */
static inline bool bench_is_rate(const char *unit)
{
    size_t length = strlen(unit);
    return length > 2 && strcmp(unit + length - 2, "/s") == 0;
}

/* Theirs not above 0: that peer is missing. */
static inline void bench_line(const char *name, double mine, double theirs, const char *peer_name, const char *unit)
{
    if (theirs > 0)
        printf("BENCH name=%s ours=%.4g peer=%.4g peer_name=%s ratio=%.3f unit=%s\n", name, mine, theirs, peer_name,
               bench_is_rate(unit) ? mine / theirs : theirs / mine, unit);
    else
        printf("BENCH name=%s ours=%.4g peer=none peer_name=%s ratio=none unit=%s\n", name, mine, peer_name, unit);
    fflush(stdout);
}

#endif
