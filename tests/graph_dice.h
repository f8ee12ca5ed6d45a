/* Random graphs for property tests: a pure function of the seed, valid, and small enough for the f64 references. */
#ifndef HT_TESTS_GRAPH_DICE_H
#define HT_TESTS_GRAPH_DICE_H

#include "op/op.h"

typedef struct graph_dice {
    ht_stream stream;
    uint64_t next;
} graph_dice;

graph_dice graph_dice_make(uint64_t seed);
/* 0 .. n-1 */
uint32_t graph_dice_roll(graph_dice *d, uint32_t n);

/* A segment "forward" of about `nodes` nodes with inputs, outputs, state, stores, roles, kept duplicates, constants,
 * host memory and views of state; a segment "other" now and then; a program. NULL after a failure, which the context
 * tells. */
ht_graph *graph_dice_build(ht_context *ctx, uint64_t seed, size_t nodes);

#endif
