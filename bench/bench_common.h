/* What the benchmarks share: a clock, medians, and the line that programs read. */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

static inline void bench_line(const char *name, double ours, double peer, const char *peer_name, const char *unit)
{
    printf("BENCH name=%s ours=%.4g peer=%.4g peer_name=%s ratio=%.3f unit=%s\n", name, ours, peer, peer_name,
           peer != 0 ? ours / peer : 0, unit);
    fflush(stdout);
}

#endif
