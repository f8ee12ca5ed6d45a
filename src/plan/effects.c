/* The order of effects as one number: ranks that work together compare it before the first step. */
#include <string.h>

#include "plan/plan.h"

static uint64_t hash_type(uint64_t hash, const ht_type *type)
{
    hash = ht_hash_bytes(hash, &type->dtype, sizeof type->dtype);
    hash = ht_hash_bytes(hash, &type->space, sizeof type->space);
    return ht_hash_bytes(hash, type->dim, (size_t)type->rank * sizeof type->dim[0]);
}

/* With the zero that ends it, so that neighbours stay apart. */
static uint64_t hash_word(uint64_t hash, const char *word)
{
    return ht_hash_bytes(hash, word, strlen(word) + 1);
}

static uint64_t hash_effect(uint64_t hash, const ht_graph *g, const ht_node *n)
{
    hash = hash_word(hash, n->op->name);
    if (n->op == &ht_op_store) hash = hash_word(hash, ht_value_of(g, ht_node_in(g, n, 0))->name);
    for (size_t i = 0; i < ht_op_attr_count(n->op); i++) hash = ht_attr_hash(hash, &n->attr[i]);
    for (size_t i = 0; i < n->n_in; i++) hash = hash_type(hash, ht_type_of(g, ht_node_in(g, n, i)));
    return hash;
}

uint64_t ht_plan_hash_effects(const ht_graph *g)
{
    uint64_t hash = ht_hash_text("effects");
    for (size_t s = 0; s < g->segment_count; s++) {
        const ht_segment *segment = &g->segments[s];
        hash = hash_word(hash, segment->name);
        for (size_t at = 0; at < segment->node_count; at++) {
            const ht_node *n = &g->nodes[segment->nodes[at]];
            if (n->op->flags & HT_OP_EFFECT) hash = hash_effect(hash, g, n);
        }
    }
    return hash;
}

uint64_t ht_plan_effects_hash(const ht_plan *plan)
{
    return plan->effects_hash;
}
