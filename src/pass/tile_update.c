/* Cuts the update of flat groups into tiles, so that an offload can fetch and write back a few tiles at a time. A tile is a
 * slice of every array of the group; each has views of the group's states of its own ("flat.m.f32.tile3"), which no snapshot
 * holds. Every element is computed as before. An update that looks at whole tensors (LAMB, Muon), or draws random numbers by the
 * element's place, stays as it is: its tiles are its tensors.
 *
 * The norm of gradients that go to a disk is summed in parts, each with the sum of those before it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "pass/tile_update.h"

/* Elements. A group has about MOST_TILES of them, none smaller than SMALLEST or larger than LARGEST: a few in flight
 * are a small part of the state, and one is worth a transfer. */
enum { MOST_TILES = 32, SMALLEST = 1 << 18, LARGEST = 1 << 22, ROUND = 1 << 12, LEAST_ROUND = 16 };

typedef struct tiler {
    ht_graph *g;
    const ht_update_units *units;
    int64_t most; /* elements of a tile; 0: no limit of its own */
    double ratio; /* of the elements that move */
    ht_rewrite rw;
    ht_val *map; /* by value id: its slice in the tile at hand, or none */
    size_t known;
} tiler;

/* ---- which units ---- */

/* Is v an array of the group's length, or of any where *elems is 0? */
static bool is_array(const ht_graph *g, ht_val v, int64_t *elems)
{
    const ht_type *type = ht_type_of(g, v);
    if (type->rank != 1 || !ht_type_contiguous(type)) return false;
    if (*elems == 0) *elems = type->dim[0];
    return type->dim[0] == *elems;
}

static bool can_slice(const ht_graph *g, const ht_node *n, int64_t *elems)
{
    if (!ht_is_elementwise(g, n)) return false;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        if (v.id && !ht_is_scalar(g, v) && !is_array(g, v, elems)) return false;
    }
    for (size_t i = 0; i < n->n_out; i++)
        if (!is_array(g, ht_node_out(n, i), elems)) return false;
    return true;
}

/* Elements of the arrays that a unit computes on; 0: it cannot be cut. */
static int64_t unit_elems(const tiler *t, size_t unit)
{
    int64_t elems = 0;
    for (size_t i = t->units->first[unit]; i < t->units->first[unit + 1]; i++)
        if (!can_slice(t->g, &t->g->nodes[t->units->nodes[i]], &elems)) return 0;
    return elems;
}

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

int64_t ht_tile_elems(int64_t group, int64_t most)
{
    int64_t tile = round_up((group + MOST_TILES - 1) / MOST_TILES, ROUND);
    if (tile < SMALLEST) tile = SMALLEST;
    if (tile > LARGEST) tile = LARGEST;
    if (most && most < tile) tile = round_up(most, most < ROUND ? LEAST_ROUND : ROUND);
    return tile;
}

static int64_t tile_elems(const tiler *t, int64_t elems)
{
    return ht_tile_elems(elems, t->most);
}

/* ---- slices ---- */

ht_val ht_tile_view(ht_graph *g, ht_val state, const char *what, int64_t index, int64_t first, int64_t count)
{
    char name[512];
    ht_type type = ht_type_make(ht_type_of(g, state)->dtype, 1, &count);
    ht_heading heading = ht_state_of(g, state)->heading;
    type.space = ht_type_of(g, state)->space;
    snprintf(name, sizeof name, "%s.%s%lld", ht_value_of(g, state)->name, what, (long long)index);
    ht_val known = ht_find(g, name);
    if (known.id) return known;
    int64_t offset = ht_value_of(g, state)->base.id ? ht_value_of(g, state)->offset : 0;
    ht_val view = ht_graph_add_state(g, name, &type, &(ht_state){.heading = heading, .derived = true});
    if (g->status == HT_OK) ht_value_view(g, view, ht_root(g, state), offset + first);
    return view;
}

/* What an operand is in the tile. */
static ht_val slice(tiler *t, ht_val v, int64_t index, int64_t first, int64_t count)
{
    ht_graph *g = t->g;
    if (g->status != HT_OK || !v.id || ht_is_scalar(g, v)) return ht_rewrite_map(&t->rw, v);
    if (t->map[v.id].id) return t->map[v.id];
    ht_node from = ht_producer(g, v) ? *ht_producer(g, v) : (ht_node){0};
    if (ht_state_of(g, v))
        t->map[v.id] = ht_tile_view(g, v, "tile", index, first, count);
    else if (from.op && ht_is_repeatable(g, &from))
        t->map[v.id] = ht_repeat(&t->rw, &from, count);
    else
        t->map[v.id] = ht_slice_axis(g, v, 0, first, count);
    return t->map[v.id];
}

static void copy_node(tiler *t, uint32_t id, int64_t index, int64_t first, int64_t count)
{
    enum { MOST = 8 };
    ht_graph *g = t->g;
    const ht_node n = g->nodes[id];
    ht_val in[MOST], out[MOST];
    ht_type want[MOST];
    if (n.n_in > MOST) {
        ht_graph_fail(g, HT_ENOTSUP, "tile_update: %s has %u inputs", n.op->name, n.n_in);
        return;
    }
    for (size_t i = 0; i < n.n_in; i++) in[i] = slice(t, ht_node_in(g, &n, i), index, first, count);
    for (size_t i = 0; i < n.n_out; i++) {
        want[i] = *ht_type_of(g, ht_node_out(&n, i));
        want[i].dim[0] = count;
        ht_type_row_major(&want[i]);
    }
    ht_emit(g, n.op, n.n_in, in, ht_op_attr_count(n.op), n.attr, n.n_out ? want : NULL, out);
    if (g->status != HT_OK) return;
    ht_node *copy = &g->nodes[g->node_count - 1];
    copy->role = n.role;
    copy->full = n.full;
    copy->site = n.site;
    for (size_t i = 0; i < n.n_out; i++) t->map[n.out + i] = out[i];
}

/* Where the part of a unit that moves ends: a tile does, too. */
static int64_t unit_share(const tiler *t, size_t unit, int64_t elems)
{
    const ht_graph *g = t->g;
    for (size_t i = t->units->first[unit]; i < t->units->first[unit + 1]; i++) {
        const ht_node *n = &g->nodes[t->units->nodes[i]];
        for (size_t k = 0; k < n->n_in; k++) {
            ht_val v = ht_node_in(g, n, k);
            const ht_state *s = v.id && t->units->goes[v.id] != HT_SPACE_MAIN ? ht_state_of(g, v) : NULL;
            bool optimizer = s && (s->heading == HT_HEADING_OPTIMIZER || s->heading == HT_HEADING_MASTERS);
            if (optimizer && !ht_value_of(g, v)->base.id) return ht_offload_share(g, v, t->ratio);
        }
    }
    return elems;
}

/* A group of one tile: what the model reads of it, biases and norms, it reads from its first layer on. */
static bool is_small(const tiler *t, size_t unit)
{
    int64_t elems = unit_elems(t, unit);
    return elems && elems <= tile_elems(t, elems);
}

static void cut_unit(tiler *t, size_t unit)
{
    const ht_update_units *units = t->units;
    int64_t elems = unit_elems(t, unit), tile = elems ? tile_elems(t, elems) : 0;
    int64_t share = unit_share(t, unit, elems);
    bool whole = elems <= tile && (share == 0 || share == elems || !elems);
    for (size_t i = units->first[unit]; whole && i < units->first[unit + 1]; i++)
        ht_rewrite_keep(&t->rw, units->nodes[i]);
    for (int64_t first = 0, index = 0, count; !whole && first < elems && t->g->status == HT_OK; first += count) {
        int64_t end = first < share ? share : elems;
        count = end - first < tile ? end - first : tile;
        memset(t->map, 0, t->known * sizeof *t->map);
        for (size_t i = units->first[unit]; i < units->first[unit + 1] && t->g->status == HT_OK; i++)
            copy_node(t, units->nodes[i], index, first, count);
        index++;
    }
}

/* ---- the norm ---- */

/* Is it the norm of gradients that will not be in memory? */
static bool sums_gradients(const tiler *t, const ht_node *n)
{
    return n->op == &ht_op_norm_finite && t->units->goes[ht_node_in(t->g, n, 0).id] == HT_SPACE_DISK;
}

static void cut_norm(tiler *t, uint32_t id)
{
    ht_graph *g = t->g;
    const ht_node n = g->nodes[id];
    ht_val flat = ht_node_in(g, &n, 0), sum[2] = {HT_NONE, HT_NONE};
    int64_t elems = ht_type_elems(ht_type_of(g, flat)), part = round_up(tile_elems(t, elems), HT_SUM_SQUARES_BLOCK);
    const ht_op *op = ht_op_find(g->ctx, "sum_squares_finite", strlen("sum_squares_finite"));
    for (int64_t first = 0, index = 0; first < elems && g->status == HT_OK; first += part, index++) {
        ht_val in[] = {ht_tile_view(g, flat, "part", index, first, elems - first < part ? elems - first : part), sum[0],
                       sum[1]};
        ht_emit(g, op, index ? 3 : 1, in, 0, NULL, NULL, sum);
    }
    if (g->status != HT_OK) return;
    ht_rewrite_replace(&t->rw, ht_node_out(&n, 0), ht_sqrt(g, sum[0]));
    ht_rewrite_replace(&t->rw, ht_node_out(&n, 1), sum[1]);
}

/* ---- the segment ---- */

static void keep_others(tiler *t, bool stores)
{
    for (size_t i = 0; i < t->rw.count; i++) {
        const ht_node *n = &t->g->nodes[t->rw.old[i]];
        if (t->units->of_node[t->rw.old[i]] || (n->op == &ht_op_store) != stores) continue;
        if (sums_gradients(t, n))
            cut_norm(t, t->rw.old[i]);
        else
            ht_rewrite_keep(&t->rw, t->rw.old[i]);
    }
}

static ht_status cut(tiler *t)
{
    ht_graph *g = t->g;
    ht_role role = g->role;
    t->known = g->value_count;
    t->map = calloc(t->known, sizeof *t->map);
    if (!t->map) HT_FAIL(g->ctx, HT_ENOMEM, "tile_update: out of memory");
    g->role = HT_ROLE_UPDATE;
    if (ht_rewrite_begin(&t->rw, g, t->units->segment)) {
        keep_others(t, false);
        for (size_t unit = 0; unit < t->units->count; unit++)
            if (is_small(t, unit)) cut_unit(t, unit);
        for (size_t unit = 0; unit < t->units->count; unit++)
            if (!is_small(t, unit)) cut_unit(t, unit);
        keep_others(t, true);
    }
    g->role = role;
    free(t->map);
    HT_TRY(ht_rewrite_end(&t->rw));
    return ht_tile_first_values(g, t->units->goes, t->known, t->most);
}

static ht_status tile_update_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_offload_options *o = &env->options->offload;
    ht_update_units units;
    ht_status status = ht_update_units_find(&units, g, env, NULL);
    if (status == HT_OK && units.count)
        status = cut(&(tiler){.g = g, .units = &units, .most = o->tile, .ratio = o->ratio});
    ht_update_units_free(&units);
    return status;
}

const ht_pass ht_pass_tile_update = {
    .name = "tile_update",
    .help = "cut the update of state that an offload moves into tiles",
    .system = true,
    .run = tile_update_run,
    .settings = ht_offload_settings,
};
