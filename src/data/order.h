/* Shuffling without a list or buffer: a permutation of 0 .. count-1 with random access. */
#ifndef HT_DATA_ORDER_H
#define HT_DATA_ORDER_H

#include <stdint.h>

/* The item at `index` in the epoch's order of `count` items; `site` separates different orders of one seed. */
uint64_t ht_order_at(uint64_t seed, uint64_t epoch, const char *site, uint64_t count, uint64_t index);
/* A number from 0 .. count-1, the same for the same arguments; count > 0. */
uint64_t ht_order_draw(uint64_t seed, const char *site, uint64_t index, uint64_t count);
/* A number in [0,1) from a hash of the bytes: for splits that depend on the item alone. */
double ht_order_share(const void *bytes, uint64_t length);

#endif
