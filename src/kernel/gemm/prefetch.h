/* Prefetching what a product will read soon, a few lines at a time between its multiplications. */
#ifndef HT_KERNEL_PREFETCH_H
#define HT_KERNEL_PREFETCH_H

#include <stdint.h>

enum { PREFETCH_LINE_BYTES = 64 };

/* Memory that will be read soon: runs of bytes. */
typedef struct prefetch {
    const char *run;
    int64_t at, bytes, pitch; /* within the run, of a run, between runs */
    int64_t runs;             /* that are left */
    int64_t lines;            /* at a time */
} prefetch;

/* The first of two such memories, then the second; into L2. */
static inline __attribute__((always_inline)) void prefetch_some(prefetch next[2])
{
    if (next->runs == 0) next++;
    for (int64_t i = 0; i < next->lines && next->runs > 0; i++) {
        __builtin_prefetch(next->run + next->at, 0, 2);
        next->at += PREFETCH_LINE_BYTES;
        if (next->at < next->bytes) continue;
        next->at = 0;
        next->run += next->pitch;
        next->runs--;
    }
}

/* So many lines at a time that all come in `times` times. */
static inline void prefetch_set_rate(prefetch *next, int64_t times)
{
    int64_t lines = next->runs * ((next->bytes + PREFETCH_LINE_BYTES - 1) / PREFETCH_LINE_BYTES + 1);
    next->lines = (lines + times - 1) / times;
}

#endif
