/* concat: concatenation of the inputs along an axis. */
#include "op/op.h"
#include "op/view.h"

static ht_status concat_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int axis;
    HT_TRY(ht_need_axis(ctx, call, "axis", call->in[0]->rank, &axis));
    out[0] = *call->in[0];
    for (size_t i = 1; i < call->n_in; i++) {
        const ht_type *in = call->in[i];
        if (!in) HT_FAIL(ctx, HT_EINVAL, "input %zu is left out", i);
        bool fits = in->dtype == out[0].dtype && in->rank == out[0].rank;
        for (int d = 0; fits && d < in->rank; d++) fits = d == axis || in->dim[d] == out[0].dim[d];
        if (!fits) {
            ht_type_text a, b;
            HT_FAIL(ctx, HT_ESHAPE, "input %zu, %s, does not continue input 0, %s, along axis %d", i,
                    ht_type_str(in, &a), ht_type_str(call->in[0], &b), axis);
        }
        if (__builtin_add_overflow(out[0].dim[axis], in->dim[axis], &out[0].dim[axis]))
            HT_FAIL(ctx, HT_ESHAPE, "the size of axis %d overflows", axis);
    }
    return HT_OK;
}

static ht_status concat_grad(ht_graph *g, const ht_grad *d)
{
    size_t n = d->call->n_in;
    int axis = ht_call_axis(d->call, "axis", d->call->in[0]->rank);
    int64_t start = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t length = d->call->in[i]->dim[axis];
        if (d->need[i]) d->dx[i] = ht_slice_axis(g, d->dy[0], axis, start, length);
        start += length;
    }
    return ht_graph_status(g);
}

static void concat_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int axis = ht_call_axis(call, "axis", call->out[0]->rank);
    ht_around whole = ht_around_axis(call->out[0], axis);
    int64_t start = 0;
    for (size_t i = 0; i < call->n_in; i++) {
        int64_t run = call->in[i]->dim[axis] * whole.inner;
        for (int64_t o = 0; o < whole.outer; o++)
            for (int64_t k = 0; k < run; k++) out[0][o * whole.size * whole.inner + start + k] = in[i][o * run + k];
        start += run;
    }
}

/* In one piece where all axes before that of the concat have one element. */
static int64_t concat_part(const ht_call *call, size_t i)
{
    int axis = ht_call_axis(call, "axis", call->out[0]->rank);
    ht_around whole = ht_around_axis(call->out[0], axis);
    int64_t start = 0;
    for (size_t before = 0; before < i; before++) start += call->in[before]->dim[axis];
    return whole.outer == 1 ? start * whole.inner : -1;
}

static const ht_attr_def concat_attrs[] = {HT_DEF_INT("axis", 0), HT_DEF_END};

static const char *const concat_samples[] = {
    "(f32[2,3], f32[4,3])",
    "(f32[2,3], f32[2,1], f32[2,4]) axis=1",
    "(f32[2,3,2], f32[2,5,2]) axis=-2",
    "(f32[5])",
    "(f32[0,3], f32[2,3], f32[0,3])",
    "(i32[3] 0..9, i32[2] 0..9)",
    "(f32[30,40], f32[30,25], f32[30,3]) axis=1",
    NULL,
};

const ht_op ht_op_concat = {
    .size = sizeof(ht_op),
    .name = "concat",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = INT32_MAX,
    .n_out = 1,
    .attrs = concat_attrs,
    .infer = concat_infer,
    .cost = ht_cost_none,
    .grad = concat_grad,
    .ref = concat_ref,
    .part = concat_part,
    .samples = concat_samples,
};

ht_val ht_concat(ht_graph *g, size_t n, const ht_val *x, int axis)
{
    if (n > 0 && !ht_graph_need(g, x, "concat", "x")) return HT_NONE;
    for (size_t i = 0; i < n; i++)
        if (!x[i].id) return HT_NONE;
    return ht_emit1(g, "concat", NULL, n, x, HT_ATTRS(HT_INT("axis", axis)));
}
