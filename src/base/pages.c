/* Allocation of a session's memory in huge pages. */
#include "base/pages.h"

#include <stdlib.h>
#include <string.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

enum { LINE_BYTES = 64, HUGE_BYTES = 2 << 20 };

/* With pages of 4 KiB a kernel that reads several large operands at once suffers TLB misses: layernorm over 24 MiB runs
 * a quarter faster with huge pages. Huge pages are a request; a refusal only costs speed, so its result is ignored. */
static void ask_for_huge(void *memory, size_t bytes)
{
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    (void)madvise(memory, bytes / HUGE_BYTES * HUGE_BYTES, MADV_HUGEPAGE);
#else
    (void)memory;
    (void)bytes;
#endif
}

void *ht_pages_alloc(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, bytes < HUGE_BYTES ? LINE_BYTES : HUGE_BYTES, bytes) != 0) return NULL;
    if (bytes >= HUGE_BYTES) ask_for_huge(memory, bytes);
    memset(memory, 0, bytes);
    return memory;
}
