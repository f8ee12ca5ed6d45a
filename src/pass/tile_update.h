/* Tiles of states that move. */
#ifndef HT_PASS_TILE_UPDATE_H
#define HT_PASS_TILE_UPDATE_H

#include "pass/update_units.h"

/* Elements of the tiles of a group of so many; `most`: 0, or a limit of the options. */
int64_t ht_tile_elems(int64_t group, int64_t most);
/* The view of a state that is number `index` of its tiles ("tile"), or of what else it is cut into. */
ht_val ht_tile_view(ht_graph *g, ht_val state, const char *what, int64_t index, int64_t first, int64_t count);
/* tile_init.c: the segment "init" makes and stores the first values of states that move tile by tile. */
ht_status ht_tile_first_values(ht_graph *g, const ht_space *goes, size_t count, int64_t most);

#endif
