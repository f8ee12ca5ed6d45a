/* gather: y[.., k, ..] = x[.., index[.., k, ..], ..] along an axis; y has index's shape, whose other axes are no longer
 * than x's. An index out of range gives 0 and no gradient. scatter_add: the transpose of gather. y = 0, then y[..,
 * index[.., k, ..], ..] += updates[.., k, ..], k ascending. */
#include "op/op.h"
#include "op/view.h"

static ht_status gather_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0], *index = call->in[1];
    int axis;
    HT_TRY(ht_need_int(ctx, call, 1));
    HT_TRY(ht_need_axis(ctx, call, "axis", x->rank, &axis));
    bool fits = x->rank == index->rank;
    for (int d = 0; fits && d < x->rank; d++) fits = d == axis || index->dim[d] <= x->dim[d];
    if (!fits) {
        ht_type_text a, b;
        HT_FAIL(ctx, HT_ESHAPE, "index %s does not fit into %s along the axes other than %d", ht_type_str(index, &a),
                ht_type_str(x, &b), axis);
    }
    out[0] = *index;
    out[0].dtype = x->dtype;
    return HT_OK;
}

/* Cost: of x only the elements that the index names, one for each of its elements along the axis, and never more than
 * there are. */
static void gather_cost(const ht_call *call, ht_cost *cost)
{
    const ht_type *x = call->in[0], *index = call->in[1];
    ht_type read = *x;
    int axis = ht_call_axis(call, "axis", x->rank);
    for (int d = 0; d < x->rank; d++) {
        int64_t named = d == axis && index->stride[d] == 0 && index->dim[d] > 0 ? 1 : index->dim[d];
        if (named < read.dim[d]) read.dim[d] = named;
    }
    cost->bytes -= (double)(ht_type_distinct_bytes(x) - ht_type_distinct_bytes(&read));
}

static ht_status gather_grad(ht_graph *g, const ht_grad *d)
{
    ht_type x = *d->call->in[0], index = *d->call->in[1];
    int axis = ht_call_axis(d->call, "axis", x.rank);
    int64_t none[HT_MAX_RANK] = {0}, after[HT_MAX_RANK];
    bool shorter = false;
    for (int i = 0; i < x.rank; i++) {
        after[i] = i == axis ? 0 : x.dim[i] - index.dim[i];
        shorter |= after[i] != 0;
    }
    if (!d->need[0]) return HT_OK;
    d->dx[0] = ht_scatter_add(g, d->x[1], d->dy[0], x.dim[axis], axis);
    if (shorter) d->dx[0] = ht_pad(g, d->dx[0], none, after, 0);
    return ht_graph_status(g);
}

static void gather_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0], *y = call->out[0];
    int axis = ht_call_axis(call, "axis", x->rank);
    int64_t n = ht_type_elems(y), at[HT_MAX_RANK];
    for (int64_t k = 0; k < n; k++) {
        ht_unravel(y, k, at);
        at[axis] = ht_place_of(in[1][k], x->dim[axis]);
        out[0][k] = at[axis] >= 0 ? in[0][ht_ravel(x, at)] : 0;
    }
}

static const ht_attr_def gather_attrs[] = {HT_DEF_INT("axis", 0), HT_DEF_END};

static const char *const gather_samples[] = {
    "(f32[5,4], i32[3,4] 0..4)",
    "(f32[3,6], i64[3,2] 0..5) axis=1",
    "(f32[2,5,3], i32[2,4,3] 0..4) axis=1",
    "(f32[4,5,3], i32[2,7,1] 0..4) axis=1",
    "(f32[6], i32[9] -2..8)",
    "(f32[3,4], i32[0,4])",
    "(f32[0], i32[3] 0..0)",
    "(i32[5] 0..9, i64[4] 0..4)",
    "(f32[30,80], i32[30,60] 0..79) axis=-1",
    NULL,
};

const ht_op ht_op_gather = {
    .size = sizeof(ht_op),
    .name = "gather",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = gather_attrs,
    .infer = gather_infer,
    .cost = gather_cost,
    .grad = gather_grad,
    .ref = gather_ref,
    .samples = gather_samples,
};

static ht_status scatter_add_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *index = call->in[0], *updates = call->in[1];
    int axis;
    HT_TRY(ht_need_int(ctx, call, 0));
    HT_TRY(ht_need_float(ctx, call, 1));
    HT_TRY(ht_need_axis(ctx, call, "axis", index->rank, &axis));
    if (!ht_type_same_shape(index, updates)) {
        ht_type_text a, b;
        HT_FAIL(ctx, HT_ESHAPE, "index %s and updates %s differ in shape", ht_type_str(index, &a),
                ht_type_str(updates, &b));
    }
    int64_t size = ht_call_int(call, "size");
    if (size < 0) HT_FAIL(ctx, HT_EINVAL, "size %lld is negative", (long long)size);
    out[0] = *updates;
    out[0].dim[axis] = size;
    return HT_OK;
}

static void scatter_add_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = (double)ht_type_elems(call->in[1]);
}

static ht_status scatter_add_grad(ht_graph *g, const ht_grad *d)
{
    int axis = ht_call_axis(d->call, "axis", d->call->in[0]->rank);
    if (d->need[1]) d->dx[1] = ht_gather(g, d->dy[0], d->x[0], axis);
    return ht_graph_status(g);
}

static void scatter_add_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *updates = call->in[1], *y = call->out[0];
    int axis = ht_call_axis(call, "axis", y->rank);
    int64_t n = ht_type_elems(updates), all = ht_type_elems(y), at[HT_MAX_RANK];
    for (int64_t k = 0; k < all; k++) out[0][k] = 0;
    for (int64_t k = 0; k < n; k++) {
        ht_unravel(updates, k, at);
        at[axis] = ht_place_of(in[0][k], y->dim[axis]);
        if (at[axis] >= 0) out[0][ht_ravel(y, at)] += in[1][k];
    }
}

static const ht_attr_def scatter_add_attrs[] = {HT_DEF_REQUIRED("size", HT_ATTR_INT), HT_DEF_INT("axis", 0),
                                                HT_DEF_END};

static const char *const scatter_add_samples[] = {
    "(i32[3,4] 0..4, f32[3,4]) size=5",
    "(i64[3,8] 0..5, f32[3,8]) size=6 axis=1",
    "(i32[2,4,3] 0..4, f32[2,4,3]) size=5 axis=1",
    "(i32[9] -2..8, f32[9]) size=6",
    "(i32[0,4], f32[0,4]) size=3",
    "(i32[4] 0..3, f32[4]) size=0",
    "(i32[4,5] 0..3, f16[4,5]) size=3",
    "(i32[40,70] 0..49, f32[40,70]) size=50",
    NULL,
};

const ht_op ht_op_scatter_add = {
    .size = sizeof(ht_op),
    .name = "scatter_add",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .f32_out = 1,
    .attrs = scatter_add_attrs,
    .infer = scatter_add_infer,
    .cost = scatter_add_cost,
    .grad = scatter_add_grad,
    .ref = scatter_add_ref,
    .samples = scatter_add_samples,
};

ht_val ht_gather(ht_graph *g, ht_val x, ht_val index, int axis)
{
    return ht_emit1(g, "gather", NULL, HT_VALS(x, index), HT_ATTRS(HT_INT("axis", axis)));
}

ht_val ht_scatter_add(ht_graph *g, ht_val index, ht_val updates, int64_t size, int axis)
{
    return ht_emit1(g, "scatter_add", NULL, HT_VALS(index, updates),
                    HT_ATTRS(HT_INT("size", size), HT_INT("axis", axis)));
}
