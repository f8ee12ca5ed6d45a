/* Sums of gradients from stage 2 on, where no rank holds them: as soon as a micro-batch has made all gradients of a
 * bucket, they are put together and summed, and each rank adds its piece to what it has. That goes on beside the backward
 * pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/zero.h"

/* A bucket in the micro-batch at hand, and the last of the nodes that make its gradients. */
typedef struct open_bucket {
    const ht_zero_group *group;
    size_t index, last;
} open_bucket;

/* An exchange of a bucket. */
typedef struct scattering {
    const open_bucket *bucket;
    ht_val start, from;
} scattering;

typedef struct scatterer {
    ht_zero *z;
    ht_graph *g;
    ht_rewrite rw;
    bool adds;        /* to gradients that are there */
    ht_val *made;     /* by value id of a parameter: its gradient */
    bool *left_out;   /* by position: stores of gradients, and sums for them */
    size_t *position; /* by node id */
    open_bucket *buckets;
    size_t bucket_count;
    scattering *under_way; /* in the order of their starts */
    size_t first, end;     /* of those that were not waited for yet */
    int64_t elems;         /* of these */
    ht_val finite;         /* are all gradients so far? */
} scatterer;

static bool is_op(const ht_node *n, const char *name)
{
    return n && strcmp(n->op->name, name) == 0;
}

static void leave_out(scatterer *s, const ht_node *n)
{
    s->left_out[s->position[n - s->g->nodes]] = true;
}

/* What a store into a gradient adds to it: an operand of a sum, which may be rounded. */
static ht_val find_added(scatterer *s, ht_val value, ht_val state)
{
    const ht_graph *g = s->g;
    const ht_node *n = ht_producer(g, value), *rounded = is_op(n, "cast") ? n : NULL;
    if (!s->adds) return value;
    if (rounded) n = ht_producer(g, ht_node_in(g, n, 0));
    for (size_t i = 0; is_op(n, "add") && i < 2; i++) {
        if (ht_node_in(g, n, i).id != state.id) continue;
        leave_out(s, n);
        if (rounded) leave_out(s, rounded);
        return ht_node_in(g, n, 1 - i);
    }
    return HT_NONE;
}

static const ht_node *find_store(scatterer *s, const ht_segment *segment, ht_val state)
{
    for (size_t at = segment->node_count; at-- > 0;) {
        const ht_node *n = &s->g->nodes[segment->nodes[at]];
        if (n->op == &ht_op_store && ht_node_in(s->g, n, 0).id == state.id) return n;
    }
    return NULL;
}

/* The gradient of a tensor as the segment makes it, and when. */
static ht_status find_gradient(scatterer *s, const ht_segment *segment, const ht_zero_member *m, size_t *last)
{
    ht_graph *g = s->g;
    char name[512];
    snprintf(name, sizeof name, "%s.grad", ht_value_of(g, m->param)->name);
    ht_val state = ht_find(g, name);
    const ht_node *store = find_store(s, segment, state);
    ht_val made = store ? find_added(s, ht_node_in(g, store, 1), state) : HT_NONE;
    if (!made.id)
        HT_FAIL(g->ctx, HT_EVERIFY, "zero: segment '%s' stores no gradient '%s' of its own", segment->name, name);
    leave_out(s, store);
    s->made[m->param.id] = made;
    const ht_node *from = ht_producer(g, made);
    size_t at = from ? s->position[from - g->nodes] : 0;
    if (at > *last) *last = at;
    return HT_OK;
}

static ht_status find_buckets(scatterer *s, const ht_segment *segment)
{
    for (size_t i = 0; i < segment->node_count; i++) s->position[segment->nodes[i]] = i;
    for (size_t i = 0; i < s->z->group_count; i++) {
        const ht_zero_group *group = &s->z->groups[i];
        open_bucket *first = &s->buckets[s->bucket_count];
        for (size_t b = 0; b < group->bucket_count; b++) s->buckets[s->bucket_count++] = (open_bucket){group, b, 0};
        for (size_t k = 0; k < group->member_count; k++)
            HT_TRY(find_gradient(s, segment, &group->members[k], &first[group->members[k].bucket].last));
    }
    return HT_OK;
}

/* Gradients of a bucket in one piece, zeros between them. */
static ht_val assemble(scatterer *s, const open_bucket *bucket)
{
    ht_graph *g = s->g;
    const ht_zero_group *group = bucket->group;
    const ht_zero_bucket *b = &group->buckets[bucket->index];
    ht_dtype dtype = ht_zero_exchange_dtype(s->z, ht_type_of(g, group->grad)->dtype);
    ht_val *parts = HT_NEW(g->arena, ht_val, 2 * group->member_count + 1);
    size_t count = 0;
    int64_t at = b->first, flat = -1;
    if (!parts) ht_graph_fail(g, HT_ENOMEM, "zero: out of memory");
    for (size_t i = 0; i <= group->member_count && g->status == HT_OK; i++) {
        const ht_zero_member *m = i < group->member_count ? &group->members[i] : NULL;
        if (m && (m->bucket != bucket->index || m->elems == 0)) continue;
        int64_t gap = (m ? m->first : b->first + b->count) - at;
        if (gap) parts[count++] = ht_fill(g, dtype, 1, &gap, 0);
        if (!m) break;
        parts[count++] = ht_cast(g, ht_reshape(g, ht_rewrite_map(&s->rw, s->made[m->param.id]), 1, &flat), dtype);
        at = m->first + m->elems;
    }
    return count == 1 ? parts[0] : ht_concat(g, count, parts, 0);
}

static int64_t elems_of(const scatterer *s, ht_val v)
{
    return ht_type_elems(ht_type_of(s->g, v));
}

/* The oldest that is under way. */
static void finish_exchange(scatterer *s)
{
    const scattering *t = &s->under_way[s->first++];
    ht_val own = ht_zero_piece_of(s->z, t->bucket->group, t->bucket->group->grad, t->bucket->index);
    ht_val sum = ht_cast(s->g, ht_collective_end(s->g, t->start, t->from), ht_type_of(s->g, own)->dtype);
    ht_store(s->g, own, s->adds ? ht_add(s->g, own, sum) : sum);
    s->elems -= elems_of(s, t->from);
}

/* At most two buckets are under way, or of smaller ones as many elements. */
static void start_exchange(scatterer *s, const open_bucket *bucket)
{
    ht_val all = assemble(s, bucket), finite;
    if (s->g->status != HT_OK) return;
    if (s->z->finite.id) {
        ht_norm_finite(s->g, all, &finite);
        s->finite = s->finite.id ? ht_and(s->g, s->finite, finite) : finite;
    }
    while (s->first < s->end && s->elems + elems_of(s, all) > 2 * s->z->most) finish_exchange(s);
    s->under_way[s->end++] = (scattering){bucket, ht_reduce_scatter_begin(s->g, all, s->z->ranks, "sum"), all};
    s->elems += elems_of(s, all);
    if (!s->z->options->overlap) finish_exchange(s);
}

static ht_status scatter_segment(scatterer *s, uint32_t segment)
{
    ht_graph *g = s->g;
    HT_TRY(find_buckets(s, &g->segments[segment]));
    if (!ht_rewrite_begin(&s->rw, g, segment)) return g->status;
    for (size_t i = 0; i < s->rw.count && g->status == HT_OK; i++) {
        if (!s->left_out[i]) ht_rewrite_keep(&s->rw, s->rw.old[i]);
        g->role = HT_ROLE_BWD_WEIGHT;
        for (size_t b = 0; b < s->bucket_count && g->status == HT_OK; b++)
            if (s->buckets[b].last == i) start_exchange(s, &s->buckets[b]);
        if (i + 1 == s->rw.count) {
            while (s->first < s->end && g->status == HT_OK) finish_exchange(s);
            if (s->finite.id) ht_store(g, s->z->finite, s->adds ? ht_and(g, s->z->finite, s->finite) : s->finite);
        }
        g->role = HT_ROLE_UPDATE;
    }
    return ht_rewrite_end(&s->rw);
}

static ht_status scatter(ht_zero *z, uint32_t segment)
{
    ht_graph *g = z->g;
    scatterer s = {.z = z, .g = g, .adds = !ht_is_micro_first(&g->segments[segment])};
    size_t buckets = 0, nodes = g->segments[segment].node_count;
    for (size_t i = 0; i < z->group_count; i++) buckets += z->groups[i].bucket_count;
    s.made = calloc(g->value_count, sizeof *s.made);
    s.left_out = calloc(nodes + 1, sizeof *s.left_out);
    s.position = calloc(g->node_count, sizeof *s.position);
    s.buckets = calloc(buckets + 1, sizeof *s.buckets);
    s.under_way = calloc(buckets + 1, sizeof *s.under_way);
    bool ok = s.made && s.left_out && s.position && s.buckets && s.under_way;
    ht_status status = ok ? scatter_segment(&s, segment) : ht_fail(g->ctx, HT_ENOMEM, "zero: out of memory");
    free(s.made);
    free(s.left_out);
    free(s.position);
    free(s.buckets);
    free(s.under_way);
    return status;
}

ht_status ht_zero_scatter_in_backward(ht_zero *z)
{
    for (uint32_t i = 0; i < z->g->segment_count; i++)
        if (ht_is_micro(&z->g->segments[i])) HT_TRY(scatter(z, i));
    return HT_OK;
}
