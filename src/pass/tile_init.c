/* First values of states that move, tile by tile: a tensor, or a constant for a whole group, would take memory that the offload
 * is there to save. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/first_values.h"
#include "pass/tile_update.h"

typedef struct cutter {
    ht_graph *g;
    const ht_space *goes;
    size_t known; /* values that `goes` knows */
    int64_t most;
    ht_rewrite rw;
    enum { WHOLE, AT_HAND, CUT } * state; /* by node id, of stores */
    ht_val source;
    int64_t index, first, count; /* of the tile at hand */
} cutter;

/* ---- what can be cut ---- */

static bool moves(const cutter *c, ht_val v)
{
    return v.id < c->known && c->goes[v.id] != HT_SPACE_MAIN;
}

static ht_val find_tile(const ht_graph *g, ht_val state, int64_t index)
{
    char name[512];
    snprintf(name, sizeof name, "%s.tile%lld", ht_value_of(g, state)->name, (long long)index);
    return ht_find(g, name);
}

static int64_t tile_of(const cutter *c, ht_val state)
{
    return ht_tile_elems(ht_type_elems(ht_type_of(c->g, ht_root(c->g, state))), c->most);
}

/* The tiles that the update has: they know where the share that moves ends. */
static bool has_tiles(const cutter *c, ht_val state)
{
    return moves(c, state) && find_tile(c->g, state, 0).id != 0;
}

/* A store of more than a tile into a state that moves. */
static bool is_cut(const cutter *c, const ht_node *n)
{
    const ht_graph *g = c->g;
    if (n->op != &ht_op_store) return false;
    ht_val into = ht_node_in(g, n, 0);
    const ht_type *type = ht_type_of(g, into);
    if (!moves(c, into) || !ht_type_contiguous(type) || !ht_first_value_source(g, ht_node_in(g, n, 1)).id) return false;
    return has_tiles(c, into) || ht_type_elems(type) > tile_of(c, into);
}

/* ---- a source, and all that is stored of it ---- */

static void store_tile(cutter *c, ht_val tile, size_t from)
{
    ht_graph *g = c->g;
    ht_val source = ht_first_value_part(g, c->source, c->first, c->count);
    for (size_t i = from; i < c->rw.count && g->status == HT_OK; i++) {
        if (c->state[c->rw.old[i]] != AT_HAND) continue;
        const ht_node n = g->nodes[c->rw.old[i]];
        ht_val into = ht_node_in(g, &n, 0), value = ht_node_in(g, &n, 1);
        ht_val goal = tile.id ? tile : ht_tile_view(g, into, "piece", c->index, c->first, c->count);
        if (g->status == HT_OK) ht_store(g, goal, ht_first_value_of(g, value, c->source, source));
    }
}

/* A constant of a group, into the tiles that its update has. */
static void fill_tiles(cutter *c, ht_val into, size_t from)
{
    ht_val tile;
    c->first = 0;
    for (c->index = 0; c->g->status == HT_OK && (tile = find_tile(c->g, into, c->index)).id; c->index++) {
        c->count = ht_type_elems(ht_type_of(c->g, tile));
        store_tile(c, tile, from);
        c->first += c->count;
    }
}

/* The store at `from` and others of the same source, which is then made once. */
static void take_stores(cutter *c, size_t from)
{
    const ht_graph *g = c->g;
    for (size_t i = from + 1; i < c->rw.count; i++) {
        const ht_node *n = &g->nodes[c->rw.old[i]];
        if (n->op != &ht_op_store || c->state[c->rw.old[i]] != WHOLE) continue;
        ht_val into = ht_node_in(g, n, 0);
        bool same = ht_first_value_source(g, ht_node_in(g, n, 1)).id == c->source.id && !find_tile(g, into, 0).id;
        if (same && ht_type_contiguous(ht_type_of(g, into))) c->state[c->rw.old[i]] = AT_HAND;
    }
}

static void cut_source(cutter *c, size_t from)
{
    ht_graph *g = c->g;
    const ht_node n = g->nodes[c->rw.old[from]];
    ht_val into = ht_node_in(g, &n, 0);
    c->source = ht_first_value_source(g, ht_node_in(g, &n, 1));
    c->state[c->rw.old[from]] = AT_HAND;
    if (has_tiles(c, into)) {
        fill_tiles(c, into, from);
    } else {
        int64_t elems = ht_type_elems(ht_type_of(g, into)), tile = tile_of(c, into);
        take_stores(c, from);
        for (c->index = c->first = 0; c->first < elems && g->status == HT_OK; c->index++, c->first += c->count) {
            c->count = elems - c->first < tile ? elems - c->first : tile;
            store_tile(c, HT_NONE, from);
        }
    }
    for (size_t i = from; i < c->rw.count; i++)
        if (c->state[c->rw.old[i]] == AT_HAND) c->state[c->rw.old[i]] = CUT;
}

ht_status ht_tile_first_values(ht_graph *g, const ht_space *goes, size_t count, int64_t most)
{
    int index = ht_segment_find(g, "init");
    if (index < 0) return HT_OK;
    cutter c = {.g = g, .goes = goes, .known = count, .most = most, .state = calloc(g->node_count, sizeof *c.state)};
    if (!c.state) HT_FAIL(g->ctx, HT_ENOMEM, "tile_update: out of memory");
    if (ht_rewrite_begin(&c.rw, g, (uint32_t)index))
        for (size_t i = 0; i < c.rw.count && g->status == HT_OK; i++) {
            uint32_t id = c.rw.old[i];
            if (c.state[id] == CUT) continue;
            if (is_cut(&c, &g->nodes[id]))
                cut_source(&c, i);
            else
                ht_rewrite_keep(&c.rw, id);
        }
    free(c.state);
    return ht_rewrite_end(&c.rw);
}
