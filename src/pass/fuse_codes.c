/* fuse_codes: codes flow from layer to layer. What follows a convolution of codes becomes a part of it:
 *     - sums and products by a number for each channel (the bias, batchnorm by running statistics): new scales and a new bias
 *     - the residual that is added: codes where it has codes, else f32
 *     - relu or clip, and quantize_linear with scales that are states: its result is codes then
 * A max_pool2d between it and quantize_linear pools the codes. Who reads the f32 besides reads what the codes stand for.
 *
 * Scales and bias that follow from states alone are states, `w_fold_scale` and `w_fold_bias` for codes `w`: "derive" makes them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

enum { MOST_LINEAR = 8 };
enum { X, W, X_SCALE, W_SCALE, X_ZERO, BIAS, Y_SCALE, Y_ZERO, R, R_SCALE, R_ZERO, INPUTS }; /* of conv_q */
enum { LOW = 4, HIGH };                                                                     /* its attributes */

/* A sum, a difference or a product by a number for each channel. */
typedef struct linear {
    char op; /* '+', '-', '*' */
    ht_val numbers;
} linear;

/* A convolution and what becomes a part of it. */
typedef struct chain {
    uint32_t conv, pool; /* nodes; 0: none */
    linear linear[MOST_LINEAR];
    size_t linear_count;
    ht_val residual;
    double low, high;
    uint32_t clip;     /* the node that clips; 0: none */
    uint32_t quantize; /* 0: the result is f32, and clip stays */
    ht_val last;       /* that it all makes, before the pool */
} chain;

/* What stands for a value that is no longer there in f32. */
typedef struct coded {
    ht_val codes, scale, zero;
} coded;

typedef struct folded {
    ht_val weight, made[2], state[2]; /* scale, bias */
} folded;

typedef struct fuser {
    ht_graph *g;
    const ht_segment *s;
    ht_arena *arena;    /* of the segment at hand */
    uint32_t *uses;     /* by value; outputs count */
    uint32_t *reader;   /* by value: the last node that reads it */
    uint32_t *quantize; /* by value: a quantize_linear of it by states */
    chain **chains;     /* by node: the chain that it ends */
    bool *gone;         /* by node: a part of a chain */
    coded *coded;       /* by value */
    size_t values;
    folded *folded; /* of all segments */
    size_t folded_count, folded_capacity;
    ht_rewrite rw;
} fuser;

static bool is_op(const ht_node *n, const char *name)
{
    return n && strcmp(n->op->name, name) == 0;
}

static const ht_type *type_of(const fuser *f, ht_val v)
{
    return ht_type_of(f->g, v);
}

/* ---- what follows a convolution ---- */

/* [1, C, 1, ..] or [C, 1, ..] without the leading axis: a number for each channel of a value of rank 4. */
static bool is_by_channel(const ht_type *type, int64_t channels)
{
    int axis = type->rank - 3; /* from the last: channels, height, width */
    bool others = true;
    for (int i = 0; i < type->rank; i++) others &= i == axis || type->dim[i] == 1;
    return axis >= 0 && type->rank <= 4 && type->dim[axis] == channels && others;
}

/* The numbers [C] of v, a value of rank 4 that repeats them; or none. */
static ht_val numbers_of(const fuser *f, ht_val v)
{
    const ht_node *expand = ht_producer(f->g, v);
    if (!is_op(expand, "expand") || type_of(f, v)->rank != 4) return HT_NONE;
    ht_val from = ht_node_in(f->g, expand, 0);
    if (!is_by_channel(type_of(f, from), type_of(f, v)->dim[1])) return HT_NONE;
    const ht_node *reshape = ht_producer(f->g, from);
    if (!is_op(reshape, "reshape")) return HT_NONE;
    ht_val numbers = ht_node_in(f->g, reshape, 0);
    return type_of(f, numbers)->rank == 1 && type_of(f, numbers)->dtype == HT_F32 ? numbers : HT_NONE;
}

static bool add_linear(const fuser *f, chain *c, const ht_node *n, ht_val from)
{
    char op = is_op(n, "add") ? '+' : is_op(n, "sub") ? '-' : is_op(n, "mul") ? '*' : 0;
    if (!op || c->residual.id || c->clip || c->linear_count == MOST_LINEAR) return false;
    bool first = ht_node_in(f->g, n, 0).id == from.id;
    if (op == '-' && !first) return false;
    ht_val numbers = numbers_of(f, ht_node_in(f->g, n, first ? 1 : 0));
    if (!numbers.id) return false;
    c->linear[c->linear_count++] = (linear){op, numbers};
    return true;
}

static bool add_residual(const fuser *f, chain *c, const ht_node *n, ht_val from)
{
    if (!is_op(n, "add") || c->residual.id || c->clip) return false;
    ht_val other = ht_node_in(f->g, n, ht_node_in(f->g, n, 0).id == from.id ? 1 : 0);
    if (other.id == from.id || !ht_type_same(type_of(f, other), type_of(f, from))) return false;
    c->residual = other;
    return true;
}

static bool add_clip(chain *c, const ht_node *n, uint32_t id)
{
    if (c->clip) return false;
    if (is_op(n, "relu")) {
        c->low = 0;
    } else if (is_op(n, "clip")) {
        c->low = n->attr[0].f;
        c->high = n->attr[1].f;
    } else {
        return false;
    }
    c->clip = id;
    return true;
}

/* The next node of the chain whose last value is `from`: 0: it ends here. */
static uint32_t grow(const fuser *f, chain *c, ht_val from)
{
    uint32_t id = f->reader[from.id];
    if (f->uses[from.id] != 1 || !id || f->gone[id]) return 0;
    const ht_node *n = &f->g->nodes[id];
    if (n->n_out != 1 || !ht_type_same(type_of(f, ht_node_out(n, 0)), type_of(f, from))) return 0;
    bool part = add_linear(f, c, n, from) || add_residual(f, c, n, from) || add_clip(c, n, id);
    return part ? id : 0;
}

static bool starts_chain(const fuser *f, const ht_node *n)
{
    if (!is_op(n, "conv_q") || type_of(f, ht_node_out(n, 0))->dtype != HT_F32 || n->role != HT_ROLE_FWD) return false;
    return n->n_in <= R || !ht_node_in(f->g, n, R).id;
}

/* The pool that only codes need: its taps are not read. */
static uint32_t find_pool(const fuser *f, ht_val from)
{
    uint32_t id = f->reader[from.id];
    const ht_node *n = &f->g->nodes[id];
    if (f->uses[from.id] != 1 || !is_op(n, "max_pool2d") || f->uses[n->out + 1]) return 0;
    return f->quantize[n->out] ? id : 0;
}

static ht_status find_chain(fuser *f, uint32_t id)
{
    chain *c = HT_NEW(f->arena, chain, 1);
    if (!c) HT_FAIL(f->g->ctx, HT_ENOMEM, "out of memory for convolutions of codes");
    uint32_t end = id, parts[MOST_LINEAR + 3], count = 0;
    *c = (chain){.conv = id, .low = -INFINITY, .high = INFINITY, .last = ht_node_out(&f->g->nodes[id], 0)};
    for (uint32_t next; (next = grow(f, c, c->last));) {
        parts[count++] = end;
        end = next;
        c->last = ht_node_out(&f->g->nodes[next], 0);
    }
    c->quantize = f->quantize[c->last.id];
    if (!c->quantize && (c->pool = find_pool(f, c->last))) {
        c->quantize = f->quantize[f->g->nodes[c->pool].out];
        parts[count++] = end;
        end = c->pool;
    }
    if (!c->quantize && end == id) return HT_OK;
    for (uint32_t i = 0; i < count; i++) f->gone[parts[i]] = true;
    f->gone[end] = true;
    if (c->quantize) f->gone[c->quantize] = true;
    f->chains[end] = c;
    return HT_OK;
}

/* ---- scales and bias ---- */

/* A state as it is at the end of the segment. */
static ht_val stored_value(const ht_graph *g, const ht_segment *s, ht_val state)
{
    for (size_t i = s->node_count; i-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        if (n->op == &ht_op_store && ht_node_in(g, n, 0).id == state.id) return ht_node_in(g, n, 1);
    }
    return state;
}

static bool same_call(const ht_graph *g, const ht_node *a, const ht_op *op, size_t n_in, const ht_val *in,
                      const ht_attr *attr, const ht_type *type)
{
    if (a->op != op || a->n_in != n_in || !ht_type_same(ht_type_of(g, ht_node_out(a, 0)), type)) return false;
    for (size_t i = 0; i < n_in; i++)
        if (ht_node_in(g, a, i).id != in[i].id) return false;
    for (size_t i = 0; i < ht_op_attr_count(op); i++)
        if (!ht_attr_equal(&a->attr[i], &attr[i])) return false;
    return true;
}

/* A call in the current segment, which may have it already. */
static ht_val call_once(ht_graph *g, const ht_op *op, size_t n_in, const ht_val *in, const ht_attr *attr,
                        const ht_type *type)
{
    const ht_segment *s = &g->segments[g->segment];
    ht_val out = HT_NONE;
    for (size_t i = 0; i < s->node_count; i++)
        if (same_call(g, &g->nodes[s->nodes[i]], op, n_in, in, attr, type))
            return ht_node_out(&g->nodes[s->nodes[i]], 0);
    ht_emit(g, op, n_in, in, ht_op_attr_count(op), attr, type, &out);
    return out;
}

/* v, computed from states in the current segment, "derive"; none: it needs more than states. */
static ht_val derived_value(ht_graph *g, ht_val v)
{
    enum { MOST_INPUTS = 4 };
    ht_val in[MOST_INPUTS];
    if (ht_state_of(g, v)) return stored_value(g, &g->segments[g->segment], v);
    const ht_node *producer = ht_producer(g, v);
    if (!producer || producer->n_out != 1 || producer->n_in > MOST_INPUTS || producer->op->flags & HT_OP_EFFECT)
        return HT_NONE;
    const ht_node n = *producer; /* the builder may move the graph's */
    const ht_type type = *ht_type_of(g, v);
    for (size_t i = 0; i < n.n_in; i++) {
        in[i] = derived_value(g, ht_node_in(g, &n, i));
        if (!in[i].id) return HT_NONE;
    }
    return call_once(g, n.op, n.n_in, in, n.attr, &type);
}

static ht_val pointwise(ht_graph *g, const char *op, ht_val a, ht_val b)
{
    const ht_val in[] = {a, b};
    const ht_type type = *ht_type_of(g, a);
    return call_once(g, ht_op_find(g->ctx, op, strlen(op)), b.id ? 2 : 1, in, NULL, &type);
}

/* A scale for each channel. */
static ht_val widen(ht_graph *g, ht_val scale, int64_t channels)
{
    const ht_type type = ht_type_make(HT_F32, 1, &channels);
    if (ht_type_of(g, scale)->rank == 1) return scale;
    const ht_type one = ht_type_make(HT_F32, 1, (int64_t[]){1});
    ht_val line = ht_emit1(g, "reshape", &one, HT_VALS(scale), HT_NO_ATTRS);
    return ht_emit1(g, "expand", &type, HT_VALS(line), HT_NO_ATTRS);
}

/* Both as the numbers of the chain make them, by values that `take` gives; false: it has none. */
static bool fold_numbers(fuser *f, const chain *c, ht_val (*take)(fuser *f, ht_val v), ht_val made[2])
{
    ht_graph *g = f->g;
    const ht_node conv = g->nodes[c->conv];
    ht_val scale = take(f, ht_node_in(g, &conv, W_SCALE));
    ht_val bias = conv.n_in > BIAS && ht_node_in(g, &conv, BIAS).id ? take(f, ht_node_in(g, &conv, BIAS)) : HT_NONE;
    bool known = scale.id && (bias.id || conv.n_in <= BIAS || !ht_node_in(g, &conv, BIAS).id);
    for (size_t i = 0; i < c->linear_count && known && g->status == HT_OK; i++) {
        const linear *l = &c->linear[i];
        ht_val numbers = take(f, l->numbers);
        known = numbers.id != 0;
        if (!known) break;
        if (l->op == '*') {
            scale = pointwise(g, "mul", widen(g, scale, ht_type_of(g, numbers)->dim[0]), numbers);
            if (bias.id) bias = pointwise(g, "mul", bias, numbers);
        } else if (!bias.id) {
            bias = l->op == '+' ? numbers : pointwise(g, "neg", numbers, HT_NONE);
        } else {
            bias = pointwise(g, l->op == '+' ? "add" : "sub", bias, numbers);
        }
    }
    made[0] = scale;
    made[1] = bias;
    return known && g->status == HT_OK;
}

static ht_val take_derived(fuser *f, ht_val v)
{
    return derived_value(f->g, v);
}

static ht_val take_here(fuser *f, ht_val v)
{
    return ht_rewrite_map(&f->rw, v);
}

static ht_val store_folded(ht_graph *g, ht_val weight, const char *what, ht_val made)
{
    char name[512];
    if (!made.id) return HT_NONE;
    snprintf(name, sizeof name, "%s_fold_%s", ht_value_of(g, weight)->name, what);
    const ht_type type = *ht_type_of(g, made);
    ht_val state = ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_WEIGHTS, .derived = true});
    ht_store(g, state, made);
    return state;
}

/* States for what "derive" makes; once for all segments with the same layer. */
static ht_status states_of(fuser *f, ht_val weight, const ht_val made[2], ht_val state[2])
{
    ht_graph *g = f->g;
    for (size_t i = 0; i < f->folded_count; i++) {
        const folded *known = &f->folded[i];
        if (known->weight.id != weight.id || known->made[0].id != made[0].id || known->made[1].id != made[1].id)
            continue;
        memcpy(state, known->state, sizeof known->state);
        return HT_OK;
    }
    if (!ht_grow((void **)&f->folded, &f->folded_capacity, f->folded_count + 1, sizeof *f->folded))
        HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for convolutions of codes");
    state[0] = store_folded(g, weight, "scale", made[0]);
    state[1] = store_folded(g, weight, "bias", made[1]);
    f->folded[f->folded_count++] = (folded){weight, {made[0], made[1]}, {state[0], state[1]}};
    return g->status;
}

/* The weight has its numbers already, of another layer that shares it. */
static bool is_shared(const fuser *f, ht_val weight, const ht_val made[2])
{
    for (size_t i = 0; i < f->folded_count; i++)
        if (f->folded[i].weight.id == weight.id &&
            (f->folded[i].made[0].id != made[0].id || f->folded[i].made[1].id != made[1].id))
            return true;
    return false;
}

/* The scale and the bias of a chain. */
static ht_status find_numbers(fuser *f, const chain *c, ht_val numbers[2])
{
    ht_graph *g = f->g;
    const ht_node conv = g->nodes[c->conv];
    ht_val weight = ht_node_in(g, &conv, W), made[2];
    if (!c->linear_count) {
        numbers[0] = ht_rewrite_map(&f->rw, ht_node_in(g, &conv, W_SCALE));
        numbers[1] = conv.n_in > BIAS ? ht_rewrite_map(&f->rw, ht_node_in(g, &conv, BIAS)) : HT_NONE;
        return HT_OK;
    }
    uint32_t resume = g->segment;
    if (ht_state_of(g, weight)) {
        int derive = ht_segment_find(g, "derive");
        g->segment = derive >= 0 ? (uint32_t)derive : ht_graph_add_segment(g, "derive");
        bool done = fold_numbers(f, c, take_derived, made) && !is_shared(f, weight, made);
        if (done) HT_TRY(states_of(f, weight, made, numbers));
        g->segment = resume;
        if (done || g->status != HT_OK) return g->status;
    }
    fold_numbers(f, c, take_here, numbers);
    return g->status;
}

/* ---- the new nodes ---- */

static void take_residual(const fuser *f, const chain *c, ht_val in[INPUTS])
{
    if (!c->residual.id) return;
    const coded *codes = &f->coded[c->residual.id];
    in[R] = codes->codes.id ? codes->codes : ht_rewrite_map(&f->rw, c->residual);
    in[R_SCALE] = codes->scale;
    in[R_ZERO] = codes->zero;
}

static ht_val emit_conv(fuser *f, const chain *c, const ht_val numbers[2])
{
    ht_graph *g = f->g;
    const ht_node conv = g->nodes[c->conv];
    ht_type type = *ht_type_of(g, c->last);
    ht_val in[INPUTS] = {HT_NONE}, y;
    ht_attr attrs[HIGH + 1];
    memcpy(attrs, conv.attr, sizeof attrs);
    for (size_t i = 0; i < conv.n_in && i < BIAS; i++) in[i] = ht_rewrite_map(&f->rw, ht_node_in(g, &conv, i));
    in[W_SCALE] = numbers[0];
    in[BIAS] = numbers[1];
    take_residual(f, c, in);
    if (c->quantize) {
        const ht_node quantize = g->nodes[c->quantize];
        type.dtype = ht_type_of(g, ht_node_out(&quantize, 0))->dtype;
        in[Y_SCALE] = ht_node_in(g, &quantize, 1);
        in[Y_ZERO] = quantize.n_in > 2 ? ht_node_in(g, &quantize, 2) : HT_NONE;
        attrs[LOW].f = c->low;
        attrs[HIGH].f = c->high;
    }
    ht_emit(g, conv.op, INPUTS, in, HIGH + 1, attrs, &type, &y);
    if (!c->clip || c->quantize) return y;
    const ht_node clip = g->nodes[c->clip];
    return ht_emit1(g, clip.op->name, &type, HT_VALS(y), ht_op_attr_count(clip.op), clip.attr);
}

/* Codes of the chain's last value, or of its pool's; they stand for `was` from here on. */
static void replace_by_codes(fuser *f, const chain *c, ht_val codes)
{
    ht_graph *g = f->g;
    const ht_node quantize = g->nodes[c->quantize];
    ht_val was = ht_node_in(g, &quantize, 0), scale = ht_node_in(g, &quantize, 1);
    ht_val zero = quantize.n_in > 2 ? ht_node_in(g, &quantize, 2) : HT_NONE;
    if (c->pool) {
        const ht_node pool = g->nodes[c->pool];
        ht_type want[2] = {*ht_type_of(g, ht_node_out(&pool, 0)), *ht_type_of(g, ht_node_out(&pool, 1))};
        ht_val out[2];
        want[0].dtype = ht_type_of(g, codes)->dtype;
        ht_emit(g, pool.op, 1, &codes, ht_op_attr_count(pool.op), pool.attr, want, out);
        codes = out[0];
    }
    if (g->status != HT_OK) return;
    ht_rewrite_replace(&f->rw, ht_node_out(&quantize, 0), codes);
    if (was.id < f->values) f->coded[was.id] = (coded){codes, scale, zero};
    if (f->uses[was.id] == 1) return;
    ht_rewrite_replace(&f->rw, was, ht_emit1(g, "dequantize_linear", NULL, HT_VALS(codes, scale, zero), HT_NO_ATTRS));
}

static ht_status emit_chain(fuser *f, const chain *c)
{
    ht_graph *g = f->g;
    ht_val numbers[2];
    size_t first = g->node_count;
    const char *site = g->nodes[c->conv].site;
    HT_TRY(find_numbers(f, c, numbers));
    ht_val y = emit_conv(f, c, numbers);
    HT_TRY(g->status);
    if (c->quantize)
        replace_by_codes(f, c, y);
    else
        ht_rewrite_replace(&f->rw, c->last, y);
    for (size_t i = first; i < g->node_count; i++) g->nodes[i].site = site;
    return g->status;
}

/* ---- the pass ---- */

/* One scale and zero point, which are states. */
static bool is_static(const fuser *f, const ht_node *n)
{
    if (!is_op(n, "quantize_linear") || type_of(f, ht_node_in(f->g, n, 1))->rank) return false;
    for (size_t i = 1; i < n->n_in; i++)
        if (ht_node_in(f->g, n, i).id && !ht_state_of(f->g, ht_node_in(f->g, n, i))) return false;
    return true;
}

static ht_status survey(fuser *f)
{
    ht_graph *g = f->g;
    f->values = g->value_count;
    f->uses = HT_NEW(f->arena, uint32_t, f->values);
    f->reader = HT_NEW(f->arena, uint32_t, f->values);
    f->quantize = HT_NEW(f->arena, uint32_t, f->values);
    f->coded = HT_NEW(f->arena, coded, f->values);
    f->chains = HT_NEW(f->arena, chain *, g->node_count);
    f->gone = HT_NEW(f->arena, bool, g->node_count);
    if (!f->uses || !f->reader || !f->quantize || !f->coded || !f->chains || !f->gone)
        HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for convolutions of codes");
    for (size_t i = 0; i < f->s->node_count; i++) {
        const ht_node *n = &g->nodes[f->s->nodes[i]];
        for (size_t k = 0; k < n->n_in; k++) {
            f->uses[ht_node_in(g, n, k).id]++;
            f->reader[ht_node_in(g, n, k).id] = f->s->nodes[i];
        }
        ht_val x = n->n_in ? ht_node_in(g, n, 0) : HT_NONE;
        if (is_static(f, n) && !f->quantize[x.id]) f->quantize[x.id] = f->s->nodes[i];
    }
    for (size_t i = 0; i < f->s->output_count; i++) f->uses[f->s->outputs[i].value.id] += 2; /* and no reader */
    /* From the last on: of two convolutions that are added the second one adds the first. */
    for (size_t i = f->s->node_count; i-- > 0;)
        if (starts_chain(f, &g->nodes[f->s->nodes[i]])) HT_TRY(find_chain(f, f->s->nodes[i]));
    return HT_OK;
}

static ht_status fuse_segment(fuser *f, uint32_t segment)
{
    ht_graph *g = f->g;
    ht_status status = HT_OK;
    f->s = &g->segments[segment];
    HT_TRY(survey(f));
    if (ht_rewrite_begin(&f->rw, g, segment))
        for (size_t i = 0; i < f->rw.count && g->status == HT_OK && status == HT_OK; i++) {
            uint32_t id = f->rw.old[i];
            if (f->chains[id]) status = emit_chain(f, f->chains[id]);
            if (!f->gone[id]) ht_rewrite_keep(&f->rw, id);
        }
    ht_status ended = ht_rewrite_end(&f->rw);
    return status != HT_OK ? status : ended;
}

static ht_status fuse_codes_run(ht_graph *g, const ht_pass_env *env)
{
    fuser f = {.g = g};
    ht_status status = HT_OK;
    uint32_t count = (uint32_t)g->segment_count;
    (void)env;
    for (uint32_t i = 0; i < count && status == HT_OK; i++) {
        if (strcmp(g->segments[i].name, "init") == 0 || strcmp(g->segments[i].name, "derive") == 0) continue;
        f.arena = ht_arena_create();
        status = f.arena ? fuse_segment(&f, i) : ht_fail(g->ctx, HT_ENOMEM, "out of memory for convolutions of codes");
        ht_arena_free(f.arena);
    }
    free(f.folded);
    return status;
}

const ht_pass ht_pass_fuse_codes = {
    .name = "fuse_codes",
    .help = "convolutions of codes take bias, norm, residual and activation, and make codes",
    .run = fuse_codes_run,
};
