/* Times of instructions: an observer that adds up how long each instruction of a plan took, and, where it is given memory
 * for them, keeps the single runs as events for a trace. */
#ifndef HT_EXEC_INSTR_TIMES_H
#define HT_EXEC_INSTR_TIMES_H

#include "exec/exec.h"

typedef struct ht_instr_times ht_instr_times;

/* A run of an instruction, or of a piece of a part of a row block. */
typedef struct ht_instr_event {
    const ht_plan_segment *segment;
    const ht_instr *instr;
    double begin, end;          /* seconds of ht_instr_clock */
    int64_t first_row, end_row; /* as in ht_observation */
    size_t row_block;
    int thread; /* that ran it, numbered as they come, from 0 */
} ht_instr_event;

/* Seconds of a clock that never goes back. */
double ht_instr_clock(void);

/* For the executor of a plan, which is borrowed; `most_events`: 0: none are kept. */
ht_status ht_instr_times_create(ht_instr_times **out, const ht_plan *plan, size_t most_events);
void ht_instr_times_free(ht_instr_times *times);
/* For ht_executor_observe. */
const ht_observer *ht_instr_times_observer(const ht_instr_times *times);
/* Times and counts are 0 again. Events stay. */
void ht_instr_times_reset(ht_instr_times *times);

/* Seconds of an instruction since then, all its runs together. The wall time of a row block is shared among its parts, by
 * the time that threads spent in each. */
double ht_instr_times_seconds(const ht_instr_times *times, size_t segment, size_t instr);
/* How often it ran. */
int64_t ht_instr_times_runs(const ht_instr_times *times, size_t segment, size_t instr);

/* In the order in which they ended. *dropped: those that there was no memory for. */
const ht_instr_event *ht_instr_times_events(const ht_instr_times *times, size_t *count, size_t *dropped);

#endif
