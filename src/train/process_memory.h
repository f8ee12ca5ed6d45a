/* Memory of the process against that of the plan. The reserve is what a run may need beyond its plan, stated before
 * step 0; docs/memory.md says what it is for. */
#ifndef HT_TRAIN_PROCESS_MEMORY_H
#define HT_TRAIN_PROCESS_MEMORY_H

#include "exec/exec.h"

typedef enum ht_reserve_line {
#define HT_RESERVE(id, name) HT_RESERVE_##id,
#include "train/reserve_lines.def"
#undef HT_RESERVE
    HT_RESERVE_COUNT
} ht_reserve_line;
extern const char *const ht_reserve_line_names[HT_RESERVE_COUNT];

/* Bytes by line. */
typedef struct ht_reserve {
    int64_t bytes[HT_RESERVE_COUNT];
} ht_reserve;
int64_t ht_reserve_sum(const ht_reserve *reserve);

/* The most that the process has held so far; 0 where the system does not tell. */
int64_t ht_process_peak_bytes(void);
/* Of a session's plan: in memory of a device, which is not the process's. */
int64_t ht_device_bytes(const ht_session *session);
/* The stated reserve, when data and plan are there and the plan's memory is not yet: `held` is what the process has
 * held so far, `micros` the micro-batches of a step. */
ht_reserve ht_reserve_of(const ht_plan *plan, const ht_disk_opts *disk, int64_t micros, int64_t held);

#endif
