/* Page allocation: large blocks of memory that live as long as a session, in huge pages where possible. */
#ifndef HT_BASE_PAGES_H
#define HT_BASE_PAGES_H

#include <stddef.h>

/* Zeroed and touched, aligned to 64 bytes; NULL when memory is out. Parts that fill whole huge pages ask for them (the
 * system may refuse); the rest takes no more memory than it needs. Released by free(). */
void *ht_pages_alloc(size_t bytes);

#endif
