/* The hash table from names to values, with scopes. */
#include "graph/namemap.h"

#include <stdlib.h>
#include <string.h>

static ht_namemap_slot *find(const ht_namemap *map, const char *name, size_t length, uint32_t scope)
{
    size_t at = ht_hash_bytes(scope, name, length) & (map->capacity - 1);
    for (;; at = (at + 1) & (map->capacity - 1)) {
        ht_namemap_slot *slot = &map->slots[at];
        if (!slot->name) return slot;
        if (slot->scope == scope && slot->length == length && memcmp(slot->name, name, length) == 0) return slot;
    }
}

ht_val ht_namemap_get(const ht_namemap *map, const char *name, size_t length)
{
    if (!map->capacity) return HT_NONE;
    ht_val v = find(map, name, length, map->scope)->value;
    return v.id || !map->scope ? v : find(map, name, length, 0)->value;
}

bool ht_namemap_put(ht_namemap *map, const char *name, size_t length, ht_val value)
{
    if (map->capacity < 2 * (map->count + 1)) {
        ht_namemap grown = {
            .capacity = map->capacity ? map->capacity * 2 : 64, .count = map->count, .scope = map->scope};
        grown.slots = calloc(grown.capacity, sizeof *grown.slots);
        if (!grown.slots) return false;
        for (size_t i = 0; i < map->capacity; i++) {
            ht_namemap_slot *old = &map->slots[i];
            if (old->name) *find(&grown, old->name, old->length, old->scope) = *old;
        }
        free(map->slots);
        *map = grown;
    }
    ht_namemap_slot *slot = find(map, name, length, map->scope);
    if (!slot->name) map->count++;
    *slot = (ht_namemap_slot){name, length, map->scope, value};
    return true;
}

void ht_namemap_free(ht_namemap *map)
{
    free(map->slots);
    *map = (ht_namemap){0};
}
