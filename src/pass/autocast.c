/* Chooses a number type for every value, after "Mixed Precision Training": products read half and accumulate in f32;
 * weight gradients, sums, statistics and losses are f32; parameters stay f32 and have half copies that the update writes.
 * It only types: nothing is computed elsewhere or in another order.
 *
 * What a value's type would be if it left its region:
 *     dot      half; weight gradients f32
 *     reduce   half, or f32 where the op says so (f32_out)
 *     point    the widest of its inputs that are no constants, parameters or broadcasts; f32 if there is no other, or
 *              if only sums read it
 *     move     that of its input
 *     exact    what the op's rule says
 *     what one rank sends another: as the residual stream, on both sides alike; single numbers and rows of them f32
 * A value that only its own region reads is f32, so that a chain behind a product rounds once, where it ends. A value that
 * others read, too, is rounded before all of its readers: so an activation can be computed again from what was kept.
 *
 * Targets whose products add a bias and a residual, and nothing else, before their sum reaches memory (cublasLt) have half
 * copies of biases like those of weights, and round what other point-wise nodes read of a product.
 *
 * Targets whose convolutions have no epilogues and make the type that they read (cuDNN) round them where they are made.
 *
 * In fp64 everything is f64, state too. */
#include "pass/autocast.h"

#include <stdlib.h>
#include <string.h>

/* What is known of a value of the segment at hand. */
typedef struct fact {
    bool half;    /* would be half outside its region */
    bool weak;    /* a constant, a parameter, a broadcast: has no say in the type of what it is combined with */
    bool outside; /* a node outside its region reads it */
    bool applied; /* a point-wise node of its region does that is no addition */
    bool wide;    /* ends in a gradient's accumulator, or is shown as an output that is f32 */
    bool shown;   /* such an output itself */
    bool stored;  /* a store into a half accumulator reads it */
    uint32_t reads;
    bool summed; /* a sum of forward reads it */
    bool used;   /* something else does */
    ht_val cast; /* its half version, once one was made */
} fact;

typedef struct caster {
    ht_graph *g;
    const ht_policy *policy;
    ht_half_copies copies;
    ht_rewrite rw;
    fact *facts; /* by value id, of values that were there before */
    size_t fact_count;
} caster;

/* The value that a chain of views begins with. */
static ht_val start_of_views(const ht_graph *g, ht_val v)
{
    for (const ht_node *n = ht_producer(g, v); n && n->op->view && n->n_in == 1; n = ht_producer(g, v))
        v = ht_node_in(g, n, 0);
    return v;
}

static bool is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at && *at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return true;
    return false;
}

/* An op that stays f32, by its author's wish or the policy's; its gradient with it. */
static bool is_full(const caster *c, const ht_node *n)
{
    const ht_node *origin = &c->g->nodes[n->origin];
    if (n->full || is_listed(c->policy->f32_ops, n->op->name)) return true;
    return n->origin && (origin->full || is_listed(c->policy->f32_ops, origin->op->name));
}

/* ---- looking ahead: who reads what ---- */

static bool is_add(const ht_node *n)
{
    return n->op->prec == HT_PREC_POINT && strcmp(n->op->name, "add") == 0;
}

/* What is summed up or passed on to become a gradient is one, too; so is what is passed on to be shown. */
static void spread_wide(caster *c, const ht_node *n)
{
    if (n->op->prec != HT_PREC_MOVE && (n->role == HT_ROLE_FWD || !is_add(n))) return;
    for (size_t k = 0; k < n->n_out; k++)
        for (size_t i = 0; c->facts[n->out + k].wide && i < n->n_in; i++)
            c->facts[ht_node_in(c->g, n, i).id].wide = true;
}

/* sum, mean, norm. */
static bool sums_up(const ht_node *n)
{
    return n->op->prec == HT_PREC_REDUCE && n->op->f32_out && n->op->n_out == 1 && n->n_in == 1 &&
           n->role == HT_ROLE_FWD;
}

/* Point-wise and no addition, or passed on to such a node. */
static bool applies(const caster *c, const ht_node *n)
{
    if (n->op->prec == HT_PREC_MOVE) return n->n_out && c->facts[n->out].applied;
    return n->op->prec == HT_PREC_POINT && !is_add(n);
}

static void look_ahead(caster *c, const ht_segment *s)
{
    ht_graph *g = c->g;
    for (size_t i = 0; i < s->output_count; i++) {
        fact *f = &c->facts[s->outputs[i].value.id];
        f->outside = true;
        f->shown = f->wide = ht_type_of(g, s->outputs[i].value)->dtype == HT_F32;
    }
    for (size_t at = s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        bool moves = n->op->prec == HT_PREC_MOVE, leaves = !n->region;
        if (n->op == &ht_op_store && ht_state_of(g, ht_node_in(g, n, 0))->heading == HT_HEADING_GRADIENTS) {
            c->facts[ht_node_in(g, n, 1).id].wide = true;
            c->facts[ht_node_in(g, n, 1).id].stored = c->policy->gradients == c->policy->half;
        }
        spread_wide(c, n);
        for (size_t i = 0; moves && i < n->n_out; i++) leaves |= c->facts[n->out + i].outside;
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            const ht_node *producer = ht_producer(g, v);
            bool outside = !producer || leaves || producer->region != n->region;
            c->facts[v.id].outside |= outside;
            c->facts[v.id].applied |= !outside && applies(c, n);
            *(sums_up(n) ? &c->facts[v.id].summed : &c->facts[v.id].used) = true;
            c->facts[v.id].reads++;
        }
    }
}

/* ---- the type of a result ---- */

/* Whether inputs of a result's shape, or else all of them, want it in half. *any: one of them had a say. */
static bool inputs_want_half(const caster *c, const ht_node *n, const ht_type *result, bool same_shape, bool *any)
{
    bool half = true;
    *any = false;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        const ht_type *type = ht_type_of(c->g, v);
        if (!v.id || !ht_dtype_is_float(type->dtype) || c->facts[v.id].weak) continue;
        if (same_shape && !ht_type_same_shape(type, result)) continue;
        *any = true;
        half &= c->facts[v.id].half;
    }
    return half && *any;
}

/* A broadcast shows each element several times. */
static bool is_broadcast(const caster *c, const ht_node *n)
{
    return n->op->view &&
           ht_type_elems(ht_type_of(c->g, ht_node_out(n, 0))) > ht_type_elems(ht_type_of(c->g, ht_node_in(c->g, n, 0)));
}

static bool reads_floats(const caster *c, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++)
        if (ht_dtype_is_float(ht_type_of(c->g, ht_node_in(c->g, n, i))->dtype)) return true;
    return false;
}

/* One side of a message. */
static bool is_message(const ht_node *n)
{
    return (n->op->flags & HT_OP_COLLECTIVE) && ht_op_has_attr(n->op, "peer");
}

static void judge(caster *c, const ht_node *n, size_t result)
{
    fact *f = &c->facts[n->out + result];
    const ht_type *type = ht_type_of(c->g, ht_node_out(n, result));
    bool any = true, keeps_f32 = n->op->f32_out >> result & 1, moves = n->op->prec == HT_PREC_MOVE;
    if (is_message(n)) {
        f->half = type->dtype == c->policy->half;
    } else if (!reads_floats(c, n)) {
        f->weak = true;
    } else if (n->op->prec == HT_PREC_EXACT || keeps_f32) {
        f->half = false;
    } else if ((n->op->flags & HT_OP_TYPED) && !moves) {
        f->half = type->dtype == c->policy->half;
    } else if (n->op->prec == HT_PREC_DOT || (n->op->prec == HT_PREC_REDUCE && n->role == HT_ROLE_FWD)) {
        f->half = true;
    } else if (n->op->prec == HT_PREC_REDUCE) {
        /* A gradient is like what it is the gradient of, which has its shape. */
        f->half = inputs_want_half(c, n, type, true, &any);
        if (!any) f->half = inputs_want_half(c, n, type, false, &any);
    } else {
        f->half = inputs_want_half(c, n, type, false, &any);
        f->weak = !any || (moves && is_broadcast(c, n));
    }
    if (!moves && is_full(c, n)) f->half = false;
    if (is_listed(c->policy->half_ops, n->op->name)) f->half = true;
}

/* A move that would rather read half: the lookup in a table. */
static bool looks_up(const ht_node *n)
{
    return n->op->prec == HT_PREC_MOVE && n->op->half_in;
}

/* Rows of a table are no parameter any more: they begin what is added to them, and are of the type they were read in. */
static void judge_rows(caster *c, const ht_node *n)
{
    fact *f = &c->facts[n->out];
    f->half = ht_type_of(c->g, ht_node_in(c->g, n, 0))->dtype == c->policy->half;
    f->weak = false;
}

/* ---- casts ---- */

/* What the builder emitted for n belongs where n does. */
static void stamp(ht_graph *g, size_t first, const ht_node *n)
{
    for (size_t i = first; i < g->node_count; i++) {
        g->nodes[i].role = n->role;
        g->nodes[i].site = n->site;
    }
}

static ht_val same_view_of(ht_graph *g, const ht_node *move, ht_val of)
{
    ht_type want = *ht_type_of(g, ht_node_out(move, 0));
    ht_val out[8];
    ht_node n = *move;
    want.dtype = ht_type_of(g, of)->dtype;
    ht_emit(g, n.op, 1, &of, ht_op_attr_count(n.op), n.attr, &want, out);
    return out[0];
}

static bool is_parameter(const ht_graph *g, ht_val v)
{
    const ht_state *s = ht_state_of(g, v);
    return s && (s->heading == HT_HEADING_PARAMETERS || s->heading == HT_HEADING_MASTERS);
}

/* v in half: its half copy, the same view of one, or a cast. A parameter that the policy keeps in f32 stays itself. */
static ht_val in_half(caster *c, ht_val v)
{
    ht_graph *g = c->g;
    if (ht_type_of(g, v)->dtype != HT_F32) return v;
    fact *f = v.id < c->fact_count ? &c->facts[v.id] : NULL;
    if (f && f->cast.id) return f->cast;
    const ht_node *producer = ht_producer(g, v);
    ht_val made = HT_NONE;
    if (is_parameter(g, v)) {
        made = ht_half_copy(&c->copies, v);
        if (!made.id && ht_type_of(g, v)->rank >= 2) made = v;
    } else if (producer && producer->op->view && is_parameter(g, start_of_views(g, v))) {
        ht_node move = *producer;
        made = same_view_of(g, &move, in_half(c, ht_node_in(g, &move, 0)));
    }
    if (!made.id) made = ht_cast(g, v, c->policy->half);
    if (f) f->cast = made;
    return made;
}

void ht_autocast_set_operand(ht_graph *g, const ht_node *n, size_t i, ht_val v)
{
    g->operands[n->in + i] = v;
}

static void widen_inputs(caster *c, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        if (v.id && (n->op->f32_in >> i & 1) && ht_type_of(c->g, v)->dtype == c->policy->half)
            ht_autocast_set_operand(c->g, n, i, ht_cast(c->g, v, HT_F32));
    }
}

/* What n reads becomes what it wants to read. */
static void cast_inputs(caster *c, const ht_node *n)
{
    ht_graph *g = c->g;
    widen_inputs(c, n);
    if (is_full(c, n) || (looks_up(n) && c->policy->residual_f32)) return;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        if (v.id && (n->op->half_in >> i & 1)) ht_autocast_set_operand(g, n, i, in_half(c, v));
    }
}

/* Is it the bias of a product, an expanded parameter? */
static bool is_bias(const caster *c, ht_val v)
{
    const ht_node *producer = ht_producer(c->g, v);
    return producer && is_broadcast(c, producer) && is_parameter(c->g, start_of_views(c->g, v));
}

static void cast_bias(caster *c, const ht_node *n)
{
    if (!c->policy->half_biases || !is_add(n) || !n->region || is_full(c, n)) return;
    for (size_t i = 0; i < n->n_in; i++) {
        const ht_node *product = ht_producer(c->g, ht_node_in(c->g, n, 1 - i));
        ht_val v = ht_node_in(c->g, n, i);
        if (product && product->op->fuse == HT_FUSE_DOT && product->region == n->region && is_bias(c, v))
            ht_autocast_set_operand(c->g, n, i, in_half(c, v));
    }
}

/* Several inputs of one move are of one type. */
static void cast_alike(caster *c, const ht_node *n)
{
    ht_graph *g = c->g;
    ht_dtype first = ht_type_of(g, ht_node_in(g, n, 0))->dtype;
    bool alike = true;
    for (size_t i = 1; i < n->n_in; i++) {
        ht_dtype dtype = ht_type_of(g, ht_node_in(g, n, i))->dtype;
        alike &= dtype == first || !ht_dtype_is_float(dtype);
    }
    if (alike) return;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        if (!ht_dtype_is_float(ht_type_of(g, v)->dtype)) continue;
        if (c->facts[n->out].half) v = in_half(c, v);
        ht_autocast_set_operand(g, n, i, ht_cast(g, v, c->facts[n->out].half ? c->policy->half : HT_F32));
    }
}

/* Who receives does not see what is sent, so that its shape alone says how. */
static void type_message(caster *c, const ht_node *n)
{
    ht_graph *g = c->g;
    ht_val v = n->n_in ? ht_node_in(g, n, 0) : ht_node_out(n, 0);
    bool half = !c->policy->residual_f32 && ht_type_of(g, v)->rank >= 2;
    if (!ht_dtype_is_float(ht_type_of(g, v)->dtype)) return;
    if (n->n_in)
        ht_autocast_set_operand(g, n, 0, half ? in_half(c, v) : ht_cast(g, v, HT_F32));
    else if (half)
        g->values[v.id].type.dtype = c->policy->half;
}

/* ---- the walk ---- */

/* A product that only goes into a half accumulator: it is rounded where it is made, and needs no f32 beside it. */
static bool ends_in_half(const ht_node *n, const fact *f)
{
    return n->op->prec == HT_PREC_DOT && f->stored && f->reads == 1 && !f->shown;
}

/* What only sums read is not rounded before it is summed: so squares of a loss do not overflow. */
static bool stays_wide(const ht_node *n, const fact *f)
{
    return (f->wide && !ends_in_half(n, f)) || (n->op->prec == HT_PREC_POINT && f->summed && !f->used);
}

static bool is_convolution(const ht_node *n)
{
    return n->op->prec == HT_PREC_DOT && strncmp(n->op->name, "conv2d", strlen("conv2d")) == 0;
}

/* A product, or the sum of one and its bias. */
static bool ends_product(const caster *c, const ht_node *n)
{
    if (n->op->fuse == HT_FUSE_DOT) return true;
    for (size_t i = 0; is_add(n) && i < n->n_in; i++) {
        const ht_node *product = ht_producer(c->g, ht_node_in(c->g, n, i));
        if (product && product->op->fuse == HT_FUSE_DOT && product->region == n->region) return true;
    }
    return false;
}

/* Would it be rounded if it were half? A value that only its region reads is not. */
static bool is_rounded(const caster *c, const ht_node *n, const fact *f)
{
    return f->outside || (c->policy->half_convolutions && is_convolution(n)) ||
           (c->policy->half_products && f->applied && ends_product(c, n));
}

static void set_results(caster *c, const ht_node *n)
{
    ht_graph *g = c->g;
    bool typed = n->op->flags & HT_OP_TYPED;
    for (size_t i = 0; i < n->n_out; i++) {
        const fact *f = &c->facts[n->out + i];
        ht_type *type = &g->values[n->out + i].type;
        if (type->dtype != HT_F32) continue;
        if (n->op->prec == HT_PREC_MOVE) {
            ht_dtype dtype = n->n_in ? ht_type_of(g, ht_node_in(g, n, 0))->dtype : HT_F32;
            if (ht_dtype_is_float(dtype)) type->dtype = dtype;
        } else if (n->op->prec != HT_PREC_EXACT && !typed && f->half && is_rounded(c, n, f) && !stays_wide(n, f)) {
            type->dtype = c->policy->half;
        }
    }
}

/* What exact ops make has the type that their rule says: the optimiser's that of its state. */
void ht_autocast_infer(ht_graph *g, const ht_node *n)
{
    ht_call_storage storage;
    ht_type types[8];
    if (n->op->prec != HT_PREC_EXACT || (n->op->flags & HT_OP_TYPED)) return;
    const ht_call *call = ht_node_call(g, n, g->arena, &storage);
    ht_status status = call ? n->op->infer(g->ctx, call, types) : HT_ENOMEM;
    if (status != HT_OK) ht_graph_fail(g, status, "autocast: %s does not take state of these types", n->op->name);
    for (size_t i = 0; i < n->n_out && status == HT_OK; i++) g->values[n->out + i].type.dtype = types[i].dtype;
}

/* ---- rounding by chance ---- */

static bool is_half_parameter(const caster *c, ht_val v)
{
    return is_parameter(c->g, v) && ht_type_of(c->g, v)->dtype == c->policy->half;
}

/* The rule computes a parameter in f32: what rounds it stands behind. */
static void widen_parameters(caster *c, const ht_node *n)
{
    if (n->op->prec != HT_PREC_EXACT) return;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(c->g, n, i);
        if (v.id && is_half_parameter(c, v)) ht_autocast_set_operand(c->g, n, i, ht_cast(c->g, v, HT_F32));
    }
}

/* A draw for each element and update made; a skipped one rounds nothing, for the old values are halves. */
static ht_val round_by_chance(caster *c, ht_val state, ht_val value)
{
    ht_graph *g = c->g;
    ht_type want = *ht_type_of(g, value);
    ht_val seed = ht_find(g, "rng.seed"), step = ht_find(g, "applied");
    if (!seed.id) seed = ht_state_add(g, "rng.seed", HT_I64, 0, NULL, HT_ZERO);
    if (!step.id) ht_graph_fail(g, HT_EINVAL, "autocast: rounding by chance needs the state 'applied'; run optimizer");
    seed = ht_to_space(g, seed, want.space);
    step = ht_to_space(g, step, want.space);
    want.dtype = c->policy->half;
    return ht_emit1(g, "round_stochastic", &want, HT_VALS(value, seed, step),
                    HT_ATTRS(HT_TEXT("site", ht_value_of(g, state)->name)));
}

/* What is stored, in the type of the state that it goes to. */
static ht_val as_stored(caster *c, const ht_node *store, ht_val state, ht_val value)
{
    bool update = store->role == HT_ROLE_UPDATE;
    if (c->policy->stochastic && update && is_half_parameter(c, state)) return round_by_chance(c, state, value);
    return ht_cast(c->g, value, ht_type_of(c->g, state)->dtype);
}

static void type_node(caster *c, uint32_t id)
{
    ht_graph *g = c->g;
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    size_t first = g->node_count;
    if (n.op == &ht_op_store) {
        ht_val state = ht_node_in(g, &n, 0);
        ht_autocast_set_operand(g, &n, 1, as_stored(c, &n, state, ht_node_in(g, &n, 1)));
        stamp(g, first, &n);
        ht_rewrite_keep(&c->rw, id);
        return;
    }
    if (n.role == HT_ROLE_UPDATE) {
        if (c->policy->stochastic) widen_parameters(c, &n);
        ht_autocast_infer(g, &n);
    } else {
        if (is_message(&n)) type_message(c, &n);
        for (size_t i = 0; i < n.n_out; i++) judge(c, &n, i);
        cast_inputs(c, &n);
        cast_bias(c, &n);
        if (looks_up(&n)) judge_rows(c, &n);
    }
    if (n.op->start)
        ht_rewrite_done(g, &n);
    else if (n.op->prec == HT_PREC_MOVE && n.n_in > 1)
        cast_alike(c, &n);
    set_results(c, &n);
    stamp(g, first, &n);
    ht_rewrite_keep(&c->rw, id);
}

/* Outputs keep the type that their author gave them, whatever they are computed in. */
static void cast_outputs(caster *c, uint32_t segment)
{
    ht_graph *g = c->g;
    for (size_t i = 0; i < g->segments[segment].output_count; i++) {
        ht_val v = g->segments[segment].outputs[i].value;
        if (v.id < c->fact_count && c->facts[v.id].shown) g->segments[segment].outputs[i].value = ht_cast(g, v, HT_F32);
    }
}

static ht_status type_segment(caster *c, uint32_t segment)
{
    ht_graph *g = c->g;
    c->fact_count = g->value_count;
    c->facts = calloc(c->fact_count, sizeof *c->facts);
    if (!c->facts) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for autocast");
    for (size_t i = 0; i < g->state_count; i++) c->facts[g->states[i].value.id].weak = true;
    for (size_t i = 0; i < g->segments[segment].input_count; i++)
        c->facts[g->segments[segment].inputs[i].id].weak = true;
    look_ahead(c, &g->segments[segment]);
    if (ht_rewrite_begin(&c->rw, g, segment)) {
        for (size_t i = 0; i < c->rw.count && g->status == HT_OK; i++) type_node(c, c->rw.old[i]);
        cast_outputs(c, segment);
    }
    ht_status status = ht_rewrite_end(&c->rw);
    free(c->facts);
    return status;
}

/* Whatever writes a parameter writes its copy. */
static ht_status store_copies(caster *c, uint32_t segment)
{
    ht_graph *g = c->g;
    if (!ht_rewrite_begin(&c->rw, g, segment)) return g->status;
    for (size_t i = 0; i < c->rw.count && g->status == HT_OK; i++) {
        const ht_node n = g->nodes[c->rw.old[i]];
        size_t first = g->node_count;
        ht_rewrite_keep(&c->rw, c->rw.old[i]);
        if (n.op == &ht_op_store) ht_half_copy_store(&c->copies, ht_node_in(g, &n, 0), ht_node_in(g, &n, 1));
        stamp(g, first, &n);
    }
    return ht_rewrite_end(&c->rw);
}

/* Copies are known when all that reads them has been seen. */
static ht_status cast_to_half(ht_graph *g, const ht_policy *policy)
{
    caster c = {.g = g, .policy = policy, .copies = {.g = g, .policy = policy}};
    uint32_t count = (uint32_t)g->segment_count;
    ht_status status = HT_OK;
    ht_policy_types_state(g, policy);
    for (uint32_t i = 0; i < count && status == HT_OK; i++) status = type_segment(&c, i);
    for (uint32_t i = 0; i < count && status == HT_OK; i++) status = store_copies(&c, i);
    if (status == HT_OK) status = ht_half_copies_derive(&c.copies);
    free(c.copies.copy);
    return status;
}

/* ---- options ---- */

#define PRECISION(field) .at = offsetof(ht_precision_options, field)
static const ht_setting_key keys[] = {
    {.name = "precision",
     .kind = HT_SETTING_CHOICE,
     PRECISION(precision),
     .words = "fp64|fp32|fp16|bf16", /* as ht_precision */
     .help = "number type of the arithmetic"},
    {.name = "masters",
     .kind = HT_SETTING_EITHER,
     PRECISION(masters),
     .words = "1|0",
     .help = "0: parameters are half themselves"},
    {.name = "gradients",
     .kind = HT_SETTING_EITHER,
     PRECISION(half_gradients),
     .words = "half|f32",
     .help = "number type of the accumulators"},
    {.name = "moments",
     .kind = HT_SETTING_EITHER,
     PRECISION(half_moments),
     .words = "half|f32",
     .help = "number type of the optimiser's state"},
    {.name = "residual",
     .kind = HT_SETTING_EITHER,
     PRECISION(residual_f32),
     .words = "f32|half",
     .help = "number type of the residual stream"},
    {.name = "rounding",
     .kind = HT_SETTING_EITHER,
     PRECISION(stochastic),
     .words = "stochastic|nearest",
     .help = "how the update rounds half parameters"},
    {.name = "fp32_ops", .kind = HT_SETTING_TEXT, PRECISION(fp32_ops), .help = "ops that compute in fp32, by name"},
    {.name = "half_ops", .kind = HT_SETTING_TEXT, PRECISION(half_ops), .help = "ops that compute in half, by name"},
    {.name = "fp32_params",
     .kind = HT_SETTING_TEXT,
     PRECISION(fp32_params),
     .help = "regular expression: parameters without a half copy"},
    {.name = NULL}};
#undef PRECISION

static bool has_op(const ht_graph *g, const ht_op *op)
{
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++) {
            const ht_node *n = &g->nodes[g->segments[s].nodes[i]];
            if (n->op == op || (n->origin && g->nodes[n->origin].op == op)) return true;
        }
    return false;
}

/* An op that there is not is a mistake; one that this model does not use is worth a warning. */
static ht_status check_ops(ht_graph *g, const char *key, const char *list)
{
    for (const char *at = list; at && *at;) {
        size_t length = strcspn(at, ",");
        const ht_op *op = ht_op_find(g->ctx, at, length);
        const char *near = op ? NULL : ht_op_nearest(g->ctx, at, length);
        if (!op)
            HT_FAIL(g->ctx, HT_EINVAL, "setting %s: there is no op '%.*s'%s%s%s", key, (int)length, at,
                    near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        if (!has_op(g, op)) ht_note(g->ctx, HT_LOG_WARN, "setting %s: this model has no op '%s'", key, op->name);
        at += length + (at[length] == ',');
    }
    return HT_OK;
}

static void warn_without_match(ht_graph *g, const ht_policy *p, const char *expression)
{
    for (size_t i = 0; i < g->state_count; i++) {
        ht_val state = g->states[i].value;
        if (is_parameter(g, state) && regexec(&p->f32_params, ht_value_of(g, state)->name, 0, NULL, 0) == 0) return;
    }
    ht_note(g->ctx, HT_LOG_WARN, "setting fp32_params: '%s' matches no parameter of this model", expression);
}

static ht_status choose_policy(ht_graph *g, const ht_precision_options *o, const ht_target *target, ht_policy *p)
{
    bool cublaslt = target && target->device == HT_DEVICE_CUDA && ht_target_has_library(target, HT_LIBRARY_CUBLASLT);
    bool cudnn = target && target->device == HT_DEVICE_CUDA && ht_target_has_library(target, HT_LIBRARY_CUDNN);
    *p = (ht_policy){.half = o->precision == HT_PRECISION_FP16 ? HT_F16 : HT_BF16,
                     .masters = o->masters,
                     .stochastic = o->stochastic,
                     .residual_f32 = o->residual_f32,
                     .half_biases = cublaslt && o->masters,
                     .half_products = cublaslt,
                     .half_convolutions = cudnn,
                     .f32_ops = o->fp32_ops,
                     .half_ops = o->half_ops};
    p->gradients = o->half_gradients ? p->half : HT_F32;
    p->moments = o->half_moments ? p->half : HT_F32;
    if (p->stochastic && p->masters)
        HT_FAIL(g->ctx, HT_EINVAL,
                "setting rounding: stochastic is for parameters that are half themselves: masters=0");
    HT_TRY(check_ops(g, "fp32_ops", p->f32_ops));
    HT_TRY(check_ops(g, "half_ops", p->half_ops));
    if (!o->fp32_params || !o->fp32_params[0]) return HT_OK;
    if (!p->masters) HT_FAIL(g->ctx, HT_EINVAL, "setting fp32_params: without masters all parameters are of one type");
    int wrong = regcomp(&p->f32_params, o->fp32_params, REG_EXTENDED | REG_NOSUB);
    if (wrong) {
        char why[128];
        regerror(wrong, &p->f32_params, why, sizeof why);
        HT_FAIL(g->ctx, HT_EINVAL, "setting fp32_params: '%s': %s", o->fp32_params, why);
    }
    p->has_f32_params = true;
    warn_without_match(g, p, o->fp32_params);
    return HT_OK;
}

static ht_status autocast_run(ht_graph *g, const ht_pass_env *env)
{
    ht_policy policy;
    if (env->options->precision.precision == HT_PRECISION_FP32) return HT_OK;
    if (env->options->precision.precision == HT_PRECISION_FP64) return ht_autocast_f64(g);
    ht_status status = choose_policy(g, &env->options->precision, env->target, &policy);
    if (status == HT_OK) status = cast_to_half(g, &policy);
    if (policy.has_f32_params) regfree(&policy.f32_params);
    return status;
}

static const ht_pass_settings settings[] = {{keys, offsetof(ht_pass_options, precision)}, {NULL, 0}};

const ht_pass ht_pass_autocast = {
    .name = "autocast",
    .help = "choose a number type for every value; casts and half copies",
    .system = true,
    .keeps_step = true,
    .run = autocast_run,
    .settings = settings,
};
