/* Half copies of parameters, and state that is half itself. A copy is derived state: the update writes it beside its
 * master, "derive" makes it before step 0 and after a resume, and it is never saved. Copies of a flat group lie in a flat
 * group of their own, in the same order, so that one cast behind the update's one call writes them all. */
#include <stdio.h>
#include <string.h>

#include "pass/autocast.h"

/* ---- types of state ---- */

/* A view has its base's type. */
static void set_state_dtype(ht_graph *g, ht_val state, ht_dtype dtype)
{
    g->values[state.id].type.dtype = dtype;
    g->values[ht_root(g, state).id].type.dtype = dtype;
}

void ht_policy_types_state(ht_graph *g, const ht_policy *policy)
{
    for (size_t i = 0; i < g->state_count; i++) {
        const ht_state *s = &g->states[i];
        if (ht_type_of(g, s->value)->dtype != HT_F32) continue;
        bool parameter = s->trained || s->heading == HT_HEADING_PARAMETERS; /* frozen ones are no longer trained */
        if (parameter && !policy->masters) set_state_dtype(g, s->value, policy->half);
        if (s->heading == HT_HEADING_GRADIENTS) set_state_dtype(g, s->value, policy->gradients);
        if (s->heading == HT_HEADING_OPTIMIZER) set_state_dtype(g, s->value, policy->moments);
    }
    for (size_t i = 0; i < g->state_count; i++) {
        ht_val state = g->states[i].value;
        g->values[state.id].type.dtype = ht_type_of(g, ht_root(g, state))->dtype;
        g->states[i].whole.dtype = ht_type_of(g, state)->dtype;
    }
}

/* ---- copies ---- */

/* Shares bytes with others in a way that is no flat group: copies of both could not be told apart. */
static bool is_tangled(const ht_graph *g, ht_val state)
{
    ht_val base = ht_value_of(g, state)->base;
    if (base.id) return ht_type_of(g, base)->rank != 1 || !ht_type_contiguous(ht_type_of(g, state));
    for (size_t i = 0; i < g->state_count; i++)
        if (ht_value_of(g, g->states[i].value)->base.id == state.id) return true;
    return false;
}

static bool has_copy(const ht_half_copies *c, ht_val state)
{
    const ht_graph *g = c->g;
    const ht_state *s = ht_state_of(g, state);
    const ht_type *type = ht_type_of(g, state);
    if (!s || type->dtype != HT_F32 || type->rank < (c->policy->half_biases ? 1 : 2) || s->derived) return false;
    if (s->heading != HT_HEADING_PARAMETERS && s->heading != HT_HEADING_MASTERS) return false;
    if (is_tangled(g, state)) return false;
    return !c->policy->has_f32_params || regexec(&c->policy->f32_params, ht_value_of(g, state)->name, 0, NULL, 0) != 0;
}

static ht_val known_copy(const ht_half_copies *c, ht_val state)
{
    return state.id < c->capacity ? c->copy[state.id] : HT_NONE;
}

static ht_val add_copy(ht_half_copies *c, ht_val state)
{
    ht_graph *g = c->g;
    size_t before = c->capacity;
    char name[512];
    ht_type type = *ht_type_of(g, state);
    type.dtype = c->policy->half;
    snprintf(name, sizeof name, "%s.half", ht_value_of(g, state)->name);
    if (!ht_grow((void **)&c->copy, &c->capacity, state.id + 1, sizeof *c->copy)) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for half copies");
        return HT_NONE;
    }
    memset(c->copy + before, 0, (c->capacity - before) * sizeof *c->copy);
    c->copy[state.id] = ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_WEIGHTS, .derived = true});
    if (g->status == HT_OK) ht_state_of(g, state)->heading = HT_HEADING_MASTERS;
    return c->copy[state.id];
}

ht_val ht_half_copy(ht_half_copies *c, ht_val state)
{
    ht_graph *g = c->g;
    ht_val copy = known_copy(c, state), base = ht_value_of(g, state)->base;
    if (copy.id || !has_copy(c, state)) return copy;
    ht_val group = base.id ? known_copy(c, base) : HT_NONE;
    if (base.id && !group.id) group = add_copy(c, base);
    copy = add_copy(c, state);
    if (group.id && g->status == HT_OK) ht_value_view(g, copy, group, ht_value_of(g, state)->offset);
    return copy;
}

void ht_half_copy_store(ht_half_copies *c, ht_val state, ht_val value)
{
    ht_val copy = known_copy(c, state);
    if (copy.id) ht_store(c->g, copy, ht_cast(c->g, value, c->policy->half));
}

ht_status ht_half_copies_derive(ht_half_copies *c)
{
    ht_graph *g = c->g;
    uint32_t resume = g->segment;
    int derive = -1;
    for (uint32_t id = 1; id < c->capacity && g->status == HT_OK; id++) {
        ht_val copy = c->copy[id];
        /* Each parameter by itself: so a copy is known to be its master's, whatever lies between them in a group. */
        if (!copy.id || (ht_type_of(g, copy)->rank < 2 && is_tangled(g, (ht_val){id}))) continue;
        if (derive < 0) derive = ht_segment_find(g, "derive");
        g->segment = derive >= 0 ? (uint32_t)derive : ht_graph_add_segment(g, "derive");
        derive = (int)g->segment;
        ht_store(g, copy, ht_cast(g, (ht_val){id}, c->policy->half));
    }
    g->segment = resume;
    return g->status;
}
