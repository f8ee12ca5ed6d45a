/* slice: elements start, start + step, … of each axis; a view. unslice: zeros with the input at those indices; each is
 * the gradient of the other. */
#include "op/op.h"
#include "op/view.h"

/* Attributes left out: starts of 0, steps of 1. */
static int64_t start_of(const ht_call *call, int axis)
{
    const ht_attr *start = ht_call_attr(call, "start");
    return start->count ? start->ints[axis] : 0;
}

static int64_t step_of(const ht_call *call, int axis)
{
    const ht_attr *step = ht_call_attr(call, "step");
    return step->count ? step->ints[axis] : 1;
}

static ht_status check_list(ht_context *ctx, const ht_call *call, const char *key, int rank)
{
    size_t count = ht_call_attr(call, key)->count;
    if (count != 0 && count != (size_t)rank)
        HT_FAIL(ctx, HT_EINVAL, "%s has %zu numbers for %d axes", key, count, rank);
    return HT_OK;
}

/* Does `part` lie inside `whole` at the call's starts and steps? */
static ht_status check_inside(ht_context *ctx, const ht_call *call, const ht_type *part, const ht_type *whole)
{
    if (part->dtype != whole->dtype || part->space != whole->space || part->rank != whole->rank) {
        ht_type_text a, b;
        HT_FAIL(ctx, HT_ESHAPE, "%s is no part of %s", ht_type_str(part, &a), ht_type_str(whole, &b));
    }
    HT_TRY(check_list(ctx, call, "start", whole->rank));
    HT_TRY(check_list(ctx, call, "step", whole->rank));
    for (int i = 0; i < whole->rank; i++) {
        int64_t start = start_of(call, i), step = step_of(call, i), size = part->dim[i];
        if (step < 1) HT_FAIL(ctx, HT_EINVAL, "step %lld along axis %d must be 1 or more", (long long)step, i);
        bool inside = start >= 0 && start <= whole->dim[i];
        if (inside && size > 0) inside = start < whole->dim[i] && (whole->dim[i] - 1 - start) / step >= size - 1;
        if (!inside)
            HT_FAIL(ctx, HT_ESHAPE, "%lld elements from %lld in steps of %lld leave axis %d of size %lld",
                    (long long)size, (long long)start, (long long)step, i, (long long)whole->dim[i]);
    }
    return HT_OK;
}

static ht_status slice_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    return check_inside(ctx, call, &out[0], call->in[0]);
}

static ht_status unslice_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    return check_inside(ctx, call, call->in[0], &out[0]);
}

static bool slice_view(const ht_call *call, ht_type *out, int64_t *offset)
{
    *offset = 0;
    ht_type_row_major(out);
    if (ht_type_elems(out) == 0) return true;
    for (int i = 0; i < out->rank; i++) {
        int64_t stride = call->in[0]->stride[i];
        *offset += start_of(call, i) * stride;
        /* The step of an axis of one element is unused, and may be of any size. */
        out->stride[i] = out->dim[i] > 1 ? stride * step_of(call, i) : stride;
    }
    return true;
}

/* The other op, from dy to a value like input 0, at the same places. */
static ht_status slice_grad(ht_graph *g, const ht_grad *d)
{
    bool cut = strcmp(d->call->op->name, "slice") == 0;
    const ht_attr *start = ht_call_attr(d->call, "start"), *step = ht_call_attr(d->call, "step");
    ht_type want = ht_type_make(ht_val_dtype(g, d->dy[0]), d->call->in[0]->rank, d->call->in[0]->dim);
    want.space = d->call->in[0]->space;
    d->dx[0] =
        ht_emit1(g, cut ? "unslice" : "slice", &want, HT_VALS(d->dy[0]),
                 HT_ATTRS(HT_INTS("start", start->count, start->ints), HT_INTS("step", step->count, step->ints)));
    return ht_graph_status(g);
}

/* Row-major position in the whole of element k of the part. */
static int64_t place(const ht_call *call, const ht_type *part, const ht_type *whole, int64_t k)
{
    int64_t index[HT_MAX_RANK];
    ht_unravel(part, k, index);
    for (int i = 0; i < part->rank; i++) index[i] = start_of(call, i) + index[i] * step_of(call, i);
    return ht_ravel(whole, index);
}

static void slice_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t k = 0; k < n; k++) out[0][k] = in[0][place(call, call->out[0], call->in[0], k)];
}

static void unslice_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->in[0]), all = ht_type_elems(call->out[0]);
    for (int64_t k = 0; k < all; k++) out[0][k] = 0;
    for (int64_t k = 0; k < n; k++) out[0][place(call, call->in[0], call->out[0], k)] = in[0][k];
}

static const ht_attr_def slice_attrs[] = {HT_DEF_INTS("start"), HT_DEF_INTS("step"), HT_DEF_END};

static const char *const slice_samples[] = {
    "(f32[6,5]) -> f32[3,2] start=[1,3]",
    "(f32[7,8]) -> f32[3,3] start=[1,0] step=[2,3]",
    "(f32[4,3,5]) -> f32[4,1,5] start=[0,2,0]",
    "(f32[9]) -> f32[5] step=[2]",
    "(f32[]) -> f32[]",
    "(f32[4,5]) -> f32[0,5] start=[4,0]",
    "(i32[8] 0..9) -> i32[3] start=[2] step=[2]",
    "(f32[60,70]) -> f32[50,30] start=[5,7] step=[1,2]",
    NULL,
};

static const char *const unslice_samples[] = {
    "(f32[3,2]) -> f32[6,5] start=[1,3]",
    "(f32[3,3]) -> f32[7,8] start=[1,0] step=[2,3]",
    "(f32[5]) -> f32[9] step=[2]",
    "(f32[]) -> f32[]",
    "(f32[0,5]) -> f32[4,5] start=[4,0]",
    "(f32[50,30]) -> f32[60,70] start=[5,7] step=[1,2]",
    NULL,
};

const ht_op ht_op_slice = {
    .size = sizeof(ht_op),
    .name = "slice",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_MOVE,
    .flags = HT_OP_TYPED,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = slice_attrs,
    .infer = slice_infer,
    .cost = ht_cost_view,
    .grad = slice_grad,
    .ref = slice_ref,
    .view = slice_view,
    .samples = slice_samples,
};

const ht_op ht_op_unslice = {
    .size = sizeof(ht_op),
    .name = "unslice",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_TYPED,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = slice_attrs,
    .infer = unslice_infer,
    .cost = ht_cost_none,
    .grad = slice_grad,
    .ref = unslice_ref,
    .samples = unslice_samples,
};

ht_val ht_slice(ht_graph *g, ht_val x, const int64_t *start, const int64_t *dims, const int64_t *step)
{
    if (!ht_graph_has(g, x)) return HT_NONE;
    ht_type want = *ht_type_of(g, x);
    if (!ht_graph_need_dims(g, "slice", want.rank, dims)) return HT_NONE;
    for (int i = 0; i < want.rank; i++) want.dim[i] = dims[i];
    int n_start = start ? want.rank : 0, n_step = step ? want.rank : 0;
    return ht_emit1(g, "slice", &want, HT_VALS(x),
                    HT_ATTRS(HT_INTS("start", n_start, start), HT_INTS("step", n_step, step)));
}

ht_val ht_slice_axis(ht_graph *g, ht_val x, int axis, int64_t start, int64_t length)
{
    if (!ht_graph_has(g, x)) return HT_NONE;
    ht_type in = *ht_type_of(g, x);
    int at = axis < 0 ? axis + in.rank : axis;
    if (at < 0 || at >= in.rank) {
        ht_graph_fail(g, HT_EINVAL, "slice: axis %d of a value of rank %d", axis, (int)in.rank);
        return HT_NONE;
    }
    int64_t starts[HT_MAX_RANK] = {0};
    starts[at] = start;
    in.dim[at] = length;
    return ht_slice(g, x, starts, in.dim, NULL);
}
