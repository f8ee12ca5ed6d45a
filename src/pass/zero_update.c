/* The update on pieces: each rank computes that of its own piece of every bucket, and gathers what the model reads of the
 * result, half copies or parameters. The gathering of a bucket goes on while the next ones are computed, and into the next
 * step; where an offload moves what is updated, it stands behind the update, which then is one that can be cut into tiles.
 * The norm of gradients is that of all pieces, by sums in the order of ranks. */
#include "pass/zero_update.h"

#include <stdlib.h>
#include <string.h>

#include "pass/first_values.h"
#include "pass/update_units.h"

typedef ht_zero_cutter cutter;

enum { MOST_OPERANDS = 8 };

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

static bool is_by_tensor(const cutter *c, size_t group)
{
    return c->z->groups[group - 1].by_tensor;
}

static size_t bucket_of(const cutter *c, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        if (v.id < c->z->known && c->bucket[v.id]) return c->bucket[v.id];
    }
    return 0;
}

static void mark_states(cutter *c)
{
    for (size_t i = 0; i < c->z->group_count; i++) {
        const ht_zero_group *group = &c->z->groups[i];
        c->group[group->param.id] = c->group[group->grad.id] = i + 1;
        for (size_t k = 0; k < group->moment_count; k++) c->group[group->moments[k].id] = i + 1;
        if (group->half.id) c->group[group->half.id] = i + 1;
    }
    for (size_t id = 1; id < c->z->known; id++) {
        ht_zero_place place = c->z->places[id];
        if (!place.state.id || !is_by_tensor(c, c->group[place.state.id])) continue;
        c->group[id] = c->group[place.state.id];
        c->bucket[id] = 1 + place.bucket;
    }
}

bool ht_zero_is_slice(const ht_node *n)
{
    return strcmp(n->op->name, "slice") == 0;
}

/* 1 + the bucket of the tensor that a node takes out of an array of the group; 0: it does no such thing. */
static size_t bucket_of_slice(const cutter *c, const ht_zero_group *group, const ht_node *n)
{
    int64_t elems = n->n_out ? ht_type_elems(ht_type_of(c->g, ht_node_out(n, 0))) : 0, from = 0;
    for (size_t k = 0; k < ht_op_attr_count(n->op); k++)
        if (strcmp(n->attr[k].key, "start") == 0 && n->attr[k].count) from = n->attr[k].ints[0];
    for (size_t i = 0; ht_zero_is_slice(n) && i < group->member_count; i++)
        if (group->members[i].was == from && group->members[i].elems == elems) return 1 + group->members[i].bucket;
    return 0;
}

/* States of the groups, and what is computed of them: element by element, or as a rule for whole tensors wants it, or of
 * one tensor of the group (its copy in f8). */
static ht_status find_arrays(cutter *c, const ht_segment *s)
{
    ht_graph *g = c->g;
    mark_states(c);
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        size_t group = group_of(c, n), bucket = bucket_of(c, n);
        if (!group || is_norm(n)) continue;
        if (!bucket) bucket = bucket_of_slice(c, &c->z->groups[group - 1], n);
        if (!bucket && !ht_is_elementwise(g, n) && !ht_zero_is_rounding(n))
            HT_FAIL(g->ctx, HT_ENOTSUP, "zero: %s looks at more than one element: with it, stage %lld is not there yet",
                    n->op->name, (long long)c->z->options->stage);
        for (size_t i = 0; i < n->n_out; i++) {
            c->group[ht_node_out(n, i).id] = group;
            c->bucket[ht_node_out(n, i).id] = bucket;
        }
    }
    return HT_OK;
}

/* ---- rounding by chance ---- */

bool ht_zero_is_rounding(const ht_node *n)
{
    return strcmp(n->op->name, "round_stochastic") == 0;
}

/* The number that is drawn for an element of the layout: of those of its flat group, or of its tensor. */
static int64_t draw_of(const ht_zero_group *group, const ht_zero_member *m, int64_t at)
{
    return at - m->first + (group->by_tensor ? 0 : m->was);
}

/* Elements from `at` on, of the bucket and before `end`, whose numbers follow one another; *first: that of the first. */
static int64_t count_draws(const ht_zero_group *group, size_t bucket, int64_t at, int64_t end, int64_t *first)
{
    int64_t until = at;
    *first = 0;
    for (size_t i = 0; i < group->member_count && until < end; i++) {
        const ht_zero_member *m = &group->members[i];
        int64_t padded = (m->elems + HT_ZERO_ALIGN - 1) / HT_ZERO_ALIGN * HT_ZERO_ALIGN, last = m->first + padded;
        if (m->bucket != bucket || last <= until) continue;
        if (until == at) *first = draw_of(group, m, at);
        if (draw_of(group, m, until) != *first + until - at) break;
        until = last < end ? last : end;
    }
    return until > at ? until - at : end - at; /* else it is padding of the bucket */
}

ht_val ht_zero_cut_rounding(cutter *c, const ht_zero_group *group, size_t bucket, const ht_node *n, const ht_val *in)
{
    ht_graph *g = c->g;
    int64_t piece = ht_zero_piece(c->z, &group->buckets[bucket]), first, count;
    int64_t from = group->buckets[bucket].first + c->z->options->rank * piece;
    ht_dtype dtype = ht_type_of(g, ht_node_out(n, 0))->dtype;
    ht_val *parts = HT_NEW(g->arena, ht_val, group->member_count + 2);
    size_t part_count = 0;
    if (!parts) ht_graph_fail(g, HT_ENOMEM, "zero: out of memory");
    for (int64_t at = 0; at < piece && g->status == HT_OK; at += count) {
        count = count_draws(group, bucket, from + at, from + piece, &first);
        ht_type want = ht_type_make(dtype, 1, &count);
        ht_val x = count == piece ? in[0] : ht_slice_axis(g, in[0], 0, at, count), out = HT_NONE;
        ht_emit(g, n->op, HT_VALS(x, in[1], in[2]), ht_op_attr_count(n->op), n->attr, &want, &out);
        if (g->status == HT_OK) ht_node_set_int(g, (uint32_t)g->node_count - 1, "first", first);
        parts[part_count++] = out;
    }
    return part_count == 1 ? parts[0] : ht_concat(g, part_count, parts, 0);
}

/* ---- norms ---- */

/* Of this rank's gradients of a group: the square of their norm, and 1 where one of them is not finite. */
static void square_pieces(const cutter *c, const ht_zero_group *group, ht_val out[2])
{
    ht_graph *g = c->g;
    ht_val square = HT_NONE, finite = HT_NONE;
    int64_t flat = 1;
    for (size_t b = 0; b < group->bucket_count; b++) {
        ht_val own, norm = ht_norm_finite(g, ht_zero_piece_of(c->z, group, group->grad, b), &own);
        norm = ht_mul(g, norm, norm);
        square = square.id ? ht_add(g, square, norm) : norm;
        finite = finite.id ? ht_and(g, finite, own) : own;
    }
    ht_val one = ht_fill(g, HT_F64, 0, NULL, 1);
    ht_val none = ht_fill(g, HT_F64, 0, NULL, 0);
    out[0] = ht_reshape(g, square, 1, &flat);
    out[1] = ht_reshape(g, ht_select(g, finite, none, one), 1, &flat);
}

/* Of all gradients of each group, as the nodes that looked at all of them gave it. One exchange for all groups: it cannot be
 * hidden, since the update begins with it. */
static void cut_norms(cutter *c)
{
    ht_graph *g = c->g;
    ht_val *own = HT_NEW(g->arena, ht_val, 2 * c->rw.count + 1);
    size_t count = 0;
    if (!own) ht_graph_fail(g, HT_ENOMEM, "zero: out of memory");
    for (size_t i = 0; i < c->rw.count && g->status == HT_OK; i++) {
        const ht_node n = g->nodes[c->rw.old[i]];
        if (!is_norm(&n) || !group_of(c, &n)) continue;
        square_pieces(c, &c->z->groups[group_of(c, &n) - 1], own + count);
        count += 2;
    }
    if (!count || g->status != HT_OK) return;
    ht_val all = ht_all_reduce(g, ht_concat(g, count, own, 0), c->z->ranks, "sum");
    ht_val none = ht_fill(g, HT_F64, 0, NULL, 0);
    int64_t at = 0;
    for (size_t i = 0; i < c->rw.count && g->status == HT_OK; i++) {
        const ht_node n = g->nodes[c->rw.old[i]];
        if (!is_norm(&n) || !group_of(c, &n)) continue;
        ht_val square = ht_reshape(g, ht_slice_axis(g, all, 0, at++, 1), 0, NULL);
        ht_val bad = ht_reshape(g, ht_slice_axis(g, all, 0, at++, 1), 0, NULL);
        ht_rewrite_replace(&c->rw, ht_node_out(&n, 0), ht_sqrt(g, square));
        ht_rewrite_replace(&c->rw, ht_node_out(&n, 1), ht_le(g, bad, none));
    }
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
    for (size_t i = 0; i < c->under_way_count; i++) {
        const ht_zero_gathering *t = &c->under_way[i];
        ht_store(c->g, t->into, ht_collective_end(c->g, t->start, t->from));
    }
    c->under_way_count = 0;
}

static void start_gathering(cutter *c, ht_val value, ht_val into)
{
    ht_graph *g = c->g;
    ht_val start = ht_all_gather_begin(g, value, c->z->ranks);
    if (g->status != HT_OK) return;
    if (ht_grow((void **)&c->under_way, &c->under_way_capacity, c->under_way_count + 1, sizeof *c->under_way))
        c->under_way[c->under_way_count++] = (ht_zero_gathering){start, value, into};
    else
        ht_graph_fail(g, HT_ENOMEM, "zero: out of memory");
    if (!c->z->options->overlap) finish_gathering(c);
}

void ht_zero_cut_store(cutter *c, const ht_zero_group *group, size_t bucket, ht_val state, ht_val value)
{
    ht_graph *g = c->g;
    if (state.id == group->half.id && group->buckets[bucket].class > HT_ZERO_HALF && !group->copies_params) return;
    if (c->z->late || ht_zero_in_pieces(c->z, group, state, bucket)) {
        ht_store(g, ht_zero_piece_of(c->z, group, state, bucket), value);
        return;
    }
    start_gathering(c, value, ht_zero_bucket_of(c->z, group, state, bucket));
}

void ht_zero_cut_emit(cutter *c, const ht_zero_group *group, size_t bucket, uint32_t id, const ht_val *in)
{
    ht_graph *g = c->g;
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    ht_val out[MOST_OPERANDS];
    ht_type want[MOST_OPERANDS];
    int64_t count = ht_zero_piece(c->z, &group->buckets[bucket]);
    if (g->status != HT_OK) return;
    if (ht_zero_is_rounding(&n)) {
        c->map[n.out] = ht_zero_cut_rounding(c, group, bucket, &n, in);
        return;
    }
    for (size_t i = 0; i < n.n_out; i++) want[i] = ht_type_make(ht_type_of(g, ht_node_out(&n, i))->dtype, 1, &count);
    ht_emit(g, n.op, n.n_in, in, ht_op_attr_count(n.op), n.attr, want, out);
    if (g->status != HT_OK) return;
    g->nodes[g->node_count - 1].full = n.full;
    for (size_t i = 0; i < n.n_out; i++) c->map[n.out + i] = out[i];
}

static void cut_node(cutter *c, const ht_zero_group *group, size_t bucket, uint32_t id)
{
    ht_graph *g = c->g;
    const ht_node n = g->nodes[id];
    ht_val in[MOST_OPERANDS];
    if (n.n_in > MOST_OPERANDS) {
        ht_graph_fail(g, HT_ENOTSUP, "zero: %s has %u inputs", n.op->name, n.n_in);
        return;
    }
    if (n.op == &ht_op_store) {
        ht_zero_cut_store(c, group, bucket, ht_node_in(g, &n, 0), piece_of(c, group, bucket, ht_node_in(g, &n, 1)));
        return;
    }
    for (size_t i = 0; i < n.n_in; i++) in[i] = piece_of(c, group, bucket, ht_node_in(g, &n, i));
    ht_zero_cut_emit(c, group, bucket, id, in);
}

static void cut_bucket(cutter *c, size_t index, size_t bucket)
{
    const ht_zero_group *group = &c->z->groups[index];
    for (size_t i = 0; i < c->rw.count && c->g->status == HT_OK; i++) {
        const ht_node *n = &c->g->nodes[c->rw.old[i]];
        if (is_norm(n) || group_of(c, n) != index + 1) continue;
        size_t of = n->n_out ? c->bucket[ht_node_out(n, 0).id] : bucket_of(c, n);
        if (!of)
            cut_node(c, group, bucket, c->rw.old[i]);
        else if (of == bucket + 1)
            ht_zero_cut_tensor_node(c, group, bucket, c->rw.old[i]);
    }
}

/* ---- the order of buckets ---- */

/* A bucket, and where the next step reads it for the first time. */
typedef struct updated_bucket {
    size_t group, bucket, read;
} updated_bucket;

/* By value id: the position of its first reader in a micro-batch; SIZE_MAX: there is none. */
static size_t *find_readers(const ht_zero *z)
{
    const ht_graph *g = z->g;
    size_t *read = malloc(z->known * sizeof *read);
    if (read) memset(read, 0xff, z->known * sizeof *read);
    for (size_t i = 0; read && i < g->segment_count; i++) {
        const ht_segment *s = &g->segments[i];
        for (size_t at = 0; ht_is_micro_first(s) && at < s->node_count; at++) {
            const ht_node *n = &g->nodes[s->nodes[at]];
            for (size_t k = 0; k < n->n_in; k++) {
                ht_val v = ht_node_in(g, n, k);
                if (v.id < z->known && at < read[v.id]) read[v.id] = at;
            }
        }
    }
    return read;
}

static size_t first_read(const ht_zero_group *group, size_t bucket, const size_t *read)
{
    size_t first = SIZE_MAX;
    for (size_t i = 0; i < group->member_count; i++) {
        const ht_zero_member *m = &group->members[i];
        if (m->bucket != bucket) continue;
        if (read[m->param.id] < first) first = read[m->param.id];
        if (m->copy.id && read[m->copy.id] < first) first = read[m->copy.id];
    }
    return first;
}

static void add_in_order(updated_bucket *list, size_t count, updated_bucket b)
{
    for (; count > 0 && list[count - 1].read > b.read; count--) list[count] = list[count - 1];
    list[count] = b;
}

/* What forward reads first is updated and gathered first, so that the next step need not wait for the rest. */
static void cut_buckets(cutter *c)
{
    const ht_zero *z = c->z;
    size_t count = 0, all = 0;
    for (size_t i = 0; i < z->group_count; i++) all += z->groups[i].bucket_count;
    size_t *read = find_readers(z);
    updated_bucket *list = calloc(all + 1, sizeof *list);
    if (!read || !list) ht_graph_fail(c->g, HT_ENOMEM, "zero: out of memory");
    for (size_t i = 0; i < z->group_count && c->g->status == HT_OK; i++)
        for (size_t b = 0; b < z->groups[i].bucket_count; b++)
            add_in_order(list, count++, (updated_bucket){i, b, first_read(&z->groups[i], b, read)});
    for (size_t i = 0; i < count && c->g->status == HT_OK; i++) {
        memset(c->map, 0, z->known * sizeof *c->map);
        memset(c->whole, 0, z->known * sizeof *c->whole);
        cut_bucket(c, list[i].group, list[i].bucket);
    }
    free(read);
    free(list);
}

static void keep_others(cutter *c, bool effects)
{
    for (size_t i = 0; i < c->rw.count && c->g->status == HT_OK; i++) {
        const ht_node n = c->g->nodes[c->rw.old[i]];
        size_t group = group_of(c, &n);
        /* What ranks exchange is read by others of these. */
        bool effect = (n.op->flags & HT_OP_EFFECT) && !(n.op->flags & HT_OP_COLLECTIVE);
        if (!group && effect == effects) ht_rewrite_keep(&c->rw, c->rw.old[i]);
    }
}

ht_status ht_zero_cut_update(ht_zero *z)
{
    ht_graph *g = z->g;
    uint32_t segment = (uint32_t)ht_segment_find(g, "update");
    cutter c = {.z = z, .g = g};
    c.group = calloc(z->known, sizeof *c.group);
    c.bucket = calloc(z->known, sizeof *c.bucket);
    c.map = calloc(z->known, sizeof *c.map);
    c.whole = calloc(z->known, sizeof *c.whole);
    ht_status status = c.group && c.bucket && c.map && c.whole ? find_arrays(&c, &g->segments[segment])
                                                               : ht_fail(g->ctx, HT_ENOMEM, "zero: out of memory");
    if (status == HT_OK && ht_rewrite_begin(&c.rw, g, segment)) {
        cut_norms(&c);
        keep_others(&c, false);
        cut_buckets(&c);
        keep_others(&c, true);
        finish_gathering(&c); /* last: the next step may begin before */
    }
    if (status == HT_OK) status = ht_rewrite_end(&c.rw);
    free(c.group);
    free(c.bucket);
    free(c.map);
    free(c.whole);
    free(c.under_way);
    return status;
}

/* ---- first values ---- */

static ht_val flat_part(ht_graph *g, ht_val v, int64_t first, int64_t count)
{
    int64_t all = -1;
    return ht_slice_axis(g, ht_reshape(g, v, 1, &all), 0, first, count);
}

/* A state that was cut draws this rank's part of its first value. What cannot be drawn in parts is computed whole. */
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
    const ht_node *constant = ht_producer(g, value);
    if (constant && constant->n_in == 0 && ht_is_repeatable(g, constant) && elems) {
        ht_store(g, s->value, ht_repeat(rw, constant, elems));
        return;
    }
    if (!elems) return;
    ht_val into = s->value, source = ht_first_value_source(g, value);
    int64_t first = s->part ? s->first : 0;
    ht_val part = source.id ? ht_first_value_of(g, value, source, ht_first_value_part(g, source, first, elems))
                            : flat_part(g, value, first, elems);
    ht_store(g, into, part);
}

/* By value id: does the segment "derive", which runs behind "init", store it? NULL: memory is out. */
static bool *find_derived(const ht_zero *z)
{
    const ht_graph *g = z->g;
    bool *derived = calloc(z->known, sizeof *derived);
    int segment = ht_segment_find(g, "derive");
    for (size_t i = 0; derived && segment >= 0 && i < g->segments[segment].node_count; i++) {
        const ht_node *n = &g->nodes[g->segments[segment].nodes[i]];
        if (n->op == &ht_op_store) derived[ht_node_in(g, n, 0).id] = true;
    }
    return derived;
}

ht_status ht_zero_cut_init(ht_zero *z)
{
    ht_rewrite rw;
    int segment = ht_segment_find(z->g, "init");
    if (segment < 0) return HT_OK;
    bool *derived = find_derived(z);
    if (!derived) HT_FAIL(z->g->ctx, HT_ENOMEM, "zero: out of memory");
    if (ht_rewrite_begin(&rw, z->g, (uint32_t)segment))
        for (size_t i = 0; i < rw.count && z->g->status == HT_OK; i++) {
            const ht_node *n = &z->g->nodes[rw.old[i]];
            /* Copies would want all of what each rank has a part of. */
            if (n->op == &ht_op_store && derived[ht_node_in(z->g, n, 0).id]) continue;
            cut_first_value(z, &rw, rw.old[i]);
        }
    free(derived);
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

/* Does the node round a part of a tensor, or store that? Half copies are made of pieces. */
static bool makes_copy(const ht_graph *g, const ht_node *n)
{
    const ht_node *cast = n->op == &ht_op_store ? ht_producer(g, ht_node_in(g, n, 1)) : n;
    const ht_state *s = cast && strcmp(cast->op->name, "cast") == 0 ? ht_state_of(g, ht_node_in(g, cast, 0)) : NULL;
    return s && s->part;
}

/* A tensor of which each rank has a part: all of it. */
static ht_val gather_tensor(const ht_zero *z, ht_val part)
{
    ht_graph *g = z->g;
    const ht_type whole = ht_state_of(g, part)->whole;
    ht_zero_place place = z->places[part.id];
    size_t i = 0, k = 0;
    while (z->groups[i].param.id != place.state.id) i++;
    const ht_zero_group *group = &z->groups[i];
    while (group->members[k].param.id != part.id) k++;
    int64_t first = group->members[k].first - group->buckets[place.bucket].first;
    ht_val all = ht_all_gather(g, ht_zero_piece_of(z, group, place.state, place.bucket), z->ranks);
    all = ht_slice_axis(g, all, 0, first, group->members[k].elems);
    return ht_reshape(g, all, whole.rank, whole.dim);
}

/* What is made of whole tensors: copies in f8. */
static void derive_of_whole(const ht_zero *z, ht_rewrite *rw, uint32_t id)
{
    ht_graph *g = z->g;
    const ht_node n = g->nodes[id];
    for (size_t i = n.op == &ht_op_store; i < n.n_in && g->status == HT_OK; i++) {
        ht_val v = ht_node_in(g, &n, i);
        const ht_state *s = ht_state_of(g, v);
        if (!s || !s->part || ht_rewrite_map(rw, v).id != v.id) continue;
        ht_rewrite_replace(rw, v, gather_tensor(z, v));
    }
    ht_rewrite_keep(rw, id);
}

ht_status ht_zero_cut_derive(ht_zero *z)
{
    ht_graph *g = z->g;
    ht_rewrite rw;
    int segment = ht_segment_find(g, "derive");
    if (segment < 0) return HT_OK;
    if (ht_rewrite_begin(&rw, g, (uint32_t)segment)) {
        for (size_t i = 0; i < rw.count && g->status == HT_OK; i++)
            if (!makes_copy(g, &g->nodes[rw.old[i]])) derive_of_whole(z, &rw, rw.old[i]);
        for (size_t i = 0; i < z->group_count; i++)
            for (size_t b = 0; b < z->groups[i].bucket_count && g->status == HT_OK; b++)
                derive_bucket(z, &z->groups[i], b);
    }
    return ht_rewrite_end(&rw);
}

/* ---- behind the update ---- */

static void gather_bucket(const ht_zero *z, const ht_zero_group *group, size_t bucket, ht_val state)
{
    bool copies = state.id == group->half.id;
    if (copies && group->buckets[bucket].class > HT_ZERO_HALF && !group->copies_params) return;
    if (ht_zero_in_pieces(z, group, state, bucket)) return;
    ht_val own = ht_zero_piece_of(z, group, state, bucket), all = ht_zero_bucket_of(z, group, state, bucket);
    ht_store(z->g, all, ht_all_gather(z->g, own, z->ranks));
}

ht_status ht_zero_gather_late(ht_zero *z)
{
    ht_graph *g = z->g;
    for (size_t i = 0; i < z->group_count; i++) {
        const ht_zero_group *group = &z->groups[i];
        for (size_t b = 0; b < group->bucket_count && g->status == HT_OK; b++) {
            gather_bucket(z, group, b, group->param);
            if (group->half.id) gather_bucket(z, group, b, group->half);
        }
    }
    return g->status;
}
