/* Hardware counters of this process by perf_event_open, where the kernel and the machine allow it. */
#ifndef HT_EXEC_PERF_COUNTERS_H
#define HT_EXEC_PERF_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

typedef enum ht_counter {
    HT_COUNTER_INSTRUCTIONS,
    HT_COUNTER_CYCLES,
    HT_COUNTER_CACHE_MISSES, /* of the last level */
    HT_COUNTER_COUNT
} ht_counter;
extern const char *const ht_counter_names[HT_COUNTER_COUNT];

typedef struct ht_perf_counters ht_perf_counters;

/* Counts, from now on, what all threads that the process has by now do outside of the kernel. NULL: it cannot be, and
 * `reason` says why. */
ht_perf_counters *ht_perf_counters_open(char *reason, size_t capacity);
/* Since then, summed over the threads. */
void ht_perf_counters_read(const ht_perf_counters *counters, int64_t values[HT_COUNTER_COUNT]);
void ht_perf_counters_close(ht_perf_counters *counters); /* takes NULL */

#endif
