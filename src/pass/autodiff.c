/* Backward from each op's gradient rule. ht_backward appends it to a segment; the pass turns a model's "forward" into
 * "micro_first" (and "micro" when gradients accumulate), which store gradients into state. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/param_patterns.h"
#include "pass/train_options.h"

typedef struct backward {
    ht_graph *g;
    bool *needs;  /* by value id: depends on something we differentiate by */
    bool *weight; /* by value id: state, or made from state alone: a bias that was reshaped */
    ht_val *grad; /* by value id: what has flowed so far; only values that existed before have a place */
} backward;

static bool node_needs(const backward *b, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++)
        if (b->needs[ht_node_in(b->g, n, i).id]) return true;
    return false;
}

/* Constants beside weights do not make activations of them. */
static bool node_of_weights(const backward *b, const ht_node *n)
{
    bool any = false;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(b->g, n, i);
        const ht_node *producer = v.id ? ht_producer(b->g, v) : NULL;
        if (!v.id || (producer && producer->n_in == 0)) continue;
        if (!b->weight[v.id]) return false;
        any = true;
    }
    return any;
}

static void mark_needs(backward *b, const ht_segment *s)
{
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &b->g->nodes[s->nodes[at]];
        bool needs = node_needs(b, n);
        for (size_t i = 0; i < n->n_out; i++) {
            ht_val v = ht_node_out(n, i);
            bool floats = ht_dtype_is_float(ht_type_of(b->g, v)->dtype) && !(n->op->aux_out >> i & 1);
            if (needs && floats) b->needs[v.id] = true;
            b->weight[v.id] = node_of_weights(b, n);
        }
    }
}

static void flow(backward *b, const ht_op *op, ht_val x, ht_val dx)
{
    ht_graph *g = b->g;
    if (!ht_type_same_shape(ht_type_of(g, x), ht_type_of(g, dx))) {
        ht_type_text is, should;
        ht_graph_fail(g, HT_ESHAPE, "%s: its gradient rule gave %s for %s", op->name,
                      ht_type_str(ht_type_of(g, dx), &is), ht_type_str(ht_type_of(g, x), &should));
        return;
    }
    /* The sum of a weight's gradients serves the weight alone. */
    if (b->weight[x.id]) g->role = HT_ROLE_BWD_WEIGHT;
    b->grad[x.id] = b->grad[x.id].id ? ht_add(g, b->grad[x.id], dx) : dx;
    g->role = HT_ROLE_BWD_ACT;
}

/* ---- gradients in pieces ---- */

enum { MAX_PIECES = 16 };

/* One piece of a value that was cut along an axis: dx lies at `start`. */
typedef struct piece {
    ht_val dx;
    int64_t start, size;
} piece;

/* The piece that an unslice puts back, if it is cut along one axis only; *axis is -1 until one is known. */
static bool piece_of(const ht_graph *g, ht_val v, int *axis, piece *out)
{
    const ht_node *n = ht_producer(g, v);
    if (!n || strcmp(n->op->name, "unslice") != 0) return false;
    const ht_attr *start = &n->attr[0], *step = &n->attr[1];
    const ht_type *whole = ht_type_of(g, v), *part = ht_type_of(g, ht_node_in(g, n, 0));
    for (int i = 0; i < whole->rank; i++) {
        if (step->count && step->ints[i] != 1) return false;
        if (part->dim[i] == whole->dim[i]) continue;
        if (*axis >= 0 && *axis != i) return false;
        *axis = i;
    }
    if (*axis < 0) return false;
    *out = (piece){ht_node_in(g, n, 0), start->count ? start->ints[*axis] : 0, part->dim[*axis]};
    return true;
}

/* A value that was cut into pieces gets Σ unslice(piece). Where the pieces tile it, that is one concat, which writes
 * every element once; the sums are left for dce. */
static ht_val join_pieces(ht_graph *g, ht_val grad)
{
    piece pieces[MAX_PIECES];
    ht_val parts[MAX_PIECES], at = grad;
    int axis = -1;
    size_t count = 0;
    for (bool last = false; !last; count++) {
        const ht_node *n = ht_producer(g, at);
        last = !n || strcmp(n->op->name, "add") != 0;
        if (count == MAX_PIECES || !piece_of(g, last ? at : ht_node_in(g, n, 1), &axis, &pieces[count])) return grad;
        if (!last) at = ht_node_in(g, n, 0);
    }
    if (count < 2) return grad;
    int64_t next = 0;
    for (size_t found = 0; found < count; found++) {
        size_t i = 0;
        while (i < count && (pieces[i].start != next || pieces[i].size == 0)) i++;
        if (i == count) return grad;
        parts[found] = pieces[i].dx;
        next += pieces[i].size;
    }
    return next == ht_type_of(g, grad)->dim[axis] ? ht_concat(g, count, parts, axis) : grad;
}

/* What a rule emitted for inputs that are weights is BWD-Weight, the rest BWD-Actv: walk back from the gradients of
 * activations through the rule's own nodes; what is not reached serves weights alone. */
static void tag_roles(backward *b, const ht_node *n, const ht_val *dx, uint32_t first_node)
{
    ht_graph *g = b->g;
    size_t count = g->node_count - first_node;
    bool *activation = calloc(count + 1, sizeof *activation);
    if (!activation) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for backward");
        return;
    }
    for (size_t i = 0; i < n->n_in; i++) {
        const ht_node *producer = dx[i].id ? ht_producer(g, dx[i]) : NULL;
        bool weight = b->weight[ht_node_in(g, n, i).id];
        if (producer && producer - g->nodes >= first_node && !weight)
            activation[producer - g->nodes - first_node] = true;
    }
    for (size_t k = count; k-- > 0;) {
        ht_node *emitted = &g->nodes[first_node + k];
        emitted->role = activation[k] ? HT_ROLE_BWD_ACT : HT_ROLE_BWD_WEIGHT;
        for (size_t i = 0; activation[k] && i < emitted->n_in; i++) {
            const ht_node *producer = ht_producer(g, ht_node_in(g, emitted, i));
            if (producer && producer - g->nodes >= first_node) activation[producer - g->nodes - first_node] = true;
        }
    }
    free(activation);
}

static void differentiate(backward *b, uint32_t node)
{
    ht_graph *g = b->g;
    ht_node n = g->nodes[node];
    ht_val dy[8], y[8], few_x[16], few_dx[16], *x = few_x, *dx = few_dx;
    bool few_need[16], *need = few_need, any = false;
    if (n.n_in > 16) {
        x = HT_NEW(g->arena, ht_val, n.n_in);
        dx = HT_NEW(g->arena, ht_val, n.n_in);
        need = HT_NEW(g->arena, bool, n.n_in);
        if (!x || !dx || !need) {
            ht_graph_fail(g, HT_ENOMEM, "out of memory for backward");
            return;
        }
    }
    for (size_t i = 0; i < n.n_out; i++) {
        y[i] = ht_node_out(&n, i);
        dy[i] = b->grad[y[i].id].id ? join_pieces(g, b->grad[y[i].id]) : HT_NONE;
        any |= dy[i].id != 0;
    }
    if (!any || !node_needs(b, &n)) return;
    if (!n.op->grad) {
        ht_graph_fail(g, HT_ENOTSUP, "%s has no gradient: %s", n.op->name,
                      n.op->no_grad ? n.op->no_grad : "none given");
        return;
    }
    for (size_t i = 0; i < n.n_in; i++) {
        x[i] = ht_node_in(g, &n, i);
        need[i] = b->needs[x[i].id];
        dx[i] = HT_NONE;
    }
    /* The rule reads types while it emits, and emitting may move the graph's values: give it copies. */
    ht_arena *arena = ht_arena_create();
    ht_type *types = arena ? HT_NEW(arena, ht_type, n.n_in + n.n_out) : NULL;
    const ht_type **in = arena ? HT_NEW(arena, const ht_type *, n.n_in + n.n_out) : NULL;
    if (!types || !in) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for backward");
        ht_arena_free(arena);
        return;
    }
    for (size_t i = 0; i < n.n_in + n.n_out; i++) {
        ht_val v = i < n.n_in ? x[i] : y[i - n.n_in];
        types[i] = *ht_type_of(g, v);
        in[i] = v.id ? &types[i] : NULL;
    }
    ht_call call = {n.op, n.n_in, n.n_out, ht_op_attr_count(n.op), in, in + n.n_in, n.attr};
    uint32_t first_node = (uint32_t)g->node_count;
    g->origin = node;
    n.op->grad(g, &(ht_grad){&call, x, y, dy, need, dx});
    if (g->status == HT_OK) tag_roles(b, &n, dx, first_node);
    g->role = HT_ROLE_BWD_ACT;
    for (size_t i = 0; i < n.n_in && g->status == HT_OK; i++)
        if (need[i] && dx[i].id) flow(b, n.op, x[i], dx[i]);
    ht_arena_free(arena);
}

/* ---- other ranks ---- */

/* What was received has a gradient to be sent back. */
static void mark_received(const backward *b, const ht_segment *s)
{
    ht_group group;
    int64_t peer;
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &b->g->nodes[s->nodes[at]], *start = ht_start_of(b->g, n);
        if (n->n_in == 1 && start && !start->n_in && ht_message_has_gradient(start, &group, &peer))
            b->needs[n->out] = true;
    }
}

/* The gradients of what the segment's first `count` nodes send, from those to whom it was sent. */
static void receive_gradients(backward *b, uint32_t segment, size_t count)
{
    ht_graph *g = b->g;
    ht_group group;
    int64_t peer;
    for (size_t at = 0; at < count && g->status == HT_OK; at++) {
        const ht_node n = g->nodes[g->segments[segment].nodes[at]];
        if (!n.n_in || !ht_message_has_gradient(&n, &group, &peer)) continue;
        ht_val x = ht_node_in(g, &n, 0);
        ht_type type = *ht_type_of(g, x);
        b->grad[x.id] = ht_recv(g, &type, group, peer, "none");
    }
}

/* Those of what they received, to those who sent it. */
static void send_gradients(backward *b, uint32_t segment, size_t count)
{
    ht_graph *g = b->g;
    ht_group group;
    int64_t peer;
    for (size_t at = 0; at < count && g->status == HT_OK; at++) {
        const ht_node n = g->nodes[g->segments[segment].nodes[at]], *start = ht_start_of(g, &n);
        if (n.n_in != 1 || !start || start->n_in || !ht_message_has_gradient(start, &group, &peer)) continue;
        ht_val x = ht_node_out(&n, 0), grad = b->grad[x.id];
        ht_send(g, grad.id ? join_pieces(g, grad) : ht_fill_like(g, x, 0), group, peer, "none");
    }
}

static void sweep(backward *b, uint32_t segment, ht_val loss, ht_val loss_grad)
{
    ht_graph *g = b->g;
    size_t count = g->segments[segment].node_count;
    g->role = HT_ROLE_BWD_ACT;
    receive_gradients(b, segment, count);
    ht_type type = *ht_type_of(g, loss);
    b->grad[loss.id] =
        loss_grad.id ? ht_to_space(g, ht_cast(g, loss_grad, type.dtype), type.space) : ht_fill_like(g, loss, 1);
    for (size_t at = count; at-- > 0 && g->status == HT_OK;) differentiate(b, g->segments[segment].nodes[at]);
    g->origin = 0;
    send_gradients(b, segment, count);
}

static ht_status check_loss(ht_graph *g, ht_val loss, uint32_t *segment)
{
    const ht_value *value = ht_value_of(g, loss);
    if (!loss.id || loss.id >= g->value_count || value->kind != HT_VALUE_RESULT)
        HT_FAIL(g->ctx, HT_EINVAL, "the loss must be a result of the graph");
    if (value->type.rank != 0 || !ht_dtype_is_float(value->type.dtype)) {
        ht_type_text t;
        HT_FAIL(g->ctx, HT_ESHAPE, "the loss must be a floating-point scalar, not %s", ht_type_str(&value->type, &t));
    }
    /* Its segment is the one that holds its node; look at the current one first. */
    uint32_t order = g->segment < g->segment_count ? g->segment : 0;
    for (size_t i = 0; i < g->segment_count; i++) {
        uint32_t s = (uint32_t)((order + i) % g->segment_count);
        for (size_t at = g->segments[s].node_count; at-- > 0;) {
            if (g->segments[s].nodes[at] == value->owner) {
                *segment = s;
                return HT_OK;
            }
        }
    }
    HT_FAIL(g->ctx, HT_EINVAL, "the loss is in no segment");
}

ht_status ht_backward(ht_graph *g, ht_val loss, ht_val loss_grad, size_t n, const ht_val *wrt, ht_val *grads)
{
    uint32_t segment = 0;
    if (g->status != HT_OK) return g->status;
    HT_TRY(check_loss(g, loss, &segment));
    backward b = {.g = g};
    b.needs = calloc(g->value_count, sizeof *b.needs);
    b.weight = calloc(g->value_count, sizeof *b.weight);
    b.grad = calloc(g->value_count, sizeof *b.grad);
    if (b.needs && b.weight && b.grad) {
        for (size_t i = 0; i < g->state_count; i++) b.weight[g->states[i].value.id] = true;
        for (size_t i = 0; i < n; i++) b.needs[wrt[i].id] = wrt[i].id != 0;
        mark_received(&b, &g->segments[segment]);
        mark_needs(&b, &g->segments[segment]);
        uint32_t resume = g->segment;
        ht_role role = g->role;
        g->segment = segment;
        sweep(&b, segment, loss, loss_grad);
        g->segment = resume;
        g->role = role;
        g->origin = 0;
        for (size_t i = 0; i < n; i++) grads[i] = g->status == HT_OK ? b.grad[wrt[i].id] : HT_NONE;
    } else {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for backward");
    }
    free(b.needs);
    free(b.weight);
    free(b.grad);
    return g->status;
}

ht_status ht_gradients(ht_graph *g, ht_val loss, size_t n, const ht_val *wrt, ht_val *grads)
{
    HT_NEED(NULL, g, "graph");
    HT_NEED(g->ctx, wrt || n == 0, "wrt");
    HT_NEED(g->ctx, grads || n == 0, "grads");
    HT_TRY(ht_backward(g, loss, HT_NONE, n, wrt, grads));
    ht_role role = g->role;
    g->role = HT_ROLE_BWD_ACT;
    for (size_t i = 0; i < n; i++)
        if (!grads[i].id) grads[i] = ht_fill_like(g, wrt[i], 0);
    g->role = role;
    return g->status;
}

/* ---- the pass ---- */

static ht_val find_output(const ht_graph *g, uint32_t segment, const char *name)
{
    const ht_segment *s = &g->segments[segment];
    for (size_t i = 0; i < s->output_count; i++)
        if (strcmp(s->outputs[i].name, name) == 0) return s->outputs[i].value;
    return HT_NONE;
}

/* Gradients accumulate in f32, or f64 in an f64 model. Those of a model in several segments were made by the first. */
static ht_val grad_state(ht_graph *g, ht_val param, bool first)
{
    char name[512];
    ht_type type = *ht_type_of(g, param);
    if (type.dtype != HT_F64) type.dtype = HT_F32;
    snprintf(name, sizeof name, "%s.grad", ht_value_of(g, param)->name);
    if (!first) return ht_find(g, name);
    return ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_GRADIENTS});
}

/* The model's own stores wait for backward, which may read what they replace. A store has no results, so that it can
 * always come later. */
static ht_status stores_last(ht_graph *g, uint32_t segment)
{
    ht_rewrite rw;
    if (!ht_rewrite_begin(&rw, g, segment)) return g->status;
    for (int stores = 0; stores < 2; stores++)
        for (size_t i = 0; i < rw.count; i++)
            if ((g->nodes[rw.old[i]].op == &ht_op_store) == stores) ht_rewrite_keep(&rw, rw.old[i]);
    return ht_rewrite_end(&rw);
}

static ht_status store_gradients(ht_graph *g, ht_val loss, ht_val loss_grad, bool first, ht_val *params, ht_val *grads,
                                 size_t *n)
{
    for (size_t i = 0; i < g->state_count; i++)
        if (g->states[i].trained) params[(*n)++] = g->states[i].value;
    if (*n == 0) HT_FAIL(g->ctx, HT_EINVAL, "autodiff: the graph has no trained state");
    HT_TRY(ht_backward(g, loss, loss_grad, *n, params, grads));
    g->role = HT_ROLE_BWD_WEIGHT;
    size_t used = 0;
    for (size_t i = 0; i < *n && g->status == HT_OK; i++) {
        if (!grads[i].id && first) {
            ht_note(g->ctx, HT_LOG_WARN, "autodiff: %s does not touch the loss and is not trained",
                    ht_value_of(g, params[i])->name);
            ht_state_of(g, params[i])->trained = false;
            continue;
        }
        ht_val state = grad_state(g, params[i], first);
        if (!state.id) continue;
        ht_val grad = grads[i].id ? grads[i] : ht_fill_like(g, params[i], 0);
        ht_store(g, state, ht_cast(g, grad, ht_type_of(g, state)->dtype));
        used++;
    }
    g->role = HT_ROLE_FWD;
    if (used == 0 && g->status == HT_OK) HT_FAIL(g->ctx, HT_EINVAL, "autodiff: the loss depends on no trained state");
    return g->status;
}

/* The gradient that a node stores into; none: it is another node. */
static ht_val gradient_stored(const ht_graph *g, const ht_node *n)
{
    ht_val state = n->op == &ht_op_store ? ht_node_in(g, n, 0) : HT_NONE;
    return state.id && ht_state_of(g, state)->heading == HT_HEADING_GRADIENTS ? state : HT_NONE;
}

/* What a segment's nodes make is added to the gradients that are there as soon as it is made, so that it need not live until
 * the end. sum: by value id, or none; into: by value id, the gradient that it is stored into, or none. */
static void add_gradients(ht_graph *g, ht_rewrite *rw, const ht_val *into, ht_val *sum)
{
    for (size_t i = 0; i < rw->count && g->status == HT_OK; i++) {
        const ht_node n = g->nodes[rw->old[i]];
        ht_val state = gradient_stored(g, &n), value = state.id ? ht_node_in(g, &n, 1) : HT_NONE;
        g->role = HT_ROLE_BWD_WEIGHT;
        if (state.id) {
            bool added = sum[value.id].id && into[value.id].id == state.id;
            ht_store(g, state, added ? sum[value.id] : ht_add(g, state, value));
        } else {
            ht_rewrite_keep(rw, rw->old[i]);
        }
        for (uint32_t v = n.out; v < n.out + n.n_out && g->status == HT_OK; v++)
            if (into[v].id) sum[v] = ht_add(g, into[v], (ht_val){v});
        g->role = HT_ROLE_FWD;
    }
}

/* "micro": as "micro_first", but adding to the gradients that are there. */
static ht_status add_micro(ht_graph *g, uint32_t first, const char *name)
{
    uint32_t micro = ht_segment_copy(g, first, name, NULL);
    HT_TRY(g->status);
    ht_val *into = calloc(g->value_count, sizeof *into), *sum = calloc(g->value_count, sizeof *sum);
    const ht_segment *s = &g->segments[micro];
    for (size_t i = 0; into && i < s->node_count; i++) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        ht_val state = gradient_stored(g, n);
        if (state.id) into[ht_node_in(g, n, 1).id] = state;
    }
    ht_rewrite rw;
    ht_status status = into && sum ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory for backward");
    if (status == HT_OK && ht_rewrite_begin(&rw, g, micro)) {
        add_gradients(g, &rw, into, sum);
        status = ht_rewrite_end(&rw);
    }
    free(into);
    free(sum);
    return status;
}

/* One segment: "forward", or "forward:3" of a model that has several for batches of different shapes. They share their
 * gradients; the caller runs the one that fits. */
static ht_status differentiate_segment(ht_graph *g, uint32_t segment, const char *ending,
                                       const ht_pass_options *options)
{
    int64_t accumulate = options->train.accumulate, micros = accumulate * options->zero.ranks;
    ht_val loss = find_output(g, segment, "loss");
    if (!loss.id) HT_FAIL(g->ctx, HT_EINVAL, "autodiff: segment 'forward%s' has no output 'loss'", ending);
    g->segment = segment;
    ht_type scalar = ht_type_make(ht_type_of(g, loss)->dtype == HT_F64 ? HT_F64 : HT_F32, 0, NULL);
    ht_val loss_grad = ht_graph_add_input(g, "loss_grad", &scalar, HT_CONSTANT(1 / (double)micros));
    size_t n = 0;
    ht_val *params = calloc(g->state_count + 1, sizeof *params), *grads = calloc(g->state_count + 1, sizeof *grads);
    ht_status status = params && grads ? store_gradients(g, loss, loss_grad, !ending[0], params, grads, &n)
                                       : ht_fail(g->ctx, HT_ENOMEM, "out of memory for backward");
    free(params);
    free(grads);
    HT_TRY(status);
    HT_TRY(stores_last(g, segment));
    char name[128];
    int length = snprintf(name, sizeof name, "micro_first%s", ending);
    g->segments[segment].name = ht_arena_text(g->arena, name, (size_t)length);
    if (!g->segments[segment].name) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for backward");
    snprintf(name, sizeof name, "micro%s", ending);
    return accumulate > 1 ? add_micro(g, segment, name) : g->status;
}

static ht_status autodiff_run(ht_graph *g, const ht_pass_env *env)
{
    HT_TRY(ht_autodiff_check(g->ctx, &env->options->train));
    /* Where ranks share the layers it was done when all of them were there. */
    if (env->options->parallel.pipeline.ranks == 1) HT_TRY(ht_params_freeze(g, &env->options->train));
    int64_t accumulate = env->options->train.accumulate;
    int first = ht_segment_find(g, "forward");
    if (first < 0) HT_FAIL(g->ctx, HT_EINVAL, "autodiff: the graph has no segment 'forward'");
    HT_TRY(differentiate_segment(g, (uint32_t)first, "", env->options));
    size_t segments = g->segment_count;
    for (uint32_t i = 0; i < segments; i++) {
        char ending[64];
        const char *name = g->segments[i].name;
        if (strncmp(name, "forward:", 8) != 0) continue;
        if (snprintf(ending, sizeof ending, "%s", name + strlen("forward")) >= (int)sizeof ending)
            HT_FAIL(g->ctx, HT_EINVAL, "autodiff: the name '%s' is too long", name);
        HT_TRY(differentiate_segment(g, i, ending, env->options));
    }
    ht_graph_add_program_call(g, "train", (ht_program_call){.segment = (uint32_t)first, .times = 1});
    if (accumulate > 1) {
        uint32_t micro = (uint32_t)ht_segment_find(g, "micro");
        ht_graph_add_program_call(g, "train", (ht_program_call){.segment = micro, .times = (uint32_t)accumulate - 1});
    }
    return g->status;
}

const ht_pass ht_pass_autodiff = {
    .name = "autodiff",
    .help = "append backward to 'forward' and store gradients",
    .system = true,
    .run = autodiff_run,
    .settings = ht_autodiff_settings,
};
