/* The order in which norm_finite and sum_squares_finite add squares. */
#ifndef HT_OP_SUM_SQUARES_H
#define HT_OP_SUM_SQUARES_H

/* Elements that a processor sums apart; the sums of blocks are added one after the other. */
enum { HT_SUM_SQUARES_BLOCK = 16384 };

#endif
