/* Memory over one training step: what is alive in main at each instruction, and which tensors at the fullest. Part of
 * plan/plan.h. */
#ifndef HT_PLAN_MEMORY_TIMELINE_H
#define HT_PLAN_MEMORY_TIMELINE_H

#include "plan/byte_table.h"

/* One instruction of the step. */
typedef struct ht_memory_moment {
    const ht_plan_segment *segment;
    size_t instr;
    int64_t values, workspace; /* transients that are alive, in bytes */
} ht_memory_moment;

/* A transient that is alive at the peak. */
typedef struct ht_alive {
    const char *op, *layer; /* of the instruction that makes it */
    const char *type;       /* "bf16[8,256,1024]"; "workspace" */
    int64_t bytes;
    uint32_t first, last; /* instructions of the segment of the peak */
} ht_alive;

typedef struct ht_memory_timeline {
    ht_arena *arena;
    ht_memory_moment *moments; /* each segment of the program once, in the order in which it comes */
    size_t count, peak;        /* peak: index of the fullest */
    ht_alive *alive;           /* there, the largest first */
    size_t alive_count;
    int64_t lasting[HT_BYTES_COUNT]; /* what is there all the while, by heading; of transients: none */
} ht_memory_timeline;

/* Of a program, "train"; one that is not there has no moments. To be freed whatever the result. */
ht_status ht_plan_memory_timeline(ht_memory_timeline *out, const ht_plan *plan, const char *program);
/* The fullest of a share of the moments, number `part` of `parts`, of which there are no more than moments. */
const ht_memory_moment *ht_memory_timeline_fullest(const ht_memory_timeline *timeline, size_t part, size_t parts);
/* The tensors that are alive at the peak, no more than `most` of them, as the array "alive". */
void ht_memory_timeline_alive_json(const ht_memory_timeline *timeline, ht_json_writer *json, size_t most);
void ht_memory_timeline_free(ht_memory_timeline *timeline);

#endif
