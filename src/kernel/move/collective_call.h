/* What the rows of collectives share, on every device: the call of comm/ that a launch asks for. */
#ifndef HT_KERNEL_COLLECTIVE_CALL_H
#define HT_KERNEL_COLLECTIVE_CALL_H

#include "comm/comm.h"
#include "kernel/kernel.h"

/* Of a launch, or of a call alone (then without addresses). */
ht_comm_call ht_collective_of_call(const ht_call *call, ht_comm_kind kind);
ht_comm_call ht_collective_of_launch(const ht_launch *launch, ht_comm_kind kind);
/* Of a reduce_scatter_within, once the value is where the result lies. */
ht_comm_call ht_collective_within(const ht_launch *launch);
/* The ranks of its group. */
int ht_collective_ranks(const ht_call *call);
/* Operands row-major without gaps; of what the start reads, its done touches nothing. */
const char *ht_collective_refusal(const ht_call *call, const ht_target *target);
const char *ht_collective_done_refusal(const ht_call *call, const ht_target *target);

#endif
