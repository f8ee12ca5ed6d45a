/* Marks what is computed together, whatever the machine: point-wise chains, reductions with the point-wise nodes around
 * them, a dot (matmul, convolution) with its point-wise epilogue, views with their only user. A region is a set of
 * nodes of one segment and one memory that can run as one kernel: regions never wait for each other in a circle.
 *
 * How that is kept, in one walk. Every region (a node alone is one, too) has a level, and an edge from one region to
 * another always goes up:
 *     - a node joins regions that its inputs come from, and these become one; they must be of one level then;
 *     - that level is above those of all its other inputs; a region that is too low is lifted, unless a node reads
 *       from it at or below the new level;
 *     - if nothing can be joined, it opens a region one level above its inputs.
 * Levels only grow along edges between regions, so no path comes back to a region that it has left.
 *
 * Views and fills with one user wait for it and go where it goes; for the levels, the user reads what the view reads.
 * Regions of one node are not marked. */
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

/* What a region looks like to those who would join it; kept at the root of a union-find tree. */
typedef struct region {
    uint32_t parent;                /* place in the segment; the root is its own */
    uint32_t members;               /* with the views that came along */
    uint32_t number;                /* 0: not given yet */
    uint32_t reduce;                /* place + 1 of its first reduction */
    int32_t level, read_at;         /* read_at: lowest level at which a node outside reads from it, or lower */
    const ht_type *shape, *reduced; /* what it iterates over, and what its reductions leave */
    bool closed, dot, point;        /* point: has a point-wise node */
} region;

typedef struct marker {
    ht_graph *g;
    const ht_segment *s;
    region *regions; /* by place */
    bool *waits;     /* by place: goes where its only user goes */
    uint32_t *stack; /* places of waiting views on the way from a user to what they read */
    uint32_t *place; /* by value id: place of its node + 1; 0: state or input */
    uint32_t *uses;  /* by value id: how often it is read; outputs and bases of views count double */
    uint32_t *user;  /* by value id: place of its last user */
    uint32_t effect; /* place + 1 of the last effect so far that is no store; the next one waits for it */
} marker;

static const ht_node *node_at(const marker *m, size_t place)
{
    return &m->g->nodes[m->s->nodes[place]];
}

static uint32_t root_of(const marker *m, uint32_t place)
{
    region *r = m->regions;
    while (r[place].parent != place) place = r[place].parent = r[r[place].parent].parent;
    return place;
}

/* ---- which nodes take part ---- */

static bool has_view(const ht_graph *g, const ht_node *n)
{
    for (size_t i = 0; i < n->n_out; i++)
        if (ht_value_of(g, ht_node_out(n, i))->base.id) return true;
    return false;
}

static ht_fuse class_of(const marker *m, const ht_node *n)
{
    if ((n->op->flags & HT_OP_EFFECT) || !n->n_out || has_view(m->g, n)) return HT_FUSE_NONE;
    if (n->op->fuse == HT_FUSE_REDUCE && (!n->n_in || !ht_node_in(m->g, n, 0).id)) return HT_FUSE_NONE;
    return n->op->fuse;
}

/* Views, and what needs no input at all: they cost nothing where they are used. */
static bool is_light(const marker *m, const ht_node *n)
{
    ht_fuse class = class_of(m, n);
    return class == HT_FUSE_MOVE || (class == HT_FUSE_POINT && n->n_in == 0);
}

/* One kernel computes in one memory; and a region is forward or it is not, so that what a model computes can be told
 * from what training adds, and what backward computes again does not run too early. Both nodes have results. */
static bool same_side(const marker *m, const ht_node *a, const ht_node *b)
{
    return ht_node_is_forward(a) == ht_node_is_forward(b) &&
           ht_type_of(m->g, ht_node_out(a, 0))->space == ht_type_of(m->g, ht_node_out(b, 0))->space;
}

static bool is_waiting(const marker *m, uint32_t at)
{
    const ht_node *n = node_at(m, at);
    if (!is_light(m, n) || n->n_out != 1 || m->uses[n->out] != 1) return false;
    uint32_t at_user = m->user[n->out];
    const ht_node *user = node_at(m, at_user);
    if (class_of(m, user) == HT_FUSE_NONE || !same_side(m, n, user)) return false;
    return !is_light(m, user) || m->waits[at_user];
}

static void look_around(marker *m)
{
    const ht_graph *g = m->g;
    for (uint32_t at = 0; at < m->s->node_count; at++) {
        const ht_node *n = node_at(m, at);
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            m->uses[v.id]++;
            m->user[v.id] = at;
        }
        for (size_t i = 0; i < n->n_out; i++) {
            m->place[n->out + i] = at + 1;
            m->uses[ht_value_of(g, ht_node_out(n, i))->base.id] += 2;
        }
    }
    for (size_t i = 0; i < m->s->output_count; i++) m->uses[m->s->outputs[i].value.id] += 2;
    for (uint32_t at = (uint32_t)m->s->node_count; at-- > 0;) m->waits[at] = is_waiting(m, at);
}

/* ---- what fits together ---- */

static const ht_attr *axes_of(const ht_node *n)
{
    for (size_t i = 0; i < ht_op_attr_count(n->op); i++)
        if (strcmp(n->attr[i].key, "axes") == 0 || strcmp(n->attr[i].key, "axis") == 0) return &n->attr[i];
    return NULL;
}

static bool same_axes(const marker *m, const region *a, const region *b)
{
    const ht_attr *x = axes_of(node_at(m, a->reduce - 1)), *y = axes_of(node_at(m, b->reduce - 1));
    return !x || !y || ht_attr_equal(x, y);
}

/* A region iterates over one shape; with reductions in it, also over that of the reduced values. */
static bool fits(const marker *m, const region *a, const region *b)
{
    if (a->closed || b->closed || (a->dot && (b->dot || b->reduce)) || (b->dot && a->reduce)) return false;
    if (a->reduce && b->reduce)
        return ht_type_same_shape(a->shape, b->shape) && ht_type_same_shape(a->reduced, b->reduced) &&
               same_axes(m, a, b);
    if (ht_type_same_shape(a->shape, b->shape)) return true;
    if (b->reduce) return ht_type_same_shape(a->shape, b->reduced);
    return a->reduce && ht_type_same_shape(b->shape, a->reduced);
}

/* Do reductions leave one number per row, so that a kernel that owns a row can use it at once? */
static bool by_rows(const region *r)
{
    int same = 0;
    while (same < r->reduced->rank && same < r->shape->rank && r->reduced->dim[same] == r->shape->dim[same]) same++;
    for (int i = same; i < r->reduced->rank; i++)
        if (r->reduced->dim[i] != 1) return false;
    return same > 0;
}

/* May a node that iterates over `own` read v, which the region `from` makes, inside one kernel? */
static bool fits_edge(const marker *m, const region *own, const region *from, ht_val v, bool through_view)
{
    const ht_type *type = ht_type_of(m->g, v);
    if (through_view) /* the way back from a reduced value to the rows that it came from */
        return from->reduce && by_rows(from) && ht_type_same_shape(type, from->reduced) &&
               ht_type_same_shape(own->shape, from->shape) && !ht_type_same_shape(type, own->shape);
    if (!ht_type_same_shape(type, own->shape)) return false;
    /* An epilogue takes the dot's result from registers: no other node may read it. */
    return ht_producer(m->g, v)->op->fuse != HT_FUSE_DOT || m->uses[v.id] == 1;
}

static void absorb(region *into, const region *from)
{
    if (from->reduce && !into->reduce) {
        into->reduce = from->reduce;
        into->shape = from->shape;
        into->reduced = from->reduced;
    }
    into->dot |= from->dot;
    into->point |= from->point;
    into->members += from->members;
    if (from->read_at < into->read_at) into->read_at = from->read_at;
}

/* ---- the walk ---- */

enum { MAX_SOURCES = 16 };

/* A region that a node reads from. */
typedef struct source {
    uint32_t root;
    bool fits, joins;
} source;

typedef struct reading {
    const ht_node *n;
    region own; /* the node by itself */
    source sources[MAX_SOURCES];
    size_t count;
    bool too_many;   /* some are only in highest */
    int32_t highest; /* level of all sources */
} reading;

static void add_source(marker *m, reading *r, uint32_t root, bool good)
{
    region *from = &m->regions[root];
    if (from->level > r->highest) r->highest = from->level;
    for (size_t i = 0; i < r->count; i++) {
        if (r->sources[i].root != root) continue;
        r->sources[i].fits &= good;
        return;
    }
    if (r->count < MAX_SOURCES) {
        r->sources[r->count++] = (source){root, good, false};
        return;
    }
    r->too_many = true;
    from->read_at = INT32_MIN; /* never lifted: its readers here are not recorded */
}

static void see(marker *m, reading *r, ht_val v, bool through_view)
{
    uint32_t root = root_of(m, m->place[v.id] - 1);
    const region *from = &m->regions[root];
    add_source(m, r, root,
               !r->own.closed && !from->closed && same_side(m, r->n, ht_producer(m->g, v)) &&
                   fits_edge(m, &r->own, from, v, through_view));
}

/* Effects keep their order (plan/fuse.c), as if each read the one before it. */
static void follow_effect(marker *m, reading *r, uint32_t at)
{
    if (!(r->n->op->flags & HT_OP_EFFECT) || r->n->op == &ht_op_store) return;
    if (m->effect) add_source(m, r, root_of(m, m->effect - 1), false);
    m->effect = at + 1;
}

/* Every value that n reads from another node, through waiting views, too; those are counted in own.members. */
static void read_inputs(marker *m, reading *r)
{
    size_t depth = 0;
    const ht_node *at = r->n;
    for (;;) {
        for (size_t i = 0; i < at->n_in; i++) {
            ht_val v = ht_node_in(m->g, at, i);
            if (!m->place[v.id]) continue;
            if (m->waits[m->place[v.id] - 1])
                m->stack[depth++] = m->place[v.id] - 1;
            else
                see(m, r, v, at != r->n);
        }
        for (size_t i = 0; i < at->n_out; i++) {
            ht_val base = ht_value_of(m->g, ht_node_out(at, i))->base;
            if (m->place[base.id]) see(m, r, base, true);
        }
        if (!depth) return;
        at = node_at(m, m->stack[--depth]);
        r->own.members++;
    }
}

/* Of several products that n could be the epilogue of, one that has none yet: so in a sum of many products each adds what
 * there is so far, as the one residual that a library takes. */
static void prefer_bare_dots(const marker *m, reading *r)
{
    bool bare = false;
    for (size_t i = 0; i < r->count; i++) {
        const region *from = &m->regions[r->sources[i].root];
        bare |= r->sources[i].fits && from->dot && !from->point;
    }
    for (size_t i = 0; bare && i < r->count; i++) {
        const region *from = &m->regions[r->sources[i].root];
        r->sources[i].fits &= !from->dot || !from->point;
    }
}

/* Decides which sources n joins, and at which level. Higher ones are asked first: they are harder to please. */
static int32_t choose(const marker *m, reading *r)
{
    const region *regions = m->regions;
    for (size_t i = 1; i < r->count; i++)
        for (size_t k = i; k > 0 && regions[r->sources[k - 1].root].level < regions[r->sources[k].root].level; k--) {
            source swap = r->sources[k];
            r->sources[k] = r->sources[k - 1];
            r->sources[k - 1] = swap;
        }
    prefer_bare_dots(m, r);
    region all = r->own;
    int32_t level = 0;
    for (size_t i = 0; i < r->count; i++) {
        source *s = &r->sources[i];
        const region *from = &regions[s->root];
        s->joins = s->fits && !r->own.dot && !r->too_many && fits(m, &all, from);
        if (s->joins) absorb(&all, from);
        int32_t at_least = s->joins ? from->level : from->level + 1;
        if (at_least > level) level = at_least;
    }
    if (r->too_many) return r->highest + 1;
    for (size_t i = 0; i < r->count; i++) {
        const region *from = &regions[r->sources[i].root];
        if (from->level < level && from->read_at <= level) r->sources[i].joins = false;
    }
    return level;
}

/* The waiting views go where n goes. */
static void take_views(marker *m, const ht_node *n, uint32_t root)
{
    size_t depth = 0;
    for (;;) {
        for (size_t i = 0; i < n->n_in; i++) {
            uint32_t place = m->place[ht_node_in(m->g, n, i).id];
            if (!place || !m->waits[place - 1]) continue;
            m->regions[place - 1].parent = root;
            m->stack[depth++] = place - 1;
        }
        if (!depth) return;
        n = node_at(m, m->stack[--depth]);
    }
}

static void put_node(marker *m, uint32_t at)
{
    const ht_node *n = node_at(m, at);
    ht_fuse class = class_of(m, n);
    reading r = {.n = n, .own = {.parent = at, .members = 1, .read_at = INT32_MAX}, .highest = -1};
    r.own.closed = class == HT_FUSE_NONE || is_light(m, n);
    r.own.dot = class == HT_FUSE_DOT;
    r.own.point = class == HT_FUSE_POINT;
    if (n->n_out) r.own.shape = ht_type_of(m->g, ht_node_out(n, 0));
    if (class == HT_FUSE_REDUCE) {
        r.own.reduce = at + 1;
        r.own.reduced = r.own.shape;
        r.own.shape = ht_type_of(m->g, ht_node_in(m->g, n, 0));
    }
    read_inputs(m, &r);
    follow_effect(m, &r, at);
    int32_t level = choose(m, &r);
    uint32_t root = at;
    m->regions[at] = r.own;
    for (size_t i = 0; i < r.count; i++) {
        uint32_t from = r.sources[i].root;
        region *source_region = &m->regions[from];
        if (!r.sources[i].joins) {
            if (level < source_region->read_at) source_region->read_at = level;
            continue;
        }
        absorb(source_region, &m->regions[root]);
        m->regions[root].parent = from;
        root = from;
    }
    m->regions[root].level = level;
    take_views(m, n, root);
}

static ht_status mark_segment(marker *m, const ht_segment *s)
{
    size_t capacity = s->node_count + 1;
    m->s = s;
    m->effect = 0;
    m->regions = calloc(capacity, sizeof *m->regions);
    m->waits = calloc(capacity, sizeof *m->waits);
    m->stack = calloc(capacity, sizeof *m->stack);
    ht_status status = HT_OK;
    if (m->regions && m->waits && m->stack) {
        look_around(m);
        for (uint32_t at = 0; at < s->node_count; at++)
            if (!m->waits[at]) put_node(m, at);
        uint32_t count = 0;
        for (uint32_t at = 0; at < s->node_count; at++) {
            region *r = &m->regions[root_of(m, at)];
            if (r->members > 1 && !r->number) r->number = ++count;
            m->g->nodes[s->nodes[at]].region = r->number;
        }
    } else {
        status = ht_fail(m->g->ctx, HT_ENOMEM, "regions: out of memory");
    }
    free(m->regions);
    free(m->waits);
    free(m->stack);
    return status;
}

static ht_status regions_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    marker m = {.g = g};
    m.place = calloc(g->value_count, sizeof *m.place);
    m.uses = calloc(g->value_count, sizeof *m.uses);
    m.user = calloc(g->value_count, sizeof *m.user);
    ht_status status = m.place && m.uses && m.user ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "regions: out of memory");
    for (size_t i = 0; i < g->segment_count && status == HT_OK; i++) status = mark_segment(&m, &g->segments[i]);
    free(m.place);
    free(m.uses);
    free(m.user);
    return status;
}

const ht_pass ht_pass_regions = {
    .name = "regions",
    .help = "mark what is computed together",
    .system = true,
    .keeps_step = true,
    .run = regions_run,
};
