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
/* The same for writing, `bytes` from there on, before the next run: what was kept of that state will be made again. */
void *ht_machine_open(ht_machine *machine, ht_place place, int64_t bytes);
/* One segment by index; fails only when a canary died. */
ht_status ht_machine_run(ht_machine *machine, size_t segment);

#endif
