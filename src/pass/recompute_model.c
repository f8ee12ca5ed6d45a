/* The model of recomputation: which values backward keeps of forward, which nodes would have to run again without
 * some of them, and what that does to the memory over time. */
#include "pass/recompute_model.h"

#include <stdlib.h>
#include <string.h>

/* Whether the plan makes a view of it, as far as can be told: without a profile every op that can be one is. */
static bool is_view(const ht_recompute_model *m, const ht_node *n)
{
    if (!n->op->view || n->n_in != 1 || n->n_out != 1) return false;
    return !m->memory || m->lives[n->out].bytes == 0;
}

static void find_roots(ht_recompute_model *m)
{
    const ht_graph *g = m->g;
    for (uint32_t v = 0; v < g->value_count; v++) m->root[v] = (ht_val){v};
    for (size_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &g->nodes[m->s->nodes[at]];
        if (is_view(m, n)) m->root[n->out] = m->root[ht_node_in(g, n, 0).id];
    }
}

/* ---- who reads what ---- */

/* By node id: when it runs; a view runs when it is read. All 0 without a profile. */
static ht_status find_times(ht_recompute_model *m, const uint32_t *time, uint32_t *when)
{
    uint32_t *read = malloc(m->g->value_count * sizeof *read);
    if (!read) HT_FAIL(m->g->ctx, HT_ENOMEM, "recompute: out of memory");
    memset(read, 0xff, m->g->value_count * sizeof *read);
    for (size_t at = m->s->node_count; time && at-- > 0;) {
        uint32_t id = m->s->nodes[at], *own = &when[id];
        const ht_node *n = &m->g->nodes[id];
        *own = time[id];
        for (size_t i = 0; time[id] == HT_NO_INSTRUCTION && i < n->n_out; i++)
            if (read[n->out + i] < *own) *own = read[n->out + i];
        if (*own == HT_NO_INSTRUCTION) *own = 0;
        for (size_t i = 0; i < n->n_in; i++) {
            uint32_t v = ht_node_in(m->g, n, i).id;
            if (*own < read[v]) read[v] = *own;
        }
    }
    free(read);
    return HT_OK;
}

static void note_reader(ht_recompute_model *m, const ht_node *n, ht_val v, uint32_t time)
{
    uint32_t root = m->root[v.id].id;
    if (ht_node_is_backward(n)) {
        m->saved[root] = true;
        if (time < m->first_read[v.id]) m->first_read[v.id] = time;
    } else if (time > m->last_forward[root]) {
        m->last_forward[root] = time;
    }
}

static void find_readers(ht_recompute_model *m, const uint32_t *when)
{
    const ht_graph *g = m->g;
    for (size_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &g->nodes[m->s->nodes[at]];
        if (is_view(m, n) && ht_node_is_forward(n)) continue;
        for (size_t i = 0; i < n->n_in; i++)
            if (ht_node_in(g, n, i).id) note_reader(m, n, ht_node_in(g, n, i), when[m->s->nodes[at]]);
    }
}

/* ---- what can run again ---- */

/* By value id of what owns state: the last position at which it still has its old value. */
static void find_stores(const ht_recompute_model *m, uint32_t *until)
{
    for (uint32_t v = 0; v < m->g->value_count; v++) until[v] = UINT32_MAX;
    for (uint32_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &m->g->nodes[m->s->nodes[at]];
        if (n->op != &ht_op_store) continue;
        uint32_t owner = ht_root(m->g, ht_node_in(m->g, n, 0)).id;
        if (at < until[owner]) until[owner] = at;
    }
}

static uint32_t last_backward(const ht_recompute_model *m)
{
    uint32_t last = 0;
    for (uint32_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &m->g->nodes[m->s->nodes[at]];
        if (ht_node_is_backward(n) && n->op != &ht_op_store) last = at;
    }
    return last;
}

static void find_fixed(ht_recompute_model *m, const uint32_t *until)
{
    const ht_graph *g = m->g;
    uint32_t last = last_backward(m);
    for (size_t at = 0; at < m->s->node_count; at++) {
        uint32_t id = m->s->nodes[at];
        const ht_node *n = &g->nodes[id];
        m->fixed[id] = !ht_node_is_forward(n) || (n->op->flags & HT_OP_EFFECT) || n->op == &ht_op_store ||
                       n->op->done || n->op->start;
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            if (v.id && until[ht_root(g, v).id] <= last) m->fixed[id] = true;
        }
    }
}

/* Can v be had again, from what is saved whatever is dropped? */
static bool can_be_made(const ht_recompute_model *m, const bool *made, ht_val v)
{
    const ht_node *n = ht_producer(m->g, m->root[v.id]);
    return !n || made[m->root[v.id].id] || (m->saved[m->root[v.id].id] && !m->candidate_of[m->root[v.id].id]);
}

/* In order, so that what a node reads is judged before it. What is saved and cannot be made again stays. */
static ht_status find_candidates(ht_recompute_model *m)
{
    const ht_graph *g = m->g;
    bool *made = calloc(g->value_count, sizeof *made);
    ht_recompute_candidate *list = HT_NEW(m->arena, ht_recompute_candidate, g->value_count);
    for (size_t at = 0; made && list && at < m->s->node_count; at++) {
        const ht_node *n = &g->nodes[m->s->nodes[at]];
        bool again = !m->fixed[m->s->nodes[at]];
        if (!ht_node_is_forward(n)) continue;
        for (size_t i = 0; i < n->n_in && again; i++)
            again = !ht_node_in(g, n, i).id || can_be_made(m, made, ht_node_in(g, n, i));
        for (uint32_t v = n->out; v < n->out + n->n_out; v++) {
            int64_t bytes = m->memory ? m->lives[v].bytes : ht_type_bytes(&g->values[v].type);
            bool main = g->values[v].type.space == HT_SPACE_MAIN;
            made[v] = again;
            if (!again || !main || m->root[v].id != v || !m->saved[v] || bytes == 0) continue;
            list[m->candidate_count] = (ht_recompute_candidate){{v}, bytes};
            m->candidate_of[v] = (uint32_t)++m->candidate_count;
        }
    }
    bool ok = made && list;
    free(made);
    m->candidates = list;
    return ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "recompute: out of memory");
}

/* ---- what it costs ---- */

/* Bytes that reach memory: what a fused kernel passes on inside does not. */
static double operand_bytes(const ht_recompute_model *m, ht_val v)
{
    const ht_value *value = ht_value_of(m->g, v);
    bool inside = m->memory && value->kind == HT_VALUE_RESULT && m->lives[m->root[v.id].id].bytes == 0;
    return inside ? 0 : (double)ht_type_distinct_bytes(&value->type);
}

static ht_status find_seconds(ht_recompute_model *m, const ht_target *target)
{
    const ht_graph *g = m->g;
    for (size_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = &g->nodes[m->s->nodes[at]];
        ht_call_storage storage;
        if (!ht_node_is_forward(n) || is_view(m, n) || n->op == &ht_op_store) continue;
        const ht_call *call = ht_node_call(g, n, m->arena, &storage);
        if (!call) HT_FAIL(g->ctx, HT_ENOMEM, "recompute: out of memory");
        ht_cost cost = ht_call_cost(call);
        ht_dtype reads = n->n_in && call->in[0] ? call->in[0]->dtype : HT_F32;
        double bytes = 0, compute = cost.other_flops / ht_target_flops(target, HT_F32);
        if (cost.dot_flops > 0) compute += cost.dot_flops / ht_target_flops(target, reads);
        for (size_t i = 0; i < n->n_in; i++)
            if (ht_node_in(g, n, i).id) bytes += operand_bytes(m, ht_node_in(g, n, i));
        for (size_t i = 0; i < n->n_out; i++) bytes += operand_bytes(m, ht_node_out(n, i));
        double memory = bytes / ht_target_bandwidth(target, HT_SPACE_MAIN);
        m->seconds[m->s->nodes[at]] = compute > memory ? compute : memory;
    }
    return HT_OK;
}

/* What every try walks over. */
static void find_forward(ht_recompute_model *m)
{
    for (uint32_t v = 0; v < m->g->value_count; v++) m->made[v] = m->g->values[m->root[v].id].kind == HT_VALUE_RESULT;
    for (size_t at = 0; at < m->s->node_count; at++)
        if (ht_node_is_forward(&m->g->nodes[m->s->nodes[at]])) m->forward[m->forward_count++] = m->s->nodes[at];
}

/* ---- open and close ---- */

static ht_status fill(ht_recompute_model *m, const ht_target *target, const uint32_t *time)
{
    size_t values = m->g->value_count;
    uint32_t *until = HT_NEW(m->arena, uint32_t, values), *when = HT_NEW(m->arena, uint32_t, m->g->node_count);
    m->root = HT_NEW(m->arena, ht_val, values);
    m->saved = HT_NEW(m->arena, bool, values);
    m->candidate_of = HT_NEW(m->arena, uint32_t, values);
    m->fixed = HT_NEW(m->arena, bool, m->g->node_count);
    m->made = HT_NEW(m->arena, bool, values);
    m->forward = HT_NEW(m->arena, uint32_t, m->s->node_count + 1);
    m->seconds = HT_NEW(m->arena, double, m->g->node_count);
    m->last_forward = HT_NEW(m->arena, uint32_t, values);
    m->first_read = HT_NEW(m->arena, uint32_t, values);
    m->again_first = HT_NEW(m->arena, uint32_t, values);
    m->needed = HT_NEW(m->arena, uint32_t, values);
    m->live = HT_NEW(m->arena, int64_t, m->memory ? m->memory->time_count + 1 : 1);
    if (!until || !when || !m->root || !m->saved || !m->candidate_of || !m->fixed || !m->made || !m->forward ||
        !m->seconds || !m->last_forward || !m->first_read || !m->again_first || !m->needed || !m->live)
        HT_FAIL(m->g->ctx, HT_ENOMEM, "recompute: out of memory");
    memset(m->first_read, 0xff, values * sizeof *m->first_read);
    find_roots(m);
    find_forward(m);
    HT_TRY(find_times(m, time, when));
    find_readers(m, when);
    find_stores(m, until);
    find_fixed(m, until);
    HT_TRY(find_seconds(m, target));
    return find_candidates(m);
}

ht_status ht_recompute_model_open(ht_recompute_model *m, const ht_graph *g, uint32_t segment, const ht_target *target,
                                  const ht_memory_profile *profile)
{
    *m = (ht_recompute_model){.g = g, .s = &g->segments[segment], .arena = ht_arena_create()};
    if (!m->arena) HT_FAIL(g->ctx, HT_ENOMEM, "recompute: out of memory");
    if (profile) {
        m->memory = &profile->segments[segment];
        m->lives = profile->lives;
    }
    return fill(m, target, profile ? profile->time : NULL);
}

void ht_recompute_model_close(ht_recompute_model *m)
{
    ht_arena_free(m->arena);
    *m = (ht_recompute_model){0};
}

/* ---- trying a choice ---- */

bool ht_recompute_at_hand(const ht_recompute_model *m, const bool *dropped, ht_val v)
{
    uint32_t root = m->root[v.id].id;
    if (!m->made[v.id]) return true;
    return m->saved[root] && !(m->candidate_of[root] && dropped[m->candidate_of[root] - 1]);
}

static void add_bytes(ht_recompute_model *m, int64_t bytes, uint32_t first, uint32_t last)
{
    size_t times = m->memory->time_count;
    if (first > last || first >= times) return;
    m->live[first] += bytes;
    if (last + 1 < times) m->live[last + 1] -= bytes;
}

/* When a node must have run again: before the first that reads one of its results, which are not at hand. */
static uint32_t time_again(const ht_recompute_model *m, const bool *dropped, const ht_node *n)
{
    uint32_t first = UINT32_MAX;
    for (uint32_t v = n->out; v < n->out + n->n_out; v++) {
        if (ht_recompute_at_hand(m, dropped, (ht_val){v})) continue;
        if (m->first_read[v] < first) first = m->first_read[v];
        if (m->again_first[v] < first) first = m->again_first[v];
    }
    return first;
}

/* What a node that runs again at `time` reads. */
static void need_inputs(ht_recompute_model *m, const bool *dropped, const ht_node *n, uint32_t time)
{
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(m->g, n, i);
        if (!v.id || !m->made[v.id]) continue;
        uint32_t root = m->root[v.id].id;
        if (!ht_recompute_at_hand(m, dropped, v) && time < m->again_first[v.id]) m->again_first[v.id] = time;
        if (time > m->needed[root]) m->needed[root] = time;
    }
}

/* The results of a node that ran again live until their last reader in backward, or among what runs again. */
static void add_results(ht_recompute_model *m, const bool *dropped, const ht_node *n, uint32_t time)
{
    for (uint32_t v = n->out; v < n->out + n->n_out; v++) {
        const ht_value_life *life = &m->lives[v];
        uint32_t last = m->needed[v] > time ? m->needed[v] : time;
        if (!life->bytes || life->space != HT_SPACE_MAIN) continue;
        bool wanted = !ht_recompute_at_hand(m, dropped, (ht_val){v});
        if (wanted && m->saved[v] && life->last > last) last = life->last;
        add_bytes(m, life->bytes, time, last);
    }
}

/* What stays dies later where a clone reads it; what is dropped dies in forward. */
static void move_ends(ht_recompute_model *m, const bool *dropped)
{
    for (size_t i = 0; i < m->candidate_count; i++) {
        uint32_t v = m->candidates[i].value.id;
        const ht_value_life *life = &m->lives[v];
        uint32_t end = m->last_forward[v] > life->first ? m->last_forward[v] : life->first;
        if (dropped[i])
            add_bytes(m, -life->bytes, end + 1, life->last);
        else if (m->needed[v] > life->last)
            add_bytes(m, life->bytes, life->last + 1, m->needed[v]);
    }
}

ht_recompute_outcome ht_recompute_try(ht_recompute_model *m, const bool *dropped, int64_t limit)
{
    ht_recompute_outcome out = {0};
    size_t times = m->memory->time_count;
    memset(m->live, 0, (times + 1) * sizeof *m->live);
    memset(m->again_first, 0xff, m->g->value_count * sizeof *m->again_first);
    memset(m->needed, 0, m->g->value_count * sizeof *m->needed);
    for (size_t at = m->forward_count; at-- > 0;) {
        const ht_node *n = &m->g->nodes[m->forward[at]];
        uint32_t time = time_again(m, dropped, n);
        if (time == UINT32_MAX) continue;
        out.seconds += m->seconds[m->forward[at]];
        need_inputs(m, dropped, n, time);
        if (!is_view(m, n)) add_results(m, dropped, n, time);
    }
    move_ends(m, dropped);
    int64_t change = 0;
    for (size_t t = 0; t < times; t++) {
        change += m->live[t];
        int64_t live = m->memory->live_bytes[HT_SPACE_MAIN][t] + change;
        if (live > out.peak_bytes) out.peak_bytes = live;
        if (live > limit) out.excess += (double)(live - limit);
    }
    return out;
}
