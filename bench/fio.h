/* fio, which says what a disk can do. */
#ifndef BENCH_FIO_H
#define BENCH_FIO_H

#include <stdint.h>

#include <halftone/session.h>

typedef enum fio_direction { FIO_IN, FIO_OUT, FIO_BOTH, FIO_DIRECTIONS } fio_direction;

/* Bytes per second with the disk's blocks, depth and O_DIRECT, of `bytes` in a file of the folder, or in one each way: then
 * of both directions together until the longer one is done. 0: there is no fio. */
double fio_rate(const char *folder, fio_direction way, const ht_disk_opts *opts, int64_t bytes);

/* Bytes per second of a pattern of fio's, one way ("read", "randwrite"), over a file of so many bytes for so many seconds; of
 * the options block and depth count. 0: there is no fio. */
double fio_timed_rate(const char *folder, const char *pattern, const ht_disk_opts *opts, int64_t bytes, double seconds);

#endif
