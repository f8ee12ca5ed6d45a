/* Results too large for the caches go past them: a line that is written whole need not be read first. For *.cpu.c
 * files. */
#ifndef HT_KERNEL_STREAM_STORE_H
#define HT_KERNEL_STREAM_STORE_H

#include "kernel/lanes.h"

/* One vector at an address that is a multiple of its size. */
static inline void ht_vector_stream_store(real *to, vec_unaligned v)
{
    ht_nt_store_vector(to, &v, sizeof v);
}

/* May rows of n reals each that start here be written by ht_vector_stream_store? */
static inline bool ht_rows_can_stream(const void *to, ht_dtype dtype, int64_t n)
{
    return dtype == HT_REAL_DTYPE && (uintptr_t)to % VEC_BYTES == 0 && n % VL == 0;
}

/* n elements as ht_save does it, past the caches if `stream`; n at most HT_STREAM_STORE_ELEMS. */
enum { HT_STREAM_STORE_ELEMS = 1024 };
static inline void ht_save_streamed(void *to, ht_dtype dtype, int64_t start, const real *restrict from, int64_t n,
                                    bool stream)
{
    if (!stream) {
        ht_save(to, dtype, start, from, n);
        return;
    }
    int64_t bytes = ht_dtype_bytes(dtype);
    char *first = (char *)to + start * bytes;
    if (dtype == HT_REAL_DTYPE) {
        ht_nt_copy(first, from, n * bytes);
        return;
    }
    double scratch[HT_STREAM_STORE_ELEMS];
    ht_save(scratch, dtype, 0, from, n);
    ht_nt_copy(first, scratch, n * bytes);
}

#endif
