/* run: walk a plan. A machine owns the bytes of a plan and resolves its places to pointers once; running is a loop over
 * instructions that allocates nothing. */
#ifndef HT_RUN_H
#define HT_RUN_H

#include "plan/plan.h"

typedef struct ht_machine ht_machine;

/* Allocates all areas, zeroed and touched. The plan is borrowed. */
ht_status ht_machine_create(ht_machine **out, const ht_plan *plan, ht_pool *pool);
void ht_machine_free(ht_machine *machine);
const void *ht_machine_at(const ht_machine *machine, ht_place place);
/* The same for writing, `bytes` from there on, before the next run: what was prepacked from that state will be made again. */
void *ht_machine_open(ht_machine *machine, ht_place place, int64_t bytes);
/* One segment by index; fails only when a canary died. */
ht_status ht_machine_run(ht_machine *machine, size_t segment);

/* One result of an instruction, right after it ran; false: enough. Later instructions may take its bytes. */
typedef bool (*ht_watch_fn)(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data);
/* ht_machine_run, with every result shown as soon as it is made, until `watch` has seen enough: then the segment is left
 * half done. For plans made with no_fusion: elsewhere some values never exist, and it is refused. */
ht_status ht_machine_watch(ht_machine *machine, size_t segment, ht_watch_fn watch, void *arg);

#endif
