/* Hashes: of a graph's structure, and of what a model and each segment compute, which system passes preserve (the model
 * hash, the segment hash). */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

ht_status ht_graph_hash(uint64_t *out, const ht_graph *g)
{
    char *text;
    *out = 0;
    HT_TRY(ht_graph_print(&text, g));
    *out = ht_hash_text(text);
    free(text);
    return HT_OK;
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
    const ht_state *state = ht_state_of(g, v);
    bool shared = state && (state->part || state->cut.ranks); /* how is the system's choice */
    return hash_type(ht_hash_text(value->name), shared ? &state->whole : &value->type);
}

/* A copy, and a cast between floats: the system's choice of where and how precisely. A cast to or from integers is a
 * function, and the model's. A cast that draws numbers (stochastic rounding) is the system's behind an update only. */
static bool is_erased(const ht_graph *g, const ht_node *n)
{
    if (!(n->op->flags & HT_OP_ERASED) || n->n_in == 0 || n->n_out == 0) return false;
    if (n->n_in > 1 && !n->op->start && n->role != HT_ROLE_UPDATE) return false;
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

static uint64_t *hash_states(const ht_graph *g)
{
    uint64_t *hashes = calloc(g->value_count, sizeof *hashes);
    if (!hashes) return NULL;
    for (size_t i = 0; i < g->state_count; i++) hashes[g->states[i].value.id] = hash_leaf(g, g->states[i].value);
    hash_derived(g, hashes);
    return hashes;
}

static void hash_values(const ht_graph *g, const ht_segment *s, uint64_t *hashes)
{
    for (size_t i = 0; i < s->input_count; i++) hashes[s->inputs[i].id] = hash_leaf(g, s->inputs[i]);
    for (size_t i = 0; i < s->node_count; i++) hash_node(g, &g->nodes[s->nodes[i]], hashes);
}

uint64_t *ht_value_hashes(const ht_graph *g, uint32_t segment)
{
    uint64_t *hashes = hash_states(g);
    if (hashes) hash_values(g, &g->segments[segment], hashes);
    return hashes;
}

/* A sum, so that the order in which outputs were declared does not matter. */
static uint64_t hash_outputs(const ht_segment *s, const uint64_t *hashes)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->output_count; i++)
        sum += mix(ht_hash_text(s->outputs[i].name), hashes[s->outputs[i].value.id]);
    return sum;
}

/* What a node does besides its results. The copies that a store writes beside a master are the system's, and so are the
 * scales of its number types, and what ranks exchange. */
static uint64_t hash_effect(const ht_graph *g, const ht_node *n, const uint64_t *hashes)
{
    if (!(n->op->flags & HT_OP_EFFECT) || (n->op->flags & HT_OP_COLLECTIVE)) return 0;
    const ht_state *stored = n->op == &ht_op_store ? ht_state_of(g, ht_root(g, ht_node_in(g, n, 0))) : NULL;
    if (stored && (stored->derived || stored->heading == HT_HEADING_SCALES)) return 0;
    uint64_t hash = ht_hash_text(n->op->name);
    for (size_t i = 0; i < ht_op_attr_count(n->op); i++) hash = ht_attr_hash(hash, &n->attr[i]);
    for (size_t i = 0; i < n->n_in; i++) hash = mix(hash, hashes[ht_node_in(g, n, i).id]);
    return hash;
}

static ht_status no_memory(const ht_graph *g)
{
    HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for a hash");
}

ht_status ht_model_hash(uint64_t *out, const ht_graph *g)
{
    *out = 0;
    int segment = ht_segment_find(g, "forward");
    if (segment < 0) segment = ht_segment_find(g, "micro_first");
    if (segment < 0) segment = ht_segment_find(g, "fwd");
    if (segment < 0) return HT_OK;
    uint64_t *hashes = ht_value_hashes(g, (uint32_t)segment);
    if (!hashes) return no_memory(g);
    *out = hash_outputs(&g->segments[segment], hashes);
    free(hashes);
    return HT_OK;
}

/* `hashes`: of the states, and then of the segment's values. */
static uint64_t hash_segment(const ht_graph *g, const ht_segment *s, uint64_t *hashes)
{
    hash_values(g, s, hashes);
    uint64_t sum = hash_outputs(s, hashes);
    for (size_t i = 0; i < s->node_count; i++) sum += hash_effect(g, &g->nodes[s->nodes[i]], hashes);
    return sum;
}

/* ---- a graph's hashes before and after a change ---- */

/* Which segments programs call, and how often. */
static uint64_t hash_programs(const ht_graph *g)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < g->program_count; i++) {
        const ht_program *p = &g->programs[i];
        hash = mix(hash, ht_hash_text(p->name));
        for (size_t c = 0; c < p->call_count; c++)
            hash = mix(mix(hash, ht_hash_text(g->segments[p->calls[c].segment].name)), p->calls[c].times);
    }
    return hash;
}

ht_status ht_step_hashes_take(ht_step_hashes *out, const ht_graph *g)
{
    *out = (ht_step_hashes){.programs = hash_programs(g), .segment_count = g->segment_count};
    out->segments = calloc(g->segment_count + 1, sizeof *out->segments);
    uint64_t *hashes = hash_states(g); /* segments share no other values */
    for (size_t i = 0; hashes && out->segments && i < g->segment_count; i++)
        out->segments[i] = hash_segment(g, &g->segments[i], hashes);
    bool ok = hashes && out->segments;
    free(hashes);
    return ok ? HT_OK : no_memory(g);
}

void ht_step_hashes_free(ht_step_hashes *hashes)
{
    free(hashes->segments);
    *hashes = (ht_step_hashes){0};
}

static ht_status compare(const ht_step_hashes *before, const ht_step_hashes *after, const ht_graph *g, const char *who)
{
    if (after->segment_count < before->segment_count) HT_FAIL(g->ctx, HT_EVERIFY, "%s removed a segment", who);
    if (after->programs != before->programs) HT_FAIL(g->ctx, HT_EVERIFY, "%s changed what programs call", who);
    for (size_t i = 0; i < before->segment_count; i++)
        if (after->segments[i] != before->segments[i])
            HT_FAIL(g->ctx, HT_EVERIFY, "%s changed what segment '%s' computes", who, g->segments[i].name);
    return HT_OK;
}

ht_status ht_step_hashes_check(ht_step_hashes *hashes, const ht_graph *g, const char *who)
{
    ht_step_hashes after;
    ht_status status = ht_step_hashes_take(&after, g);
    if (status == HT_OK) status = compare(hashes, &after, g, who);
    ht_step_hashes_free(hashes);
    *hashes = after;
    return status;
}
