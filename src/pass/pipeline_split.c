/* A micro-batch of one stage as two parts, so that others can be forwarded before it goes back.
 *
 *      fwd         receives, computes forward, and keeps what backward reads: in state that there is once for each call
 *      send        what forward made, to the next stage
 *      recv        gradients of it, from there
 *      bwd_first   backward, which stores gradients, and sends those of what was received; bwd adds to them
 *
 * Values without inputs, and views, are made again by backward instead of kept. */
#include "pass/pipeline_split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST, MORE, MICROS }; /* "micro_first", "micro" */

typedef struct splitter {
    ht_graph *g;
    const ht_axis *axis;
    const char *ending;
    uint32_t micro[MICROS];
    int micro_count;
    size_t values, nodes; /* that were there before */
    bool *ahead;          /* by node id: part of forward */
    bool *stored;         /* by value id of a state: forward stores it */
    ht_val *of_first;     /* by value id: what "micro_first" has in its place; forward is that one's */
    ht_val *kept;     /* by value id of "micro_first", or of a state: the state that holds it; none: it is not kept */
    ht_val *stand_in; /* by value id: what backward reads in its place */
    uint32_t *sends;  /* nodes of "micro_first" that send, in their order */
    ht_val *grads;    /* states of the gradients that come back */
    size_t send_count, grad_count, state_count;
} splitter;

static void name_part(const splitter *s, const char *part, char *name, size_t capacity)
{
    snprintf(name, capacity, "%s%s", part, s->ending);
}

static bool is_op(const ht_node *n, const char *name)
{
    return strcmp(n->op->name, name) == 0;
}

/* ---- what forward is ---- */

/* The model's own nodes, and what they read. */
static ht_status mark_ahead(const splitter *s, uint32_t segment)
{
    ht_graph *g = s->g;
    const ht_segment *m = &g->segments[segment];
    for (size_t at = m->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[m->nodes[at]];
        s->ahead[m->nodes[at]] |= ht_node_is_forward(n);
        if (!s->ahead[m->nodes[at]]) continue;
        if (is_op(n, "recv_start") && n->role != HT_ROLE_FWD)
            HT_FAIL(g->ctx, HT_EVERIFY, "pipeline: segment %s: forward reads a gradient", m->name);
        for (size_t i = 0; i < n->n_in; i++) {
            const ht_node *p = ht_producer(g, ht_node_in(g, n, i));
            if (p) s->ahead[p - g->nodes] = true;
        }
    }
    return HT_OK;
}

/* Both have the same forward, node by node. */
static ht_status match_forwards(const splitter *s)
{
    ht_graph *g = s->g;
    const ht_segment *first = &g->segments[s->micro[FIRST]];
    for (int m = 0; m < s->micro_count; m++) {
        const ht_segment *more = &g->segments[s->micro[m]];
        size_t at = 0;
        for (size_t i = 0; i < more->node_count; i++) {
            const ht_node *n = &g->nodes[more->nodes[i]];
            if (!s->ahead[more->nodes[i]]) continue;
            while (at < first->node_count && !s->ahead[first->nodes[at]]) at++;
            const ht_node *same = at < first->node_count ? &g->nodes[first->nodes[at++]] : NULL;
            if (!same || same->op != n->op)
                HT_FAIL(g->ctx, HT_EVERIFY, "pipeline: segments %s and %s differ in forward, at %s", first->name,
                        more->name, n->op->name);
            for (size_t k = 0; k < n->n_out; k++) s->of_first[n->out + k] = ht_node_out(same, k);
        }
    }
    return HT_OK;
}

static void note_effects(splitter *s)
{
    const ht_graph *g = s->g;
    const ht_segment *first = &g->segments[s->micro[FIRST]];
    for (size_t i = 0; i < first->node_count; i++) {
        const ht_node *n = &g->nodes[first->nodes[i]];
        if (!s->ahead[first->nodes[i]]) continue;
        if (n->op == &ht_op_store) s->stored[ht_root(g, ht_node_in(g, n, 0)).id] = true;
        if (is_op(n, "send_start")) s->sends[s->send_count++] = first->nodes[i];
    }
}

/* ---- what backward reads ---- */

/* A state for a value of "micro_first", which forward stores and backward reads. */
static ht_val keep(splitter *s, ht_val v, bool per_call)
{
    char name[64];
    ht_graph *g = s->g;
    ht_type type = *ht_type_of(g, v);
    if (s->kept[v.id].id) return s->kept[v.id];
    snprintf(name, sizeof name, "kept%s.%zu", s->ending, s->state_count++);
    ht_state like = {.heading = HT_HEADING_ACTIVATIONS, .derived = true, .per_call = per_call};
    return s->kept[v.id] = ht_graph_add_state(g, name, &type, &like);
}

static bool is_made_again(const ht_node *n)
{
    if (n->op->flags & HT_OP_EFFECT || n->op->start) return false;
    return n->n_in == 0 || (n->n_in == 1 && n->op->view);
}

static ht_val read_ahead(splitter *s, ht_val v);

static ht_val make_again(splitter *s, const ht_node *node)
{
    ht_graph *g = s->g;
    const ht_node n = *node; /* the builder may move the graph's */
    ht_val in = n.n_in ? read_ahead(s, ht_node_in(g, &n, 0)) : HT_NONE, out[8];
    ht_type want[8];
    for (size_t i = 0; i < n.n_out; i++) want[i] = *ht_type_of(g, ht_node_out(&n, i));
    if (g->status != HT_OK) return HT_NONE;
    ht_emit(g, n.op, n.n_in, &in, ht_op_attr_count(n.op), n.attr, want, out);
    if (g->status == HT_OK) g->nodes[g->node_count - 1].site = n.site;
    return out[0];
}

/* What a node of backward reads in place of v. */
static ht_val read_ahead(splitter *s, ht_val v)
{
    const ht_graph *g = s->g;
    const ht_node *p = ht_producer(g, v);
    if (!p) return s->stored[ht_root(g, v).id] ? keep(s, v, true) : v;
    if ((size_t)(p - g->nodes) >= s->nodes || !s->ahead[p - g->nodes]) return v;
    if (!s->stand_in[v.id].id)
        s->stand_in[v.id] = is_made_again(p) ? make_again(s, p) : keep(s, s->of_first[v.id], true);
    return s->stand_in[v.id];
}

/* The state of the next gradient that comes back; the segments of both kinds of micro-batches share it. */
static ht_val grad_state(splitter *s, const ht_node *done, size_t index)
{
    char name[64];
    ht_graph *g = s->g;
    if (index < s->grad_count) return s->grads[index];
    ht_type type = *ht_type_of(g, ht_node_out(done, 0));
    snprintf(name, sizeof name, "received%s.%zu", s->ending, s->grad_count);
    ht_state like = {.heading = HT_HEADING_ACTIVATIONS, .derived = true};
    return s->grads[s->grad_count++] = ht_graph_add_state(g, name, &type, &like);
}

static ht_status keep_backward(splitter *s, int which, const char *part)
{
    ht_graph *g = s->g;
    ht_rewrite rw;
    char name[64];
    size_t grads = 0;
    g->segments[s->micro[which]].output_count = 0; /* they are forward's */
    if (!ht_rewrite_begin(&rw, g, s->micro[which])) return g->status;
    g->role = HT_ROLE_BWD_ACT;
    for (size_t at = 0; at < rw.count && g->status == HT_OK; at++) {
        const ht_node n = g->nodes[rw.old[at]];
        if (s->ahead[rw.old[at]] || is_op(&n, "recv_start")) continue;
        if (is_op(&n, "recv_done")) {
            ht_rewrite_replace(&rw, ht_node_out(&n, 0), grad_state(s, &n, grads++));
            continue;
        }
        for (size_t i = 0; i < n.n_in; i++) {
            ht_val v = ht_node_in(g, &n, i);
            if (v.id && v.id < s->values && !(n.op == &ht_op_store && i == 0))
                ht_rewrite_replace(&rw, v, read_ahead(s, v));
        }
        ht_rewrite_keep(&rw, rw.old[at]);
    }
    g->role = HT_ROLE_FWD;
    HT_TRY(ht_rewrite_end(&rw));
    name_part(s, part, name, sizeof name);
    g->segments[s->micro[which]].name = ht_arena_text(g->arena, name, strlen(name));
    return g->segments[s->micro[which]].name ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "pipeline: out of memory");
}

/* ---- forward ---- */

/* State that forward replaces and backward reads is kept as it was. */
static void keep_states(const splitter *s)
{
    ht_graph *g = s->g;
    for (uint32_t v = 1; v < s->values && g->status == HT_OK; v++)
        if (s->kept[v].id && ht_state_of(g, (ht_val){v}))
            ht_store(g, s->kept[v], ht_emit1(g, "copy", ht_type_of(g, s->kept[v]), HT_VALS((ht_val){v}), HT_NO_ATTRS));
}

static bool is_send(const ht_node *n)
{
    return is_op(n, "send_start") || is_op(n, "send_done");
}

/* `copied`: by value id, the value of the segment `forward`, a copy of "micro_first", whose nodes are `was`. */
static ht_status keep_forward(const splitter *s, uint32_t forward, const uint32_t *was, const ht_val *copied)
{
    ht_graph *g = s->g;
    ht_rewrite rw;
    if (!ht_rewrite_begin(&rw, g, forward)) return g->status;
    keep_states(s);
    for (size_t at = 0; at < rw.count && g->status == HT_OK; at++)
        if (s->ahead[was[at]] && !is_send(&g->nodes[rw.old[at]])) ht_rewrite_keep(&rw, rw.old[at]);
    for (uint32_t v = 1; v < s->values && g->status == HT_OK; v++)
        if (s->kept[v].id && !ht_state_of(g, (ht_val){v})) ht_store(g, s->kept[v], copied[v]);
    return ht_rewrite_end(&rw);
}

/* ---- messages ---- */

static uint32_t begin_segment(const splitter *s, ht_pipeline_part part)
{
    char name[64];
    name_part(s, ht_pipeline_part_names[part], name, sizeof name);
    return s->g->segment = ht_graph_add_segment(s->g, name);
}

static void add_messages(const splitter *s, ht_pipeline_segments *out)
{
    ht_graph *g = s->g;
    uint32_t resume = g->segment;
    const ht_group stages = {"pipeline", s->axis->ranks};
    out->part[HT_PIPELINE_SEND] = begin_segment(s, HT_PIPELINE_SEND);
    for (size_t i = 0; i < s->send_count && g->status == HT_OK; i++)
        ht_send(g, s->kept[ht_node_in(g, &g->nodes[s->sends[i]], 0).id], stages, s->axis->rank + 1, "none");
    out->part[HT_PIPELINE_RECEIVE] = begin_segment(s, HT_PIPELINE_RECEIVE);
    g->role = HT_ROLE_BWD_ACT;
    for (size_t i = 0; i < s->grad_count && g->status == HT_OK; i++) {
        ht_type type = *ht_type_of(g, s->grads[i]);
        ht_store(g, s->grads[i], ht_recv(g, &type, stages, s->axis->rank + 1, "none"));
    }
    g->role = HT_ROLE_FWD;
    g->segment = resume;
}

/* ---- the whole ---- */

/* What only the next stage reads is kept until it is sent, before the next forward. */
static void keep_sent(splitter *s)
{
    for (size_t i = 0; i < s->send_count; i++) keep(s, ht_node_in(s->g, &s->g->nodes[s->sends[i]], 0), false);
}

static ht_status split(splitter *s, ht_pipeline_segments *out)
{
    ht_graph *g = s->g;
    static const char *const parts[MICROS] = {"bwd_first", "bwd"};
    for (int m = 0; m < s->micro_count; m++) HT_TRY(mark_ahead(s, s->micro[m]));
    HT_TRY(match_forwards(s));
    note_effects(s);
    /* Forward is copied from "micro_first" while that is whole, and cut when it is known what backward reads. */
    char name[64];
    ht_val *copied;
    size_t count = g->segments[s->micro[FIRST]].node_count;
    uint32_t *was = malloc((count + 1) * sizeof *was);
    if (!was) HT_FAIL(g->ctx, HT_ENOMEM, "pipeline: out of memory");
    memcpy(was, g->segments[s->micro[FIRST]].nodes, count * sizeof *was);
    name_part(s, ht_pipeline_part_names[HT_PIPELINE_FORWARD], name, sizeof name);
    out->part[HT_PIPELINE_FORWARD] = ht_segment_copy(g, s->micro[FIRST], name, &copied);
    ht_status status = g->status;
    for (int m = 0; m < s->micro_count && status == HT_OK; m++) status = keep_backward(s, m, parts[m]);
    if (status == HT_OK) keep_sent(s);
    if (status == HT_OK) status = keep_forward(s, out->part[HT_PIPELINE_FORWARD], was, copied);
    free(was);
    free(copied);
    out->part[HT_PIPELINE_BACKWARD] = s->micro[FIRST];
    out->backward_more = s->micro[s->micro_count - 1];
    if (status == HT_OK && s->axis->rank < s->axis->ranks - 1) add_messages(s, out);
    return status == HT_OK ? g->status : status;
}

ht_status ht_pipeline_split(ht_graph *g, const ht_axis *axis, const char *ending, ht_pipeline_segments *out)
{
    char name[64];
    snprintf(name, sizeof name, "micro_first%s", ending);
    int first = ht_segment_find(g, name);
    snprintf(name, sizeof name, "micro%s", ending);
    int more = ht_segment_find(g, name);
    size_t values = g->value_count, most = g->segments[first].node_count + 1;
    splitter s = {.g = g,
                  .axis = axis,
                  .ending = ending,
                  .micro = {(uint32_t)first, (uint32_t)more},
                  .micro_count = more < 0 ? 1 : MICROS,
                  .values = values,
                  .nodes = g->node_count,
                  .ahead = calloc(g->node_count, sizeof *s.ahead),
                  .stored = calloc(values, sizeof *s.stored),
                  .of_first = calloc(values, sizeof *s.of_first),
                  .kept = calloc(values, sizeof *s.kept),
                  .stand_in = calloc(values, sizeof *s.stand_in),
                  .sends = calloc(most, sizeof *s.sends),
                  .grads = calloc(most, sizeof *s.grads)};
    bool ok = s.ahead && s.stored && s.of_first && s.kept && s.stand_in && s.sends && s.grads;
    ht_status status = ok ? split(&s, out) : ht_fail(g->ctx, HT_ENOMEM, "pipeline: out of memory");
    free(s.ahead);
    free(s.stored);
    free(s.of_first);
    free(s.kept);
    free(s.stand_in);
    free(s.sends);
    free(s.grads);
    return status;
}
