/* Hashes: of a graph's structure, and of what a model computes, which system passes preserve (the model hash). */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

uint64_t ht_graph_hash(const ht_graph *g)
{
    char *text;
    if (ht_graph_print(&text, g) != HT_OK) return 0;
    uint64_t hash = ht_hash_text(text);
    free(text);
    return hash;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    return ht_hash_bytes(hash, &word, sizeof word);
}

/* Which float type a value has is the system's choice; that it is an integer is the model's. */
static uint64_t hash_type(uint64_t hash, const ht_type *type)
{
    if (!ht_dtype_is_float(type->dtype)) hash = mix(hash, (uint64_t)type->dtype);
    return ht_hash_bytes(hash, type->dim, (size_t)type->rank * sizeof type->dim[0]);
}

static uint64_t hash_leaf(const ht_graph *g, ht_val v)
{
    const ht_value *value = ht_value_of(g, v);
    return hash_type(ht_hash_text(value->name), &value->type);
}

/* A copy, and a cast between floats: the system's choice of where and how precisely. A cast to or from integers is a
 * function, and the model's. */
static bool is_erased(const ht_graph *g, const ht_node *n)
{
    if (!(n->op->flags & HT_OP_ERASED) || n->n_in == 0 || n->n_out == 0) return false;
    ht_dtype from = ht_type_of(g, ht_node_in(g, n, 0))->dtype, to = ht_type_of(g, ht_node_out(n, 0))->dtype;
    return from == to || (ht_dtype_is_float(from) && ht_dtype_is_float(to));
}

static void hash_node(const ht_graph *g, const ht_node *n, uint64_t *hashes)
{
    uint64_t hash = ht_hash_text(n->op->name);
    for (size_t i = 0; i < ht_op_attr_count(n->op); i++)
        if (!n->op->attrs[i].unhashed) hash = ht_attr_hash(hash, &n->attr[i]);
    uint64_t first = n->n_in > 0 ? hashes[ht_node_in(g, n, 0).id] : 0;
    uint64_t second = n->n_in > 1 ? hashes[ht_node_in(g, n, 1).id] : 0;
    bool swap = (n->op->flags & HT_OP_COMMUTATIVE) && second < first;
    for (size_t i = 0; i < n->n_in; i++) {
        uint64_t in = hashes[ht_node_in(g, n, i).id];
        if (swap && i < 2) in = i ? first : second;
        hash = mix(hash, in);
    }
    for (size_t i = 0; i < n->n_out; i++) {
        uint64_t out = hash_type(mix(hash, i), ht_type_of(g, ht_node_out(n, i)));
        if (is_erased(g, n)) out = first;
        if (n->was) out = n->was;
        hashes[n->out + i] = out;
    }
}

/* Half copies and other derived state have the hash of the values that they are computed from. */
static void hash_derived(const ht_graph *g, uint64_t *hashes)
{
    int derive = ht_segment_find(g, "derive");
    if (derive < 0) return;
    const ht_segment *s = &g->segments[derive];
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        if (n->op == &ht_op_store)
            hashes[ht_node_in(g, n, 0).id] = hashes[ht_node_in(g, n, 1).id];
        else
            hash_node(g, n, hashes);
    }
}

uint64_t *ht_value_hashes(const ht_graph *g, uint32_t segment)
{
    uint64_t *hashes = calloc(g->value_count, sizeof *hashes);
    if (!hashes) return NULL;
    for (size_t i = 0; i < g->state_count; i++) hashes[g->states[i].value.id] = hash_leaf(g, g->states[i].value);
    hash_derived(g, hashes);
    const ht_segment *s = &g->segments[segment];
    for (size_t i = 0; i < s->input_count; i++) hashes[s->inputs[i].id] = hash_leaf(g, s->inputs[i]);
    for (size_t i = 0; i < s->node_count; i++) hash_node(g, &g->nodes[s->nodes[i]], hashes);
    return hashes;
}

uint64_t ht_model_hash(const ht_graph *g)
{
    int segment = ht_segment_find(g, "forward");
    if (segment < 0) segment = ht_segment_find(g, "micro_first");
    if (segment < 0) return 0;
    uint64_t *hashes = ht_value_hashes(g, (uint32_t)segment), model = 0;
    if (!hashes) return 0;
    const ht_segment *s = &g->segments[segment];
    /* A sum, so that the order in which outputs were declared does not matter. */
    for (size_t i = 0; i < s->output_count; i++)
        model += mix(ht_hash_text(s->outputs[i].name), hashes[s->outputs[i].value.id]);
    free(hashes);
    return model;
}
