/* Tensor parallel training: ranks share each layer. The pass derives how from the graph alone, by a rule for each op
 * (sharding.c), before it is differentiated.
 *
 * A region begins with products that read one whole value and whose weights are cut by columns. Everything that is
 * computed of their results is cut, too, until each path ends: in a product whose weight is cut by rows, where each
 * rank has a term and the sum over ranks is whole again, or in the loss of cut logits. Where a path cannot be cut the
 * weights stay whole. Tables that rows are looked up in are cut by rows, and a rank looks up what it has. Where the
 * sequence is shared, too, the sum leaves each rank its rows, which the next region gathers.
 *
 * A whole value enters a region by fan_out, whose gradient is a sum over ranks; the sum that leaves it has the identity
 * as gradient. So all that is whole, gradients included, has the same bits on all ranks. The model hash stays: what
 * leaves a region has the hash of what it replaces (`was`). */
#include <stdlib.h>
#include <string.h>

#include "pass/sharding.h"
#include "pass/train_options.h"

typedef struct deriver {
    ht_graph *g;
    ht_sharding_ranks ranks;
    ht_layout *given;        /* by value id: of parameters, and of constants that are made in pieces; else whole */
    ht_layout *layout;       /* by value id: as it follows from what is given; a sum is made at once, and then whole */
    ht_sharding_call *calls; /* by node id: the layouts in which a node reads and makes; valid where one is cut */
    size_t known;            /* values, before anything was changed */
    bool sequence;           /* rows between regions are shared, too */
    bool changed;            /* something more was given */
    int64_t blocks_size, blocks_wanted; /* of a refusal: an axis of this size would have to be in so many blocks */
    ht_arena *arena;
} deriver;

static bool is_op(const ht_node *n, const char *name)
{
    return n && strcmp(n->op->name, name) == 0;
}

static bool is_cut(const ht_layout *layout)
{
    return layout->kind == HT_LAYOUT_CUT;
}

/* ---- layouts ---- */

static bool give(deriver *d, ht_val v, ht_layout layout)
{
    if (is_cut(&d->given[v.id])) return ht_layout_same(&d->given[v.id], &layout);
    if (!ht_layout_fits(&layout, ht_type_of(d->g, v), d->ranks.group.ranks)) return false;
    d->given[v.id] = layout;
    d->changed = true;
    return true;
}

/* A whole value that a rule wants in pieces: a parameter, what repeats one, a constant. */
static bool ask(deriver *d, ht_val v, ht_layout layout)
{
    const ht_graph *g = d->g;
    const ht_state *state = ht_state_of(g, v);
    const ht_node *n = ht_producer(g, v);
    if (state) return state->trained && !d->sequence && give(d, v, layout);
    if (is_op(n, "fill")) return give(d, v, layout);
    if (!is_op(n, "expand")) return false;
    ht_val from = ht_node_in(g, n, 0);
    const ht_type *in = ht_type_of(g, from);
    int axis = layout.axis - (ht_type_of(g, v)->rank - in->rank);
    if (axis < 0 || in->dim[axis] == 1) return give(d, v, layout);
    return ask(d, from, (ht_layout){HT_LAYOUT_CUT, axis, layout.blocks});
}

/* Rows of a value that ranks share between regions. */
static bool is_rows(const deriver *d, ht_val v)
{
    const ht_layout *layout = &d->layout[v.id];
    return !ht_state_of(d->g, v) && is_cut(layout) && layout->axis == 0 && layout->blocks == 1;
}

static bool run_rule(const ht_sharding *rule, ht_sharding_call *c)
{
    bool any = false;
    for (size_t i = 0; i < c->call->n_in; i++) any |= is_cut(&c->in[i]);
    return !any || (rule && rule->derive(c));
}

/* The layouts in which a node reads its inputs and makes its results. Rows that it cannot compute on are gathered. */
static bool shard_node(const deriver *d, const ht_node *n, ht_call_storage *storage, ht_sharding_call *c)
{
    const ht_graph *g = d->g;
    const ht_sharding *rule = n->n_in <= HT_SHARDING_MOST ? ht_sharding_find(n->op) : NULL;
    *c = (ht_sharding_call){.ranks = d->ranks.group.ranks};
    if (n->n_in > HT_SHARDING_MOST) return false;
    c->call = ht_node_call(g, n, d->arena, storage);
    if (!c->call) return false;
    for (size_t i = 0; i < n->n_in; i++) c->in[i] = d->layout[ht_node_in(g, n, i).id];
    for (size_t i = 0; i < n->n_out; i++) c->out[i] = d->given[n->out + i];
    if (run_rule(rule, c)) return true;
    int64_t blocks = c->blocks_wanted;
    *c = (ht_sharding_call){.call = c->call, .ranks = c->ranks};
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        if (!d->sequence || !is_rows(d, v)) c->in[i] = d->layout[v.id];
    }
    bool done = d->sequence && run_rule(rule, c);
    c->blocks_wanted = blocks;
    return done;
}

/* Ranks that share the sequence keep their rows of a sum. */
static bool is_scattered(const deriver *d, const ht_layout *layout, const ht_type *type)
{
    const ht_layout rows = {HT_LAYOUT_CUT, 0, 1};
    return d->sequence && layout->kind == HT_LAYOUT_SUM && type->rank == 2 &&
           ht_layout_fits(&rows, type, d->ranks.group.ranks);
}

static bool derive_node(deriver *d, const ht_node *n)
{
    const ht_graph *g = d->g;
    ht_sharding_call c;
    ht_call_storage storage;
    bool any = false;
    for (size_t i = 0; i < n->n_in; i++) any |= is_cut(&d->layout[ht_node_in(g, n, i).id]);
    for (size_t i = 0; i < n->n_out; i++) {
        d->layout[n->out + i] = d->given[n->out + i];
        any |= is_cut(&d->given[n->out + i]);
    }
    if (!any) return true;
    if (!shard_node(d, n, &storage, &c)) {
        d->blocks_wanted = c.blocks_wanted;
        d->blocks_size = c.blocks_wanted ? c.call->in[0]->dim[c.in[0].axis] : 0;
        return false;
    }
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        bool given = !is_cut(&c.in[i]) || is_cut(&d->layout[v.id]) || ask(d, v, c.in[i]);
        if (!given && !(d->sequence && c.in[i].blocks == 1)) return false; /* else each takes its rows */
    }
    d->calls[n - g->nodes] = c;
    for (size_t i = 0; i < n->n_out; i++) {
        if (!ht_layout_fits(&c.out[i], c.call->out[i], c.ranks)) return false;
        bool scattered = is_scattered(d, &c.out[i], c.call->out[i]);
        d->layout[n->out + i] = scattered ? (ht_layout){HT_LAYOUT_CUT, 0, 1} : c.out[i];
    }
    return true;
}

/* What is handed out or stored is whole. */
static bool derive_segment(deriver *d, const ht_segment *s)
{
    for (size_t i = 0; i < s->node_count; i++)
        if (!derive_node(d, &d->g->nodes[s->nodes[i]])) return false;
    for (size_t i = 0; i < s->output_count; i++)
        if (is_cut(&d->layout[s->outputs[i].value.id])) return false;
    return true;
}

/* What follows from what is given, in all segments; false: something cannot be cut so. */
static bool derive(deriver *d)
{
    do {
        d->changed = false;
        memset(d->layout, 0, d->known * sizeof *d->layout);
        for (size_t i = 0; i < d->g->state_count; i++) {
            uint32_t id = d->g->states[i].value.id;
            d->layout[id] = d->given[id];
        }
        for (size_t i = 0; i < d->g->segment_count; i++)
            if (!derive_segment(d, &d->g->segments[i])) return false;
    } while (d->changed);
    return true;
}

/* ---- regions ---- */

/* Weights that are cut together, each along an axis of its own. */
typedef struct region {
    ht_val *weights;
    int *axes;
    size_t count;
} region;

static bool try_blocks(deriver *d, const region *r, int64_t size, int64_t blocks)
{
    for (size_t i = 0; i < r->count; i++) {
        bool so = ht_type_of(d->g, r->weights[i])->dim[r->axes[i]] == size;
        if (!give(d, r->weights[i], (ht_layout){HT_LAYOUT_CUT, r->axes[i], so ? blocks : 1})) return false;
    }
    return derive(d);
}

/* Keeps what was given only if all of it can be derived. */
static bool try_region(deriver *d, const region *r, ht_layout *before)
{
    int64_t size = 0, blocks = 1;
    for (int attempt = 0; attempt < 3; attempt++) {
        memcpy(before, d->given, d->known * sizeof *before);
        d->blocks_wanted = 0;
        if (try_blocks(d, r, size, blocks)) return true;
        memcpy(d->given, before, d->known * sizeof *before);
        if (!d->blocks_wanted) return false;
        size = d->blocks_size;
        blocks = d->blocks_wanted;
    }
    return false;
}

static bool is_free_weight(const deriver *d, ht_val v)
{
    const ht_state *state = ht_state_of(d->g, v);
    return state && state->trained && !is_cut(&d->given[v.id]);
}

static bool begins_region(const deriver *d, const ht_node *n)
{
    if (!is_op(n, "matmul")) return false;
    ht_val x = ht_node_in(d->g, n, 0);
    return !ht_state_of(d->g, x) && is_free_weight(d, ht_node_in(d->g, n, 1));
}

/* All products of a value with weights; or this one alone. */
static void find_region(const deriver *d, const ht_segment *s, const ht_node *first, bool all, region *r)
{
    const ht_graph *g = d->g;
    r->count = 0;
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        if (!begins_region(d, n) || ht_node_in(g, n, 0).id != ht_node_in(g, first, 0).id) continue;
        if (n != first && !all) continue;
        ht_call_storage storage;
        const ht_call *call = ht_node_call(g, n, d->arena, &storage);
        if (!call) continue;
        r->weights[r->count] = ht_node_in(g, n, 1);
        r->axes[r->count++] = call->in[1]->rank - (ht_call_int(call, "tb") ? 2 : 1);
    }
}

static void cut_products(deriver *d, const ht_segment *s, region *r, ht_layout *before)
{
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &d->g->nodes[s->nodes[i]];
        if (!begins_region(d, n)) continue;
        find_region(d, s, n, true, r);
        if (try_region(d, r, before) || r->count == 1) continue;
        find_region(d, s, n, false, r);
        try_region(d, r, before);
    }
}

static void cut_tables(deriver *d, const ht_segment *s, region *r, ht_layout *before)
{
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &d->g->nodes[s->nodes[i]];
        if (!is_op(n, "embedding") || !is_free_weight(d, ht_node_in(d->g, n, 0))) continue;
        r->weights[0] = ht_node_in(d->g, n, 0);
        r->axes[0] = 0;
        r->count = 1;
        try_region(d, r, before);
    }
}

static ht_status find_regions(deriver *d, uint32_t forward)
{
    ht_graph *g = d->g;
    const ht_segment *s = &g->segments[forward];
    region r = {calloc(s->node_count + 1, sizeof *r.weights), calloc(s->node_count + 1, sizeof *r.axes), 0};
    ht_layout *before = calloc(d->known, sizeof *before);
    bool ok = r.weights && r.axes && before;
    if (ok) {
        cut_products(d, s, &r, before);
        cut_tables(d, s, &r, before);
        ok = derive(d);
    }
    free(r.weights);
    free(r.axes);
    free(before);
    return ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "tensor: out of memory");
}

/* ---- the graph of one rank ---- */

static ht_cut cut_of(const deriver *d, const ht_layout *layout)
{
    return (ht_cut){layout->axis, layout->blocks, d->ranks.group.ranks, d->ranks.rank};
}

static void cut_type(deriver *d, ht_val v, const ht_layout *layout)
{
    ht_type *type = &d->g->values[v.id].type;
    ht_cut cut = cut_of(d, layout);
    *type = ht_cut_type(&cut, type);
}

static size_t cut_states(deriver *d)
{
    ht_graph *g = d->g;
    size_t count = 0;
    for (size_t i = 0; i < g->state_count; i++) {
        ht_state *s = &g->states[i];
        const ht_layout *layout = &d->layout[s->value.id];
        if (!is_cut(layout)) {
            if (s->trained && ht_type_of(g, s->value)->rank >= 2)
                ht_note(g->ctx, HT_LOG_INFO, "tensor: every rank has all of %s", ht_value_of(g, s->value)->name);
            continue;
        }
        s->whole = *ht_type_of(g, s->value);
        s->cut = cut_of(d, layout);
        cut_type(d, s->value, layout);
        count++;
    }
    return count;
}

/* What nodes read of a value in another layout than its own; all but pieces of whole values are made once. */
typedef enum reading { READS_FANNED, READS_GATHERED, READS_GATHERED_ALIKE, READINGS, READS_PIECE } reading;

typedef struct rewriter {
    deriver *d;
    ht_rewrite rw;
    uint64_t *hashes;       /* of the segment at hand, before it was changed */
    ht_val *read[READINGS]; /* by value id; none: nobody reads it so, yet */
} rewriter;

static ht_val make_reading(rewriter *w, ht_val v, reading how, const ht_layout *want)
{
    ht_graph *g = w->d->g;
    const ht_sharding_ranks *ranks = &w->d->ranks;
    ht_val now = ht_rewrite_map(&w->rw, v);
    bool floats = ht_dtype_is_float(ht_type_of(g, now)->dtype);
    if (how == READS_FANNED) return ht_fan_out(g, now, ranks->group);
    if (how == READS_PIECE) {
        int64_t size = ht_type_of(g, now)->dim[want->axis] / ranks->group.ranks;
        if (floats) now = ht_fan_out(g, now, ranks->group);
        return ht_slice_axis(g, now, want->axis, ranks->rank * size, size);
    }
    ht_val all = ht_all_gather_with(g, now, ranks->group, how == READS_GATHERED ? "sum" : "identity");
    if (g->status == HT_OK) g->nodes[ht_producer(g, all) - g->nodes].was = w->hashes[v.id];
    return all;
}

/* An operand in the layout that its node wants. `cut`: ranks compute different things of it. */
static ht_val operand_of(rewriter *w, ht_val v, const ht_layout *want, bool cut)
{
    ht_graph *g = w->d->g;
    if (!v.id) return v;
    ht_val now = ht_rewrite_map(&w->rw, v);
    const ht_node *from = ht_producer(g, now);
    bool is = is_cut(&w->d->layout[v.id]), constant = from && from->n_in == 0;
    bool floats = ht_dtype_is_float(ht_type_of(g, v)->dtype);
    if (is == is_cut(want) && (is || !cut || constant || !floats)) return now;
    if (!is && is_cut(want)) return make_reading(w, v, READS_PIECE, want);
    reading how = !is ? READS_FANNED : cut ? READS_GATHERED : READS_GATHERED_ALIKE;
    ht_val *made = &w->read[how][v.id];
    if (!made->id) *made = make_reading(w, v, how, want);
    return *made;
}

/* Nodes that stand for one are its model's author's, as that one was. */
static void stamp(ht_graph *g, size_t first, const ht_node *like, bool full)
{
    for (size_t i = first; i < g->node_count; i++) {
        g->nodes[i].site = like->site;
        g->nodes[i].checkpoint = like->checkpoint;
        g->nodes[i].full = full || like->full;
    }
}

static void keep_hash(rewriter *w, ht_val made, ht_val old)
{
    ht_graph *g = w->d->g;
    if (g->status == HT_OK) g->nodes[ht_producer(g, made) - g->nodes].was = w->hashes[old.id];
    ht_rewrite_replace(&w->rw, old, made);
}

/* The starts of a slice along the cut axis, in the piece. */
static void cut_slice(rewriter *w, uint32_t id, const ht_layout *layout)
{
    ht_graph *g = w->d->g;
    ht_node *n = &g->nodes[id];
    size_t count = ht_op_attr_count(n->op);
    ht_attr *attr = HT_NEW(g->arena, ht_attr, count);
    bool ok = attr != NULL;
    for (size_t i = 0; ok && i < count; i++) ok = ht_attr_copy(g->arena, &attr[i], &n->attr[i]);
    for (size_t i = 0; ok && i < count; i++)
        if (strcmp(attr[i].key, "start") == 0 && attr[i].count)
            ((int64_t *)attr[i].ints)[layout->axis] /= w->d->ranks.group.ranks;
    if (ok)
        n->attr = attr;
    else
        ht_graph_fail(g, HT_ENOMEM, "tensor: out of memory");
}

/* A term of each rank becomes what all have, or rows of it. */
static ht_val leave_region(rewriter *w, ht_val made, ht_val old)
{
    ht_graph *g = w->d->g;
    ht_group group = w->d->ranks.group;
    if (is_cut(&w->d->layout[old.id])) return ht_reduce_scatter(g, made, group, "sum");
    return ht_all_reduce_with(g, made, group, "sum", "identity");
}

/* What ends a region without a sum computes in full precision: it is the loss. */
static void replace_node(rewriter *w, const ht_node *n, const ht_sharding *rule, const ht_sharding_call *c,
                         const ht_val *in)
{
    ht_graph *g = w->d->g;
    ht_val out[HT_SHARDING_MOST] = {HT_NONE};
    ht_sharding_ranks ranks = w->d->ranks;
    bool ends = true;
    ranks.cut = c->in[0];
    size_t first = g->node_count;
    rule->replace(g, n, in, &ranks, out);
    for (size_t i = 0; i < n->n_out && g->status == HT_OK; i++) {
        bool sums = c->out[i].kind == HT_LAYOUT_SUM;
        ends &= c->out[i].kind == HT_LAYOUT_WHOLE;
        keep_hash(w, sums ? leave_region(w, out[i], ht_node_out(n, i)) : out[i], ht_node_out(n, i));
    }
    stamp(g, first, n, ends);
}

/* The node itself, on pieces. */
static void cut_node(rewriter *w, uint32_t id, const ht_sharding_call *c, const ht_val *in)
{
    ht_graph *g = w->d->g;
    const ht_node n = g->nodes[id];
    for (size_t i = 0; i < n.n_in; i++) g->operands[n.in + i] = in[i];
    for (size_t i = 0; i < n.n_out; i++)
        if (is_cut(&c->out[i])) cut_type(w->d, ht_node_out(&n, i), &c->out[i]);
    ht_rewrite_keep(&w->rw, id);
    size_t first = g->node_count;
    for (size_t i = 0; i < n.n_out && g->status == HT_OK; i++)
        if (c->out[i].kind == HT_LAYOUT_SUM)
            keep_hash(w, leave_region(w, ht_node_out(&n, i), ht_node_out(&n, i)), ht_node_out(&n, i));
    stamp(g, first, &n, false);
}

static void rewrite_node(rewriter *w, uint32_t id)
{
    ht_graph *g = w->d->g;
    const ht_node n = g->nodes[id];
    const ht_sharding_call c = w->d->calls[id];
    ht_val in[HT_SHARDING_MOST];
    bool touched = false, cut = false;
    for (size_t i = 0; i < n.n_in; i++) touched |= is_cut(&w->d->layout[ht_node_in(g, &n, i).id]);
    for (size_t i = 0; i < n.n_out; i++) touched |= is_cut(&w->d->layout[n.out + i]);
    if (!touched) {
        ht_rewrite_keep(&w->rw, id);
        return;
    }
    for (size_t i = 0; i < n.n_in; i++) cut |= is_cut(&c.in[i]);
    for (size_t i = 0; i < n.n_out; i++) cut |= is_cut(&c.out[i]);
    size_t first = g->node_count;
    for (size_t i = 0; i < n.n_in; i++) in[i] = operand_of(w, ht_node_in(g, &n, i), &c.in[i], cut);
    stamp(g, first, &n, false);
    const ht_sharding *rule = cut ? ht_sharding_find(n.op) : NULL;
    if (g->status != HT_OK) return;
    if (rule && is_op(&n, "slice")) cut_slice(w, id, &c.in[0]);
    if (rule && rule->replace)
        replace_node(w, &n, rule, &c, in);
    else
        cut_node(w, id, &c, in);
}

static ht_status rewrite_segment(deriver *d, uint32_t segment)
{
    ht_graph *g = d->g;
    rewriter w = {.d = d, .hashes = ht_value_hashes(g, segment)};
    bool ok = w.hashes != NULL;
    for (int i = 0; i < READINGS; i++) ok &= (w.read[i] = calloc(d->known, sizeof *w.read[i])) != NULL;
    ht_status status = ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "tensor: out of memory");
    if (status == HT_OK) {
        if (ht_rewrite_begin(&w.rw, g, segment))
            for (size_t i = 0; i < w.rw.count && g->status == HT_OK; i++) rewrite_node(&w, w.rw.old[i]);
        status = ht_rewrite_end(&w.rw);
    }
    free(w.hashes);
    for (int i = 0; i < READINGS; i++) free(w.read[i]);
    return status;
}

/* ---- the pass ---- */

static ht_status check(const ht_graph *g, const ht_pass_env *env)
{
    const ht_pass_options *o = env->options;
    const ht_offload_options *offload = &o->offload;
    long long ranks = (long long)o->parallel.tensor.ranks;
    if (o->parallel.tensor.rank >= o->parallel.tensor.ranks)
        HT_FAIL(g->ctx, HT_EINVAL, "rank %lld of the tensor axis: there are %lld", (long long)o->parallel.tensor.rank,
                ranks);
    bool moves = offload->optimizer != HT_SPACE_MAIN || offload->params != HT_SPACE_MAIN ||
                 offload->gradients != HT_SPACE_MAIN || offload->activations != HT_SPACE_MAIN;
    if (moves)
        HT_FAIL(g->ctx, HT_ENOTSUP, "tensor: an offload on %lld ranks that share layers is not there yet", ranks);
    if (o->precision.fp8 != HT_FP8_OFF)
        HT_FAIL(g->ctx, HT_ENOTSUP, "tensor: fp8 on %lld ranks that share layers is not there yet", ranks);
    if (o->precision.stochastic)
        HT_FAIL(g->ctx, HT_ENOTSUP, "tensor: stochastic rounding on %lld ranks that share layers is not there yet",
                ranks);
    if (o->head.chunks != 1)
        HT_FAIL(g->ctx, HT_ENOTSUP, "tensor: head_chunks on %lld ranks that share layers is not there yet", ranks);
    if (o->train.optimizer->per_tensor)
        HT_FAIL(g->ctx, HT_ENOTSUP,
                "tensor: %s looks at whole tensors: on %lld ranks that share layers it is not there yet",
                o->train.optimizer->name, ranks);
    return HT_OK;
}

static ht_status share_layers(deriver *d, bool sequence)
{
    ht_graph *g = d->g;
    int forward = ht_segment_find(g, "forward");
    if (forward < 0) HT_FAIL(g->ctx, HT_EINVAL, "tensor: the graph has no segment 'forward'");
    HT_TRY(find_regions(d, (uint32_t)forward));
    d->sequence = sequence;
    if (sequence && !derive(d)) HT_FAIL(g->ctx, HT_EINVAL, "tensor: an output of this model has rows of a sequence");
    if (cut_states(d) == 0)
        HT_FAIL(g->ctx, HT_EINVAL, "tensor: no layer of this model can be shared by %lld ranks: %s",
                (long long)d->ranks.group.ranks,
                "none has heads, hidden units or a vocabulary that this number divides, between two products");
    for (uint32_t i = 0; i < g->segment_count; i++) HT_TRY(rewrite_segment(d, i));
    return HT_OK;
}

static ht_status tensor_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_axis *axis = &env->options->parallel.tensor;
    if (axis->ranks == 1 || g->segment_count == 0) return HT_OK;
    HT_TRY(check(g, env));
    deriver d = {.g = g, .ranks = {.group = {"tensor", axis->ranks}, .rank = axis->rank}, .known = g->value_count};
    d.given = calloc(d.known, sizeof *d.given);
    d.layout = calloc(d.known, sizeof *d.layout);
    d.calls = calloc(g->node_count, sizeof *d.calls);
    d.arena = ht_arena_create();
    ht_status status = d.given && d.layout && d.calls && d.arena ? share_layers(&d, env->options->parallel.sequence)
                                                                 : ht_fail(g->ctx, HT_ENOMEM, "tensor: out of memory");
    free(d.given);
    free(d.layout);
    free(d.calls);
    ht_arena_free(d.arena);
    return status;
}

static const ht_setting_key parallel_keys[] = {{.name = "tensor",
                                                .kind = HT_SETTING_WHOLE,
                                                .at = offsetof(ht_parallel_options, tensor.ranks),
                                                .low = 1,
                                                .high = 1 << 20,
                                                .help = "ranks that share each layer"},
                                               {.name = "tensor_rank",
                                                .kind = HT_SETTING_WHOLE,
                                                .at = offsetof(ht_parallel_options, tensor.rank),
                                                .low = 0,
                                                .high = 1 << 20,
                                                .help = "the one of them whose graph this is"},
                                               {.name = "sequence",
                                                .kind = HT_SETTING_EITHER,
                                                .at = offsetof(ht_parallel_options, sequence),
                                                .words = "true|false",
                                                .help = "they also share the rows between layers"},
                                               {.name = NULL}};

static const ht_pass_settings tensor_settings[] = {{parallel_keys, offsetof(ht_pass_options, parallel)}, {NULL, 0}};

const ht_pass ht_pass_tensor = {
    .name = "tensor",
    .help = "share layers among ranks: heads, hidden units and the vocabulary",
    .system = true,
    .run = tensor_run,
    .settings = tensor_settings,
};
