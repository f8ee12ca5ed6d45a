/* Moves what forward keeps for backward to the host or to a disk: all of it, or the checkpoints that recompute leaves. A
 * value is copied away when it is made and copied back before backward reads it. Only copies come in, and views that read
 * them; every segment computes and stores what it did.
 *
 *     forward:   make 0, away 0 …, make 1, away 1 …, (0 is away)
 *     backward:  back 1 …, back 0 …, (1 is back) read 1, (0 is back) read 0
 *
 * Copies have queues of their own; `offload_ahead` of them are under way each way. What is made last is read first: it
 * stays. */
#include <stdlib.h>
#include <string.h>

#include "pass/update_units.h"

typedef struct kept {
    ht_val value;
    uint32_t made, last_forward, first_late; /* positions; first_late: of the first reader that runs in backward */
    ht_val start, away, back_start;
} kept;

typedef struct mover {
    ht_graph *g;
    ht_space space;
    size_t ahead;
    int64_t least_bytes;
    ht_rewrite rw;
    size_t known;  /* values that were there before */
    ht_val *root;  /* by value id: whose bytes these are; views are seen through */
    uint32_t *of;  /* by value id of a root: 1 + its index in list; 0: it stays */
    ht_val *here;  /* by value id: what backward reads instead; none: not there yet */
    kept *list;    /* in the order in which they are made */
    size_t *fetch; /* indices into list, in the order in which backward reads */
    size_t count;
    size_t away; /* of list: how many copies away are done */
} mover;

/* ---- which values ---- */

static bool is_view(const ht_node *n)
{
    return n->op->view && n->n_in == 1 && n->n_out == 1;
}

static void find_roots(mover *m, const ht_segment *s)
{
    for (uint32_t v = 0; v < m->known; v++) m->root[v] = (ht_val){v};
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &m->g->nodes[s->nodes[at]];
        if (is_view(n)) m->root[n->out] = m->root[ht_node_in(m->g, n, 0).id];
    }
}

static bool is_made_in_forward(const ht_graph *g, ht_val v)
{
    const ht_node *n = v.id ? ht_producer(g, v) : NULL;
    return n && ht_node_is_forward(n);
}

static bool can_move(const mover *m, ht_val v)
{
    const ht_type *type = ht_type_of(m->g, v);
    return is_made_in_forward(m->g, v) && type->space == HT_SPACE_MAIN && type->rank > 0 && ht_type_contiguous(type) &&
           ht_type_bytes(type) >= m->least_bytes;
}

/* All that forward makes and that is large enough, as it is made; then who reads it. */
static void list_values(mover *m, const ht_segment *s)
{
    for (uint32_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &m->g->nodes[s->nodes[at]];
        for (uint32_t v = n->out; v < n->out + n->n_out; v++) {
            if (m->root[v].id != v || !can_move(m, (ht_val){v})) continue;
            m->list[m->count++] = (kept){.value = {v}, .made = at, .first_late = UINT32_MAX};
            m->of[v] = (uint32_t)m->count;
        }
    }
    for (uint32_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &m->g->nodes[s->nodes[at]];
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(m->g, n, i);
            kept *k = v.id && m->of[m->root[v.id].id] ? &m->list[m->of[m->root[v.id].id] - 1] : NULL;
            if (k && ht_node_is_forward(n)) k->last_forward = at;
            if (k && !ht_node_is_forward(n) && is_made_in_forward(m->g, v) && at < k->first_late) k->first_late = at;
        }
    }
    for (size_t i = 0; i < s->output_count; i++) {
        uint32_t index = m->of[m->root[s->outputs[i].value.id].id];
        if (index) m->list[index - 1].first_late = UINT32_MAX;
    }
}

static uint32_t backward_begins(const ht_graph *g, const ht_segment *s)
{
    uint32_t at = 0;
    while (at < s->node_count && ht_node_is_forward(&g->nodes[s->nodes[at]])) at++;
    return at;
}

/* Those that forward makes before backward begins, and reads before that does, but for the last ones. */
static void choose_values(mover *m, const ht_segment *s)
{
    size_t count = 0;
    uint32_t begins = backward_begins(m->g, s);
    for (size_t i = 0; i < m->count; i++) {
        kept k = m->list[i];
        m->of[k.value.id] = 0;
        bool moves = k.first_late != UINT32_MAX && k.made < begins && k.last_forward < k.first_late;
        if (moves) m->list[count++] = k;
    }
    m->count = count > 2 * m->ahead ? count - 2 * m->ahead : 0;
    for (size_t i = 0; i < m->count; i++) m->of[m->list[i].value.id] = (uint32_t)i + 1;
}

/* By when backward reads them: an insertion sort of what is nearly sorted, the other way round. */
static void sort_fetches(mover *m)
{
    for (size_t i = 0; i < m->count; i++) {
        size_t index = m->count - 1 - i, at = i;
        for (; at > 0 && m->list[m->fetch[at - 1]].first_late > m->list[index].first_late; at--)
            m->fetch[at] = m->fetch[at - 1];
        m->fetch[at] = index;
    }
}

/* ---- copies ---- */

static ht_val copy_to(mover *m, ht_val from, ht_space space)
{
    ht_type want = *ht_type_of(m->g, from);
    want.space = space;
    ht_type_row_major(&want);
    return ht_emit1(m->g, "copy_start", &want, HT_VALS(from), HT_NO_ATTRS);
}

static ht_val end_copy(mover *m, ht_val start, ht_val from)
{
    if (m->g->status != HT_OK) return HT_NONE;
    ht_type want = *ht_type_of(m->g, start);
    return ht_emit1(m->g, "copy_done", &want, HT_VALS(start, from), HT_NO_ATTRS);
}

/* For reports: copies belong to the layer whose value they move. */
static void name_copy(mover *m, const kept *k)
{
    if (m->g->status == HT_OK) m->g->nodes[m->g->node_count - 1].site = ht_producer(m->g, k->value)->site;
}

/* The copies away of the first `count` are done. */
static void finish_away(mover *m, size_t count)
{
    for (; m->away < count && m->g->status == HT_OK; m->away++) {
        kept *k = &m->list[m->away];
        k->away = end_copy(m, k->start, k->value);
        name_copy(m, k);
    }
}

static void start_back(mover *m, size_t index)
{
    if (index >= m->count || m->g->status != HT_OK) return;
    kept *k = &m->list[m->fetch[index]];
    finish_away(m, m->fetch[index] + 1);
    if (m->g->status == HT_OK) k->back_start = copy_to(m, k->away, HT_SPACE_MAIN);
    name_copy(m, k);
}

static void end_back(mover *m, size_t index)
{
    kept *k = &m->list[m->fetch[index]];
    if (m->g->status != HT_OK) return;
    m->here[k->value.id] = end_copy(m, k->back_start, k->away);
    name_copy(m, k);
}

/* What a node of backward reads instead of v: a copy that is back, or a view of it. */
static ht_val value_here(mover *m, ht_val v)
{
    ht_graph *g = m->g;
    if (!v.id || v.id >= m->known || !m->of[m->root[v.id].id] || !is_made_in_forward(g, v)) return v;
    if (m->here[v.id].id || g->status != HT_OK) return m->here[v.id];
    const ht_node n = *ht_producer(g, v);
    ht_val in = value_here(m, ht_node_in(g, &n, 0)), out = HT_NONE;
    ht_type want = *ht_type_of(g, v);
    ht_emit(g, n.op, 1, &in, ht_op_attr_count(n.op), n.attr, &want, &out);
    if (g->status != HT_OK) return HT_NONE;
    ht_node *again = &g->nodes[g->node_count - 1];
    again->site = n.site;
    again->was = n.was;
    again->no_merge = again->recomputed = true;
    return m->here[v.id] = out;
}

/* ---- the segment ---- */

static void read_here(mover *m, uint32_t id)
{
    const ht_node n = m->g->nodes[id];
    for (size_t i = 0; i < n.n_in && m->g->status == HT_OK; i++) {
        ht_val v = value_here(m, ht_node_in(m->g, &n, i));
        m->g->operands[n.in + i] = v;
    }
}

static void start_away(mover *m, uint32_t id)
{
    const ht_node n = m->g->nodes[id];
    for (uint32_t v = n.out; v < n.out + n.n_out && m->g->status == HT_OK; v++) {
        kept *k = m->of[v] ? &m->list[m->of[v] - 1] : NULL;
        if (!k) continue;
        k->start = copy_to(m, k->value, m->space);
        name_copy(m, k);
        if (m->of[v] > m->ahead) finish_away(m, m->of[v] - m->ahead);
    }
}

static void rewrite(mover *m)
{
    size_t next = 0;
    bool begun = false; /* backward */
    for (uint32_t at = 0; at < m->rw.count && m->g->status == HT_OK; at++) {
        uint32_t id = m->rw.old[at];
        bool late = !ht_node_is_forward(&m->g->nodes[id]);
        for (size_t i = 0; late && !begun && i < m->ahead; i++) start_back(m, i);
        begun |= late;
        for (; next < m->count && m->list[m->fetch[next]].first_late == at; next++) {
            start_back(m, next + m->ahead);
            end_back(m, next);
        }
        if (late) read_here(m, id);
        ht_rewrite_keep(&m->rw, id);
        if (!late) start_away(m, id);
    }
}

static ht_status move_values(mover *m, uint32_t segment)
{
    ht_graph *g = m->g;
    ht_role role = g->role;
    find_roots(m, &g->segments[segment]);
    list_values(m, &g->segments[segment]);
    choose_values(m, &g->segments[segment]);
    if (!m->count) return HT_OK;
    sort_fetches(m);
    g->role = HT_ROLE_FWD; /* also in the backward pass: a copy is no gradient */
    if (ht_rewrite_begin(&m->rw, g, segment)) rewrite(m);
    g->role = role;
    return ht_rewrite_end(&m->rw);
}

static ht_status move_segment(ht_graph *g, uint32_t segment, const ht_pass_env *env)
{
    const ht_offload_options *o = &env->options->offload;
    size_t values = g->value_count;
    mover m = {.g = g,
               .space = ht_offload_space(env, o->activations),
               .ahead = (size_t)o->ahead,
               .least_bytes = o->activation_bytes,
               .known = values,
               .root = calloc(values, sizeof *m.root),
               .of = calloc(values, sizeof *m.of),
               .here = calloc(values, sizeof *m.here),
               .list = calloc(values, sizeof *m.list),
               .fetch = calloc(values, sizeof *m.fetch)};
    bool ok = m.root && m.of && m.here && m.list && m.fetch;
    ht_status status = ok ? move_values(&m, segment) : ht_fail(g->ctx, HT_ENOMEM, "offload: out of memory");
    free(m.root);
    free(m.of);
    free(m.here);
    free(m.list);
    free(m.fetch);
    return status;
}

/* ---- the pass ---- */

static ht_status offload_activations_run(ht_graph *g, const ht_pass_env *env)
{
    if (ht_offload_space(env, env->options->offload.activations) == HT_SPACE_MAIN) return HT_OK;
    for (uint32_t s = 0; s < g->segment_count; s++) HT_TRY(move_segment(g, s, env));
    return HT_OK;
}

const ht_pass ht_pass_offload_activations = {
    .name = "offload_activations",
    .help = "move what forward keeps for backward to the host or a disk, and fetch it back",
    .system = true,
    .keeps_step = true,
    .run = offload_activations_run,
    .settings = ht_offload_settings,
};
