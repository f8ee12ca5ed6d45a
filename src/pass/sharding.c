#include "pass/sharding.h"

#include <string.h>

static bool is_cut(const ht_layout *layout)
{
    return layout->kind == HT_LAYOUT_CUT;
}

static ht_layout cut_along(int axis, int64_t blocks)
{
    return (ht_layout){HT_LAYOUT_CUT, axis, blocks};
}

static bool axis_is(const ht_layout *layout, int axis)
{
    return is_cut(layout) && layout->axis == axis;
}

/* ---- point-wise ---- */

/* All operands in the same pieces. */
static bool derive_pointwise(ht_sharding_call *c)
{
    size_t first = 0;
    while (!is_cut(&c->in[first])) first++;
    for (size_t i = 0; i < c->call->n_in; i++) {
        if (!c->call->in[i] || !ht_type_same_shape(c->call->in[i], c->call->out[0])) return false;
        if (is_cut(&c->in[i]) && !ht_layout_same(&c->in[i], &c->in[first])) return false;
        c->in[i] = c->in[first];
    }
    c->out[0] = c->in[first];
    return true;
}

/* ---- products ---- */

/* Columns: each rank has some of the results. Rows: each has a term of all of them. */
static bool derive_matmul(ht_sharding_call *c)
{
    const ht_type *a = c->call->in[0], *b = c->call->in[1], *y = c->call->out[0];
    bool ta = ht_call_int(c->call, "ta"), tb = ht_call_int(c->call, "tb");
    int inner_a = a->rank - (ta ? 2 : 1), inner_b = b->rank - (tb ? 1 : 2), columns_b = b->rank - (tb ? 2 : 1);
    if (axis_is(&c->in[0], inner_a)) {
        if (is_cut(&c->in[1]) && !(axis_is(&c->in[1], inner_b) && c->in[1].blocks == c->in[0].blocks)) return false;
        c->in[1] = cut_along(inner_b, c->in[0].blocks);
        c->out[0] = (ht_layout){.kind = HT_LAYOUT_SUM};
        return true;
    }
    if (is_cut(&c->in[0]) || !axis_is(&c->in[1], columns_b)) return false;
    c->out[0] = cut_along(y->rank - 1, c->in[1].blocks);
    return true;
}

/* Each rank has some of the heads, and the keys and values that they read. */
static bool derive_attention(ht_sharding_call *c)
{
    for (size_t i = 0; i < 3; i++)
        if (!axis_is(&c->in[i], 1) || c->in[i].blocks != 1) return false;
    for (size_t i = 3; i < c->call->n_in; i++)
        if (is_cut(&c->in[i])) return false;
    c->out[0] = c->out[1] = cut_along(1, 1);
    return true;
}

static bool derive_rotary(ht_sharding_call *c)
{
    const ht_type *x = c->call->in[0];
    if (!is_cut(&c->in[0]) || is_cut(&c->in[1]) || c->in[0].axis == 0 || c->in[0].axis >= x->rank - 2) return false;
    c->out[0] = c->in[0];
    return true;
}

/* Rows of the last axis are whole. */
static bool derive_norm(ht_sharding_call *c)
{
    if (!is_cut(&c->in[0]) || c->in[0].axis == c->call->in[0]->rank - 1) return false;
    for (size_t i = 1; i < c->call->n_in; i++)
        if (is_cut(&c->in[i])) return false;
    for (size_t i = 0; i < c->call->n_out; i++) c->out[i] = c->in[0];
    return true;
}

/* ---- shapes ---- */

/* Axes of both sides are grouped into the shortest runs of equal product; a cut stays within its group. */
typedef struct axis_group {
    int from, from_end, to, to_end;
} axis_group;

static bool find_group(const ht_type *in, const ht_type *out, int axis, axis_group *group)
{
    axis_group g = {0};
    if (ht_type_elems(in) == 0) return false;
    while (g.from < in->rank) {
        g.from_end = g.from + 1;
        g.to_end = g.to;
        int64_t have = in->dim[g.from], want = 1;
        while (have != want || g.to_end == g.to) {
            if ((have < want || g.to_end == out->rank) && g.from_end < in->rank)
                have *= in->dim[g.from_end++];
            else if (g.to_end < out->rank)
                want *= out->dim[g.to_end++];
            else
                return false;
        }
        *group = g;
        if (axis < g.from_end) return true;
        g.from = g.from_end;
        g.to = g.to_end;
    }
    return false;
}

/* The group as one axis has `blocks` blocks; the axis of the result that divides them. */
static bool derive_reshape(ht_sharding_call *c)
{
    const ht_type *in = c->call->in[0], *out = c->call->out[0];
    axis_group group;
    if (!find_group(in, out, c->in[0].axis, &group)) return false;
    int64_t blocks = c->in[0].blocks, before = 1;
    for (int i = group.from; i < c->in[0].axis; i++) blocks *= in->dim[i];
    for (int i = group.to; i < group.to_end; i++) {
        int64_t left = blocks / before;
        if (blocks % before != 0) return false;
        ht_layout layout = cut_along(i, left);
        if (out->dim[i] > left || (out->dim[i] == left && i + 1 == group.to_end)) {
            c->out[0] = layout;
            return ht_layout_fits(&layout, out, c->ranks);
        }
        before *= out->dim[i];
    }
    return false;
}

static bool derive_permute(ht_sharding_call *c)
{
    const ht_attr *order = ht_call_attr(c->call, "order");
    for (size_t i = 0; i < order->count; i++)
        if (order->ints[i] == c->in[0].axis) c->out[0] = cut_along((int)i, c->in[0].blocks);
    return true;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Along another axis, or whole blocks. */
static bool derive_slice(ht_sharding_call *c)
{
    const ht_type *in = c->call->in[0], *out = c->call->out[0];
    const ht_attr *start = ht_call_attr(c->call, "start"), *step = ht_call_attr(c->call, "step");
    int axis = c->in[0].axis;
    int64_t first = start->count ? start->ints[axis] : 0, size = in->dim[axis], block = size / c->in[0].blocks;
    c->out[0] = c->in[0];
    if (out->dim[axis] == size) return true;
    if (step->count && step->ints[axis] != 1) return false;
    if (out->dim[axis] > 0 && first % block == 0 && out->dim[axis] % block == 0) {
        c->out[0].blocks = out->dim[axis] / block;
        return true;
    }
    int64_t unit = greatest_divisor(greatest_divisor(first, out->dim[axis]), size);
    if (unit > 0 && unit < size) c->blocks_wanted = size / unit;
    return false;
}

static bool derive_expand(ht_sharding_call *c)
{
    c->out[0] = cut_along(c->in[0].axis + c->call->out[0]->rank - c->call->in[0]->rank, c->in[0].blocks);
    return true;
}

/* ---- random numbers ---- */

static bool derive_dropout(ht_sharding_call *c)
{
    c->out[0] = c->in[0];
    return is_cut(&c->in[0]) && ht_call_int(c->call, "batch_axis") <= 0 && c->call->in[0]->rank < HT_MAX_RANK;
}

/* The numbers that the whole draws for these elements: as [.., blocks, size of a piece, ..] they are a part, along one
 * axis, of [.., blocks, size, ..], which begins where `sample` rows end. */
static void replace_dropout(ht_graph *g, const ht_node *n, const ht_val *in, const ht_sharding_ranks *ranks,
                            ht_val *out)
{
    const ht_type own = *ht_type_of(g, in[0]);
    const int axis = ranks->cut.axis;
    const int64_t blocks = ranks->cut.blocks, piece = own.dim[axis] / blocks;
    int64_t dim[HT_MAX_RANK], steps = 1; /* along the axis, in a row of the batch */
    for (int i = 0, to = 0; i < own.rank; i++) {
        if (i == axis) dim[to++] = blocks;
        dim[to++] = i == axis ? piece : own.dim[i];
        if (i > 0 && i <= axis) steps *= own.dim[i];
    }
    if (axis > 0) steps *= ranks->group.ranks;
    ht_call_storage storage;
    bool counts = ht_call_int(ht_node_call(g, n, g->arena, &storage), "batch_axis") == 0;
    ht_val first = ht_fill(g, HT_I64, 0, NULL, (double)(ranks->rank * piece));
    if (counts) {
        ht_val row = ht_fill(g, HT_I64, 0, NULL, (double)steps);
        first = ht_add(g, ht_mul(g, in[3], row), first);
    }
    ht_val x = ht_reshape(g, in[0], own.rank + 1, dim);
    ht_val y = ht_emit1(g, "dropout", NULL, HT_VALS(x, in[1], in[2], first), ht_op_attr_count(n->op), n->attr);
    if (g->status != HT_OK) return;
    uint32_t id = (uint32_t)(ht_producer(g, y) - g->nodes);
    ht_node_set_int(g, id, "batch_axis", axis + 1);
    ht_node_set_int(g, id, "batch_extent", piece * ranks->group.ranks);
    out[0] = ht_reshape(g, y, own.rank, own.dim);
}

/* ---- the vocabulary ---- */

/* Each rank has some of the rows: it looks up those that it has, and zeros for the others. */
static bool derive_embedding(ht_sharding_call *c)
{
    if (!axis_is(&c->in[0], 0) || c->in[0].blocks != 1 || is_cut(&c->in[1])) return false;
    c->out[0] = (ht_layout){.kind = HT_LAYOUT_SUM};
    return true;
}

static void replace_embedding(ht_graph *g, const ht_node *n, const ht_val *in, const ht_sharding_ranks *ranks,
                              ht_val *out)
{
    (void)n;
    double first = (double)(ranks->rank * ht_type_of(g, in[0])->dim[0]);
    ht_val index = ht_sub(g, in[1], ht_fill_like(g, in[1], first));
    out[0] = ht_embedding(g, in[0], index);
}

/* Each rank has some of the classes. */
static bool derive_last_axis(ht_sharding_call *c)
{
    for (size_t i = 1; i < c->call->n_in; i++)
        if (is_cut(&c->in[i])) return false;
    return axis_is(&c->in[0], c->call->in[0]->rank - 1) && c->in[0].blocks == 1;
}

static bool derive_argmax(ht_sharding_call *c)
{
    int rank = c->call->in[0]->rank;
    int64_t axis = ht_call_int(c->call, "axis");
    return (axis == -1 || axis == rank - 1) && derive_last_axis(c);
}

/* ---- the table ---- */

static const ht_sharding rows[] = {
#define HT_SHARDING(op, rule, replacement) {#op, rule, replacement},
#include "pass/sharding.def"
#undef HT_SHARDING
};

const ht_sharding *ht_sharding_find(const ht_op *op)
{
    static const ht_sharding pointwise = {"", derive_pointwise, NULL};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].op, op->name) == 0) return &rows[i];
    bool plain = op->fuse == HT_FUSE_POINT && op->n_out == 1 && op->min_in > 0;
    return plain && !(op->flags & (HT_OP_NO_FOLD | HT_OP_EFFECT)) ? &pointwise : NULL;
}
