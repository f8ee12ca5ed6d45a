/* Nodes that a GPU does as one, before kernels are chosen. A step of planning and not a pass: the model is not touched.
 *     - A loss and its gradient, which read the same logits. The gradient does not wait for the loss, but for lse alone, so
 *       both can be made where the loss is, if the weight of the loss is known there: as an input.
 *     - The gradient of a norm, the gradient of the residual that is added to it, and their sum over rows, which is the
 *       gradient of a bias.
 *     - A batchnorm before a point-wise node becomes its statistics, which are a reduction, and a chain of point-wise nodes
 *       for the rest, in the region of that node: normalisation, residual and activation are one pass over memory.
 *     - The gradient of a batchnorm, and that of the relu behind it, whose mask follows from what the norm reads.
 *     - A gradient in f8, and its sum, which is that of a bias. */
#include <string.h>

#include "plan/plan.h"

static bool is_op(const ht_node *n, const char *name)
{
    return n && strcmp(n->op->name, name) == 0;
}

/* Does `grad` belong to `loss`, and to nothing that comes between them? */
static bool belongs(const ht_graph *g, const ht_node *loss, const ht_node *grad)
{
    const ht_value *weight = ht_value_of(g, ht_node_in(g, grad, 3));
    for (size_t i = 0; i < 2; i++)
        if (ht_node_in(g, grad, i).id != ht_node_in(g, loss, i).id) return false;
    for (size_t i = 0; i < ht_op_attr_count(loss->op); i++)
        if (ht_attr_hash(0, &loss->attr[i]) != ht_attr_hash(0, &grad->attr[i])) return false;
    return weight->kind != HT_VALUE_RESULT &&
           ht_type_same(ht_type_of(g, ht_node_out(grad, 0)), ht_type_of(g, ht_node_in(g, grad, 0)));
}

/* Who is done together with whom: by node id, the other one; 0: none. */
typedef struct joiner {
    ht_graph *g;
    uint32_t *partner;
    uint32_t *place;  /* by node id, of the segment at hand */
    uint32_t *reads;  /* by value id; outputs count */
    uint32_t *reader; /* by value id: the last node that reads it; 0: none */
    bool *cut;        /* by node id: a batchnorm that becomes statistics and a chain */
    bool *hides;      /* by node id: a batchnorm's gradient that masks its slopes itself */
    bool *gone;       /* by node id: what another node does, too */
    uint32_t *turner; /* by value id: the quantize_both that reads it; 0: none */
    uint32_t *summer; /* by node id: the sum over rows that the gradient of a norm has, too; 0: none */
    uint32_t region;  /* the greatest number of one so far */
    bool any;
} joiner;

static void pair(joiner *j, uint32_t a, uint32_t b)
{
    j->partner[a] = b;
    j->partner[b] = a;
    j->any = true;
}

static void find_loss(joiner *j, uint32_t id)
{
    const ht_graph *g = j->g;
    const ht_node *grad = &g->nodes[id];
    if (!is_op(grad, "cross_entropy_grad")) return;
    const ht_node *loss = ht_producer(g, ht_node_in(g, grad, 2));
    if (!is_op(loss, "cross_entropy") || ht_node_in(g, grad, 2).id != loss->out + 1) return;
    uint32_t other = (uint32_t)(loss - g->nodes);
    if (!j->partner[other] && belongs(g, loss, grad)) pair(j, other, id);
}

static bool is_norm_grad(const ht_node *n)
{
    return is_op(n, "layernorm_grad") || is_op(n, "rmsnorm_grad");
}

/* Inputs of a norm's gradient before the one that is added. */
static size_t norm_inputs(const ht_node *n)
{
    return is_op(n, "layernorm_grad") ? 5 : 4;
}

/* An add of dx, which nothing else reads, and of a value that is there before. */
static void find_residual(joiner *j, uint32_t id)
{
    const ht_graph *g = j->g;
    const ht_node *add = &g->nodes[id];
    if (!is_op(add, "add")) return;
    for (size_t i = 0; i < 2; i++) {
        ht_val dx = ht_node_in(g, add, i), other = ht_node_in(g, add, 1 - i);
        const ht_node *norm = ht_producer(g, dx), *before = ht_producer(g, other);
        if (!is_norm_grad(norm) || dx.id != norm->out || j->reads[dx.id] != 1 || norm->n_in > norm_inputs(norm))
            continue;
        uint32_t norm_id = (uint32_t)(norm - g->nodes);
        if (j->partner[norm_id] || (before && j->place[before - g->nodes] >= j->place[norm_id])) continue;
        if (!ht_type_same(ht_type_of(g, ht_node_out(add, 0)), ht_type_of(g, dx))) continue;
        if (!ht_type_same(ht_type_of(g, other), ht_type_of(g, dx))) continue;
        pair(j, norm_id, id);
        return;
    }
}

/* A batchnorm whose result only one point-wise node reads. */
static void find_norm(joiner *j, uint32_t id)
{
    const ht_graph *g = j->g;
    const ht_node *norm = &g->nodes[id];
    if (!is_op(norm, "batchnorm") || j->reads[norm->out] != 1 || !j->reader[norm->out]) return;
    const ht_node *reader = &g->nodes[j->reader[norm->out]];
    j->cut[id] = reader->op->fuse == HT_FUSE_POINT && ht_type_of(g, ht_node_out(norm, 0))->rank >= 3;
    j->any |= j->cut[id];
}

static bool is_zero(const ht_graph *g, ht_val v)
{
    const ht_node *n = ht_producer(g, v);
    while (n && n->n_in == 1 && (n->op->view || is_op(n, "cast"))) n = ht_producer(g, ht_node_in(g, n, 0));
    ht_call_storage storage;
    return is_op(n, "fill") && ht_call_float(ht_node_call(g, n, NULL, &storage), "value") == 0;
}

static ht_val optional_input(const ht_graph *g, const ht_node *n, size_t i)
{
    return i < n->n_in ? ht_node_in(g, n, i) : HT_NONE;
}

/* Is `grad` the gradient of `norm`, which has a shift? */
static bool is_gradient_of(const ht_graph *g, const ht_node *grad, const ht_node *norm)
{
    return is_op(norm, "batchnorm") && ht_node_in(g, grad, 1).id == ht_node_in(g, norm, 0).id &&
           ht_node_in(g, grad, 2).id == norm->out + 1 && ht_node_in(g, grad, 3).id == norm->out + 2 &&
           optional_input(g, grad, 4).id == optional_input(g, norm, 1).id && optional_input(g, norm, 2).id &&
           ht_attr_equal(&grad->attr[0], &norm->attr[0]);
}

/* The relu whose result's sign hides what `select` selects from; NULL: it is something else. */
static const ht_node *relu_of(const joiner *j, const ht_node *select)
{
    const ht_graph *g = j->g;
    if (!is_op(select, "select") || j->reads[select->out] != 1) return NULL;
    const ht_node *le = ht_producer(g, ht_node_in(g, select, 0));
    if (!is_op(le, "le") || j->reads[le->out] != 1) return NULL;
    const ht_node *relu = ht_producer(g, ht_node_in(g, le, 0));
    bool zeros = is_zero(g, ht_node_in(g, le, 1)) && is_zero(g, ht_node_in(g, select, 1));
    return is_op(relu, "relu") && zeros ? relu : NULL;
}

static ht_dtype dtype_of(const ht_graph *g, ht_val v)
{
    return ht_type_of(g, v)->dtype;
}

/* A batchnorm's gradient of what only a relu's mask lets through. All are of one type, so that no rounding is lost. */
static void find_relu(joiner *j, uint32_t id)
{
    const ht_graph *g = j->g;
    const ht_node *grad = &g->nodes[id];
    if (!is_op(grad, "batchnorm_grad") || grad->n_in > 5) return;
    const ht_node *select = ht_producer(g, ht_node_in(g, grad, 0));
    const ht_node *relu = select ? relu_of(j, select) : NULL;
    if (!relu) return;
    ht_val normed = ht_node_in(g, relu, 0);
    const ht_node *norm = ht_producer(g, normed);
    if (!norm || normed.id != norm->out || !is_gradient_of(g, grad, norm)) return;
    ht_dtype dtype = dtype_of(g, normed);
    if (dtype_of(g, ht_node_out(relu, 0)) != dtype || dtype_of(g, ht_node_out(grad, 0)) != dtype) return;
    if (dtype_of(g, ht_node_in(g, select, 2)) != dtype_of(g, ht_node_out(select, 0))) return;
    j->hides[id] = j->any = true;
    j->gone[select - g->nodes] = true;
    j->gone[ht_producer(g, ht_node_in(g, select, 0)) - g->nodes] = true;
}

/* v before reshapes that leave its last axis alone. */
static ht_val base_of(const ht_graph *g, ht_val v)
{
    for (const ht_node *n = ht_producer(g, v); is_op(n, "reshape"); n = ht_producer(g, v)) {
        ht_val from = ht_node_in(g, n, 0);
        const ht_type *a = ht_type_of(g, from), *b = ht_type_of(g, v);
        if (!a->rank || !b->rank || a->dim[a->rank - 1] != b->dim[b->rank - 1]) break;
        v = from;
    }
    return v;
}

/* A sum over all axes but the last. */
static bool is_column_sum(const ht_graph *g, const ht_node *n)
{
    ht_call_storage storage;
    if (!is_op(n, "sum")) return false;
    const ht_type *x = ht_type_of(g, ht_node_in(g, n, 0)), *y = ht_type_of(g, ht_node_out(n, 0));
    if (x->rank < 2 || y->rank != 1 || y->dtype != HT_F32) return false;
    const ht_call *call = ht_node_call(g, n, NULL, &storage);
    return ht_call_axes(call, "axes", x->rank) == (1u << (x->rank - 1)) - 1;
}

/* The layernorm_grad that makes v, alone or joined with an add; 0: none does. */
static uint32_t maker_of(const joiner *j, ht_val v)
{
    const ht_graph *g = j->g;
    const ht_node *n = ht_producer(g, v);
    if (!n || v.id != n->out) return 0;
    uint32_t id = (uint32_t)(n - g->nodes), maker = is_op(n, "add") ? j->partner[id] : id;
    return maker && is_op(&g->nodes[maker], "layernorm_grad") ? maker : 0;
}

static void find_sum(joiner *j, uint32_t id)
{
    const ht_node *sum = &j->g->nodes[id];
    if (!is_column_sum(j->g, sum)) return;
    ht_val of = base_of(j->g, ht_node_in(j->g, sum, 0));
    uint32_t turner = j->turner[of.id], maker = maker_of(j, of);
    if (turner && !j->partner[turner]) {
        pair(j, turner, id);
    } else if (maker && !j->summer[maker]) {
        j->summer[maker] = id;
        j->gone[id] = j->any = true;
    }
}

static void find_pairs(joiner *j, const ht_segment *s)
{
    const ht_graph *g = j->g;
    j->any = false;
    for (uint32_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        j->place[s->nodes[i]] = i;
        if (n->region > j->region) j->region = n->region;
        if (is_op(n, "quantize_both")) j->turner[ht_node_in(g, n, 0).id] = s->nodes[i];
        for (size_t k = 0; k < n->n_in; k++) {
            j->reads[ht_node_in(g, n, k).id]++;
            j->reader[ht_node_in(g, n, k).id] = s->nodes[i];
        }
    }
    for (size_t i = 0; i < s->output_count; i++) j->reads[s->outputs[i].value.id]++;
    for (size_t i = 0; i < s->node_count; i++) {
        find_loss(j, s->nodes[i]);
        find_residual(j, s->nodes[i]);
        find_norm(j, s->nodes[i]);
        find_relu(j, s->nodes[i]);
        find_sum(j, s->nodes[i]);
    }
}

/* ---- the new nodes ---- */

static void take_place(ht_graph *g, const ht_node *like, ht_val made)
{
    ht_node *n = &g->nodes[g->values[made.id].owner];
    n->role = like->role;
    n->site = like->site;
    n->origin = like->origin;
}

static void join_loss(joiner *j, ht_rewrite *rw, uint32_t loss_id)
{
    ht_graph *g = j->g;
    const ht_node loss = g->nodes[loss_id], grad = g->nodes[j->partner[loss_id]]; /* the builder may move the graph's */
    ht_val in[] = {ht_node_in(g, &loss, 0), ht_node_in(g, &loss, 1), ht_node_in(g, &grad, 3)}, out[3];
    for (size_t i = 0; i < 3; i++) in[i] = ht_rewrite_map(rw, in[i]);
    ht_emit_n(g, "cross_entropy_both", NULL, 3, in, ht_op_attr_count(loss.op), loss.attr, out);
    if (g->status != HT_OK) return;
    take_place(g, &grad, out[0]);
    ht_rewrite_replace(rw, ht_node_out(&loss, 0), out[0]);
    ht_rewrite_replace(rw, ht_node_out(&loss, 1), out[1]);
    ht_rewrite_replace(rw, ht_node_out(&grad, 0), out[2]);
}

/* The gradient of a norm with the add behind it, or the sum over rows, or both. */
static void join_norm_grad(joiner *j, ht_rewrite *rw, uint32_t norm_id)
{
    ht_graph *g = j->g;
    const uint32_t add_id = j->partner[norm_id], sum_id = j->summer[norm_id];
    const ht_node norm = g->nodes[norm_id], add = g->nodes[add_id], sum = g->nodes[sum_id];
    size_t n_in = norm.n_in;
    ht_val in[6] = {HT_NONE}, out[4];
    ht_type types[4];
    for (size_t i = 0; i < norm.n_in; i++) in[i] = ht_rewrite_map(rw, ht_node_in(g, &norm, i));
    if (add_id) {
        n_in = norm_inputs(&norm) + 1;
        in[n_in - 1] = ht_rewrite_map(rw, ht_node_in(g, &add, ht_node_in(g, &add, 0).id == norm.out));
    }
    for (size_t i = 0; i < norm.n_out; i++) types[i] = *ht_type_of(g, ht_node_out(&norm, i));
    if (sum_id) types[norm.n_out] = *ht_type_of(g, ht_node_out(&sum, 0));
    ht_emit_n(g, sum_id ? "layernorm_grad_sum" : norm.op->name, types, n_in, in, ht_op_attr_count(norm.op), norm.attr,
              out);
    if (g->status != HT_OK) return;
    take_place(g, &norm, out[0]);
    ht_rewrite_replace(rw, ht_node_out(add_id ? &add : &norm, 0), out[0]);
    for (size_t i = 1; i < norm.n_out; i++) ht_rewrite_replace(rw, ht_node_out(&norm, i), out[i]);
    if (sum_id) ht_rewrite_replace(rw, ht_node_out(&sum, 0), out[norm.n_out]);
}

/* A number for each channel, as a value like x. */
static ht_val along_channels(ht_graph *g, ht_val numbers, const ht_type *x)
{
    int64_t dims[HT_MAX_RANK];
    for (int i = 0; i < x->rank; i++) dims[i] = i == 1 ? x->dim[1] : 1;
    return ht_expand(g, ht_reshape(g, numbers, x->rank, dims), x->rank, x->dim);
}

/* (x - mean) factor + shift, rounded once, as y. */
static ht_val normalise(ht_graph *g, ht_val x, const ht_val stats[3], ht_val shift, const ht_type *y)
{
    ht_type inside = *y, like = *y;
    inside.dtype = ht_type_of(g, stats[0])->dtype;
    ht_val mean = along_channels(g, stats[0], &like), factor = along_channels(g, stats[2], &like);
    ht_val centred = ht_emit1(g, "sub", &inside, HT_VALS(x, mean), HT_NO_ATTRS);
    if (!shift.id) return ht_emit1(g, "mul", &like, HT_VALS(centred, factor), HT_NO_ATTRS);
    ht_val scaled = ht_emit1(g, "mul", &inside, HT_VALS(centred, factor), HT_NO_ATTRS);
    return ht_emit1(g, "add", &like, HT_VALS(scaled, along_channels(g, shift, &like)), HT_NO_ATTRS);
}

/* The region of the node that reads a batchnorm; it gets one if it has none. */
static uint32_t region_behind(joiner *j, const ht_node *norm)
{
    ht_node *reader = &j->g->nodes[j->reader[norm->out]];
    if (!reader->region) reader->region = ++j->region;
    return reader->region;
}

static void cut_norm(joiner *j, ht_rewrite *rw, uint32_t id)
{
    ht_graph *g = j->g;
    const ht_node norm = g->nodes[id];
    const ht_type type = *ht_type_of(g, ht_node_out(&norm, 0));
    ht_val in[3] = {HT_NONE}, stats[3];
    for (size_t i = 0; i < norm.n_in; i++) in[i] = ht_rewrite_map(rw, ht_node_in(g, &norm, i));
    ht_emit_n(g, "batchnorm_stats", NULL, 2, in, ht_op_attr_count(norm.op), norm.attr, stats);
    size_t first = g->node_count;
    ht_val y = normalise(g, in[0], stats, in[2], &type);
    if (g->status != HT_OK) return;
    take_place(g, &norm, stats[0]);
    for (size_t i = first; i < g->node_count; i++) {
        take_place(g, &norm, (ht_val){g->nodes[i].out});
        g->nodes[i].region = region_behind(j, &norm);
    }
    ht_rewrite_replace(rw, ht_node_out(&norm, 0), y);
    ht_rewrite_replace(rw, ht_node_out(&norm, 1), stats[0]);
    ht_rewrite_replace(rw, ht_node_out(&norm, 2), stats[1]);
}

static void join_relu(joiner *j, ht_rewrite *rw, uint32_t id)
{
    ht_graph *g = j->g;
    const ht_node grad = g->nodes[id], *select = ht_producer(g, ht_node_in(g, &grad, 0));
    const ht_node *norm = ht_producer(g, ht_node_in(g, &grad, 2));
    ht_val in[6] = {ht_node_in(g, select, 2)}, out[3];
    ht_type types[3];
    for (size_t i = 1; i < grad.n_in; i++) in[i] = ht_node_in(g, &grad, i);
    in[5] = ht_node_in(g, norm, 2);
    for (size_t i = 0; i < 6; i++) in[i] = ht_rewrite_map(rw, in[i]);
    for (size_t i = 0; i < 3; i++) types[i] = *ht_type_of(g, ht_node_out(&grad, i));
    ht_emit(g, grad.op, 6, in, ht_op_attr_count(grad.op), grad.attr, types, out);
    if (g->status != HT_OK) return;
    take_place(g, &grad, out[0]);
    for (size_t i = 0; i < 3; i++) ht_rewrite_replace(rw, ht_node_out(&grad, i), out[i]);
}

static bool is_sum_or_turner(const ht_node *n)
{
    return is_op(n, "sum") || is_op(n, "quantize_both");
}

static void join_sum(joiner *j, ht_rewrite *rw, uint32_t id)
{
    ht_graph *g = j->g;
    bool is_sum = is_op(&g->nodes[id], "sum");
    const ht_node sum = g->nodes[is_sum ? id : j->partner[id]], turner = g->nodes[is_sum ? j->partner[id] : id];
    ht_val in[2] = {HT_NONE}, out[5];
    const ht_val old[] = {ht_node_out(&turner, 0), ht_node_out(&turner, 1), ht_node_out(&sum, 0),
                          ht_node_out(&turner, 2), ht_node_out(&turner, 3)};
    ht_type types[5];
    for (size_t i = 0; i < turner.n_in; i++) in[i] = ht_rewrite_map(rw, ht_node_in(g, &turner, i));
    for (size_t i = 0; i < 5; i++) types[i] = *ht_type_of(g, old[i]);
    ht_emit_n(g, "quantize_sum", types, turner.n_in, in, 0, NULL, out);
    if (g->status != HT_OK) return;
    take_place(g, &turner, out[0]);
    for (size_t i = 0; i < 5; i++) ht_rewrite_replace(rw, old[i], out[i]);
}

static ht_status join_segment(joiner *j, uint32_t segment)
{
    ht_graph *g = j->g;
    ht_rewrite rw;
    if (ht_rewrite_begin(&rw, g, segment))
        for (size_t i = 0; i < rw.count; i++) {
            uint32_t id = rw.old[i];
            if (j->gone[id]) continue;
            if (j->cut[id])
                cut_norm(j, &rw, id);
            else if (j->hides[id])
                join_relu(j, &rw, id);
            else if (!j->partner[id] && !j->summer[id])
                ht_rewrite_keep(&rw, id);
            else if (is_op(&g->nodes[id], "cross_entropy"))
                join_loss(j, &rw, id);
            else if (is_norm_grad(&g->nodes[id]))
                join_norm_grad(j, &rw, id);
            else if (is_sum_or_turner(&g->nodes[id]) && j->place[id] < j->place[j->partner[id]])
                join_sum(j, &rw, id);
        }
    return ht_rewrite_end(&rw);
}

ht_status ht_plan_join(ht_graph *g, const ht_target *target)
{
    if (target->device != HT_DEVICE_CUDA) return HT_OK;
    ht_arena *arena = ht_arena_create();
    joiner j = {.g = g};
    if (arena) {
        j.partner = HT_NEW(arena, uint32_t, g->node_count);
        j.place = HT_NEW(arena, uint32_t, g->node_count);
        j.reads = HT_NEW(arena, uint32_t, g->value_count);
        j.reader = HT_NEW(arena, uint32_t, g->value_count);
        j.cut = HT_NEW(arena, bool, g->node_count);
        j.hides = HT_NEW(arena, bool, g->node_count);
        j.gone = HT_NEW(arena, bool, g->node_count);
        j.turner = HT_NEW(arena, uint32_t, g->value_count);
        j.summer = HT_NEW(arena, uint32_t, g->node_count);
    }
    bool ok = j.partner && j.place && j.reads && j.reader && j.cut && j.hides && j.gone && j.turner && j.summer;
    ht_status status = ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory while planning");
    for (uint32_t s = 0; s < g->segment_count && status == HT_OK; s++) {
        find_pairs(&j, &g->segments[s]);
        if (j.any) status = join_segment(&j, s);
    }
    ht_arena_free(arena);
    return status;
}
