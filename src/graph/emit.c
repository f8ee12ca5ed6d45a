/* Creation of nodes: arity, attributes, shape inference, results. */
#include <string.h>

#include "graph/graph.h"

static ht_status store_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)out;
    if (!ht_type_same(call->in[0], call->in[1])) {
        ht_type_text a, b;
        HT_FAIL(ctx, HT_ESHAPE, "state is %s, value is %s", ht_type_str(call->in[0], &a), ht_type_str(call->in[1], &b));
    }
    return HT_OK;
}

const ht_op ht_op_store = {
    .size = sizeof(ht_op),
    .name = "store",
    .prec = HT_PREC_MOVE,
    .flags = HT_OP_EFFECT,
    .min_in = 2,
    .max_in = 2,
    .infer = store_infer,
    .no_grad = "a store ends a step",
};

static const char *nearest_attr(const ht_op *op, const char *key)
{
    const char *best = NULL;
    int best_distance = 4;
    for (const ht_attr_def *def = op->attrs; def && def->key; def++) {
        int distance = ht_edit_distance(def->key, key);
        if (distance < best_distance) best = def->key, best_distance = distance;
    }
    return best;
}

static bool give_attr(ht_graph *g, const ht_op *op, ht_attr *complete, const ht_attr *given)
{
    size_t slot = 0;
    while (op->attrs && op->attrs[slot].key && strcmp(op->attrs[slot].key, given->key) != 0) slot++;
    if (!op->attrs || !op->attrs[slot].key) {
        const char *near = nearest_attr(op, given->key);
        ht_graph_fail(g, HT_EINVAL, "%s: no attribute '%s'%s%s%s", op->name, given->key, near ? "; did you mean '" : "",
                      near ? near : "", near ? "'?" : "");
        return false;
    }
    ht_attr value = *given;
    if (op->attrs[slot].kind == HT_ATTR_FLOAT && given->kind == HT_ATTR_INT) {
        value.kind = HT_ATTR_FLOAT;
        value.f = (double)given->i;
    }
    if (op->attrs[slot].kind != value.kind || (value.kind == HT_ATTR_TEXT && !value.text)) {
        ht_graph_fail(g, HT_EINVAL, "%s: attribute '%s' is of another kind", op->name, given->key);
        return false;
    }
    value.key = op->attrs[slot].key;
    if (ht_attr_copy(g->arena, &complete[slot], &value)) return true;
    ht_graph_fail(g, HT_ENOMEM, "out of memory for attributes");
    return false;
}

/* The op's whole table, with what was given over the defaults. NULL after a failure; a valid pointer otherwise. */
static const ht_attr *complete_attrs(ht_graph *g, const ht_op *op, size_t n_attr, const ht_attr *attr)
{
    size_t n = ht_op_attr_count(op);
    ht_attr *complete = HT_NEW(g->arena, ht_attr, n);
    if (!complete) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for attributes");
        return NULL;
    }
    for (size_t i = 0; i < n_attr; i++)
        if (!give_attr(g, op, complete, &attr[i])) return NULL;
    for (size_t i = 0; i < n; i++) {
        if (complete[i].key) continue;
        if (op->attrs[i].required) {
            ht_graph_fail(g, HT_EINVAL, "%s: attribute '%s' is missing", op->name, op->attrs[i].key);
            return NULL;
        }
        complete[i] = op->attrs[i].standard;
        complete[i].key = op->attrs[i].key;
        complete[i].kind = op->attrs[i].kind;
    }
    return complete;
}

/* Lists are in the caller's order: trailing inputs that are none are dropped, so that text and builder agree. */
static bool check_inputs(ht_graph *g, const ht_op *op, size_t *n_in, const ht_val *in)
{
    while (*n_in > (size_t)op->min_in && !in[*n_in - 1].id) --*n_in;
    if (*n_in < (size_t)op->min_in || *n_in > (size_t)op->max_in) {
        ht_graph_fail(g, HT_EINVAL, "%s: %zu inputs given, takes %d to %d", op->name, *n_in, op->min_in, op->max_in);
        return false;
    }
    for (size_t i = 0; i < *n_in; i++) {
        if (in[i].id >= g->value_count || (!in[i].id && i < (size_t)op->min_in)) {
            ht_graph_fail(g, HT_EINVAL, "%s: input %zu is no value of this graph", op->name, i);
            return false;
        }
        const ht_value *v = ht_value_of(g, in[i]);
        if (v->kind == HT_VALUE_INPUT && v->owner != g->segment) {
            ht_graph_fail(g, HT_EINVAL, "%s: input %zu, '%s', belongs to segment %s", op->name, i, v->name,
                          g->segments[v->owner].name);
            return false;
        }
    }
    return true;
}

/* May a result that the rule types as `rule` be a `want` instead? */
static bool may_be(const ht_op *op, const ht_type *rule, const ht_type *want)
{
    if (!ht_type_same_shape(rule, want)) return false;
    if (rule->dtype == want->dtype) return true;
    bool open = op->prec == HT_PREC_DOT || op->prec == HT_PREC_REDUCE || op->prec == HT_PREC_POINT;
    return open && ht_dtype_is_float(rule->dtype) && ht_dtype_is_float(want->dtype);
}

/* A result without a wanted type lies where the node's inputs do. */
static ht_space space_of_inputs(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i]) return call->in[i]->space;
    return HT_SPACE_MAIN;
}

static bool infer_types(ht_graph *g, const ht_call *call, const ht_type *want, ht_type *types)
{
    const ht_op *op = call->op;
    if ((op->flags & HT_OP_TYPED) && !want) {
        ht_graph_fail(g, HT_EINVAL, "%s: the result's type must be given", op->name);
        return false;
    }
    for (int i = 0; i < op->n_out; i++) {
        types[i] = want ? want[i] : (ht_type){0};
        if (want && ht_type_check(g->ctx, &want[i], op->name) != HT_OK) {
            g->status = g->ctx->status;
            return false;
        }
    }
    ht_status status = op->infer(g->ctx, call, types);
    if (status != HT_OK) {
        char message[sizeof g->ctx->message];
        memcpy(message, g->ctx->message, sizeof message);
        ht_graph_fail(g, status, "%s: %s", op->name, message);
        return false;
    }
    for (int i = 0; i < op->n_out; i++) {
        types[i].space = want && !op->start ? want[i].space : space_of_inputs(call);
        if (ht_type_check(g->ctx, &types[i], op->name) != HT_OK) {
            g->status = g->ctx->status;
            return false;
        }
        if (want && (!may_be(op, &types[i], &want[i]) || types[i].space != want[i].space)) {
            ht_type_text a, b;
            ht_graph_fail(g, HT_ESHAPE, "%s: result %d is %s, not %s", op->name, i, ht_type_str(&types[i], &a),
                          ht_type_str(&want[i], &b));
            return false;
        }
        if (want) types[i].dtype = want[i].dtype;
        ht_type_row_major(&types[i]);
    }
    return true;
}

static const char *site_of(ht_graph *g)
{
    if (!g->scope[0]) return NULL;
    /* Nodes of one scope come in a row: share the last node's copy. */
    const ht_node *last = g->node_count > 1 ? &g->nodes[g->node_count - 1] : NULL;
    if (last && last->site && strcmp(last->site, g->scope) == 0) return last->site;
    return ht_arena_text(g->arena, g->scope, strlen(g->scope));
}

static void append_node(ht_graph *g, const ht_op *op, size_t n_in, const ht_val *in, const ht_attr *attr,
                        const ht_type *types, ht_val *out)
{
    ht_segment *s = &g->segments[g->segment];
    size_t n_out = (size_t)op->n_out;
    if (g->value_count + n_out >= UINT32_MAX || g->operand_count + n_in >= UINT32_MAX ||
        !ht_grow((void **)&g->values, &g->value_capacity, g->value_count + n_out, sizeof *g->values) ||
        !ht_grow((void **)&g->operands, &g->operand_capacity, g->operand_count + n_in, sizeof *g->operands) ||
        !ht_grow((void **)&g->nodes, &g->node_capacity, g->node_count + 1, sizeof *g->nodes) ||
        !ht_grow((void **)&s->nodes, &s->node_capacity, s->node_count + 1, sizeof *s->nodes)) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for the graph");
        return;
    }
    uint32_t id = (uint32_t)g->node_count;
    ht_node node = {
        .op = op,
        .in = (uint32_t)g->operand_count,
        .n_in = (uint32_t)n_in,
        .out = (uint32_t)g->value_count,
        .n_out = (uint32_t)n_out,
        .attr = attr,
        .role = g->role,
        .origin = g->origin,
        .site = site_of(g),
    };
    if (n_in) memcpy(g->operands + g->operand_count, in, n_in * sizeof *in);
    g->operand_count += n_in;
    for (size_t i = 0; i < n_out; i++) {
        out[i] = (ht_val){(uint32_t)g->value_count++};
        g->values[out[i].id] =
            (ht_value){.kind = HT_VALUE_RESULT, .type = types[i], .owner = id, .result = (uint32_t)i};
    }
    g->nodes[g->node_count++] = node;
    s->nodes[s->node_count++] = id;
}

void ht_emit(ht_graph *g, const ht_op *op, size_t n_in, const ht_val *in, size_t n_attr, const ht_attr *attr,
             const ht_type *want, ht_val *out)
{
    for (int i = 0; i < op->n_out; i++) out[i] = HT_NONE;
    if (ht_graph_status(g) != HT_OK) return;
    if (g->segment == UINT32_MAX) ht_segment_begin(g, "forward");
    if (g->status != HT_OK || !check_inputs(g, op, &n_in, in)) return;
    const ht_attr *complete = complete_attrs(g, op, n_attr, attr);
    if (!complete) return;
    const ht_type *few[8], **in_types = n_in <= 8 ? few : HT_NEW(g->arena, const ht_type *, n_in);
    if (!in_types) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for the graph");
        return;
    }
    for (size_t i = 0; i < n_in; i++) in_types[i] = in[i].id ? ht_type_of(g, in[i]) : NULL;
    ht_call call = {.op = op, .n_in = n_in, .n_attr = ht_op_attr_count(op), .in = in_types, .attr = complete};
    ht_type types[8];
    if (infer_types(g, &call, want, types)) append_node(g, op, n_in, in, complete, types, out);
}

void ht_node_set_int(ht_graph *g, uint32_t node, const char *key, int64_t value)
{
    const ht_node *n = &g->nodes[node];
    size_t count = ht_op_attr_count(n->op);
    ht_attr *attr = HT_NEW(g->arena, ht_attr, count);
    if (!attr) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for attributes");
        return;
    }
    memcpy(attr, n->attr, count * sizeof *attr);
    for (size_t i = 0; i < count; i++)
        if (strcmp(attr[i].key, key) == 0) attr[i].i = value;
    g->nodes[node].attr = attr;
}

void ht_emit_n(ht_graph *g, const char *name, const ht_type *want, size_t n_in, const ht_val *in, size_t n_attr,
               const ht_attr *attr, ht_val *out)
{
    const ht_op *op = g ? ht_op_find(g->ctx, name, strlen(name)) : NULL;
    if (op)
        ht_emit(g, op, n_in, in, n_attr, attr, want, out);
    else
        ht_graph_fail(g, HT_EINVAL, "there is no op '%s'", name);
}

ht_val ht_emit1(ht_graph *g, const char *name, const ht_type *want, size_t n_in, const ht_val *in, size_t n_attr,
                const ht_attr *attr)
{
    ht_val out[8] = {HT_NONE};
    ht_emit_n(g, name, want, n_in, in, n_attr, attr, out);
    return out[0];
}

void ht_store(ht_graph *g, ht_val state, ht_val value)
{
    if (ht_graph_status(g) != HT_OK) return;
    if (!ht_state_of(g, state)) {
        ht_graph_fail(g, HT_EINVAL, "store: the target is no state");
        return;
    }
    ht_val none[1];
    ht_emit(g, &ht_op_store, HT_VALS(state, value), HT_NO_ATTRS, NULL, none);
}
