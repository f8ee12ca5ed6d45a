/* The sums of the segment "exchange" that are begun before any of them is waited for: gradients in buckets, running
 * statistics, losses. They come in the order in which the last micro-batch makes what they read, and nothing waits between
 * them, so that an executor can begin each while that micro-batch still computes (plan/lead.c). With overlap_comm off each
 * is waited for at once. */
#include <stdlib.h>
#include <string.h>

#include "pass/zero.h"

static void end_sum(const ht_zero *z, const ht_zero_sum *sum)
{
    ht_graph *g = z->g;
    ht_val all = ht_collective_end(g, sum->start, sum->from);
    if (sum->mean) all = ht_scale(g, all, 1 / (double)z->options->ranks);
    ht_store(g, sum->state, ht_cast(g, all, ht_type_of(g, sum->state)->dtype));
}

void ht_zero_end_sums(ht_zero *z)
{
    for (size_t i = 0; i < z->sum_count && z->g->status == HT_OK; i++) end_sum(z, &z->sums[i]);
    z->sum_count = 0;
}

static void add_sum(ht_zero *z, ht_zero_sum sum)
{
    ht_graph *g = z->g;
    if (g->status != HT_OK) return;
    if (!ht_grow((void **)&z->sums, &z->sum_capacity, z->sum_count + 1, sizeof *z->sums)) {
        ht_graph_fail(g, HT_ENOMEM, "zero: out of memory");
        return;
    }
    z->sums[z->sum_count++] = sum;
    if (!z->options->overlap) ht_zero_end_sums(z);
}

void ht_zero_begin_mean(ht_zero *z, ht_val state)
{
    add_sum(z, (ht_zero_sum){ht_all_reduce_begin(z->g, state, z->ranks, "sum"), state, state, true});
}

/* ---- gradients ---- */

ht_dtype ht_zero_exchange_dtype(const ht_zero *z, ht_dtype accumulated)
{
    static const ht_dtype types[] = {[HT_ZERO_AS_F32] = HT_F32, [HT_ZERO_AS_F16] = HT_F16, [HT_ZERO_AS_BF16] = HT_BF16};
    return z->options->exchange_type == HT_ZERO_AS_ACCUMULATED ? accumulated : types[z->options->exchange_type];
}

/* Gradients that are exchanged at once, and the place in a micro-batch where the last of them is made. */
typedef struct bucket {
    ht_val grads;
    size_t made;
} bucket;

typedef struct bucket_list {
    bucket *items;
    size_t count, capacity;
} bucket_list;

static bool is_flat_gradient(const ht_graph *g, const ht_state *s)
{
    const ht_value *v = ht_value_of(g, s->value);
    return s->heading == HT_HEADING_GRADIENTS && !v->base.id && ht_type_elems(&v->type) > 0;
}

static void add_bucket(ht_zero *z, bucket_list *list, ht_val grads)
{
    ht_graph *g = z->g;
    if (g->status != HT_OK) return;
    if (ht_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items))
        list->items[list->count++] = (bucket){.grads = grads};
    else
        ht_graph_fail(g, HT_ENOMEM, "zero: out of memory");
}

/* Stage 0: any range of a flat group. */
static void cut_group(ht_zero *z, bucket_list *list, ht_val flat)
{
    ht_graph *g = z->g;
    int64_t elems = ht_type_elems(ht_type_of(g, flat)), most = z->most, index = 0;
    if (z->options->reduce_bucket < most) most = z->options->reduce_bucket;
    if (elems <= most || ht_type_of(g, flat)->rank != 1) {
        add_bucket(z, list, flat);
        return;
    }
    for (int64_t first = 0; first < elems && g->status == HT_OK; first += most) {
        int64_t count = elems - first < most ? elems - first : most;
        add_bucket(z, list, ht_zero_view(g, flat, "bucket", index++, first, count));
    }
}

static void list_buckets(ht_zero *z, bucket_list *list)
{
    ht_graph *g = z->g;
    if (z->options->stage == 0)
        for (size_t i = 0, states = g->state_count; i < states && g->status == HT_OK; i++)
            if (is_flat_gradient(g, &g->states[i])) cut_group(z, list, g->states[i].value);
    for (size_t i = 0; i < z->group_count; i++)
        for (size_t b = 0; b < z->groups[i].bucket_count && g->status == HT_OK; b++)
            add_bucket(z, list, ht_zero_bucket_of(z, &z->groups[i], z->groups[i].grad, b));
}

/* Do two states share bytes? */
static bool overlaps(const ht_graph *g, ht_val a, ht_val b)
{
    const ht_value *x = ht_value_of(g, a), *y = ht_value_of(g, b);
    uint32_t of_a = x->base.id ? x->base.id : a.id, of_b = y->base.id ? y->base.id : b.id;
    return of_a == of_b && x->offset < y->offset + ht_type_elems(&y->type) &&
           y->offset < x->offset + ht_type_elems(&x->type);
}

/* The segment that makes gradients last: further micro-batches, where there are some, have the same order. */
static const ht_segment *first_micro(const ht_graph *g)
{
    for (size_t i = 0; i < g->segment_count; i++)
        if (ht_is_micro_first(&g->segments[i])) return &g->segments[i];
    return NULL;
}

static ht_status find_made(const ht_zero *z, bucket_list *list)
{
    const ht_graph *g = z->g;
    const ht_segment *s = first_micro(g);
    size_t *position = calloc(g->node_count + 1, sizeof *position);
    if (!position) HT_FAIL(g->ctx, HT_ENOMEM, "zero: out of memory");
    for (size_t at = 0; s && at < s->node_count; at++) position[s->nodes[at]] = at;
    for (size_t at = 0; s && at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        if (n->op != &ht_op_store) continue;
        const ht_node *from = ht_producer(g, ht_node_in(g, n, 1));
        size_t made = from ? position[from - g->nodes] : 0;
        for (size_t b = 0; b < list->count; b++)
            if (overlaps(g, ht_node_in(g, n, 0), list->items[b].grads) && made > list->items[b].made)
                list->items[b].made = made;
    }
    free(position);
    return HT_OK;
}

/* Stable: buckets that are made at the same place keep their order. */
static void sort_by_made(bucket_list *list)
{
    for (size_t i = 1; i < list->count; i++) {
        bucket b = list->items[i];
        size_t at = i;
        for (; at > 0 && list->items[at - 1].made > b.made; at--) list->items[at] = list->items[at - 1];
        list->items[at] = b;
    }
}

ht_val ht_zero_begin_gradients(ht_zero *z)
{
    ht_graph *g = z->g;
    bucket_list list = {0};
    ht_val all = HT_NONE;
    list_buckets(z, &list);
    if (g->status == HT_OK && find_made(z, &list) != HT_OK) ht_graph_fail(g, HT_ENOMEM, "zero: out of memory");
    sort_by_made(&list);
    for (size_t i = 0; i < list.count && g->status == HT_OK; i++) {
        ht_val state = list.items[i].grads, finite;
        ht_val grads = ht_cast(g, state, ht_zero_exchange_dtype(z, ht_type_of(g, state)->dtype));
        if (z->finite.id) { /* those of this rank, which sums would hide */
            ht_norm_finite(g, grads, &finite);
            all = all.id ? ht_and(g, all, finite) : finite;
        }
        ht_val start = z->options->stage == 0 ? ht_all_reduce_begin(g, grads, z->ranks, "sum")
                                              : ht_reduce_scatter_within_begin(g, grads, z->ranks);
        add_sum(z, (ht_zero_sum){start, grads, state, false});
    }
    free(list.items);
    return all;
}
