/* Merges nodes that compute the same: equal op, attributes, inputs and result types. The first stays. Roles, names and
 * sites may differ; these may not:
 *     no_merge a wanted duplicate (a recomputed activation): it neither goes nor takes the place of another
 *     pair     a start has one done
 *     effect   what a node does besides its results is done as often as it says
 *     was      the model hash of a folded constant: merging two that differ would change the hash of their users
 *     region   a merge across regions could close a circle between them
 * A random op is a pure function of its site and inputs, so it merges like any other. */
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

typedef struct merger {
    ht_graph *g;
    ht_rewrite rw;
    uint32_t *slots; /* open-addressed: node ids that stay, 0 is empty; capacity is a power of two */
    uint64_t *hash;  /* by slot */
    size_t capacity;
    uint32_t *stands_for; /* by node id: the node that took its place */
} merger;

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static bool swaps(const ht_node *n)
{
    return (n->op->flags & HT_OP_COMMUTATIVE) && n->n_in >= 2;
}

/* An input after the merges so far. */
static uint32_t input(const merger *m, const ht_node *n, size_t i)
{
    return ht_rewrite_map(&m->rw, ht_node_in(m->g, n, i)).id;
}

/* Of everything that must be equal. */
static uint64_t hash_node(const merger *m, const ht_node *n)
{
    uint64_t hash = ht_hash_text(n->op->name);
    for (size_t i = 0; i < ht_op_attr_count(n->op); i++) hash = ht_attr_hash(hash, &n->attr[i]);
    size_t first = 0;
    if (swaps(n)) {
        uint32_t a = input(m, n, 0), b = input(m, n, 1);
        hash = mix(mix(hash, a < b ? a : b), a < b ? b : a);
        first = 2;
    }
    for (size_t i = first; i < n->n_in; i++) hash = mix(hash, input(m, n, i));
    for (size_t i = 0; i < n->n_out; i++) {
        const ht_type *t = ht_type_of(m->g, ht_node_out(n, i));
        hash = ht_hash_bytes(mix(hash, (uint64_t)t->dtype), t->dim, (size_t)t->rank * sizeof t->dim[0]);
    }
    return mix(mix(hash, n->was), n->region);
}

static bool same_inputs(const merger *m, const ht_node *a, const ht_node *b)
{
    if (a->n_in != b->n_in) return false;
    bool straight = true;
    for (size_t i = 0; i < a->n_in; i++) {
        bool same = input(m, a, i) == input(m, b, i);
        if (!same && i >= 2) return false;
        straight &= same;
    }
    if (straight) return true;
    return swaps(a) && input(m, a, 0) == input(m, b, 1) && input(m, a, 1) == input(m, b, 0);
}

static bool same_result(const merger *m, ht_val a, ht_val b)
{
    const ht_value *x = ht_value_of(m->g, a), *y = ht_value_of(m->g, b);
    return ht_type_same(&x->type, &y->type) && x->offset == y->offset &&
           ht_rewrite_map(&m->rw, x->base).id == ht_rewrite_map(&m->rw, y->base).id &&
           memcmp(x->type.stride, y->type.stride, (size_t)x->type.rank * sizeof x->type.stride[0]) == 0;
}

static bool same_node(const merger *m, const ht_node *a, const ht_node *b)
{
    if (a->op != b->op || a->was != b->was || a->region != b->region || !same_inputs(m, a, b)) return false;
    for (size_t i = 0; i < ht_op_attr_count(a->op); i++)
        if (!ht_attr_equal(&a->attr[i], &b->attr[i])) return false;
    for (size_t i = 0; i < a->n_out; i++)
        if (!same_result(m, ht_node_out(a, i), ht_node_out(b, i))) return false;
    return true;
}

/* The slot of an equal node, or the empty one where it belongs. */
static size_t find_slot(const merger *m, const ht_node *n, uint64_t hash)
{
    size_t slot = hash & (m->capacity - 1);
    for (; m->slots[slot]; slot = (slot + 1) & (m->capacity - 1))
        if (m->hash[slot] == hash && same_node(m, &m->g->nodes[m->slots[slot]], n)) break;
    return slot;
}

static void merge_node(merger *m, uint32_t id)
{
    ht_node *n = &m->g->nodes[id];
    if (m->stands_for[n->origin]) n->origin = m->stands_for[n->origin];
    bool pure = !n->no_merge && !(n->op->flags & HT_OP_EFFECT) && !n->op->done && !n->op->start;
    uint64_t hash = pure ? hash_node(m, n) : 0;
    size_t slot = pure ? find_slot(m, n, hash) : 0;
    if (pure && m->slots[slot]) {
        ht_node *first = &m->g->nodes[m->slots[slot]];
        first->full |= n->full;
        for (size_t i = 0; i < n->n_out; i++) ht_rewrite_replace(&m->rw, ht_node_out(n, i), ht_node_out(first, i));
        m->stands_for[id] = m->slots[slot];
        return;
    }
    if (pure) {
        m->slots[slot] = id;
        m->hash[slot] = hash;
    }
    ht_rewrite_keep(&m->rw, id);
}

static ht_status merge_segment(merger *m, uint32_t segment)
{
    size_t nodes = m->g->segments[segment].node_count;
    m->capacity = 64;
    while (m->capacity < 2 * nodes) m->capacity *= 2;
    m->slots = calloc(m->capacity, sizeof *m->slots);
    m->hash = calloc(m->capacity, sizeof *m->hash);
    ht_status status = HT_OK;
    if (!m->slots || !m->hash) {
        status = ht_fail(m->g->ctx, HT_ENOMEM, "cse: out of memory");
    } else {
        if (ht_rewrite_begin(&m->rw, m->g, segment))
            for (size_t i = 0; i < m->rw.count && m->g->status == HT_OK; i++) merge_node(m, m->rw.old[i]);
        status = ht_rewrite_end(&m->rw);
    }
    free(m->slots);
    free(m->hash);
    return status;
}

static ht_status cse_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    merger m = {.g = g, .stands_for = calloc(g->node_count, sizeof(uint32_t))};
    ht_status status = m.stands_for ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "cse: out of memory");
    for (size_t i = 0; i < g->segment_count && status == HT_OK; i++) status = merge_segment(&m, (uint32_t)i);
    free(m.stands_for);
    return status;
}

const ht_pass ht_pass_cse = {
    .name = "cse",
    .help = "merge nodes that compute the same",
    .system = true,
    .keeps_step = true,
    .run = cse_run,
};
