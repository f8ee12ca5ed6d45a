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

/* Shares of whole huge pages, so that no page has two threads that touch it first. */
typedef struct touch {
    char *memory;
    size_t bytes, share;
} touch;

static void touch_share(void *arg, int64_t number)
{
    const touch *t = arg;
    size_t start = (size_t)number * t->share;
    memset(t->memory + start, 0, t->bytes - start < t->share ? t->bytes - start : t->share);
}

void *ht_pages_alloc(size_t bytes, ht_pool *pool)
{
    void *memory = NULL;
    if (posix_memalign(&memory, bytes < HUGE_BYTES ? LINE_BYTES : HUGE_BYTES, bytes) != 0) return NULL;
    if (bytes >= HUGE_BYTES) ask_for_huge(memory, bytes);
    size_t pages = (bytes + HUGE_BYTES - 1) / HUGE_BYTES, threads = (size_t)ht_pool_threads(pool);
    touch t = {memory, bytes, (pages + threads - 1) / threads * HUGE_BYTES};
    if (bytes > 0) ht_parallel(pool, (int64_t)((bytes + t.share - 1) / t.share), touch_share, &t);
    return memory;
}
