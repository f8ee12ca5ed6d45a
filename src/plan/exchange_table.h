/* What a step of a plan exchanges with other ranks, and the bytes of state that are padding. */
#ifndef HT_PLAN_EXCHANGE_TABLE_H
#define HT_PLAN_EXCHANGE_TABLE_H

#include "comm/comm.h"
#include "graph/graph.h"

/* Collectives of one op, group and number type. Bytes of a gather are those of what all ranks have together. */
typedef struct ht_exchange_row {
    const char *op; /* "all_reduce" */
    char group[32]; /* "data", "tensor" */
    ht_dtype dtype;
    int64_t calls, bytes, largest; /* in a step of the program "train"; of the largest call */
    int64_t sent, messages;        /* bytes and messages, by the first rank to others */
} ht_exchange_row;

enum { HT_MOST_EXCHANGE_ROWS = 3 * HT_COMM_KIND_COUNT * HT_DTYPE_COUNT }; /* of the axes of ranks */

typedef struct ht_exchange_table {
    ht_exchange_row rows[HT_MOST_EXCHANGE_ROWS];
    size_t count;
} ht_exchange_table;

ht_exchange_table ht_plan_exchange_table(const ht_plan *plan);
/* What the first rank sends to others in one run of a collective call. */
ht_comm_sent ht_exchange_sent(const ht_call *call);
/* Bytes of parameters, masters, half copies, gradients and moments that are no tensor's: between tensors, and at the ends
 * of flat groups and buckets. */
int64_t ht_plan_padding_bytes(const ht_plan *plan);

#endif
