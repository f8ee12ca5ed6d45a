/* Buffer assignment: where the values of a segment live. In state when their store can happen where they are made, in
 * an output's slot, in the bytes of an input that dies (in-place), or in transient memory by lifetime. */
#include <stdlib.h>
#include <string.h>

#include "plan/planning.h"

/* A read of state memory that this segment also stores into. */
typedef struct access {
    uint32_t root, value, place;
    int64_t first, end;
} access;

enum { MOST_TRIES = 32 }; /* to assemble concats */

typedef struct assignment {
    const planning *p;
    const ht_graph *g;
    const ht_segment *s;
    const ht_target *target;
    const ht_kernel *const *kernels;
    const ht_groups *groups;
    ht_buffer_assignment *r;
    ht_arena *arena;
    uint32_t *last;  /* liveness */
    int32_t *buffer; /* by value id: index into r->buffers of its space + 1; 0: elsewhere */
    uint32_t *made;  /* by value id: time of its node */
    bool *taken;     /* by value id: a result has taken over its bytes */
    bool canary;
    /* State that is stored here, by root value id. */
    bool *root_aliased;       /* two different values of it overlap: judge by bytes */
    uint32_t *assembled_last; /* by value id of an assembled concat: last read of it or of what is made in it */
    bool *allowed;            /* by position: a concat that may be assembled */
    size_t concat_count;
    int tries;
    bool refused;                       /* the last try took more memory */
    int64_t bytes;                      /* of the last try, in all spaces */
    int32_t exchanging[HT_SPACE_COUNT]; /* the buffer that exchanges under way share as workspace; 0: none */
} assignment;

/* The result of a done has the bytes of what its start makes. */
static ht_val started(const ht_graph *g, ht_val v)
{
    const ht_node *n = ht_producer(g, v);
    return n && n->op->start ? ht_node_in(g, n, 0) : v;
}

/* ---- stores in place ---- */

static void span(const ht_graph *g, ht_val v, access *a)
{
    const ht_value *value = ht_value_of(g, v);
    *a = (access){.root = ht_root(g, v).id, .value = v.id, .first = value->base.id ? value->offset : 0};
    a->end = a->first + 1;
    for (int i = 0; i < value->type.rank; i++) a->end += (value->type.dim[i] - 1) * value->type.stride[i];
    if (!ht_type_elems(&value->type)) a->end = a->first;
}

static int by_span(const void *a, const void *b)
{
    const access *x = a, *y = b;
    if (x->root != y->root) return x->root < y->root ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static size_t collect_accesses(assignment *c, access *list)
{
    size_t n = 0;
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *node = &c->g->nodes[c->s->nodes[at]];
        if (ht_plan_is_view(c->g, node)) continue; /* its readers count */
        for (size_t i = 0; i < node->n_in; i++) {
            ht_val v = ht_node_in(c->g, node, i);
            if (!v.id || ht_value_of(c->g, ht_root(c->g, v))->kind != HT_VALUE_STATE) continue;
            span(c->g, v, &list[n]);
            list[n++].place = at;
        }
    }
    return n;
}

/* Finds roots of which two different values overlap; everywhere else a value's own reads are all that matter. */
static bool survey_state(assignment *c)
{
    size_t operands = 1;
    for (size_t at = 0; at < c->s->node_count; at++) operands += c->g->nodes[c->s->nodes[at]].n_in;
    access *list = malloc(operands * sizeof *list);
    if (!list) return false;
    size_t n = collect_accesses(c, list);
    qsort(list, n, sizeof *list, by_span);
    for (size_t i = 1; i < n; i++) {
        const access *a = &list[i - 1], *b = &list[i];
        if (a->root == b->root && a->value != b->value && b->first < a->end) c->root_aliased[a->root] = true;
    }
    free(list);
    return true;
}

/* The number that the nodes have which run together with this one: of a row block, of a group; 0: there are none. */
static uint32_t group_at(const assignment *c, uint32_t at)
{
    uint32_t id = c->s->nodes[at];
    return c->groups->row_block[id] ? c->groups->row_block[id] : c->groups->of_node[id];
}

/* The nodes of a group or row block up to time `at`, by position: [*first, at]. */
static void group_of(const assignment *c, uint32_t at, uint32_t *first)
{
    uint32_t group = group_at(c, at);
    for (*first = at; group && *first > 0 && group_at(c, *first - 1) == group;) --*first;
}

/* Does a node of its group read x after `producer` has run? Then a result of `producer` must not lie over x. Where the
 * producer does not go element by element (a reduction), the others of its group are never done before it. */
static bool read_later(const assignment *c, const ht_node *producer, uint32_t at, ht_val x)
{
    uint32_t first;
    bool later = !(producer->op->flags & HT_OP_INPLACE);
    group_of(c, at, &first);
    for (uint32_t p = first; p <= at; p++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[p]];
        for (size_t i = 0; later && i < n->n_in; i++)
            if (ht_node_in(c->g, n, i).id == x.id) return true;
        later |= n == producer;
    }
    return false;
}

/* Does the product of the group read x, or what lies over it? It needs all of it, until the last block. */
static bool read_by_product(const assignment *c, uint32_t at, ht_val x)
{
    uint32_t first;
    group_of(c, at, &first);
    uint32_t id = c->s->nodes[first];
    const ht_node *n = &c->g->nodes[id];
    if (!c->groups->of_node[id] || c->kernels[id]->elementwise) return false;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val other = ht_node_in(c->g, n, i);
        if (other.id && ht_root(c->g, other).id == ht_root(c->g, x).id) return true;
    }
    return false;
}

/* Whose buffer holds the bytes of v. */
static ht_val holder_of(const assignment *c, ht_val v)
{
    int64_t offset;
    return ht_plan_assembled_in(c->r, ht_root(c->g, v), &offset);
}

/* Does v use bytes of x, whose holder is given? Views of a state may have nothing in common. */
static bool shares_bytes(const assignment *c, ht_val v, ht_val x, uint32_t holder)
{
    access a, b;
    if (!v.id || holder_of(c, v).id != holder) return false;
    if (ht_value_of(c->g, ht_root(c->g, x))->kind != HT_VALUE_STATE) return true;
    span(c->g, v, &a);
    span(c->g, x, &b);
    return a.first < b.end && b.first < a.end;
}

/* Until when a producer that writes over x, at time `at`, still reads it. A start's done names x, too, but only to
 * keep its bytes; where it is the next to do so, they are the start's. */
static uint32_t read_until(const assignment *c, const ht_node *producer, uint32_t at, ht_val x)
{
    if (!producer->op->done || !(producer->op->flags & HT_OP_INPLACE)) return at;
    uint32_t holder = holder_of(c, x).id;
    for (uint32_t p = at + 1; p < c->s->node_count; p++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[p]];
        if (ht_start_of(c->g, n) == producer) return c->r->time[p];
        for (size_t i = 0; i < n->n_in; i++)
            if (shares_bytes(c, ht_node_in(c->g, n, i), x, holder)) return at;
    }
    return at;
}

/* Does an exchange that makes a value read its operands, or a done name them? Both are as they should be: an exchange in
 * place reads no byte that it has written. */
static bool is_exchange_of(const assignment *c, const ht_node *n, const ht_node *producer)
{
    return ht_start_of(c->g, n) == producer || (n == producer && (n->op->flags & HT_OP_COLLECTIVE));
}

/* Does a node read bytes of `state` behind time `made`, or by other elements at that time? */
static bool read_behind(const assignment *c, ht_val state, uint32_t made, const ht_node *producer)
{
    uint32_t root = ht_root(c->g, state).id;
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[at]];
        if (c->r->time[at] < made || ht_plan_is_view(c->g, n) || is_exchange_of(c, n, producer)) continue;
        for (size_t i = n->op == &ht_op_store; i < n->n_in; i++) {
            ht_val v = ht_node_in(c->g, n, i);
            bool own = v.id == state.id && c->r->time[at] == made; /* judged by read_later and read_by_product */
            if (v.id && !own && ht_root(c->g, v).id == root && shares_bytes(c, v, state, holder_of(c, state).id))
                return true;
        }
    }
    return false;
}

/* May the producer of v write straight into `state`? Only if nothing reads the old state from then on; the producer
 * itself may read it where it reads element i for element i. */
static bool can_store_in_place(const assignment *c, ht_val state, ht_val v)
{
    const ht_graph *g = c->g;
    const ht_node *producer = ht_producer(g, v);
    if (!producer || ht_value_of(g, v)->base.id || c->r->value[v.id].area != HT_AREA_NONE) return false;
    if (!ht_type_contiguous(ht_type_of(g, state)) || !ht_type_contiguous(ht_type_of(g, v))) return false;
    uint32_t root = ht_root(g, state).id, made = c->made[v.id];
    if (c->root_aliased[root] && read_behind(c, state, made, producer)) return false;
    if (read_later(c, producer, made, state) || read_by_product(c, made, state)) return false;
    /* The store itself counts as a use: reads are what comes before it. */
    return c->last[state.id] == UINT32_MAX || c->last[state.id] <= read_until(c, producer, made, state);
}

/* Positions of the last read of each stored state, its store left out. */
static void forget_stores(assignment *c)
{
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *node = &c->g->nodes[c->s->nodes[at]];
        if (node->op == &ht_op_store) c->last[ht_node_in(c->g, node, 0).id] = UINT32_MAX;
    }
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *node = &c->g->nodes[c->s->nodes[at]];
        for (size_t i = node->op == &ht_op_store; i < node->n_in; i++) {
            ht_val v = ht_node_in(c->g, node, i);
            if (ht_state_of(c->g, v)) c->last[v.id] = c->r->time[at];
        }
    }
}

static bool assign_stores(assignment *c)
{
    if (!survey_state(c)) return false;
    forget_stores(c);
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *node = &c->g->nodes[c->s->nodes[at]];
        if (node->op != &ht_op_store) continue;
        ht_val state = ht_node_in(c->g, node, 0), v = started(c->g, ht_node_in(c->g, node, 1));
        c->r->stored[at] = can_store_in_place(c, state, v);
        c->r->guarded[state.id] = !ht_value_of(c->g, state)->base.id;
        if (!c->r->stored[at]) continue;
        c->r->value[v.id] = c->r->value[state.id];
        c->r->guarded[v.id] = c->r->guarded[state.id];
    }
    return true;
}

/* An output's value is made in its slot, unless it must be elsewhere or is two outputs. */
static void assign_outputs(assignment *c)
{
    for (size_t i = 0; i < c->s->output_count; i++) {
        ht_val v = started(c->g, c->s->outputs[i].value);
        const ht_value *value = ht_value_of(c->g, v);
        c->r->output[i] = value->kind == HT_VALUE_RESULT && !value->base.id && c->r->value[v.id].area == HT_AREA_NONE &&
                          ht_type_contiguous(&value->type);
        if (!c->r->output[i]) continue;
        c->r->value[v.id] = c->r->slot[i];
        c->r->guarded[v.id] = true;
    }
}

/* ---- transients ---- */

static ht_interval *buffer_of(const assignment *c, ht_val v)
{
    return &c->r->buffers[ht_type_of(c->g, v)->space].items[c->buffer[v.id] - 1];
}

static bool add_buffer(assignment *c, ht_space space, uint32_t first, uint32_t last, int64_t bytes, int32_t *index)
{
    size_t at = c->r->buffers[space].count;
    if (!ht_grow((void **)&c->r->buffers[space].items, &c->r->buffers[space].capacity, at + 1, sizeof(ht_interval)))
        return false;
    c->r->buffers[space].items[at] =
        (ht_interval){.first = first, .last = last, .bytes = bytes + (c->canary ? HT_CANARY_BYTES : 0)};
    *index = (int32_t)++c->r->buffers[space].count;
    return true;
}

/* May a result take over the bytes of x, which the group reads up to position `at`? Not if the group also reads it
 * through a view, or by what it is assembled of. What a done has waited for is its start's. */
static bool can_take(const assignment *c, ht_val x, ht_val y, const ht_node *producer, uint32_t at)
{
    const ht_graph *g = c->g;
    ht_val made = started(g, x);
    if (!x.id || !c->buffer[made.id] || ht_value_of(g, made)->base.id || c->taken[made.id]) return false;
    if (c->made[x.id] == at || buffer_of(c, made)->last != read_until(c, producer, at, x)) return false;
    if ((made.id == x.id && ht_value_of(g, x)->base.id) || !ht_type_same(ht_type_of(g, x), ht_type_of(g, y)))
        return false;
    if (!ht_type_dense(ht_type_of(g, x)) || !ht_type_same_strides(ht_type_of(g, x), ht_type_of(g, y))) return false;
    uint32_t first;
    group_of(c, at, &first);
    for (uint32_t p = first; p <= at; p++) {
        const ht_node *n = &g->nodes[c->s->nodes[p]];
        for (size_t k = 0; k < n->n_in; k++) {
            ht_val other = ht_node_in(g, n, k);
            if (other.id && other.id != x.id && holder_of(c, other).id == made.id) return false;
        }
    }
    return !read_later(c, producer, at, x) && !read_by_product(c, at, x);
}

/* What has a buffer that result y may take over, of which the group reads the last, or none. */
static ht_val reusable_input(const assignment *c, const ht_node *producer, ht_val y, uint32_t at)
{
    uint32_t first;
    if (!(producer->op->flags & HT_OP_INPLACE)) return HT_NONE;
    group_of(c, at, &first);
    for (uint32_t p = first; p <= at; p++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[p]];
        for (size_t i = 0; i < n->n_in; i++)
            if (can_take(c, ht_node_in(c->g, n, i), y, producer, at)) return started(c->g, ht_node_in(c->g, n, i));
    }
    return HT_NONE;
}

static uint32_t last_read(const assignment *c, ht_val v, uint32_t made)
{
    if (c->r->assembled[v.id]) return c->assembled_last[v.id];
    return c->last[v.id] == UINT32_MAX ? made : c->last[v.id];
}

static int64_t extent_bytes(const ht_type *type)
{
    return ht_type_extent(type) * (int64_t)ht_dtype_bytes(type->dtype);
}

/* A buffer of its own from time `at` on. */
static bool assign_buffer(assignment *c, ht_val y, uint32_t at)
{
    const ht_type *type = ht_type_of(c->g, y);
    uint32_t last = last_read(c, y, at);
    c->r->guarded[y.id] = extent_bytes(type) == ht_type_bytes(type);
    if (!add_buffer(c, type->space, at, last, extent_bytes(type), &c->buffer[y.id])) return false;
    c->r->life[y.id] = (ht_interval){at, last, buffer_of(c, y)->bytes, 0};
    return true;
}

/* In the buffer of a concat, which begins with the first of its operands. */
static bool assign_within(assignment *c, ht_val y, uint32_t at)
{
    int64_t offset;
    ht_val whole = ht_plan_assembled_in(c->r, y, &offset);
    c->r->guarded[y.id] = ht_type_contiguous(ht_type_of(c->g, y)) &&
                          offset + ht_type_bytes(ht_type_of(c->g, y)) == ht_type_bytes(ht_type_of(c->g, whole));
    return c->buffer[whole.id] || assign_buffer(c, whole, at);
}

static bool assign_result(assignment *c, const ht_node *n, ht_val y, uint32_t at)
{
    if (ht_value_of(c->g, y)->base.id || c->r->value[y.id].area != HT_AREA_NONE || c->groups->inside[y.id]) return true;
    if (c->r->within[y.id]) return assign_within(c, y, at);
    if (c->buffer[y.id]) return true; /* its operands are there */
    ht_val x = reusable_input(c, n, y, at);
    if (!x.id) return assign_buffer(c, y, at);
    c->taken[x.id] = true;
    c->r->guarded[y.id] = true;
    c->r->life[x.id].last = at - 1;
    c->buffer[y.id] = c->buffer[x.id];
    buffer_of(c, y)->last = last_read(c, y, at);
    c->r->life[y.id] = (ht_interval){at, buffer_of(c, y)->last, buffer_of(c, y)->bytes, 0};
    return true;
}

/* What a start works with is in use until its done. */
static uint32_t workspace_end(const assignment *c, const ht_node *n, uint32_t at)
{
    if (!n->op->done) return c->r->time[at];
    while (ht_start_of(c->g, &c->g->nodes[c->s->nodes[at]]) != n) at++;
    return c->r->time[at];
}

/* Exchanges run one after the other on their queue: those that are under way at once share a workspace. */
static bool share_workspace(assignment *c, const ht_node *n, ht_space space, uint32_t at, uint32_t last, int64_t bytes,
                            int32_t *index)
{
    if (!(n->op->flags & HT_OP_COLLECTIVE)) return add_buffer(c, space, at, last, bytes, index);
    ht_interval *shared = c->exchanging[space] ? &c->r->buffers[space].items[c->exchanging[space] - 1] : NULL;
    if (!shared || shared->last < at) {
        if (!add_buffer(c, space, at, last, bytes, index)) return false;
        c->exchanging[space] = *index;
        return true;
    }
    int64_t with_canary = bytes + (c->canary ? HT_CANARY_BYTES : 0);
    if (shared->last < last) shared->last = last;
    if (shared->bytes < with_canary) shared->bytes = with_canary;
    *index = c->exchanging[space];
    return true;
}

static bool assign_transients(assignment *c)
{
    memset(c->exchanging, 0, sizeof c->exchanging);
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        uint32_t id = c->s->nodes[at];
        const ht_node *n = &c->g->nodes[id];
        if (n->op == &ht_op_store || ht_plan_is_view(c->g, n)) continue;
        for (size_t i = 0; i < n->n_out; i++)
            if (!assign_result(c, n, ht_node_out(n, i), c->r->time[at])) return false;
        const ht_kernel *kernel = c->kernels[id];
        if (!kernel->workspace || ht_plan_makes_nothing(c->g, n) || c->r->assembled[n->out]) continue;
        ht_call_storage storage;
        const ht_call *call = ht_node_call(c->g, n, c->arena, &storage);
        int64_t bytes = call ? kernel->workspace(call, c->target) : -1;
        ht_space space = ht_type_of(c->g, ht_node_out(n, 0))->space;
        int32_t index = 0;
        uint32_t last = workspace_end(c, n, at);
        if (bytes < 0 || (bytes > 0 && !share_workspace(c, n, space, c->r->time[at], last, bytes, &index)))
            return false;
        c->r->workspace[at] = (ht_place){space, index ? HT_AREA_TRANSIENT : HT_AREA_NONE, index - 1};
    }
    return true;
}

static int64_t aligned_bytes(const assignment *c, ht_space space, const ht_interval *buffer)
{
    return (buffer->bytes + c->r->align[space] - 1) / c->r->align[space] * c->r->align[space];
}

/* How much of what is alive in a space at its fullest time is workspace. Outputs live until behind the last node. */
static bool count_workspace(assignment *c, ht_space space)
{
    uint32_t fullest = 0;
    int64_t *alive = calloc(c->s->node_count + 2, sizeof *alive); /* changes, by time */
    if (!alive) return false;
    const ht_interval *buffers = c->r->buffers[space].items;
    for (size_t i = 0; i < c->r->buffers[space].count; i++) {
        const ht_interval *b = &buffers[i];
        alive[b->first] += aligned_bytes(c, space, b);
        alive[b->last + 1] -= aligned_bytes(c, space, b);
    }
    int64_t most = 0, now = 0;
    for (uint32_t at = 0; at <= c->s->node_count; at++) {
        now += alive[at];
        if (now <= most) continue;
        most = now;
        fullest = at;
    }
    int64_t shared = -1; /* the workspace of the last exchange, which counts once */
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_place *workspace = &c->r->workspace[at];
        if (workspace->area != HT_AREA_TRANSIENT || workspace->space != space || workspace->offset == shared) continue;
        const ht_interval *b = &buffers[workspace->offset];
        if (c->g->nodes[c->s->nodes[at]].op->flags & HT_OP_COLLECTIVE) shared = workspace->offset;
        if (b->first <= fullest && fullest <= b->last) c->r->workspace_bytes[space] += aligned_bytes(c, space, b);
    }
    free(alive);
    return true;
}

/* Buffer numbers become offsets; views follow their roots. */
static void assign_offsets(assignment *c)
{
    const ht_graph *g = c->g;
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &g->nodes[c->s->nodes[at]];
        ht_place *workspace = &c->r->workspace[at];
        if (workspace->area == HT_AREA_TRANSIENT)
            workspace->offset = c->r->buffers[workspace->space].items[workspace->offset].offset;
        for (size_t i = 0; i < n->n_out; i++) {
            ht_val y = ht_node_out(n, i), base = ht_value_of(g, y)->base;
            int64_t offset;
            ht_val whole = ht_plan_assembled_in(c->r, y, &offset);
            if (c->buffer[whole.id])
                c->r->value[y.id] =
                    (ht_place){ht_type_of(g, y)->space, HT_AREA_TRANSIENT, buffer_of(c, whole)->offset + offset};
            if (!base.id) continue;
            c->r->value[y.id] = c->r->value[base.id];
            c->r->value[y.id].offset += ht_value_of(g, y)->offset * (int64_t)ht_dtype_bytes(ht_type_of(g, y)->dtype);
        }
    }
}

/* ---- assembled transients ---- */

/* An operand is made before its concat, so inner concats come before outer ones. */
static void set_assembled_last(assignment *c)
{
    for (size_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[at]];
        if (!n->n_out || !c->r->assembled[n->out]) continue;
        uint32_t last = c->last[n->out] == UINT32_MAX ? c->made[n->out] : c->last[n->out];
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val x = ht_root(c->g, ht_node_in(c->g, n, i));
            if (c->r->within[x.id] != n->out) continue;
            uint32_t read = last_read(c, x, last);
            if (read > last) last = read;
        }
        c->assembled_last[n->out] = last;
    }
}

/* Buffers with the concats that are allowed, laid out; what another try left is forgotten. */
static ht_status lay_out(assignment *c)
{
    memset(c->buffer, 0, c->g->value_count * sizeof *c->buffer);
    memset(c->taken, 0, c->g->value_count * sizeof *c->taken);
    memset(c->r->life, 0, c->g->value_count * sizeof *c->r->life);
    for (int space = 0; space < HT_SPACE_COUNT; space++) c->r->buffers[space].count = 0;
    bool ok = !c->concat_count || ht_plan_assemble(c->p, c->s, c->allowed, c->arena, c->r);
    if (ok) set_assembled_last(c);
    if (!ok || !assign_transients(c))
        HT_FAIL(c->g->ctx, HT_ENOMEM, "out of memory while planning segment %s", c->s->name);
    c->bytes = 0;
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        HT_TRY(ht_memory_assign(c->g->ctx, c->r->buffers[space].items, c->r->buffers[space].count, c->r->align[space],
                                &c->r->bytes[space], &c->r->live_bytes[space]));
        c->bytes += c->r->bytes[space];
    }
    return HT_OK;
}

/* Assembles some concats more if that takes no more memory; else those of one half that do not, then of the other. */
static ht_status try_concats(assignment *c, const uint32_t *concats, size_t count, int64_t *best)
{
    if (c->tries++ == MOST_TRIES) return HT_OK;
    for (size_t i = 0; i < count; i++) c->allowed[concats[i]] = true;
    HT_TRY(lay_out(c));
    c->refused = c->bytes > *best;
    if (!c->refused) {
        *best = c->bytes;
        return HT_OK;
    }
    for (size_t i = 0; i < count; i++) c->allowed[concats[i]] = false;
    if (count == 1) return HT_OK;
    HT_TRY(try_concats(c, concats, count / 2, best));
    return try_concats(c, concats + count / 2, count - count / 2, best);
}

/* The buffer of an assembled concat begins with its first operand: over a peak that can take more than a copy. */
static ht_status lay_out_smallest(assignment *c)
{
    uint32_t *concats = HT_NEW(c->arena, uint32_t, c->s->node_count);
    c->allowed = HT_NEW(c->arena, bool, c->s->node_count);
    if (!concats || !c->allowed) HT_FAIL(c->g->ctx, HT_ENOMEM, "out of memory while planning segment %s", c->s->name);
    HT_TRY(lay_out(c));
    if (c->p->request->no_fusion) return HT_OK; /* every node is an instruction of its own */
    for (uint32_t at = 0; at < c->s->node_count; at++)
        if (c->g->nodes[c->s->nodes[at]].op->part) concats[c->concat_count++] = at;
    if (!c->concat_count) return HT_OK;
    int64_t best = c->bytes;
    HT_TRY(try_concats(c, concats, c->concat_count, &best));
    return c->refused ? lay_out(c) : HT_OK;
}

/* When nodes run, when values are made and last read. */
static void set_times(assignment *c)
{
    const ht_graph *g = c->g;
    for (uint32_t at = (uint32_t)c->s->node_count; at-- > 0;) {
        uint32_t group = group_at(c, at);
        bool more = group && at + 1 < c->s->node_count && group_at(c, at + 1) == group;
        c->r->time[at] = more ? c->r->time[at + 1] : at;
        const ht_node *n = &g->nodes[c->s->nodes[at]];
        for (size_t i = 0; i < n->n_out; i++) c->made[ht_node_out(n, i).id] = c->r->time[at];
    }
    for (size_t v = 0; v < g->value_count; v++)
        if (c->last[v] < c->s->node_count) c->last[v] = c->r->time[c->last[v]];
}

ht_status ht_plan_assign_buffers(const planning *p, uint32_t segment, ht_buffer_assignment *r)
{
    const ht_graph *g = p->g;
    assignment c = {
        .p = p,
        .groups = &p->groups,
        .g = g,
        .s = &g->segments[segment],
        .target = &p->plan->target,
        .kernels = p->kernels,
        .r = r,
        .canary = p->plan->canary,
        .arena = ht_arena_create(),
        .last = ht_liveness(g, segment),
        .buffer = calloc(g->value_count, sizeof *c.buffer),
        .made = calloc(g->value_count, sizeof *c.made),
        .taken = calloc(g->value_count, sizeof *c.taken),
        .root_aliased = calloc(g->value_count, sizeof *c.root_aliased),
        .assembled_last = calloc(g->value_count, sizeof *c.assembled_last),
    };
    bool ok = c.arena && c.last && c.buffer && c.made && c.taken && c.root_aliased && c.assembled_last;
    if (ok) set_times(&c);
    if (ok) assign_outputs(&c);
    ok = ok && assign_stores(&c);
    ht_status status = ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory while planning segment %s", c.s->name);
    if (status == HT_OK) status = lay_out_smallest(&c);
    for (int space = 0; space < HT_SPACE_COUNT && status == HT_OK; space++)
        if (!count_workspace(&c, (ht_space)space))
            status = ht_fail(g->ctx, HT_ENOMEM, "out of memory while planning segment %s", c.s->name);
    if (status == HT_OK) assign_offsets(&c);
    ht_arena_free(c.arena);
    free(c.last);
    free(c.buffer);
    free(c.made);
    free(c.taken);
    free(c.root_aliased);
    free(c.assembled_last);
    return status;
}
