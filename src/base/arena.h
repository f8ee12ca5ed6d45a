/* The arena: a bump allocator of zeroed memory that is freed all at once. A growing array (ht_push) is plain heap
 * memory. */
#ifndef HT_BASE_ARENA_H
#define HT_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ht_arena ht_arena;

/* NULL when memory is out. */
ht_arena *ht_arena_create(void);
void ht_arena_free(ht_arena *arena);

/* Zeroed, aligned to 16 bytes; size 0 gives a unique pointer. NULL when memory is out or the size overflows. */
void *ht_arena_alloc(ht_arena *arena, size_t count, size_t elem_bytes);
/* A zero-terminated copy of length bytes of text. */
char *ht_arena_text(ht_arena *arena, const char *text, size_t length);
/* Bytes handed out so far. */
size_t ht_arena_used(const ht_arena *arena);

#define HT_NEW(arena, type, count) ((type *)ht_arena_alloc((arena), (size_t)(count), sizeof(type)))

/* Reserves capacity for `need` elements in *array, growing by doubling; false when memory is out. The array is heap
 * memory: its owner calls free(). */
bool ht_grow(void **array, size_t *capacity, size_t need, size_t elem_bytes);

#endif
