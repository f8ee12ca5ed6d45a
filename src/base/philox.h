/* Philox4x32-10, a counter-based random number generator: numbers are a pure function of a counter and a key, so any
 * thread or rank computes its own, and a recomputed activation sees the same ones.
 * docs/decisions/0003-counter-based-random-numbers.md defines counter and key. */
#ifndef HT_BASE_PHILOX_H
#define HT_BASE_PHILOX_H

#include <stddef.h>
#include <stdint.h>

typedef struct ht_philox {
    uint32_t word[4];
} ht_philox;

ht_philox ht_philox4x32(const uint32_t counter[4], const uint32_t key[2]);

/* A random stream: the numbers of one seed, step and site. */
typedef struct ht_stream {
    uint64_t seed;
    uint64_t step;
    uint64_t site; /* ht_hash_text of the site's name */
} ht_stream;

/* The four words for elements 4*block .. 4*block+3 of the stream. */
ht_philox ht_stream_block(const ht_stream *stream, uint64_t block);
/* The word of one element. */
uint32_t ht_stream_word(const ht_stream *stream, uint64_t index);
/* In the open interval (0,1): (word + 0.5) / 2^32. */
double ht_stream_uniform(const ht_stream *stream, uint64_t index);
/* Standard normal by Box-Muller from the words of elements 2i and 2i+1 of the stream's normal half. */
double ht_stream_normal(const ht_stream *stream, uint64_t index);

/* 64-bit FNV-1a. */
uint64_t ht_hash_text(const char *text);
uint64_t ht_hash_bytes(uint64_t seed, const void *bytes, size_t count);

#endif
