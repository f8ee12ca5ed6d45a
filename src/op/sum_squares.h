/* norm_finite and sum_squares_finite: one norm, at once or in parts. */
#ifndef HT_OP_SUM_SQUARES_H
#define HT_OP_SUM_SQUARES_H

#include "graph/graph.h"

/* Elements that a processor sums apart; the sums of blocks are added one after the other. */
enum { HT_SUM_SQUARES_BLOCK = 16384 };

extern const ht_op ht_op_norm_finite, ht_op_sum_squares_finite;

#endif
