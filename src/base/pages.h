/* Page allocation: large blocks of memory that live as long as a session, in huge pages where possible. */
#ifndef HT_BASE_PAGES_H
#define HT_BASE_PAGES_H

#include <stddef.h>

#include "base/pool.h"

/* Zeroed and touched, aligned to 64 bytes; NULL when memory is out. Each of the pool's threads touches a contiguous
 * share, so that on a machine with several memories every one of them gets some; NULL: the caller touches all. Parts that
 * fill whole huge pages ask for them (the system may refuse); the rest takes no more memory than it needs. Released by
 * free(). */
void *ht_pages_alloc(size_t bytes, ht_pool *pool);

#endif
