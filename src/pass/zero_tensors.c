/* Rules that look at whole tensors (LAMB, Muon), on pieces. A tensor is a bucket of its own. What is computed element by
 * element is computed on each rank's piece; a norm is that of all pieces, by a sum over ranks; for what remains (Muon's
 * products) its operands are gathered, and every rank computes all of it, as it would with no partition. Elements behind
 * the tensor's end are 0 and stay so. */
#include <string.h>

#include "pass/update_units.h"
#include "pass/zero_update.h"

enum { MOST = 8 };

static const ht_zero_member *member_of(const ht_zero_group *group, size_t bucket)
{
    size_t i = 0;
    while (group->members[i].bucket != bucket || group->members[i].elems == 0) i++;
    return &group->members[i];
}

/* The producer of a constant or a repeated scalar, which is made again in the shape that is wanted; or NULL. */
static const ht_node *repeatable(const ht_zero_cutter *c, ht_val v)
{
    const ht_node *n = ht_state_of(c->g, v) ? NULL : ht_producer(c->g, v);
    return n && ht_is_repeatable(c->g, n) ? n : NULL;
}

static ht_val scalar_of(const ht_zero_cutter *c, ht_val v)
{
    return v.id < c->z->known && c->map[v.id].id ? c->map[v.id] : ht_rewrite_map(&c->rw, v);
}

static ht_val repeat_as(ht_zero_cutter *c, const ht_node *n, ht_type want)
{
    const ht_node like = *n; /* the builder may move the graph's */
    ht_val in = like.n_in ? scalar_of(c, ht_node_in(c->g, &like, 0)) : HT_NONE, out = HT_NONE;
    ht_emit(c->g, like.op, like.n_in, &in, ht_op_attr_count(like.op), like.attr, &want, &out);
    return out;
}

/* ---- pieces and wholes ---- */

/* This rank's piece of a value that is there in full. */
static ht_val cut_whole(ht_zero_cutter *c, const ht_zero_bucket *b, const ht_zero_member *m, ht_val whole)
{
    ht_graph *g = c->g;
    int64_t flat = -1, gap = b->count - m->elems, piece = ht_zero_piece(c->z, b);
    ht_val parts[2] = {ht_reshape(g, whole, 1, &flat), HT_NONE};
    if (gap && g->status == HT_OK) parts[1] = ht_fill(g, ht_type_of(g, whole)->dtype, 1, &gap, 0);
    ht_val all = gap ? ht_concat(g, 2, parts, 0) : parts[0];
    return ht_slice_axis(g, all, 0, c->z->options->rank * piece, piece);
}

static ht_val piece_of(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, ht_val v)
{
    ht_graph *g = c->g;
    const ht_zero_bucket *b = &group->buckets[bucket];
    if (g->status != HT_OK || !v.id || ht_is_scalar(g, v)) return scalar_of(c, v);
    if (c->map[v.id].id) return c->map[v.id];
    if (ht_state_of(g, v)) return c->map[v.id] = ht_zero_piece_of(c->z, group, c->z->places[v.id].state, bucket);
    const ht_node *again = repeatable(c, v);
    int64_t count = ht_zero_piece(c->z, b);
    ht_type want = ht_type_make(ht_type_of(g, v)->dtype, 1, &count);
    return c->map[v.id] = again ? repeat_as(c, again, want) : cut_whole(c, b, member_of(group, bucket), c->whole[v.id]);
}

static ht_val whole_of(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, ht_val v)
{
    ht_graph *g = c->g;
    if (g->status != HT_OK || !v.id || ht_is_scalar(g, v)) return scalar_of(c, v);
    if (c->whole[v.id].id) return c->whole[v.id];
    const ht_state *s = ht_state_of(g, v);
    const ht_type shape = s && s->part ? s->whole : *ht_type_of(g, v);
    const ht_node *again = repeatable(c, v);
    if (again) return c->whole[v.id] = repeat_as(c, again, shape);
    if (s && !s->part) return v;
    ht_val all = ht_all_gather(g, piece_of(c, group, bucket, v), c->z->ranks);
    all = ht_slice_axis(g, all, 0, 0, member_of(group, bucket)->elems);
    return c->whole[v.id] = ht_reshape(g, all, shape.rank, shape.dim);
}

/* Is there an operand of which this rank has a piece? */
static bool reads_piece(const ht_zero_cutter *c, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        if (!v.id || ht_is_scalar(c->g, v) || repeatable(c, v)) continue;
        if (ht_state_of(c->g, v) || c->map[v.id].id) return true;
    }
    return false;
}

/* ---- nodes ---- */

static bool is_norm_of_all(const ht_graph *g, const ht_node *n)
{
    return strcmp(n->op->name, "norm") == 0 && ht_is_scalar(g, ht_node_out(n, 0));
}

/* ‖x‖ from every rank's piece, summed in f64 in the order of ranks. */
static void cut_norm(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, const ht_node *n)
{
    ht_graph *g = c->g;
    ht_val y = ht_node_out(n, 0);
    ht_dtype dtype = ht_type_of(g, y)->dtype;
    ht_val own = ht_norm(g, piece_of(c, group, bucket, ht_node_in(g, n, 0)), 0, NULL, false);
    own = ht_cast(g, own, HT_F64);
    ht_val square = ht_all_reduce(g, ht_mul(g, own, own), c->z->ranks, "sum");
    c->map[y.id] = ht_cast(g, ht_sqrt(g, square), dtype);
}

/* On every rank alike: of scalars, or of whole tensors. */
static void compute_whole(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, const ht_node *n)
{
    ht_graph *g = c->g;
    ht_val in[MOST], out[MOST];
    ht_type want[MOST];
    for (size_t i = 0; i < n->n_in; i++) in[i] = whole_of(c, group, bucket, ht_node_in(g, n, i));
    if (g->status != HT_OK) return;
    for (size_t i = 0; i < n->n_out; i++) want[i] = *ht_type_of(g, ht_node_out(n, i));
    ht_emit(g, n->op, n->n_in, in, ht_op_attr_count(n->op), n->attr, want, out);
    if (g->status != HT_OK) return;
    g->nodes[g->node_count - 1].full = n->full;
    for (size_t i = 0; i < n->n_out; i++) (want[i].rank ? c->whole : c->map)[n->out + i] = out[i];
}

/* Into a state of the group, or one that every rank has whole: a copy in f8. */
static void store(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, const ht_node *n)
{
    ht_val into = ht_node_in(c->g, n, 0), value = ht_node_in(c->g, n, 1), state = c->z->places[into.id].state;
    if (state.id)
        ht_zero_cut_store(c, group, bucket, state, piece_of(c, group, bucket, value));
    else
        ht_store(c->g, into, whole_of(c, group, bucket, value));
}

void ht_zero_cut_tensor_node(ht_zero_cutter *c, const ht_zero_group *group, size_t bucket, uint32_t id)
{
    ht_graph *g = c->g;
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    ht_val in[MOST];
    if (n.n_in > MOST || n.n_out > MOST) {
        ht_graph_fail(g, HT_ENOTSUP, "zero: %s has %u inputs", n.op->name, n.n_in);
        return;
    }
    if (n.op == &ht_op_store) {
        store(c, group, bucket, &n);
        return;
    }
    if (ht_zero_is_slice(&n) && !group->by_tensor) { /* the tensor out of its group */
        ht_val all = ht_all_gather(g, c->map[ht_node_in(g, &n, 0).id], c->z->ranks);
        c->whole[n.out] = ht_slice_axis(g, all, 0, 0, member_of(group, bucket)->elems);
        return;
    }
    if (ht_is_repeatable(g, &n)) return; /* made where it is read */
    bool pieces = reads_piece(c, &n);
    if (pieces && is_norm_of_all(g, &n)) {
        cut_norm(c, group, bucket, &n);
    } else if (pieces && (ht_is_elementwise(g, &n) || ht_zero_is_rounding(&n))) {
        for (size_t i = 0; i < n.n_in; i++) in[i] = piece_of(c, group, bucket, ht_node_in(g, &n, i));
        ht_zero_cut_emit(c, group, bucket, id, in);
    } else {
        compute_whole(c, group, bucket, &n);
    }
}
