/* Regions as a GPU runs them. The products of its library add to their sums before these reach memory, and do nothing else:
 * so point-wise nodes behind such additions leave the region of the product for one of their own. There a reduction can go
 * with them that is in no region, and reads what one of them makes: the sum for a bias, the f8 form of a gradient.
 * And point-wise regions that read one value join, so that it crosses memory once: the gradients of both sides of a gate.
 *
 * A region has no way that leaves it and comes back, and no addition of those that stay waits for a node that goes. So the two
 * parts do not wait for each other in a circle. Nor do regions that join: all that they read is there before either begins. */
#include <string.h>

#include "plan/plan.h"

/* A region as it stands in the segment. */
typedef struct span {
    uint32_t first, last; /* places of its nodes */
    uint32_t waits;       /* place + 1 of the last result of others that it reads */
    bool begun, other;    /* other: a node is neither point-wise nor a view */
} span;

typedef struct cutter {
    ht_graph *g;
    const ht_segment *s;
    uint32_t *place;  /* by value id: place of its node + 1; 0: none */
    uint32_t *user;   /* by value id: place + 1 of a node that reads it; 0: none */
    bool *dot;        /* by region: a product that adds is in it */
    bool *goes;       /* by place: leaves the region of its product */
    uint32_t *other;  /* by region: where they go; 0: nowhere yet */
    span *spans;      /* by region */
    uint32_t *reader; /* by value id: place + 1 of the first point-wise node that reads it; 0: none */
    uint32_t last;    /* the greatest number of a region */
} cutter;

static ht_node *node_at(const cutter *c, size_t at)
{
    return &c->g->nodes[c->s->nodes[at]];
}

static bool is_add(const ht_node *n)
{
    return strcmp(n->op->name, "add") == 0;
}

/* A view, or what needs no input. */
static bool is_light(const ht_node *n)
{
    return n->op->fuse == HT_FUSE_MOVE || (n->op->fuse == HT_FUSE_POINT && n->n_in == 0);
}

/* Does it read a node of its region that goes? */
static bool follows(const cutter *c, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        uint32_t from = c->place[ht_node_in(c->g, n, i).id];
        if (from-- && c->goes[from] && node_at(c, from)->region == n->region) return true;
    }
    return false;
}

static void find_those_that_go(cutter *c)
{
    for (size_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = node_at(c, at);
        if (!c->dot[n->region] || n->op->fuse == HT_FUSE_DOT) continue;
        c->goes[at] = follows(c, n) || (n->op->fuse == HT_FUSE_POINT && !is_light(n) && !is_add(n));
    }
    /* What is made for them alone. */
    for (size_t at = c->s->node_count; at-- > 0;) {
        const ht_node *n = node_at(c, at);
        if (!c->dot[n->region] || !is_light(n) || n->n_out != 1 || !c->user[n->out]) continue;
        uint32_t user = c->user[n->out] - 1;
        c->goes[at] |= c->goes[user] && node_at(c, user)->region == n->region;
    }
}

static uint32_t new_region(cutter *c, uint32_t of)
{
    if (!c->other[of]) c->other[of] = ++c->last;
    return c->other[of];
}

/* The region of the point-wise node that makes v; one of its own if it has none, and 0 if that is a product's. */
static uint32_t region_of_maker(cutter *c, ht_val v)
{
    uint32_t from = c->place[v.id];
    if (!from-- || node_at(c, from)->op->fuse != HT_FUSE_POINT || is_light(node_at(c, from))) return 0;
    ht_node *maker = node_at(c, from);
    if (!maker->region) maker->region = ++c->last;
    return c->dot[maker->region] ? 0 : maker->region;
}

/* State, an input of the segment, or a view of one. */
static bool is_given(const ht_graph *g, ht_val v)
{
    const ht_node *n = ht_producer(g, v);
    while (n && n->op->view && n->n_in == 1) n = ht_producer(g, ht_node_in(g, n, 0));
    return !n;
}

bool ht_plan_reads_one_result(const ht_graph *g, const ht_node *n)
{
    for (size_t i = 1; i < n->n_in; i++)
        if (!is_given(g, ht_node_in(g, n, i))) return false;
    return n->n_in > 0;
}

/* Convolutions add nothing: point-wise nodes behind them stay together. */
static bool adds(const ht_node *n)
{
    return strcmp(n->op->name, "matmul") == 0 || strcmp(n->op->name, "scaled_matmul") == 0;
}

/* ---- regions that read one value ---- */

/* Made of nothing, so at any time; or a view of such. */
static bool is_constant(const cutter *c, const ht_node *n)
{
    while (n && n->op->view && n->n_in == 1) n = ht_producer(c->g, ht_node_in(c->g, n, 0));
    return n && n->n_in == 0;
}

static void extend(cutter *c, span *s, uint32_t at)
{
    const ht_node *n = node_at(c, at);
    if (!s->begun) s->first = at;
    s->begun = true;
    s->last = at;
    s->other |= n->op->fuse != HT_FUSE_POINT && !n->op->view;
    for (size_t i = 0; i < n->n_in; i++) {
        uint32_t from = c->place[ht_node_in(c->g, n, i).id];
        if (!from || is_constant(c, node_at(c, from - 1))) continue;
        if (n->region && node_at(c, from - 1)->region == n->region) continue;
        if (from > s->waits) s->waits = from;
    }
}

/* Of the node's region; of the node alone if it is in none. */
static span span_at(cutter *c, uint32_t at)
{
    span alone = {0};
    const ht_node *n = node_at(c, at);
    if (n->region) return c->spans[n->region];
    extend(c, &alone, at);
    return alone;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What is computed again, or backward from forward values alone, is late so that it need not be kept. */
static bool is_as_late(const ht_node *a, const ht_node *b)
{
    return a->role == b->role && !a->no_merge && !b->no_merge;
}

static void join_regions(cutter *c, uint32_t a, uint32_t b)
{
    span x = span_at(c, a), y = span_at(c, b);
    uint32_t old = node_at(c, b)->region;
    span both = {min_u32(x.first, y.first), max_u32(x.last, y.last), max_u32(x.waits, y.waits), true,
                 x.other || y.other};
    if (both.other || both.waits > both.first) return;
    if (!node_at(c, a)->region) node_at(c, a)->region = ++c->last;
    uint32_t region = node_at(c, a)->region;
    for (uint32_t at = y.first; at <= y.last; at++)
        if (at == b || (old && node_at(c, at)->region == old)) node_at(c, at)->region = region;
    c->spans[region] = both;
}

static void join_readers(cutter *c)
{
    for (uint32_t at = 0; at < c->s->node_count; at++)
        if (node_at(c, at)->region) extend(c, &c->spans[node_at(c, at)->region], at);
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = node_at(c, at);
        if (n->op->fuse != HT_FUSE_POINT || is_light(n)) continue;
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(c->g, n, i);
            uint32_t *first = &c->reader[v.id];
            if (!c->place[v.id] || !ht_type_same_shape(ht_type_of(c->g, v), ht_type_of(c->g, ht_node_out(n, 0))))
                continue;
            if (!*first)
                *first = at + 1;
            else if ((!n->region || n->region != node_at(c, *first - 1)->region) &&
                     is_as_late(node_at(c, *first - 1), n))
                join_regions(c, *first - 1, at);
        }
    }
}

static void cut_segment(cutter *c)
{
    for (size_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = node_at(c, at);
        if (adds(n)) c->dot[n->region] = n->region != 0;
        for (size_t i = 0; i < n->n_in; i++) c->user[ht_node_in(c->g, n, i).id] = (uint32_t)at + 1;
        for (size_t i = 0; i < n->n_out; i++) c->place[n->out + i] = (uint32_t)at + 1;
    }
    find_those_that_go(c);
    for (size_t at = 0; at < c->s->node_count; at++)
        if (c->goes[at]) node_at(c, at)->region = new_region(c, node_at(c, at)->region);
    for (size_t at = 0; at < c->s->node_count; at++) {
        ht_node *n = node_at(c, at);
        if (n->op->fuse == HT_FUSE_REDUCE && !n->region && ht_plan_reads_one_result(c->g, n))
            n->region = region_of_maker(c, ht_node_in(c->g, n, 0));
    }
    join_readers(c);
}

ht_status ht_plan_cut_regions(ht_graph *g, const ht_target *target)
{
    if (target->device != HT_DEVICE_CUDA) return HT_OK;
    uint32_t last = 0;
    for (size_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].region > last) last = g->nodes[i].region;
    ht_status status = HT_OK;
    for (uint32_t i = 0; i < g->segment_count && status == HT_OK; i++) {
        ht_arena *arena = ht_arena_create();
        cutter c = {.g = g, .s = &g->segments[i], .last = last};
        if (arena) {
            c.place = HT_NEW(arena, uint32_t, g->value_count);
            c.user = HT_NEW(arena, uint32_t, g->value_count);
            c.dot = HT_NEW(arena, bool, last + g->node_count + 1);
            c.goes = HT_NEW(arena, bool, c.s->node_count + 1);
            c.other = HT_NEW(arena, uint32_t, last + 1);
            c.spans = HT_NEW(arena, span, last + g->node_count + 1);
            c.reader = HT_NEW(arena, uint32_t, g->value_count);
        }
        if (arena && c.place && c.user && c.dot && c.goes && c.other && c.spans && c.reader)
            cut_segment(&c);
        else
            status = ht_fail(g->ctx, HT_ENOMEM, "out of memory while planning");
        last = c.last;
        ht_arena_free(arena);
    }
    return status;
}
