#include "graph/namemap.h"

#include <stdlib.h>
#include <string.h>

static ht_namemap_slot *find(const ht_namemap *map, const char *name, size_t length, uint32_t scope)
{
    size_t at = ht_hash_bytes(scope, name, length) & (map->room - 1);
    for (;; at = (at + 1) & (map->room - 1)) {
        ht_namemap_slot *slot = &map->slots[at];
        if (!slot->name) return slot;
        if (slot->scope == scope && slot->length == length && memcmp(slot->name, name, length) == 0) return slot;
    }
}

ht_val ht_namemap_get(const ht_namemap *map, const char *name, size_t length)
{
    if (!map->room) return HT_NONE;
    ht_val v = find(map, name, length, map->scope)->value;
    return v.id || !map->scope ? v : find(map, name, length, 0)->value;
}

bool ht_namemap_put(ht_namemap *map, const char *name, size_t length, ht_val value)
{
    if (map->room < 2 * (map->count + 1)) {
        ht_namemap grown = {.room = map->room ? map->room * 2 : 64, .count = map->count, .scope = map->scope};
        grown.slots = calloc(grown.room, sizeof *grown.slots);
        if (!grown.slots) return false;
        for (size_t i = 0; i < map->room; i++) {
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
