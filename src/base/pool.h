/* The thread pool, one per context. Kernels split their work into tiles whose number and bounds are independent of the
 * number of threads, and so are the bits of the result. */
#ifndef HT_BASE_POOL_H
#define HT_BASE_POOL_H

#include <stdint.h>

typedef struct ht_pool ht_pool;
typedef void (*ht_tile_fn)(void *arg, int64_t tile);

/* The caller is one of the threads; NULL when threads cannot be created. */
ht_pool *ht_pool_create(int threads);
void ht_pool_free(ht_pool *pool);
int ht_pool_threads(const ht_pool *pool);

/* Calls fn(arg, 0 .. tiles-1), each once, in any order, and returns when all are done. With one tile, one thread, a
 * NULL pool, or from inside a tile, the caller runs them in order. Workers spin briefly between calls and then sleep.
 */
void ht_parallel(ht_pool *pool, int64_t tiles, ht_tile_fn fn, void *arg);

#endif
