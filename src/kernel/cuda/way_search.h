/* The fastest of several ways in which a library computes the same bits. */
#ifndef HT_KERNEL_CUDA_WAY_SEARCH_H
#define HT_KERNEL_CUDA_WAY_SEARCH_H

#include "device/device.h"

enum { HT_SEARCH_OPERANDS = 4 };

typedef struct ht_search {
    ht_queue *queue; /* of a device with a clock */
    size_t ways;
    struct {
        ht_dtype dtype;
        int64_t elems;
    } operands[HT_SEARCH_OPERANDS], result; /* operands of no elements are left out */
    /* Puts one way on the queue. HT_OK or why it cannot be; memory is the search's own. */
    ht_status (*run)(void *arg, size_t way, void *const *operands, void *result);
    void *arg;
} ht_search;

typedef struct ht_search_result {
    size_t best;           /* 0, the library's own first choice, where nothing is known to be better */
    double first, fastest; /* seconds of way 0 and of the best one; 0: not measured */
} ht_search_result;

/* Runs every way on random numbers, some times. A way whose result has not the bits of way 0's is not taken, so a run has the
 * same bits whatever is found. Too little memory for that, and a way that fails, are no errors. */
ht_search_result ht_search_ways(const ht_search *search);

#endif
