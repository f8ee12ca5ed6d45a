/* Large blocks of memory that live as long as a session. */
#ifndef HT_BASE_PAGES_H
#define HT_BASE_PAGES_H

#include <stddef.h>

/* Zeroed and touched, at a multiple of 64; NULL: there is no such memory. What fills whole huge pages is put into some
 * where the system has them to give, the rest takes no more than it needs. Released by free(). */
void *ht_pages_alloc(size_t bytes);

#endif
