/* The symbol table: names to values, with one open scope at a time; for the parser and the verifier. */
#ifndef HT_GRAPH_NAMEMAP_H
#define HT_GRAPH_NAMEMAP_H

#include "base/base.h"

typedef struct ht_namemap_slot {
    const char *name;
    size_t length;
    uint32_t scope;
    ht_val value;
} ht_namemap_slot;

typedef struct ht_namemap {
    ht_namemap_slot *slots; /* capacity is a power of two */
    size_t capacity, count;
    uint32_t scope; /* visible are the names of this scope and of scope 0 */
} ht_namemap;

/* None when the name is not there. */
ht_val ht_namemap_get(const ht_namemap *map, const char *name, size_t length);
/* The name is borrowed. False when memory is out. */
bool ht_namemap_put(ht_namemap *map, const char *name, size_t length, ht_val value);
void ht_namemap_free(ht_namemap *map);

#endif
