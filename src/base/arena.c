/* The arena allocator: bump allocation in chunks, with red zones under AddressSanitizer; and growing arrays. */
#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Red zones: under AddressSanitizer unallocated bytes are poisoned and every allocation is followed by a red zone, so
 * an overrun of one allocation is caught although the next one is valid memory. */
#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN
#include <sanitizer/asan_interface.h>
#define RED_ZONE_BYTES 16
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)   ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define RED_ZONE_BYTES                              0
#endif

#define ALIGN_BYTES       ((size_t)16)
#define FIRST_CHUNK_BYTES ((size_t)16 << 10)
#define LAST_CHUNK_BYTES  ((size_t)1 << 20)

typedef struct chunk {
    struct chunk *next;
    size_t used, capacity;
    _Alignas(16) unsigned char bytes[];
} chunk;

struct ht_arena {
    chunk *chunks; /* the one being filled comes first */
    size_t next_capacity;
    size_t used;
};

ht_arena *ht_arena_create(void)
{
    ht_arena *arena = calloc(1, sizeof *arena);
    if (arena != NULL) arena->next_capacity = FIRST_CHUNK_BYTES;
    return arena;
}

void ht_arena_free(ht_arena *arena)
{
    if (arena == NULL) return;
    for (chunk *at = arena->chunks; at != NULL;) {
        chunk *next = at->next;
        ASAN_UNPOISON_MEMORY_REGION(at->bytes, at->capacity);
        free(at);
        at = next;
    }
    free(arena);
}

static chunk *chunk_create(size_t capacity)
{
    chunk *fresh = calloc(1, sizeof *fresh + capacity);
    if (fresh == NULL) return NULL;
    fresh->capacity = capacity;
    ASAN_POISON_MEMORY_REGION(fresh->bytes, capacity);
    return fresh;
}

/* A chunk with enough free bytes. An allocation too large for a common chunk gets one of its own, inserted after the
 * current chunk, whose free bytes stay in use. */
static chunk *chunk_for(ht_arena *arena, size_t bytes)
{
    chunk *first = arena->chunks;
    if (first != NULL && first->capacity - first->used >= bytes) return first;
    if (bytes > arena->next_capacity / 4) {
        chunk *own = chunk_create(bytes);
        if (own == NULL) return NULL;
        own->next = first != NULL ? first->next : NULL;
        if (first != NULL)
            first->next = own;
        else
            arena->chunks = own;
        return own;
    }
    chunk *fresh = chunk_create(arena->next_capacity);
    if (fresh == NULL) return NULL;
    if (arena->next_capacity < LAST_CHUNK_BYTES) arena->next_capacity *= 2;
    fresh->next = first;
    arena->chunks = fresh;
    return fresh;
}

void *ht_arena_alloc(ht_arena *arena, size_t count, size_t elem_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, elem_bytes, &bytes) || bytes > PTRDIFF_MAX - 4096) return NULL;
    size_t taken = bytes == 0 ? ALIGN_BYTES : (bytes + ALIGN_BYTES - 1) & ~(ALIGN_BYTES - 1);
    chunk *at = chunk_for(arena, taken + RED_ZONE_BYTES);
    if (at == NULL) return NULL;
    void *piece = at->bytes + at->used;
    at->used += taken + RED_ZONE_BYTES;
    arena->used += taken;
    ASAN_UNPOISON_MEMORY_REGION(piece, bytes);
    return piece;
}

char *ht_arena_text(ht_arena *arena, const char *text, size_t length)
{
    if (length == SIZE_MAX) return NULL;
    char *copy = ht_arena_alloc(arena, length + 1, 1);
    if (copy != NULL && length > 0) memcpy(copy, text, length);
    return copy;
}

size_t ht_arena_used(const ht_arena *arena)
{
    return arena->used;
}

bool ht_grow(void **array, size_t *capacity, size_t need, size_t elem_bytes)
{
    if (need <= *capacity) return true;
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2) return false;
        wanted *= 2;
    }
    size_t bytes;
    if (__builtin_mul_overflow(wanted, elem_bytes, &bytes)) return false;
    /* Callers pass the address of a `T *`; reading it by memcpy keeps clear of the aliasing rules. */
    void *old;
    memcpy(&old, array, sizeof old);
    void *grown = realloc(old, bytes);
    if (grown == NULL) return false;
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}
