/* Offsets for buffers with known lifetimes: the part of planning that knows no graph. */
#ifndef HT_PLAN_MEMORY_H
#define HT_PLAN_MEMORY_H

#include "base/base.h"

/* Alive from `first` to `last`, both included. */
typedef struct ht_interval {
    uint32_t first, last;
    int64_t bytes;
    int64_t offset; /* to fill; a multiple of `align` */
} ht_interval;

/* First fit in order of birth or of death, whichever ends lower, freed space coalesced: n log n. *total is the end of the highest buffer, *live the most
 * bytes alive at once (rounded to align): no assignment can be smaller. */
ht_status ht_memory_assign(ht_context *ctx, ht_interval *buffers, size_t n, int64_t align, int64_t *total,
                           int64_t *live);

#endif
