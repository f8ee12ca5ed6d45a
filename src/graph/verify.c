/* The verifier: all rules of the IR, in the order of docs/ir.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/namemap.h"

/* One store of a segment: the elements of the state that it replaces, and its position. */
typedef struct store_span {
    uint32_t root;
    int64_t first, end;
    uint32_t place;
} store_span;

typedef struct verifier {
    ht_graph *g;
    const ht_segment *s;
    ht_arena *arena;
    uint32_t *defined; /* by value id: position + 2 in its segment; inputs 1; 0: not seen yet */
    uint32_t *home;    /* by value id: the segment that defines it */
    store_span *stores;
    size_t store_count;
    bool *stored_root; /* by value id */
    bool *ended;       /* by value id, of results of a start: its done is there */
    bool pairs;        /* the segment has starts or dones */
} verifier;

static const char *value_text(const ht_graph *g, ht_val v, char buffer[64])
{
    const ht_value *value = ht_value_of(g, v);
    if (value->name)
        snprintf(buffer, 64, "%%%.60s", value->name);
    else
        snprintf(buffer, 64, "value %u", v.id);
    return buffer;
}

/* No two elements at one place: each axis steps over all that shorter steps reach. */
static bool is_apart(const ht_type *type)
{
    for (int i = 0; i < type->rank; i++) {
        int64_t reach = 1;
        for (int k = 0; k < type->rank; k++)
            if (k != i && (type->stride[k] < type->stride[i] || (type->stride[k] == type->stride[i] && k > i)))
                reach += (type->dim[k] - 1) * type->stride[k];
        if (type->dim[i] > 1 && type->stride[i] < reach) return false;
    }
    return true;
}

/* A result may lie in another order, or with gaps, once the planner has placed it. */
static ht_status check_order(ht_graph *g, ht_val v)
{
    char name[64];
    const ht_value *value = ht_value_of(g, v);
    if (ht_type_contiguous(&value->type) || (value->kind == HT_VALUE_RESULT && is_apart(&value->type))) return HT_OK;
    HT_FAIL(g->ctx, HT_EVERIFY, "%s has strides but is no view", value_text(g, v, name));
}

static ht_status check_view(ht_graph *g, ht_val v)
{
    char name[64];
    const ht_value *value = ht_value_of(g, v);
    if (!value->base.id) return check_order(g, v);
    const ht_value *base = ht_value_of(g, value->base);
    if (value->base.id == v.id || base->base.id)
        HT_FAIL(g->ctx, HT_EVERIFY, "%s: a view's base owns its bytes and is no view", value_text(g, v, name));
    if (base->type.dtype != value->type.dtype || base->type.space != value->type.space)
        HT_FAIL(g->ctx, HT_EVERIFY, "%s: a view has its base's number type and memory", value_text(g, v, name));
    if (value->kind == HT_VALUE_STATE && base->kind != HT_VALUE_STATE)
        HT_FAIL(g->ctx, HT_EVERIFY, "%s: state can only be a view of state", value_text(g, v, name));
    int64_t last = value->offset, elems = ht_type_extent(&base->type);
    bool good = value->offset >= 0 && value->offset <= elems;
    for (int i = 0; i < value->type.rank && good; i++) {
        int64_t step, count = value->type.dim[i] > 0 ? value->type.dim[i] - 1 : 0;
        good = value->type.stride[i] >= 0 && !__builtin_mul_overflow(value->type.stride[i], count, &step) &&
               !__builtin_add_overflow(last, step, &last);
    }
    if (!good || (ht_type_elems(&value->type) > 0 && last >= elems))
        HT_FAIL(g->ctx, HT_EVERIFY, "%s: the view leaves its base of %lld elements", value_text(g, v, name),
                (long long)elems);
    return HT_OK;
}

/* ---- nodes ---- */

/* In this segment, so far. */
static bool is_defined(const verifier *c, ht_val v)
{
    return c->defined[v.id] && c->home[v.id] == (uint32_t)(c->s - c->g->segments);
}

static void define(verifier *c, ht_val v, uint32_t position)
{
    c->defined[v.id] = position;
    c->home[v.id] = (uint32_t)(c->s - c->g->segments);
}

static ht_status check_use(const verifier *c, const ht_node *n, ht_val v, uint32_t place)
{
    char name[64];
    ht_graph *g = c->g;
    if (v.id >= g->value_count) HT_FAIL(g->ctx, HT_EVERIFY, "%s: input is no value of the graph", n->op->name);
    if (ht_value_of(g, v)->kind == HT_VALUE_STATE) return HT_OK;
    if (!is_defined(c, v) || c->defined[v.id] > place + 1)
        HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s uses %s before it is defined there", c->s->name, n->op->name,
                value_text(g, v, name));
    return HT_OK;
}

/* Runs shape inference again: a pass may have changed an input's type. */
static ht_status check_types(const verifier *c, const ht_node *n)
{
    ht_graph *g = c->g;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, n, c->arena, &storage);
    if (!call) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory while verifying");
    ht_type types[8];
    for (size_t i = 0; i < n->n_out; i++) types[i] = *call->out[i];
    ht_status status = n->op->infer(g->ctx, call, types);
    if (status != HT_OK) {
        char message[sizeof g->ctx->message];
        memcpy(message, g->ctx->message, sizeof message);
        HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s: %s", c->s->name, n->op->name, message);
    }
    bool open = n->op->prec == HT_PREC_DOT || n->op->prec == HT_PREC_REDUCE || n->op->prec == HT_PREC_POINT;
    for (size_t i = 0; i < n->n_out; i++) {
        const ht_type *is = call->out[i];
        bool dtype =
            is->dtype == types[i].dtype || (open && ht_dtype_is_float(is->dtype) && ht_dtype_is_float(types[i].dtype));
        if (!dtype || !ht_type_same_shape(is, &types[i])) {
            ht_type_text a, b;
            HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s: result %zu is %s, the rule says %s", c->s->name, n->op->name,
                    i, ht_type_str(is, &a), ht_type_str(&types[i], &b));
        }
    }
    return HT_OK;
}

/* A node computes in one space; only copies cross. */
static ht_status check_space(const verifier *c, const ht_node *n)
{
    char a[64], b[64];
    ht_graph *g = c->g;
    ht_val first = HT_NONE;
    if (n->op->flags & HT_OP_CROSSES) return HT_OK;
    for (size_t i = 0; i < n->n_in + n->n_out; i++) {
        ht_val v = i < n->n_in ? ht_node_in(g, n, i) : ht_node_out(n, i - n->n_in);
        if (!first.id) first = v;
        if (!v.id || ht_type_of(g, v)->space == ht_type_of(g, first)->space) continue;
        HT_FAIL(g->ctx, HT_EVERIFY,
                "segment %s: %s computes in one space, but %s is @%s and %s is @%s; copy crosses spaces", c->s->name,
                n->op->name, value_text(g, first, a), ht_space_name(ht_type_of(g, first)->space), value_text(g, v, b),
                ht_space_name(ht_type_of(g, v)->space));
    }
    return HT_OK;
}

static ht_status check_node(verifier *c, uint32_t id, uint32_t place)
{
    ht_graph *g = c->g;
    if (id == 0 || id >= g->node_count) HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: no such node", c->s->name);
    const ht_node *n = &g->nodes[id];
    if (n->n_in < (uint32_t)n->op->min_in || n->n_in > (uint32_t)n->op->max_in || n->n_out != (uint32_t)n->op->n_out)
        HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s has %u inputs and %u results", c->s->name, n->op->name, n->n_in,
                n->n_out);
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        if (v.id) HT_TRY(check_use(c, n, v, place));
    }
    HT_TRY(check_types(c, n));
    HT_TRY(check_space(c, n));
    c->pairs |= n->op->start || n->op->done;
    for (size_t i = 0; i < n->n_out; i++) {
        ht_val v = ht_node_out(n, i);
        if (c->defined[v.id]) HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s stands there twice", c->s->name, n->op->name);
        if (ht_value_of(g, v)->base.id) HT_TRY(check_use(c, n, ht_value_of(g, v)->base, place));
        HT_TRY(check_view(g, v));
        define(c, v, place + 2);
    }
    return HT_OK;
}

/* ---- what ranks share ---- */

static ht_status check_shared(const ht_graph *g, const ht_state *s)
{
    const ht_type *own = ht_type_of(g, s->value);
    const char *name = ht_value_of(g, s->value)->name;
    if (!s->part && !s->cut.ranks) return HT_OK;
    if (s->whole.dtype != own->dtype)
        HT_FAIL(g->ctx, HT_EVERIFY, "%%%s is of another number type than the tensor that ranks share", name);
    if (s->cut.ranks && !ht_cut_fits(&s->cut, &s->whole))
        HT_FAIL(g->ctx, HT_EVERIFY, "%%%s: the tensor that ranks share is not cut so", name);
    ht_type piece = ht_cut_type(&s->cut, &s->whole);
    int64_t elems = ht_type_elems(&piece);
    bool good = s->part ? s->first >= 0 && s->first <= elems && ht_type_elems(own) <= elems - s->first
                        : ht_type_same_shape(&piece, own);
    if (!good) HT_FAIL(g->ctx, HT_EVERIFY, "%%%s is no part of the tensor that ranks share", name);
    return HT_OK;
}

/* ---- stores ---- */

static void span_of(const ht_graph *g, ht_val v, store_span *span)
{
    const ht_value *value = ht_value_of(g, v);
    span->root = ht_root(g, v).id;
    span->first = value->base.id ? value->offset : 0;
    span->end = span->first;
    if (!ht_type_elems(&value->type)) return;
    span->end++;
    for (int i = 0; i < value->type.rank; i++) span->end += (value->type.dim[i] - 1) * value->type.stride[i];
}

static int by_place(const void *a, const void *b)
{
    const store_span *x = a, *y = b;
    if (x->root != y->root) return x->root < y->root ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static ht_status collect_stores(verifier *c)
{
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[at]];
        if (n->op != &ht_op_store) continue;
        ht_val state = ht_node_in(c->g, n, 0);
        if (!ht_state_of(c->g, state)) HT_FAIL(c->g->ctx, HT_EVERIFY, "segment %s: store into no state", c->s->name);
        store_span *span = &c->stores[c->store_count++];
        span_of(c->g, state, span);
        span->place = at;
        c->stored_root[span->root] = true;
    }
    qsort(c->stores, c->store_count, sizeof *c->stores, by_place);
    for (size_t i = 1; i < c->store_count; i++) {
        const store_span *a = &c->stores[i - 1], *b = &c->stores[i];
        if (a->root == b->root && b->first < a->end)
            HT_FAIL(c->g->ctx, HT_EVERIFY, "segment %s: %%%s is stored twice", c->s->name, c->g->values[a->root].name);
    }
    return HT_OK;
}

/* Stores of one root do not overlap, so they are sorted by their ends too. */
static ht_status check_read(const verifier *c, ht_val v, uint32_t place)
{
    store_span read;
    char name[64];
    if (!v.id || !c->stored_root[ht_root(c->g, v).id]) return HT_OK;
    span_of(c->g, v, &read);
    size_t low = 0, high = c->store_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const store_span *s = &c->stores[middle];
        if (s->root < read.root || (s->root == read.root && s->end <= read.first))
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < c->store_count && c->stores[low].root == read.root && c->stores[low].first < read.end; low++)
        if (c->stores[low].place < place)
            HT_FAIL(c->g->ctx, HT_EVERIFY, "segment %s: %s is read after its store", c->s->name,
                    value_text(c->g, v, name));
    return HT_OK;
}

static ht_status check_stores(verifier *c)
{
    HT_TRY(collect_stores(c));
    if (!c->store_count) return HT_OK;
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &c->g->nodes[c->s->nodes[at]];
        for (size_t i = n->op == &ht_op_store; i < n->n_in; i++) HT_TRY(check_read(c, ht_node_in(c->g, n, i), at));
    }
    for (size_t i = 0; i < c->s->output_count; i++)
        HT_TRY(check_read(c, c->s->outputs[i].value, (uint32_t)c->s->node_count));
    return HT_OK;
}

/* ---- pairs ---- */

/* A done has the result of its start, what the start reads, and the start's bytes. */
static ht_status check_done(verifier *c, const ht_node *n)
{
    char a[64], b[64];
    ht_graph *g = c->g;
    ht_val t = ht_node_in(g, n, 0);
    const ht_node *start = ht_start_of(g, n);
    if (!start || start->op != n->op->start)
        HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s: %s is no result of %s", c->s->name, n->op->name,
                value_text(g, t, a), n->op->start->name);
    if (c->ended[t.id])
        HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s has two %s", c->s->name, value_text(g, t, a), n->op->name);
    c->ended[t.id] = true;
    for (size_t i = 0; i < start->n_in; i++) {
        ht_val reads = ht_node_in(g, start, i), keeps = i + 1 < n->n_in ? ht_node_in(g, n, i + 1) : HT_NONE;
        if (reads.id != keeps.id)
            HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s reads %s, its %s names %s", c->s->name, start->op->name,
                    value_text(g, reads, a), n->op->name, value_text(g, keeps, b));
    }
    if (!ht_type_same(ht_type_of(g, t), ht_type_of(g, ht_node_out(n, 0)))) {
        ht_type_text from, to;
        HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s: %s is %s, the result is %s", c->s->name, n->op->name,
                value_text(g, t, a), ht_type_str(ht_type_of(g, t), &from),
                ht_type_str(ht_type_of(g, ht_node_out(n, 0)), &to));
    }
    return HT_OK;
}

/* What a start has not finished is read by nothing but its done. */
static ht_status check_unfinished(const verifier *c, ht_val v, const char *reader)
{
    char name[64];
    const ht_node *start = ht_producer(c->g, v);
    if (!start || !start->op->done) return HT_OK;
    HT_FAIL(c->g->ctx, HT_EVERIFY, "segment %s: %s of %s is read by %s; only %s may", c->s->name,
            value_text(c->g, v, name), start->op->name, reader, start->op->done->name);
}

static ht_status check_pairs(verifier *c)
{
    char name[64];
    ht_graph *g = c->g;
    for (size_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &g->nodes[c->s->nodes[at]];
        if (n->op->start) HT_TRY(check_done(c, n));
        for (size_t i = n->op->start != NULL; i < n->n_in; i++)
            HT_TRY(check_unfinished(c, ht_node_in(g, n, i), n->op->name));
    }
    for (size_t i = 0; i < c->s->output_count; i++) HT_TRY(check_unfinished(c, c->s->outputs[i].value, "an output"));
    for (size_t at = 0; at < c->s->node_count; at++) {
        const ht_node *n = &g->nodes[c->s->nodes[at]];
        if (n->op->done && !c->ended[n->out])
            HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: %s: %s has no %s", c->s->name, n->op->name,
                    value_text(g, ht_node_out(n, 0), name), n->op->done->name);
    }
    return HT_OK;
}

/* ---- names ---- */

static ht_status check_name(const verifier *c, ht_namemap *names, ht_val v)
{
    const char *name = ht_value_of(c->g, v)->name;
    if (!name) return HT_OK;
    if (ht_namemap_get(names, name, strlen(name)).id)
        HT_FAIL(c->g->ctx, HT_EVERIFY, "segment %s: %%%s is defined twice", c->s ? c->s->name : "-", name);
    if (!ht_namemap_put(names, name, strlen(name), v)) HT_FAIL(c->g->ctx, HT_ENOMEM, "out of memory while verifying");
    return HT_OK;
}

static ht_status check_segment(verifier *c, ht_namemap *names)
{
    ht_graph *g = c->g;
    for (size_t i = 0; i < c->s->input_count; i++) {
        define(c, c->s->inputs[i], 1);
        HT_TRY(check_name(c, names, c->s->inputs[i]));
        HT_TRY(check_view(g, c->s->inputs[i]));
    }
    for (uint32_t at = 0; at < c->s->node_count; at++) {
        HT_TRY(check_node(c, c->s->nodes[at], at));
        const ht_node *n = &g->nodes[c->s->nodes[at]];
        for (size_t i = 0; i < n->n_out; i++) HT_TRY(check_name(c, names, ht_node_out(n, i)));
    }
    for (size_t i = 0; i < c->s->output_count; i++) {
        ht_val v = c->s->outputs[i].value;
        if (ht_value_of(g, v)->kind != HT_VALUE_STATE && !is_defined(c, v))
            HT_FAIL(g->ctx, HT_EVERIFY, "segment %s: output %s is not defined there", c->s->name,
                    c->s->outputs[i].name);
    }
    if (c->pairs) HT_TRY(check_pairs(c));
    return check_stores(c);
}

static ht_status verify_segments(verifier *c, ht_namemap *names)
{
    ht_graph *g = c->g;
    for (size_t i = 0; i < g->state_count; i++) {
        HT_TRY(check_view(g, g->states[i].value));
        HT_TRY(check_shared(g, &g->states[i]));
        HT_TRY(check_name(c, names, g->states[i].value));
    }
    for (size_t i = 0; i < g->segment_count; i++) {
        c->s = &g->segments[i];
        c->store_count = 0;
        c->pairs = false;
        memset(c->stored_root, 0, g->value_count);
        names->scope = (uint32_t)i + 1;
        HT_TRY(check_segment(c, names));
    }
    for (size_t i = 0; i < g->program_count; i++)
        for (size_t k = 0; k < g->programs[i].call_count; k++)
            if (g->programs[i].calls[k].segment >= g->segment_count)
                HT_FAIL(g->ctx, HT_EVERIFY, "program %s calls a segment that is not there", g->programs[i].name);
    return HT_OK;
}

ht_status ht_graph_verify(ht_graph *g)
{
    HT_TRY(ht_graph_status(g));
    ht_namemap names = {0};
    verifier c = {.g = g, .arena = ht_arena_create()};
    c.defined = calloc(g->value_count, sizeof *c.defined);
    c.home = calloc(g->value_count, sizeof *c.home);
    c.stores = calloc(g->node_count, sizeof *c.stores);
    c.stored_root = calloc(g->value_count, sizeof *c.stored_root);
    c.ended = calloc(g->value_count, sizeof *c.ended);
    ht_status status;
    if (c.arena && c.defined && c.home && c.stores && c.stored_root && c.ended)
        status = verify_segments(&c, &names);
    else
        status = ht_fail(g->ctx, HT_ENOMEM, "out of memory while verifying");
    free(c.defined);
    free(c.home);
    free(c.stores);
    free(c.stored_root);
    free(c.ended);
    ht_arena_free(c.arena);
    ht_namemap_free(&names);
    return status;
}
