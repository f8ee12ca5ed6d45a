/* Moves the optimiser's state (moments and masters), gradients and parameters to the host or to a disk. Only spaces change, and
 * copies come in; every segment computes and stores what it did.
 *
 * The update of such state is computed where the state lies, or where the host's processors reach it: gradients are fetched, half
 * copies and parameters are written back. Units of the update (tiles, tensors) form a pipeline: while one is computed, the
 * arrays of the next are on their way in and the results of the one before on their way out:
 *
 *     fetch 0 | fetch 1, unit 0 | write 0, fetch 2, unit 1 | write 1, fetch 3, unit 2 | …
 *
 * What the model reads of its parameters is fetched before each use, where parameters move and are large. Other ones that it
 * reads as the masters that they are (biases, norms, fp32_params) have copies in main, as weights have half copies: derived
 * state that the update writes. Gradients leave as they are made; their norm is computed where the host's processors reach
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "pass/fetch_params.h"
#include "pass/offload_gradients.h"
#include "pass/update_units.h"
#include "pass/zero.h"

/* An array on its way: fetched for a unit, or written back into a state. */
typedef struct transfer {
    ht_val from, start, here; /* here: the end of the copy */
    uint32_t store;           /* the node that stores it; 0: `into` has no store yet */
    ht_val into;
} transfer;

typedef struct transfers {
    transfer *items;
    size_t count, capacity;
} transfers;

typedef struct mover {
    ht_graph *g;
    ht_update_units units;
    ht_space compute, norm; /* where units and the gradients' norm are computed */
    bool fetches;           /* parameters move: the large ones are fetched where they are read */
    int64_t persistent;     /* elements of those that are not */
    size_t ahead;           /* units, and parameters, that are fetched before they are needed */
    size_t known;           /* values that were there before */
    ht_val *copy;           /* by value id: the copy in main of a state that moves, or none */
    bool *fetched;          /* by value id: a state that moves, and is fetched instead */
    bool *added;            /* by value id: a gradient that is fetched, to be added to */
    bool *summed;           /* by value id: a gradient that is fetched for its norm */
    ht_val *shown;          /* by value id: the copy in main of what the norm's ops give, or none */
    ht_val *repeated;       /* by value id: a scalar or constant where units compute, or none */
    bool *stored,
        *read; /* by value id of a state that owns bytes: others store into it; then units read arrays of it */
    transfers *in, *out; /* by unit */
    ht_rewrite rw;
} mover;

/* ---- states ---- */

static bool moves(const mover *m, ht_val v)
{
    return v.id < m->known && m->units.goes[v.id] != HT_SPACE_MAIN;
}

/* Of a state that the model reads: fetched, or a copy in main. */
static void want_copy(mover *m, ht_val state, bool output)
{
    ht_graph *g = m->g;
    char name[512];
    if (!moves(m, state) || m->copy[state.id].id || m->fetched[state.id] || g->status != HT_OK) return;
    if (ht_is_gradient(g, state)) {
        m->added[state.id] |= !output;
        return;
    }
    m->fetched[state.id] = m->fetches && !output && ht_type_elems(ht_type_of(g, state)) >= m->persistent;
    if (m->fetched[state.id]) return;
    ht_type type = *ht_type_of(g, state);
    type.space = HT_SPACE_MAIN;
    ht_type_row_major(&type);
    snprintf(name, sizeof name, "%s.main", ht_value_of(g, state)->name);
    m->copy[state.id] = ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_WEIGHTS, .derived = true});
}

static void want_copies(mover *m)
{
    const ht_graph *g = m->g;
    for (size_t i = 0; i < g->segment_count; i++) {
        const ht_segment *s = &g->segments[i];
        if (!ht_is_of_model(s)) continue;
        for (size_t at = 0; at < s->node_count; at++) {
            const ht_node *n = &g->nodes[s->nodes[at]];
            for (size_t k = n->op == &ht_op_store; k < n->n_in; k++) want_copy(m, ht_node_in(g, n, k), false);
        }
        for (size_t k = 0; k < s->output_count; k++) want_copy(m, s->outputs[k].value, true);
    }
}

static void move_states(mover *m)
{
    for (size_t i = 0; i < m->g->state_count; i++) {
        ht_val state = m->g->states[i].value;
        if (moves(m, state)) m->g->values[state.id].type.space = m->units.goes[state.id];
    }
}

/* ---- operands of units ---- */

static bool add_transfer(mover *m, transfers *list, transfer item)
{
    if (!ht_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items)) {
        ht_graph_fail(m->g, HT_ENOMEM, "offload: out of memory");
        return false;
    }
    list->items[list->count++] = item;
    return true;
}

static bool is_elsewhere(const mover *m, ht_val v)
{
    const ht_node *from = v.id ? ht_producer(m->g, v) : NULL;
    if (!v.id || (from && v.id < m->known && m->units.of_node[from - m->g->nodes])) return false;
    return ht_type_of(m->g, v)->space != m->compute;
}

/* A constant is made again, a scalar copied, once for all units. */
static ht_val repeat(mover *m, ht_val v)
{
    ht_graph *g = m->g;
    if (g->status != HT_OK || !v.id) return v;
    if (v.id < m->known && m->repeated[v.id].id) return m->repeated[v.id];
    if (!is_elsewhere(m, v)) return v;
    ht_val here;
    if (ht_is_repeatable(g, ht_producer(g, v))) {
        const ht_node n = *ht_producer(g, v);
        ht_type want = *ht_type_of(g, v);
        want.space = m->compute;
        ht_val in = n.n_in ? repeat(m, ht_node_in(g, &n, 0)) : HT_NONE;
        ht_emit(g, n.op, n.n_in, &in, ht_op_attr_count(n.op), n.attr, &want, &here);
        if (g->status == HT_OK) g->nodes[g->node_count - 1].was = n.was;
    } else {
        here = ht_to_space(g, v, m->compute);
    }
    return m->repeated[v.id] = here;
}

static bool is_fetched(const mover *m, ht_val v)
{
    return is_elsewhere(m, v) && !ht_is_scalar(m->g, v) && !ht_is_repeatable(m->g, ht_producer(m->g, v));
}

static transfer *find_fetched(const mover *m, size_t unit, ht_val v)
{
    for (size_t i = 0; i < m->in[unit].count; i++)
        if (m->in[unit].items[i].from.id == v.id) return &m->in[unit].items[i];
    return NULL;
}

static ht_val start_copy(mover *m, ht_val v, ht_space space)
{
    ht_type want = *ht_type_of(m->g, v);
    want.space = space;
    ht_type_row_major(&want);
    return ht_emit1(m->g, "copy_start", &want, HT_VALS(v), HT_NO_ATTRS);
}

static ht_val end_copy(mover *m, const transfer *t)
{
    if (m->g->status != HT_OK) return HT_NONE;
    ht_type want = *ht_type_of(m->g, t->start);
    return ht_emit1(m->g, "copy_done", &want, HT_VALS(t->start, t->from), HT_NO_ATTRS);
}

/* Calls fn with every array that a unit reads and that lies elsewhere. */
static void each_fetched(mover *m, size_t unit, void (*fn)(mover *m, size_t unit, ht_val v, bool *flag), bool *flag)
{
    for (size_t i = m->units.first[unit]; i < m->units.first[unit + 1]; i++) {
        const ht_node n = m->g->nodes[m->units.nodes[i]];
        for (size_t k = n.op == &ht_op_store; k < n.n_in && m->g->status == HT_OK; k++) {
            ht_val v = ht_node_in(m->g, &n, k);
            if (is_fetched(m, v)) fn(m, unit, v, flag);
        }
    }
}

static void start_fetch(mover *m, size_t unit, ht_val v, bool *flag)
{
    (void)flag;
    if (find_fetched(m, unit, v)) return;
    ht_val start = start_copy(m, v, m->compute);
    add_transfer(m, &m->in[unit], (transfer){.from = v, .start = start});
}

static void note_result(mover *m, size_t unit, ht_val v, bool *results)
{
    (void)unit;
    *results |= !ht_state_of(m->g, v);
}

static void start_fetches(mover *m, size_t unit)
{
    if (unit < m->units.count) each_fetched(m, unit, start_fetch, NULL);
}

/* Do the first units fetch state alone? Then that can begin before anything else. */
static bool can_begin_early(mover *m)
{
    bool results = false;
    for (size_t unit = 0; unit < m->units.count && unit < m->ahead; unit++)
        each_fetched(m, unit, note_result, &results);
    return !results;
}

/* ---- what units store ---- */

/* The value x goes into a state: at once where both lie in one space, else with the transfers of its unit. */
static void put(mover *m, size_t unit, ht_val state, ht_val x, uint32_t store)
{
    ht_graph *g = m->g;
    if (g->status != HT_OK) return;
    if (ht_type_of(g, state)->space == m->compute) {
        if (store)
            ht_rewrite_keep(&m->rw, store);
        else
            ht_store(g, state, x);
        return;
    }
    ht_val start = start_copy(m, x, ht_type_of(g, state)->space);
    add_transfer(m, &m->out[unit], (transfer){.from = x, .start = start, .store = store, .into = state});
}

static int64_t offset_of(const ht_graph *g, ht_val state)
{
    return ht_value_of(g, state)->base.id ? ht_value_of(g, state)->offset : 0;
}

/* Elements first .. end - 1 of the copy of `state` in main: all of it, or a view. */
static ht_val part_of_copy(mover *m, ht_val state, int64_t first, int64_t end)
{
    ht_graph *g = m->g;
    ht_val copy = m->copy[state.id];
    int64_t count = end - first;
    char name[544];
    if (count == ht_type_elems(ht_type_of(g, copy))) return copy;
    ht_type type = ht_type_make(ht_type_of(g, copy)->dtype, 1, &count);
    snprintf(name, sizeof name, "%s.from%lld", ht_value_of(g, copy)->name, (long long)first);
    ht_val part = ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_WEIGHTS, .derived = true});
    if (g->status == HT_OK) ht_value_view(g, part, copy, first);
    return part;
}

/* x becomes part of `into`: what of it is in the copy of `state` goes there, too. */
static void put_part(mover *m, size_t unit, ht_val into, ht_val x, ht_val state)
{
    ht_graph *g = m->g;
    int64_t begins = offset_of(g, into), elems = ht_type_elems(ht_type_of(g, into));
    int64_t first = offset_of(g, state), end = first + ht_type_elems(ht_type_of(g, state));
    if (first < begins) first = begins;
    if (end > begins + elems) end = begins + elems;
    if (first >= end) return;
    ht_val goal = part_of_copy(m, state, first - offset_of(g, state), end - offset_of(g, state));
    if (g->status != HT_OK) return;
    if (end - first < elems) {
        x = ht_reshape(g, x, 1, &elems);
        x = ht_slice_axis(g, x, 0, first - begins, end - first);
    }
    if (g->status != HT_OK) return;
    ht_type shape = *ht_type_of(g, goal);
    if (!ht_type_same_shape(&shape, ht_type_of(g, x))) x = ht_reshape(g, x, shape.rank, shape.dim);
    /* Made where it is stored, with its unit: a part of another value would be stored at the end of the segment. */
    if (end - first < elems && m->compute == HT_SPACE_MAIN) x = ht_emit1(g, "copy", &shape, HT_VALS(x), HT_NO_ATTRS);
    put(m, unit, goal, x, 0);
}

static void put_copies(mover *m, size_t unit, ht_val into, ht_val x)
{
    ht_graph *g = m->g;
    if (!moves(m, into)) return;
    for (size_t i = 0, states = g->state_count; i < states && g->status == HT_OK; i++) {
        ht_val state = g->states[i].value;
        bool has = state.id < m->known && m->copy[state.id].id && ht_root(g, state).id == ht_root(g, into).id;
        if (has) put_part(m, unit, into, x, state);
    }
}

/* ---- the update ---- */

static ht_val operand(mover *m, size_t unit, ht_val v)
{
    const transfer *fetched = find_fetched(m, unit, v);
    return fetched ? fetched->here : repeat(m, v);
}

static void compute_node(mover *m, size_t unit, uint32_t id)
{
    ht_graph *g = m->g;
    for (size_t i = 0; i < g->nodes[id].n_in && g->status == HT_OK; i++) {
        ht_val v = operand(m, unit, g->operands[g->nodes[id].in + i]);
        g->operands[g->nodes[id].in + i] = v;
    }
    for (size_t i = 0; i < g->nodes[id].n_out; i++) g->values[g->nodes[id].out + i].type.space = m->compute;
    ht_rewrite_keep(&m->rw, id);
}

static void compute_unit(mover *m, size_t unit)
{
    ht_graph *g = m->g;
    const ht_update_units *u = &m->units;
    for (size_t i = 0; i < m->in[unit].count; i++) m->in[unit].items[i].here = end_copy(m, &m->in[unit].items[i]);
    for (size_t i = u->first[unit]; i < u->first[unit + 1] && g->status == HT_OK; i++)
        if (g->nodes[u->nodes[i]].op != &ht_op_store) compute_node(m, unit, u->nodes[i]);
    for (size_t i = u->first[unit]; i < u->first[unit + 1] && g->status == HT_OK; i++) {
        const ht_node n = g->nodes[u->nodes[i]];
        if (n.op != &ht_op_store) continue;
        put(m, unit, ht_node_in(g, &n, 0), ht_node_in(g, &n, 1), u->nodes[i]);
        put_copies(m, unit, ht_node_in(g, &n, 0), ht_node_in(g, &n, 1));
    }
}

static void finish_writes(mover *m, size_t unit)
{
    ht_graph *g = m->g;
    for (size_t i = 0; i < m->out[unit].count && g->status == HT_OK; i++) {
        transfer *t = &m->out[unit].items[i];
        ht_val here = end_copy(m, t);
        if (g->status != HT_OK) return;
        if (!t->store) {
            ht_store(g, t->into, here);
            continue;
        }
        g->operands[g->nodes[t->store].in + 1] = here;
        ht_rewrite_keep(&m->rw, t->store);
    }
}

/* What the segment stores outside of units. */
static void find_stored(mover *m)
{
    for (size_t i = 0; i < m->rw.count; i++) {
        const ht_node *n = &m->g->nodes[m->rw.old[i]];
        bool other = n->op == &ht_op_store && !m->units.of_node[m->rw.old[i]];
        if (other) m->stored[ht_root(m->g, ht_node_in(m->g, n, 0)).id] = true;
    }
}

/* Scalars that units read and the segment stores are copied: so their stores need not wait for the last unit. */
static void read_stored(mover *m)
{
    ht_graph *g = m->g;
    find_stored(m);
    for (size_t i = 0; i < m->units.first[m->units.count]; i++) {
        const ht_node n = g->nodes[m->units.nodes[i]];
        for (size_t k = n.op == &ht_op_store; k < n.n_in && g->status == HT_OK; k++) {
            ht_val v = ht_node_in(g, &n, k);
            if (!v.id || !ht_state_of(g, v) || !m->stored[ht_root(g, v).id] || m->repeated[v.id].id) continue;
            ht_type want = *ht_type_of(g, v);
            want.space = m->compute;
            if (ht_is_scalar(g, v))
                m->repeated[v.id] = ht_emit1(g, "copy", &want, HT_VALS(v), HT_NO_ATTRS);
            else
                m->read[ht_root(g, v).id] = true;
        }
    }
}

/* Does the node store into what units read? */
static bool stores_late(const mover *m, const ht_node *n)
{
    return n->op == &ht_op_store && m->read[ht_root(m->g, ht_node_in(m->g, n, 0)).id];
}

/* ---- the norm of gradients ---- */

static bool is_norm(const mover *m, const ht_node *n)
{
    bool sums = n && (n->op == &ht_op_norm_finite || n->op == &ht_op_sum_squares_finite);
    return sums && moves(m, ht_node_in(m->g, n, 0));
}

/* A node outside of units: the norm is computed where the gradients are, and what reads it in main. */
static void place_other(mover *m, uint32_t id)
{
    ht_graph *g = m->g;
    const ht_node n = g->nodes[id];
    bool norm = is_norm(m, &n);
    for (size_t i = 0; norm && i < n.n_out; i++) g->values[n.out + i].type.space = m->norm;
    if (norm) {
        ht_val from = ht_node_in(g, &n, 0);
        m->summed[from.id] = ht_type_of(g, from)->space != m->norm;
    }
    for (size_t i = 0; !norm && i < n.n_in && g->status == HT_OK; i++) {
        ht_val v = ht_node_in(g, &n, i);
        if (!v.id || v.id >= m->known || !is_norm(m, ht_producer(g, v))) continue;
        if (!m->shown[v.id].id) m->shown[v.id] = ht_to_space(g, v, HT_SPACE_MAIN);
        g->operands[n.in + i] = m->shown[v.id];
    }
    ht_rewrite_keep(&m->rw, id);
}

typedef enum others { OTHER_VALUES, OTHER_EFFECTS, LATE_EFFECTS } others;

/* Nodes outside of units. */
static void keep_others(mover *m, others which)
{
    for (size_t i = 0; i < m->rw.count; i++) {
        uint32_t id = m->rw.old[i];
        const ht_node *n = &m->g->nodes[id];
        others kind = n->op != &ht_op_store ? OTHER_VALUES : stores_late(m, n) ? LATE_EFFECTS : OTHER_EFFECTS;
        if (!m->units.of_node[id] && kind == which) place_other(m, id);
    }
}

static void pipeline_units(mover *m)
{
    size_t count = m->units.count;
    bool early = can_begin_early(m);
    for (size_t unit = 0; early && unit < m->ahead; unit++) start_fetches(m, unit);
    read_stored(m);
    keep_others(m, OTHER_VALUES);
    keep_others(m, OTHER_EFFECTS);
    for (size_t unit = 0; !early && unit < m->ahead; unit++) start_fetches(m, unit);
    for (size_t unit = 0; unit < count && m->g->status == HT_OK; unit++) {
        start_fetches(m, unit + m->ahead);
        compute_unit(m, unit);
        if (unit > 0) finish_writes(m, unit - 1);
    }
    if (count) finish_writes(m, count - 1);
    keep_others(m, LATE_EFFECTS);
}

/* Outputs stay in main. */
static void show_in_main(mover *m, uint32_t segment)
{
    ht_graph *g = m->g;
    for (size_t i = 0; i < g->segments[segment].output_count; i++) {
        ht_val v = g->segments[segment].outputs[i].value;
        const ht_node *from = ht_producer(g, v);
        bool computed = from && v.id < m->known && (m->units.of_node[from - g->nodes] || is_norm(m, from));
        if (!computed && !moves(m, v)) continue;
        bool copied = ht_is_of_model(&g->segments[segment]) && m->copy[v.id].id;
        v = copied ? m->copy[v.id] : ht_to_space(g, v, HT_SPACE_MAIN);
        g->segments[segment].outputs[i].value = v;
    }
}

static ht_status move_update(mover *m)
{
    ht_graph *g = m->g;
    ht_role role = g->role;
    m->in = calloc(m->units.count, sizeof *m->in);
    m->out = calloc(m->units.count, sizeof *m->out);
    if (!m->in || !m->out) HT_FAIL(g->ctx, HT_ENOMEM, "offload: out of memory");
    g->role = HT_ROLE_UPDATE;
    if (ht_rewrite_begin(&m->rw, g, m->units.segment)) {
        pipeline_units(m);
        show_in_main(m, m->units.segment);
    }
    g->role = role;
    HT_TRY(ht_rewrite_end(&m->rw));
    return ht_fetch_states(g, m->units.segment,
                           &(ht_fetching){m->summed, m->known, m->norm, HT_ROLE_UPDATE, m->ahead, 0, 0, NULL});
}

/* ---- other segments ---- */

static void rewrite_node(mover *m, uint32_t id, bool outside)
{
    ht_graph *g = m->g;
    const ht_node n = g->nodes[id];
    bool stores = n.op == &ht_op_store;
    for (size_t i = stores; i < n.n_in && g->status == HT_OK; i++) {
        ht_val v = ht_node_in(g, &n, i);
        ht_space space = stores ? ht_type_of(g, ht_node_in(g, &n, 0))->space : HT_SPACE_MAIN;
        if (moves(m, v) && outside && (m->fetched[v.id] || m->added[v.id])) continue;
        const ht_node *start = i > 0 ? ht_start_of(g, &n) : NULL; /* a pair names one operand */
        if (moves(m, v) && start)
            v = ht_node_in(g, start, 0);
        else if (moves(m, v))
            v = outside ? m->copy[v.id] : ht_to_space(g, v, HT_SPACE_MAIN);
        if (stores && moves(m, ht_node_in(g, &n, 0))) v = ht_to_space(g, v, space);
        g->operands[n.in + i] = v;
    }
    ht_rewrite_keep(&m->rw, id);
}

static size_t backward_begins(const ht_graph *g, const ht_segment *s)
{
    size_t at = 0;
    while (at < s->node_count && ht_node_is_forward(&g->nodes[s->nodes[at]])) at++;
    return at;
}

static ht_status move_segment(mover *m, uint32_t segment)
{
    ht_graph *g = m->g;
    bool outside = ht_is_of_model(&g->segments[segment]);
    if (outside) HT_TRY(ht_offload_gradients(g, segment, m->units.goes, m->known, m->ahead));
    if (ht_rewrite_begin(&m->rw, g, segment)) {
        for (size_t i = 0; i < m->rw.count && g->status == HT_OK; i++) rewrite_node(m, m->rw.old[i], outside);
        show_in_main(m, segment);
    }
    HT_TRY(ht_rewrite_end(&m->rw));
    if (!outside) return HT_OK;
    /* Also in the backward pass a copy of a parameter is no gradient. */
    ht_fetching how = {m->fetched, m->known, HT_SPACE_MAIN, HT_ROLE_FWD, m->ahead, 0, 0, NULL};
    HT_TRY(ht_fetch_states(g, segment, &how));
    how.fetched = m->added;
    how.from = backward_begins(g, &g->segments[segment]);
    return ht_fetch_states(g, segment, &how);
}

/* What the segment "derive" itself stores into a state, in main; none: nothing. */
static ht_val derived_value(const ht_graph *g, int derive, ht_val state)
{
    for (size_t at = 0; derive >= 0 && at < g->segments[derive].node_count; at++) {
        const ht_node *n = &g->nodes[g->segments[derive].nodes[at]];
        if (n->op != &ht_op_store || ht_node_in(g, n, 0).id != state.id) continue;
        ht_val v = ht_node_in(g, n, 1);
        return ht_type_of(g, v)->space == HT_SPACE_MAIN ? v : ht_node_in(g, ht_producer(g, v), 0);
    }
    return HT_NONE;
}

static ht_status derive_copies(mover *m)
{
    ht_graph *g = m->g;
    uint32_t resume = g->segment;
    int derive = ht_segment_find(g, "derive");
    for (uint32_t id = 1; id < m->known && g->status == HT_OK; id++) {
        if (!m->copy[id].id) continue;
        g->segment = derive >= 0 ? (uint32_t)derive : ht_graph_add_segment(g, "derive");
        derive = (int)g->segment;
        ht_val made = derived_value(g, derive, (ht_val){id});
        ht_store(g, m->copy[id], made.id ? made : ht_to_space(g, (ht_val){id}, HT_SPACE_MAIN));
    }
    g->segment = resume;
    return g->status;
}

static ht_status move_all(mover *m)
{
    ht_graph *g = m->g;
    m->known = g->value_count;
    m->copy = calloc(m->known, sizeof *m->copy);
    m->repeated = calloc(m->known, sizeof *m->repeated);
    m->fetched = calloc(m->known, sizeof *m->fetched);
    m->added = calloc(m->known, sizeof *m->added);
    m->summed = calloc(m->known, sizeof *m->summed);
    m->shown = calloc(m->known, sizeof *m->shown);
    m->stored = calloc(m->known, sizeof *m->stored);
    m->read = calloc(m->known, sizeof *m->read);
    if (!m->copy || !m->repeated || !m->fetched || !m->added || !m->summed || !m->shown || !m->stored || !m->read)
        HT_FAIL(g->ctx, HT_ENOMEM, "offload: out of memory");
    want_copies(m);
    move_states(m);
    for (uint32_t i = 0; i < g->segment_count && g->status == HT_OK; i++)
        HT_TRY(m->units.count && i == m->units.segment ? move_update(m) : move_segment(m, i));
    return derive_copies(m);
}

static void free_mover(mover *m)
{
    for (size_t i = 0; i < m->units.count; i++) {
        if (m->in) free(m->in[i].items);
        if (m->out) free(m->out[i].items);
    }
    free(m->in);
    free(m->out);
    free(m->copy);
    free(m->fetched);
    free(m->repeated);
    free(m->added);
    free(m->summed);
    free(m->shown);
    free(m->stored);
    free(m->read);
    ht_update_units_free(&m->units);
}

/* ---- the pass ---- */

static ht_status offload_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_offload_options *o = &env->options->offload;
    bool optimizer = ht_offload_space(env, o->optimizer) != HT_SPACE_MAIN;
    bool params = ht_offload_space(env, o->params) != HT_SPACE_MAIN, *kept;
    bool gradients = ht_offload_space(env, o->gradients) != HT_SPACE_MAIN;
    if (!optimizer && !params && !gradients) return HT_OK;
    mover m = {.g = g,
               .compute = ht_offload_computes_in(env),
               .norm = ht_offload_norm_in(env),
               .fetches = params,
               .persistent = o->persistent,
               .ahead = (size_t)o->ahead};
    ht_status status = ht_offload_keep_rest(g, optimizer ? o->ratio : 1, &kept);
    if (status == HT_OK) status = ht_update_units_find(&m.units, g, env, kept);
    if (status == HT_OK) status = move_all(&m);
    free(kept);
    free_mover(&m);
    return status;
}

const ht_pass ht_pass_offload = {
    .name = "offload",
    .help = "move the optimiser's state, gradients and parameters to the host or a disk; copies around them",
    .system = true,
    .keeps_step = true,
    .run = offload_run,
    .settings = ht_offload_settings,
};
