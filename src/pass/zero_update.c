/* The update on pieces: each rank computes that of its own piece of every bucket, and gathers what the model reads of the
 * result, half copies or parameters. The gathering of a bucket goes on while the next one is computed. The norm of gradients
 * is that of all pieces, by sums in the order of ranks. */
#include <stdlib.h>
#include <string.h>

#include "pass/update_units.h"
#include "pass/zero.h"

/* What is on its way into a state. */
typedef struct gathering {
    ht_val start, from, into;
} gathering;

typedef struct cutter {
    ht_zero *z;
    ht_graph *g;
    ht_rewrite rw;
    size_t *group;                      /* by value id: 1 + the group whose array it is; 0: none */
    ht_val *map;                        /* by value id: its piece of the bucket at hand, or none */
    gathering started[2], under_way[2]; /* of the bucket at hand and of the one before: parameters, half copies */
    int started_count, under_way_count;
} cutter;

/* ---- which nodes ---- */

static size_t group_of(const cutter *c, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        if (v.id < c->z->known && c->group[v.id]) return c->group[v.id];
    }
    return 0;
}

static bool is_norm(const ht_node *n)
{
    return strcmp(n->op->name, "norm_finite") == 0;
}

/* States of the groups, and what is computed of them element by element. */
static ht_status find_arrays(cutter *c, const ht_segment *s)
{
    ht_graph *g = c->g;
    for (size_t i = 0; i < c->z->group_count; i++) {
        const ht_zero_group *group = &c->z->groups[i];
        c->group[group->param.id] = c->group[group->grad.id] = i + 1;
        for (size_t k = 0; k < group->moment_count; k++) c->group[group->moments[k].id] = i + 1;
        if (group->half.id) c->group[group->half.id] = i + 1;
    }
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        size_t group = group_of(c, n);
        if (!group || is_norm(n)) continue;
        if (!ht_is_elementwise(g, n))
            HT_FAIL(g->ctx, HT_ENOTSUP, "zero: %s looks at more than one element: with it, stage %lld is not there yet",
                    n->op->name, (long long)c->z->options->stage);
        for (size_t i = 0; i < n->n_out; i++) c->group[ht_node_out(n, i).id] = group;
    }
    return HT_OK;
}

/* A rule that updates tensor by tensor reads the parts of groups. */
static ht_status refuse_tensors(const cutter *c, const ht_segment *s)
{
    const ht_graph *g = c->g;
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i), root = ht_root(g, v);
            if (root.id != v.id && root.id < c->z->known && c->group[root.id])
                HT_FAIL(
                    g->ctx, HT_ENOTSUP,
                    "zero: the optimiser updates whole tensors (%s): with it, stage %lld is not there yet; stage 0 is",
                    ht_value_of(g, v)->name, (long long)c->z->options->stage);
        }
    }
    return HT_OK;
}

/* ---- norms ---- */

/* Of all gradients of a group, as the node that looked at all of them gave it. */
static void cut_norm(cutter *c, const ht_node *n, const ht_zero_group *group)
{
    ht_graph *g = c->g;
    ht_val square = HT_NONE, finite = HT_NONE;
    for (size_t b = 0; b < group->bucket_count; b++) {
        ht_val own, norm = ht_norm_finite(g, ht_zero_piece_of(c->z, group, group->grad, b), &own);
        norm = ht_mul(g, norm, norm);
        square = square.id ? ht_add(g, square, norm) : norm;
        finite = finite.id ? ht_and(g, finite, own) : own;
    }
    square = ht_all_reduce(g, square, c->z->ranks, "sum");
    ht_rewrite_replace(&c->rw, ht_node_out(n, 0), ht_sqrt(g, square));
    ht_rewrite_replace(&c->rw, ht_node_out(n, 1), ht_all_reduce(g, finite, c->z->ranks, "min"));
}

/* ---- pieces ---- */

static ht_val piece_of(cutter *c, const ht_zero_group *group, size_t bucket, ht_val v)
{
    ht_graph *g = c->g;
    if (g->status != HT_OK || !v.id || ht_is_scalar(g, v)) return ht_rewrite_map(&c->rw, v);
    if (c->map[v.id].id) return c->map[v.id];
    if (ht_state_of(g, v)) return c->map[v.id] = ht_zero_piece_of(c->z, group, v, bucket);
    const ht_node from = *ht_producer(g, v);
    return c->map[v.id] = ht_repeat(&c->rw, &from, ht_zero_piece(c->z, &group->buckets[bucket]));
}

static void finish_gathering(cutter *c)
{
    for (int i = 0; i < c->under_way_count; i++) {
        const gathering *t = &c->under_way[i];
        ht_store(c->g, t->into, ht_collective_end(c->g, t->start, t->from));
    }
    c->under_way_count = 0;
}

/* What every rank has whole is gathered. */
static void cut_store(cutter *c, const ht_zero_group *group, size_t bucket, ht_val state, ht_val value)
{
    ht_graph *g = c->g;
    if (state.id == group->half.id && group->buckets[bucket].class > HT_ZERO_HALF && !group->copies_params) return;
    if (ht_zero_in_pieces(c->z, group, state, bucket)) {
        ht_store(g, ht_zero_piece_of(c->z, group, state, bucket), value);
        return;
    }
    ht_val start = ht_all_gather_begin(g, value, c->z->ranks);
    ht_val into = ht_zero_bucket_of(c->z, group, state, bucket);
    c->started[c->started_count++] = (gathering){start, value, into};
}

static void cut_node(cutter *c, const ht_zero_group *group, size_t bucket, uint32_t id)
{
    enum { MOST = 8 };
    ht_graph *g = c->g;
    const ht_node n = g->nodes[id];
    ht_val in[MOST], out[MOST];
    ht_type want[MOST];
    if (n.n_in > MOST) {
        ht_graph_fail(g, HT_ENOTSUP, "zero: %s has %u inputs", n.op->name, n.n_in);
        return;
    }
    if (n.op == &ht_op_store) {
        cut_store(c, group, bucket, ht_node_in(g, &n, 0), piece_of(c, group, bucket, ht_node_in(g, &n, 1)));
        return;
    }
    for (size_t i = 0; i < n.n_in; i++) in[i] = piece_of(c, group, bucket, ht_node_in(g, &n, i));
    for (size_t i = 0; i < n.n_out; i++) {
        want[i] = *ht_type_of(g, ht_node_out(&n, i));
        want[i].dim[0] = ht_zero_piece(c->z, &group->buckets[bucket]);
        ht_type_row_major(&want[i]);
    }
    ht_emit(g, n.op, n.n_in, in, ht_op_attr_count(n.op), n.attr, want, out);
    if (g->status != HT_OK) return;
    g->nodes[g->node_count - 1].full = n.full;
    for (size_t i = 0; i < n.n_out; i++) c->map[n.out + i] = out[i];
}

static void cut_group(cutter *c, size_t index)
{
    const ht_zero_group *group = &c->z->groups[index];
    for (size_t b = 0; b < group->bucket_count; b++) {
        memset(c->map, 0, c->z->known * sizeof *c->map);
        for (size_t i = 0; i < c->rw.count && c->g->status == HT_OK; i++) {
            const ht_node *n = &c->g->nodes[c->rw.old[i]];
            if (!is_norm(n) && group_of(c, n) == index + 1) cut_node(c, group, b, c->rw.old[i]);
        }
        finish_gathering(c);
        memcpy(c->under_way, c->started, sizeof c->under_way);
        c->under_way_count = c->started_count;
        c->started_count = 0;
    }
}

static void keep_others(cutter *c, bool effects)
{
    for (size_t i = 0; i < c->rw.count && c->g->status == HT_OK; i++) {
        const ht_node n = c->g->nodes[c->rw.old[i]];
        size_t group = group_of(c, &n);
        bool effect = n.op->flags & HT_OP_EFFECT;
        if (group && is_norm(&n) && !effects) cut_norm(c, &n, &c->z->groups[group - 1]);
        if (!group && effect == effects) ht_rewrite_keep(&c->rw, c->rw.old[i]);
    }
}

ht_status ht_zero_cut_update(ht_zero *z)
{
    ht_graph *g = z->g;
    uint32_t segment = (uint32_t)ht_segment_find(g, "update");
    cutter c = {.z = z, .g = g};
    c.group = calloc(z->known, sizeof *c.group);
    c.map = calloc(z->known, sizeof *c.map);
    ht_status status =
        c.group && c.map ? find_arrays(&c, &g->segments[segment]) : ht_fail(g->ctx, HT_ENOMEM, "zero: out of memory");
    if (status == HT_OK) status = refuse_tensors(&c, &g->segments[segment]);
    if (status == HT_OK && ht_rewrite_begin(&c.rw, g, segment)) {
        keep_others(&c, false);
        for (size_t i = 0; i < z->group_count; i++) cut_group(&c, i);
        finish_gathering(&c);
        keep_others(&c, true);
    }
    if (status == HT_OK) status = ht_rewrite_end(&c.rw);
    free(c.group);
    free(c.map);
    return status;
}

/* ---- first values ---- */

static ht_val flat_part(ht_graph *g, ht_val v, int64_t first, int64_t count)
{
    int64_t all = -1;
    return ht_slice_axis(g, ht_reshape(g, v, 1, &all), 0, first, count);
}

/* A state that was cut keeps this rank's part of its first value, which is computed whole. */
static void cut_first_value(const ht_zero *z, ht_rewrite *rw, uint32_t id)
{
    ht_graph *g = z->g;
    const ht_node n = g->nodes[id];
    const ht_state *s = n.op == &ht_op_store ? ht_state_of(g, ht_node_in(g, &n, 0)) : NULL;
    ht_val value = s ? ht_rewrite_map(rw, ht_node_in(g, &n, 1)) : HT_NONE;
    int64_t elems = s ? ht_type_elems(ht_type_of(g, s->value)) : 0;
    if (!s || (!s->part && ht_type_elems(ht_type_of(g, value)) == elems)) {
        ht_rewrite_keep(rw, id);
        return;
    }
    /* Moments begin with the same number everywhere. */
    if (elems) ht_store(g, s->value, flat_part(g, value, s->part ? s->first : 0, elems));
}

ht_status ht_zero_cut_init(ht_zero *z)
{
    ht_rewrite rw;
    int segment = ht_segment_find(z->g, "init");
    if (segment < 0) return HT_OK;
    if (ht_rewrite_begin(&rw, z->g, (uint32_t)segment))
        for (size_t i = 0; i < rw.count && z->g->status == HT_OK; i++) cut_first_value(z, &rw, rw.old[i]);
    return ht_rewrite_end(&rw);
}

/* ---- half copies, before the first step and after a resume ---- */

static void derive_bucket(const ht_zero *z, const ht_zero_group *group, size_t bucket)
{
    ht_graph *g = z->g;
    const ht_zero_bucket *b = &group->buckets[bucket];
    if (b->class > HT_ZERO_HALF) return;
    ht_val piece = ht_zero_piece_of(z, group, group->param, bucket);
    ht_val rounded = ht_cast(g, piece, ht_type_of(g, group->half)->dtype);
    if (b->class == HT_ZERO_HALF_GATHERED) {
        ht_store(g, ht_zero_piece_of(z, group, group->half, bucket), rounded);
        return;
    }
    ht_val all = ht_all_gather(g, rounded, z->ranks);
    for (size_t i = 0; i < group->member_count && g->status == HT_OK; i++) {
        const ht_zero_member *m = &group->members[i];
        if (m->bucket != bucket || m->elems == 0) continue;
        const ht_type type = *ht_type_of(g, m->copy);
        ht_val part = ht_slice_axis(g, all, 0, m->first - b->first, m->elems);
        ht_val copy = ht_reshape(g, part, type.rank, type.dim);
        if (g->status != HT_OK) return;
        g->nodes[ht_producer(g, copy) - g->nodes].was = z->hashes[m->copy.id]; /* it is the tensor's copy, as before */
        ht_store(g, m->copy, copy);
    }
}

static bool reads_part(const ht_graph *g, const ht_node *n)
{
    for (size_t i = n->op == &ht_op_store; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        const ht_node *from = ht_producer(g, v);
        if ((ht_state_of(g, v) && ht_state_of(g, v)->part) || (from && reads_part(g, from))) return true;
    }
    return false;
}

ht_status ht_zero_cut_derive(ht_zero *z)
{
    ht_graph *g = z->g;
    ht_rewrite rw;
    int segment = ht_segment_find(g, "derive");
    if (segment < 0) return HT_OK;
    if (ht_rewrite_begin(&rw, g, (uint32_t)segment)) {
        for (size_t i = 0; i < rw.count && g->status == HT_OK; i++)
            if (!reads_part(g, &g->nodes[rw.old[i]])) ht_rewrite_keep(&rw, rw.old[i]);
        for (size_t i = 0; i < z->group_count; i++)
            for (size_t b = 0; b < z->groups[i].bucket_count && g->status == HT_OK; b++)
                derive_bucket(z, &z->groups[i], b);
    }
    return ht_rewrite_end(&rw);
}
