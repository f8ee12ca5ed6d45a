/* The triad of STREAM, in the loop that one would write: three arrays of double on plain threads. */
#ifndef BENCH_STREAM_TRIAD_H
#define BENCH_STREAM_TRIAD_H

#include <stddef.h>

/* Bytes per second: the best of all pieces of 48 MiB a thread, in `repeats` passes over `bytes` in all; 0: memory or threads
 * are out. STREAM itself times whole passes, which on a machine with other work on it none is free of. */
double stream_triad(size_t bytes, int threads, int repeats);

#endif
