/* Philox4x32-10, the counter-based random number generator, and random streams on it. */
#include "base/philox.h"

#include <math.h>
#include <string.h>

ht_philox ht_philox4x32(const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0;
        uint64_t p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return (ht_philox){{c0, c1, c2, c3}};
}

/* A bijection that mixes all bits (the finaliser of SplitMix64). */
static uint64_t spread(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* Uniform words have blocks below 2^63, normals use those above, so the two never share a word. */
#define NORMAL_HALF (UINT64_C(1) << 63)

/* Counter: block, step. Key: site and seed mixed, since together they are twice its size; for one seed, different sites
 * have different keys. Seeds are spread first because people choose 0, 1, 2. */
ht_philox ht_stream_block(const ht_stream *stream, uint64_t block)
{
    uint64_t mixed = spread(stream->site ^ spread(stream->seed + UINT64_C(0x9e3779b97f4a7c15)));
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream->step,
                           (uint32_t)(stream->step >> 32)};
    uint32_t key[2] = {(uint32_t)mixed, (uint32_t)(mixed >> 32)};
    return ht_philox4x32(counter, key);
}

uint32_t ht_stream_word(const ht_stream *stream, uint64_t index)
{
    return ht_stream_block(stream, index / 4).word[index % 4];
}

static double unit(uint32_t word)
{
    return ((double)word + 0.5) * 0x1p-32;
}

double ht_stream_uniform(const ht_stream *stream, uint64_t index)
{
    return unit(ht_stream_word(stream, index));
}

double ht_stream_normal(const ht_stream *stream, uint64_t index)
{
    const double two_pi = 6.283185307179586476925286766559;
    ht_philox block = ht_stream_block(stream, NORMAL_HALF | index / 2);
    const uint32_t *pair = &block.word[index % 2 * 2];
    return sqrt(-2.0 * log(unit(pair[0]))) * cos(two_pi * unit(pair[1]));
}

uint64_t ht_hash_bytes(uint64_t seed, const void *bytes, size_t count)
{
    uint64_t hash = seed ^ UINT64_C(0xcbf29ce484222325);
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

uint64_t ht_hash_text(const char *text)
{
    return ht_hash_bytes(0, text, strlen(text));
}
