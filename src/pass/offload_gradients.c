#include "pass/offload_gradients.h"

#include <stdlib.h>

typedef struct sender {
    ht_graph *g;
    const ht_space *goes;
    size_t count; /* of values that were there before */
    size_t ahead;
    ht_rewrite rw;
    bool *early;        /* by node id: it only finishes gradients (a sum with what is there, a cast) */
    bool *read;         /* by value id: another node reads it, or it is an output */
    bool *finishes;     /* by value id: a gradient is made of it */
    uint32_t *ready;    /* by node id: the position behind which it can be computed */
    uint32_t *order;    /* nodes of the segment, as they are computed */
    uint32_t *store_of; /* by value id: 1 + the node that stores it into a gradient */
    uint32_t *sent;     /* stores whose value is on its way, in this order */
    ht_val *start;      /* by index of `sent` */
    size_t sent_count, stored;
} sender;

bool ht_is_gradient(const ht_graph *g, ht_val state)
{
    const ht_state *s = ht_state_of(g, state);
    return s && s->heading == HT_HEADING_GRADIENTS;
}

static bool stores_gradient(const sender *s, const ht_node *n)
{
    if (n->op != &ht_op_store) return false;
    ht_val into = ht_node_in(s->g, n, 0);
    return into.id < s->count && s->goes[into.id] != HT_SPACE_MAIN && ht_is_gradient(s->g, into);
}

/* ---- the order ---- */

static bool only_finishes(const sender *s, const ht_node *n)
{
    bool used = false;
    if ((n->op->fuse != HT_FUSE_POINT && !n->op->view) || (n->op->flags & (HT_OP_EFFECT | HT_OP_NO_FOLD))) return false;
    for (size_t i = 0; i < n->n_out; i++) {
        if (s->read[ht_node_out(n, i).id]) return false;
        used |= s->finishes[ht_node_out(n, i).id];
    }
    return used;
}

/* Sums and casts whose only use is a gradient: a segment has its stores, and these, at its end. */
static void find_early(sender *s, const ht_segment *segment)
{
    const ht_graph *g = s->g;
    for (size_t i = 0; i < segment->output_count; i++) s->read[segment->outputs[i].value.id] = true;
    for (size_t at = segment->node_count; at-- > 0;) {
        uint32_t id = segment->nodes[at];
        const ht_node *n = &g->nodes[id];
        bool stores = stores_gradient(s, n);
        s->early[id] = only_finishes(s, n);
        for (size_t i = n->op == &ht_op_store; i < n->n_in; i++)
            (stores || s->early[id] ? s->finishes : s->read)[ht_node_in(g, n, i).id] = true;
        if (stores) s->store_of[ht_node_in(g, n, 1).id] = id + 1;
    }
}

typedef struct place {
    uint32_t ready, at, node;
} place;

static int compare_places(const void *a, const void *b)
{
    const place *p = a, *q = b;
    if (p->ready != q->ready) return p->ready < q->ready ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

/* Early nodes behind the last of those that make their operands; all others stay where they are. */
static bool order_nodes(sender *s, const ht_segment *segment)
{
    const ht_graph *g = s->g;
    place *places = calloc(segment->node_count + 1, sizeof *places);
    for (uint32_t at = 0; places && at < segment->node_count; at++) {
        uint32_t id = segment->nodes[at], ready = 0;
        const ht_node *n = &g->nodes[id];
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            const ht_node *from = v.id ? ht_producer(g, v) : NULL;
            if (from && s->ready[from - g->nodes] > ready) ready = s->ready[from - g->nodes];
        }
        s->ready[id] = s->early[id] ? ready : at;
        places[at] = (place){s->ready[id], at, id};
    }
    if (places) qsort(places, segment->node_count, sizeof *places, compare_places);
    for (size_t i = 0; places && i < segment->node_count; i++) s->order[i] = places[i].node;
    free(places);
    return places != NULL;
}

/* ---- copies ---- */

static void finish_stores(sender *s, size_t until)
{
    ht_graph *g = s->g;
    for (; s->stored < until && g->status == HT_OK; s->stored++) {
        uint32_t store = s->sent[s->stored];
        ht_val start = s->start[s->stored], from = ht_node_in(g, &g->nodes[store], 1);
        ht_type want = *ht_type_of(g, start);
        ht_val there = ht_emit1(g, "copy_done", &want, HT_VALS(start, from), HT_NO_ATTRS);
        if (g->status != HT_OK) return;
        g->operands[g->nodes[store].in + 1] = there;
        ht_rewrite_keep(&s->rw, store);
    }
}

static void send(sender *s, uint32_t store)
{
    ht_graph *g = s->g;
    ht_val into = ht_node_in(g, &g->nodes[store], 0), from = ht_node_in(g, &g->nodes[store], 1);
    ht_type want = *ht_type_of(g, from);
    if (g->status != HT_OK) return;
    want.space = s->goes[into.id];
    ht_type_row_major(&want);
    s->start[s->sent_count] = ht_emit1(g, "copy_start", &want, HT_VALS(from), HT_NO_ATTRS);
    s->sent[s->sent_count++] = store;
    s->store_of[from.id] = 0;
    if (s->sent_count > s->ahead) finish_stores(s, s->sent_count - s->ahead);
}

static void send_results(sender *s, uint32_t id)
{
    const ht_node n = s->g->nodes[id];
    for (uint32_t v = n.out; v < n.out + n.n_out; v++)
        if (s->store_of[v]) send(s, s->store_of[v] - 1);
}

static bool is_sent(const sender *s, uint32_t store)
{
    for (size_t i = 0; i < s->sent_count; i++)
        if (s->sent[i] == store) return true;
    return false;
}

static ht_status rewrite(sender *s, uint32_t segment)
{
    ht_graph *g = s->g;
    ht_role role = g->role;
    g->role = HT_ROLE_FWD; /* a copy is no gradient */
    if (ht_rewrite_begin(&s->rw, g, segment)) {
        for (size_t i = 0; i < s->rw.count && g->status == HT_OK; i++) {
            uint32_t id = s->order[i];
            if (!stores_gradient(s, &g->nodes[id])) {
                ht_rewrite_keep(&s->rw, id);
                send_results(s, id);
            } else if (!is_sent(s, id)) { /* of a value that nothing here makes, or that another store has sent */
                send(s, id);
            }
        }
        finish_stores(s, s->sent_count);
    }
    g->role = role;
    return ht_rewrite_end(&s->rw);
}

static bool has_any(const sender *s, const ht_segment *segment)
{
    for (size_t at = 0; at < segment->node_count; at++)
        if (stores_gradient(s, &s->g->nodes[segment->nodes[at]])) return true;
    return false;
}

ht_status ht_offload_gradients(ht_graph *g, uint32_t segment, const ht_space *goes, size_t count, size_t ahead)
{
    size_t nodes = g->node_count, values = g->value_count, here = g->segments[segment].node_count + 1;
    sender s = {.g = g, .goes = goes, .count = count, .ahead = ahead};
    if (!has_any(&s, &g->segments[segment])) return HT_OK;
    s.early = calloc(nodes, sizeof *s.early);
    s.ready = calloc(nodes, sizeof *s.ready);
    s.read = calloc(values, sizeof *s.read);
    s.finishes = calloc(values, sizeof *s.finishes);
    s.store_of = calloc(values, sizeof *s.store_of);
    s.order = calloc(here, sizeof *s.order);
    s.sent = calloc(here, sizeof *s.sent);
    s.start = calloc(here, sizeof *s.start);
    bool ok = s.early && s.ready && s.read && s.finishes && s.store_of && s.order && s.sent && s.start;
    if (ok) find_early(&s, &g->segments[segment]);
    ok = ok && order_nodes(&s, &g->segments[segment]);
    ht_status status = ok ? rewrite(&s, segment) : ht_fail(g->ctx, HT_ENOMEM, "offload: out of memory");
    free(s.early);
    free(s.ready);
    free(s.read);
    free(s.finishes);
    free(s.store_of);
    free(s.order);
    free(s.sent);
    free(s.start);
    return status;
}
