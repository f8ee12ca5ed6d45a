/* Shuffling by a keyed permutation: a Feistel network over the smallest square power of two that holds the count, its
 * rounds keyed by Philox; results out of range are permuted again (cycle walking), which keeps it a permutation. An
 * index costs a few Philox blocks and no memory, so a position needs no saved list and a seek no replay. */
#include "data/order.h"

#include "base/base.h"

enum { ROUNDS = 6 };

static uint64_t mix(const ht_stream *stream, int half, uint64_t index)
{
    uint64_t mask = (UINT64_C(1) << half) - 1, left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t next = left ^ (ht_stream_block(stream, round << 32 | right).word[0] & mask);
        left = right;
        right = next;
    }
    return left << half | right;
}

uint64_t ht_order_at(uint64_t seed, uint64_t epoch, const char *site, uint64_t count, uint64_t index)
{
    ht_stream stream = {seed, epoch, ht_hash_text(site)};
    int half = 1;
    while (half < 31 && UINT64_C(1) << 2 * half < count) half++;
    do index = mix(&stream, half, index);
    while (index >= count);
    return index;
}

uint64_t ht_order_draw(uint64_t seed, const char *site, uint64_t index, uint64_t count)
{
    ht_stream stream = {seed, 0, ht_hash_text(site)};
    ht_philox block = ht_stream_block(&stream, index);
    uint64_t word = (uint64_t)block.word[0] << 32 | block.word[1];
    return (uint64_t)((unsigned __int128)word * count >> 64);
}

double ht_order_share(const void *bytes, uint64_t length)
{
    ht_stream stream = {0, 0, ht_hash_bytes(0, bytes, length)};
    return ht_stream_uniform(&stream, 0);
}
