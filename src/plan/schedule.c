/* The scheduler: the order in which a segment's nodes run. It is the author's, except that a node moves down to its
 * first reader when that shortens the life of its result and lengthens no other: a constant that backward needs is not
 * kept through forward. So a done waits until its result is needed, if what its start reads lives on anyway. A start
 * stays where its author put it: moved down it would overlap with less, and moved up its result would take memory
 * earlier. Only a start out of main moves up to what it reads: its result takes no memory of main. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* A place in the new order: "right before old position `major`", or that position itself for a node that stays. */
typedef struct schedule {
    const ht_graph *g;
    const ht_segment *s;
    uint32_t *first_use; /* by value id: lowest major of its readers; UINT32_MAX: none */
    uint32_t *last_use;  /* by value id of what owns bytes: highest major of its readers */
    uint32_t *stored_at; /* by value id of state that owns bytes; UINT32_MAX: none */
    uint32_t *major;     /* by position */
} schedule;

static uint32_t first_reader(const schedule *c, const ht_node *n)
{
    uint32_t first = UINT32_MAX;
    for (size_t i = 0; i < n->n_out; i++)
        if (c->first_use[n->out + i] < first) first = c->first_use[n->out + i];
    return first;
}

/* Can the node wait until just before `goal` without any value living longer or changing under it? */
static bool can_wait(const schedule *c, const ht_node *n, uint32_t goal)
{
    if (n->op->flags & HT_OP_EFFECT) return false;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        if (!v.id) continue;
        ht_val root = ht_root(c->g, v);
        ht_value_kind kind = ht_value_of(c->g, root)->kind;
        if (kind == HT_VALUE_STATE && c->stored_at[root.id] < goal) return false;
        if (kind == HT_VALUE_RESULT && c->last_use[root.id] < goal) return false;
    }
    return true;
}

static void note_uses(schedule *c, const ht_node *n, uint32_t major)
{
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        if (!v.id) continue;
        uint32_t root = ht_root(c->g, v).id;
        if (major < c->first_use[v.id]) c->first_use[v.id] = major;
        if (major > c->last_use[root]) c->last_use[root] = major;
    }
}

/* From the last node to the first, so that every reader has its place before what it reads. */
static void choose_places(schedule *c)
{
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[at]];
        uint32_t *stored = n->op == &ht_op_store ? &c->stored_at[ht_root(c->g, ht_node_in(c->g, n, 0)).id] : NULL;
        if (stored && at < *stored) *stored = at;
    }
    for (uint32_t at = (uint32_t)c->s->node_count; at-- > 0;) {
        const ht_node *n = &c->g->nodes[c->s->nodes[at]];
        uint32_t goal = first_reader(c, n);
        bool waits = goal != UINT32_MAX && goal > at + 1 && !n->op->done && can_wait(c, n, goal);
        c->major[at] = waits ? goal : at;
        note_uses(c, n, c->major[at]);
    }
}

/* Nodes of one major keep their old order; the one that stays comes last. A counting sort. */
static bool reorder(const schedule *c)
{
    size_t n = c->s->node_count;
    uint32_t *start = calloc(n + 1, sizeof *start), *order = malloc((n + 1) * sizeof *order);
    if (start && order) {
        for (size_t at = 0; at < n; at++) start[c->major[at] + 1]++;
        for (size_t at = 0; at < n; at++) start[at + 1] += start[at];
        for (size_t at = 0; at < n; at++) order[start[c->major[at]]++] = c->s->nodes[at];
        if (n) memcpy(c->s->nodes, order, n * sizeof *order);
    }
    bool ok = start && order;
    free(start);
    free(order);
    return ok;
}

/* Does the node move up to the one that makes what it copies? */
static bool moves_up(const ht_graph *g, const ht_node *n)
{
    return n->op->done && n->n_in == 1 && ht_type_of(g, ht_node_out(n, 0))->space != HT_SPACE_MAIN &&
           ht_producer(g, ht_node_in(g, n, 0));
}

/* Such starts in a list for each node that they read, oldest last; then everything in its order. */
static bool move_starts_up(const ht_graph *g, const ht_segment *s)
{
    uint32_t *last = calloc(g->node_count, sizeof *last), *before = calloc(g->node_count, sizeof *before);
    uint32_t *order = malloc((s->node_count + 1) * sizeof *order);
    bool ok = last && before && order;
    size_t count = s->node_count;
    for (size_t at = 0; ok && at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        if (!moves_up(g, n)) continue;
        uint32_t from = ht_value_of(g, ht_node_in(g, n, 0))->owner;
        before[s->nodes[at]] = last[from];
        last[from] = s->nodes[at];
    }
    for (size_t at = s->node_count; ok && at-- > 0;) {
        uint32_t id = s->nodes[at];
        if (moves_up(g, &g->nodes[id])) continue;
        for (uint32_t start = last[id]; start; start = before[start]) order[--count] = start;
        order[--count] = id;
    }
    if (ok && s->node_count) memcpy(s->nodes, order, s->node_count * sizeof *order);
    free(last);
    free(before);
    free(order);
    return ok;
}

ht_status ht_plan_schedule(ht_graph *g, uint32_t segment)
{
    schedule c = {
        .g = g,
        .s = &g->segments[segment],
        .first_use = malloc(g->value_count * sizeof *c.first_use),
        .last_use = calloc(g->value_count, sizeof *c.last_use),
        .stored_at = malloc(g->value_count * sizeof *c.stored_at),
        .major = malloc((g->segments[segment].node_count + 1) * sizeof *c.major),
    };
    bool ok = c.first_use && c.last_use && c.stored_at && c.major;
    if (ok) {
        memset(c.first_use, 0xff, g->value_count * sizeof *c.first_use);
        memset(c.stored_at, 0xff, g->value_count * sizeof *c.stored_at);
        choose_places(&c);
        ok = reorder(&c) && move_starts_up(g, c.s);
    }
    free(c.first_use);
    free(c.last_use);
    free(c.stored_at);
    free(c.major);
    return ok ? HT_OK
              : ht_fail(g->ctx, HT_ENOMEM, "out of memory while scheduling segment %s", g->segments[segment].name);
}
