/* The triad of STREAM, in the loop that one would write: three arrays of double on plain threads. */
#ifndef BENCH_STREAM_TRIAD_H
#define BENCH_STREAM_TRIAD_H

#include <stddef.h>

/* Bytes per second, the best of `repeats` passes over arrays of `bytes` in all; 0: memory or threads are out. */
double stream_triad(size_t bytes, int threads, int repeats);

#endif
