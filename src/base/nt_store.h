/* Non-temporal stores, which go past the caches: a line that is written whole need not be read first. */
#ifndef HT_BASE_NT_STORE_H
#define HT_BASE_NT_STORE_H

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    HT_CACHE_LINE_BYTES = 64,
    /* Results from this size on are worth it: about half of a large L3. Below it the next kernel finds them there. */
    HT_NT_STORE_BYTES = 16 << 20
};

/* One vector of 16, 32 or 64 bytes, no wider than the build's registers, to a multiple of its size. */
static inline void ht_nt_store_vector(void *to, const void *from, int64_t bytes)
{
#if defined(__AVX512F__)
    if (bytes == 64) {
        _mm512_stream_si512((__m512i *)to, _mm512_loadu_si512(from));
        return;
    }
#endif
#if defined(__AVX__)
    if (bytes == 32) {
        _mm256_stream_si256((__m256i *)to, _mm256_loadu_si256((const __m256i *)from));
        return;
    }
#endif
#if defined(__x86_64__)
    if (bytes == 16) {
        _mm_stream_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from));
        return;
    }
#endif
    memcpy(to, from, (size_t)bytes);
}

/* A line of 64 bytes at a multiple of 64. */
static inline void ht_nt_store_line(char *restrict to, const char *restrict from)
{
#if defined(__AVX512F__)
    ht_nt_store_vector(to, from, 64);
#elif defined(__AVX__)
    for (int i = 0; i < HT_CACHE_LINE_BYTES; i += 32) ht_nt_store_vector(to + i, from + i, 32);
#else
    for (int i = 0; i < HT_CACHE_LINE_BYTES; i += 16) ht_nt_store_vector(to + i, from + i, 16);
#endif
}

/* A copy that leaves no trace in the caches; the first and last piece of a line are written as usual. */
static inline void ht_nt_copy(void *to, const void *from, int64_t bytes)
{
    char *y = to;
    const char *x = from;
    int64_t at = (int64_t)(-(uintptr_t)to % HT_CACHE_LINE_BYTES);
    if (at > bytes) at = bytes;
    if (at) memcpy(y, x, (size_t)at);
    for (; at + HT_CACHE_LINE_BYTES <= bytes; at += HT_CACHE_LINE_BYTES) ht_nt_store_line(y + at, x + at);
    if (at < bytes) memcpy(y + at, x + at, (size_t)(bytes - at));
}

/* Before a tile that has streamed ends: what follows sees what it wrote. */
static inline void ht_nt_fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#endif
