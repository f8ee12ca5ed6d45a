#include "pass/update_units.h"

#include <stdlib.h>

typedef struct finder {
    const ht_graph *g;
    const ht_segment *s;
    ht_update_units *units;
    bool *member;     /* by node id */
    uint32_t *parent; /* by node id: towards the node that stands for its unit */
    uint32_t *reader; /* by value id: a member that made it, or read it where it moves */
    bool *inside;     /* by value id: a member reads it */
    bool *outside;    /* by value id: another node does, or it is an output */
    bool gradients_move;
} finder;

/* ---- what goes where ---- */

ht_space ht_offload_space(const ht_pass_env *env, ht_space space)
{
    bool here = space == HT_SPACE_HOST && (!env->target || env->target->device == HT_DEVICE_CPU);
    return here ? HT_SPACE_MAIN : space;
}

ht_space ht_offload_computes_in(const ht_pass_env *env)
{
    bool accelerator = env->target && env->target->device != HT_DEVICE_CPU;
    bool away = ht_offload_space(env, env->options->offload.optimizer) != HT_SPACE_MAIN;
    return accelerator && away ? HT_SPACE_HOST : HT_SPACE_MAIN;
}

ht_space ht_offload_norm_in(const ht_pass_env *env)
{
    return env->target && env->target->device != HT_DEVICE_CPU ? HT_SPACE_HOST : HT_SPACE_MAIN;
}

/* Is there a parameter in the state that is large enough? */
static bool holds_large(const ht_graph *g, ht_val root, int64_t persistent)
{
    bool viewed = false, large = false;
    for (size_t i = 0; i < g->state_count; i++) {
        ht_val state = g->states[i].value;
        if (ht_value_of(g, state)->base.id != root.id) continue;
        viewed = true;
        large |= ht_type_elems(ht_type_of(g, state)) >= persistent;
    }
    return viewed ? large : ht_type_elems(ht_type_of(g, root)) >= persistent;
}

/* Of a state that owns its bytes. */
static ht_space goal_of(const ht_graph *g, const ht_state *s, const ht_pass_env *env)
{
    const ht_offload_options *o = &env->options->offload;
    if (ht_type_of(g, s->value)->space != HT_SPACE_MAIN) return HT_SPACE_MAIN;
    if (!s->derived && (s->heading == HT_HEADING_OPTIMIZER || s->heading == HT_HEADING_MASTERS))
        return ht_offload_space(env, o->optimizer);
    if (s->heading == HT_HEADING_GRADIENTS) return ht_offload_space(env, o->gradients);
    if (s->heading != HT_HEADING_PARAMETERS && s->heading != HT_HEADING_WEIGHTS) return HT_SPACE_MAIN;
    return holds_large(g, s->value, o->persistent) ? ht_offload_space(env, o->params) : HT_SPACE_MAIN;
}

static bool find_goals(ht_update_units *units, const ht_graph *g, const ht_pass_env *env, const bool *kept)
{
    units->goes = calloc(g->value_count, sizeof *units->goes);
    for (size_t i = 0; units->goes && i < g->state_count; i++) {
        const ht_state *s = &g->states[i];
        bool owner = !ht_value_of(g, s->value)->base.id;
        if (owner && !(kept && kept[s->value.id])) units->goes[s->value.id] = goal_of(g, s, env);
    }
    for (size_t i = 0; units->goes && i < g->state_count; i++) {
        ht_val state = g->states[i].value;
        units->goes[state.id] = units->goes[ht_root(g, state).id];
    }
    return units->goes != NULL;
}

/* ---- the update's part ---- */

/* A store reads the value alone. */
static size_t first_read(const ht_node *n)
{
    return n->op == &ht_op_store;
}

/* Is the state one whose update makes a unit? It moves, or the gradient that it is updated with does. What follows from
 * gradients alone, their norm, is read by all units and part of none. */
static bool makes_unit(const finder *f, ht_val v)
{
    const ht_state *s = ht_state_of(f->g, v);
    if (!s || s->heading == HT_HEADING_GRADIENTS) return false;
    bool updated = s->heading == HT_HEADING_OPTIMIZER || s->heading == HT_HEADING_MASTERS ||
                   s->heading == HT_HEADING_PARAMETERS || s->heading == HT_HEADING_WEIGHTS;
    return f->units->goes[v.id] != HT_SPACE_MAIN || (f->gradients_move && updated);
}

static bool reads_member(const finder *f, const ht_node *n)
{
    if (n->op == &ht_op_store && makes_unit(f, ht_node_in(f->g, n, 0))) return true;
    for (size_t i = first_read(n); i < n->n_in; i++) {
        ht_val v = ht_node_in(f->g, n, i);
        const ht_node *from = ht_producer(f->g, v);
        if (makes_unit(f, v) || (from && f->member[from - f->g->nodes])) return true;
    }
    return false;
}

/* Whatever follows from state that moves, and stores into it. */
static void mark_forward(finder *f)
{
    for (size_t at = 0; at < f->s->node_count; at++) {
        uint32_t id = f->s->nodes[at];
        f->member[id] = reads_member(f, &f->g->nodes[id]);
    }
}

/* Does the node prepare an array element by element, and only for members? The unscaled gradient is such a one. */
static bool prepares(const finder *f, const ht_node *n)
{
    bool used = false;
    if (n->op->fuse != HT_FUSE_POINT || (n->op->flags & HT_OP_EFFECT)) return false;
    for (size_t i = 0; i < n->n_out; i++) {
        ht_val y = ht_node_out(n, i);
        if (ht_is_scalar(f->g, y) || f->outside[y.id]) return false;
        used |= f->inside[y.id];
    }
    return used;
}

static void mark_backward(finder *f)
{
    for (size_t i = 0; i < f->s->output_count; i++) f->outside[f->s->outputs[i].value.id] = true;
    for (size_t at = f->s->node_count; at-- > 0;) {
        uint32_t id = f->s->nodes[at];
        const ht_node *n = &f->g->nodes[id];
        f->member[id] = f->member[id] || prepares(f, n);
        for (size_t i = first_read(n); i < n->n_in; i++)
            (f->member[id] ? f->inside : f->outside)[ht_node_in(f->g, n, i).id] = true;
    }
}

static uint32_t unit_of(const finder *f, uint32_t node)
{
    while (f->parent[node] != node) node = f->parent[node] = f->parent[f->parent[node]];
    return node;
}

/* Members that read the same: what a member made, or state that moves. */
static void connect(const finder *f)
{
    for (size_t at = 0; at < f->s->node_count; at++) {
        uint32_t id = f->s->nodes[at];
        const ht_node *n = &f->g->nodes[id];
        f->parent[id] = id;
        for (size_t i = first_read(n); f->member[id] && i < n->n_in; i++) {
            ht_val v = ht_node_in(f->g, n, i);
            const ht_node *from = ht_producer(f->g, v);
            uint32_t *with = &f->reader[v.id];
            if (from && f->member[from - f->g->nodes]) *with = (uint32_t)(from - f->g->nodes);
            if (*with) f->parent[unit_of(f, id)] = unit_of(f, *with);
            if (makes_unit(f, v)) *with = id;
        }
    }
}

/* Units in the order of their first nodes, and their nodes in the segment's. */
static bool list_units(const finder *f)
{
    ht_update_units *u = f->units;
    size_t nodes = f->s->node_count;
    for (size_t at = 0; at < nodes; at++) {
        uint32_t id = f->s->nodes[at], *root = &u->of_node[unit_of(f, id)];
        if (!f->member[id]) continue;
        if (!*root) *root = (uint32_t)++u->count;
        u->of_node[id] = *root;
    }
    u->nodes = calloc(nodes + 1, sizeof *u->nodes);
    u->first = calloc(u->count + 2, sizeof *u->first);
    if (!u->nodes || !u->first) return false;
    for (size_t at = 0; at < nodes; at++)
        if (f->member[f->s->nodes[at]]) u->first[u->of_node[f->s->nodes[at]] + 1]++;
    for (size_t i = 1; i <= u->count + 1; i++) u->first[i] += u->first[i - 1];
    for (size_t at = 0; at < nodes; at++)
        if (f->member[f->s->nodes[at]]) u->nodes[u->first[u->of_node[f->s->nodes[at]]]++] = f->s->nodes[at];
    return true;
}

static bool find_units(finder *f)
{
    const ht_graph *g = f->g;
    f->member = calloc(g->node_count, sizeof *f->member);
    f->parent = calloc(g->node_count, sizeof *f->parent);
    f->reader = calloc(g->value_count, sizeof *f->reader);
    f->inside = calloc(g->value_count, sizeof *f->inside);
    f->outside = calloc(g->value_count, sizeof *f->outside);
    bool ok = f->member && f->parent && f->reader && f->inside && f->outside;
    if (ok) {
        mark_forward(f);
        mark_backward(f);
        connect(f);
        ok = list_units(f);
    }
    free(f->member);
    free(f->parent);
    free(f->reader);
    free(f->inside);
    free(f->outside);
    return ok;
}

ht_status ht_update_units_find(ht_update_units *out, const ht_graph *g, const ht_pass_env *env, const bool *kept)
{
    int segment = ht_segment_find(g, "update");
    *out = (ht_update_units){.segment = (uint32_t)segment, .of_node = calloc(g->node_count, sizeof *out->of_node)};
    bool gradients = ht_offload_space(env, env->options->offload.gradients) != HT_SPACE_MAIN;
    bool ok = out->of_node && find_goals(out, g, env, kept);
    if (ok && segment >= 0)
        ok = find_units(&(finder){.g = g, .s = &g->segments[segment], .units = out, .gradients_move = gradients});
    return ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory for the units of the update");
}

void ht_update_units_free(ht_update_units *units)
{
    free(units->goes);
    free(units->of_node);
    free(units->nodes);
    free(units->first);
    *units = (ht_update_units){0};
}

bool ht_is_repeatable(const ht_graph *g, const ht_node *n)
{
    if (!n || (n->op->flags & HT_OP_EFFECT)) return false;
    if (n->n_in == 0) return !(n->op->flags & HT_OP_NO_FOLD);
    return n->op->view && n->n_in == 1 && ht_is_scalar(g, ht_node_in(g, n, 0));
}

ht_val ht_repeat(ht_rewrite *rw, const ht_node *n, int64_t count)
{
    ht_graph *g = rw->g;
    const ht_node like = *n; /* the builder may move the graph's */
    ht_type want = ht_type_make(ht_type_of(g, ht_node_out(&like, 0))->dtype, 1, &count);
    want.space = ht_type_of(g, ht_node_out(&like, 0))->space;
    ht_val in = like.n_in ? ht_rewrite_map(rw, ht_node_in(g, &like, 0)) : HT_NONE, out = HT_NONE;
    ht_emit(g, like.op, like.n_in, &in, ht_op_attr_count(like.op), like.attr, &want, &out);
    return out;
}

bool ht_is_elementwise(const ht_graph *g, const ht_node *n)
{
    bool point = n->op->fuse == HT_FUSE_POINT && (n->op->flags & HT_OP_INPLACE) && !(n->op->flags & HT_OP_NO_FOLD);
    return point || n->op == &ht_op_store || ht_is_repeatable(g, n);
}
