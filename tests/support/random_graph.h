/* Random graphs for property tests: a pure function of the seed, valid, and small enough for the f64 references. */
#ifndef HT_TESTS_RANDOM_GRAPH_H
#define HT_TESTS_RANDOM_GRAPH_H

#include "op/op.h"

typedef struct random_graph {
    ht_stream stream;
    uint64_t next;
} random_graph;

random_graph random_graph_make(uint64_t seed);
/* 0 .. n-1 */
uint32_t random_graph_next(random_graph *d, uint32_t n);

/* A segment "forward" of about `nodes` nodes with inputs, outputs, state, stores, roles, kept duplicates, constants,
 * copies to host memory and back, some in two parts, and views of state; a segment "other" now and then; a program.
 * NULL after a failure, which the context tells. */
ht_graph *random_graph_build(ht_context *ctx, uint64_t seed, size_t nodes);
/* The same, and among its nodes products of two values, convolutions, attention, and lookups: embedding, gather,
 * dynamic_slice and the gradients of the first two. Of their index, an input, element k along its axis is meant to hold
 * random_graph_named(k, size); the first row of a slice random_graph_named(0, size). */
ht_graph *random_graph_with_lookups(ht_context *ctx, uint64_t seed, size_t nodes);
/* Different ones for different k below the size, as long as that is no multiple of 101. */
static inline int64_t random_graph_named(int64_t k, int64_t size)
{
    return (101 * k + 1) % size;
}
/* A chain of random point-wise ops over a few shapes of inputs that broadcast, with values that are read long after
 * they were made, and results in the middle. NULL after a failure, which the context tells. */
ht_graph *random_graph_chain(ht_context *ctx, uint64_t seed);

/* A random point-wise op on a, or on a and b; some change the number type. */
ht_val random_graph_step(ht_graph *g, random_graph *d, ht_val a, ht_val b);

#endif
