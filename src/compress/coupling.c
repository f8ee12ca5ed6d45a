/* Every place along every axis of every tensor begins as a label of its own; the nodes of the graph unite labels
 * (union-find). What meets an input, an output or an op that mixes all places is united with label 0, which stays. */
#include "compress/coupling.h"

#include <string.h>

const char *const ht_unit_names[HT_UNIT_KINDS] = {"rows", "heads", "channels"};

enum { IS_HEAD = 1, IS_CHANNEL = 2 };

/* The labels along each axis of a value; NULL: any place may go, since all are alike (a constant, a broadcast). */
typedef struct value_axes {
    int32_t *axis[HT_MAX_RANK];
} value_axes;

typedef struct derivation {
    const ht_graph *g;
    ht_arena *arena;
    value_axes *values;            /* by value id */
    int32_t *parent;               /* by label */
    uint8_t *marks;                /* by label: IS_.. */
    int32_t *fixed;                /* as many zeros as the longest axis has places */
    bool (*consumed)[HT_MAX_RANK]; /* by state */
    bool out_of_memory;
} derivation;

/* A node as its rule sees it; the results' axes come as NULL. */
typedef struct node_use {
    derivation *d;
    const ht_node *node;
    const ht_call *call;
} node_use;

static value_axes *in_axes(const node_use *u, size_t i)
{
    return &u->d->values[ht_node_in(u->d->g, u->node, i).id];
}

static value_axes *out_axes(const node_use *u, size_t i)
{
    return &u->d->values[ht_node_out(u->node, i).id];
}

static const ht_type *in_type(const node_use *u, size_t i)
{
    return ht_type_of(u->d->g, ht_node_in(u->d->g, u->node, i));
}

/* ---- labels ---- */

static int32_t find(const derivation *d, int32_t label)
{
    while (d->parent[label] != label) label = d->parent[label] = d->parent[d->parent[label]];
    return label;
}

/* The smaller one stays: 0 wins. */
static void unite(const derivation *d, int32_t a, int32_t b)
{
    a = find(d, a);
    b = find(d, b);
    d->parent[a > b ? a : b] = a > b ? b : a;
}

static void fix(const derivation *d, const int32_t *labels, int64_t count)
{
    for (int64_t i = 0; labels && i < count; i++) unite(d, 0, labels[i]);
}

/* The labels of both, of which either may be NULL. */
static int32_t *couple(const derivation *d, int32_t *a, int32_t *b, int64_t count)
{
    for (int64_t i = 0; a && b && i < count; i++) unite(d, a[i], b[i]);
    return a ? a : b;
}

static void mark(const derivation *d, const int32_t *labels, int64_t count, uint8_t what)
{
    for (int64_t i = 0; labels && i < count; i++) d->marks[labels[i]] |= what;
}

static int32_t *new_labels(derivation *d, int64_t count)
{
    int32_t *labels = HT_NEW(d->arena, int32_t, count > 0 ? count : 1);
    if (!labels) d->out_of_memory = true;
    return labels ? labels : d->fixed;
}

static void fix_input(const node_use *u, size_t i)
{
    if (!ht_node_in(u->d->g, u->node, i).id) return;
    for (int k = 0; k < in_type(u, i)->rank; k++) fix(u->d, in_axes(u, i)->axis[k], in_type(u, i)->dim[k]);
}

static void fix_output(const node_use *u, size_t i)
{
    for (int k = 0; k < HT_MAX_RANK; k++) out_axes(u, i)->axis[k] = u->d->fixed;
}

static void couple_nothing(const node_use *u)
{
    for (size_t i = 0; i < u->call->n_in; i++) fix_input(u, i);
    for (size_t i = 0; i < u->call->n_out; i++) fix_output(u, i);
}

/* The weight of a product: sums run over this axis. */
static void consume(const node_use *u, size_t i, int axis)
{
    const ht_state *state = ht_state_of(u->d->g, ht_node_in(u->d->g, u->node, i));
    if (state) u->d->consumed[state - u->d->g->states][axis] = true;
}

/* ---- point-wise ---- */

static void couple_pointwise(const node_use *u)
{
    const ht_type *out = u->call->out[0];
    for (size_t i = 0; i < u->call->n_in; i++) {
        if (!u->call->in[i] || !ht_type_same_shape(u->call->in[i], out)) {
            couple_nothing(u);
            return;
        }
        for (int k = 0; k < out->rank; k++)
            out_axes(u, 0)->axis[k] = couple(u->d, out_axes(u, 0)->axis[k], in_axes(u, i)->axis[k], out->dim[k]);
    }
}

static void couple_fill(const node_use *u)
{
    (void)u; /* every place is alike */
}

/* ---- products ---- */

static void couple_matmul(const node_use *u)
{
    const ht_type *a = u->call->in[0], *b = u->call->in[1], *y = u->call->out[0];
    bool ta = ht_call_int(u->call, "ta"), tb = ht_call_int(u->call, "tb");
    int inner_a = a->rank - (ta ? 2 : 1), inner_b = b->rank - (tb ? 1 : 2);
    int rows = a->rank - (ta ? 1 : 2), columns = b->rank - (tb ? 2 : 1);
    int32_t **in_a = in_axes(u, 0)->axis, **in_b = in_axes(u, 1)->axis, **out = out_axes(u, 0)->axis;
    couple(u->d, in_a[inner_a], in_b[inner_b], a->dim[inner_a]);
    for (int i = 0; i < y->rank - 2; i++) {
        int of_a = i - (y->rank - a->rank), of_b = i - (y->rank - b->rank);
        if (of_a >= 0 && a->dim[of_a] == y->dim[i]) out[i] = in_a[of_a];
        if (of_b >= 0 && b->dim[of_b] == y->dim[i]) out[i] = couple(u->d, out[i], in_b[of_b], y->dim[i]);
    }
    out[y->rank - 2] = in_a[rows];
    out[y->rank - 1] = in_b[columns];
    consume(u, 0, inner_a);
    consume(u, 1, inner_b);
}

/* Groups of channels go as a whole, so that what is left has groups of the same size. */
static void couple_groups(const node_use *u, int64_t groups)
{
    const ht_type *x = u->call->in[0], *w = u->call->in[1];
    int32_t *in = in_axes(u, 0)->axis[1], *out = in_axes(u, 1)->axis[0];
    int64_t from = x->dim[1] / groups, to = w->dim[0] / groups;
    for (int64_t i = 0; i < w->dim[0]; i++) unite(u->d, out[i], out[i / to * to]);
    for (int64_t i = 0; in && i < x->dim[1]; i++) unite(u->d, in[i], out[i / from * to]);
    fix(u->d, in_axes(u, 1)->axis[1], w->dim[1]);
}

static void couple_conv(const node_use *u)
{
    const ht_type *x = u->call->in[0], *w = u->call->in[1];
    int64_t groups = ht_call_int(u->call, "groups");
    int32_t **in = in_axes(u, 0)->axis, **weight = in_axes(u, 1)->axis, **out = out_axes(u, 0)->axis;
    if (groups > 1) {
        couple_groups(u, groups);
    } else {
        couple(u->d, in[1], weight[1], x->dim[1]);
        consume(u, 1, 1);
    }
    for (int k = 2; k < 4; k++) {
        fix(u->d, in[k], x->dim[k]);
        fix(u->d, weight[k], w->dim[k]);
        out[k] = u->d->fixed;
    }
    out[0] = in[0];
    out[1] =
        u->call->n_in > 2 && u->call->in[2] ? couple(u->d, weight[0], in_axes(u, 2)->axis[0], w->dim[0]) : weight[0];
    mark(u->d, in[1], x->dim[1], IS_CHANNEL);
    mark(u->d, out[1], w->dim[0], IS_CHANNEL);
}

/* q [B, H, T, D], k and v [B, G, T, D]: a head of k and v goes with all heads of q that read it. */
static void couple_attention(const node_use *u)
{
    const int64_t heads = u->call->in[0]->dim[1], groups = u->call->in[1]->dim[1];
    int32_t *labels[3];
    for (size_t i = 0; i < 3; i++) {
        labels[i] = in_axes(u, i)->axis[1];
        in_axes(u, i)->axis[1] = NULL;
        fix_input(u, i);
        in_axes(u, i)->axis[1] = labels[i];
    }
    for (size_t i = 3; i < u->call->n_in; i++) fix_input(u, i);
    for (size_t i = 0; i < u->call->n_out; i++) fix_output(u, i);
    if (!labels[0] || !labels[1] || !labels[2]) return;
    for (int64_t h = 0; h < heads; h++) {
        unite(u->d, labels[0][h], labels[1][h / (heads / groups)]);
        unite(u->d, labels[0][h], labels[2][h / (heads / groups)]);
    }
    mark(u->d, labels[0], heads, IS_HEAD);
    for (size_t i = 0; i < u->call->n_out; i++) out_axes(u, i)->axis[1] = labels[0];
}

/* ---- along some axes ---- */

/* The first `kept` axes pass; what lies behind them is mixed. */
static void pass_first(const node_use *u, int from, int kept)
{
    int32_t *labels[HT_MAX_RANK];
    value_axes *in = in_axes(u, 0);
    memcpy(labels, in->axis, sizeof labels);
    for (int k = from; k < kept; k++) in->axis[k] = NULL;
    couple_nothing(u);
    for (int k = from; k < kept; k++) {
        in->axis[k] = labels[k];
        for (size_t i = 0; i < u->call->n_out; i++) out_axes(u, i)->axis[k] = labels[k];
    }
}

static void couple_pool(const node_use *u)
{
    pass_first(u, 0, 2);
}

static void couple_norm(const node_use *u)
{
    pass_first(u, 0, in_type(u, 0)->rank - 1);
}

/* Pairs of the last axis turn by their place on the axis before it. */
static void couple_rotary(const node_use *u)
{
    pass_first(u, 1, in_type(u, 0)->rank - 2);
}

static void couple_embedding(const node_use *u)
{
    const ht_type *table = u->call->in[0], *index = u->call->in[1];
    fix(u->d, in_axes(u, 0)->axis[0], table->dim[0]);
    for (int k = 0; k < index->rank; k++) out_axes(u, 0)->axis[k] = in_axes(u, 1)->axis[k];
    out_axes(u, 0)->axis[index->rank] = in_axes(u, 0)->axis[1];
}

static void couple_reduce(const node_use *u)
{
    const ht_type *x = u->call->in[0];
    unsigned gone = ht_call_axes(u->call, "axes", x->rank);
    bool keep = ht_call_int(u->call, "keep");
    int to = 0;
    for (int k = 0; k < x->rank; k++) {
        bool reduced = gone >> k & 1;
        if (reduced) fix(u->d, in_axes(u, 0)->axis[k], x->dim[k]);
        if (!reduced || keep) out_axes(u, 0)->axis[to++] = reduced ? u->d->fixed : in_axes(u, 0)->axis[k];
    }
}

/* ---- shapes ---- */

/* Neighbouring axes of both sides with the same number of places. */
typedef struct axis_run {
    int from, from_end, to, to_end;
    int64_t places;
} axis_run;

/* Labels of the run as one axis; NULL: all places are alike. Where two axes have labels, none of them can go. */
static int32_t *merge_run(const node_use *u, const axis_run *r)
{
    derivation *d = u->d;
    const ht_type *x = in_type(u, 0);
    int32_t **axes = in_axes(u, 0)->axis, *flat = NULL;
    if (r->from_end == r->from + 1) return axes[r->from];
    for (int k = r->from; k < r->from_end; k++)
        if (axes[k] && !flat) flat = new_labels(d, r->places);
    for (int64_t p = 0; flat && p < r->places; p++) {
        int64_t rest = p;
        flat[p] = 0;
        for (int k = r->from_end - 1; k >= r->from; rest /= x->dim[k--]) {
            int32_t label = axes[k] ? find(d, axes[k][rest % x->dim[k]]) : 0;
            if (label && flat[p]) unite(d, 0, label), unite(d, 0, flat[p]);
            if (label) flat[p] = label;
        }
    }
    return flat;
}

/* Do places of one index of this axis of the result share a label? If `force`, they do from now on. */
static bool is_along(const derivation *d, const axis_run *r, const ht_type *y, const int32_t *flat, int axis,
                     bool force)
{
    int64_t inner = 1, size = y->dim[axis];
    for (int k = axis + 1; k < r->to_end; k++) inner *= y->dim[k];
    for (int64_t p = 0; p < r->places; p++) {
        int32_t first = flat[p / inner % size * inner]; /* the first place of this index */
        if (force) unite(d, first, flat[p]);
        if (find(d, first) != find(d, flat[p])) return false;
    }
    return true;
}

/* One axis of the result carries the labels: the one that they lie along already, or the outermost. */
static void split_run(const node_use *u, const axis_run *r, int32_t *flat)
{
    const ht_type *y = u->call->out[0];
    int32_t **out = out_axes(u, 0)->axis;
    int chosen = -1, outermost = r->to;
    if (!flat) return;
    for (int k = r->to; k < r->to_end && chosen < 0; k++)
        if (y->dim[k] > 1 && is_along(u->d, r, y, flat, k, false)) chosen = k;
    while (outermost + 1 < r->to_end && y->dim[outermost] == 1) outermost++;
    if (chosen < 0) is_along(u->d, r, y, flat, chosen = outermost, true);
    int64_t inner = 1;
    for (int k = chosen + 1; k < r->to_end; k++) inner *= y->dim[k];
    for (int k = r->to; k < r->to_end; k++) out[k] = u->d->fixed;
    out[chosen] = new_labels(u->d, y->dim[chosen]);
    for (int64_t i = 0; i < y->dim[chosen] && out[chosen] != u->d->fixed; i++) out[chosen][i] = flat[i * inner];
}

/* The shortest run behind `r`; axes of size 1 go with the run before them. */
static bool next_run(const ht_type *x, const ht_type *y, axis_run *r)
{
    int64_t have = 1, want = 1;
    *r = (axis_run){r->from_end, r->from_end, r->to_end, r->to_end, 1};
    if (r->from == x->rank || r->to == y->rank) return false;
    do {
        if (have <= want && r->from_end < x->rank)
            have *= x->dim[r->from_end++];
        else if (r->to_end < y->rank)
            want *= y->dim[r->to_end++];
        else
            return false;
    } while (have != want || r->to_end == r->to);
    while (r->from_end < x->rank && x->dim[r->from_end] == 1) r->from_end++;
    while (r->to_end < y->rank && y->dim[r->to_end] == 1) r->to_end++;
    r->places = have;
    return true;
}

static void couple_reshape(const node_use *u)
{
    const ht_type *x = u->call->in[0], *y = u->call->out[0];
    axis_run r = {0};
    if (ht_type_elems(x) == 0 || x->rank == 0 || y->rank == 0) {
        couple_nothing(u);
        return;
    }
    while (next_run(x, y, &r)) {
        int32_t *flat = merge_run(u, &r);
        if (r.to_end == r.to + 1)
            out_axes(u, 0)->axis[r.to] = flat;
        else
            split_run(u, &r, flat);
    }
}

static void couple_permute(const node_use *u)
{
    const ht_attr *order = ht_call_attr(u->call, "order");
    for (size_t i = 0; i < order->count; i++) out_axes(u, 0)->axis[i] = in_axes(u, 0)->axis[order->ints[i]];
}

static void couple_slice(const node_use *u)
{
    const ht_type *y = u->call->out[0];
    const ht_attr *start = ht_call_attr(u->call, "start"), *step = ht_call_attr(u->call, "step");
    for (int k = 0; k < y->rank; k++) {
        const int32_t *from = in_axes(u, 0)->axis[k];
        if (!from) continue;
        int64_t first = start->count ? start->ints[k] : 0, stride = step->count ? step->ints[k] : 1;
        int32_t *to = out_axes(u, 0)->axis[k] = new_labels(u->d, y->dim[k]);
        for (int64_t i = 0; i < y->dim[k] && to != u->d->fixed; i++) to[i] = from[first + i * stride];
    }
}

static void couple_concat(const node_use *u)
{
    const ht_type *y = u->call->out[0];
    int64_t given = ht_call_int(u->call, "axis"), at = 0;
    const int axis = (int)(given < 0 ? given + y->rank : given);
    int32_t **out = out_axes(u, 0)->axis, *along = new_labels(u->d, y->dim[axis]);
    for (size_t i = 0; i < u->node->n_in; i++) {
        const ht_type *x = in_type(u, i);
        int32_t **in = in_axes(u, i)->axis;
        for (int k = 0; k < y->rank; k++)
            if (k != axis) out[k] = couple(u->d, out[k], in[k], y->dim[k]);
        for (int64_t p = 0; p < x->dim[axis] && along != u->d->fixed; p++) along[at++] = in[axis] ? in[axis][p] : 0;
    }
    out[axis] = along;
}

/* A broadcast axis has the same at every place. */
static void couple_expand(const node_use *u)
{
    const ht_type *x = u->call->in[0], *y = u->call->out[0];
    for (int k = 0; k < x->rank; k++) {
        int to = k + y->rank - x->rank;
        if (x->dim[k] == y->dim[to]) out_axes(u, 0)->axis[to] = in_axes(u, 0)->axis[k];
    }
}

/* ---- the table ---- */

typedef struct coupling_row {
    const char *op;
    void (*couple)(const node_use *u);
} coupling_row;

static const coupling_row rows[] = {
#define HT_COUPLING(op, rule) {#op, rule},
#include "compress/coupling.def"
#undef HT_COUPLING
};

static void apply_rule(const node_use *u)
{
    const ht_op *op = u->node->op;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].op, op->name) == 0) {
            rows[i].couple(u);
            return;
        }
    bool plain = op->fuse == HT_FUSE_POINT && op->n_out == 1 && op->min_in > 0;
    if (plain && !(op->flags & (HT_OP_NO_FOLD | HT_OP_EFFECT)))
        couple_pointwise(u);
    else
        couple_nothing(u);
}

/* ---- the graph ---- */

static ht_status begin(derivation *d, ht_context *ctx)
{
    int64_t labels = 1, longest = 1;
    const ht_graph *g = d->g;
    for (size_t i = 0; i < g->state_count; i++) {
        const ht_type *type = ht_type_of(g, g->states[i].value);
        for (int k = 0; k < type->rank; k++) labels += type->dim[k];
    }
    for (size_t i = 1; i < g->value_count; i++)
        for (int k = 0; k < g->values[i].type.rank; k++)
            if (g->values[i].type.dim[k] > longest) longest = g->values[i].type.dim[k];
    if (labels > INT32_MAX) HT_FAIL(ctx, HT_ENOTSUP, "the model has too many rows and columns to look at");
    d->values = HT_NEW(d->arena, value_axes, g->value_count);
    d->parent = HT_NEW(d->arena, int32_t, labels);
    d->marks = HT_NEW(d->arena, uint8_t, labels);
    d->fixed = HT_NEW(d->arena, int32_t, longest);
    d->consumed = ht_arena_alloc(d->arena, g->state_count + 1, sizeof *d->consumed);
    if (!d->values || !d->parent || !d->marks || !d->fixed || !d->consumed)
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for the model's units");
    for (int32_t i = 0; i < labels; i++) d->parent[i] = i;
    int32_t next = 1;
    for (size_t i = 0; i < g->state_count; i++) {
        const ht_type *type = ht_type_of(g, g->states[i].value);
        for (int k = 0; k < type->rank; k++) {
            int32_t *axis = d->values[g->states[i].value.id].axis[k] = new_labels(d, type->dim[k]);
            for (int64_t p = 0; p < type->dim[k] && axis != d->fixed; p++) axis[p] = next++;
        }
    }
    return HT_OK;
}

static ht_status visit(derivation *d, ht_context *ctx, const ht_segment *s)
{
    for (size_t i = 0; i < s->input_count; i++)
        for (int k = 0; k < HT_MAX_RANK; k++) d->values[s->inputs[i].id].axis[k] = d->fixed;
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *node = &d->g->nodes[s->nodes[i]];
        ht_call_storage storage;
        node_use u = {d, node, ht_node_call(d->g, node, d->arena, &storage)};
        if (!u.call) HT_FAIL(ctx, HT_ENOMEM, "out of memory for the model's units");
        apply_rule(&u);
    }
    for (size_t i = 0; i < s->output_count; i++) {
        const ht_type *type = ht_type_of(d->g, s->outputs[i].value);
        for (int k = 0; k < type->rank; k++) fix(d, d->values[s->outputs[i].value.id].axis[k], type->dim[k]);
    }
    if (d->out_of_memory) HT_FAIL(ctx, HT_ENOMEM, "out of memory for the model's units");
    return HT_OK;
}

/* ---- units ---- */

/* What no product reads is no unit, and neither is what no tensor makes. */
static void count_ends(const derivation *d, const ht_coupling *c, uint8_t *ends)
{
    for (size_t i = 0; i < c->count; i++)
        for (int k = 0; k < c->tensors[i].rank; k++)
            for (int64_t p = 0; p < c->tensors[i].dim[k]; p++)
                ends[find(d, c->tensors[i].axes[k].unit[p])] |= c->tensors[i].axes[k].consumed ? 1 : 2;
}

static void number_units(const derivation *d, ht_coupling *c, const uint8_t *ends, int32_t *number)
{
    for (size_t i = 0; i < c->count; i++)
        for (int k = 0; k < c->tensors[i].rank; k++)
            for (int64_t p = 0; p < c->tensors[i].dim[k]; p++) {
                int32_t *unit = &c->tensors[i].axes[k].unit[p], root = find(d, *unit);
                if (root && ends[root] == 3 && !number[root]) number[root] = ++c->units;
                if (root) d->marks[root] |= d->marks[*unit];
                *unit = root ? number[root] : 0;
            }
}

static ht_unit_kind kind_of(uint8_t marks)
{
    return marks & IS_HEAD ? HT_UNIT_HEADS : marks & IS_CHANNEL ? HT_UNIT_CHANNELS : HT_UNIT_ROWS;
}

/* Units that one tensor makes are of one layer: `layer` holds the smallest of them. */
static void find_layers(ht_coupling *c)
{
    for (int32_t u = 1; u <= c->units; u++) c->layer[u] = u;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < c->count; i++)
            for (int k = 0; k < c->tensors[i].rank; k++) {
                const ht_coupled_axis *axis = &c->tensors[i].axes[k];
                int32_t least = 0;
                for (int64_t p = 0; p < c->tensors[i].dim[k] && !axis->consumed; p++)
                    if (axis->unit[p] && (!least || c->layer[axis->unit[p]] < least)) least = c->layer[axis->unit[p]];
                for (int64_t p = 0; p < c->tensors[i].dim[k] && !axis->consumed; p++)
                    if (axis->unit[p] && c->layer[axis->unit[p]] != least) {
                        c->layer[axis->unit[p]] = least;
                        changed = true;
                    }
            }
    }
}

static void name_tensors(const derivation *d, ht_coupling *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const ht_state *state = &d->g->states[i];
        const ht_type *type = ht_type_of(d->g, state->value);
        ht_coupled_tensor *t = &c->tensors[i];
        const char *name = ht_value_of(d->g, state->value)->name;
        *t = (ht_coupled_tensor){ht_arena_text(d->arena, name, strlen(name)), state->trained, type->rank, {0}, {{0}}};
        for (int k = 0; k < type->rank; k++) {
            t->dim[k] = type->dim[k];
            t->axes[k] = (ht_coupled_axis){d->values[state->value.id].axis[k], d->consumed[i][k]};
        }
    }
}

ht_status ht_coupling_derive(ht_coupling *out, ht_context *ctx, ht_arena *arena, const ht_graph *g)
{
    derivation d = {.g = g, .arena = arena};
    int segment = ht_segment_find(g, "eval");
    *out = (ht_coupling){.tensors = HT_NEW(arena, ht_coupled_tensor, g->state_count + 1), .count = g->state_count};
    if (segment < 0) HT_FAIL(ctx, HT_EINVAL, "the model has no segment \"eval\"");
    HT_TRY(begin(&d, ctx));
    HT_TRY(visit(&d, ctx, &g->segments[segment]));
    int64_t labels = 1;
    for (size_t i = 0; i < g->state_count; i++)
        for (int k = 0; k < HT_MAX_RANK; k++) {
            const ht_type *type = ht_type_of(g, g->states[i].value);
            labels += k < type->rank ? type->dim[k] : 0;
        }
    uint8_t *ends = HT_NEW(arena, uint8_t, labels);
    int32_t *number = HT_NEW(arena, int32_t, labels);
    out->kind = HT_NEW(arena, ht_unit_kind, labels);
    out->layer = HT_NEW(arena, int32_t, labels);
    if (!out->tensors || !ends || !number || !out->kind || !out->layer)
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for the model's units");
    name_tensors(&d, out);
    count_ends(&d, out, ends);
    number_units(&d, out, ends, number);
    for (int64_t l = 1; l < labels; l++)
        if (number[l]) out->kind[number[l]] = kind_of(d.marks[l]);
    find_layers(out);
    return HT_OK;
}
