/* Regions as a GPU runs them. The products of its library add to their sums before these reach memory, and do nothing else:
 * so point-wise nodes behind such additions leave the region of the product for one of their own. There a reduction can go
 * with them that is in no region, and reads what one of them makes: the sum for a bias, the f8 form of a gradient.
 *
 * A region has no way that leaves it and comes back, and no addition of those that stay waits for a node that goes. So the two
 * parts do not wait for each other in a circle. */
#include <string.h>

#include "plan/plan.h"

typedef struct cutter {
    ht_graph *g;
    const ht_segment *s;
    uint32_t *place; /* by value id: place of its node + 1; 0: none */
    uint32_t *user;  /* by value id: place + 1 of a node that reads it; 0: none */
    bool *dot;       /* by region: a product that adds is in it */
    bool *goes;      /* by place: leaves the region of its product */
    uint32_t *other; /* by region: where they go; 0: nowhere yet */
    uint32_t last;   /* the greatest number of a region */
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
        }
        if (arena && c.place && c.user && c.dot && c.goes && c.other)
            cut_segment(&c);
        else
            status = ht_fail(g->ctx, HT_ENOMEM, "out of memory while planning");
        last = c.last;
        ht_arena_free(arena);
    }
    return status;
}
