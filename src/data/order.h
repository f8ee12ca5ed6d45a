/* Shuffling without a list: a permutation of 0 .. count-1 that can be asked for any one place. */
#ifndef HT_DATA_ORDER_H
#define HT_DATA_ORDER_H

#include <stdint.h>

/* Where `index` goes in the epoch's order of `count` things; `site` keeps different orders of one seed apart. */
uint64_t ht_order_at(uint64_t seed, uint64_t epoch, const char *site, uint64_t count, uint64_t index);
/* A number from 0 .. count-1, the same for the same arguments; count > 0. */
uint64_t ht_order_draw(uint64_t seed, const char *site, uint64_t index, uint64_t count);
/* The share of [0,1) that belongs to some bytes: for splits that depend on what is split and nothing else. */
double ht_order_share(const void *bytes, uint64_t length);

#endif
