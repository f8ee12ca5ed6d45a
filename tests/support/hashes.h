/* Hashes of graphs, for tests: a failure to compute one fails the test. */
#ifndef HT_TEST_HASHES_H
#define HT_TEST_HASHES_H

#include "graph/graph.h"

static inline uint64_t graph_hash(const ht_graph *g)
{
    uint64_t hash;
    assert_int_equal(ht_graph_hash(&hash, g), HT_OK);
    return hash;
}

static inline uint64_t model_hash(const ht_graph *g)
{
    uint64_t hash;
    assert_int_equal(ht_model_hash(&hash, g), HT_OK);
    return hash;
}

#endif
