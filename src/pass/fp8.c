/* Products of the layers in f8, in segments that train. A product of a weight matrix, and the two products of its
 * gradient, read f8e4m3 for activations and weights and f8e5m2 for gradients, with a scale for each tensor; they are
 * summed in f32 and rounded as before. All else stays as autocast typed it: the last products before the loss or an output
 * (the head), embeddings, norms, attention, the residual stream. Segments without a backward pass stay half.
 *
 * A tensor is quantised once for all products that read it, where the first of them stands. Sizes are multiples of 16, as
 * the products of a GPU's library ask for, on every target. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/fp8.h"

enum { SIZE_STEP = 16 };

/* A forward product in f8. */
typedef struct layer {
    ht_val x, weight; /* whose codes it reads */
    const char *name; /* of its tensors; NULL: no such product */
} layer;

typedef struct quantizer {
    ht_graph *g;
    ht_f8_state state;
    ht_rewrite rw;
    /* of the segment at hand */
    bool more;           /* it adds to the gradients that are there */
    uint64_t *hashes;    /* by value id, before anything was changed */
    bool *ends;          /* by value id: no other product lies between it and an output */
    ht_f8_value *values; /* by value id, new ones too: it in f8 */
    size_t value_capacity;
    layer *layers;      /* by node id */
    uint32_t *replaced; /* by node id: what stands for it; 0: itself */
    size_t node_count;  /* before anything was changed */
} quantizer;

/* ---- operands ---- */

static bool is_op(const ht_node *n, const char *name)
{
    return strcmp(n->op->name, name) == 0;
}

static int64_t last_size(const ht_type *type)
{
    return type->dim[type->rank - 1];
}

/* A reshape that only counts the rows in another way. */
static bool keeps_columns(const ht_graph *g, const ht_node *n)
{
    const ht_type *from = ht_type_of(g, ht_node_in(g, n, 0)), *to = ht_type_of(g, ht_node_out(n, 0));
    return is_op(n, "reshape") && from->rank >= 2 && to->rank >= 2 && last_size(from) == last_size(to);
}

/* A cast that autocast put before a product: what it casts is in memory. One that ends a region is its rounding. */
static bool is_cast_for_product(const ht_graph *g, const ht_node *n)
{
    return is_op(n, "cast") && !n->region && ht_type_of(g, ht_node_in(g, n, 0))->dtype == HT_F32;
}

/* The value whose codes stand for v: v before such reshapes and casts, as it is after what was replaced so far. */
static ht_val base_of(const quantizer *q, ht_val v)
{
    const ht_graph *g = q->g;
    for (const ht_node *n = ht_producer(g, v); n && n->n_in == 1; n = ht_producer(g, v)) {
        if (!keeps_columns(g, n) && !is_cast_for_product(g, n)) break;
        v = ht_node_in(g, n, 0);
    }
    return ht_rewrite_map(&q->rw, v);
}

/* The codes of v, which has those of its base, for a product that sums over v's last axis or the one before it. */
static ht_val codes_of(quantizer *q, ht_val v, const ht_f8_value *base, bool along_last)
{
    ht_graph *g = q->g;
    const ht_type want = *ht_type_of(g, v);
    ht_val codes = base->codes;
    if (!along_last && q->state.both) {
        int64_t order[HT_MAX_RANK];
        int rank = ht_type_of(g, codes)->rank;
        for (int axis = 0; axis < rank; axis++) order[axis] = (axis + 1) % rank;
        codes = ht_permute(g, base->turned, rank, order);
    }
    if (g->status != HT_OK || ht_type_same_shape(ht_type_of(g, codes), &want)) return codes;
    return ht_reshape(g, codes, want.rank, want.dim);
}

/* ---- which products ---- */

/* Backward through all that is no product, from the outputs. */
static void find_ends(quantizer *q, const ht_segment *s)
{
    const ht_graph *g = q->g;
    for (size_t i = 0; i < s->output_count; i++) q->ends[s->outputs[i].value.id] = true;
    for (size_t at = s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        bool ends = false;
        for (size_t i = 0; i < n->n_out; i++) ends |= q->ends[n->out + i];
        if (!ends || n->op->prec == HT_PREC_DOT || n->role != HT_ROLE_FWD) continue;
        for (size_t i = 0; i < n->n_in; i++) q->ends[ht_node_in(g, n, i).id] = true;
    }
}

static bool is_half(const ht_graph *g, ht_val v)
{
    ht_dtype dtype = ht_type_of(g, v)->dtype;
    return dtype == HT_F16 || dtype == HT_BF16;
}

/* Activations by a matrix, both half, in sizes that all targets take, and not the head. */
static bool may_be_layer(const quantizer *q, const ht_node *n)
{
    const ht_graph *g = q->g;
    if (!is_op(n, "matmul") || n->role != HT_ROLE_FWD || q->ends[n->out] || n->attr[0].i) return false;
    ht_val x = ht_node_in(g, n, 0), w = ht_node_in(g, n, 1);
    const ht_type *type = ht_type_of(g, x);
    if (!is_half(g, x) || !is_half(g, w) || ht_type_of(g, w)->rank != 2 || !ht_type_elems(type)) return false;
    int64_t inner = last_size(type), outer = last_size(ht_type_of(g, ht_node_out(n, 0)));
    return outer > 0 && inner % SIZE_STEP == 0 && outer % SIZE_STEP == 0 &&
           ht_type_elems(type) / inner % SIZE_STEP == 0;
}

/* "h.0.mlp.c_fc.weight", and with ".2" behind it for the second product that reads it. */
static const char *layer_name(const quantizer *q, const ht_f8_weight *weight, size_t before)
{
    const char *master = ht_value_of(q->g, weight->master)->name;
    char name[512];
    int uses = 1;
    for (size_t i = 0; i < before; i++) uses += q->layers[q->rw.old[i]].weight.id == weight->read.id;
    if (uses == 1) return master;
    snprintf(name, sizeof name, "%s.%d", master, uses);
    return ht_arena_text(q->g->arena, name, strlen(name));
}

/* ---- the walk ---- */

static ht_f8_value tensor(quantizer *q, size_t group, const layer *l, const char *what, ht_val base)
{
    char name[512];
    size_t before = q->value_capacity;
    if (!ht_grow((void **)&q->values, &q->value_capacity, base.id + 1, sizeof *q->values)) {
        ht_graph_fail(q->g, HT_ENOMEM, "out of memory for products in f8");
        return (ht_f8_value){HT_NONE, HT_NONE, HT_NONE};
    }
    memset(q->values + before, 0, (q->value_capacity - before) * sizeof *q->values);
    snprintf(name, sizeof name, "%s.%s", l->name, what);
    if (!q->values[base.id].codes.id) q->values[base.id] = ht_f8_tensor(&q->state, group, name, base, q->more);
    return q->values[base.id];
}

/* Node n with these operands in f8 instead of its own. */
static void replace_product(quantizer *q, uint32_t id, const ht_f8_value operands[2])
{
    ht_graph *g = q->g;
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    const ht_type want = *ht_type_of(g, ht_node_out(&n, 0));
    const bool ta = n.attr[0].i, tb = n.attr[1].i;
    ht_val a = codes_of(q, ht_node_in(g, &n, 0), &operands[0], !ta);
    ht_val b = codes_of(q, ht_node_in(g, &n, 1), &operands[1], tb);
    ht_val y = ht_emit1(g, "scaled_matmul", &want, HT_VALS(a, b, operands[0].scale, operands[1].scale),
                        HT_ATTRS(HT_INT("ta", ta), HT_INT("tb", tb)));
    if (g->status != HT_OK) return;
    ht_node *made = &g->nodes[g->values[y.id].owner];
    made->region = n.region;
    made->no_merge = n.no_merge;
    made->origin = n.origin;
    made->was = q->hashes[n.out];
    g->values[y.id].name = g->values[n.out].name;
    q->replaced[id] = g->values[y.id].owner;
    ht_rewrite_replace(&q->rw, ht_node_out(&n, 0), y);
}

static bool replace_forward(quantizer *q, size_t at)
{
    ht_graph *g = q->g;
    const uint32_t id = q->rw.old[at];
    const ht_node n = g->nodes[id];
    const ht_f8_weight *found = ht_f8_weight_of(&q->state, base_of(q, ht_node_in(g, &n, 1)));
    if (!found) return false;
    const ht_f8_weight weight = *found;
    layer *l = &q->layers[id];
    *l = (layer){base_of(q, ht_node_in(g, &n, 0)), weight.read, layer_name(q, &weight, at)};
    if (!l->name) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for a tensor's name");
        return false;
    }
    const ht_f8_value x = tensor(q, HT_F8_FORWARD, l, "x", l->x);
    replace_product(q, id, (const ht_f8_value[]){x, weight.copy});
    return true;
}

/* One operand is the layer's input or weight, the other is the gradient of its result. */
static bool replace_backward(quantizer *q, uint32_t id, const layer *l)
{
    ht_graph *g = q->g;
    const ht_node n = g->nodes[id];
    ht_f8_value operands[2] = {{HT_NONE, HT_NONE, HT_NONE}, {HT_NONE, HT_NONE, HT_NONE}};
    const ht_f8_weight *found = ht_f8_weight_of(&q->state, l->weight);
    if (!found) return false;
    const ht_f8_weight weight = *found;
    const ht_val base[2] = {base_of(q, ht_node_in(g, &n, 0)), base_of(q, ht_node_in(g, &n, 1))};
    for (size_t i = 0; i < 2; i++) {
        if (base[i].id == weight.read.id) operands[i] = weight.copy;
        if (base[i].id == l->x.id) operands[i] = q->values[l->x.id];
    }
    if (!operands[0].codes.id == !operands[1].codes.id) return false;
    size_t gradient = operands[0].codes.id ? 1 : 0;
    operands[gradient] = tensor(q, HT_F8_BACKWARD, l, "dy", base[gradient]);
    replace_product(q, id, operands);
    return true;
}

static void visit(quantizer *q, size_t at)
{
    ht_graph *g = q->g;
    const uint32_t id = q->rw.old[at];
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    size_t first = g->node_count;
    const layer *of = n.origin < q->node_count ? &q->layers[n.origin] : NULL;
    bool replaced = false;
    if (may_be_layer(q, &n))
        replaced = replace_forward(q, at);
    else if (is_op(&n, "matmul") && n.role != HT_ROLE_FWD && of && of->name)
        replaced = replace_backward(q, id, of);
    if (!replaced) ht_rewrite_keep(&q->rw, id);
    for (size_t i = first; i < g->node_count; i++) {
        g->nodes[i].role = n.role;
        g->nodes[i].site = n.site;
    }
}

/* Gradients say which node they are of. */
static void follow_origins(const quantizer *q, uint32_t segment)
{
    const ht_segment *s = &q->g->segments[segment];
    for (size_t i = 0; i < s->node_count; i++) {
        ht_node *n = &q->g->nodes[s->nodes[i]];
        if (n->origin < q->node_count && q->replaced[n->origin]) n->origin = q->replaced[n->origin];
    }
}

static ht_status rewrite_segment(quantizer *q, uint32_t segment)
{
    ht_graph *g = q->g;
    find_ends(q, &g->segments[segment]);
    if (ht_rewrite_begin(&q->rw, g, segment))
        for (size_t i = 0; i < q->rw.count && g->status == HT_OK; i++) visit(q, i);
    HT_TRY(ht_rewrite_end(&q->rw));
    follow_origins(q, segment);
    return HT_OK;
}

static ht_status quantize_segment(quantizer *q, uint32_t segment)
{
    ht_graph *g = q->g;
    const char *name = g->segments[segment].name;
    q->more = strncmp(name, "micro", 5) == 0 && strncmp(name, "micro_first", 11) != 0;
    q->node_count = g->node_count;
    q->hashes = ht_value_hashes(g, segment);
    q->ends = calloc(g->value_count, sizeof *q->ends);
    q->values = NULL;
    q->value_capacity = 0;
    q->layers = calloc(g->node_count, sizeof *q->layers);
    q->replaced = calloc(g->node_count, sizeof *q->replaced);
    ht_status status = q->hashes && q->ends && q->layers && q->replaced
                           ? rewrite_segment(q, segment)
                           : ht_fail(g->ctx, HT_ENOMEM, "out of memory for products in f8");
    free(q->hashes);
    free(q->ends);
    free(q->values);
    free(q->layers);
    free(q->replaced);
    return status;
}

/* ---- the pass ---- */

static bool trains(const ht_graph *g, const ht_segment *s)
{
    for (size_t i = 0; i < s->node_count; i++) {
        ht_role role = g->nodes[s->nodes[i]].role;
        if (role == HT_ROLE_BWD_ACT || role == HT_ROLE_BWD_WEIGHT) return true;
    }
    return false;
}

/* The library reads both operands along the axis that is summed over. */
static bool wants_both_orders(const ht_target *target)
{
    return target && target->device == HT_DEVICE_CUDA && ht_target_has_library(target, HT_LIBRARY_CUBLASLT);
}

static ht_status fp8_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_precision_options *o = &env->options->precision;
    quantizer q = {.g = g};
    uint32_t count = (uint32_t)g->segment_count;
    ht_status status = HT_OK;
    if (o->fp8 == HT_FP8_OFF) return HT_OK;
    if (o->precision != HT_PRECISION_FP16 && o->precision != HT_PRECISION_BF16)
        HT_FAIL(g->ctx, HT_EINVAL, "setting fp8: it goes with the precisions fp16 and bf16, not %s",
                ht_precision_name(o->precision));
    ht_f8_state_begin(&q.state, g, o, wants_both_orders(env->target));
    for (uint32_t i = 0; i < count && status == HT_OK; i++)
        if (trains(g, &g->segments[i])) status = quantize_segment(&q, i);
    if (status == HT_OK && env->options->training && !q.state.weight_count)
        ht_note(g->ctx, HT_LOG_WARN,
                "fp8: no product of this model is in f8: its layers have none whose sizes are "
                "multiples of 16");
    if (status == HT_OK) status = ht_f8_state_finish(&q.state);
    ht_f8_state_free(&q.state);
    return status;
}

#define PRECISION(field) .at = offsetof(ht_precision_options, field)
static const ht_setting_key keys[] = {{.name = "fp8",
                                       .kind = HT_SETTING_CHOICE,
                                       PRECISION(fp8),
                                       .words = "off|delayed|current", /* as ht_fp8 */
                                       .help = "products of the layers in f8, and how tensors are scaled"},
                                      {.name = "fp8_history",
                                       .kind = HT_SETTING_WHOLE,
                                       PRECISION(fp8_history),
                                       .low = 1,
                                       .high = HT_MOST_FP8_HISTORY,
                                       .help = "steps whose magnitudes a delayed scale follows from"},
                                      {.name = NULL}};
#undef PRECISION

static const ht_pass_settings settings[] = {{keys, offsetof(ht_pass_options, precision)}, {NULL, 0}};

const ht_pass ht_pass_fp8 = {
    .name = "fp8",
    .help = "products of the layers read f8; scales and copies of weights",
    .system = true,
    .keeps_step = true,
    .run = fp8_run,
    .settings = settings,
};
