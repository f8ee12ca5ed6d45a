/* TensorBoard event files: scalars over steps. */
#ifndef HT_FORMAT_EVENTS_H
#define HT_FORMAT_EVENTS_H

#include <halftone/context.h>

typedef struct ht_events ht_events;

/* Creates or appends to `path`; TensorBoard finds files whose name contains "tfevents". */
ht_status ht_events_open(ht_events **out, ht_context *ctx, const char *path, double wall_time);
/* One value of one curve; `wall_time` in seconds since 1970. Reaches the file by the next flush. */
ht_status ht_events_scalar(ht_events *events, double wall_time, int64_t step, const char *tag, float value);
/* A session starts or resumes at `step`: readers drop the events of older files of the folder from that step on. */
ht_status ht_events_start(ht_events *events, double wall_time, int64_t step);
ht_status ht_events_flush(ht_events *events);
/* Flushes and frees; takes NULL. */
ht_status ht_events_close(ht_events *events);

/* CRC-32C (Castagnoli), and as event files store it. */
uint32_t ht_crc32c(const void *data, size_t length);
uint32_t ht_crc32c_masked(const void *data, size_t length);

#endif
