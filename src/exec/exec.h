/* exec: walk a plan. An executor owns the bytes of a plan and resolves its places to pointers once; running is a loop over
 * instructions that allocates nothing. */
#ifndef HT_EXEC_H
#define HT_EXEC_H

#include "plan/plan.h"

typedef struct ht_executor ht_executor;

/* Allocates all areas, zeroed and touched. The plan is borrowed. */
ht_status ht_executor_create(ht_executor **out, const ht_plan *plan, ht_pool *pool);
void ht_executor_free(ht_executor *executor);
const void *ht_executor_at(const ht_executor *executor, ht_place place);
/* The same for writing, `bytes` from there on, before the next run: what was prepacked from that state will be made again. */
void *ht_executor_open(ht_executor *executor, ht_place place, int64_t bytes);
/* One segment by index; fails only when a canary died. */
ht_status ht_executor_run(ht_executor *executor, size_t segment);

/* One result of an instruction, right after it ran; false: enough. Later instructions may take its bytes. */
typedef bool (*ht_trace_fn)(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data);
/* ht_executor_run, with every result shown as soon as it is made, until `trace` has seen enough: then the segment is left
 * half done. For plans made with no_fusion: elsewhere some values never exist, and it is refused. */
ht_status ht_executor_trace(ht_executor *executor, size_t segment, ht_trace_fn trace, void *arg);

/* A session of the public API. */
struct ht_session {
    const ht_plan *plan;
    ht_executor *executor;
    bool stale; /* a parameter was written: "derive" runs before anything else does */
};

#endif
